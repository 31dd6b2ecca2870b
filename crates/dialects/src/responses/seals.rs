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

use canon::{Kind, Origin, Part, Seal, Thought};
use serde_json::{Map, Value};

use super::ME;
use crate::envelope;
use crate::fields::Object;

/// Loss text for a foreign signature.
pub(super) const FOREIGN: &str = "a seal of another provider's is of no use to this one";
/// Loss text for a thought with a foreign signature.
pub(super) const FOREIGN_THOUGHT: &str = "thinking comes back only with this provider's own seal";

/// First letters of every envelope in base64.
const ENVELOPE: &str = "pttQVD";
/// Extras key for raw reasoning content.
const RAW: &str = "portunus.content";
const JOINT: &str = "\n\n";

/// Sender of a reasoning item. Only callers return envelopes. Everything a provider sends is its
/// own, even if the provider is another gateway of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Caller,
    Provider,
}

/// Content of a reasoning item.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Carried {
    Thought(Part),
    /// Signature of a call.
    OnCall(String, Seal),
    /// Signature of the next item.
    OnNext(Seal),
    /// Signature of the previous item.
    OnPrev(Seal),
    /// Signature of the code in the previous item, which also holds the code's output.
    OnCode(Seal),
}

/// Returns true if a token is an envelope of the gateway.
pub(super) fn is_envelope(token: &str) -> bool {
    token.starts_with(ENVELOPE) && opened(token).is_some()
}

/// Returns the loss for an envelope that is removed, with its reason.
pub(super) fn loss(token: &str) -> (&'static str, &'static str) {
    let seal = opened(token);
    match seal.as_ref().and_then(note) {
        None | Some(("redacted", ..)) => ("thought.seal", FOREIGN_THOUGHT),
        Some(_) => ("part.seal", FOREIGN),
    }
}

fn opened(token: &str) -> Option<Seal> {
    // `Images` has no signatures, so it marks a token that is not an envelope.
    let seal = envelope::unwrap(token, Origin::Images);
    seal.for_origin(Origin::Images).is_none().then_some(seal)
}

/// Splits an own token into the item id and the encrypted content.
fn split(token: &str) -> (Option<&str>, &str) {
    match token.split_once(':') {
        Some((id, rest)) if id.starts_with("rs_") => (Some(id), rest),
        _ => (None, token),
    }
}

/// Reads a reasoning item.
pub(super) fn read(mut item: Map<String, Value>, side: Side) -> Carried {
    item.retain(|_, value| !value.is_null());
    item.shift_remove("type");
    let encrypted = match item.shift_remove("encrypted_content") {
        Some(Value::String(token)) if !token.is_empty() => Some(token),
        _ => None,
    };
    let (mut redacted, mut seal) = (false, None);
    if let Some(token) = encrypted {
        let foreign = if side == Side::Caller { opened(&token) } else { None };
        if foreign.is_some() {
            // The gateway assigned this id.
            item.shift_remove("id");
        }
        match foreign {
            None => {
                // The id becomes part of the token, so that it survives formats without a field for
                // it.
                let id = item.get("id").and_then(Value::as_str).filter(|id| id.starts_with("rs_"));
                let own = id.map_or_else(|| token.clone(), |id| format!("{id}:{token}"));
                if split(&own).0.is_some() {
                    item.shift_remove("id");
                }
                seal = Some(Seal::new(ME, own));
            }
            Some(envelope) => match note(&envelope) {
                Some(("redacted", "", inner)) => {
                    redacted = true;
                    seal = Some(inner);
                }
                Some(("call", id, inner)) => return Carried::OnCall(id.to_owned(), inner),
                Some(("next", "", inner)) => return Carried::OnNext(inner),
                Some(("prev", "", inner)) => return Carried::OnPrev(inner),
                Some(("code", "", inner)) => return Carried::OnCode(inner),
                _ => seal = Some(envelope),
            },
        }
    }
    let summary = texts(item.get("summary"));
    let content = texts(item.get("content"));
    let text = summary.iter().chain(&content).copied().collect::<Vec<_>>().join(JOINT);
    item.shift_remove("summary");
    item.shift_remove("status");
    // The words are part of the text. The extra keeps their structure for the way back.
    if let Some(raw) = item.shift_remove("content")
        && raw != Value::Array(Vec::new())
    {
        item.insert(RAW.to_owned(), raw);
    }
    let own = seal.as_ref().is_some_and(|seal| seal.origin() == ME);
    let redacted = redacted || (own && text.is_empty());
    let part = Part::new(Kind::Thought(Thought { text, redacted })).sealed(seal);
    Carried::Thought(part.with(canon::Extras::of(ME, item)))
}

