//! Writes a whole chat completion from canon.

use canon::{
    Candidate, Citation, Extras, Finish, Kind, Logprob, Losses, Lossy, Media, Part, Reply, Source,
    Thought, TokenChance, Why,
};
use serde_json::Value;

use super::{ME, audio, seals, wire, write_request};
use crate::fields::{Object, note_foreign, number};
use crate::served::{self, TIER};
use crate::{Stamp, stretch};

/// Loss text for a signature on anything but a thought, a call or a text.
pub(super) const SEALLESS: &str =
    "a chat client brings seals back only on thinking, text and calls";
/// Loss text for media other than images and one audio clip.
pub(super) const MEDIALESS: &str = "the chat format has no place for this media";

/// Writes a reply to the given request.
pub(super) fn write(reply: Reply, chat: &canon::Chat, stamp: &Stamp) -> Lossy<Vec<u8>> {
    let Reply { id: _, model: _, created, candidates, usage, extras } = reply;
    let mut losses = Losses::new();
    let tier = served::note(&extras, ME, &mut losses);
    let choices: Vec<Value> =
        candidates.into_iter().map(|candidate| choice(candidate, chat, &mut losses)).collect();
    let body: Value = Object::new()
        .set("id", format!("chatcmpl-{}", stamp.id))
        .set("object", "chat.completion")
        .set("created", created.unwrap_or(stamp.created))
        .set("model", chat.model.as_str())
        .set("choices", choices)
        .set("usage", wire::write_usage(&usage.unwrap_or_default()))
        .maybe(TIER, tier)
        .with(&extras, ME)
        .into();
    (body.to_string().into_bytes(), losses.into_vec())
}

fn choice(candidate: Candidate, chat: &canon::Chat, losses: &mut Losses) -> Value {
    let Candidate { index, parts, finish, logprobs, extras } = candidate;
    served::note(&extras, ME, losses);
    let mut said = Said::default();
    for part in &parts {
        said.add(part, losses);
    }
    let rest = extras.get(ME, wire::MESSAGE).and_then(Value::as_object).cloned();
    let rest = Extras::of(ME, rest.unwrap_or_default());
    let asked = chat.sampling.logprobs.is_some();
    let logprobs = if asked { write_logprobs(&logprobs) } else { Value::Null };
    Object::new()
        .set("index", index)
        .set("message", said.into_message().with(&rest, ME))
        .set("logprobs", logprobs)
        .set("finish_reason", finish_word(finish.as_ref()))
        .with(&extras, ME)
        .into()
}

/// Returns the `finish_reason`. An unknown reason keeps the provider's word if the provider speaks
/// chat.
pub(super) fn finish_word(finish: Option<&Finish>) -> Value {
    match finish {
        None => Value::Null,
        Some(Finish { why: Why::Other, raw, .. }) => {
            Value::from(raw.for_origin(ME).unwrap_or(wire::write_why(Why::Other)))
        }
        Some(finish) => Value::from(wire::write_why(finish.why)),
    }
}

/// Collects the parts of a message. This format has one text per message, not a list.
#[derive(Default)]
struct Said {
    text: Option<String>,
    refusal: Option<String>,
    thoughts: String,
    details: Vec<Value>,
    calls: Vec<Value>,
    annotations: Vec<Value>,
    images: Vec<Value>,
    audio: Option<Value>,
}

