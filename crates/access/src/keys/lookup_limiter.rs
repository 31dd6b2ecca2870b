//! Limit on lookups of keys that are not in memory, so that guessed keys put no load on the database.

use canon::{ApiError, Micros};
use std::collections::HashMap;

use super::key_cache::invalid_key;

/// Limit on store lookups for unknown keys.
const MAX_LOOKUPS_PER_SECOND: u32 = 50;
/// Time for which the store is not asked again for what it did not know.
const UNKNOWN_TIME: Micros = Micros::from_secs(2);

/// Rate of lookups, and what the store was found not to know.
#[derive(Default)]
pub(super) struct LookupLimiter {
    second: i64,
    count: u32,
    /// Ids and tokens the store did not know, with the time until which that is trusted.
    unknown: HashMap<String, Micros>,
}

impl LookupLimiter {
    /// Counts a lookup of an id or of a whole token.
    pub(super) fn admit(&mut self, subject: &str, now: Micros) -> Result<(), ApiError> {
        if self.unknown.get(subject).is_some_and(|until| now < *until) {
            return Err(invalid_key());
        }
        let second = now.as_secs();
        if self.second != second {
            self.second = second;
            self.count = 0;
            self.unknown.retain(|_, until| now < *until);
        }
        self.count += 1;
        if self.count > MAX_LOOKUPS_PER_SECOND {
            return Err(
                invalid_key().with_log_note("too many unknown keys in this second to look them up")
            );
        }
        Ok(())
    }

    /// Remembers that the store does not know this.
    pub(super) fn remember_unknown(&mut self, subject: &str, now: Micros) {
        self.unknown.insert(subject.to_owned(), now + UNKNOWN_TIME);
    }

    /// Lets the store be asked again.
    pub(super) fn forget(&mut self, subject: &str) {
        self.unknown.remove(subject);
    }
}
