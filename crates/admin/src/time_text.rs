//! Times in the views of administration: RFC 3339 text in JSON, [`Micros`] in Rust.

use canon::Micros;
use serde::Serializer;

/// Formats a time as RFC 3339; `None` if it lies outside the calendar.
pub(crate) fn rfc3339(at: Micros) -> Option<String> {
    jiff::Timestamp::from_microsecond(at.get()).map(|time| time.to_string()).ok()
}

/// Serialises a time as RFC 3339.
pub(crate) fn serialize_time<S: Serializer>(at: &Micros, out: S) -> Result<S::Ok, S::Error> {
    serialize_optional_time(&Some(*at), out)
}

/// Serialises a time as RFC 3339, or as `null`.
#[expect(clippy::ref_option, reason = "the signature that serde calls")]
pub(crate) fn serialize_optional_time<S: Serializer>(
    at: &Option<Micros>,
    out: S,
) -> Result<S::Ok, S::Error> {
    match at.and_then(rfc3339) {
        Some(text) => out.serialize_str(&text),
        None => out.serialize_none(),
    }
}
