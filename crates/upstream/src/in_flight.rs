//! A bound on the calls that run at once, here or at a provider: what comes on top is refused
//! before any work is done.

use canon::{ApiError, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many calls run.
#[derive(Debug, Default)]
pub struct InFlight(Arc<AtomicUsize>);

/// A running call's place; free again when dropped.
#[derive(Debug)]
pub struct InFlightSlot(Arc<AtomicUsize>);

impl InFlight {
    /// A place among at most that many; what is refused is told that somebody is overloaded.
    pub fn admit(&self, most: usize) -> Result<InFlightSlot, ApiError> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        let place = InFlightSlot(Arc::clone(&self.0));
        if before < most { Ok(place) } else { Err(too_many(before)) }
    }

    /// Whether there is room among that many, asked before a place is worth the work of taking it.
    pub fn check_room(&self, most: usize) -> Result<(), ApiError> {
        if self.is_full(most) { Err(too_many(most)) } else { Ok(()) }
    }

    /// Whether that many run.
    pub fn is_full(&self, most: usize) -> bool {
        self.0.load(Ordering::Relaxed) >= most
    }
}

fn too_many(running: usize) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "too many calls run at the moment, retry shortly")
        .with_retry_after(Duration::from_secs(1))
        .with_log_note(format!("{running} calls run"))
}

impl Drop for InFlightSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_few_and_come_free_again() {
        let running = InFlight::default();
        let places: Vec<_> = (0..3).map(|_| running.admit(3).unwrap()).collect();
        for _ in 0..5 {
            assert!(running.is_full(3) && !running.is_full(4));
            assert_eq!(running.check_room(3).unwrap_err().kind(), ErrorKind::Overloaded);
            let fault = running.admit(3).unwrap_err();
            assert_eq!(fault.kind(), ErrorKind::Overloaded);
            assert_eq!(fault.retry_after(), Some(Duration::from_secs(1)));
        }
        drop(places);
        assert!(running.admit(1).is_ok());
    }
}
