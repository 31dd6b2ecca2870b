//! Unique id and time of an answer.

use dialects::ReplyStamp;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::seeded_random;

/// Returns a stamp that no other answer has.
pub(super) fn fresh() -> ReplyStamp {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let process = *PROCESS.get_or_init(|| RandomState::new().build_hasher().finish());
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    ReplyStamp { id: seeded_random::word(seeded_random::join(process, number), 24), created: now() }
}

/// Seconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "the time is only printed on an answer; nothing is decided by it"
)]
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.ok().and_then(|since| i64::try_from(since.as_secs()).ok()).unwrap_or(0)
}
