//! Changes of replies and events by their skeletons.

use bytes::Bytes;
use std::cell::RefCell;
use std::ops::Range;
use std::ptr;

use crate::reply_shape::ObjectShape;
use crate::skeleton::Skeleton;

/// A change of a reply.
#[derive(Clone)]
pub(crate) struct ShapeEdit {
    pub(crate) range: Range<usize>,
    /// The JSON of the new value; `None` for the selected model.
    pub(crate) json: Option<Bytes>,
}

/// The result of a pass over a reply.
#[derive(Clone)]
pub(crate) struct ReplyEdits {
    pub(crate) edits: Vec<ShapeEdit>,
    /// The places of noted values, with the names of their fields.
    pub(crate) noted: Vec<(&'static str, Range<usize>)>,
    /// The number of items in lists.
    pub(crate) items: usize,
    /// True for an object without doubled fields and with one list, of objects.
    pub(crate) is_regular: bool,
}

/// A reply whose changes are those of every reply with its skeleton.
struct KnownReply {
    shape: &'static ObjectShape,
    skeleton: Skeleton,
    found: ReplyEdits,
}

/// The last replies and events of this thread with different skeletons.
#[derive(Default)]
struct KnownReplies {
    replies: Vec<KnownReply>,
    /// Number of replies since the last one with a known skeleton.
    misses: u32,
}

/// Number of skeletons that a thread keeps.
const MAX_KNOWN_REPLIES: usize = 16;

/// Returns the changes of a reply with a known skeleton.
pub(crate) fn find(text: &str, shape: &'static ObjectShape) -> Option<ReplyEdits> {
    KNOWN_REPLIES.with_borrow_mut(|known| known.find(text, shape))
}

/// Keeps a reply. Its changes must not depend on its strings and numbers.
pub(crate) fn learn(text: &str, shape: &'static ObjectShape, found: &ReplyEdits) {
    KNOWN_REPLIES.with_borrow_mut(|known| known.learn(text, shape, found));
}

thread_local! {
    static KNOWN_REPLIES: RefCell<KnownReplies> = RefCell::default();
}

impl KnownReplies {
    fn find(&mut self, text: &str, shape: &'static ObjectShape) -> Option<ReplyEdits> {
        let fitted = |(at, known): (usize, &KnownReply)| {
            let fitted = ptr::eq(known.shape, shape).then(|| known.skeleton.fit(text))??;
            let ReplyEdits { edits, noted, items, is_regular } = &known.found;
            let edits = edits.iter().map(|ShapeEdit { range, json }| ShapeEdit {
                range: fitted.moved(range),
                json: json.clone(),
            });
            let noted = noted.iter().map(|(name, range)| (*name, fitted.moved(range)));
            let (edits, noted) = (edits.collect(), noted.collect());
            Some((at, ReplyEdits { edits, noted, items: *items, is_regular: *is_regular }))
        };
        let (at, found) = self.replies.iter().enumerate().find_map(fitted)?;
        self.misses = 0;
        if at > 0 {
            self.replies.swap(at, at - 1);
        }
        Some(found)
    }

    /// The more replies in a row were unknown, the fewer of them are kept.
    fn learn(&mut self, text: &str, shape: &'static ObjectShape, found: &ReplyEdits) {
        let is_due = self.misses.count_ones() <= 1;
        self.misses = self.misses.saturating_add(1);
        let Some(skeleton) = is_due.then(|| Skeleton::of(text)).flatten() else { return };
        self.replies.truncate(MAX_KNOWN_REPLIES - 1);
        self.replies.push(KnownReply { shape, skeleton, found: found.clone() });
    }
}