impl Said {
    fn add(&mut self, part: &Part, losses: &mut Losses) {
        note_foreign(&part.extras, ME, "part", losses);
        let seal = part.seal.as_ref();
        let returned =
            matches!(part.kind, Kind::Text { .. } | Kind::Thought(_) | Kind::ToolCall(_));
        losses.add_if(seal.is_some() && !returned, "reply.seal", SEALLESS);
        match &part.kind {
            Kind::Text { text, citations } => {
                let offset = self.text.as_deref().unwrap_or_default().chars().count();
                self.annotations.extend(citations.iter().map(|c| write_citation(c, offset)));
                self.text.get_or_insert_default().push_str(text);
                self.keep_seal(seal, &stretch::name(offset, text.chars().count()));
            }
            Kind::Refusal(text) => self.refusal.get_or_insert_default().push_str(text),
            Kind::Thought(thought) => {
                let Thought { text, redacted: _ } = thought;
                self.thoughts.push_str(text);
                if text.is_empty() && seal.is_none() {
                    return;
                }
                self.details.push(seals::write_detail(part, thought, self.details.len()));
            }
            Kind::ToolCall(call) => {
                self.calls.push(write_request::write_call(call, part));
                let own = seal.filter(|seal| seals::write_on_call(seal).is_none());
                self.keep_seal(own, &call.id);
            }
            Kind::Media(media) => match (write_image(media), audio::write(media)) {
                (Some(image), _) => self.images.push(image),
                (None, Some(audio)) if self.audio.is_none() => self.audio = Some(audio),
                (None, _) => losses.add("reply.media", MEDIALESS),
            },
            Kind::Code(code) => self.block(&write_request::fenced(&code.language, &code.code)),
            Kind::CodeOutcome(outcome) => self.block(&write_request::fenced("", &outcome.output)),
            Kind::Search(_) => {
                losses.add("reply.search", "the chat format shows sources but not queries");
            }
            Kind::ToolResult(_) | Kind::Foreign { .. } => {
                losses.add("reply.part", "a part only the provider's format has");
            }
        }
    }

    fn keep_seal(&mut self, seal: Option<&canon::Seal>, id: &str) {
        if let Some(seal) = seal {
            self.details.push(seals::write_loose(seal, id, self.details.len()));
        }
    }

    fn block(&mut self, text: &str) {
        let all = self.text.get_or_insert_default();
        if !all.is_empty() && !all.ends_with('\n') {
            all.push('\n');
        }
        all.push_str(text);
        all.push('\n');
    }

    fn into_message(self) -> Object {
        let Self { text, refusal, thoughts, details, calls, annotations, images, audio } = self;
        let mentioned = (!thoughts.is_empty()).then_some(thoughts);
        Object::new()
            .set("role", "assistant")
            .set("content", text)
            .set("refusal", refusal)
            .maybe("reasoning_content", mentioned)
            .maybe("reasoning_details", (!details.is_empty()).then_some(details))
            .set("annotations", annotations)
            .maybe("images", (!images.is_empty()).then_some(images))
            .maybe("audio", audio)
            .maybe("tool_calls", (!calls.is_empty()).then_some(calls))
    }
}

/// Writes a citation. `offset` is the first character of its text in the message.
pub(super) fn write_citation(citation: &Citation, offset: usize) -> Value {
    let Citation { url, title, quote, span, extras: _ } = citation;
    let (start, end) = span.unwrap_or((0, 0));
    let inner = Object::new()
        .set("url", url.as_deref().unwrap_or_default())
        .set("title", title.as_deref().unwrap_or_default())
        .set("start_index", start + offset)
        .set("end_index", end + offset)
        .maybe("content", quote.as_deref());
    Object::new().set("type", "url_citation").set("url_citation", inner).into()
}

/// Writes a generated image. `None` for other media.
pub(super) fn write_image(media: &Media) -> Option<Value> {
    let url = match (&media.kind, &media.source) {
        (canon::MediaKind::Image, Source::Inline { mime, data }) => {
            format!("data:{mime};base64,{data}")
        }
        (canon::MediaKind::Image, Source::Url { url, .. }) => url.clone(),
        _ => return None,
    };
    let inner = Object::new().set("url", url);
    Some(Object::new().set("type", "image_url").set("image_url", inner).into())
}

/// Log probabilities of the tokens.
pub(super) fn write_logprobs(list: &[Logprob]) -> Value {
    let chance = |chance: &TokenChance| {
        let bytes = chance.bytes.clone().unwrap_or_else(|| chance.token.clone().into_bytes());
        Object::new()
            .set("token", chance.token.as_str())
            .set("logprob", number(chance.logprob))
            .set("bytes", bytes)
    };
    let content: Vec<Value> = list
        .iter()
        .map(|token| {
            let top: Vec<Value> = token.top.iter().map(|other| chance(other).into()).collect();
            chance(&token.chosen).set("top_logprobs", top).into()
        })
        .collect();
    Object::new().set("content", content).set("refusal", Value::Null).into()
}
