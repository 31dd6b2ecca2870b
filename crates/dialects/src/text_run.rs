//! Texts of events that differ in nothing else.

use canon::{Event, PartDelta, PartIndex};

/// Expected length of a text.
const AVERAGE_TEXT_BYTES: usize = 8;

/// Consecutive texts that grow one part. Each of them stands in JSON as it is: it has no quotes, no
/// backslashes and no control characters.
#[derive(Debug, Default)]
pub struct TextRun {
    pub(crate) place: PartIndex,
    /// The texts, joined.
    joined: String,
    /// The end of each text in them.
    ends: Vec<usize>,
    chars: usize,
}

impl TextRun {
    /// Creates a run of these texts of a part.
    pub(crate) fn fill(
        &mut self,
        place: PartIndex,
        add_texts: impl FnOnce(&mut TextRunBuilder<'_>) -> usize,
    ) -> usize {
        let mut bytes = std::mem::take(&mut self.joined).into_bytes();
        bytes.clear();
        self.ends.clear();
        let taken = add_texts(&mut TextRunBuilder { bytes: &mut bytes, ends: &mut self.ends });
        // Each text is checked before it is added.
        self.joined = String::from_utf8(bytes).unwrap_or_default();
        self.chars = crate::text::char_count(&self.joined);
        self.place = place;
        taken
    }

    /// Returns the part that grows.
    pub fn place(&self) -> PartIndex {
        self.place
    }

    /// Returns all texts as one.
    pub fn joined(&self) -> &str {
        &self.joined
    }

    /// Returns the number of characters.
    pub(crate) fn chars(&self) -> usize {
        self.chars
    }

    /// Returns the texts.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let text = self.joined.get(start..*end).unwrap_or_default();
            start = *end;
            text
        })
    }

    /// Returns the texts as events.
    pub fn events(&self) -> impl Iterator<Item = Event> {
        self.texts().map(|text| Event::PartDelta(self.place, PartDelta::Text(text.to_owned())))
    }

    /// Writes each text between these bytes. `between` are those after a text and before the next one.
    pub(crate) fn write(&self, frame: &TextFrame, out: &mut Vec<u8>) {
        let (before, after, between) = (frame.before(), frame.after(), frame.between());
        out.reserve(before.len() + self.ends.len() * between.len() + self.joined.len());
        let mut opening = before;
        let mut start = 0;
        for end in &self.ends {
            out.extend_from_slice(opening);
            out.extend_from_slice(self.joined.as_bytes().get(start..*end).unwrap_or_default());
            (opening, start) = (between, *end);
        }
        if start > 0 {
            out.extend_from_slice(after);
        }
    }
}

/// Adds texts to a run.
pub(crate) struct TextRunBuilder<'r> {
    bytes: &'r mut Vec<u8>,
    ends: &'r mut Vec<usize>,
}

impl TextRunBuilder<'_> {
    /// Makes room for so many texts of an average length.
    pub(crate) fn reserve(&mut self, texts: usize) {
        self.ends.reserve(texts);
        self.bytes.reserve(texts * AVERAGE_TEXT_BYTES);
    }

    /// Adds a text, which must be valid UTF-8.
    #[inline]
    pub(crate) fn add(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }
}

/// The bytes around the text of a written event.
#[derive(Debug, Default)]
pub(crate) struct TextFrame {
    /// The bytes after a text and before the next one.
    between: Vec<u8>,
    /// The number of them that end an event.
    after: usize,
}

impl TextFrame {
    /// Joins the parts before a text, and those after it.
    pub(crate) fn new(before: &[&[u8]], after: &[&[u8]]) -> Self {
        let length = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        let mut between = Vec::with_capacity(length(before) + length(after));
        after.iter().chain(before).for_each(|part| between.extend_from_slice(part));
        Self { between, after: length(after) }
    }

    pub(crate) fn before(&self) -> &[u8] {
        self.between.get(self.after..).unwrap_or_default()
    }

    pub(crate) fn after(&self) -> &[u8] {
        self.between.get(..self.after).unwrap_or_default()
    }

    pub(crate) fn between(&self) -> &[u8] {
        &self.between
    }
}
