//! Signatures in the two fields that a client of this format returns unchanged,
//! <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>.
//!
//! `thinking.signature` and `redacted_thinking.data` hold this format's own signatures verbatim. A
//! foreign signature of a thought stands in the same field inside an envelope (`crate::envelope`).
//!
//! A signature of any other part, such as a native one on a function call, has no field. It travels
//! in an extra `redacted_thinking` block, the carrier. The `data` of a carrier is an envelope of
//! the signature's own origin around `SEPARATOR target SEPARATOR token`. The target names the part
//! of the turn that the signature belongs to:
//!
//! | target     | part                                                                    |
//! | -          | -                                                                       |
//! | `call ID`  | the tool call with that id, anywhere in the turn                        |
//! | `next`     | the part right after the carrier                                        |
//! | `text`     | an empty text in the place of the carrier                               |
//! | `text:A:B` | these characters of the text before the carrier, see `crate::signed_span`   |
//!
//! The carrier stands before its part, because clients cut thinking off the end of a turn. Only a
//! signature that arrived after its text had begun follows the text: a text that continues stays
//! one block, and [`OpenText`] keeps the signatures of its spans until something else follows. If
//! nothing follows, they are not written at all, because clients take the last block for the answer
//! (Claude Code prints it). The signature cache (`crate::keepsake`) restores those. `restore` puts
//! the others back when the history is read, and drops a signature whose part the client left out.
//! Carriers never reach a provider.

use canon::{Media, MediaKind, MediaSource, Part, PartKind, Signature, Thought};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

use super::names::ORIGIN;
use super::own::tool_names;
pub(super) use crate::envelope::ContentAuthor;
use crate::fields::ObjectWriter;
use crate::media_rules::split_data_uri;
use crate::{envelope, signed_span};

/// Separates target and token in a carrier; no provider's token contains it.
const SEPARATOR: char = '\u{1}';

/// Returns true for the envelope of a carrier, false for that of a thought, `None` for any other
/// token.
pub(super) fn is_carrier(token: &str) -> Option<bool> {
    Some(envelope::open(token)?.origin_and_token().1.starts_with(SEPARATOR))
}

/// Reads the signature of a token in one of the two fields.
pub(super) fn read(token: String, side: ContentAuthor) -> Option<Signature> {
    if token.is_empty() {
        return None;
    }
    Some(match side {
        ContentAuthor::Caller => envelope::unwrap(&token, ORIGIN),
        ContentAuthor::Provider => Signature::new(ORIGIN, token),
    })
}

/// The target of a signature on the part after the carrier.
pub(super) const NEXT_PART: &str = "next";
/// The target of a signature on an empty text in the carrier's place.
pub(super) const EMPTY_TEXT: &str = "text";

/// A text block that may continue, and the signatures that arrived after it had begun.
#[derive(Debug, Default)]
pub(super) struct OpenText {
    /// The texts so far, each with the signature that covers it. Their characters are counted only
    /// for a signature.
    texts: Vec<(String, Option<Signature>)>,
}

impl OpenText {
    /// Returns true if the next text continues this one, because a signature alone split them.
    pub(super) fn continues_with(&self, sealed: bool) -> bool {
        sealed || self.texts.iter().any(|(_, seal)| seal.is_some())
    }

    /// Adds text and the signature that covers it.
    pub(super) fn add(&mut self, text: String, seal: Option<Signature>) {
        self.texts.push((text, seal));
    }

    /// Returns the carrier to write before the block, if one signature covers all of its text.
    pub(super) fn whole_carrier(&self) -> Option<Value> {
        let mut filled =
            self.texts.iter().filter(|(text, seal)| !text.is_empty() || seal.is_some());
        match (filled.next(), filled.next()) {
            (Some((_, Some(seal))), None) => Some(carrier(seal, NEXT_PART)),
            _ => None,
        }
    }

    /// Returns the carriers to write when something follows.
    pub(super) fn carriers(self) -> impl Iterator<Item = Value> {
        let is_signed = self.continues_with(false);
        let texts = self.texts.into_iter().filter(move |_| is_signed);
        let spans = texts.scan(0, |end, (text, seal)| {
            let (start, length) = (*end, text.chars().count());
            *end += length;
            Some((seal, signed_span::span_name(start, length)))
        });
        spans.filter_map(|(seal, span)| Some(carrier(&seal?, &span)))
    }
}

/// Returns the target of a signature on a call.
pub(super) fn call_target(id: &str) -> String {
    format!("call {}", tool_names::write(id))
}

/// Returns the carrier of a signature.
pub(super) fn carrier(seal: &Signature, target: &str) -> Value {
    let (origin, token) = seal.origin_and_token();
    let inside = Signature::new(origin, format!("{SEPARATOR}{target}{SEPARATOR}{token}"));
    ObjectWriter::typed("redacted_thinking").set("data", envelope::wrap(&inside)).into()
}

