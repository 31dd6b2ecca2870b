//! Upper bound of running calls, on this node or at a provider. A call above it is refused before
//! any work is done.

use canon::{ApiError, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Count of running calls.
#[derive(Debug)]
pub struct InFlight {
    running: Arc<AtomicUsize>,
    /// Limit of the process, whatever the configuration says.
    most: AtomicUsize,
}

impl Default for InFlight {
    fn default() -> Self {
        Self { running: Arc::default(), most: AtomicUsize::new(usize::MAX) }
    }
}

/// Place of a running call, freed on drop at the latest.
#[derive(Debug)]
pub struct InFlightSlot {
    running: Arc<AtomicUsize>,
    is_free: AtomicBool,
}

impl InFlight {
    /// Sets the number of calls for which the process has room.
    pub fn limit_to(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    fn most(&self, max_calls: usize) -> usize {
        max_calls.min(self.most.load(Ordering::Relaxed))
    }

    /// Admits a call if fewer than `max_calls` run; otherwise returns an overload error.
    pub fn admit(&self, max_calls: usize) -> Result<InFlightSlot, ApiError> {
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        let running = Arc::clone(&self.running);
        let slot = InFlightSlot { running, is_free: AtomicBool::new(false) };
        if before < self.most(max_calls) { Ok(slot) } else { Err(too_many(before)) }
    }

    /// Checks for room before the work that precedes [`Self::admit`].
    pub fn check_room(&self, max_calls: usize) -> Result<(), ApiError> {
        if self.is_full(max_calls) { Err(too_many(max_calls)) } else { Ok(()) }
    }

    /// Returns true if `max_calls` calls run.
    pub fn is_full(&self, max_calls: usize) -> bool {
        self.running.load(Ordering::Relaxed) >= self.most(max_calls)
    }
}

fn too_many(running: usize) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "too many calls run at the moment, retry shortly")
        .with_retry_after(Duration::from_secs(1))
        .with_log_note(format!("{running} calls run"))
}

impl InFlightSlot {
    /// Frees the place, for a call that has ended although something still holds on to it.
    pub fn free(&self) {
        if !self.is_free.swap(true, Ordering::Relaxed) {
            self.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlightSlot {
    fn drop(&mut self) {
        self.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admits_up_to_the_limit_and_frees_on_drop() {
        let running = InFlight::default();
        let slots: Vec<_> = (0..3).map(|_| running.admit(3).unwrap()).collect();
        for _ in 0..5 {
            assert!(running.is_full(3) && !running.is_full(4));
            assert_eq!(running.check_room(3).unwrap_err().kind(), ErrorKind::Overloaded);
            let error = running.admit(3).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Overloaded);
            assert_eq!(error.retry_after(), Some(Duration::from_secs(1)));
        }
        // A place is freed once.
        for slot in &slots {
            slot.free();
        }
        let next = running.admit(1).unwrap();
        drop(slots);
        assert!(running.is_full(1));
        drop(next);
        assert!(running.admit(1).is_ok());
        running.limit_to(0);
        assert!(running.is_full(1) && running.admit(1).is_err());
    }
}
