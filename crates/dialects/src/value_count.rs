//! Number of values in a JSON text. A parsed value takes much more memory than its text, so the values
//! of a large text are counted before it is parsed into a tree.

use canon::is_abandoned;
use text_scan::plain_length;

/// Values of one request. Real requests have thousands; a prompt of 300,000 token numbers fits.
pub const MAX_REQUEST_VALUES: usize = 500_000;

/// Counts the values of a JSON text: everything that follows a comma or opens a list or object. Stops
/// when there are more than `max`. A string is one value whatever it says: nothing parses JSON inside
/// of a string into a tree.
pub fn count_values(text: &[u8], max: usize) -> usize {
    let (mut values, mut at) = (1, 0);
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b',' | b'[' | b'{' if is_abandoned() => break,
            b',' | b'[' | b'{' => values += 1,
            b'"' => at = end_of_string(text, at),
            _ => {}
        }
        if values > max {
            break;
        }
    }
    values
}

/// Returns the index after the string that begins before `at`.
fn end_of_string(text: &[u8], mut at: usize) -> usize {
    loop {
        at += plain_length(text.get(at..).unwrap_or_default());
        match text.get(at) {
            Some(b'"') => return at + 1,
            Some(b'\\') if !is_abandoned() => at += 2,
            // A control character, which a string must not have.
            Some(byte) if *byte != b'\\' => at += 1,
            Some(_) | None => return text.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_hold_no_values() {
        for (text, values) in [
            ("", 1),
            ("7", 1),
            ("[1,2]", 3),
            (r#"{"a":{"b":[]},"c":1}"#, 5),
            (r#"{"a,b":"-[{,\",\\","c":"\\\""}"#, 3),
            (r#"{"open,,,,"#, 2),
            (r#"{"a":" [1,2]"}"#, 2),
            (r#"{"a":"\n\u005b1\u002c2]"}"#, 2),
            (r#"{"a":"Well, [1, 2]"}"#, 2),
            ("{\"\\", 2),
            ("{\"a\n,\u{1}[\":1,\"b\":2}", 3),
        ] {
            assert_eq!(count_values(text.as_bytes(), MAX_REQUEST_VALUES), values, "{text}");
        }
    }

    #[test]
    fn counting_stops_at_the_limit() {
        let text = "[".repeat(MAX_REQUEST_VALUES * 3);
        assert_eq!(count_values(text.as_bytes(), MAX_REQUEST_VALUES), MAX_REQUEST_VALUES + 1);
        let text = format!("[\"{}\"]", "[{,\\u005b".repeat(MAX_REQUEST_VALUES));
        assert_eq!(count_values(text.as_bytes(), MAX_REQUEST_VALUES), 2);
    }
}
