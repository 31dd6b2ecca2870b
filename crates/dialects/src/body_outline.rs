//! Body of a request without the middle of its long texts.
//!
//! Searches for names of fields and for addresses need no more of it: names are short, and a text is
//! an address by its beginning.

use std::ops::Range;

use crate::word_search::WordScans;

/// Bytes of a long text that are kept.
const KEPT_BYTES: usize = 256;
/// Bytes at the beginning of a long text, one of which must be a letter or a digit. Some readers skip
/// other characters before an address.
const DECORATION_BYTES: usize = 16;

/// The outline of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyOutline {
    bytes: OutlineBytes,
    /// The scans that its words lead to, if it was searched for them.
    scans: Option<WordScans>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum OutlineBytes {
    /// The body has no long texts.
    #[default]
    Whole,
    Reduced(Vec<u8>),
    /// Nothing of the body has to be searched.
    Nothing,
}

impl BodyOutline {
    /// Creates an outline. The long texts are strings without escapes, in the order of the body.
    pub(crate) fn new(body: &[u8], long_texts: &[Range<usize>]) -> Self {
        let (mut outline, mut done) = (Vec::new(), 0);
        for text in long_texts {
            let (kept, end) = (text.start + KEPT_BYTES, text.end);
            let begin = body.get(text.start..text.start + DECORATION_BYTES).unwrap_or_default();
            if begin.iter().any(u8::is_ascii_alphanumeric)
                && let Some(bytes) = body.get(done..kept.min(end))
            {
                outline.extend_from_slice(bytes);
                done = end;
            }
        }
        if done > 0 {
            outline.extend_from_slice(body.get(done..).unwrap_or_default());
        }
        let bytes = if done > 0 { OutlineBytes::Reduced(outline) } else { OutlineBytes::Whole };
        Self { bytes, scans: None }
    }

    /// The outline of a body that names no object, no media and no address.
    pub(crate) fn nothing() -> Self {
        Self { bytes: OutlineBytes::Nothing, scans: Some(WordScans::default()) }
    }

    /// Searches for the words of all scans at once.
    pub(crate) fn search(&mut self, body: &[u8], scans_for: impl FnOnce(&[u8]) -> WordScans) {
        self.scans = Some(scans_for(self.of(body)));
    }

    /// Returns true if a body has to be scanned, as the search for all words told or else that for the
    /// words of this scan tells.
    pub(crate) fn needs(
        &self,
        body: &[u8],
        is_needed: impl FnOnce(WordScans) -> bool,
        is_there: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        self.scans.map_or_else(|| is_there(self.of(body)), is_needed)
    }

    /// Returns true if the body names no object, no media and no address.
    pub fn is_nothing(&self) -> bool {
        self.bytes == OutlineBytes::Nothing
    }

    /// Returns the bytes to search.
    pub fn of<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        match &self.bytes {
            OutlineBytes::Whole => body,
            OutlineBytes::Reduced(outline) => outline,
            OutlineBytes::Nothing => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect as _;
    use crate::chat::ChatDialect;
    use serde_json::json;

    #[test]
    fn the_middle_of_long_texts_is_left_out() {
        let body = |texts: [&str; 3]| {
            let turns = texts.map(|text| json!({ "role": "user", "content": text }));
            json!({ "model": "m", "messages": turns, "x": { "url": "https://a.b" } }).to_string()
        };
        let outline = |body: &str| {
            let facts = ChatDialect.read_facts(&Default::default(), body.as_bytes()).unwrap();
            String::from_utf8(facts.outline.of(body.as_bytes()).to_vec()).unwrap()
        };
        let long = "word ".repeat(1_000);
        let kept: String = long.chars().take(KEPT_BYTES).collect();
        let (escaped, blank) = (format!("{long}\n"), " ".repeat(10_000));
        for (texts, expected) in [
            (["short", "short", "short"], ["short", "short", "short"]),
            ([&long, "short", &long], [&kept, "short", &kept]),
            ([&escaped, &blank, &long], [&escaped, &blank, &kept]),
        ] {
            assert_eq!(outline(&body(texts)), body(expected));
        }
    }
}
