//! Limits of one key or account, and their use in the last minute.
use canon::Micros;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::RateLimits;

use super::minute_window::MinuteWindow;

/// Rate window of one key or account. It has its own lock, so that calls of different keys never
/// contend.
#[derive(Debug, Default)]
pub struct RateWindow {
    /// False for most keys; a call then takes no lock.
    is_limited: AtomicBool,
    state: Mutex<RateState>,
}

#[derive(Debug, Default)]
struct RateState {
    limits: RateLimits,
    requests: MinuteWindow,
    tokens: MinuteWindow,
    running: u32,
    remote_requests: RemoteUse,
    remote_tokens: RemoteUse,
}

impl RateState {
    fn cancel(&mut self, now: Micros, step: Option<i64>) {
        self.running = self.running.saturating_sub(1);
        if let Some(step) = step {
            self.requests.correct(now, step, 1, 0);
        }
    }
}

/// Use by other nodes as last reported. Shown in response headers, never used to refuse a call.
#[derive(Clone, Copy, Debug, Default)]
struct RemoteUse {
    used: u64,
    reported_at: Micros,
}

impl RemoteUse {
    /// Derives it from the total over all nodes, minus this node's own use.
    fn from_total(now: Micros, all: u64, window: &mut MinuteWindow) -> Self {
        Self { used: all.saturating_sub(window.used(now)), reported_at: now }
    }

    /// Returns the use while it is less than a minute old.
    fn current(self, now: Micros) -> u64 {
        if now - self.reported_at < MINUTE { self.used } else { 0 }
    }
}

const MINUTE: Micros = Micros::from_secs(60);

/// A limit that a call would exceed. The duration is the time to retry after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Requests per minute.
    Requests(u32, Duration),
    /// Tokens per minute.
    Tokens(u32, Duration),
    /// Concurrent calls.
    Calls(u32),
}

/// Remaining part of one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingLimit {
    /// Limit per minute, or of concurrent calls.
    pub limit: u64,
    /// Amount left now.
    pub remaining: u64,
    /// Time until the whole limit is available again.
    pub reset: Duration,
}

/// Remaining limits of a key; `None` where no limit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingLimits {
    /// Requests per minute.
    pub requests: Option<RemainingLimit>,
    /// Tokens per minute.
    pub tokens: Option<RemainingLimit>,
    /// Concurrent calls.
    pub calls: Option<RemainingLimit>,
}

/// Share of a limit that one of `nodes` nodes may use. At least 1 unless the limit is 0.
fn node_share(limit: u32, nodes: u32) -> u32 {
    (limit / nodes.max(1)).max(limit.min(1))
}

impl RateWindow {
    /// Creates a window with these limits.
    pub fn new(limits: RateLimits) -> Self {
        let window = Self::default();
        window.set_limits(limits);
        window
    }

    /// Changes the limits. Earlier counts are kept.
    pub fn set_limits(&self, limits: RateLimits) {
        let mut state = self.state.lock();
        state.limits = limits;
        self.is_limited.store(!limits.is_none(), Ordering::Relaxed);
    }

    /// Returns true if any limit is set.
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// Returns the limits, if any is set.
    pub fn limits(&self) -> Option<RateLimits> {
        self.is_limited().then(|| self.state.lock().limits)
    }

    /// Counts a call and returns the step its request is counted in.
    ///
    /// This node may use its share of the concurrency limit. Of the request limit it may use all,
    /// or its share if `alone` says that other nodes cannot be asked.
    pub fn admit(
        &self,
        now: Micros,
        nodes: u32,
        alone: bool,
    ) -> Result<Option<i64>, LimitExceeded> {
        let mut state = self.state.lock();
        let RateState { limits, requests, tokens, running, .. } = &mut *state;
        if let Some(limit) = limits.concurrency
            && *running >= node_share(limit, nodes)
        {
            return Err(LimitExceeded::Calls(limit));
        }
        if let Some(limit) = limits.tpm
            && tokens.used(now) >= u64::from(limit)
        {
            let wait = tokens.take(now, 1, u64::from(limit)).err().unwrap_or_default();
            return Err(LimitExceeded::Tokens(limit, wait));
        }
        let mut counted = None;
        if let Some(limit) = limits.rpm {
            let allowed = u64::from(if alone { node_share(limit, nodes) } else { limit });
            let step = requests.take(now, 1, allowed);
            counted = Some(step.map_err(|wait| LimitExceeded::Requests(limit, wait))?);
        }
        *running += 1;
        Ok(counted)
    }

