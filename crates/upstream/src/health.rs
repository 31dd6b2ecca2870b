//! Whether a lane can be expected to answer with one credential, and how fast.
//!
//! Failure and pressure are kept apart: a lane that fails rests and is tried again by single
//! calls; a lane that says it is busy is passed over until the time it named, and nothing is held
//! against it. Time is passed in, as microseconds since any fixed moment.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::breaker::{Breaker, Gate, Rest};

/// Failures in a row after which a lane rests.
const ROW: u32 = 5;
/// Or more than half of at least this many calls within the window.
const ENOUGH: u64 = 20;
const WINDOW: i64 = 10_000_000;
/// Short, because a trial costs one call one more try, and a healed lane should not be missed.
const FAILED: Rest = Rest { first: 500_000, most: 1_500_000 };
/// A trial that is slow to fail costs its caller that time, so it must not be made often.
const SLOWEST: i64 = 30_000_000;
/// A refused credential or a model that is gone needs the operator, which takes longer.
const WRONG: Rest = Rest { first: 30_000_000, most: 300_000_000 };
/// How long a busy lane is passed over that names no time, at first and at most.
const BUSY: Rest = Rest { first: 1_000_000, most: 8_000_000 };
/// How many measurements it takes to know anything.
const SAMPLES: i64 = 3;
/// A measurement older than this says nothing any more.
const STALE: i64 = 10_000_000;

/// Why a lane did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It could not be reached, broke off, or answered with an error of its own.
    Down,
    /// It took too long.
    Slow,
    /// It is at our rate limit; for how long, if it says so.
    Limited(Option<Duration>),
    /// It is overloaded; for how long, if it says so.
    Busy(Option<Duration>),
    /// It does not accept the credential, or its account has no money.
    Refused,
    /// It does not know the model.
    Gone,
    /// It could not take this very request at this very moment.
    Odd,
}

impl Failure {
    /// The word in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Down => "failed",
            Self::Slow => "timeout",
            Self::Limited(_) => "rate_limited",
            Self::Busy(_) => "overloaded",
            Self::Refused => "credential_refused",
            Self::Gone => "model_gone",
            Self::Odd => "not_now",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Down => 1,
            Self::Slow => 2,
            Self::Limited(_) => 3,
            Self::Busy(_) => 4,
            Self::Refused => 5,
            Self::Gone => 6,
            Self::Odd => 7,
        }
    }

    const fn by_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Down,
            2 => Self::Slow,
            3 => Self::Limited(None),
            4 => Self::Busy(None),
            5 => Self::Refused,
            6 => Self::Gone,
            7 => Self::Odd,
            _ => return None,
        })
    }
}

/// How a lane stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is expected to answer.
    Good,
    /// It failed and has rested: one call may try it.
    Trial,
    /// It asked to be left alone for that many more microseconds.
    Pressed(i64),
    /// It failed, and rests for that many more microseconds.
    Resting(i64),
}

impl Standing {
    /// The word in what is told of a lane.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Trial => "trial",
            Self::Pressed(_) => "pressed",
            Self::Resting(_) => "resting",
        }
    }
}

/// Whether a provider accepts one of our credentials; shared by all its lanes.
#[derive(Debug, Default)]
pub struct Account(Breaker);

/// The health of one lane with one credential.
#[derive(Debug)]
pub struct Health {
    own: Breaker,
    account: Arc<Account>,
    pending: AtomicU32,
    /// Failures in a row.
    row: AtomicU32,
    /// Calls that were answered.
    answered: AtomicU64,
    /// Taken by failures only.
    window: Mutex<Window>,
    /// Until when it asked to be left alone.
    pressed: AtomicI64,
    /// How often in a row it asked without naming a time.
    presses: AtomicU32,
    latency: AtomicI64,
    /// Of how many measurements, as far as that matters.
    samples: AtomicI64,
    /// When the latency was measured last.
    measured: AtomicI64,
    last: AtomicU8,
}

/// Failures beside answers, over a short time.
#[derive(Debug, Default)]
struct Window {
    began: i64,
    answered: u64,
    failed: u64,
}

/// What is known of a lane's health, for whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// How it stands.
    pub standing: Standing,
    /// Failures in a row.
    pub failures: u32,
    /// Calls that run on it.
    pub pending: u32,
    /// The usual time to an answer, if it was measured lately.
    pub latency: Option<Duration>,
    /// Why it failed last, if it ever did.
    pub last: Option<&'static str>,
}

