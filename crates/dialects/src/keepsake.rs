//! What is kept of an answer for a client that does not bring all of its seals back.
//!
//! Chat has no official place for seals, and many clients drop the extension field they travel in.
//! Messages has a place for every seal but one: that of the text an answer ends with, because
//! clients take a block behind that text for the answer. Such seals are kept by the gateway, under
//! names every client brings back: the id of a call, the words of a text. Here is what is kept and
//! how it is put back; where it is kept, for whom and how long is not known here.

use canon::{Kind, Origin, Part, Seal};
use std::borrow::Cow;
use std::ops::Range;

use crate::stretch::{self, Stretch};

/// What a keepsake is found again by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name<'a> {
    /// The id of a call.
    Call(&'a str),
    /// The words of a text.
    Text(&'a str),
}

/// What is kept under one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Keepsake(Kept);

#[derive(Clone, Debug, PartialEq)]
enum Kept {
    /// The sealed thoughts of a turn, and the seals of its calls.
    Turn { thoughts: Vec<Part>, calls: Vec<(String, Seal)> },
    /// The sealed stretches of a text.
    Text(Vec<Stretch>),
}

impl Keepsake {
    /// How many bytes it takes, roughly.
    pub fn weight(&self) -> usize {
        let token = |seal: &Seal| seal.open().1.len();
        match &self.0 {
            Kept::Turn { thoughts, calls } => {
                let thoughts = thoughts.iter().map(|part| {
                    let text =
                        if let Kind::Thought(thought) = &part.kind { &thought.text } else { "" };
                    text.len() + part.seal.as_ref().map_or(0, token)
                });
                let calls = calls.iter().map(|(id, seal)| id.len() + token(seal));
                thoughts.chain(calls).sum()
            }
            Kept::Text(stretches) => stretches.iter().map(|(.., seal)| token(seal)).sum(),
        }
    }
}

/// Hands over what is to be kept of an answer that a caller of that format was given.
pub fn keep(parts: &[Part], caller: Origin, mut put: impl FnMut(Name<'_>, Keepsake)) {
    let texts: Vec<&Part> = match caller {
        // All text of an answer is one text there.
        Origin::Chat => {
            keep_calls(parts, &mut put);
            parts.iter().filter(|part| part.as_text().is_some()).collect()
        }
        Origin::Messages => parts.get(last_texts(parts)).unwrap_or_default().iter().collect(),
        Origin::Responses | Origin::Native | Origin::Images => return,
    };
    let (mut all, mut at, mut stretches) = (String::new(), 0, Vec::new());
    for part in texts {
        let text = part.as_text().unwrap_or_default();
        let end = at + text.chars().count();
        stretches.extend(part.seal.clone().map(|seal| (at, end, seal)));
        all.push_str(text);
        at = end;
    }
    if !stretches.is_empty() && !all.is_empty() {
        put(Name::Text(&all), Keepsake(Kept::Text(stretches)));
    }
}

/// What belongs to the calls of a turn, under the id of each.
fn keep_calls(parts: &[Part], put: &mut impl FnMut(Name<'_>, Keepsake)) {
    let sealed = |part: &&Part| part.seal.is_some() && matches!(part.kind, Kind::Thought(_));
    let thoughts: Vec<Part> = parts.iter().filter(sealed).cloned().collect();
    let calls: Vec<(String, Seal)> = parts
        .iter()
        .filter_map(|part| Some((call_id(part)?.to_owned(), part.seal.clone()?)))
        .collect();
    if thoughts.is_empty() && calls.is_empty() {
        return;
    }
    let kept = Keepsake(Kept::Turn { thoughts, calls });
    for id in parts.iter().filter_map(call_id) {
        put(Name::Call(id), kept.clone());
    }
}

fn call_id(part: &Part) -> Option<&str> {
    if let Kind::ToolCall(call) = &part.kind { Some(&call.id) } else { None }
}

/// Puts back what a client left out of a turn, as far as the provider it goes to has issued it.
pub fn restore(
    parts: &mut Vec<Part>,
    provider: Origin,
    mut find: impl FnMut(Name<'_>) -> Option<Keepsake>,
) {
    let own = |seal: &Seal| seal.origin() == provider;
    let call = parts.iter().find_map(call_id);
    if parts.iter().all(|part| part.seal.is_none())
        && let Some(Keepsake(Kept::Turn { mut thoughts, mut calls })) =
            call.and_then(|id| find(Name::Call(id)))
    {
        thoughts.retain(|part| part.seal.as_ref().is_some_and(own));
        calls.retain(|(_, seal)| own(seal));
        restore_calls(parts, thoughts, calls);
    }
    let run = last_texts(parts);
    let texts = parts.get(run.clone()).unwrap_or_default();
    if texts.is_empty() || texts.iter().any(|part| part.seal.is_some()) {
        return;
    }
    let mut look = |from: usize| {
        let texts = parts.get(from..run.end).unwrap_or_default();
        let words: Cow<'_, str> = match texts {
            [one] => one.as_text().unwrap_or_default().into(),
            some => some.iter().filter_map(Part::as_text).collect(),
        };
        match find(Name::Text(&words))?.0 {
            Kept::Text(mut stretches) => {
                stretches.retain(|(.., seal)| own(seal));
                Some((from, stretches))
            }
            Kept::Turn { .. } => None,
        }
    };
    // A picture before the text came back as text too.
    let last = run.end.saturating_sub(1);
    let found = look(run.start).or_else(|| if last > run.start { look(last) } else { None });
    if let Some((from, stretches)) = found {
        restore_texts(parts, from..run.end, stretches);
    }
}

/// Sealed thoughts go before everything else; a sealed call's seal goes onto the call itself.
fn restore_calls(parts: &mut Vec<Part>, thoughts: Vec<Part>, calls: Vec<(String, Seal)>) {
    for (id, seal) in calls {
        if let Some(call) = parts.iter_mut().find(|part| call_id(part) == Some(&id)) {
            call.seal = Some(seal);
        }
    }
    // Thinking that came back without its seal is the same thinking, and not worth twice.
    if !thoughts.is_empty() {
        parts.retain(|part| !matches!(part.kind, Kind::Thought(_)));
    }
    parts.splice(0..0, thoughts);
}

/// Each stretch becomes a part of its own, cut out of the part it lies in.
fn restore_texts(parts: &mut Vec<Part>, run: Range<usize>, stretches: Vec<Stretch>) {
    let texts: Vec<Part> = parts.drain(run.clone()).collect();
    let count = texts.len();
    let (mut at, mut left, mut whole) = (0, stretches, Vec::with_capacity(count));
    for (number, part) in texts.into_iter().enumerate() {
        let end = at + part.as_text().unwrap_or_default().chars().count();
        // An empty stretch between two parts belongs to the end of the first.
        let inside = |stretch: &Stretch| stretch.1 <= end || number + 1 == count;
        let (here, later): (Vec<Stretch>, Vec<Stretch>) = left.into_iter().partition(inside);
        left = later;
        let shifted = here.into_iter().filter_map(|(from, to, seal)| {
            // A stretch over several parts cannot be one part again.
            Some((from.checked_sub(at)?, to.checked_sub(at)?, seal))
        });
        whole.extend(stretch::cut_part(part, shifted.collect()));
        at = end;
    }
    parts.splice(run.start..run.start, whole);
}

/// The last texts of a turn that stand together.
fn last_texts(parts: &[Part]) -> Range<usize> {
    let is_text = |part: &Part| part.as_text().is_some();
    let end = parts.iter().rposition(is_text).map_or(0, |last| last + 1);
    let before = parts.get(..end).unwrap_or_default();
    let start = before.iter().rposition(|part| !is_text(part)).map_or(0, |other| other + 1);
    start..end
}
