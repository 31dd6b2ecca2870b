//! JSON as bytes: edits of a body, nesting depth, and errors that name their path.

use bytes::Bytes;
use canon::{ApiError, has_reserved_name, is_abandoned, is_abandoned_now};
use memchr::memmem::Finder;
use memchr::{memchr, memchr2};
use serde::Deserialize;
use serde_json::value::RawValue;
use simdutf8::basic::from_utf8;
use std::ops::Range;
use text_scan::plain_length;

use crate::json_reader;
use crate::wire_rule::{FieldProblem, join_path};

/// The maximum nesting depth of a request.
pub const MAX_DEPTH: usize = 128;

/// One edit of a body: the bytes of a range are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyEdit {
    /// The replaced range; empty for an insertion.
    pub range: Range<usize>,
    /// The replacement.
    pub replacement: Bytes,
}

/// A body in segments: slices of the caller's own bytes with edits between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodySegments(Vec<Bytes>);

impl BodySegments {
    /// Returns a body of one segment.
    pub fn single(body: impl Into<Bytes>) -> Self {
        Self(vec![body.into()])
    }

    /// Returns the body with the edits applied. If two edits overlap, the earlier one wins.
    pub fn with_edits(body: &Bytes, mut edits: Vec<BodyEdit>) -> Self {
        edits.sort_by_key(|edit| edit.range.start);
        let mut pieces = Vec::with_capacity(edits.len() * 2 + 1);
        let mut done = 0;
        for BodyEdit { range: at, replacement: with } in edits {
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

    /// Returns the length of the whole body.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Returns true if the body is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the segments in order.
    pub fn into_segments(self) -> Vec<Bytes> {
        self.0
    }

    /// Returns the body as one vector, to display it.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// Returns the body as text. It must be UTF-8 and not nested deeper than [`MAX_DEPTH`].
pub fn checked_text(body: &[u8]) -> Result<&str, ApiError> {
    let text = std::str::from_utf8(body).map_err(|e| {
        ApiError::invalid("", format!("the body is not valid UTF-8 (byte {})", e.valid_up_to()))
    })?;
    if depth(body) > MAX_DEPTH {
        let why = format!("the body is nested more than {MAX_DEPTH} levels deep");
        return Err(ApiError::invalid("", why));
    }
    Ok(text)
}

/// Returns the nesting depth of brackets outside of strings. The text need not be valid JSON.
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

/// Returns the range of a borrowed value in the text it was borrowed from.
pub fn range_of(text: &str, value: &RawValue) -> Range<usize> {
    let start = (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    start..start + value.get().len()
}

/// Returns a string as JSON.
pub fn to_json_string(text: &str) -> Bytes {
    let mut json = Vec::new();
    write_string(text, &mut json);
    Bytes::from(json)
}

/// Room for the end of an object, so that a buffer does not grow for a long text and again right
/// after it.
pub(crate) const SPARE_BYTES: usize = 256;

/// Writes a string as JSON.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    if out.capacity() - out.len() < text.len() + 3 {
        out.reserve(text.len() + SPARE_BYTES);
    }
    out.push(b'"');
    write_in_string(text, out);
    out.push(b'"');
}

/// Writes a text that stands between quotes.
#[inline]
pub(crate) fn write_in_string(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.as_bytes();
    while let Some((plain, escaped)) = rest.split_at_checked(plain_length(rest)) {
        out.extend_from_slice(plain);
        let Some((byte, more)) = escaped.split_first().filter(|_| !is_abandoned()) else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            _ => {
                // One byte of at most 31, so that the other digits are known.
                let last = b"0123456789abcdef".get(usize::from(byte % 16)).copied();
                out.extend_from_slice(b"\\u00");
                out.push(b'0' + byte / 16);
                out.extend(last);
            }
        }
        rest = more;
    }
}

/// Replaces escapes of half a character (a surrogate without its other half), which UTF-8 cannot
/// express. Clients that cut a text by its UTF-16 length send them.
pub(crate) fn without_half_characters(text: &str) -> String {
    let unit = |text: &str| {
        let hex = text.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let (is_half, length) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (false, 12),
            (Some(first), _) => ((0xd800..=0xdfff).contains(&first), 6),
            (None, _) => (false, escape.char_indices().nth(2).map_or(escape.len(), |(at, _)| at)),
        };
        let (escape, more) = escape.split_at_checked(length).unwrap_or((escape, ""));
        out.push_str(if is_half { "\\ufffd" } else { escape });
        rest = more;
    }
    out.push_str(rest);
    out
}

