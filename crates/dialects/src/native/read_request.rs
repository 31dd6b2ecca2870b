//! A native request into canon.

use canon::{
    Canvas, Extras, Fault, Format, Hints, Kind, Level, Part, Role, Sampling, Schema, Seal, Show,
    State, Thinking, ToolResult, Turn,
};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet, VecDeque};

use super::lenient::{self, fields};
use super::{ALT, ME, read_part, read_tools, schema, seals, wire};
use crate::fields::{Fields, Path};
use crate::{Target, json};

/// Reads a request. Its rules have been checked by `rules`; here only types matter.
pub(super) fn read(target: &Target, body: &[u8]) -> Result<canon::Chat, Fault> {
    let text = json::text(body)?;
    let value: Value = serde_json::from_str(text)
        .map_err(|e| Fault::invalid("", format!("the body is not valid JSON: {e}")))?;
    let mut root = match value {
        Value::Object(_) => fields(value, &Path::Root)?,
        _ => return Err(Fault::invalid("", "the body must be a JSON object")),
    };
    // The path names the model; a body that names another one is not listened to.
    let named = root.take("model").and_then(|name| name.as_str().map(str::to_owned));
    let model = target.model.clone().or(named).unwrap_or_default();

    let mut extras = Extras::none();
    let mut turns = Vec::new();
    if let Some(value) = root.take("systemInstruction") {
        turns.push(instruction(value)?);
    }
    conversation(lenient::list(&mut root, "contents")?, &mut turns)?;
    let tools = read_tools::tools(lenient::list(&mut root, "tools")?)?;
    let choice = read_tools::choice(root.take("toolConfig"), &mut extras)?;
    let config = root.take("generationConfig").unwrap_or_else(|| Value::Object(Map::new()));
    let path = Path::Root.key("generationConfig");
    let mut config = fields(config, &path)?;
    let sampling = sampling(&mut config)?;
    let thinking = thinking(config.take("thinkingConfig"), &mut extras)?;
    let format = format(&mut config, &mut extras)?;
    let modalities = lenient::strings(&mut config, "responseModalities")?
        .iter()
        .filter_map(|word| wire::read_modality(word))
        .collect();
    let canvas = canvas(&mut config)?;
    lenient::keep(&mut extras, "generationConfig", config);
    let tier = root.string("serviceTier")?.as_deref().map(wire::read_tier);
    for (name, value) in root.rest() {
        extras.put(ME, &name, value);
    }
    if target.stream && target.array {
        extras.put(ME, ALT, Value::from("json"));
    }
    Ok(canon::Chat {
        model,
        turns,
        tools,
        choice,
        sampling,
        thinking,
        format,
        modalities,
        canvas,
        stream: target.stream,
        state: State::default(),
        hints: Hints { tier, ..Hints::default() },
        extras,
    })
}

/// The shape of pictures. What else is told there stays in this format.
fn canvas(config: &mut Fields<'_>) -> Result<Canvas, Fault> {
    let Some(value) = config.take("imageConfig") else { return Ok(Canvas::default()) };
    let path = Path::Root.key("generationConfig");
    let path = path.key("imageConfig");
    let mut inner = fields(value, &path)?;
    let canvas = Canvas { ratio: inner.string("aspectRatio")?, size: inner.string("imageSize")? };
    let rest = inner.rest();
    if !rest.is_empty() {
        config.leave("imageConfig", Value::Object(rest));
    }
    Ok(canvas)
}

/// Instructions for the whole conversation; whose role they name does not matter.
fn instruction(value: Value) -> Result<Turn, Fault> {
    let path = Path::Root.key("systemInstruction");
    let mut content = fields(value, &path)?;
    content.take("role");
    let list = path.key("parts");
    let mut parts = Vec::new();
    for (at, value) in lenient::list(&mut content, "parts")?.into_iter().enumerate() {
        let read = read_part::part(value, &list.item(at), |name| wire::invent(at, name))?;
        parts.extend(read.part);
    }
    Ok(Turn { extras: content.extras(ME), ..Turn::new(Role::System, parts) })
}

