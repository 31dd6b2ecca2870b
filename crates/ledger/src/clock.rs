//! Clocks, which callers pass in so that tests can set the time.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use canon::{AtomicMicros, Micros};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time of day.
    fn now(&self) -> Micros;
    /// Returns the time since a fixed moment. Changes of the time of day do not affect it.
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
        Micros::from(since)
    }

    fn steady(&self) -> Micros {
        Micros::from(START.elapsed())
    }
}

/// A clock that a test sets.
#[derive(Debug, Default)]
pub struct TestClock {
    steady: AtomicMicros,
    /// Time of day minus steady time.
    offset: AtomicMicros,
}

impl TestClock {
    /// Creates a clock that shows that time.
    pub const fn at(now: Micros) -> Self {
        Self { steady: AtomicMicros::new(Micros::ZERO), offset: AtomicMicros::new(now) }
    }

    /// Advances both clocks.
    pub fn pass(&self, time: Micros) {
        self.steady.add(time);
    }

    /// Changes the time of day, as an administrator may. No time passes.
    pub fn jump(&self, time: Micros) {
        self.offset.add(time);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Micros {
        self.steady() + self.offset.load()
    }

    fn steady(&self) -> Micros {
        self.steady.load()
    }
}
