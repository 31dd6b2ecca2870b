//! Clocks, which callers pass in so that tests can set the time.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970. An alias until all crates use [`canon::Micros`], which the steady clock
/// and the durations of leases already do inside this crate.
pub type Micros = i64;

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> Micros;
    /// Returns the microseconds since a fixed moment. Changes of the time of day do not affect it.
    fn steady(&self) -> Micros;
}

/// The first use of the steady clock in this process.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn steady(&self) -> Micros {
        i64::try_from(START.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct TestClock {
    steady: AtomicI64,
    /// Time of day minus steady time.
    offset: AtomicI64,
}

impl TestClock {
    /// Creates a clock that shows that time.
    pub const fn at(now: Micros) -> Self {
        Self { steady: AtomicI64::new(0), offset: AtomicI64::new(now) }
    }

    /// Advances both clocks.
    pub fn pass(&self, micros: i64) {
        self.steady.fetch_add(micros, Ordering::Relaxed);
    }

    /// Changes the time of day, as an administrator may. No time passes.
    pub fn jump(&self, micros: i64) {
        self.offset.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Micros {
        self.steady().saturating_add(self.offset.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Micros {
        self.steady.load(Ordering::Relaxed)
    }
}
