//! Health of a lane with one credential: its state and its latency.
//!
//! Failure and load are separate. A failing lane cools down and is then probed by single calls. A
//! lane that reports to be busy is skipped until the time it named, which does not count as a
//! failure. Time is a parameter, since any fixed moment.

use canon::{AtomicMicros, Micros};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::breaker::{Backoff, Breaker, BreakerState};
use crate::output_speed::OutputSpeed;

/// Failures in a row that open the breaker.
const MAX_FAILURE_STREAK: u32 = 5;
/// Calls within the window from which on a failure rate above one half opens the breaker.
const MIN_WINDOW_CALLS: u64 = 20;
const WINDOW_LENGTH: Micros = Micros::from_secs(10);
/// Short, because a probe costs one call one more attempt, and a recovered lane should be used
/// soon.
const FAILURE_BACKOFF: Backoff =
    Backoff { initial: Micros::from_millis(500), max: Micros::from_millis(1_500) };
/// A probe that fails slowly costs its caller that time, so the backoff grows with it up to this
/// limit.
const MAX_SLOW_BACKOFF: Micros = Micros::from_secs(30);
/// A refused credential or a missing model needs the operator, so the backoff is longer.
const REFUSAL_BACKOFF: Backoff =
    Backoff { initial: Micros::from_secs(30), max: Micros::from_secs(300) };
/// Backoff of a busy lane that names no time.
const BUSY_BACKOFF: Backoff = Backoff { initial: Micros::from_secs(1), max: Micros::from_secs(8) };
/// Measurements needed before the latency is used.
const MIN_SAMPLES: i64 = 3;
/// Age at which a measurement expires.
const SAMPLE_LIFETIME: Micros = Micros::from_secs(10);

/// Reason why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// The provider was unreachable, broke off, or returned a server error.
    Down,
    /// The provider took too long.
    TimedOut,
    /// The provider reports our rate limit, with the wait it named.
    RateLimited(Option<Duration>),
    /// The provider is overloaded, with the wait it named.
    Overloaded(Option<Duration>),
    /// The provider refuses the credential, or its account has no credit.
    CredentialRefused,
    /// The provider does not know the model.
    ModelGone,
    /// The provider could not process this request at the moment.
    NotNow,
}

impl AttemptFailure {
    /// Returns the word used in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Down => "failed",
            Self::TimedOut => "timeout",
            Self::RateLimited(_) => "rate_limited",
            Self::Overloaded(_) => "overloaded",
            Self::CredentialRefused => "credential_refused",
            Self::ModelGone => "model_gone",
            Self::NotNow => "not_now",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Down => 1,
            Self::TimedOut => 2,
            Self::RateLimited(_) => 3,
            Self::Overloaded(_) => 4,
            Self::CredentialRefused => 5,
            Self::ModelGone => 6,
            Self::NotNow => 7,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Down,
            2 => Self::TimedOut,
            3 => Self::RateLimited(None),
            4 => Self::Overloaded(None),
            5 => Self::CredentialRefused,
            6 => Self::ModelGone,
            7 => Self::NotNow,
            _ => return None,
        })
    }
}

/// State of a lane at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneState {
    /// A response is expected.
    Good,
    /// The cooldown is over: one call may probe the lane.
    Probing,
    /// The lane is busy for this time.
    Busy(Micros),
    /// The lane failed and cools down for this time.
    CoolingDown(Micros),
}

impl LaneState {
    /// Returns the word used in the API and the console.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Probing => "probing",
            Self::Busy(_) => "busy",
            Self::CoolingDown(_) => "cooling_down",
        }
    }
}

/// Acceptance of one credential, shared by all lanes of its provider.
#[derive(Debug, Default)]
pub struct CredentialHealth(Breaker);

/// Health of one lane with one credential.
#[derive(Debug)]
pub struct HealthTracker {
    breaker: Breaker,
    credential: Arc<CredentialHealth>,
    pending: AtomicU32,
    /// Sessions that began here.
    sessions: AtomicU32,
    failure_streak: AtomicU32,
    answered: AtomicU64,
    /// Locked only by failures.
    window: Mutex<FailureWindow>,
    busy_until: AtomicMicros,
    /// Busy reports in a row without a wait.
    busy_streak: AtomicU32,
    latency: AtomicMicros,
    /// Number of measurements, up to a small maximum.
    samples: AtomicI64,
    measured_at: AtomicMicros,
    output_speed: OutputSpeed,
    last_failure: AtomicU8,
}

