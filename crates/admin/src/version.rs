//! Versions of objects, so that concurrent changes do not overwrite each other.

use aws_lc_rs::digest::{SHA256, digest};
use serde::Serialize;

use crate::error::AdminError;

/// Version an actor read before it asked for a change: the value of `If-Match` (RFC 9110, section
/// 13.1.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadVersion<'a>(pub Option<&'a str>);

/// Returns the entity tag of an object's JSON description (RFC 9110, section 8.8.3).
pub fn version_of(described: &impl Serialize) -> String {
    // Only a map with keys that are no text could fail, and no description has one.
    let json = serde_json::to_vec(described).unwrap_or_default();
    let hash = digest(&SHA256, &json);
    let hex: String = hash.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

impl ReadVersion<'_> {
    /// Refuses a change of an object that changed after it was read.
    pub fn check(self, now: &impl Serialize) -> Result<(), AdminError> {
        let Some(expected) = self.0 else { return Ok(()) };
        let version = version_of(now);
        let fits = |one: &str| one.trim() == "*" || one.trim().trim_start_matches("W/") == version;
        if expected.split(',').any(fits) { Ok(()) } else { Err(AdminError::Stale) }
    }
}
