//! The lane that answered a session last, where it stays.
//!
//! A session whose lane fails moves to the next one, which then has its prompt in a cache. Going back as
//! soon as the first lane has recovered would lose that cache, so the lane is remembered.

use std::sync::atomic::{AtomicU64, Ordering};

use canon::Micros;

use crate::lane_order::mix;

/// Number of remembered sessions. Two with the same place share it, and the later one counts.
const PLACES: usize = 1 << 14;
/// Minutes without a call after which a session is forgotten. Providers keep prompts no longer than that.
const LIFETIME_MINUTES: u16 = 60;
const MINUTE: Micros = Micros::from_secs(60);
/// Bits of the parts of an entry: a mark of the session, a mark of the lane, the minute of the last call.
const MARK_BITS: u32 = 24;
const MINUTE_BITS: u32 = u16::BITS;

/// Lanes of the sessions of this node. Each entry is one number, so that no call waits for another one.
#[derive(Debug)]
pub struct SessionLanes(Box<[AtomicU64]>);

/// Mark of a lane with one credential, in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneMark(u64);

impl LaneMark {
    /// Returns the mark of the lane with this hash key.
    pub const fn of(hash_key: u64) -> Self {
        Self(mix(hash_key) >> (u64::BITS - MARK_BITS))
    }
}

impl Default for SessionLanes {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl SessionLanes {
    /// Returns the lane that answered a session last; `None` for a new session.
    pub fn find(&self, session: u64, now: Micros) -> Option<LaneMark> {
        read_entry(self.entry(session)?.load(Ordering::Relaxed), session, now)
    }

    /// Remembers that this lane answered a session.
    pub fn record(&self, session: u64, lane: LaneMark, now: Micros) {
        if let Some(entry) = self.entry(session) {
            entry.store(new_entry(session, lane, now), Ordering::Relaxed);
        }
    }

    /// Remembers that a new session begins at this lane, so that its other calls find it before the first
    /// answer. Fails if another call has placed the session meanwhile, with the lane of that.
    pub fn place(&self, session: u64, lane: LaneMark, now: Micros) -> Result<(), LaneMark> {
        let Some(entry) = self.entry(session) else { return Ok(()) };
        let found = entry.load(Ordering::Relaxed);
        if let Some(own) = read_entry(found, session, now) {
            return Err(own);
        }
        let new = new_entry(session, lane, now);
        let replaced = entry.compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed);
        match replaced.map_err(|found| read_entry(found, session, now)) {
            Err(Some(own)) => Err(own),
            // The entry is that of another session with the same place.
            Ok(_) | Err(None) => Ok(()),
        }
    }

    fn entry(&self, session: u64) -> Option<&AtomicU64> {
        self.0.get(session as usize % PLACES)
    }
}

fn new_entry(session: u64, lane: LaneMark, now: Micros) -> u64 {
    let marks = session_mark(session) << MARK_BITS | lane.0;
    marks << MINUTE_BITS | u64::from(minute(now))
}

fn read_entry(entry: u64, session: u64, now: Micros) -> Option<LaneMark> {
    let age = minute(now).wrapping_sub(entry as u16);
    let lane = entry >> MINUTE_BITS & ((1 << MARK_BITS) - 1);
    let is_own = entry != 0 && entry >> (MINUTE_BITS + MARK_BITS) == session_mark(session);
    (is_own && age <= LIFETIME_MINUTES).then_some(LaneMark(lane))
}

const fn session_mark(session: u64) -> u64 {
    session >> (u64::BITS - MARK_BITS)
}

/// Returns the minute of a time. It repeats after 45 days.
const fn minute(now: Micros) -> u16 {
    (now.get() / MINUTE.get()) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_lane_is_found_until_it_is_old(session: u64, key: u64, at in 0..1_i64 << 50, wait in 0..200_i64) {
            let (lanes, lane) = (SessionLanes::default(), LaneMark::of(key));
            let at = Micros::new(at);
            prop_assert_eq!(lanes.find(session, at), None);
            prop_assert_eq!(lanes.place(session, lane, at), Ok(()));
            prop_assert_eq!(lanes.place(session, LaneMark::of(!key), at), Err(lane));
            prop_assert_eq!(lanes.find(session, at), Some(lane));
            lanes.record(session, lane, at);
            prop_assert_eq!(lanes.find(session, at), Some(lane));
            let found = lanes.find(session, at + MINUTE * wait);
            prop_assert_eq!(found, (wait <= i64::from(LIFETIME_MINUTES)).then_some(lane));
            prop_assert_eq!(lanes.find(session.wrapping_add(1), at), None);
            // Another session at the same place.
            prop_assert_eq!(lanes.find(session ^ 1 << 63, at), None);
        }
    }
}