/// Puts the carried signatures of a turn back on their parts.
pub(super) fn restore(parts: Vec<Part>) -> Vec<Part> {
    if !parts.iter().any(|part| carried_signature(part).is_some()) {
        return parts;
    }
    let mut all: Vec<Part> = Vec::with_capacity(parts.len());
    let mut calls: HashMap<String, VecDeque<Signature>> = HashMap::new();
    let mut spans: Vec<(String, Signature)> = Vec::new();
    let mut next = None;
    for mut part in parts {
        match carried_signature(&part) {
            None => {
                split_signed_spans(&mut all, &mut spans);
                if let Some(seal) = next.take() {
                    part.kind = image_from_markdown(part.kind);
                    part.signature = Some(seal);
                }
                all.push(part);
            }
            Some((target, seal)) => match target.as_str() {
                NEXT_PART => next = Some(seal),
                EMPTY_TEXT => all.push(Part::text("").with_signature(Some(seal))),
                other if signed_span::is_span_name(other) => spans.push((target, seal)),
                other => {
                    if let Some(id) = other.strip_prefix("call ") {
                        let id = tool_names::read(id.to_owned());
                        calls.entry(id).or_default().push_back(seal);
                    }
                }
            },
        }
    }
    split_signed_spans(&mut all, &mut spans);
    for part in &mut all {
        if let PartKind::ToolCall(call) = &part.kind
            && let Some(seal) = calls.get_mut(&call.id).and_then(VecDeque::pop_front)
        {
            part.signature = Some(seal);
        }
    }
    all
}

/// Splits the last text, so that each signed span is a part of its own.
fn split_signed_spans(all: &mut Vec<Part>, seals: &mut Vec<(String, Signature)>) {
    let seals = std::mem::take(seals);
    if seals.is_empty() {
        return;
    }
    if let Some(text) = all.pop_if(|last| matches!(last.kind, PartKind::Text { .. })) {
        all.extend(signed_span::split_part(text, signed_span::parse_spans(seals)));
    }
}

/// Reads an image from its markdown form. The signature is valid only on the image.
fn image_from_markdown(kind: PartKind) -> PartKind {
    let PartKind::Text { text, .. } = &kind else { return kind };
    let inside = text.strip_prefix("![image](").and_then(|rest| rest.strip_suffix(')'));
    let Some((mime, data)) = inside.and_then(split_data_uri) else { return kind };
    let source = MediaSource::Inline { mime: mime.to_owned(), data: data.to_owned() };
    PartKind::Media(Media::new(MediaKind::Image, source))
}

/// Returns target and signature of a carrier; `None` for any other part.
fn carried_signature(part: &Part) -> Option<(String, Signature)> {
    let PartKind::Thought(Thought { redacted: true, .. }) = &part.kind else { return None };
    let (origin, inside) = part.signature.as_ref()?.origin_and_token();
    let (target, token) = inside.strip_prefix(SEPARATOR)?.split_once(SEPARATOR)?;
    Some((target.to_owned(), Signature::new(origin, token)))
}

#[cfg(test)]
mod tests {
    use super::super::read_content;
    use super::super::tests::write_blocks;
    use super::*;
    use canon::{ToolCall, WireFormat};

    fn call(id: &str) -> Part {
        let (id, name) = (id.to_owned(), "f".to_owned());
        let arguments = r#"{"a":1}"#.to_owned();
        Part::new(PartKind::ToolCall(ToolCall { id, name, arguments, custom: false }))
    }

    fn round_trip(parts: &[Part]) -> Vec<Part> {
        let (blocks, losses) = write_blocks(parts.to_vec());
        assert!(losses.is_empty(), "{losses:?}");
        let read = |value| read_content::read_value(&value, ContentAuthor::Caller).unwrap();
        restore(blocks.into_iter().map(read).collect())
    }

    #[test]
    fn every_signature_is_restored_to_its_part() {
        let seal = |origin, token: &str| Some(Signature::new(origin, token));
        let thought = |text: &str, redacted| {
            Part::new(PartKind::Thought(Thought { text: text.to_owned(), redacted }))
        };
        let parts = vec![
            thought("hm", false).with_signature(seal(WireFormat::Messages, "own")),
            thought("", true).with_signature(seal(WireFormat::Messages, "own, hidden")),
            thought("so", false).with_signature(seal(WireFormat::Native, "native")),
            thought("", true).with_signature(seal(WireFormat::Responses, "responses")),
            Part::text("let me see").with_signature(seal(WireFormat::Native, "on text")),
            call("one").with_signature(seal(WireFormat::Native, "on the first")),
            call("two"),
            call("th:ree").with_signature(seal(WireFormat::Native, "on the third")),
            Part::text("").with_signature(seal(WireFormat::Native, "on nothing")),
        ];
        assert_eq!(round_trip(&parts), parts);
    }

    #[test]
    fn signature_finds_its_call_in_a_reordered_turn() {
        let carried = carrier(&Signature::new(WireFormat::Native, "s"), &call_target("two"));
        let part = read_content::read_value(&carried, ContentAuthor::Caller).unwrap();
        let restored = restore(vec![call("two"), call("one"), part]);
        assert_eq!(restored[0].signature, Some(Signature::new(WireFormat::Native, "s")));
        assert_eq!((restored.len(), restored[1].signature.as_ref()), (2, None));
    }

    #[test]
    fn every_envelope_has_the_same_prefix() {
        for origin in WireFormat::ALL {
            let wrapped = envelope::wrap(&Signature::new(origin, "s"));
            assert!(
                wrapped.starts_with(envelope::PREFIX) && is_carrier(&wrapped) == Some(false),
                "{origin}"
            );
        }
        assert!(is_carrier("EqQBCgIYAg==").is_none());
        assert_eq!(is_carrier(envelope::PREFIX), Some(false), "it belongs to no provider");
    }

    #[test]
    fn provider_tokens_are_never_unwrapped() {
        let wrapped = envelope::wrap(&Signature::new(WireFormat::Native, "s"));
        let read = read(wrapped.clone(), ContentAuthor::Provider);
        assert_eq!(read, Some(Signature::new(WireFormat::Messages, wrapped)));
    }
}
