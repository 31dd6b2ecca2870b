//! JSON texts that differ from an earlier one only in their strings and numbers.
//!
//! A provider writes the same fields in the same order again and again. Such a text has the structure
//! of the earlier one, which was parsed. Each value stands where the earlier one stood, moved by the
//! lengths of the values before it. It needs no parser.

use std::ops::Range;
use text_scan::plain_length;

use crate::json_reader::JsonReader;

/// Number of values above which a text has no skeleton.
const MAX_VALUES: usize = 128;
/// Number of bytes around the values above which a text has no skeleton.
const MAX_FIXED_BYTES: usize = 8 << 10;
/// Longest number that every reader takes.
const MAX_DIGITS: usize = 18;

/// A JSON text without its strings and numbers. Names of fields are part of it.
#[derive(Debug)]
pub(crate) struct Skeleton {
    /// The bytes around the values.
    fixed: Vec<u8>,
    values: Vec<ValuePlace>,
}

/// The place of a value.
#[derive(Debug)]
struct ValuePlace {
    /// The number of fixed bytes between the value before it and this one.
    before: usize,
    /// Its range in the earlier text, without quotes.
    range: Range<usize>,
    is_text: bool,
}

/// A place in a text, told by the last value before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueAnchor {
    /// The number of values before it.
    values: usize,
    /// The bytes behind the last one of them, or behind the beginning.
    offset: usize,
}

impl ValueAnchor {
    /// Returns the place in a text whose values have these ends, behind a zero.
    #[inline]
    pub(crate) fn place(self, ends: &[usize]) -> usize {
        self.offset + ends.get(self.values).copied().unwrap_or_default()
    }
}

impl Skeleton {
    /// Returns the skeleton of a text, which must be valid JSON; `None` if it is large.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (mut fixed, mut values) = (Vec::new(), Vec::new());
        let (mut at, mut done) = (0, 0);
        while let Some(byte) = bytes.get(at) {
            let range = match byte {
                b'"' => {
                    let end = string_end(bytes, at + 1)?;
                    let next = bytes.get(end + 1..)?.trim_ascii_start().first();
                    (next != Some(&b':')).then_some(at + 1..end)
                }
                b'-' | b'0'..=b'9' => Some(at..at + number_bytes(bytes.get(at..)?)),
                _ => {
                    at += 1;
                    continue;
                }
            };
            let is_text = *byte == b'"';
            let Some(range) = range else {
                at = string_end(bytes, at + 1)? + 1;
                continue;
            };
            let before = bytes.get(done..range.start)?;
            fixed.extend_from_slice(before);
            (at, done) = (range.end + usize::from(is_text), range.end);
            values.push(ValuePlace { before: before.len(), range, is_text });
            if values.len() > MAX_VALUES || fixed.len() > MAX_FIXED_BYTES {
                return None;
            }
        }
        fixed.extend_from_slice(bytes.get(done..)?);
        Some(Self { fixed, values })
    }

    /// Returns true if a text with this skeleton has strings with escapes; `None` if it has another
    /// skeleton. Sets the ends of its values, behind a zero.
    pub(crate) fn fit(&self, text: &str, ends: &mut Vec<usize>) -> Option<bool> {
        ends.clear();
        ends.reserve(self.values.len() + 1);
        ends.push(0);
        let (mut rest, mut fixed) = (text.as_bytes(), &self.fixed[..]);
        let mut has_escapes = false;
        for ValuePlace { before, is_text, .. } in &self.values {
            let (part, more) = fixed.split_at_checked(*before)?;
            (rest, fixed) = (rest.strip_prefix(part)?, more);
            let length = if *is_text {
                let plain = plain_length(rest);
                match rest.get(plain)? {
                    b'"' => plain,
                    _ => {
                        has_escapes = true;
                        let quoted = text.get(text.len() - rest.len() - 1..)?;
                        JsonReader::of_reply(quoted).string_bytes().ok()? - 2
                    }
                }
            } else {
                plain_number_bytes(rest)?
            };
            rest = rest.get(length..)?;
            ends.push(text.len() - rest.len());
        }
        (rest == fixed).then_some(has_escapes)
    }

    /// Returns the begin and the end of a range of the earlier text. Neither may be inside of a value.
    pub(crate) fn anchors(&self, range: &Range<usize>) -> (ValueAnchor, ValueAnchor) {
        // An empty string ends where it begins. A range that begins there has it inside.
        let before_start = self.values.partition_point(|value| value.range.start < range.start);
        let before_end = self.values.partition_point(|value| value.range.end <= range.end);
        (self.anchor(before_start, range.start), self.anchor(before_end, range.end))
    }

    fn anchor(&self, values: usize, at: usize) -> ValueAnchor {
        let last = values.checked_sub(1).and_then(|last| self.values.get(last));
        ValueAnchor { values, offset: at - last.map_or(0, |value| value.range.end) }
    }
}

/// Returns the place of the quote that ends a string.
fn string_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += plain_length(bytes.get(at..)?);
        match bytes.get(at)? {
            b'\\' => at += 2,
            _ => return Some(at),
        }
    }
}

/// Returns the length of a number.
fn number_bytes(bytes: &[u8]) -> usize {
    let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
    bytes.iter().take_while(is_part).count()
}

