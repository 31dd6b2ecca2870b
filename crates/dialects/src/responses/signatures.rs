//! Thinking and its signatures. Both have a place in this format: the `reasoning` item. See
//! <https://platform.openai.com/docs/guides/reasoning#encrypted-reasoning-items>.
//!
//! **Own signatures.** `encrypted_content` is bound to the id of its item. The two travel as one
//! token, `rs_…:gAAAA…`, and are split again here without changing a byte. Several summaries become
//! one text with blank lines between them.
//!
//! **Foreign signatures of thoughts.** A reasoning item has the readable text as its summary and
//! the envelope of the signature as `encrypted_content`.
//!
//! **Signatures of other parts**, such as a Gemini signature on a call or a text. A reasoning item
//! without a summary has an envelope *of this format* as `encrypted_content`, which is never an own
//! signature. Inside are a keyword and the envelope of the signature:
//!
//! - `call <call_id>`: belongs to that call, wherever the items are moved;
//! - `next`: belongs to the next item;
//! - `prev`: belongs to the end of the previous item, such as a text that was streamed already;
//! - `code`: belongs to the code of the previous item, which also holds the output;
//! - `redacted`: belongs to a thought without readable text.
//!
//! All but `prev` and `code` stand right before their item. These items are for the gateway only.
//! They are removed on the way to a provider of this format, in pass-through as well.

use canon::{Part, PartKind, Signature, Thought, WireFormat};
use serde_json::{Map, Value};

use super::names::{FOREIGN_SIGNATURE, FOREIGN_THOUGHT, ORIGIN};
use crate::envelope;
use crate::fields::ObjectWriter;

/// First letters of every envelope in base64.
const ENVELOPE_PREFIX: &str = "pttQVD";
/// Extras key for raw reasoning content.
const RAW_CONTENT_EXTRA: &str = "portunus.content";
const PARAGRAPH_BREAK: &str = "\n\n";

/// Sender of a reasoning item. Only callers return envelopes. Everything a provider sends is its
/// own, even if the provider is another gateway of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemSender {
    Caller,
    Provider,
}

/// Content of a reasoning item.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReasoningContent {
    Thought(Part),
    /// Signature of a call.
    CallSignature(String, Signature),
    /// Signature of the next item.
    NextSignature(Signature),
    /// Signature of the previous item.
    PreviousSignature(Signature),
    /// Signature of the code in the previous item, which also holds the code's output.
    CodeSignature(Signature),
}

/// Returns true if a token is an envelope of the gateway.
pub(super) fn is_envelope(token: &str) -> bool {
    token.starts_with(ENVELOPE_PREFIX) && open_envelope(token).is_some()
}

/// Returns the loss for an envelope that is removed, with its reason.
pub(super) fn envelope_loss(token: &str) -> (&'static str, &'static str) {
    let signature = open_envelope(token);
    match signature.as_ref().and_then(read_note) {
        None | Some(("redacted", ..)) => ("thought.seal", FOREIGN_THOUGHT),
        Some(_) => ("part.seal", FOREIGN_SIGNATURE),
    }
}

fn open_envelope(token: &str) -> Option<Signature> {
    // `Images` has no signatures, so it marks a token that is not an envelope.
    let signature = envelope::unwrap(token, WireFormat::Images);
    signature.for_format(WireFormat::Images).is_none().then_some(signature)
}

/// Splits an own token into the item id and the encrypted content.
fn split_token(token: &str) -> (Option<&str>, &str) {
    match token.split_once(':') {
        Some((id, rest)) if id.starts_with("rs_") => (Some(id), rest),
        _ => (None, token),
    }
}

