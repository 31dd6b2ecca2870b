//! The field name that `serde_json` keeps for itself.
//!
//! An object with this name is read as the JSON text in it, with a depth limit of its own. A caller or
//! a provider could nest such texts until the stack is used up, so texts with the name are refused:
//! <https://github.com/serde-rs/json/blob/master/src/raw.rs> (`TOKEN`).

use serde_json::Value;

/// The name.
pub const RESERVED_NAME: &str = "$serde_json::private::RawValue";

/// Reads a JSON text from outside; `None` if it is invalid or has the name.
pub fn read_value(text: &[u8]) -> Option<Value> {
    if has_reserved_name(text) { None } else { serde_json::from_slice(text).ok() }
}

/// Returns true if one of the strings of a JSON text is the reserved name, with or without escapes.
pub fn has_reserved_name(text: &[u8]) -> bool {
    let mut strings = text.iter().enumerate();
    let mut start = None;
    while let Some((at, byte)) = strings.next() {
        match (byte, start) {
            (b'"', None) => start = Some(at),
            (b'"', Some(from)) => {
                if is_reserved(text.get(from..=at).unwrap_or_default()) {
                    return true;
                }
                start = None;
            }
            // The next byte belongs to the escape.
            (b'\\', Some(_)) => drop(strings.next()),
            _ => {}
        }
    }
    false
}

/// Returns true if a string in quotes is the reserved name.
pub fn is_reserved(quoted: &[u8]) -> bool {
    // An escape has at most six bytes for one.
    let lengths = RESERVED_NAME.len() + 2..=RESERVED_NAME.len() * 6 + 2;
    lengths.contains(&quoted.len())
        && serde_json::from_slice::<String>(quoted).is_ok_and(|name| name == RESERVED_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_however_it_is_written() {
        let escaped: String =
            RESERVED_NAME.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
        for name in [RESERVED_NAME, &escaped, "\\u0024serde_json::private::RawValue"] {
            let text = format!("{{\"a\":[\"\\\\\",{{\"{name}\":\"1\"}}]}}");
            assert!(has_reserved_name(text.as_bytes()), "{text}");
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["a"][1], 1, "the reason for this module");
            assert_eq!(read_value(text.as_bytes()), None);
        }
        let quoted = serde_json::json!({ "text": format!("the \"{RESERVED_NAME}\" of it") });
        assert!(!has_reserved_name(quoted.to_string().as_bytes()));
        assert!(!has_reserved_name(b"{\"a\":\"\\"));
        assert_eq!(read_value(b"[1]"), Some(serde_json::json!([1])));
    }

    /// Every double is read to its last digit, as the arguments of tools need.
    #[test]
    fn doubles_are_read_exactly() {
        for number in
            ["8700000485678103.0", "-8.128080078261928e-14", "0.1", "1.7976931348623157e308"]
        {
            let read = read_value(number.as_bytes()).and_then(|value| value.as_f64());
            assert_eq!(read, number.parse().ok(), "{number}");
        }
    }
}
