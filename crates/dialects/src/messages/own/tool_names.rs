//! Escapes tool names and call ids to the characters this format allows.
//!
//! The format takes letters, digits, `_` and `-`. Any other character is written as its code point
//! in hexadecimal, `_0x2E_`. An underscore that would look like the start of an escape is escaped
//! too. Reading is the exact inverse of writing, so no table has to travel with the request.

use std::borrow::Cow;

/// The maximum length of a tool name in bytes, <https://docs.anthropic.com/en/api/messages>.
pub(crate) const MAX_NAME_BYTES: usize = 128;

pub(crate) const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns true if the text after an underscore looks like an escape.
fn is_escape(rest: &str) -> bool {
    let is_digit = |c: char| matches!(c, '0'..='9' | 'A'..='F');
    rest.strip_prefix("0x").is_some_and(|rest| rest.starts_with(is_digit))
}

/// Escapes a name.
pub(crate) fn write(name: &str) -> Cow<'_, str> {
    if name.chars().all(is_plain) && !name.contains("_0x") {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len() + 12);
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        if is_plain(c) && !(c == '_' && is_escape(chars.as_str())) {
            out.push(c);
        } else {
            out.push_str(&format!("_0x{:02X}_", u32::from(c)));
        }
    }
    Cow::Owned(out)
}

/// Reads an escaped name.
pub(crate) fn read(name: String) -> String {
    if !name.contains("_0x") {
        return name;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name.as_str();
    while let Some(c) = rest.chars().next() {
        if let Some((escaped, behind)) = read_escape(rest) {
            out.push(escaped);
            rest = behind;
        } else {
            out.push(c);
            rest = rest.strip_prefix(c).unwrap_or_default();
        }
    }
    out
}

/// Reads the escape at the start of the text; returns its character and the rest.
fn read_escape(text: &str) -> Option<(char, &str)> {
    let (digits, behind) = text.strip_prefix("_0x")?.split_once('_')?;
    let c = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
    // Only accepts what `write` produces; anything else is the caller's own name.
    let is_ours = digits == format!("{:02X}", u32::from(c))
        && (!is_plain(c) || (c == '_' && is_escape(behind)));
    is_ours.then_some((c, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_name_round_trips_in_allowed_characters(name in "(_|0x|_0x|2E|5F|[.:A-Fé ]){0,9}|.{0,20}") {
            let written = write(&name).into_owned();
            prop_assert!(written.chars().all(is_plain));
            prop_assert_eq!(read(written), name);
        }
    }

    #[test]
    fn plain_names_stay_unchanged() {
        for name in ["get_weather", "toolu_01AbC", "call_0xyz", "mcp__a-b__c"] {
            assert_eq!((write(name).as_ref(), read(name.to_owned()).as_str()), (name, name));
        }
        assert_eq!(write("files.read"), "files_0x2E_read");
    }
}
