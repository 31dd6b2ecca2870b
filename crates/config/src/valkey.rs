//! Valkey server shared by several nodes: `[shared]`.

use std::time::Duration;

use crate::error::FieldError;
use crate::raw::RawShared;
use crate::units::parse_duration;

/// Valkey server that the nodes share.
#[derive(Clone, PartialEq, Eq)]
pub struct ValkeySettings {
    /// URL of the server.
    pub url: String,
    /// Time a call may wait for the server.
    pub timeout: Duration,
}

/// Omits the URL, which may hold a password.
impl std::fmt::Debug for ValkeySettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValkeySettings").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

/// Checks `[shared]`.
pub(super) fn check(raw: RawShared) -> Result<ValkeySettings, FieldError> {
    let RawShared { valkey: url, patience } = raw;
    // The URL may hold a password, so the error does not repeat it.
    redis::Client::open(url.as_str()).map_err(|_| {
        FieldError::new(
            "shared.valkey",
            "not an address; write for instance \"redis://127.0.0.1:6379\"",
        )
    })?;
    let patience = patience.as_deref().map_or(Ok(Duration::from_millis(20)), parse_duration);
    let patience = patience.map_err(|why| FieldError::new("shared.patience", why))?;
    Ok(ValkeySettings { url, timeout: patience })
}