    /// Ends a call.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(1);
    }

    /// Takes back an admission that another window or the shared count refused.
    pub fn cancel(&self, now: Micros, step: Option<i64>) {
        self.state.lock().cancel(now, step);
    }

    /// Records the requests of all nodes in the last minute.
    pub fn set_shared_requests(&self, now: Micros, all: u64) {
        let mut state = self.state.lock();
        let RateState { requests, remote_requests: requests_elsewhere, .. } = &mut *state;
        *requests_elsewhere = RemoteUse::from_total(now, all, requests);
    }

    /// Records the tokens of all nodes in the last minute.
    pub fn set_shared_tokens(&self, now: Micros, all: u64) {
        let mut state = self.state.lock();
        let RateState { tokens, remote_tokens: tokens_elsewhere, .. } = &mut *state;
        *tokens_elsewhere = RemoteUse::from_total(now, all, tokens);
    }

    /// Checks an admitted call against this node's share of requests, after the shared count became
    /// unreachable.
    ///
    /// An excess call is taken back under the same lock, so that concurrent checks refuse no more
    /// calls than necessary.
    pub fn check_share(
        &self,
        now: Micros,
        nodes: u32,
        step: Option<i64>,
    ) -> Result<(), LimitExceeded> {
        let mut state = self.state.lock();
        let Some(limit) = state.limits.rpm else { return Ok(()) };
        let allowed = u64::from(node_share(limit, nodes));
        if state.requests.used(now) <= allowed {
            return Ok(());
        }
        let wait = state.requests.take(now, 0, allowed).err().unwrap_or_default();
        state.cancel(now, step);
        Err(LimitExceeded::Requests(limit, wait))
    }

    /// Counts an estimate of the call's tokens. Returns the step and the amount counted.
    ///
    /// An estimate above the limit is counted as the limit, because the call could never run
    /// otherwise.
    pub fn count_tokens(
        &self,
        now: Micros,
        estimate: u64,
        nodes: u32,
        alone: bool,
    ) -> Result<Option<(i64, u64)>, LimitExceeded> {
        let mut state = self.state.lock();
        let Some(limit) = state.limits.tpm else { return Ok(None) };
        let allowed = u64::from(if alone { node_share(limit, nodes) } else { limit });
        let counted = estimate.min(allowed);
        match state.tokens.take(now, counted, allowed) {
            Ok(step) => Ok(Some((step, counted))),
            Err(wait) => Err(LimitExceeded::Tokens(limit, wait)),
        }
    }

    /// Replaces an estimate by the tokens used.
    pub fn correct_tokens(&self, now: Micros, step: i64, from: u64, to: u64) {
        self.state.lock().tokens.correct(now, step, from, to);
    }

    /// Returns the remaining limits.
    pub fn remaining(&self, now: Micros) -> RemainingLimits {
        if !self.is_limited() {
            return RemainingLimits::default();
        }
        let mut state = self.state.lock();
        let RateState {
            limits,
            requests,
            tokens,
            running,
            remote_requests: requests_elsewhere,
            remote_tokens: tokens_elsewhere,
        } = &mut *state;
        let left = |window: &mut MinuteWindow, elsewhere: RemoteUse, limit: u32| {
            let limit = u64::from(limit);
            let used = window.used(now).saturating_add(elsewhere.current(now));
            let remaining = limit.saturating_sub(used);
            RemainingLimit { limit, remaining, reset: window.reset(now) }
        };
        RemainingLimits {
            requests: limits.rpm.map(|limit| left(requests, *requests_elsewhere, limit)),
            tokens: limits.tpm.map(|limit| left(tokens, *tokens_elsewhere, limit)),
            calls: limits.concurrency.map(|limit| RemainingLimit {
                limit: u64::from(limit),
                remaining: u64::from(limit.saturating_sub(*running)),
                reset: Duration::ZERO,
            }),
        }
    }
}

impl RemainingLimits {
    /// Returns the tighter of each pair of limits.
    pub fn tighter(self, other: Self) -> Self {
        let tighter = |a: Option<RemainingLimit>, b: Option<RemainingLimit>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.remaining < a.remaining { b } else { a }),
            (a, b) => a.or(b),
        };
        Self {
            requests: tighter(self.requests, other.requests),
            tokens: tighter(self.tokens, other.tokens),
            calls: tighter(self.calls, other.calls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn concurrent_checks_keep_exactly_the_share() {
        for round in 0..200 {
            let window = RateWindow::new(RateLimits { rpm: Some(30), ..RateLimits::default() });
            let now = round * MINUTE;
            let steps: Vec<_> = (0..30).map(|_| window.admit(now, 3, false).unwrap()).collect();
            let begin = Barrier::new(6);
            let stay = |steps: &[Option<i64>]| {
                begin.wait();
                steps.iter().filter(|step| window.check_share(now, 3, **step).is_ok()).count()
            };
            let stayed: usize = std::thread::scope(|scope| {
                let all: Vec<_> = steps.chunks(5).map(|some| scope.spawn(|| stay(some))).collect();
                all.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert_eq!(stayed, 10);
            assert!(window.admit(now, 3, true).is_err());
        }
    }
}
