//! Seals in the two slots a client of this format returns unchanged.
//!
//! `thinking.signature` and `redacted_thinking.data` hold this format's own seals verbatim. A
//! foreign seal of a thought stands in the same slot inside the envelope of `crate::envelope`.
//!
//! A seal on anything else, such as a native one on a function call, has no slot. It travels in an
//! extra `redacted_thinking` block, whose `data` is an envelope of the seal's own origin around
//! `MARK where MARK token`. `where` says which part of the turn the seal belongs to:
//!
//! | where      | the part                                                                |
//! | -          | -                                                                       |
//! | `call ID`  | the tool call with that id, wherever it stands in the turn              |
//! | `next`     | the part right behind the block                                         |
//! | `text`     | an empty text that stands in the block's own place                      |
//! | `text:A:B` | these characters of the text before the block, see `crate::stretch`     |
//!
//! The block is placed before its part, since clients cut thinking off the end of a turn. Only a
//! seal that came when its text had begun follows it: a text that goes on stays one block, and
//! [`Saying`] keeps the seals of its stretches until something else follows. If nothing does, they
//! are not written at all, because clients take the last block for the answer (Claude Code, for
//! one, prints it): `crate::keepsake` brings them back. `restore` puts the others back when the
//! history is read. A seal whose part the client left out is left out too. Blocks of this kind
//! never reach a provider.

use canon::{Kind, Media, MediaKind, Part, Seal, Source, Thought};
use serde_json::Value;
use std::collections::{HashMap, VecDeque};

use super::{ME, names};
use crate::fields::Object;
use crate::{envelope, stretch};

/// Sets apart what the envelope of a loose seal holds; no provider's token contains it.
const MARK: char = '\u{1}';

/// How every envelope begins: the same bytes in either alphabet.
pub(super) const WRAPPED: &str = "pttQVDF";

/// Whether a token is one of our envelopes, and so nothing a provider issued.
pub(super) fn is_wrapped(token: &str) -> bool {
    is_loose(token).is_some()
}

/// Whether a token is the envelope of a loose seal, or of a thought's; `None` for no envelope.
pub(super) fn is_loose(token: &str) -> Option<bool> {
    let seal = envelope::unwrap(token, ME);
    (seal != Seal::new(ME, token)).then(|| seal.open().1.starts_with(MARK))
}

/// Who wrote the blocks: a client that may have been given foreign seals, or a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// A client's history.
    History,
    /// A provider's answer. Its tokens are its own, whatever they look like.
    Answer,
}

/// The seal behind a token in one of the two slots.
pub(super) fn read(token: String, side: Side) -> Option<Seal> {
    if token.is_empty() {
        return None;
    }
    Some(match side {
        Side::History => envelope::unwrap(&token, ME),
        Side::Answer => Seal::new(ME, token),
    })
}

/// What stands in a slot for a seal shown to a client.
pub(super) fn write(seal: &Seal) -> String {
    match seal.for_origin(ME) {
        Some(token) => token.to_owned(),
        None => envelope::wrap(seal),
    }
}

/// Which part of its turn a loose seal belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose<'a> {
    /// The call with that id.
    Call(&'a str),
    /// The part behind the block.
    Next,
    /// An empty text in the block's place.
    Text,
    /// A stretch of the text before the block: where it starts, and how many characters it has.
    Stretch(usize, usize),
}

/// A text block that may yet go on, and the seals that came when it had begun.
#[derive(Debug, Default)]
pub(super) struct Saying {
    /// How many characters it has.
    said: usize,
    /// The seals of its stretches.
    seals: Vec<(Seal, Whose<'static>)>,
}

impl Saying {
    /// Whether a text behind this one is the rest of it: it was parted only for a seal.
    pub(super) const fn goes_on(&self, sealed: bool) -> bool {
        sealed || !self.seals.is_empty()
    }

    /// Adds what was said, and the seal that covers it.
    pub(super) fn add(&mut self, text: &str, seal: Option<Seal>) {
        let (start, length) = (self.said, text.chars().count());
        self.said += length;
        self.seals.extend(seal.map(|seal| (seal, Whose::Stretch(start, length))));
    }