/// Reads a reasoning item.
pub(super) fn read(mut item: Map<String, Value>, sender: ItemSender) -> ReasoningContent {
    item.retain(|_, value| !value.is_null());
    item.shift_remove("type");
    let encrypted = match item.shift_remove("encrypted_content") {
        Some(Value::String(token)) if !token.is_empty() => Some(token),
        _ => None,
    };
    let (mut redacted, mut signature) = (false, None);
    if let Some(token) = encrypted {
        let foreign = if sender == ItemSender::Caller { open_envelope(&token) } else { None };
        if foreign.is_some() {
            // The gateway assigned this id.
            item.shift_remove("id");
        }
        match foreign {
            None => {
                // The id becomes part of the token, so that it survives formats without a field for
                // it.
                let id = item.get("id").and_then(Value::as_str).filter(|id| id.starts_with("rs_"));
                let token = id.map_or_else(|| token.clone(), |id| format!("{id}:{token}"));
                if split_token(&token).0.is_some() {
                    item.shift_remove("id");
                }
                signature = Some(Signature::new(ORIGIN, token));
            }
            Some(envelope) => match read_note(&envelope) {
                Some(("redacted", "", inner)) => {
                    redacted = true;
                    signature = Some(inner);
                }
                Some(("call", id, inner)) => {
                    return ReasoningContent::CallSignature(id.to_owned(), inner);
                }
                Some(("next", "", inner)) => return ReasoningContent::NextSignature(inner),
                Some(("prev", "", inner)) => return ReasoningContent::PreviousSignature(inner),
                Some(("code", "", inner)) => return ReasoningContent::CodeSignature(inner),
                _ => signature = Some(envelope),
            },
        }
    }
    let summary = texts(item.get("summary"));
    let content = texts(item.get("content"));
    let text = summary.iter().chain(&content).copied().collect::<Vec<_>>().join(PARAGRAPH_BREAK);
    item.shift_remove("summary");
    item.shift_remove("status");
    // The words are part of the text. The extra keeps their structure for the way back.
    if let Some(raw) = item.shift_remove("content")
        && raw != Value::Array(Vec::new())
    {
        item.insert(RAW_CONTENT_EXTRA.to_owned(), raw);
    }
    let is_own = signature.as_ref().is_some_and(|signature| signature.origin() == ORIGIN);
    let redacted = redacted || (is_own && text.is_empty());
    let part = Part::new(PartKind::Thought(Thought { text, redacted })).with_signature(signature);
    ReasoningContent::Thought(part.with_extras(canon::ExtraFields::from_fields(ORIGIN, item)))
}

/// Keyword, its argument, and the signature inside an envelope of this format.
fn read_note(envelope: &Signature) -> Option<(&str, &str, Signature)> {
    let token = envelope.for_format(ORIGIN)?;
    let (head, inner) = token.split_once('\n')?;
    let (word, object) = head.split_once(' ').unwrap_or((head, ""));
    Some((word, object, open_envelope(inner)?))
}

fn texts(list: Option<&Value>) -> Vec<&str> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|piece| piece.get("text")?.as_str()).collect()
}

/// Writes a thought as a reasoning item. `id` is used if the thought has none. A foreign signature
/// is put in an envelope.
pub(super) fn write(part: &Part, thought: &Thought, id: Option<String>) -> ObjectWriter {
    let Thought { text, redacted } = thought;
    let (own_id, encrypted) = match &part.signature {
        Some(signature) => match signature.for_format(ORIGIN) {
            Some(token) => {
                let (id, encrypted) = split_token(token);
                (id.map(str::to_owned), Some(encrypted.to_owned()))
            }
            None if *redacted => (None, Some(write_note("redacted", "", signature))),
            None => (None, Some(envelope::wrap(signature))),
        },
        None => (None, None),
    };
    let kept = part.extras.get(ORIGIN, "id").and_then(Value::as_str).map(str::to_owned);
    let (summary, content) = split_summary(part, text);
    ObjectWriter::new()
        .set("type", "reasoning")
        .set_some("id", own_id.or(kept).or(id))
        .set("summary", summary)
        .set_some("content", content)
        .set_some("encrypted_content", encrypted)
        .with_extras(&part.extras, ORIGIN)
}

/// Returns the summary and the raw content. The text is one summary, except for raw content, which
/// keeps its structure.
fn split_summary(part: &Part, text: &str) -> (Value, Option<Value>) {
    let raw = part.extras.get(ORIGIN, RAW_CONTENT_EXTRA);
    let raw_text = texts(raw).join(PARAGRAPH_BREAK);
    let summary = match text.strip_suffix(&raw_text) {
        Some(rest) if raw.is_some() => rest.strip_suffix(PARAGRAPH_BREAK).unwrap_or(rest),
        _ => text,
    };
    (
        if summary.is_empty() { Value::Array(Vec::new()) } else { summary_list(summary) },
        raw.cloned(),
    )
}

fn summary_list(text: &str) -> Value {
    Value::Array(vec![summary_text(text)])
}

/// Writes one `summary_text`.
pub(super) fn summary_text(text: &str) -> Value {
    ObjectWriter::new().set("type", "summary_text").set("text", text).into()
}

/// `encrypted_content` for the signature of a call.
pub(super) fn call_signature(signature: &Signature, call: &str) -> String {
    write_note("call", call, signature)
}

/// `encrypted_content` for the signature of a neighbouring item.
pub(super) fn neighbour_signature(signature: &Signature, is_previous: bool) -> String {
    write_note(if is_previous { "prev" } else { "next" }, "", signature)
}

/// `encrypted_content` for the signature of the code in the previous item.
pub(super) fn code_signature(signature: &Signature) -> String {
    write_note("code", "", signature)
}