/// The calls of the history that results are matched with.
#[derive(Default)]
struct Asked {
    /// The id of each call, and whether it was answered.
    calls: Vec<(String, bool)>,
    by_id: HashMap<String, usize>,
    by_name: HashMap<String, Unanswered>,
}

/// Calls of one name in their order; answered ones leave when they come to the front.
#[derive(Default)]
struct Unanswered {
    all: VecDeque<usize>,
    /// Those the provider gave no id.
    nameless: VecDeque<usize>,
}

impl Asked {
    fn push(&mut self, id: &str, name: &str) {
        let at = self.calls.len();
        self.calls.push((id.to_owned(), false));
        self.by_id.entry(id.to_owned()).or_insert(at);
        let same = self.by_name.entry(name.to_owned()).or_default();
        same.all.push_back(at);
        if wire::real_id(id).is_none() {
            same.nameless.push_back(at);
        }
    }

    /// The first call of that name that is unanswered; with an id of its own, a result answers only
    /// a call that has none.
    fn first(&mut self, result: &ToolResult) -> Option<usize> {
        let same = self.by_name.get_mut(result.name.as_deref()?)?;
        let open = if result.call.is_empty() { &mut same.all } else { &mut same.nameless };
        while let Some(at) = open.front().copied() {
            if self.calls.get(at).is_some_and(|(_, answered)| !answered) {
                return Some(at);
            }
            open.pop_front();
        }
        None
    }
}

fn conversation(contents: Vec<Value>, turns: &mut Vec<Turn>) -> Result<(), Fault> {
    let root = Path::Root.key("contents");
    let mut asked = Asked::default();
    // Seals of the turn before, which goes on where it is the model's too.
    let mut sealed: HashSet<Seal> = HashSet::new();
    for (index, value) in contents.into_iter().enumerate() {
        let path = root.item(index);
        let mut content = fields(value, &path)?;
        let role = match content.string("role")?.as_deref() {
            None | Some("user" | "function") => Role::User,
            Some("model") => Role::Assistant,
            Some(_) => return Err(content.fault("role", "must be `user` or `model`")),
        };
        let list = path.key("parts");
        let read = lenient::list(&mut content, "parts")?;
        let extras = content.extras(ME);
        // One client keeps every piece of a streamed answer as a turn of its own.
        let same = |turn: &mut Turn| role == Role::Assistant && turn.role == role;
        let bare = |turn: &mut Turn| extras.is_empty() && turn.extras.is_empty();
        let before = turns.pop_if(|turn| same(turn) && bare(turn));
        if before.is_none() {
            sealed.clear();
        }
        let mut parts = before.map(|turn| turn.parts).unwrap_or_default();
        for (at, value) in read.into_iter().enumerate() {
            let invent = |name: &str| wire::invent((index, at), name);
            let read = read_part::part(value, &list.item(at), invent)?;
            // A call repeats the seal of the thought before it, for clients that keep no thoughts.
            if let Some(hidden) = read.hidden
                && hidden.seal.as_ref().is_none_or(|seal| !sealed.contains(seal))
            {
                sealed.extend(hidden.seal.clone());
                parts.push(hidden);
            }
            if let Some(mut part) = read.part {
                note(&mut part, &mut asked);
                join(&mut part, &mut parts);
                sealed.extend(part.seal.clone());
                parts.push(part);
            }
        }
        turns.push(Turn { extras, ..Turn::new(role, parts) });
    }
    Ok(())
}

/// A thought that another provider sealed was streamed in pieces with the seal on the last of them,
/// and the seal holds for all of its words.
fn join(part: &mut Part, before: &mut Vec<Part>) {
    let foreign = part.seal.as_ref().is_some_and(|seal| seal.origin() != ME);
    let Kind::Thought(thought) = &mut part.kind else { return };
    if !foreign {
        return;
    }
    let others =
        before.iter().rposition(|one| one.seal.is_some() || !matches!(one.kind, Kind::Thought(_)));
    let mut all = String::new();
    // Put together once: a text that grows at its front is moved for every piece.
    for piece in before.drain(others.map_or(0, |at| at + 1)..) {
        if let Kind::Thought(piece) = piece.kind {
            all.push_str(&piece.text);
        }
    }
    all.push_str(&thought.text);
    thought.text = all;
}