/// Keyword, its argument, and the signature inside an envelope of this format.
fn note(envelope: &Seal) -> Option<(&str, &str, Seal)> {
    let token = envelope.for_origin(ME)?;
    let (head, inner) = token.split_once('\n')?;
    let (word, object) = head.split_once(' ').unwrap_or((head, ""));
    Some((word, object, opened(inner)?))
}

fn texts(list: Option<&Value>) -> Vec<&str> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|piece| piece.get("text")?.as_str()).collect()
}

/// Writes a thought as a reasoning item. `id` is used if the thought has none. A foreign signature
/// is put in an envelope.
pub(super) fn write(part: &Part, thought: &Thought, id: Option<String>) -> Object {
    let Thought { text, redacted } = thought;
    let (own_id, encrypted) = match &part.seal {
        Some(seal) => match seal.for_origin(ME) {
            Some(token) => {
                let (id, encrypted) = split(token);
                (id.map(str::to_owned), Some(encrypted.to_owned()))
            }
            None if *redacted => (None, Some(noted("redacted", "", seal))),
            None => (None, Some(envelope::wrap(seal))),
        },
        None => (None, None),
    };
    let kept = part.extras.get(ME, "id").and_then(Value::as_str).map(str::to_owned);
    let (summary, content) = shown(part, text);
    Object::new()
        .set("type", "reasoning")
        .maybe("id", own_id.or(kept).or(id))
        .set("summary", summary)
        .maybe("content", content)
        .maybe("encrypted_content", encrypted)
        .with(&part.extras, ME)
}

/// Returns the summary and the raw content. The text is one summary, except for raw content, which
/// keeps its structure.
fn shown(part: &Part, text: &str) -> (Value, Option<Value>) {
    let raw = part.extras.get(ME, RAW);
    let said = texts(raw).join(JOINT);
    let summary = match text.strip_suffix(&said) {
        Some(rest) if raw.is_some() => rest.strip_suffix(JOINT).unwrap_or(rest),
        _ => text,
    };
    (if summary.is_empty() { Value::Array(Vec::new()) } else { one(summary) }, raw.cloned())
}

fn one(text: &str) -> Value {
    Value::Array(vec![summary_text(text)])
}

/// Writes one `summary_text`.
pub(super) fn summary_text(text: &str) -> Value {
    Object::new().set("type", "summary_text").set("text", text).into()
}

/// `encrypted_content` for the signature of a call.
pub(super) fn on_call(seal: &Seal, call: &str) -> String {
    noted("call", call, seal)
}

/// `encrypted_content` for the signature of a neighbouring item.
pub(super) fn on_neighbour(seal: &Seal, behind: bool) -> String {
    noted(if behind { "prev" } else { "next" }, "", seal)
}

/// `encrypted_content` for the signature of the code in the previous item.
pub(super) fn on_code(seal: &Seal) -> String {
    noted("code", "", seal)
}

/// `encrypted_content` for a thought whose id differs from the one its signature is bound to.
pub(super) fn wrapped(seal: &Seal, redacted: bool) -> String {
    if redacted { noted("redacted", "", seal) } else { envelope::wrap(seal) }
}

fn noted(word: &str, object: &str, seal: &Seal) -> String {
    let space = if object.is_empty() { "" } else { " " };
    let note = format!("{word}{space}{object}\n{}", envelope::wrap(seal));
    envelope::wrap(&Seal::new(ME, note))
}

