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
//! - `prev`: belongs to the end of the previous item, such as a text that was streamed already;
//! - `code`: belongs to the code of the previous item, which also holds the output;
//! - `redacted`: belongs to a thought without readable text.
//!
//! All but `prev` and `code` stand right before their item. These items are for the gateway only.
//! They are removed on the way to a provider of this format, in pass-through as well.

use canon::{Part, PartKind, Signature, Thought};
use serde_json::Value;

use super::content::ResponsesReasoningItem;
use super::names::{FOREIGN_THOUGHT, ORIGIN};
use super::read_content::ItemContent;
pub(super) use crate::envelope::ContentAuthor;
use crate::fields::{FOREIGN_SIGNATURE, ObjectWriter};
use crate::wire_object::raw_value;
use crate::{ReplyStamp, envelope};

/// Extras key for raw reasoning content.
const RAW_CONTENT_EXTRA: &str = "portunus.content";
const PARAGRAPH_BREAK: &str = "\n\n";

/// The part that a signature belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignaturePlace {
    /// The call with that id.
    Call(String),
    /// The end of the previous item.
    Previous,
    /// The code in the previous item, which also holds the code's output.
    Code,
}

impl SignaturePlace {
    /// Reads the keyword of a note, and its argument.
    fn parse(word: &str, object: &str) -> Option<Self> {
        match (word, object) {
            ("call", id) => Some(Self::Call(id.to_owned())),
            ("prev", "") => Some(Self::Previous),
            ("code", "") => Some(Self::Code),
            _ => None,
        }
    }

    /// Returns the `encrypted_content` for a signature of that part.
    pub(super) fn write(&self, signature: &Signature) -> String {
        match self {
            Self::Call(id) => write_note("call", id, signature),
            Self::Previous => write_note("prev", "", signature),
            Self::Code => write_note("code", "", signature),
        }
    }
}

/// Returns the loss, with its reason, for an item of a translated reply, which no provider takes;
/// `None` for another item.
pub(super) fn own_loss(item: &ResponsesReasoningItem<'_>) -> Option<(&'static str, &'static str)> {
    let token = item.encrypted_content.as_deref().filter(|token| !token.is_empty());
    let Some(token) = token else {
        let is_ours = item.rest.text("id").is_some_and(|id| ReplyStamp::has_made(&id));
        return is_ours.then_some(("thought", FOREIGN_THOUGHT));
    };
    Some(match read_note(&envelope::open(token)?) {
        None | Some(("redacted", ..)) => ("thought.seal", FOREIGN_THOUGHT),
        Some(_) => ("part.seal", FOREIGN_SIGNATURE),
    })
}

/// Splits an own token into the item id and the encrypted content.
fn split_token(token: &str) -> (Option<&str>, &str) {
    match token.split_once(':') {
        Some((id, rest)) if id.starts_with("rs_") => (Some(id), rest),
        _ => (None, token),
    }
}

/// Reads a reasoning item.
pub(super) fn read(item: ResponsesReasoningItem<'_>, sender: ContentAuthor) -> ItemContent {
    let ResponsesReasoningItem { summary, content, encrypted_content, status: _, mut rest } = item;
    if rest.text("id").is_some_and(|id| ReplyStamp::has_made(&id)) {
        rest.take("id");
    }
    let (mut is_redacted, mut signature) = (false, None);
    if let Some(token) = encrypted_content.filter(|token| !token.is_empty()) {
        let envelope = if sender == ContentAuthor::Caller { envelope::open(&token) } else { None };
        match envelope {
            None => {
                // The id becomes part of the token, so that it survives formats without a field for
                // it.
                let id = rest.text("id").filter(|id| id.starts_with("rs_"));
                let token =
                    id.map_or_else(|| (*token).to_owned(), |id| format!("{id}:{}", &*token));
                if split_token(&token).0.is_some() {
                    rest.take("id");
                }
                signature = Some(Signature::new(ORIGIN, token));
            }
            Some(envelope) => {
                signature = match read_note(&envelope) {
                    Some(("redacted", "", inner)) => {
                        is_redacted = true;
                        Some(inner)
                    }
                    Some((word, object, inner)) => match SignaturePlace::parse(word, object) {
                        Some(place) => return ItemContent::Signature(place, inner),
                        None => Some(envelope),
                    },
                    None => Some(envelope),
                };
            }
        }
    }
    let raw = content.as_ref().map(|content| content.raw).filter(|raw| raw.get() != "[]");
    let content = content.map(|content| content.value);
    let texts = summary.iter().chain(&content).flatten();
    let texts: Vec<&str> = texts.filter_map(|piece| piece.text.as_deref()).collect();
    let text = texts.join(PARAGRAPH_BREAK);
    let mut extras = rest.to_extras(ORIGIN);
    // The words are part of the text. The extra keeps their structure for the way back.
    extras.insert_some(ORIGIN, RAW_CONTENT_EXTRA, raw.map(raw_value));
    let is_own = signature.as_ref().is_some_and(|signature| signature.origin() == ORIGIN);
    let redacted = is_redacted || (is_own && text.is_empty());
    let part = Part::new(PartKind::Thought(Thought { text, redacted })).with_signature(signature);
    ItemContent::ModelItem(vec![part.with_extras(extras)])
}

/// Keyword, its argument, and the signature inside an envelope of this format.
fn read_note(envelope: &Signature) -> Option<(&str, &str, Signature)> {
    let token = envelope.for_format(ORIGIN)?;
    let (head, inner) = token.split_once('\n')?;
    let (word, object) = head.split_once(' ').unwrap_or((head, ""));
    Some((word, object, envelope::open(inner)?))
}

