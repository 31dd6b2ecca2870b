//! Thinking and its signatures. The official chat format has no field for either.
//!
//! They travel in `reasoning_details[]`, an ordered list that clients return unchanged, as
//! OpenRouter defines it: <https://openrouter.ai/docs/use-cases/reasoning-tokens>. `format` names
//! the origin of each signature. A Gemini signature on a tool call is also written to
//! `extra_content.google.thought_signature`, as in Google's OpenAI-compatible API:
//! <https://ai.google.dev/gemini-api/docs/thought-signatures>.
//!
//! A signature on another part has an entry of its own. Its `id` names the part: the id of a call,
//! or `text:START:END` for characters of the message.
//!
//! A chat provider expects its own entries back unchanged. Its signatures therefore count as chat's
//! own, whatever `format` says, and carry `format` and `id` inside.

use canon::{Kind, Origin, Part, Seal, Thought};
use serde_json::{Map, Value};

use super::names::ORIGIN;
use crate::fields::Object;
use crate::stretch;

/// Returns the `format` word for an origin.
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

/// Author of a `reasoning_details` list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetailsAuthor {
    /// A client that returns earlier entries.
    Client,
    /// A provider.
    Provider,
}

/// Separates format, id and token in a signature of a chat provider. No token contains it.
const SEPARATOR: char = '\u{2}';

fn pack(format: Option<&str>, id: Option<&str>, token: &str) -> Seal {
    let format = format.filter(|format| *format != "unknown").unwrap_or_default();
    let id = id.unwrap_or_default();
    if format.is_empty() && id.is_empty() {
        return Seal::new(ORIGIN, token);
    }
    Seal::new(ORIGIN, format!("{SEPARATOR}{format}{SEPARATOR}{id}{SEPARATOR}{token}"))
}

/// Splits a signature into format, id and token.
fn unpack(signature: &Seal) -> (&str, Option<&str>, &str) {
    let (origin, token) = signature.open();
    let packed = token.strip_prefix(SEPARATOR).filter(|_| origin == ORIGIN);
    let Some((format, rest)) = packed.and_then(|rest| rest.split_once(SEPARATOR)) else {
        return (format_of(origin), None, token);
    };
    let (id, token) = rest.split_once(SEPARATOR).unwrap_or(("", rest));
    let format = if format.is_empty() { "unknown" } else { format };
    (format, Some(id).filter(|id| !id.is_empty()), token)
}

/// Reads one entry of the list. `None` for an unknown entry type.
pub(super) fn read_detail(detail: &Value, author: DetailsAuthor) -> Option<Part> {
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let format = text("format");
    let origin = if author == DetailsAuthor::Provider { ORIGIN } else { origin_of(format) };
    let signature = |token: &str| match origin {
        Origin::Chat => pack(format, text("id"), token),
        Origin::Responses | Origin::Messages | Origin::Native | Origin::Images => {
            Seal::new(origin, token)
        }
    };
    let mut part = match text("type")? {
        "reasoning.text" => {
            let thought =
                Thought { text: text("text").unwrap_or_default().to_owned(), redacted: false };
            Part::new(Kind::Thought(thought)).sealed(text("signature").map(signature))
        }
        "reasoning.summary" => {
            let thought =
                Thought { text: text("summary").unwrap_or_default().to_owned(), redacted: false };
            Part::new(Kind::Thought(thought))
        }
        "reasoning.encrypted" => {
            let thought = Thought { text: String::new(), redacted: true };
            Part::new(Kind::Thought(thought)).sealed(text("data").map(signature))
        }
        _ => return None,
    };
    if part.seal.is_none() {
        for name in ["id", "format"] {
            if let Some(word) = text(name).filter(|word| *word != "unknown") {
                part.extras.put(ORIGIN, name, Value::from(word));
            }
        }
    }
    Some(part)
}