/// Writes a value as JSON.
pub(crate) fn write_value(value: &(impl serde::Serialize + ?Sized), out: &mut Vec<u8>) {
    // Writing to a `Vec` cannot fail, and every value here is serializable.
    let _ = serde_json::to_writer(out, value);
}

/// Returns valid JSON without the whitespace between its tokens.
pub(crate) fn compact(value: &RawValue) -> String {
    let mut out = String::with_capacity(value.get().len());
    let (mut is_string, mut is_escaped) = (false, false);
    // Quotes and backslashes end a piece; none of them is part of another character.
    for piece in value.get().split_inclusive(['"', '\\']) {
        match is_string {
            true => out.push_str(piece),
            false => out.extend(piece.split_ascii_whitespace()),
        }
        // An escaped character follows its backslash directly.
        let is_plain_end = !is_escaped || piece.len() > 1;
        is_escaped = piece.ends_with('\\') && is_plain_end;
        is_string ^= piece.ends_with('"') && is_plain_end;
    }
    out
}

/// Parses a body. An error names the path of the invalid value.
pub(crate) fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, ApiError> {
    parse_described(text).map_err(FieldProblem::into_error)
}

/// Parses a value of a body. An error names the path inside of the value.
pub(crate) fn parse_described<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, FieldProblem> {
    json_reader::read(text).or_else(|_| {
        if is_abandoned_now() {
            return Err(FieldProblem::new("", ABANDONED_ERROR));
        }
        if has_reserved_name(text.as_bytes()) {
            return Err(FieldProblem::new("", RESERVED_NAME_ERROR));
        }
        let mut from = serde_json::Deserializer::from_str(text);
        match serde_path_to_error::deserialize(&mut from) {
            Ok(value) if from.end().is_ok() => refuse_huge_numbers(text).map(|()| value),
            outcome => Err(parse_problem::<T>(outcome)),
        }
    })
}

/// A request and its text.
pub(crate) struct RequestText<'a, T> {
    pub(crate) text: &'a str,
    pub(crate) view: T,
    /// The places of long strings without escapes, as far as they are known.
    pub(crate) long_texts: Vec<Range<usize>>,
}

/// Parses a request of limited depth.
pub(crate) fn parse_request<'a, T: Deserialize<'a>>(
    body: &'a [u8],
) -> Result<RequestText<'a, T>, ApiError> {
    // The parser does not read a text that is nested too deeply.
    if let Ok(text) = from_utf8(body)
        && let Ok((view, long_texts)) = json_reader::read_with_long_texts(text)
    {
        return Ok(RequestText { text, view, long_texts });
    }
    if is_abandoned_now() {
        return Err(ApiError::invalid("", ABANDONED_ERROR));
    }
    let text = checked_text(body)?;
    Ok(RequestText { text, view: parse(text)?, long_texts: Vec::new() })
}

/// Parses JSON text of a reply, or of a value that was set aside. An error names the position of the
/// invalid value.
pub fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    json_reader::read_reply(text).or_else(|_| {
        refuse_second_parse(text.as_bytes())?;
        let mut from = serde_json::Deserializer::from_str(text);
        let value = serde_path_to_error::deserialize(&mut from).map_err(|e| e.into_inner())?;
        from.end().map(|()| value)
    })
}

/// Parses JSON as received. Text in fields that are not read need not be UTF-8.
pub fn read_bytes<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, serde_json::Error> {
    match from_utf8(body) {
        Ok(text) => read(text),
        Err(_) => refuse_second_parse(body).and_then(|()| serde_json::from_slice(body)),
    }
}

/// The reason to refuse a text that `serde_json` would read as another one.
const RESERVED_NAME_ERROR: &str = "has the reserved name `$serde_json::private::RawValue`";