fn texts(list: Option<&Value>) -> Vec<&str> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(|piece| piece.get("text")?.as_str()).collect()
}

/// Returns the id of a provider's own thought.
pub(super) fn known_id(part: &Part) -> Option<String> {
    let token = part.signature.as_ref().and_then(|signature| signature.for_format(ORIGIN));
    let id = token.and_then(|token| split_token(token).0);
    let kept = part.extras.get(ORIGIN, "id").and_then(Value::as_str);
    id.or(kept).map(str::to_owned)
}

/// Writes a thought as a reasoning item, under its own id unless `id` is given. A signature of
/// another format, or one that is bound to another id, is put in an envelope.
pub(super) fn write(part: &Part, thought: &Thought, id: Option<String>) -> ObjectWriter {
    let Thought { text, redacted } = thought;
    let own_id = known_id(part);
    let is_bound = id.is_none() || id == own_id;
    let encrypted = part.signature.as_ref().map(|signature| {
        match signature.for_format(ORIGIN).filter(|_| is_bound) {
            Some(token) => split_token(token).1.to_owned(),
            None if *redacted => write_note("redacted", "", signature),
            None => envelope::wrap(signature),
        }
    });
    let (summary, content) = split_summary(part, text);
    ObjectWriter::typed("reasoning")
        .set_some("id", id.or(own_id))
        .set("summary", summary)
        .set_some("content", content)
        .set_some("encrypted_content", encrypted)
        .with_extras(&part.extras, ORIGIN)
}

/// Returns the summary and the raw content. The text is one summary, except for raw content, which
/// keeps its structure.
fn split_summary(part: &Part, text: &str) -> (Vec<ObjectWriter>, Option<Value>) {
    let raw = part.extras.get(ORIGIN, RAW_CONTENT_EXTRA);
    let raw_text = texts(raw).join(PARAGRAPH_BREAK);
    let summary = match text.strip_suffix(&raw_text) {
        Some(rest) if raw.is_some() => rest.strip_suffix(PARAGRAPH_BREAK).unwrap_or(rest),
        _ => text,
    };
    let list = if summary.is_empty() { Vec::new() } else { vec![summary_text(summary)] };
    (list, raw.cloned())
}

/// Writes one `summary_text`.
pub(super) fn summary_text(text: &str) -> ObjectWriter {
    ObjectWriter::typed("summary_text").set("text", text)
}

fn write_note(word: &str, object: &str, signature: &Signature) -> String {
    let space = if object.is_empty() { "" } else { " " };
    let note = format!("{word}{space}{object}\n{}", envelope::wrap(signature));
    envelope::wrap(&Signature::new(ORIGIN, note))
}

/// Writes a reasoning item without content.
pub(super) fn empty_item(id: Option<&str>) -> ObjectWriter {
    let item = ObjectWriter::typed("reasoning").set_some("id", id);
    item.set("summary", Value::Array(Vec::new()))
}

/// Writes an own signature of a part that is not a thought, as the reasoning item the provider
/// issued.
pub(super) fn own_signature_item(signature: &Signature) -> Option<ObjectWriter> {
    let (id, encrypted) = split_token(signature.for_format(ORIGIN)?);
    Some(empty_item(id).set("encrypted_content", encrypted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responses::read_content::ItemReader;
    use canon::WireFormat;

    /// Reads an item.
    fn read_json(item: impl Into<Value>, sender: ContentAuthor) -> ItemContent {
        let json = item.into().to_string();
        ItemReader::new(sender).read(serde_json::from_str(&json).unwrap())
    }

    fn thought_of(content: ItemContent) -> Part {
        content.into_parts().into_iter().next().unwrap()
    }

    fn there_and_back(part: &Part) -> Part {
        let PartKind::Thought(thought) = &part.kind else { panic!("no thought") };
        let written = write(part, thought, Some("rs_new".to_owned()));
        thought_of(read_json(written, ContentAuthor::Caller))
    }

    #[test]
    fn own_signature_keeps_its_id_and_bytes() {
        let json = serde_json::json!({"type":"reasoning","id":"rs_1","summary":[
            {"type":"summary_text","text":"a\n\nb"}],"encrypted_content":"gAAA+/=="});
        let part = thought_of(read_json(json.clone(), ContentAuthor::Provider));
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
        let part = thought_of(read_json(json.clone(), ContentAuthor::Provider));
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
                let back = there_and_back(&part);
                assert_eq!((&back.kind, &back.signature), (&part.kind, &part.signature));
            }
        }
    }

    #[test]
    fn signatures_of_other_parts_name_their_position() {
        let signature = Signature::new(WireFormat::Native, "c2ln");
        for place in [
            SignaturePlace::Call("call_1".to_owned()),
            SignaturePlace::Previous,
            SignaturePlace::Code,
        ] {
            let encrypted = place.write(&signature);
            assert!(envelope::open(&encrypted).is_some(), "{encrypted}");
            let read = read_json(
                empty_item(None).set("encrypted_content", encrypted),
                ContentAuthor::Caller,
            );
            assert_eq!(read, ItemContent::Signature(place, signature.clone()));
        }
    }

    #[test]
    fn does_not_open_envelopes_of_a_provider() {
        let signature = Signature::new(WireFormat::Native, "c2ln");
        let token = SignaturePlace::Call("call_1".to_owned()).write(&signature);
        let json = empty_item(Some("rs_9")).set("encrypted_content", token.as_str());
        let part = thought_of(read_json(json, ContentAuthor::Provider));
        assert_eq!(part.signature, Some(Signature::new(ORIGIN, format!("rs_9:{token}"))));
    }
}
