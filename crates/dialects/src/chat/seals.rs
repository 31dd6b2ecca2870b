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

use super::ME;
use crate::fields::Object;
use crate::stretch;

pub(super) const DETAILS: &str = "reasoning_details";

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
pub(super) enum Side {
    /// A client that returns earlier entries.
    History,
    /// A provider.
    Answer,
}

/// Separates format, id and token in a signature of a chat provider. No token contains it.
const MARK: char = '\u{2}';

fn pack(format: Option<&str>, id: Option<&str>, token: &str) -> Seal {
    let format = format.filter(|format| *format != "unknown").unwrap_or_default();
    let id = id.unwrap_or_default();
    if format.is_empty() && id.is_empty() {
        return Seal::new(ME, token);
    }
    Seal::new(ME, format!("{MARK}{format}{MARK}{id}{MARK}{token}"))
}

/// Splits a signature into format, id and token.
fn unpack(seal: &Seal) -> (&str, Option<&str>, &str) {
    let (origin, token) = seal.open();
    let packed = token.strip_prefix(MARK).filter(|_| origin == ME);
    let Some((format, rest)) = packed.and_then(|rest| rest.split_once(MARK)) else {
        return (format_of(origin), None, token);
    };
    let (id, token) = rest.split_once(MARK).unwrap_or(("", rest));
    let format = if format.is_empty() { "unknown" } else { format };
    (format, Some(id).filter(|id| !id.is_empty()), token)
}

/// Reads one entry of the list. `None` for an unknown entry type.
pub(super) fn read_detail(detail: &Value, side: Side) -> Option<Part> {
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let format = text("format");
    let origin = if side == Side::Answer { ME } else { origin_of(format) };
    let seal = |token: &str| match origin {
        Origin::Chat => pack(format, text("id"), token),
        Origin::Responses | Origin::Messages | Origin::Native | Origin::Images => {
            Seal::new(origin, token)
        }
    };
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
    if part.seal.is_none() {
        for name in ["id", "format"] {
            if let Some(word) = text(name).filter(|word| *word != "unknown") {
                part.extras.put(ME, name, Value::from(word));
            }
        }
    }
    Some(part)
}

/// Puts the signatures of calls back on the calls and separates those of texts. Returns the entries
/// that are thinking, and the signatures of texts.
pub(super) fn restore(
    details: Vec<Value>,
    calls: &mut [Part],
) -> (Vec<Value>, Vec<(String, Seal)>) {
    let (mut thoughts, mut on_text) = (Vec::new(), Vec::new());
    for detail in details {
        let text = |name: &str| detail.get(name).and_then(Value::as_str);
        let token = text("data").filter(|_| text("type") == Some("reasoning.encrypted"));
        if let (Some(token), Some(id)) = (token, text("id")) {
            let seal = Seal::new(origin_of(text("format")), token);
            let own = |part: &&mut Part| matches!(&part.kind, Kind::ToolCall(c) if c.id == id);
            if stretch::is_name(id) {
                on_text.push((id.to_owned(), seal));
                continue;
            }
            if let Some(call) = calls.iter_mut().find(own) {
                call.seal.get_or_insert(seal);
                continue;
            }
        }
        thoughts.push(detail);
    }
    (thoughts, on_text)
}

/// Writes the entry of a thought.
pub(super) fn write_detail(part: &Part, thought: &Thought, index: usize) -> Value {
    let kept = |name: &str| part.extras.get(ME, name).and_then(Value::as_str);
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
pub(super) fn write_loose(seal: &Seal, id: &str, index: usize) -> Value {
    let (origin, token) = seal.open();
    Object::new()
        .set("type", "reasoning.encrypted")
        .set("data", token)
        .set("id", id)
        .set("format", format_of(origin))
        .set("index", index)
        .into()
}

/// Writes a delta of an entry that adds text.
pub(super) fn text_piece(text: &str, index: usize) -> Value {
    let piece = Object::new().set("type", "reasoning.text").set("text", text);
    Value::Array(vec![piece.set("index", index).into()])
}

/// Writes a delta of an entry that adds the signature.
pub(super) fn seal_piece(seal: &Seal, index: usize) -> Value {
    let (format, id, token) = unpack(seal);
    let piece = Object::new().set("type", "reasoning.text").set("signature", token);
    Value::Array(vec![piece.maybe("id", id).set("format", format).set("index", index).into()])
}

/// Reads the signature of a tool call.
pub(super) fn read_on_call(extra_content: &Value) -> Option<Seal> {
    let token = extra_content.get("google")?.get("thought_signature")?.as_str()?;
    Some(Seal::new(Origin::Native, token))
}

/// Writes the signature of a tool call into its own field. `None` if only the list can carry it.
pub(super) fn write_on_call(seal: &Seal) -> Option<Map<String, Value>> {
    let token = seal.for_origin(Origin::Native)?;
    let google = Object::new().set("thought_signature", token);
    Some(Object::new().set("google", google).into_map())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_providers_own_entry_comes_back_with_its_format_and_id() {
        let entry = serde_json::json!({"type": "reasoning.text", "text": "hm",
            "signature": "EqQB", "id": "r1", "format": "anthropic-claude-v1", "index": 0});
        let part = read_detail(&entry, Side::Answer).unwrap();
        assert_eq!(part.seal.as_ref().map(Seal::origin), Some(ME));
        let Kind::Thought(thought) = &part.kind else { panic!("{part:?}") };
        assert_eq!(write_detail(&part, thought, 0), entry);
        let told = read_detail(&entry, Side::History).unwrap();
        assert_eq!(told.seal, Some(Seal::new(Origin::Messages, "EqQB")));
    }
}
