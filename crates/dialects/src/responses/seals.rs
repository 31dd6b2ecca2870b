//! Thinking and its seals in responses, where both have a place: the `reasoning` item.
//!
//! **Own seals.** `encrypted_content` is bound to the id of its item, so the two travel as one
//! token, `rs_…:gAAAA…`, and come apart again here. Both parts stay byte for byte what they were.
//! Several summaries become one text, with blank lines between them.
//!
//! **Foreign seals of thoughts.** A reasoning item with the readable text as its summary and the
//! envelope of the seal as `encrypted_content`.
//!
//! **Seals of other parts** (a native signature stands on a call or on text). A reasoning item
//! without a summary whose `encrypted_content` is an envelope *of this format*, which no seal of
//! its own ever is; inside stand a word and the envelope of the seal:
//! - `call <call_id>`: it belongs to that call, wherever the items are moved;
//! - `next`: it belongs to the item right behind;
//! - `prev`: it belongs to the end of the item right before, such as a text: its seal may arrive
//!   when the words have been sent already;
//! - `code`: the same, where that item is code with its output and the seal is the code's;
//! - `redacted`: it is a thought of which only the seal may be seen.
//!
//! All but `prev` and `code` are placed right before the item they belong to. They are for this gateway only: on
//! the way to a provider of this format they are taken out, also from a caller's own bytes.

use canon::{Kind, Origin, Part, Seal, Thought};
use serde_json::{Map, Value};

use super::ME;
use crate::envelope;
use crate::fields::Object;

/// Why a seal stays behind.
pub(super) const FOREIGN: &str = "a seal of another provider's is of no use to this one";
/// Why thinking stays behind.
pub(super) const FOREIGN_THOUGHT: &str = "thinking comes back only with this provider's own seal";

/// Every envelope begins with these letters, whichever seal is in it.
const ENVELOPE: &str = "pttQVD";
/// The extra that keeps raw thinking as it stood.
const RAW: &str = "portunus.content";
const JOINT: &str = "\n\n";

/// Who sent a reasoning item: only callers bring envelopes back. What a provider sends is its own,
/// even if that provider is such a gateway again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// A request.
    Caller,
    /// An answer.
    Provider,
}

/// What a reasoning item carries.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Carried {
    /// A thought.
    Thought(Part),
    /// The seal of a call.
    OnCall(String, Seal),
    /// The seal of what follows.
    OnNext(Seal),
    /// The seal of what came before.
    OnPrev(Seal),
    /// The seal of the code that came before, with its output.
    OnCode(Seal),
}

/// Whether a token is an envelope, by its first letters.
pub(super) fn is_envelope(token: &str) -> bool {
    token.starts_with(ENVELOPE) && opened(token).is_some()
}

/// What is lost with an envelope that is taken out, and why.
pub(super) fn loss(token: &str) -> (&'static str, &'static str) {
    let seal = opened(token);
    match seal.as_ref().and_then(note) {
        None | Some(("redacted", ..)) => ("thought.seal", FOREIGN_THOUGHT),
        Some(_) => ("part.seal", FOREIGN),
    }
}

fn opened(token: &str) -> Option<Seal> {
    // A format that has no seals stands for "was no envelope".
    let seal = envelope::unwrap(token, Origin::Images);
    seal.for_origin(Origin::Images).is_none().then_some(seal)
}

/// The id and the encrypted content in an own token.
fn split(token: &str) -> (Option<&str>, &str) {
    match token.split_once(':') {
        Some((id, rest)) if id.starts_with("rs_") => (Some(id), rest),
        _ => (None, token),
    }
}

/// A reasoning item.
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
            // A name we gave it ourselves.
            item.shift_remove("id");
        }
        match foreign {
            None => {
                // The id is part of the token, so that it survives formats without a place for it.
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
    // Its words are in the text; only their place is kept for the way back.
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

/// The word, its object and the seal in an envelope of this format.
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

/// A thought as a reasoning item; `id` is what it is called when it has no name of its own.
/// A seal of another format's is put in an envelope.
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

/// The text as one summary, but for raw thinking, which stays where it stood.
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

/// One text of a summary.
pub(super) fn summary_text(text: &str) -> Value {
    Object::new().set("type", "summary_text").set("text", text).into()
}

/// The `encrypted_content` of an item that carries the seal of a call.
pub(super) fn on_call(seal: &Seal, call: &str) -> String {
    noted("call", call, seal)
}

/// The `encrypted_content` of an item that carries the seal of its neighbour.
pub(super) fn on_neighbour(seal: &Seal, behind: bool) -> String {
    noted(if behind { "prev" } else { "next" }, "", seal)
}

/// The `encrypted_content` of an item that carries the seal of the code in the item before.
pub(super) fn on_code(seal: &Seal) -> String {
    noted("code", "", seal)
}

/// The `encrypted_content` of a thought that was given another id than its seal is bound to.
pub(super) fn wrapped(seal: &Seal, redacted: bool) -> String {
    if redacted { noted("redacted", "", seal) } else { envelope::wrap(seal) }
}

fn noted(word: &str, object: &str, seal: &Seal) -> String {
    let space = if object.is_empty() { "" } else { " " };
    let note = format!("{word}{space}{object}\n{}", envelope::wrap(seal));
    envelope::wrap(&Seal::new(ME, note))
}

/// A reasoning item that carries only a seal.
pub(super) fn loose(encrypted: String, id: Option<String>) -> Object {
    Object::new()
        .set("type", "reasoning")
        .maybe("id", id)
        .set("summary", Value::Array(Vec::new()))
        .set("encrypted_content", encrypted)
}

/// An own seal on a part that is no thought, as the reasoning item a provider knows.
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
