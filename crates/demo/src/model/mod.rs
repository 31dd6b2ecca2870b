//! The demo model. The same request always gets the same answer.

mod calls;
mod check;
mod ground;
mod instance;
mod limits;
mod media;
mod native_fields;
mod paint;
mod pattern;
mod prompt;
mod schema;
mod script;
mod story;
mod summary;
mod sums;
mod talk;
mod thinking;

use canon::{ApiError, ChatReply, ChatRequest, Part, PartKind, ResponseFormat, Usage, WireFormat};
use serde_json::{Map, Value};

use crate::seeded_random::{self, SeededRandom};
use crate::signature;
pub use limits::MAX_OUTPUT;
pub(crate) use limits::finish_word;
use limits::{AnswerDraft, AnswerUsage};
use prompt::Prompt;

/// Maximum number of answers to one request.
const MAX_CANDIDATES: u32 = 128;

/// Persona of a demo model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persona {
    /// A small conversational model.
    Model,
    /// Repeats the last text of the user.
    Echo,
    /// Draws the text of the user.
    Painter,
}

impl Persona {
    /// Returns the persona of a model id.
    pub fn of_model(id: &str) -> Self {
        match id {
            "demo-echo" => Self::Echo,
            "demo-image-native" => Self::Painter,
            _ => Self::Model,
        }
    }
}

/// Answers a request in that format. The only possible error is a damaged signature in the history.
pub fn answer(
    chat: &ChatRequest,
    persona: Persona,
    origin: WireFormat,
) -> Result<ChatReply, ApiError> {
    signature::check(chat, origin)?;
    let prompt = Prompt::read(chat);
    let weight = prompt::measure_size(chat);
    let mut usage = Usage {
        input: weight.all,
        input_image: weight.images,
        input_video: weight.videos,
        input_audio: weight.audio,
        ..Usage::default()
    };
    let count = chat.sampling.candidates.unwrap_or(1).clamp(1, MAX_CANDIDATES);
    let mut candidates = Vec::new();
    for index in 0..count {
        let draft = match persona {
            Persona::Model => compose(chat, &prompt, origin, index),
            Persona::Painter => paint::compose(chat, index),
            Persona::Echo => {
                let parts = vec![Part::text(prompt::last_text(chat))];
                AnswerDraft { thoughts: None, seal: None, parts }
            }
        };
        let (mut candidate, spent) =
            limits::keep(draft, &chat.sampling, &chat.thinking, origin, index);
        if origin == WireFormat::Native {
            candidate.extras = native_fields::of_parts(&candidate.parts);
        }
        let AnswerUsage { output, thinking, searches } = spent;
        usage.output += output;
        let image_tokens = paint::image_tokens(&candidate.parts);
        usage.output += image_tokens;
        usage.output_image += image_tokens;
        usage.thinking += thinking;
        usage.searches += searches;
        candidates.push(candidate);
    }
    Ok(ChatReply {
        model: Some(chat.model.clone()),
        candidates,
        usage: Some(usage),
        ..ChatReply::default()
    })
}

/// Returns the number of input tokens of a request.
pub fn count_input(chat: &ChatRequest) -> u64 {
    prompt::measure_size(chat).all
}

/// Composes one answer before its limits are applied.
fn compose(chat: &ChatRequest, prompt: &Prompt<'_>, origin: WireFormat, index: u32) -> AnswerDraft {
    // Without a seed the same words give the same text, so the hash covers only the values that
    // vary.
    let seed = chat.sampling.seed.map_or(0, |seed| seeded_random::hash(&seed.to_le_bytes()));
    let mut random = SeededRandom::new(seeded_random::join(prompt.salt ^ seed, u64::from(index)));
    let calls = calls::calls(chat, prompt, &random, index);
    let (parts, plan) = if !calls.is_empty() {
        let plan = format!(
            "The tool {} fits, so I will call it with what I was told.",
            first_name(&calls)
        );
        (calls.into_iter().map(|call| Part::new(PartKind::ToolCall(call))).collect(), plan)
    } else if let Some(parts) = ground::parts(chat, prompt, origin) {
        (parts, "I have a tool of my own for this, so I will use it and report.".to_owned())
    } else {
        let text = match &chat.response_format {
            ResponseFormat::Text => talk::answer(prompt, &mut random, index),
            ResponseFormat::Json => in_json(&talk::answer(prompt, &mut random, index)),
            ResponseFormat::Schema { schema, .. } => {
                instance::InstanceBuilder::new(prompt, &schema.json, random, 0).make().to_string()
            }
        };
        let plan = if prompt.results.is_empty() {
            "I can answer that by myself, in plain words and without haste."
        } else {
            "The tools have answered, so I only need to put their results into words."
        };
        (vec![Part::text(text)], plan.to_owned())
    };
    let thoughts = thinking::think(&chat.thinking, prompt, &plan, origin);
    let called = parts.iter().any(|part| matches!(part.kind, PartKind::ToolCall(_)));
    let sealed = thoughts.is_some() || (called && origin == WireFormat::Native);
    let about = seeded_random::join(prompt.mark, u64::from(index));
    let seal = sealed.then(|| signature::issue(origin, about));
    AnswerDraft { thoughts, seal, parts }
}

fn first_name(calls: &[canon::ToolCall]) -> &str {
    calls.first().map_or("", |call| call.name.as_str())
}

fn in_json(answer: &str) -> String {
    let mut object = Map::new();
    object.insert("answer".to_owned(), Value::from(answer));
    object.insert("model".to_owned(), Value::from("demo"));
    Value::Object(object).to_string()
}

#[cfg(test)]
mod tests;