/// Remembers calls, and finds the call a result without an id answers: by name, in order.
fn note(part: &mut Part, asked: &mut Asked) {
    let bare = part.seal.is_none();
    match &mut part.kind {
        Kind::ToolCall(call) => {
            asked.push(&call.id, &call.name);
        }
        Kind::ToolResult(result) => {
            answer(result, asked);
            return;
        }
        Kind::Thought(_) => {}
        Kind::Text { .. }
        | Kind::Refusal(_)
        | Kind::Media(_)
        | Kind::Code(_)
        | Kind::CodeOutcome(_)
        | Kind::Search(_)
        | Kind::Foreign { .. } => return,
    }
    if bare {
        part.extras.put(ME, seals::OWN, Value::Bool(true));
    }
}

fn answer(result: &mut ToolResult, asked: &mut Asked) {
    let by_id = match result.call.is_empty() {
        true => None,
        false => asked.by_id.get(&result.call).copied(),
    };
    let found = by_id.or_else(|| asked.first(result));
    if let Some((id, answered)) = found.and_then(|at| asked.calls.get_mut(at)) {
        *answered = true;
        result.call.clone_from(id);
    }
}

fn sampling(config: &mut Fields<'_>) -> Result<Sampling, Fault> {
    let asked = config.flag("responseLogprobs")?.unwrap_or(false);
    let top = lenient::integer(config, "logprobs")?;
    let small = |number: Option<i64>| number.and_then(|n| u32::try_from(n).ok());
    Ok(Sampling {
        temperature: config.number("temperature")?,
        top_p: config.number("topP")?,
        top_k: lenient::integer(config, "topK")?,
        presence_penalty: config.number("presencePenalty")?,
        frequency_penalty: config.number("frequencyPenalty")?,
        seed: lenient::integer(config, "seed")?,
        stop: lenient::strings(config, "stopSequences")?,
        max_output: lenient::integer(config, "maxOutputTokens")?
            .and_then(|n| u64::try_from(n).ok()),
        candidates: small(lenient::integer(config, "candidateCount")?),
        logprobs: asked.then(|| small(top).unwrap_or(0)),
    })
}

fn thinking(config: Option<Value>, extras: &mut Extras) -> Result<Thinking, Fault> {
    let Some(config) = config else { return Ok(Thinking::default()) };
    let path = Path::Root.key("generationConfig");
    let path = path.key("thinkingConfig");
    let mut config = fields(config, &path)?;
    let budget = lenient::integer(&mut config, "thinkingBudget")?;
    let level = lenient::word(&mut config, "thinkingLevel")?;
    let show = config.flag("includeThoughts")?;
    lenient::keep(extras, "generationConfig.thinkingConfig", config);
    Ok(Thinking {
        level: level.as_deref().and_then(read_level),
        budget: budget.and_then(|n| u64::try_from(n).ok()),
        dynamic: budget.is_some_and(|n| n < 0),
        show: show.map(|show| if show { Show::Auto } else { Show::Hidden }),
    })
}

/// Effort by this format's word.
pub(super) fn read_level(word: &str) -> Option<Level> {
    match word {
        "MINIMAL" => Some(Level::Minimal),
        "LOW" => Some(Level::Low),
        "MEDIUM" => Some(Level::Medium),
        "HIGH" => Some(Level::High),
        _ => None,
    }
}

fn format(config: &mut Fields<'_>, extras: &mut Extras) -> Result<Format, Fault> {
    let mime = config.string("responseMimeType")?;
    let own = config.take("responseSchema");
    let shape = config.take("responseJsonSchema").map(Schema::new).or(own.map(schema::read));
    // A bare word out of a list is asked for by a media type no other format knows.
    if let Some(mime) = &mime
        && !matches!(mime.as_str(), "application/json" | "text/plain")
    {
        extras.put(ME, "generationConfig.responseMimeType", Value::from(mime.as_str()));
    }
    Ok(match (shape, mime.as_deref()) {
        (Some(schema), _) => Format::Schema { name: None, description: None, schema, strict: None },
        (None, Some("application/json")) => Format::Json,
        (None, _) => Format::Text,
    })
}
