//! Thinking and its seals in chat, which officially has a place for neither.
//!
//! They travel in `reasoning_details[]`, the widest-spread extension: an ordered list a client
//! returns unchanged, whose `format` names the origin of each seal. A native seal on a tool call
//! also stands in `extra_content.google.thought_signature`, where Google's own chat surface has it.

use canon::{Kind, Origin, Part, Seal, Thought};
use serde_json::{Map, Value};

use super::ME;
use crate::fields::Object;

/// The word for an origin in `format`.
const fn format_of(origin: Origin) -> &'static str {
    match origin {
        Origin::Messages => "anthropic-claude-v1",
        Origin::Responses => "openai-responses-v1",
        Origin::Native => "google-gemini-v1",
        Origin::Chat | Origin::Images => "unknown",
    }
}

fn origin_of(format: Option<&str>) -> Origin {
    match format {
        Some("anthropic-claude-v1") => Origin::Messages,
        Some("openai-responses-v1") => Origin::Responses,
        Some("google-gemini-v1") => Origin::Native,
        _ => Origin::Chat,
    }
}

/// One entry of the list; `None` for a kind of entry we do not know.
pub(super) fn read_detail(detail: &Value) -> Option<Part> {
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let format = text("format");
    let seal = |token: &str| Seal::new(origin_of(format), token);
    let mut part = match text("type")? {
        "reasoning.text" => {
            let thought =
                Thought { text: text("text").unwrap_or_default().to_owned(), redacted: false };
            Part::new(Kind::Thought(thought)).sealed(text("signature").map(seal))
        }
        "reasoning.summary" => {
            let thought =
                Thought { text: text("summary").unwrap_or_default().to_owned(), redacted: false };
            Part::new(Kind::Thought(thought))
        }
        "reasoning.encrypted" => {
            let thought = Thought { text: String::new(), redacted: true };
            Part::new(Kind::Thought(thought)).sealed(text("data").map(seal))
        }
        _ => return None,
    };
    if let Some(id) = text("id") {
        part.extras.put(ME, "id", Value::from(id));
    }
    if origin_of(format) == ME
        && let Some(format) = format
        && format != "unknown"
    {
        part.extras.put(ME, "format", Value::from(format));
    }
    Some(part)
}

/// One entry of the list for a thought.
pub(super) fn write_detail(part: &Part, thought: &Thought, index: usize) -> Value {
    let seal = part.seal.as_ref().map(Seal::open);
    let format = part.extras.get(ME, "format").and_then(Value::as_str);
    let format = format.unwrap_or(seal.map_or("unknown", |(origin, _)| format_of(origin)));
    let token = seal.map(|(_, token)| token);
    let detail = if thought.redacted {
        Object::new().set("type", "reasoning.encrypted").maybe("data", token)
    } else {
        Object::new()
            .set("type", "reasoning.text")
            .set("text", thought.text.as_str())
            .maybe("signature", token)
    };
    detail
        .maybe("id", part.extras.get(ME, "id").cloned())
        .set("format", format)
        .set("index", index)
        .into()
}

/// The entry that carries the seal of a part which is no thought.
pub(super) fn write_loose(seal: &Seal, id: Option<&str>, index: usize) -> Value {
    let (origin, token) = seal.open();
    Object::new()
        .set("type", "reasoning.encrypted")
        .set("data", token)
        .maybe("id", id)
        .set("format", format_of(origin))
        .set("index", index)
        .into()
}

/// The piece of a streamed entry that adds text.
pub(super) fn text_piece(text: &str, index: usize) -> Value {
    let piece = Object::new().set("type", "reasoning.text").set("text", text);
    Value::Array(vec![piece.set("index", index).into()])
}

/// The piece of a streamed entry that adds its seal.
pub(super) fn seal_piece(seal: &Seal, index: usize) -> Value {
    let (origin, token) = seal.open();
    let piece = Object::new().set("type", "reasoning.text").set("signature", token);
    Value::Array(vec![piece.set("format", format_of(origin)).set("index", index).into()])
}

/// The seal on a tool call.
pub(super) fn read_on_call(extra_content: &Value) -> Option<Seal> {
    let token = extra_content.get("google")?.get("thought_signature")?.as_str()?;
    Some(Seal::new(Origin::Native, token))
}

/// The seal of a tool call in its own place; `None` when only the list can carry it.
pub(super) fn write_on_call(seal: &Seal) -> Option<Map<String, Value>> {
    let token = seal.for_origin(Origin::Native)?;
    let google = Object::new().set("thought_signature", token);
    Some(Object::new().set("google", google).into_map())
}