    /// The blocks that carry its seals, when something follows.
    pub(super) fn carriers(self) -> impl Iterator<Item = Value> {
        self.seals.into_iter().map(|(seal, whose)| carrier(&seal, &whose))
    }
}

/// The block that carries the seal of a part which is no thought.
pub(super) fn carrier(seal: &Seal, whose: &Whose<'_>) -> Value {
    let (origin, token) = seal.open();
    let whose = match whose {
        Whose::Call(id) => format!("call {}", names::write(id)),
        Whose::Next => "next".to_owned(),
        Whose::Text => "text".to_owned(),
        Whose::Stretch(start, length) => stretch::name(*start, *length),
    };
    let inside = Seal::new(origin, format!("{MARK}{whose}{MARK}{token}"));
    Object::new().set("type", "redacted_thinking").set("data", envelope::wrap(&inside)).into()
}

/// A turn of a client's history with the loose seals back on their parts.
pub(super) fn restore(parts: Vec<Part>) -> Vec<Part> {
    if !parts.iter().any(|part| opened(part).is_some()) {
        return parts;
    }
    let mut all: Vec<Part> = Vec::with_capacity(parts.len());
    let mut calls: HashMap<String, VecDeque<Seal>> = HashMap::new();
    let mut stretches: Vec<(String, Seal)> = Vec::new();
    let mut next = None;
    for mut part in parts {
        match opened(&part) {
            None => {
                cut(&mut all, &mut stretches);
                if let Some(seal) = next.take() {
                    part.kind = picture(part.kind);
                    part.seal = Some(seal);
                }
                all.push(part);
            }
            Some((whose, seal)) => match whose.as_str() {
                "next" => next = Some(seal),
                "text" => all.push(Part::text("").sealed(Some(seal))),
                other if stretch::is_name(other) => stretches.push((whose, seal)),
                other => {
                    if let Some(id) = other.strip_prefix("call ") {
                        let id = names::read(id.to_owned());
                        calls.entry(id).or_default().push_back(seal);
                    }
                }
            },
        }
    }
    cut(&mut all, &mut stretches);
    for part in &mut all {
        if let Kind::ToolCall(call) = &part.kind
            && let Some(seal) = calls.get_mut(&call.id).and_then(VecDeque::pop_front)
        {
            part.seal = Some(seal);
        }
    }
    all
}

/// The last text with each sealed stretch as a part of its own.
fn cut(all: &mut Vec<Part>, seals: &mut Vec<(String, Seal)>) {
    let seals = std::mem::take(seals);
    if seals.is_empty() {
        return;
    }
    if let Some(text) = all.pop_if(|last| matches!(last.kind, Kind::Text { .. })) {
        all.extend(stretch::cut_part(text, stretch::named(seals)));
    }
}

/// A sealed picture that was told as markdown is that picture again; its seal holds for nothing
/// else.
fn picture(kind: Kind) -> Kind {
    let Kind::Text { text, .. } = &kind else { return kind };
    let inside = text.strip_prefix("![image](data:").and_then(|rest| rest.strip_suffix(')'));
    let Some((mime, data)) = inside.and_then(|rest| rest.split_once(";base64,")) else {
        return kind;
    };
    let source = Source::Inline { mime: mime.to_owned(), data: data.to_owned() };
    let kind = MediaKind::Image;
    Kind::Media(Media { kind, source, name: None, detail: None, clip: None })
}

/// Whose seal a part carries, when it is nothing but the carrier of one.
fn opened(part: &Part) -> Option<(String, Seal)> {
    let Kind::Thought(Thought { redacted: true, .. }) = &part.kind else { return None };
    let (origin, inside) = part.seal.as_ref()?.open();
    let (whose, token) = inside.strip_prefix(MARK)?.split_once(MARK)?;
    Some((whose.to_owned(), Seal::new(origin, token)))
}

#[cfg(test)]
mod tests {
    use super::super::{read_blocks, write_answer};
    use super::*;
    use crate::fields::Path;
    use canon::{Losses, Origin, ToolCall};

    fn call(id: &str) -> Part {
        let (id, name) = (id.to_owned(), "f".to_owned());
        let arguments = r#"{"a":1}"#.to_owned();
        Part::new(Kind::ToolCall(ToolCall { id, name, arguments, custom: false }))
    }

    fn there_and_back(parts: &[Part]) -> Vec<Part> {
        let mut losses = Losses::new();
        let blocks = write_answer::Blocks::new("x").write_all(parts.to_vec(), &mut losses);
        assert!(losses.is_empty(), "{losses:?}");
        let read = |value| read_blocks::read(value, &Path::Root, Side::History).unwrap();
        restore(blocks.into_iter().map(read).collect())
    }

    #[test]
    fn every_seal_comes_back_onto_its_own_part() {
        let seal = |origin, token: &str| Some(Seal::new(origin, token));
        let thought = |text: &str, redacted| {
            Part::new(Kind::Thought(Thought { text: text.to_owned(), redacted }))
        };
        let parts = vec![
            thought("hm", false).sealed(seal(Origin::Messages, "own")),
            thought("", true).sealed(seal(Origin::Messages, "own, hidden")),
            thought("so", false).sealed(seal(Origin::Native, "native")),
            thought("", true).sealed(seal(Origin::Responses, "responses")),
            Part::text("let me see").sealed(seal(Origin::Native, "on text")),
            call("one").sealed(seal(Origin::Native, "on the first")),
            call("two"),
            call("th:ree").sealed(seal(Origin::Native, "on the third")),
            Part::text("").sealed(seal(Origin::Native, "on nothing")),
        ];
        assert_eq!(there_and_back(&parts), parts);
    }

    #[test]
    fn a_seal_finds_its_call_in_a_turn_that_was_reordered() {
        let carried = carrier(&Seal::new(Origin::Native, "s"), &Whose::Call("two"));
        let part = read_blocks::read(carried, &Path::Root, Side::History).unwrap();
        let restored = restore(vec![call("two"), call("one"), part]);
        assert_eq!(restored[0].seal, Some(Seal::new(Origin::Native, "s")));
        assert_eq!((restored.len(), restored[1].seal.as_ref()), (2, None));
    }

    #[test]
    fn every_envelope_is_known_by_its_beginning() {
        for origin in Origin::ALL {
            let wrapped = envelope::wrap(&Seal::new(origin, "s"));
            assert!(wrapped.starts_with(WRAPPED) && is_wrapped(&wrapped), "{origin}");
        }
        assert!(!is_wrapped("EqQBCgIYAg==") && !is_wrapped(WRAPPED));
    }

    #[test]
    fn what_a_provider_wrote_is_its_own_seal() {
        let wrapped = envelope::wrap(&Seal::new(Origin::Native, "s"));
        let read = read(wrapped.clone(), Side::Answer);
        assert_eq!(read, Some(Seal::new(Origin::Messages, wrapped)));
    }
}
