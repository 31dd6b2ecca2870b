//! JSON as bytes: edits that leave the rest alone, depth, and errors that name their path.

use bytes::Bytes;
use canon::Fault;
use memchr::memchr2;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::ops::Range;

/// How deeply a request may be nested.
pub const MAX_DEPTH: usize = 128;

/// One change to a body: what stands in the range is replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is replaced; empty for an insertion.
    pub at: Range<usize>,
    /// What stands there instead.
    pub with: Bytes,
}

/// A body in pieces: slices of the caller's own bytes with edits between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments(Vec<Bytes>);

impl Segments {
    /// A body in one piece.
    pub fn whole(body: impl Into<Bytes>) -> Self {
        Self(vec![body.into()])
    }

    /// The body with the edits made. Overlapping edits keep the earlier one.
    pub fn edited(body: &Bytes, mut edits: Vec<Edit>) -> Self {
        edits.sort_by_key(|edit| edit.at.start);
        let mut pieces = Vec::with_capacity(edits.len() * 2 + 1);
        let mut done = 0;
        for Edit { at, with } in edits {
            if at.start < done || at.end > body.len() || at.start > at.end {
                continue;
            }
            pieces.push(body.slice(done..at.start));
            pieces.push(with);
            done = at.end;
        }
        pieces.push(body.slice(done..));
        pieces.retain(|piece| !piece.is_empty());
        Self(pieces)
    }

    /// The length of the whole body.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pieces in order.
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.0
    }

    /// The body in one piece, for showing it.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// The request as text: valid UTF-8, and not nested too deeply to be read by anyone.
pub fn text(body: &[u8]) -> Result<&str, Fault> {
    let text = std::str::from_utf8(body).map_err(|e| {
        Fault::invalid("", format!("the body is not valid UTF-8 (byte {})", e.valid_up_to()))
    })?;
    if depth(body) > MAX_DEPTH {
        return Err(Fault::invalid(
            "",
            format!("the body is nested more than {MAX_DEPTH} levels deep"),
        ));
    }
    Ok(text)
}

/// How deep brackets are nested outside of strings. The text need not be valid JSON.
fn depth(body: &[u8]) -> usize {
    let (mut deepest, mut depth, mut at) = (0_usize, 0_usize, 0);
    while let Some(byte) = body.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(hit) = body.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
                    at += hit + 1;
                    if body.get(at - 1) == Some(&b'"') {
                        break;
                    }
                    at += 1;
                }
            }
            _ => {}
        }
    }
    deepest
}

/// Where a borrowed value stands in the text it was borrowed from.
pub fn range_of(text: &str, value: &RawValue) -> Range<usize> {
    let start = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + value.get().len()
}

/// A string as JSON.
pub fn quoted(text: &str) -> Bytes {
    Bytes::from(serde_json::Value::from(text).to_string())
}

/// Reads a body; a fault names the path of what is wrong.
pub(crate) fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Fault> {
    serde_json::from_str(text).map_err(|_| {
        let mut from = serde_json::Deserializer::from_str(text);
        explain(serde_path_to_error::deserialize::<_, T>(&mut from))
    })
}

/// Why a text could not be read, from a second reading that kept track of the path.
pub fn explain<T>(outcome: Result<T, serde_path_to_error::Error<serde_json::Error>>) -> Fault {
    match outcome {
        // The value itself is fine, so what spoiled the first reading stands behind it.
        Ok(_) => Fault::invalid("", "something follows the JSON value in the body"),
        Err(error) => {
            let path = error.path().to_string();
            let cause = error.into_inner();
            if cause.is_syntax() || cause.is_eof() {
                return Fault::invalid(
                    "",
                    format!("the body is not valid JSON: {}", cut(&cause.to_string())),
                );
            }
            let path = if path == "." { String::new() } else { path };
            Fault::invalid(path, cut(&without_position(&cause.to_string())))
        }
    }
}

/// Parser messages end with a position, which means nothing once the path is named.
fn without_position(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(front, _)| front).to_owned()
}

/// A message never repeats more than a little of what was sent.
fn cut(message: &str) -> String {
    const MOST: usize = 200;
    if message.chars().count() <= MOST {
        return message.to_owned();
    }
    message.chars().take(MOST).chain(std::iter::once('…')).collect()
}

/// The text of a value, if it is one.
pub(crate) fn word(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// The text under a key as it stands there, escapes and all.
pub(crate) fn raw_text<'a>(data: &'a [u8], key: &Finder<'_>) -> Option<&'a [u8]> {
    let at = key.find(data)?;
    let rest = data.get(at + key.needle().len()..)?.trim_ascii_start();
    let text = rest.strip_prefix(b"\"")?;
    let mut end = 0;
    loop {
        end += memchr2(b'"', b'\\', text.get(end..)?)?;
        match text.get(end) {
            Some(b'\\') => end += 2,
            _ => return text.get(..end),
        }
    }
}

/// How many bytes the text under a key has, near enough: what is escaped counts as one. None where
/// no text stands there.
pub(crate) fn text_bytes(data: &[u8], key: &Finder<'_>) -> Option<u64> {
    text_at(data, key.find(data)? + key.needle().len())
}

/// How many bytes the texts under these keys have together. Where there is none of them, a guess:
/// most of a piece is its wrapping.
pub(crate) fn said_bytes(data: &[u8], keys: &[Finder<'_>]) -> u64 {
    let mut said = None;
    for key in keys {
        let texts = key.find_iter(data).filter_map(|at| text_at(data, at + key.needle().len()));
        for bytes in texts {
            *said.get_or_insert(0) += bytes;
        }
    }
    said.unwrap_or(data.len() as u64 / 8)
}

fn text_at(data: &[u8], at: usize) -> Option<u64> {
    let mut rest = data.get(at..)?.trim_ascii_start().strip_prefix(b"\"")?;
    let mut bytes = 0;
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        bytes += at as u64;
        if rest.get(at) == Some(&b'"') {
            return Some(bytes);
        }
        bytes += 1;
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    Some(bytes + rest.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edits_leave_the_rest_alone() {
        let body = Bytes::from_static(br#"{"a":1, "model" : "x","z":[ ]}"#);
        let edit = |at: Range<usize>, with: &'static str| Edit { at, with: Bytes::from(with) };
        let edited = Segments::edited(&body, vec![edit(18..21, "\"yy\""), edit(1..1, "\"n\":0,")]);
        assert_eq!(edited.to_vec(), br#"{"n":0,"a":1, "model" : "yy","z":[ ]}"#);
        assert_eq!(edited.len(), edited.to_vec().len());
    }

    #[test]
    fn what_is_said_is_counted_without_its_wrapping() {
        let keys = ["\"text\":", "\"arguments\":"].map(Finder::new);
        let data = br#"{"parts":[{"text": "a \"b\"\n"},{"arguments":"{\"c\":1}"},{"text":null}]}"#;
        assert_eq!(text_bytes(data, &keys[0]), Some(6));
        assert_eq!(said_bytes(data, &keys), 6 + 7);
        assert_eq!(text_bytes(br#"{"text":"cut \"#, &keys[0]), Some(5));
        assert_eq!(said_bytes(&[b' '; 80], &keys), 10, "a guess");
        assert_eq!(said_bytes(br#"{"text":""}"#, &keys), 0);
    }

    #[test]
    fn depth_is_bounded_whatever_stands_in_strings() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(text(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(text(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(text(nested(1_000_000).as_bytes()).is_err());
        let quoted = format!(r#"{{"a":"\\\"{}"}}"#, "[".repeat(500));
        assert!(text(quoted.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn depth_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            depth(&body);
        }
    }
}