/// The reason to end work that nobody waits for. Nobody sees it.
pub(crate) const ABANDONED_ERROR: &str = "was not read to its end, because its caller has left";

/// Refuses a text that `serde_json` must not parse.
fn refuse_second_parse(text: &[u8]) -> Result<(), serde_json::Error> {
    if is_abandoned_now() {
        return Err(serde::de::Error::custom(ABANDONED_ERROR));
    }
    match has_reserved_name(text) {
        true => Err(serde::de::Error::custom(RESERVED_NAME_ERROR)),
        false => Ok(()),
    }
}

/// Returns true if a number was too large for its type and every other. The library tells it by words
/// alone: <https://docs.rs/serde_json/latest/serde_json/error/enum.Category.html>.
fn is_out_of_range(error: &serde_json::Error) -> bool {
    error.to_string().starts_with("number out of range")
}

/// Refuses a number that no value can hold, such as `1e400`, in the parts that were set aside: a
/// translation could not carry them.
fn refuse_huge_numbers(text: &str) -> Result<(), FieldProblem> {
    let text = without_half_characters(text);
    let mut from = serde_json::Deserializer::from_str(&text);
    match serde_path_to_error::deserialize::<_, serde_json::Value>(&mut from) {
        Err(error) if is_out_of_range(error.inner()) => Err(parse_problem::<()>(Err(error))),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Returns the problem that a second parse found.
pub(crate) fn parse_problem<T>(
    outcome: Result<T, serde_path_to_error::Error<serde_json::Error>>,
) -> FieldProblem {
    // If the value is valid, the first parse failed on bytes after it.
    let Err(error) = outcome else {
        return FieldProblem::new("", "has more bytes after its JSON value");
    };
    let path = error.path().to_string();
    let cause = error.into_inner();
    if is_out_of_range(&cause) {
        return FieldProblem::new(path, "is a number that is out of range");
    }
    if cause.is_syntax() || cause.is_eof() {
        let why = format!("is not valid JSON: {}", shorten(&cause.to_string()));
        return FieldProblem::new("", why);
    }
    let path = if path == "." { String::new() } else { path };
    let message = cause.to_string();
    // The position is removed, because the error names the path.
    let message = message.rsplit_once(" at line ").map_or(&*message, |(front, _)| front);
    let (path, why) = match FieldProblem::split_text(message) {
        Some((inner, why)) => (join_path(&path, inner), why),
        None => (path, message),
    };
    FieldProblem::new(path, shorten(&plain_reason(why)))
}

/// Returns a parser's reason in the words of the rules: what the value must be, and what it is.
fn plain_reason(reason: &str) -> String {
    const KINDS: [(&str, &str); 4] =
        [("map", "an object"), ("sequence", "a list"), ("unit value", "null"), ("null", "null")];
    const NUMBERS: [(&str, &str); 5] = [
        ("i64", "a whole number"),
        ("i32", "a whole number"),
        ("u64", "a whole number that is not negative"),
        ("u32", "a whole number that is not negative"),
        ("f64", "a number"),
    ];
    let wrong = reason.strip_prefix("invalid type: ").or(reason.strip_prefix("invalid value: "));
    let Some((found, expected)) = wrong.and_then(|wrong| wrong.rsplit_once(", expected ")) else {
        return reason.to_owned();
    };
    let number = NUMBERS.iter().find(|(kind, _)| *kind == expected).map(|(_, plain)| *plain);
    let expected = number.unwrap_or(expected);
    let kind = KINDS.iter().find(|(kind, _)| *kind == found).map(|(_, plain)| *plain);
    // A value is named by its kind and itself: integer `5`, string "five".
    let value = found.find(['`', '"']).and_then(|at| found.get(at..));
    let found = kind.or(value).unwrap_or(found).trim_matches('`');
    format!("must be {expected}, not {found}")
}

/// Shortens a message, so that it never repeats much of the request.
fn shorten(message: &str) -> String {
    const MAX_MESSAGE_CHARS: usize = 200;
    if message.chars().count() <= MAX_MESSAGE_CHARS {
        return message.to_owned();
    }
    message.chars().take(MAX_MESSAGE_CHARS).chain(std::iter::once('…')).collect()
}

/// Returns the string under a key, with its escapes.
pub(crate) fn raw_text<'a>(data: &'a [u8], key: &Finder<'_>) -> Option<&'a [u8]> {
    data.get(raw_text_place(data, key)?)
}

/// Returns the place of the string under a key, without its quotes.
pub(crate) fn raw_text_place(data: &[u8], key: &Finder<'_>) -> Option<Range<usize>> {
    let start = text_start(data, key.find(data)? + key.needle().len())?;
    Some(start..start + raw_text_bytes(data.get(start..)?)?)
}

/// Returns the place behind the quote of the string that stands here.
fn text_start(data: &[u8], at: usize) -> Option<usize> {
    let text = data.get(at..)?.trim_ascii_start().strip_prefix(b"\"")?;
    Some(data.len() - text.len())
}

/// Returns the length of a string up to its end.
fn raw_text_bytes(text: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        end += memchr2(b'"', b'\\', text.get(end..)?)?;
        match text.get(end) {
            Some(b'\\') => end += 2,
            _ => return Some(end),
        }
    }
}

/// Returns the approximate length of the string under a key: an escape counts as one byte. `None`
/// if there is no string.
pub(crate) fn text_bytes(data: &[u8], key: &Finder<'_>) -> Option<u64> {
    let start = text_start(data, key.find(data)? + key.needle().len())?;
    data.get(start..).map(counted_bytes)
}

/// Returns the total length of the strings under the keys. Without any of them, an estimate: most
/// of a frame is syntax.
pub(crate) fn total_text_bytes(data: &[u8], keys: &[Finder<'_>]) -> u64 {
    let mut total = None;
    visit_texts(data, keys, |start| {
        *total.get_or_insert(0) += data.get(start..).map_or(0, counted_bytes);
    });
    total.unwrap_or(data.len() as u64 / 8)
}

/// Returns the places of the strings under the keys, without their quotes.
pub(crate) fn text_places(data: &[u8], keys: &[Finder<'_>]) -> Option<Vec<Range<usize>>> {
    let mut places = Some(Vec::new());
    visit_texts(data, keys, |start| {
        let length = data.get(start..).and_then(raw_text_bytes);
        match (length, &mut places) {
            (Some(length), Some(places)) => places.push(start..start + length),
            _ => places = None,
        }
    });
    places
}

/// Calls a function with the place behind the quote of each string under the keys.
fn visit_texts(data: &[u8], keys: &[Finder<'_>], mut visit: impl FnMut(usize)) {
    let mut rest = data;
    // One pass from string to string is less work than a search for each key.
    while let Some(found) = memchr(b'"', rest) {
        rest = rest.get(found..).unwrap_or_default();
        // Most strings differ from all keys in their first letter.
        let first = rest.get(1);
        let is_here =
            |key: &&Finder<'_>| key.needle().get(1) == first && rest.starts_with(key.needle());
        let key = keys.iter().find(is_here);
        if let Some(start) = key.and_then(|key| text_start(rest, key.needle().len())) {
            visit(data.len() - rest.len() + start);
        }
        rest = rest.get(1..).unwrap_or_default();
        while let Some(found) = memchr2(b'"', b'\\', rest) {
            let is_end = rest.get(found) == Some(&b'"');
            rest = rest.get(found + if is_end { 1 } else { 2 }..).unwrap_or_default();
            if is_end {
                break;
            }
        }
    }
}

/// Returns the length of a string up to its end. An escape counts as one byte.
pub(crate) fn counted_bytes(text: &[u8]) -> u64 {
    let mut rest = text;
    let mut bytes = 0;
    while let Some(at) = memchr2(b'"', b'\\', rest) {
        bytes += at as u64;
        if rest.get(at) == Some(&b'"') {
            return bytes;
        }
        bytes += 1;
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    bytes + rest.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn edits_keep_the_other_bytes() {
        let body = Bytes::from_static(br#"{"a":1, "model" : "x","z":[ ]}"#);
        let edit = |at: Range<usize>, with: &'static str| BodyEdit {
            range: at,
            replacement: Bytes::from(with),
        };
        let edited =
            BodySegments::with_edits(&body, vec![edit(18..21, "\"yy\""), edit(1..1, "\"n\":0,")]);
        assert_eq!(edited.to_vec(), br#"{"n":0,"a":1, "model" : "yy","z":[ ]}"#);
        assert_eq!(edited.len(), edited.to_vec().len());
    }

    #[test]
    fn text_is_counted_without_syntax() {
        let keys = ["\"text\":", "\"arguments\":"].map(Finder::new);
        let data = br#"{"parts":[{"text": "a \"b\"\n"},{"arguments":"{\"c\":1}"},{"text":null}]}"#;
        assert_eq!(text_bytes(data, &keys[0]), Some(6));
        assert_eq!(total_text_bytes(data, &keys), 6 + 7);
        assert_eq!(text_bytes(br#"{"text":"cut \"#, &keys[0]), Some(5));
        assert_eq!(total_text_bytes(&[b' '; 80], &keys), 10, "a guess");
        assert_eq!(total_text_bytes(br#"{"text":""}"#, &keys), 0);
    }

    #[test]
    fn half_characters_are_replaced_and_nothing_else() {
        for (text, expected) in [
            (r#"{"a":"cut \ud83d"}"#, r#"{"a":"cut \ufffd"}"#),
            (r#""\udE00 \uD83D\ude00 \\ud83d \n""#, r#""\ufffd \uD83D\ude00 \\ud83d \n""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            ("[1,true]", "[1,true]"),
        ] {
            assert_eq!(without_half_characters(text), expected);
            serde_json::from_str::<serde_json::Value>(expected).unwrap();
        }
    }

    #[test]
    fn errors_name_no_type_of_the_gateway() {
        crate::wire_object::wire_object! {
            struct SecretView<'a>("an object") {
                inner: Box<Self>,
                count: u64,
            }
        }
        let fault = parse::<SecretView<'_>>(r#"{"inner":5}"#).unwrap_err();
        assert_eq!(fault.param(), Some("inner"));
        assert_eq!(fault.message(), "`inner` must be an object, not 5");
        for (body, expected) in [
            (r#"{"inner":["x"]}"#, "`inner` must be an object, not a list"),
            (r#"{"count":-1}"#, "`count` must be a whole number that is not negative, not -1"),
            (r#"{"count":"x"}"#, "`count` must be a whole number that is not negative, not \"x\""),
            (r#"{"inner":{"inner":"a `b`"}}"#, "`inner.inner` must be an object, not \"a `b`\""),
            ("true", "the body must be an object, not true"),
        ] {
            assert_eq!(parse::<SecretView<'_>>(body).unwrap_err().message(), expected);
        }
    }

    #[test]
    fn compact_json_keeps_its_strings() {
        let text =
            r#" { "a b" : [ 1 , -2.50e3 , "x \" , \\" , "\\\\" , " \u00e9\n\"" ] , "c" : { } } "#;
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        let compact = compact(raw);
        assert_eq!(compact, r#"{"a b":[1,-2.50e3,"x \" , \\","\\\\"," \u00e9\n\""],"c":{}}"#);
    }

    proptest! {
        #[test]
        fn strings_are_written_as_by_the_library(text in "[ -~\\x00-\\x1f\"\\\\é港]{0,80}") {
            let mut out = Vec::new();
            write_string(&text, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
        }

        #[test]
        fn compact_json_is_the_same_value(texts in prop::collection::vec(any::<String>(), 0..5)) {
            let value = serde_json::json!({"k": texts, "n": [1, null, {"a b": true}]});
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let raw: &RawValue = serde_json::from_str(&pretty).unwrap();
            prop_assert_eq!(compact(raw), value.to_string());
        }
    }

    #[test]
    fn depth_ignores_brackets_in_strings() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(checked_text(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(checked_text(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(checked_text(nested(1_000_000).as_bytes()).is_err());
        let quoted = format!(r#"{{"a":"\\\"{}"}}"#, "[".repeat(500));
        assert!(checked_text(quoted.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn depth_never_panics(body in prop::collection::vec(any::<u8>(), 0..200)) {
            depth(&body);
        }
    }
}