/// Failures and successes within a short time.
#[derive(Debug, Default)]
struct FailureWindow {
    began_at: Micros,
    answered: u64,
    failed: u64,
}

/// Health of a lane for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSnapshot {
    /// State.
    pub state: LaneState,
    /// Failures in a row.
    pub failure_streak: u32,
    /// Running calls.
    pub pending: u32,
    /// Usual time to a response, if measured recently.
    pub latency: Option<Duration>,
    /// Reason of the last failure, if there was one.
    pub last_failure: Option<&'static str>,
}

impl HealthTracker {
    /// Creates the health of a lane without history.
    pub fn new(credential: Arc<CredentialHealth>) -> Self {
        Self {
            breaker: Breaker::default(),
            credential,
            pending: AtomicU32::new(0),
            sessions: AtomicU32::new(0),
            failure_streak: AtomicU32::new(0),
            answered: AtomicU64::new(0),
            window: Mutex::default(),
            busy_until: AtomicMicros::default(),
            busy_streak: AtomicU32::new(0),
            latency: AtomicMicros::default(),
            samples: AtomicI64::new(0),
            measured_at: AtomicMicros::default(),
            output_speed: OutputSpeed::default(),
            last_failure: AtomicU8::new(0),
        }
    }

    /// Returns the health of the credential.
    pub fn credential(&self) -> &Arc<CredentialHealth> {
        &self.credential
    }

    /// Returns the state of the lane.
    pub fn state(&self, now: Micros) -> LaneState {
        let busy_until = self.busy_until.load();
        if now < busy_until {
            return LaneState::Busy(busy_until - now);
        }
        match (self.breaker.state(now), self.credential.0.state(now)) {
            (BreakerState::Closed, BreakerState::Closed) => LaneState::Good,
            (BreakerState::Open(a), BreakerState::Open(b)) => LaneState::CoolingDown(a.max(b)),
            (BreakerState::Open(left), _) | (_, BreakerState::Open(left)) => {
                LaneState::CoolingDown(left)
            }
            // Another call is probing, with an unknown outcome.
            (BreakerState::Probing, _) | (_, BreakerState::Probing) => {
                LaneState::CoolingDown(FAILURE_BACKOFF.max)
            }
            (BreakerState::HalfOpen, _) | (_, BreakerState::HalfOpen) => LaneState::Probing,
        }
    }

    /// Returns true if the lane is busy because of our rate limit and not because of its load.
    pub fn is_rate_limited(&self) -> bool {
        self.last_failure.load(Ordering::Relaxed) == AttemptFailure::RateLimited(None).code()
    }

    /// Returns true if the last call did not fail.
    pub fn has_no_recent_failure(&self) -> bool {
        self.failure_streak.load(Ordering::Relaxed) == 0
    }