/// Writes a reasoning item that only carries a signature.
pub(super) fn loose(encrypted: String, id: Option<String>) -> Object {
    Object::new()
        .set("type", "reasoning")
        .maybe("id", id)
        .set("summary", Value::Array(Vec::new()))
        .set("encrypted_content", encrypted)
}

/// Writes an own signature of a part that is not a thought, as the reasoning item the provider
/// issued.
pub(super) fn native(seal: &Seal) -> Option<Object> {
    let (id, encrypted) = split(seal.for_origin(ME)?);
    Some(loose(encrypted.to_owned(), id.map(str::to_owned)))
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

    fn there_and_back(part: &Part) -> Carried {
        let Kind::Thought(thought) = &part.kind else { panic!("no thought") };
        let written = write(part, thought, Some("rs_new".to_owned()));
        read(written.into_map(), Side::Caller)
    }

    #[test]
    fn an_own_seal_keeps_its_id_and_bytes() {
        let json = serde_json::json!({"type":"reasoning","id":"rs_1","summary":[
            {"type":"summary_text","text":"a\n\nb"}],"encrypted_content":"gAAA+/=="});
        let Carried::Thought(part) = read(item(json.clone()), Side::Provider) else { panic!() };
        assert_eq!(part.seal, Some(Seal::new(ME, "rs_1:gAAA+/==")));
        let Kind::Thought(thought) = &part.kind else { panic!() };
        assert_eq!(thought.text, "a\n\nb");
        assert_eq!(Value::from(write(&part, thought, None)), json);
    }

    #[test]
    fn raw_thinking_stays_where_it_stood() {
        let json = serde_json::json!({"type":"reasoning","id":"rs_1",
            "summary":[{"type":"summary_text","text":"s"}],
            "content":[{"type":"reasoning_text","text":"raw"}]});
        let Carried::Thought(part) = read(item(json.clone()), Side::Provider) else { panic!() };
        let Kind::Thought(thought) = &part.kind else { panic!() };
        assert_eq!(thought.text, "s\n\nraw");
        assert_eq!(Value::from(write(&part, thought, None)), json);
    }

    #[test]
    fn foreign_seals_come_back_with_their_thoughts() {
        for redacted in [false, true] {
            for text in ["", "hm"] {
                let seal = Seal::new(Origin::Messages, "EqQB+/=");
                let thought = Thought { text: text.to_owned(), redacted };
                let part = Part::new(Kind::Thought(thought)).sealed(Some(seal));
                let Carried::Thought(back) = there_and_back(&part) else { panic!() };
                assert_eq!((&back.kind, &back.seal), (&part.kind, &part.seal));
            }
        }
    }

    #[test]
    fn seals_of_other_parts_tell_where_they_belong() {
        let seal = Seal::new(Origin::Native, "c2ln");
        let read_loose = |encrypted: String| {
            assert!(is_envelope(&encrypted), "{encrypted}");
            read(loose(encrypted, None).into_map(), Side::Caller)
        };
        assert_eq!(
            read_loose(on_call(&seal, "call_1")),
            Carried::OnCall("call_1".into(), seal.clone())
        );
        assert_eq!(read_loose(on_neighbour(&seal, true)), Carried::OnPrev(seal.clone()));
        assert_eq!(read_loose(on_code(&seal)), Carried::OnCode(seal.clone()));
        assert_eq!(read_loose(on_neighbour(&seal, false)), Carried::OnNext(seal));
    }

    #[test]
    fn a_provider_never_speaks_in_our_envelopes() {
        let token = on_call(&Seal::new(Origin::Native, "c2ln"), "call_1");
        let json = item(loose(token.clone(), Some("rs_9".to_owned())).into());
        let Carried::Thought(part) = read(json, Side::Provider) else { panic!() };
        assert_eq!(part.seal, Some(Seal::new(ME, format!("rs_9:{token}"))));
    }
}