impl Health {
    /// A lane of which nothing is known, with that credential.
    pub fn new(account: Arc<Account>) -> Self {
        Self {
            own: Breaker::default(),
            account,
            pending: AtomicU32::new(0),
            row: AtomicU32::new(0),
            answered: AtomicU64::new(0),
            window: Mutex::default(),
            pressed: AtomicI64::new(0),
            presses: AtomicU32::new(0),
            latency: AtomicI64::new(0),
            samples: AtomicI64::new(0),
            measured: AtomicI64::new(0),
            last: AtomicU8::new(0),
        }
    }

    /// Whether its credential is accepted.
    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// How it stands.
    pub fn standing(&self, now: i64) -> Standing {
        let pressed = self.pressed.load(Ordering::Relaxed);
        if now < pressed {
            return Standing::Pressed(pressed - now);
        }
        match (self.own.gate(now), self.account.0.gate(now)) {
            (Gate::Closed, Gate::Closed) => Standing::Good,
            (Gate::Resting(a), Gate::Resting(b)) => Standing::Resting(a.max(b)),
            (Gate::Resting(left), _) | (_, Gate::Resting(left)) => Standing::Resting(left),
            // Somebody else is trying it at this moment, and how that ends is open.
            (Gate::Tried, _) | (_, Gate::Tried) => Standing::Resting(FAILED.most),
            (Gate::Ajar, _) | (_, Gate::Ajar) => Standing::Trial,
        }
    }

    /// Whether what presses it is our rate limit and not its own load.
    pub fn is_limited(&self) -> bool {
        self.last.load(Ordering::Relaxed) == Failure::Limited(None).code()
    }

    /// Whether nothing is held against it at the moment.
    pub fn is_innocent(&self) -> bool {
        self.row.load(Ordering::Relaxed) == 0
    }

    /// Calls that run on it.
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Microseconds it usually takes to answer, if measured lately.
    pub fn latency(&self, now: i64) -> Option<i64> {
        let recent = now.saturating_sub(self.measured.load(Ordering::Relaxed)) < STALE;
        let enough = self.samples.load(Ordering::Relaxed) >= SAMPLES;
        (recent && enough).then(|| self.latency.load(Ordering::Relaxed))
    }

    /// A call begins.
    pub fn begin(self: &Arc<Self>, now: i64) -> Turn {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let trial = self.own.begin_trial(now);
        let vouched = self.account.0.begin_trial(now);
        Turn { health: Arc::clone(self), began: now, trial, vouched, told: false }
    }

    /// What is known of it.
    pub fn snapshot(&self, now: i64) -> Snapshot {
        let micros = self.latency(now).and_then(|micros| u64::try_from(micros).ok());
        Snapshot {
            standing: self.standing(now),
            failures: self.row.load(Ordering::Relaxed),
            pending: self.pending(),
            latency: micros.map(Duration::from_micros),
            last: Failure::by_code(self.last.load(Ordering::Relaxed)).map(Failure::word),
        }
    }

    fn good(&self, began: i64) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if self.row.load(Ordering::Relaxed) != 0 {
            self.row.store(0, Ordering::Relaxed);
        }
        if self.presses.load(Ordering::Relaxed) != 0 {
            self.presses.store(0, Ordering::Relaxed);
        }
        self.own.answered(began);
        self.account.0.answered(began);
    }

    fn measure(&self, micros: i64, now: i64) {
        let recent = now.saturating_sub(self.measured.load(Ordering::Relaxed)) < STALE;
        let samples = if recent { self.samples.load(Ordering::Relaxed) } else { 0 };
        // The mean of the first few, then one that follows: a single slow one decides nothing.
        let old = self.latency.load(Ordering::Relaxed);
        let new = old.saturating_add((micros - old) / (samples + 1));
        self.latency.store(if samples == 0 { micros } else { new }.max(1), Ordering::Relaxed);
        self.samples.store((samples + 1).min(5), Ordering::Relaxed);
        self.measured.store(now, Ordering::Relaxed);
    }

    fn press(&self, wait: Option<Duration>, now: i64) {
        let wait = match wait {
            Some(wait) => i64::try_from(wait.as_micros()).unwrap_or(i64::MAX),
            None => BUSY.after(self.presses.fetch_add(1, Ordering::Relaxed)),
        };
        self.pressed.fetch_max(now.saturating_add(wait), Ordering::Relaxed);
    }

    /// Counts a failure that took that long; true when the lane rests from now on and did not before.
    fn bad(&self, lost: i64, now: i64, trial: bool) -> bool {
        let row = self.row.fetch_add(1, Ordering::Relaxed) + 1;
        // While it rests, only the trial decides; the others began earlier or had no choice.
        let rests = self.own.gate(now) != Gate::Closed;
        if rests && !trial {
            return false;
        }
        if trial || row >= ROW || self.fails_mostly(now) {
            *self.window.lock() = self.fresh_window(now);
            return self.own.trip(now, FAILED, lost.min(SLOWEST));
        }
        false
    }

    fn fails_mostly(&self, now: i64) -> bool {
        let mut window = self.window.lock();
        if now.saturating_sub(window.began) > WINDOW {
            *window = self.fresh_window(now);
        }
        window.failed += 1;
        let answered = self.answered.load(Ordering::Relaxed).saturating_sub(window.answered);
        window.failed > answered && window.failed + answered >= ENOUGH
    }

    fn fresh_window(&self, now: i64) -> Window {
        Window { began: now, answered: self.answered.load(Ordering::Relaxed), failed: 0 }
    }
}

