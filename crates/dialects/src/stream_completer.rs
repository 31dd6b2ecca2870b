//! Completes the events of a stream that has the caller's own format.

use bytes::Bytes;
use memchr::memmem::Finder;
use std::cell::OnceCell;
use std::sync::LazyLock;

use crate::StreamFrame;
use crate::json::BodyEdit;
use crate::reply_shape::{NotedReply, ObjectShape, ReplyValues, apply, edits};

/// Completes the events of a stream. Only the first one is parsed, and a late one where the format
/// needs it, unless the first one lacks fields: the others are searched for the model that it named.
pub(crate) struct StreamCompleter {
    shape: &'static ObjectShape,
    model: String,
    state: CompleterState,
    /// The current event, if it was changed.
    changed: Option<StreamFrame>,
}

enum CompleterState {
    First,
    /// The provider's events lack fields, so that each one is parsed.
    Parse,
    /// The events are complete. The model field stands in each one as in the first.
    Search(ModelField),
    /// Nothing is to be changed.
    Idle,
}

/// The field that names the model, as the first event has it.
struct ModelField {
    /// The first event up to the end of the field.
    front: Vec<u8>,
    /// The place of the field in it.
    start: usize,
    /// True if the front has this field only once. Most events begin like the first one, and have it
    /// there.
    is_first: bool,
    /// Searches the field in an event that begins in another way.
    finder: OnceCell<Box<Finder<'static>>>,
    replacement: Vec<u8>,
}

impl ModelField {
    /// Returns an event with the replacement, if it has the field.
    fn replace_in(&self, data: &[u8]) -> Option<Bytes> {
        let old = self.front.get(self.start..)?;
        let at = match self.is_first && data.starts_with(&self.front) {
            true => self.start,
            false => {
                let finder = || Box::new(Finder::new(old).into_owned());
                self.finder.get_or_init(finder).find(data)?
            }
        };
        let (head, rest) = data.split_at_checked(at)?;
        Some(Bytes::from([head, &self.replacement[..], rest.get(old.len()..)?].concat()))
    }
}

impl StreamCompleter {
    pub(crate) fn new(shape: &'static ObjectShape, model: &str) -> Self {
        Self { shape, model: model.to_owned(), state: CompleterState::First, changed: None }
    }

    /// Takes the next event that may have to be changed.
    pub(crate) fn observe(&mut self, frame: &StreamFrame) {
        let shape = self.shape;
        self.observe_with(frame, |values| edits(&frame.data, shape, values));
    }

    /// Takes the next event that may have to be changed, by its noted values.
    pub(crate) fn observe_noted(&mut self, frame: &StreamFrame, noted: &NotedReply<'_>) {
        self.observe_with(frame, |values| noted.edits(values));
    }

    fn observe_with(
        &mut self,
        frame: &StreamFrame,
        find_edits: impl FnOnce(&ReplyValues<'_>) -> Vec<BodyEdit>,
    ) {
        let data = &frame.data;
        let found = match &self.state {
            CompleterState::Search(field) => field.replace_in(data),
            CompleterState::First | CompleterState::Parse | CompleterState::Idle => None,
        };
        let changed = match &self.state {
            CompleterState::Idle => None,
            CompleterState::Search(..) if found.is_some() => found,
            CompleterState::Search(..) if MODEL_KEY.find(data).is_none() => None,
            // A later event names another model, or names it in another way.
            CompleterState::First | CompleterState::Parse | CompleterState::Search(..) => {
                let edits = find_edits(&ReplyValues::of_event(&self.model));
                if matches!(self.state, CompleterState::First) {
                    self.state = later_state(data, &edits);
                }
                apply(data, edits)
            }
        };
        self.changed = changed.map(|data| StreamFrame { event: frame.event.clone(), data });
    }

    /// Takes an event with fields that the first one could not have, such as the counts at the end.
    pub(crate) fn observe_late(&mut self, frame: &StreamFrame) {
        let values = ReplyValues::of_event(&self.model);
        let edits = edits(&frame.data, self.shape, &values);
        let changed = apply(&frame.data, edits);
        self.changed = changed.map(|data| StreamFrame { event: frame.event.clone(), data });
    }

    /// Keeps an event that was changed before it was observed, and has to be written in that form.
    pub(crate) fn keep(&mut self, repaired: StreamFrame) {
        self.changed.get_or_insert(repaired);
    }

    /// Forgets the last event, because the current one needs no change.
    pub(crate) fn skip(&mut self) {
        self.changed = None;
    }

    /// Returns the event to write: the current one as changed, or else as it is.
    pub(crate) fn frame<'a>(&'a self, frame: &'a StreamFrame) -> &'a StreamFrame {
        self.changed.as_ref().unwrap_or(frame)
    }
}

/// The name of the field for the model. Inside of texts its quotes are escaped.
static MODEL_KEY: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"model\""));