/// Puts the signatures of calls back on the calls and separates those of texts. Returns the entries
/// that are thinking, and the signatures of texts.
pub(super) fn split_details(
    details: Vec<Value>,
    calls: &mut [Part],
) -> (Vec<Value>, Vec<(String, Seal)>) {
    let (mut thoughts, mut on_text) = (Vec::new(), Vec::new());
    for detail in details {
        let text = |name: &str| detail.get(name).and_then(Value::as_str);
        let token = text("data").filter(|_| text("type") == Some("reasoning.encrypted"));
        if let (Some(token), Some(id)) = (token, text("id")) {
            let signature = Seal::new(origin_of(text("format")), token);
            let is_target =
                |part: &&mut Part| matches!(&part.kind, Kind::ToolCall(c) if c.id == id);
            if stretch::is_name(id) {
                on_text.push((id.to_owned(), signature));
                continue;
            }
            if let Some(call) = calls.iter_mut().find(is_target) {
                call.seal.get_or_insert(signature);
                continue;
            }
        }
        thoughts.push(detail);
    }
    (thoughts, on_text)
}

/// Writes the entry of a thought.
pub(super) fn write_detail(part: &Part, thought: &Thought, index: usize) -> Value {
    let kept = |name: &str| part.extras.get(ORIGIN, name).and_then(Value::as_str);
    let (format, id, token) = match part.seal.as_ref().map(unpack) {
        Some((format, id, token)) => (format, id, Some(token)),
        None => (kept("format").unwrap_or("unknown"), kept("id"), None),
    };
    let detail = if thought.redacted {
        Object::new().set("type", "reasoning.encrypted").maybe("data", token)
    } else {
        Object::new()
            .set("type", "reasoning.text")
            .set("text", thought.text.as_str())
            .maybe("signature", token)
    };
    detail.maybe("id", id).set("format", format).set("index", index).into()
}

/// Writes the entry for the signature of a part that is not a thought.
pub(super) fn write_part_signature(signature: &Seal, id: &str, index: usize) -> Value {
    let (origin, token) = signature.open();
    Object::new()
        .set("type", "reasoning.encrypted")
        .set("data", token)
        .set("id", id)
        .set("format", format_of(origin))
        .set("index", index)
        .into()
}

/// Writes a delta of an entry that adds text.
pub(super) fn text_delta(text: &str, index: usize) -> Value {
    let piece = Object::new().set("type", "reasoning.text").set("text", text);
    Value::Array(vec![piece.set("index", index).into()])
}

/// Writes a delta of an entry that adds the signature.
pub(super) fn signature_delta(signature: &Seal, index: usize) -> Value {
    let (format, id, token) = unpack(signature);
    let piece = Object::new().set("type", "reasoning.text").set("signature", token);
    Value::Array(vec![piece.maybe("id", id).set("format", format).set("index", index).into()])
}

/// Reads the signature of a tool call.
pub(super) fn read_call_signature(extra_content: &Value) -> Option<Seal> {
    let token = extra_content.get("google")?.get("thought_signature")?.as_str()?;
    Some(Seal::new(Origin::Native, token))
}

/// Writes the signature of a tool call into its own field. `None` if only the list can carry it.
pub(super) fn write_call_signature(signature: &Seal) -> Option<Map<String, Value>> {
    let token = signature.for_origin(Origin::Native)?;
    let google = Object::new().set("thought_signature", token);
    Some(Object::new().set("google", google).into_map())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_a_providers_entry_with_format_and_id() {
        let entry = serde_json::json!({"type": "reasoning.text", "text": "hm",
            "signature": "EqQB", "id": "r1", "format": "anthropic-claude-v1", "index": 0});
        let part = read_detail(&entry, DetailsAuthor::Provider).unwrap();
        assert_eq!(part.seal.as_ref().map(Seal::origin), Some(ORIGIN));
        let Kind::Thought(thought) = &part.kind else { panic!("{part:?}") };
        assert_eq!(write_detail(&part, thought, 0), entry);
        let entry_part = read_detail(&entry, DetailsAuthor::Client).unwrap();
        assert_eq!(entry_part.seal, Some(Seal::new(Origin::Messages, "EqQB")));
    }
}
