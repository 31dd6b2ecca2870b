//! Ids that callers choose, and the headers that name a session.

use aws_lc_rs::digest;
use canon::SharedText;
use std::fmt::Write as _;
use transport::{HeaderBlock, visible_text};

/// Headers that name a session, in the order in which they count: the gateway's own, Claude Code, Codex,
/// opencode.
const SESSION_HEADERS: [&str; 6] = [
    "x-portunus-session",
    "x-claude-code-session-id",
    "session_id",
    "session-id",
    "x-session-affinity",
    "x-session-id",
];
/// A longer id is replaced by its hash.
const MAX_ID_BYTES: usize = 256;

/// Returns the session that the headers name.
pub(super) fn from_headers(headers: &HeaderBlock) -> Option<SharedText> {
    // One pass over the few headers of a request is less work than six lookups.
    let place = |name: &str| SESSION_HEADERS.iter().position(|own| *own == name);
    let signs = headers
        .iter()
        .filter_map(|(name, value)| Some((place(name)?, caller_id(visible_text(value)?)?)));
    signs.min_by_key(|(place, _)| *place).map(|(_, session)| session)
}

/// Returns an id that a caller chose as the gateway keeps it; `None` for an empty one. An id that is too long,
/// or has control characters, is replaced by its hash, so that it can be shown and asked for.
pub fn caller_id(text: &str) -> Option<SharedText> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    if text.len() <= MAX_ID_BYTES && !text.contains(char::is_control) {
        return Some(text.into());
    }
    Some(hashed_id(text))
}

/// Returns the hash in place of an id.
pub(super) fn hashed_id(text: &str) -> SharedText {
    let mut hashed = String::from("sha256:");
    for byte in digest::digest(&digest::SHA256, text.as_bytes()).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(hashed, "{byte:02x}");
    }
    hashed.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderName, HeaderValue};

    fn read(headers: &[(&str, &str)]) -> Option<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(
                HeaderName::try_from(*name).unwrap(),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            );
        }
        from_headers(&HeaderBlock::from_map(&map)).map(|session| session.as_str().to_owned())
    }

    #[test]
    fn every_header_names_the_session_and_the_first_one_counts() {
        assert_eq!(read(&[("x-request-id", "r"), ("authorization", "s")]), None);
        for (place, name) in SESSION_HEADERS.iter().enumerate() {
            assert_eq!(read(&[(name, "s")]).as_deref(), Some("s"), "{name}");
            assert_eq!(read(&[(&name.to_uppercase(), " s ")]).as_deref(), Some("s"), "{name}");
            let later = SESSION_HEADERS.iter().skip(place).rev().map(|name| (*name, *name));
            assert_eq!(read(&later.collect::<Vec<_>>()).as_deref(), Some(*name));
            let empty = [(*name, ""), ("x-session-id", "last")];
            assert_eq!(read(&empty).as_deref(), Some("last"), "an empty one names nothing");
        }
    }

    #[test]
    fn long_ids_are_hashed_and_short_ones_kept() {
        let of = |text: &str| caller_id(text).map(|session| session.as_str().to_owned());
        let fits = "é".repeat(MAX_ID_BYTES / 2);
        assert_eq!(of(&fits).as_ref(), Some(&fits));
        let hashed = of(&format!("{fits}a")).unwrap();
        assert!(hashed.starts_with("sha256:") && hashed.len() == 7 + 64, "{hashed}");
        assert_ne!(of(&format!("{fits}b")).unwrap(), hashed);
        assert!(of("a\nb").unwrap().starts_with("sha256:"));
        assert_eq!((of(""), of(" \t")), (None, None));
        // The hash of an id is the id that is asked for.
        assert_eq!(of(&hashed), Some(hashed));
    }
}
