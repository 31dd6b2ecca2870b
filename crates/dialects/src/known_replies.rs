//! Changes of replies and events by their skeletons.

use bytes::Bytes;
use std::cell::RefCell;
use std::ops::Range;
use std::ptr;

use crate::reply_shape::{NoteLabel, ObjectShape};
use crate::skeleton::{Skeleton, ValueAnchor};

/// A change of a reply.
#[derive(Clone, Debug)]
pub(crate) struct ShapeEdit {
    pub(crate) range: Range<usize>,
    /// The JSON of the new value; `None` for the selected model.
    pub(crate) json: Option<Bytes>,
}

/// The result of a pass over a reply.
#[derive(Clone, Debug)]
pub(crate) struct ReplyEdits {
    pub(crate) edits: Vec<ShapeEdit>,
    /// The places of noted values, with their labels.
    pub(crate) noted: Vec<(NoteLabel, Range<usize>)>,
    /// The places of texts that are output, without their quotes.
    pub(crate) texts: Vec<Range<usize>>,
    /// True if a text may have escapes.
    pub(crate) has_escapes: bool,
    /// The number of items in lists.
    pub(crate) items: usize,
    /// True for an object without doubled fields and with one list, of objects.
    pub(crate) is_regular: bool,
}

impl ReplyEdits {
    /// Returns all ranges.
    fn ranges(&mut self) -> impl Iterator<Item = &mut Range<usize>> {
        let edits = self.edits.iter_mut().map(|edit| &mut edit.range);
        let noted = self.noted.iter_mut().map(|(_, range)| range);
        edits.chain(noted).chain(&mut self.texts)
    }
}

/// A reply whose changes are those of every reply with its skeleton.
struct KnownReply {
    shape: &'static ObjectShape,
    skeleton: Skeleton,
    /// The changes of the last reply with this skeleton.
    found: ReplyEdits,
    /// Begin and end of each of its ranges.
    anchors: Vec<(ValueAnchor, ValueAnchor)>,
    /// The reply that came after it the last time.
    next: usize,
    /// The number of the last reply with this skeleton.
    used: u64,
}

/// The last replies and events of this thread with different skeletons.
#[derive(Default)]
struct KnownReplies {
    replies: Vec<KnownReply>,
    /// The last one that was found.
    last: usize,
    /// The number of replies that were found.
    count: u64,
    /// The ends of the values of a reply, behind a zero.
    ends: Vec<usize>,
    /// Number of replies since the last one with a known skeleton.
    misses: u32,
}

/// Number of skeletons that a thread keeps.
const MAX_KNOWN_REPLIES: usize = 24;

/// Calls a function with the changes of a reply with a known skeleton.
pub(crate) fn find<R>(
    text: &str,
    shape: &'static ObjectShape,
    with_found: impl FnOnce(&ReplyEdits) -> R,
) -> Option<R> {
    KNOWN_REPLIES.with(|known| {
        let mut known = known.try_borrow_mut().ok()?;
        known.find(text, shape).map(with_found)
    })
}

/// Keeps a reply. Its changes must not depend on its strings and numbers.
pub(crate) fn learn(text: &str, shape: &'static ObjectShape, found: &ReplyEdits) {
    KNOWN_REPLIES.with(|known| {
        if let Ok(mut known) = known.try_borrow_mut() {
            known.learn(text, shape, found);
        }
    });
}

/// Forgets all replies of this thread.
#[cfg(test)]
pub(crate) fn forget() {
    KNOWN_REPLIES.take();
}

thread_local! {
    static KNOWN_REPLIES: RefCell<KnownReplies> = RefCell::default();
}

impl KnownReplies {
    fn find(&mut self, text: &str, shape: &'static ObjectShape) -> Option<&ReplyEdits> {
        let Self { replies, last, count, ends, misses } = self;
        let mut fit = |known: &KnownReply| {
            let is_own = ptr::eq(known.shape, shape);
            is_own.then(|| known.skeleton.fit(text, ends)).flatten()
        };
        // The events of a stream mostly come in the same order.
        let usual = replies.get(*last).map_or(0, |last| last.next);
        let (at, has_escapes) = match replies.get(usual).and_then(&mut fit) {
            Some(has_escapes) => (usual, has_escapes),
            None => replies.iter().enumerate().find_map(|(at, known)| Some((at, fit(known)?)))?,
        };
        *misses = 0;
        if let Some(last) = replies.get_mut(*last) {
            last.next = at;
        }
        *last = at;
        *count += 1;
        let KnownReply { found, anchors, used, .. } = replies.get_mut(at)?;
        *used = *count;
        found.has_escapes = has_escapes;
        let mut anchors = anchors.iter();
        found.ranges().for_each(|range| {
            if let Some((start, end)) = anchors.next() {
                *range = start.place(ends)..end.place(ends);
            }
        });
        Some(found)
    }

    /// The more replies in a row were unknown, the fewer of them are kept.
    fn learn(&mut self, text: &str, shape: &'static ObjectShape, found: &ReplyEdits) {
        let is_due = self.misses.count_ones() <= 1;
        self.misses = self.misses.saturating_add(1);
        let Some(skeleton) = is_due.then(|| Skeleton::of(text)).flatten() else { return };
        let is_full = self.replies.len() >= MAX_KNOWN_REPLIES;
        let mut found = found.clone();
        let anchors = found.ranges().map(|range| skeleton.anchors(range)).collect();
        self.count += 1;
        let new = KnownReply { shape, skeleton, found, anchors, next: 0, used: self.count };
        let oldest = self.replies.iter_mut().min_by_key(|known| known.used);
        match oldest.filter(|_| is_full) {
            Some(oldest) => *oldest = new,
            None => self.replies.push(new),
        }
    }
}