/// One call on a lane. Dropped without a verdict, it leaves none: its caller went away.
#[derive(Debug)]
pub struct Turn {
    health: Arc<Health>,
    began: i64,
    /// Whether this call decides over the lane's rest.
    trial: bool,
    /// Whether it decides over the credential's.
    vouched: bool,
    told: bool,
}

impl Turn {
    /// It was answered, well or with the caller's own mistake.
    pub fn answered(&mut self, now: i64) {
        if !std::mem::replace(&mut self.told, true) {
            self.health.good(self.began);
            self.health.measure(now.saturating_sub(self.began), now);
        }
    }

    /// It failed. True when the operator should hear of it: the lane or its credential was good
    /// until now and rests from here on.
    pub fn failed(&mut self, failure: Failure, now: i64) -> bool {
        let health = &self.health;
        health.last.store(failure.code(), Ordering::Relaxed);
        // What broke off after it had begun cost its caller no time in vain.
        let begun = std::mem::replace(&mut self.told, true);
        let lost = if begun { 0 } else { now.saturating_sub(self.began) };
        match failure {
            Failure::Down | Failure::Slow => health.bad(lost, now, self.trial),
            Failure::Limited(wait) | Failure::Busy(wait) => {
                // Whoever says that it is busy is alive.
                health.own.answered(self.began);
                health.press(wait, now);
                false
            }
            Failure::Refused => health.account.0.trip(now, WRONG, 0),
            Failure::Gone => health.own.trip(now, WRONG, 0),
            Failure::Odd => {
                health.own.answered(self.began);
                false
            }
        }
    }

