//! Number of values in a JSON body. A parsed value takes much more memory than its text, so the values
//! of a large body are counted before it is parsed.

use access::limits::Admission;
use canon::{ApiError, ErrorKind, is_abandoned};
use memchr::{memchr2, memchr3_iter, memmem};
use store::is_large;

use crate::engine::Engine;

/// Values of one body. Real requests have thousands; a prompt of 300,000 token numbers fits.
const MAX_VALUES: usize = 500_000;
/// Values of one answer or event of a provider. The most come with logprobs: 16,000 tokens with 20
/// alternatives each, and their bytes, have 2.7 million.
const MAX_REPLY_VALUES: usize = 3_000_000;
/// Memory of a value with its key, while a request is translated.
const VALUE_BYTES: u64 = 256;

/// Reserves memory for the values of a large body. Those of a small one fit into what it has.
pub(crate) async fn reserve_values(
    engine: &Engine,
    body: &[u8],
    admission: &Admission,
) -> Result<(), ApiError> {
    if !is_large(body.len()) {
        return Ok(());
    }
    let values =
        engine.heavy_work.permit(body.len()).await.run(|| count_values(body, MAX_VALUES)).await;
    if values > MAX_VALUES {
        let message = format!("the body has more than {MAX_VALUES} values, the limit here");
        return Err(ApiError::new(ErrorKind::BodyTooLarge, message));
    }
    match &admission.buffer {
        Some(permit) => permit.grow((values as u64).saturating_mul(VALUE_BYTES)),
        None => Ok(()),
    }
}

/// Refuses an answer or an event of a provider with too many values. The next lane may do better.
pub(crate) fn check_reply_values(text: &[u8]) -> Result<(), ApiError> {
    if !is_large(text.len()) || count_values(text, MAX_REPLY_VALUES) <= MAX_REPLY_VALUES {
        return Ok(());
    }
    let message = format!("the provider's answer has more than {MAX_REPLY_VALUES} values");
    Err(ApiError::new(ErrorKind::Unavailable, message))
}

/// Counts the values of a JSON text: everything that follows a comma or opens a list or object. Stops
/// when there are more than `max`.
fn count_values(text: &[u8], max: usize) -> usize {
    let (mut values, mut at) = (1, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b',' | b'[' | b'{' if is_abandoned() => break,
            b',' | b'[' | b'{' => values += 1,
            b'"' => {
                let end = end_of_string(text, at);
                values += string_values(text.get(at..end).unwrap_or_default(), max);
                at = end;
            }
            _ => {}
        }
        if values > max {
            break;
        }
    }
    values
}

/// Counts the values of a string that is JSON itself, such as the arguments of a call: a translation
/// may parse it. Stops when there are more than `max`.
fn string_values(text: &[u8], max: usize) -> usize {
    let mut start = text;
    while let Some(rest) =
        [&b" "[..], b"\\n", b"\\r", b"\\t"].iter().find_map(|space| start.strip_prefix(*space))
    {
        start = rest;
    }
    if !start.starts_with(b"[") && !start.starts_with(b"{") && !start.starts_with(b"\\u00") {
        return 0;
    }
    // A bracket or a comma may be written as an escape.
    let found = memchr3_iter(b',', b'[', b'{', text).chain(memmem::find_iter(text, b"\\u00"));
    found.take_while(|_| !is_abandoned()).take(max.saturating_add(1)).count()
}

/// Returns the index after the string that begins before `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found + 1;
        match text.get(at - 1) {
            Some(b'\\') if is_abandoned() => break,
            Some(b'\\') => at += 1,
            _ => return at,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_strings_that_are_json_hold_values() {
        for (text, values) in [
            ("", 1),
            ("7", 1),
            ("[1,2]", 3),
            (r#"{"a":{"b":[]},"c":1}"#, 5),
            (r#"{"a,b":"-[{,\",\\","c":"\\\""}"#, 3),
            (r#"{"open,,,,"#, 2),
            (r#"{"a":" [1,2]"}"#, 4),
            (r#"{"a":"\n\u005b1\u002c2]"}"#, 4),
            (r#"{"a":"Well, [1, 2]"}"#, 2),
            ("{\"\\", 2),
        ] {
            assert_eq!(count_values(text.as_bytes(), MAX_VALUES), values, "{text}");
        }
    }

    #[test]
    fn counting_stops_at_the_limit() {
        let text = "[".repeat(MAX_VALUES * 3);
        assert_eq!(count_values(text.as_bytes(), MAX_VALUES), MAX_VALUES + 1);
        let text = format!("\"{}\"", "\\u005b".repeat(MAX_VALUES * 3));
        assert_eq!(count_values(text.as_bytes(), MAX_VALUES), MAX_VALUES + 2);
    }
    #[test]
    fn answers_with_too_many_values_are_the_providers_fault() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 2)).into_bytes();
        assert!(check_reply_values(&list(MAX_REPLY_VALUES)).is_ok());
        let error = check_reply_values(&list(MAX_REPLY_VALUES + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_retryable());
    }
}