/// Decides by the edits of the first event.
fn later_state(data: &[u8], edits: &[BodyEdit]) -> CompleterState {
    let [BodyEdit { range, replacement }] = edits else {
        return if edits.is_empty() { CompleterState::Idle } else { CompleterState::Parse };
    };
    let front = data.get(..range.start).unwrap_or_default();
    // Only white space and the colon stand between the name and the value.
    let between = front.iter().rev().take_while(|byte| matches!(byte, b':' | b' ')).count();
    let key = front.get(..front.len() - between).unwrap_or_default();
    let before = key.strip_suffix(MODEL_KEY.needle()).filter(|_| !range.is_empty());
    let Some(at) = before.map(<[u8]>::len) else { return CompleterState::Parse };
    let name = front.get(at..).unwrap_or_default();
    CompleterState::Search(ModelField {
        front: data.get(..range.end).unwrap_or_default().to_vec(),
        start: at,
        is_first: front.get(..at).is_some_and(|front| MODEL_KEY.find(front).is_none()),
        finder: OnceCell::new(),
        replacement: [name, &replacement[..]].concat(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply_shape::DefaultValue;

    static SHAPE: ObjectShape = ObjectShape::flat(&[
        ("model", DefaultValue::SelectedModel),
        ("object", DefaultValue::Json("\"reply\"")),
    ]);

    /// The first of two equal fields is replaced, wherever the first event has them.
    #[test]
    fn an_event_that_begins_like_the_first_is_changed_like_any_other() {
        let nested = r#"{"object":{"model":"theirs"},"model":"theirs","n":1}"#;
        let plain = r#"{"object":"o","model":"theirs","n":1}"#;
        for first in [nested, plain] {
            let mut completer = StreamCompleter::new(&SHAPE, "mine");
            completer.observe(&StreamFrame::data(first));
            for later in [nested.replace(":1", ":2"), plain.replace(":1", ":2")] {
                let frame = StreamFrame::data(later.clone());
                completer.observe(&frame);
                let expected = later.replacen("theirs", "mine", 1);
                assert_eq!(completer.frame(&frame).data, expected.as_bytes(), "{first}");
            }
        }
    }

    #[test]
    fn later_events_are_searched_for_the_first_ones_model() {
        let mut completer = StreamCompleter::new(&SHAPE, "mine");
        let complete = r#"{"object":"o","model": "theirs","text":"\"model\": \"theirs\""}"#;
        for (event, expected) in [
            (complete, complete.replacen("theirs", "mine", 1)),
            (r#"{"text":"a","model": "theirs"}"#, r#"{"text":"a","model": "mine"}"#.to_owned()),
            (r#"{"text":"a"}"#, r#"{"text":"a"}"#.to_owned()),
            (r#"{"object":"o","model":"b"}"#, r#"{"object":"o","model":"mine"}"#.to_owned()),
        ] {
            let frame = StreamFrame::data(event);
            completer.observe(&frame);
            assert_eq!(completer.frame(&frame).data, expected.as_bytes());
        }
    }
}
