//! Signatures that the gateway keeps for clients that do not send all of them back.
//!
//! Chat has no official field for signatures, and many clients drop the extension field they travel
//! in. Messages has a field for every signature but one: that of the text a reply ends with,
//! because clients take a block after that text for the answer. The gateway keeps those signatures
//! under keys that every client sends back: the id of a call, or the text itself. This module
//! defines what is kept and how it is restored. The caller decides where it is kept, for whom and
//! how long.

use canon::{Part, PartKind, Signature, WireFormat};
use std::borrow::Cow;
use std::ops::Range;

use crate::signed_span::{self, SignedSpan};

/// The key of kept signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureKey<'a> {
    /// The id of a call.
    Call(&'a str),
    /// A whole text.
    Text(&'a str),
}

/// Signatures kept under one key.
#[derive(Clone, Debug, PartialEq)]
pub struct CachedSignatures(CachedParts);

#[derive(Clone, Debug, PartialEq)]
enum CachedParts {
    /// Signed thoughts of a turn, and the signatures of its calls.
    Turn { thoughts: Vec<Part>, calls: Vec<(String, Signature)> },
    /// Signed spans of a text.
    Text(Vec<SignedSpan>),
}

impl CachedSignatures {
    /// Returns the approximate size in bytes.
    pub fn size_bytes(&self) -> usize {
        let token = |seal: &Signature| seal.origin_and_token().1.len();
        match &self.0 {
            CachedParts::Turn { thoughts, calls } => {
                let thoughts = thoughts.iter().map(|part| {
                    let text = if let PartKind::Thought(thought) = &part.kind {
                        &thought.text
                    } else {
                        ""
                    };
                    text.len() + part.signature.as_ref().map_or(0, token)
                });
                let calls = calls.iter().map(|(id, seal)| id.len() + token(seal));
                thoughts.chain(calls).sum()
            }
            CachedParts::Text(spans) => spans.iter().map(|(.., seal)| token(seal)).sum(),
        }
    }
}

/// Passes the signatures of a reply that must be kept to `put`; `caller` is the caller's format.
pub fn collect_signatures(
    parts: &[Part],
    caller: WireFormat,
    mut put: impl FnMut(SignatureKey<'_>, CachedSignatures),
) {
    let texts: Vec<&Part> = match caller {
        // In chat, all text of a reply is one text.
        WireFormat::Chat => {
            keep_turn(parts, &mut put);
            parts.iter().filter(|part| part.as_text().is_some()).collect()
        }
        WireFormat::Messages => parts.get(last_texts(parts)).unwrap_or_default().iter().collect(),
        WireFormat::Responses | WireFormat::Native | WireFormat::Images => return,
    };
    let (mut all, mut at, mut spans) = (String::new(), 0, Vec::new());
    for part in texts {
        let text = part.as_text().unwrap_or_default();
        let end = at + text.chars().count();
        spans.extend(part.signature.clone().map(|seal| (at, end, seal)));
        all.push_str(text);
        at = end;
    }
    if !spans.is_empty() && !all.is_empty() {
        put(SignatureKey::Text(&all), CachedSignatures(CachedParts::Text(spans)));
    }
}

/// Keeps the signatures of a turn with calls, under the id of each call.
fn keep_turn(parts: &[Part], put: &mut impl FnMut(SignatureKey<'_>, CachedSignatures)) {
    let sealed =
        |part: &&Part| part.signature.is_some() && matches!(part.kind, PartKind::Thought(_));
    let thoughts: Vec<Part> = parts.iter().filter(sealed).cloned().collect();
    let calls: Vec<(String, Signature)> = parts
        .iter()
        .filter_map(|part| Some((call_id(part)?.to_owned(), part.signature.clone()?)))
        .collect();
    if thoughts.is_empty() && calls.is_empty() {
        return;
    }
    let cached = CachedSignatures(CachedParts::Turn { thoughts, calls });
    for id in parts.iter().filter_map(call_id) {
        put(SignatureKey::Call(id), cached.clone());
    }
}

fn call_id(part: &Part) -> Option<&str> {
    if let PartKind::ToolCall(call) = &part.kind { Some(&call.id) } else { None }
}

/// Restores the signatures that a client left out of a turn, if the provider it goes to has issued
/// them.
pub fn restore_signatures(
    parts: &mut Vec<Part>,
    provider: WireFormat,
    mut find: impl FnMut(SignatureKey<'_>) -> Option<CachedSignatures>,
) {
    let is_own = |seal: &Signature| seal.origin() == provider;
    let call = parts.iter().find_map(call_id);
    if parts.iter().all(|part| part.signature.is_none())
        && let Some(CachedSignatures(CachedParts::Turn { mut thoughts, mut calls })) =
            call.and_then(|id| find(SignatureKey::Call(id)))
    {
        thoughts.retain(|part| part.signature.as_ref().is_some_and(is_own));
        calls.retain(|(_, seal)| is_own(seal));
        restore_calls(parts, thoughts, calls);
    }
    let run = last_texts(parts);
    let texts = parts.get(run.clone()).unwrap_or_default();
    if texts.is_empty() || texts.iter().any(|part| part.signature.is_some()) {
        return;
    }
    let mut find_spans = |from: usize| {
        let texts = parts.get(from..run.end).unwrap_or_default();
        let words: Cow<'_, str> = match texts {
            [one] => one.as_text().unwrap_or_default().into(),
            some => some.iter().filter_map(Part::as_text).collect(),
        };
        match find(SignatureKey::Text(&words))?.0 {
            CachedParts::Text(mut spans) => {
                spans.retain(|(.., seal)| is_own(seal));
                Some((from, spans))
            }
            CachedParts::Turn { .. } => None,
        }
    };
    // An image before the text came back as text too.
    let last = run.end.saturating_sub(1);
    let found =
        find_spans(run.start).or_else(|| if last > run.start { find_spans(last) } else { None });
    if let Some((from, spans)) = found {
        restore_texts(parts, from..run.end, spans);
    }
}

/// Inserts signed thoughts before everything else, and puts each call's signature on the call.
fn restore_calls(parts: &mut Vec<Part>, thoughts: Vec<Part>, calls: Vec<(String, Signature)>) {
    for (id, seal) in calls {
        if let Some(call) = parts.iter_mut().find(|part| call_id(part) == Some(&id)) {
            call.signature = Some(seal);
        }
    }
    // Thinking that came back without its signature is a duplicate.
    if !thoughts.is_empty() {
        parts.retain(|part| !matches!(part.kind, PartKind::Thought(_)));
    }
    parts.splice(0..0, thoughts);
}

/// Splits texts, so that each signed span is a part of its own.
fn restore_texts(parts: &mut Vec<Part>, run: Range<usize>, spans: Vec<SignedSpan>) {
    let texts: Vec<Part> = parts.drain(run.clone()).collect();
    let count = texts.len();
    let (mut at, mut left, mut split) = (0, spans, Vec::with_capacity(count));
    for (number, part) in texts.into_iter().enumerate() {
        let end = at + part.as_text().unwrap_or_default().chars().count();
        // An empty span between two parts belongs to the end of the first.
        let inside = |stretch: &SignedSpan| stretch.1 <= end || number + 1 == count;
        let (here, later): (Vec<SignedSpan>, Vec<SignedSpan>) = left.into_iter().partition(inside);
        left = later;
        let shifted = here.into_iter().filter_map(|(from, to, seal)| {
            // A span over several parts cannot be restored.
            Some((from.checked_sub(at)?, to.checked_sub(at)?, seal))
        });
        split.extend(signed_span::split_part(part, shifted.collect()));
        at = end;
    }
    parts.splice(run.start..run.start, split);
}

/// Returns the range of the last adjacent texts of a turn.
fn last_texts(parts: &[Part]) -> Range<usize> {
    let is_text = |part: &Part| part.as_text().is_some();
    let end = parts.iter().rposition(is_text).map_or(0, |last| last + 1);
    let before = parts.get(..end).unwrap_or_default();
    let start = before.iter().rposition(|part| !is_text(part)).map_or(0, |other| other + 1);
    start..end
}
