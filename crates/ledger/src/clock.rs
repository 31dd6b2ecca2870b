//! Time, passed in.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub type Micros = i64;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Micros;
    /// Microseconds since some moment before: goes on evenly, whatever becomes of the time of day.
    fn steady(&self) -> Micros;
}

/// When this process first asked.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that is passed in")]
    fn now(&self) -> Micros {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
    }

    fn steady(&self) -> Micros {
        i64::try_from(BEGIN.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

/// A clock a test sets.
#[derive(Debug, Default)]
pub struct TestClock {
    steady: AtomicI64,
    /// How far the time of day is from the steady time.
    offset: AtomicI64,
}

impl TestClock {
    /// A clock that shows that time.
    pub const fn at(now: Micros) -> Self {
        Self { steady: AtomicI64::new(0), offset: AtomicI64::new(now) }
    }

    /// Lets time pass.
    pub fn pass(&self, micros: i64) {
        self.steady.fetch_add(micros, Ordering::Relaxed);
    }

    /// Someone sets the time of day; no time passes.
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
