//! Time, passed in.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub type Micros = i64;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Micros;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }
}

/// A clock a test sets.
#[derive(Debug, Default)]
pub struct TestClock(AtomicI64);

impl TestClock {
    /// A clock that shows that time.
    pub const fn at(now: Micros) -> Self {
        Self(AtomicI64::new(now))
    }

    /// Lets time pass.
    pub fn pass(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Micros {
        self.0.load(Ordering::Relaxed)
    }
}