    /// How long the call has run.
    pub fn elapsed(&self, now: i64) -> Duration {
        Duration::from_micros(u64::try_from(now.saturating_sub(self.began)).unwrap_or(0))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.health.pending.fetch_sub(1, Ordering::Relaxed);
        if self.trial {
            self.health.own.end_trial();
        }
        if self.vouched {
            self.health.account.0.end_trial();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: i64 = 1_000;

    fn health() -> Arc<Health> {
        Arc::new(Health::new(Arc::default()))
    }

    fn fail(health: &Arc<Health>, now: i64) -> bool {
        health.begin(now).failed(Failure::Down, now)
    }

    #[test]
    fn five_failures_in_a_row_and_a_single_trial() {
        let health = health();
        for now in 1..5 {
            assert!(!fail(&health, now) && health.standing(now) == Standing::Good);
        }
        assert!(fail(&health, 5));
        assert_eq!(health.standing(5), Standing::Resting(500 * MS));
        assert!(!fail(&health, 6), "a straggler changes nothing");
        assert_eq!(health.standing(6), Standing::Resting(500 * MS - 1));
        let later = 501 * MS;
        assert_eq!(health.standing(later), Standing::Trial);
        let mut trial = health.begin(later);
        assert_eq!(health.standing(later), Standing::Resting(1_500 * MS), "one call is enough");
        trial.failed(Failure::Down, later);
        drop(trial);
        assert_eq!(health.standing(later), Standing::Resting(1_000 * MS), "it rests longer");
        let mut trial = health.begin(later + 1_000 * MS);
        trial.answered(later + 1_001 * MS);
        drop(trial);
        assert_eq!(health.standing(later + 1_001 * MS), Standing::Good);
        assert_eq!((health.pending(), health.is_innocent()), (0, true));
    }

    #[test]
    fn a_trial_whose_caller_leaves_leaves_the_trial_to_the_next() {
        let health = health();
        (1..6).for_each(|now| {
            fail(&health, now);
        });
        drop(health.begin(600 * MS));
        assert_eq!(health.standing(600 * MS), Standing::Trial);
    }

    #[test]
    fn a_lane_that_fails_more_than_half_its_calls_rests() {
        let health = health();
        let mut rested = None;
        for now in 1..100 {
            if now % 3 == 0 {
                health.begin(now).answered(now);
            } else if fail(&health, now) {
                rested = Some(now);
                break;
            }
        }
        assert!(rested.is_some_and(|now| (20..=25).contains(&now)), "{rested:?}");
    }

    #[test]
    fn pressure_is_no_failure_and_ends_when_it_was_told_to() {
        let health = health();
        let wait = Some(Duration::from_secs(2));
        for _ in 0..10 {
            assert!(!health.begin(1).failed(Failure::Limited(wait), 1));
        }
        assert_eq!(health.standing(1), Standing::Pressed(2_000 * MS));
        assert!(health.is_innocent() && health.is_limited());
        assert_eq!(health.standing(1 + 2_000 * MS), Standing::Good);
        health.begin(1).failed(Failure::Busy(None), 5_000 * MS);
        assert_eq!(health.standing(5_000 * MS), Standing::Pressed(1_000 * MS));
        assert!(!health.is_limited());
        health.begin(1).failed(Failure::Busy(None), 7_000 * MS);
        assert_eq!(health.standing(7_000 * MS), Standing::Pressed(2_000 * MS), "longer each time");
    }

    #[test]
    fn a_refused_credential_rests_on_every_lane_it_is_used_on() {
        let account = Arc::new(Account::default());
        let one = Arc::new(Health::new(Arc::clone(&account)));
        let two = Arc::new(Health::new(account));
        assert!(one.begin(1).failed(Failure::Refused, 1), "the operator hears of it");
        assert!(!one.begin(2).failed(Failure::Refused, 2), "once");
        assert!(matches!(two.standing(3), Standing::Resting(left) if left >= 30_000 * MS));
        let mut lucky = two.begin(4);
        lucky.answered(5);
        assert_eq!(one.standing(5), Standing::Good, "an answer proves the credential good");
    }

    #[test]
    fn latency_follows_and_is_forgotten() {
        let health = health();
        assert_eq!(health.latency(0), None);
        for millis in [700, 100] {
            health.begin(0).answered(millis * MS);
            assert_eq!(health.latency(700 * MS), None, "too little to tell");
        }
        health.begin(0).answered(100 * MS);
        assert_eq!(health.latency(700 * MS), Some(300 * MS));
        assert_eq!(health.snapshot(700 * MS).latency, Some(Duration::from_millis(300)));
        for _ in 0..100 {
            health.begin(1_000 * MS).answered(1_010 * MS);
        }
        assert!(health.latency(1_010 * MS).is_some_and(|latency| latency < 11 * MS));
        assert_eq!(health.latency(12_000 * MS), None);
    }

    proptest! {
        /// No sequence loses a call, holds a lane back for ever, or rests it for pressure.
        #[test]
        fn nothing_is_for_ever(steps in prop::collection::vec((0..8u8, 0..400_000i64), 1..300)) {
            let health = health();
            let mut now = 1;
            for (what, pass) in steps {
                now += pass;
                let mut turn = health.begin(now);
                match what {
                    0 => { turn.answered(now); }
                    1 => { turn.failed(Failure::Slow, now); }
                    2 => { turn.failed(Failure::Limited(Some(Duration::from_secs(60))), now); }
                    3 => { turn.failed(Failure::Busy(None), now); }
                    4 => { turn.failed(Failure::Odd, now); }
                    5 => {}
                    _ => { turn.failed(Failure::Down, now); }
                }
                drop(turn);
                prop_assert_eq!(health.pending(), 0);
                let left = match health.standing(now) {
                    Standing::Good | Standing::Trial => 0,
                    Standing::Pressed(left) | Standing::Resting(left) => left,
                };
                prop_assert!(left <= 62_000_000);
                let later = health.standing(now + 62_000_000);
                prop_assert!(matches!(later, Standing::Good | Standing::Trial));
            }
        }
    }
}