    /// Returns the number of running calls.
    pub fn pending(&self) -> u32 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Returns the number of sessions that began here.
    pub fn sessions(&self) -> u32 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Counts a session that begins here.
    pub fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a session that begins here. Returns false, without that, if there are not `seen` sessions any more.
    #[must_use]
    pub fn add_session_after(&self, seen: u32) -> bool {
        let more = seen.saturating_add(1);
        self.sessions.compare_exchange(seen, more, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes back a session that began elsewhere.
    pub fn remove_session(&self) {
        // `Err` means that there is none, which `u32::checked_sub` reports.
        let less = |sessions: u32| sessions.checked_sub(1);
        let _ = self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Returns the usual latency, if measured recently.
    pub fn latency(&self, now: Micros) -> Option<Micros> {
        let recent = now - self.measured_at.load() < SAMPLE_LIFETIME;
        let enough = self.samples.load(Ordering::Relaxed) >= MIN_SAMPLES;
        (recent && enough).then(|| self.latency.load())
    }

    /// Begins an attempt.
    pub fn begin_attempt(self: &Arc<Self>, now: Micros) -> AttemptGuard {
        self.pending.fetch_add(1, Ordering::Relaxed);
        let probes_lane = self.breaker.begin_probe(now);
        let probes_credential = self.credential.0.begin_probe(now);
        AttemptGuard {
            health: Arc::clone(self),
            began_at: now,
            probes_lane,
            probes_credential,
            is_reported: false,
        }
    }

    /// Returns the health for display.
    pub fn snapshot(&self, now: Micros) -> HealthSnapshot {
        let latency = self.latency(now).map(Micros::to_duration);
        HealthSnapshot {
            state: self.state(now),
            failure_streak: self.failure_streak.load(Ordering::Relaxed),
            pending: self.pending(),
            latency,
            last_failure: AttemptFailure::from_code(self.last_failure.load(Ordering::Relaxed))
                .map(AttemptFailure::as_str),
        }
    }

    fn record_success(&self, began: Micros) {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if self.failure_streak.load(Ordering::Relaxed) != 0 {
            self.failure_streak.store(0, Ordering::Relaxed);
        }
        if self.busy_streak.load(Ordering::Relaxed) != 0 {
            self.busy_streak.store(0, Ordering::Relaxed);
        }
        self.breaker.record_success(began);
        self.credential.0.record_success(began);
    }

    fn record_latency(&self, latency: Micros, now: Micros) {
        let recent = now - self.measured_at.load() < SAMPLE_LIFETIME;
        let samples = if recent { self.samples.load(Ordering::Relaxed) } else { 0 };
        // The mean of the first few, then a moving average, so that a single slow call has little
        // weight.
        let old = self.latency.load();
        let new = old + (latency - old) / (samples + 1);
        self.latency.store(if samples == 0 { latency } else { new }.max(Micros::new(1)));
        self.samples.store((samples + 1).min(5), Ordering::Relaxed);
        self.measured_at.store(now);
    }

    /// Returns the output tokens that the lane usually makes in that time.
    pub fn usual_output(&self, time: Duration) -> u64 {
        self.output_speed.usual_output(time)
    }

    fn mark_busy(&self, wait: Option<Duration>, now: Micros) {
        let wait = match wait {
            Some(wait) => Micros::from(wait),
            None => BUSY_BACKOFF.delay(self.busy_streak.fetch_add(1, Ordering::Relaxed)),
        };
        self.busy_until.advance_to(now + wait);
    }

    /// Records a failure that took `wasted`. Returns true if it opened the breaker.
    fn record_failure(&self, wasted: Micros, now: Micros, probes_lane: bool) -> bool {
        let streak = self.failure_streak.fetch_add(1, Ordering::Relaxed) + 1;
        // While the breaker is open, only the probe counts; other calls began earlier or had no
        // alternative.
        let is_open = self.breaker.state(now) != BreakerState::Closed;
        if is_open && !probes_lane {
            return false;
        }
        if probes_lane || streak >= MAX_FAILURE_STREAK || self.exceeds_failure_rate(now) {
            *self.window.lock() = self.new_window(now);
            return self.breaker.trip(now, FAILURE_BACKOFF, wasted.min(MAX_SLOW_BACKOFF));
        }
        false
    }

    fn exceeds_failure_rate(&self, now: Micros) -> bool {
        let mut window = self.window.lock();
        if now - window.began_at > WINDOW_LENGTH {
            *window = self.new_window(now);
        }
        window.failed += 1;
        let answered = self.answered.load(Ordering::Relaxed).saturating_sub(window.answered);
        window.failed > answered && window.failed + answered >= MIN_WINDOW_CALLS
    }

    fn new_window(&self, now: Micros) -> FailureWindow {
        FailureWindow { began_at: now, answered: self.answered.load(Ordering::Relaxed), failed: 0 }
    }
}

/// One attempt on a lane. Dropping it without a result records none, because its caller
/// disconnected.
#[derive(Debug)]
pub struct AttemptGuard {
    health: Arc<HealthTracker>,
    began_at: Micros,
    /// True if this attempt probes the lane.
    probes_lane: bool,
    /// True if this attempt probes the credential.
    probes_credential: bool,
    is_reported: bool,
}

impl AttemptGuard {
    /// Records a response, including one that reports an error of the caller.
    pub fn succeeded(&mut self, now: Micros) {
        if !std::mem::replace(&mut self.is_reported, true) {
            self.health.record_success(self.began_at);
            self.health.record_latency(now - self.began_at, now);
        }
    }

    /// Records a failure. Returns true if the operator should be notified: the lane or its
    /// credential was good until now.
    pub fn failed(&mut self, failure: AttemptFailure, now: Micros) -> bool {
        let health = &self.health;
        health.last_failure.store(failure.code(), Ordering::Relaxed);
        // A stream that broke off after its start has not delayed its caller.
        let begun = std::mem::replace(&mut self.is_reported, true);
        let wasted = if begun { Micros::ZERO } else { now - self.began_at };
        match failure {
            AttemptFailure::Down | AttemptFailure::TimedOut => {
                health.record_failure(wasted, now, self.probes_lane)
            }
            AttemptFailure::RateLimited(wait) | AttemptFailure::Overloaded(wait) => {
                // A busy report proves that the lane responds.
                health.breaker.record_success(self.began_at);
                health.mark_busy(wait, now);
                false
            }
            AttemptFailure::CredentialRefused => {
                health.credential.0.trip(now, REFUSAL_BACKOFF, Micros::ZERO)
            }
            AttemptFailure::ModelGone => health.breaker.trip(now, REFUSAL_BACKOFF, Micros::ZERO),
            AttemptFailure::NotNow => {
                health.breaker.record_success(self.began_at);
                false
            }
        }
    }

    /// Records the output of a complete reply, and the thinking in it.
    pub fn record_output(&self, tokens: u64, thinking: u64, now: Micros) {
        self.health.output_speed.record(tokens, thinking, now - self.began_at);
    }

    /// Returns true if a reply of the lane had counts of its output.
    pub fn has_counted(&self) -> bool {
        self.health.output_speed.has_counted()
    }

    /// Returns true if a reply of the lane had thinking.
    pub fn has_thought(&self) -> bool {
        self.health.output_speed.has_thought()
    }

    /// Returns the output tokens that the lane usually makes in that time.
    pub fn usual_output(&self, time: Duration) -> u64 {
        self.health.usual_output(time)
    }

    /// Returns the duration of the attempt.
    pub fn elapsed(&self, now: Micros) -> Duration {
        (now - self.began_at).to_duration()
    }
}

impl Drop for AttemptGuard {
    fn drop(&mut self) {
        self.health.pending.fetch_sub(1, Ordering::Relaxed);
        if self.probes_lane {
            self.health.breaker.end_probe();
        }
        if self.probes_credential {
            self.health.credential.0.end_probe();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Micros = Micros::from_millis(1);

    const fn at(micros: i64) -> Micros {
        Micros::new(micros)
    }

    fn health() -> Arc<HealthTracker> {
        Arc::new(HealthTracker::new(Arc::default()))
    }

    fn fail(health: &Arc<HealthTracker>, now: Micros) -> bool {
        health.begin_attempt(now).failed(AttemptFailure::Down, now)
    }

    #[test]
    fn opens_after_five_failures_and_admits_one_probe() {
        let health = health();
        for now in 1..5 {
            assert!(!fail(&health, at(now)) && health.state(at(now)) == LaneState::Good);
        }
        assert!(fail(&health, at(5)));
        assert_eq!(health.state(at(5)), LaneState::CoolingDown(500 * MS));
        assert!(!fail(&health, at(6)), "an earlier call changes nothing");
        assert_eq!(health.state(at(6)), LaneState::CoolingDown(500 * MS - at(1)));
        let later = 501 * MS;
        assert_eq!(health.state(later), LaneState::Probing);
        let mut probe = health.begin_attempt(later);
        assert_eq!(health.state(later), LaneState::CoolingDown(1_500 * MS), "one probe at a time");
        probe.failed(AttemptFailure::Down, later);
        drop(probe);
        assert_eq!(health.state(later), LaneState::CoolingDown(1_000 * MS), "the backoff doubles");
        let mut probe = health.begin_attempt(later + 1_000 * MS);
        probe.succeeded(later + 1_001 * MS);
        drop(probe);
        assert_eq!(health.state(later + 1_001 * MS), LaneState::Good);
        assert_eq!((health.pending(), health.has_no_recent_failure()), (0, true));
    }

    #[test]
    fn abandoned_probe_is_left_to_the_next_call() {
        let health = health();
        (1..6).for_each(|now| {
            fail(&health, at(now));
        });
        drop(health.begin_attempt(600 * MS));
        assert_eq!(health.state(600 * MS), LaneState::Probing);
    }

    #[test]
    fn opens_when_most_calls_fail() {
        let health = health();
        let mut rested = None;
        for now in 1..100 {
            if now % 3 == 0 {
                health.begin_attempt(at(now)).succeeded(at(now));
            } else if fail(&health, at(now)) {
                rested = Some(now);
                break;
            }
        }
        assert!(rested.is_some_and(|now| (20..=25).contains(&now)), "{rested:?}");
    }

    #[test]
    fn busy_is_no_failure_and_ends_at_the_named_time() {
        let health = health();
        let wait = Some(Duration::from_secs(2));
        for _ in 0..10 {
            assert!(!health.begin_attempt(at(1)).failed(AttemptFailure::RateLimited(wait), at(1)));
        }
        assert_eq!(health.state(at(1)), LaneState::Busy(2_000 * MS));
        assert!(health.has_no_recent_failure() && health.is_rate_limited());
        assert_eq!(health.state(at(1) + 2_000 * MS), LaneState::Good);
        health.begin_attempt(at(1)).failed(AttemptFailure::Overloaded(None), 5_000 * MS);
        assert_eq!(health.state(5_000 * MS), LaneState::Busy(1_000 * MS));
        assert!(!health.is_rate_limited());
        health.begin_attempt(at(1)).failed(AttemptFailure::Overloaded(None), 7_000 * MS);
        assert_eq!(health.state(7_000 * MS), LaneState::Busy(2_000 * MS), "longer each time");
    }

    #[test]
    fn refused_credential_affects_all_its_lanes() {
        let credential = Arc::new(CredentialHealth::default());
        let one = Arc::new(HealthTracker::new(Arc::clone(&credential)));
        let two = Arc::new(HealthTracker::new(credential));
        assert!(
            one.begin_attempt(at(1)).failed(AttemptFailure::CredentialRefused, at(1)),
            "the operator is notified"
        );
        assert!(!one.begin_attempt(at(2)).failed(AttemptFailure::CredentialRefused, at(2)), "once");
        assert!(matches!(two.state(at(3)), LaneState::CoolingDown(left) if left >= 30_000 * MS));
        let mut lucky = two.begin_attempt(at(4));
        lucky.succeeded(at(5));
        assert_eq!(one.state(at(5)), LaneState::Good, "an answer proves the credential good");
    }

    #[test]
    fn latency_is_averaged_and_expires() {
        let health = health();
        assert_eq!(health.latency(Micros::ZERO), None);
        for millis in [700, 100] {
            health.begin_attempt(Micros::ZERO).succeeded(millis * MS);
            assert_eq!(health.latency(700 * MS), None, "too few samples");
        }
        health.begin_attempt(Micros::ZERO).succeeded(100 * MS);
        assert_eq!(health.latency(700 * MS), Some(300 * MS));
        assert_eq!(health.snapshot(700 * MS).latency, Some(Duration::from_millis(300)));
        for _ in 0..100 {
            health.begin_attempt(1_000 * MS).succeeded(1_010 * MS);
        }
        assert!(health.latency(1_010 * MS).is_some_and(|latency| latency < 11 * MS));
        assert_eq!(health.latency(12_000 * MS), None);
    }

    proptest! {
        /// No sequence loses a call, blocks a lane for ever, or opens its breaker because of load.
        #[test]
        fn every_state_ends(steps in prop::collection::vec((0..8u8, 0..400_000i64), 1..300)) {
            let health = health();
            let mut now = at(1);
            for (what, pass) in steps {
                now += at(pass);
                let mut attempt = health.begin_attempt(now);
                match what {
                    0 => { attempt.succeeded(now); }
                    1 => { attempt.failed(AttemptFailure::TimedOut, now); }
                    2 => { attempt.failed(AttemptFailure::RateLimited(Some(Duration::from_secs(60))), now); }
                    3 => { attempt.failed(AttemptFailure::Overloaded(None), now); }
                    4 => { attempt.failed(AttemptFailure::NotNow, now); }
                    5 => {}
                    _ => { attempt.failed(AttemptFailure::Down, now); }
                }
                drop(attempt);
                prop_assert_eq!(health.pending(), 0);
                let left = match health.state(now) {
                    LaneState::Good | LaneState::Probing => Micros::ZERO,
                    LaneState::Busy(left) | LaneState::CoolingDown(left) => left,
                };
                prop_assert!(left <= Micros::from_secs(62));
                let later = health.state(now + Micros::from_secs(62));
                prop_assert!(matches!(later, LaneState::Good | LaneState::Probing));
            }
        }
    }
}
