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

use canon::{Part, PartKind, Signature, Thought, WireFormat};
use serde_json::Value;

use super::names::ORIGIN;
pub(super) use crate::envelope::ContentAuthor;
use crate::fields::ObjectWriter;
use crate::signed_span;

/// The `format` words of the origins.
const FORMATS: [(WireFormat, &str); 3] = [
    (WireFormat::Messages, "anthropic-claude-v1"),
    (WireFormat::Responses, "openai-responses-v1"),
    (WireFormat::Native, "google-gemini-v1"),
];

fn format_of(origin: WireFormat) -> &'static str {
    FORMATS.iter().find(|(own, _)| *own == origin).map_or("unknown", |(_, format)| format)
}

fn origin_of(format: Option<&str>) -> WireFormat {
    FORMATS.iter().find(|(_, own)| Some(*own) == format).map_or(ORIGIN, |(origin, _)| *origin)
}

/// Separates format, id and token in a signature of a chat provider. No token contains it.
const SEPARATOR: char = '\u{2}';

fn pack(format: Option<&str>, id: Option<&str>, token: &str) -> Signature {
    let format = format.filter(|format| *format != "unknown").unwrap_or_default();
    let id = id.unwrap_or_default();
    if format.is_empty() && id.is_empty() {
        return Signature::new(ORIGIN, token);
    }
    Signature::new(ORIGIN, format!("{SEPARATOR}{format}{SEPARATOR}{id}{SEPARATOR}{token}"))
}

/// Splits a signature into format, id and token.
fn unpack(signature: &Signature) -> (&str, Option<&str>, &str) {
    let (origin, token) = signature.origin_and_token();
    let packed = token.strip_prefix(SEPARATOR).filter(|_| origin == ORIGIN);
    let Some((format, rest)) = packed.and_then(|rest| rest.split_once(SEPARATOR)) else {
        return (format_of(origin), None, token);
    };
    let (id, token) = rest.split_once(SEPARATOR).unwrap_or(("", rest));
    let format = if format.is_empty() { "unknown" } else { format };
    (format, Some(id).filter(|id| !id.is_empty()), token)
}

/// Reads one entry of the list. `None` for an unknown entry type.
pub(super) fn read_detail(detail: &Value, author: ContentAuthor) -> Option<Part> {
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    // Streams open with an empty signature, which is none.
    let token = |name: &str| text(name).filter(|token| !token.is_empty());
    let format = text("format");
    let origin = if author == ContentAuthor::Provider { ORIGIN } else { origin_of(format) };
    let signature = |token: &str| match origin == ORIGIN {
        true => pack(format, text("id"), token),
        false => Signature::new(origin, token),
    };
    let (shown, redacted, signed) = match text("type")? {
        "reasoning.text" => (text("text"), false, token("signature")),
        "reasoning.summary" => (text("summary"), false, None),
        "reasoning.encrypted" => (None, true, token("data")),
        _ => return None,
    };
    let thought = Thought { text: shown.unwrap_or_default().to_owned(), redacted };
    let mut part = Part::new(PartKind::Thought(thought)).with_signature(signed.map(signature));
    if part.signature.is_none() {
        for name in ["id", "format"] {
            let word = text(name).filter(|word| *word != "unknown").map(Value::from);
            part.extras.insert_some(ORIGIN, name, word);
        }
    }
    Some(part)
}

/// Puts the signatures of calls back on the calls and separates those of texts. Returns the entries
/// that are thinking, and the signatures of texts.
pub(super) fn split_details(
    details: Vec<Value>,
    calls: &mut [Part],
) -> (Vec<Value>, Vec<(String, Signature)>) {
    let (mut thoughts, mut on_text) = (Vec::new(), Vec::new());
    for detail in details {
        let text = |name: &str| detail.get(name).and_then(Value::as_str);
        let token = text("data").filter(|_| text("type") == Some("reasoning.encrypted"));
        if let (Some(token), Some(id)) = (token, text("id")) {
            let signature = Signature::new(origin_of(text("format")), token);
            let is_target =
                |part: &&mut Part| matches!(&part.kind, PartKind::ToolCall(c) if c.id == id);
            if signed_span::is_span_name(id) {
                on_text.push((id.to_owned(), signature));
                continue;
            }
            if let Some(call) = calls.iter_mut().find(is_target) {
                call.signature.get_or_insert(signature);
                continue;
            }
        }
        thoughts.push(detail);
    }
    (thoughts, on_text)
}

/// Writes the entry of a thought.
pub(super) fn write_detail(part: &Part, thought: &Thought, index: usize) -> ObjectWriter {
    let kept = |name: &str| part.extras.get(ORIGIN, name).and_then(Value::as_str);
    let (format, id, token) = match part.signature.as_ref().map(unpack) {
        Some((format, id, token)) => (format, id, Some(token)),
        None => (kept("format").unwrap_or("unknown"), kept("id"), None),
    };
    let detail = match thought.redacted {
        true => ObjectWriter::typed("reasoning.encrypted").set_some("data", token),
        false => ObjectWriter::typed("reasoning.text")
            .set("text", thought.text.as_str())
            .set_some("signature", token),
    };
    detail.set_some("id", id).set("format", format).set("index", index)
}

/// Writes the entry for the signature of a part that is not a thought.
pub(super) fn write_part_signature(signature: &Signature, id: &str, index: usize) -> ObjectWriter {
    let (origin, token) = signature.origin_and_token();
    let detail = ObjectWriter::typed("reasoning.encrypted").set("data", token).set("id", id);
    detail.set("format", format_of(origin)).set("index", index)
}

/// Writes a delta of an entry that adds text.
pub(super) fn text_delta(text: &str, index: usize) -> ObjectWriter {
    ObjectWriter::typed("reasoning.text").set("text", text).set("index", index)
}

/// Writes a delta of an entry that adds the signature.
pub(super) fn signature_delta(signature: &Signature, index: usize) -> ObjectWriter {
    let (format, id, token) = unpack(signature);
    let piece = ObjectWriter::typed("reasoning.text").set("signature", token);
    piece.set_some("id", id).set("format", format).set("index", index)
}

/// Reads the signature of a tool call.
pub(super) fn read_call_signature(extra_content: &Value) -> Option<Signature> {
    let token = extra_content.get("google")?.get("thought_signature")?.as_str()?;
    Some(Signature::new(WireFormat::Native, token))
}

/// Writes the signature of a tool call into its own field. `None` if only the list can carry it.
pub(super) fn write_call_signature(signature: &Signature) -> Option<ObjectWriter> {
    let token = signature.for_format(WireFormat::Native)?;
    let google = ObjectWriter::new().set("thought_signature", token);
    Some(ObjectWriter::new().set("google", google))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_a_providers_entry_with_format_and_id() {
        let entry = serde_json::json!({"type": "reasoning.text", "text": "hm",
            "signature": "EqQB", "id": "r1", "format": "anthropic-claude-v1", "index": 0});
        let part = read_detail(&entry, ContentAuthor::Provider).unwrap();
        assert_eq!(part.signature.as_ref().map(Signature::origin), Some(ORIGIN));
        let PartKind::Thought(thought) = &part.kind else { panic!("{part:?}") };
        assert_eq!(Value::from(write_detail(&part, thought, 0)), entry);
        let entry_part = read_detail(&entry, ContentAuthor::Caller).unwrap();
        assert_eq!(entry_part.signature, Some(Signature::new(WireFormat::Messages, "EqQB")));
    }
}