/// Returns the length of a number without an exponent; `None` for any other, and for what is none.
#[inline]
fn plain_number_bytes(bytes: &[u8]) -> Option<usize> {
    let whole = digits(bytes);
    let is_whole = whole == 1 || (whole > 1 && bytes.first() != Some(&b'0'));
    // Most numbers are counts.
    match bytes.get(whole) {
        Some(b'.' | b'e' | b'E') => long_number_bytes(bytes),
        _ if is_whole && whole <= MAX_DIGITS => Some(whole),
        _ => long_number_bytes(bytes),
    }
}

/// Returns the length of a number like [`plain_number_bytes`], with a sign and a fraction.
fn long_number_bytes(bytes: &[u8]) -> Option<usize> {
    let sign = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(bytes.get(sign..)?);
    let is_whole = whole == 1 || (whole > 1 && bytes.get(sign) != Some(&b'0'));
    let fraction = match bytes.get(sign + whole) {
        Some(b'.') => {
            1 + Some(digits(bytes.get(sign + whole + 1..)?)).filter(|count| *count > 0)?
        }
        _ => 0,
    };
    let length = sign + whole + fraction;
    let is_plain = is_whole && whole + fraction <= MAX_DIGITS;
    (is_plain && !matches!(bytes.get(length), Some(b'e' | b'E'))).then_some(length)
}

/// Returns the number of leading digits.
#[inline]
fn digits(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_with_other_values_fit() {
        let known =
            Skeleton::of(r#"{"a":"one", "b":[1,-2.5,null],"c":{"d":""},"e":true}"#).unwrap();
        for (text, fits) in [
            (r#"{"a":"", "b":[10,0,null],"c":{"d":"x"},"e":true}"#, true),
            (r#"{"a":"a \"b\" \u00e4", "b":[10,0.5,null],"c":{"d":"ü"},"e":true}"#, true),
            (r#"{"a":"\x", "b":[1,2,null],"c":{"d":""},"e":true}"#, false),
            (r#"{"a":"one", "b":[1,2,null],"c":{"d":""},"e":false}"#, false),
            (r#"{"a":"one","b":[1,2,null],"c":{"d":""},"e":true}"#, false),
            (r#"{"a":"one", "b":[01,2,null],"c":{"d":""},"e":true}"#, false),
            (r#"{"a":"one", "b":[1,2.,null],"c":{"d":""},"e":true}"#, false),
            (r#"{"a":"one", "b":[1e400,2,null],"c":{"d":""},"e":true}"#, false),
            (r#"{"a":"one", "b":[1,2,3],"c":{"d":""},"e":true}"#, false),
            (r#"{"a":"one", "b":[1,2,null],"c":{"d":""},"e":true} "#, false),
            (r#"{"a":"one", "b":[1,2,null],"c":{"d":""},"e":tru"#, false),
            (r#"{"a":"one"#, false),
        ] {
            let fit = known.fit(text, &mut Vec::new());
            assert_eq!(fit, fits.then(|| text.contains('\\')), "{text}");
        }
    }

    #[test]
    fn places_move_with_the_values_before_them() {
        let known = r#"{"a":"one","b":[12,{"c":null}],"d":{}}"#;
        let other = r#"{"a":"three","b":[7,{"c":null}],"d":{}}"#;
        let skeleton = Skeleton::of(known).unwrap();
        let mut ends = Vec::new();
        assert!(skeleton.fit(other, &mut ends).is_some());
        let moved = |range: Range<usize>| {
            let (start, end) = skeleton.anchors(&range);
            start.place(&ends)..end.place(&ends)
        };
        for part in ["\"a\"", "12", "{\"c\":null}", "null", "{}", "}"] {
            let start = known.find(part).unwrap();
            let expected = if part == "12" { "7" } else { part };
            assert_eq!(other.get(moved(start..start + part.len())), Some(expected), "{part}");
        }
        let text = known.find("\"one\"").unwrap();
        assert_eq!(other.get(moved(text..text + 5)), Some("\"three\""));
    }

    #[test]
    fn texts_are_found_behind_empty_ones_of_the_known_reply() {
        let texts = ["", "one", r#"a \"b\" c"#];
        let body = |[a, b]: [&str; 2]| format!(r#"{{"a":"{a}","n":1,"b":"{b}"}}"#);
        let pairs = || texts.iter().flat_map(|a| texts.iter().map(move |b| [*a, *b]));
        for known in pairs() {
            let known_body = body(known);
            let skeleton = Skeleton::of(&known_body).unwrap();
            let a = known_body.find(r#"":""#).unwrap() + 3;
            let b = known_body.rfind('"').unwrap() - known[1].len();
            for other in pairs() {
                let other_body = body(other);
                let mut ends = Vec::new();
                assert!(skeleton.fit(&other_body, &mut ends).is_some());
                for (at, known, other) in [(a, known[0], other[0]), (b, known[1], other[1])] {
                    let (start, end) = skeleton.anchors(&(at..at + known.len()));
                    let found = other_body.get(start.place(&ends)..end.place(&ends));
                    assert_eq!(found, Some(other), "{known_body} {other_body}");
                }
            }
        }
    }
}