/// `encrypted_content` for a thought whose id differs from the one its signature is bound to.
pub(super) fn thought_signature(signature: &Signature, redacted: bool) -> String {
    if redacted { write_note("redacted", "", signature) } else { envelope::wrap(signature) }
}

fn write_note(word: &str, object: &str, signature: &Signature) -> String {
    let space = if object.is_empty() { "" } else { " " };
    let note = format!("{word}{space}{object}\n{}", envelope::wrap(signature));
    envelope::wrap(&Signature::new(ORIGIN, note))
}

/// Writes a reasoning item that only carries a signature.
pub(super) fn signature_item(encrypted: String, id: Option<String>) -> ObjectWriter {
    ObjectWriter::new()
        .set("type", "reasoning")
        .set_some("id", id)
        .set("summary", Value::Array(Vec::new()))
        .set("encrypted_content", encrypted)
}

/// Writes an own signature of a part that is not a thought, as the reasoning item the provider
/// issued.
pub(super) fn own_signature_item(signature: &Signature) -> Option<ObjectWriter> {
    let (id, encrypted) = split_token(signature.for_format(ORIGIN)?);
    Some(signature_item(encrypted.to_owned(), id.map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    }

    fn there_and_back(part: &Part) -> ReasoningContent {
        let PartKind::Thought(thought) = &part.kind else { panic!("no thought") };
        let written = write(part, thought, Some("rs_new".to_owned()));
        read(written.into_map(), ItemSender::Caller)
    }

    #[test]
    fn own_signature_keeps_its_id_and_bytes() {
        let json = serde_json::json!({"type":"reasoning","id":"rs_1","summary":[
            {"type":"summary_text","text":"a\n\nb"}],"encrypted_content":"gAAA+/=="});
        let ReasoningContent::Thought(part) = read(item(json.clone()), ItemSender::Provider) else {
            panic!()
        };
        assert_eq!(part.signature, Some(Signature::new(ORIGIN, "rs_1:gAAA+/==")));
        let PartKind::Thought(thought) = &part.kind else { panic!() };
        assert_eq!(thought.text, "a\n\nb");
        assert_eq!(Value::from(write(&part, thought, None)), json);
    }

    #[test]
    fn raw_content_keeps_its_structure() {
        let json = serde_json::json!({"type":"reasoning","id":"rs_1",
            "summary":[{"type":"summary_text","text":"s"}],
            "content":[{"type":"reasoning_text","text":"raw"}]});
        let ReasoningContent::Thought(part) = read(item(json.clone()), ItemSender::Provider) else {
            panic!()
        };
        let PartKind::Thought(thought) = &part.kind else { panic!() };
        assert_eq!(thought.text, "s\n\nraw");
        assert_eq!(Value::from(write(&part, thought, None)), json);
    }

    #[test]
    fn foreign_signatures_return_with_their_thoughts() {
        for redacted in [false, true] {
            for text in ["", "hm"] {
                let signature = Signature::new(WireFormat::Messages, "EqQB+/=");
                let thought = Thought { text: text.to_owned(), redacted };
                let part = Part::new(PartKind::Thought(thought)).with_signature(Some(signature));
                let ReasoningContent::Thought(back) = there_and_back(&part) else { panic!() };
                assert_eq!((&back.kind, &back.signature), (&part.kind, &part.signature));
            }
        }
    }

    #[test]
    fn signatures_of_other_parts_name_their_position() {
        let signature = Signature::new(WireFormat::Native, "c2ln");
        let read_loose = |encrypted: String| {
            assert!(is_envelope(&encrypted), "{encrypted}");
            read(signature_item(encrypted, None).into_map(), ItemSender::Caller)
        };
        assert_eq!(
            read_loose(call_signature(&signature, "call_1")),
            ReasoningContent::CallSignature("call_1".into(), signature.clone())
        );
        assert_eq!(
            read_loose(neighbour_signature(&signature, true)),
            ReasoningContent::PreviousSignature(signature.clone())
        );
        assert_eq!(
            read_loose(code_signature(&signature)),
            ReasoningContent::CodeSignature(signature.clone())
        );
        assert_eq!(
            read_loose(neighbour_signature(&signature, false)),
            ReasoningContent::NextSignature(signature)
        );
    }

    #[test]
    fn does_not_open_envelopes_of_a_provider() {
        let token = call_signature(&Signature::new(WireFormat::Native, "c2ln"), "call_1");
        let json = item(signature_item(token.clone(), Some("rs_9".to_owned())).into());
        let ReasoningContent::Thought(part) = read(json, ItemSender::Provider) else { panic!() };
        assert_eq!(part.signature, Some(Signature::new(ORIGIN, format!("rs_9:{token}"))));
    }
}
