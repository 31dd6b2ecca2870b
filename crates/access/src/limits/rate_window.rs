//! How fast one key, or one account, is used and may be used.

use ledger::Micros;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use store::RateLimits;

use super::minute_window::MinuteWindow;

/// The pace of one key or account. Behind a lock of its own, like its purse: calls of different
/// keys never meet here.
#[derive(Debug, Default)]
pub struct RateWindow {
    /// Whether there is any limit at all; most keys have none and need no lock.
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

/// What other nodes used, as last heard: told to callers, never decided by.
#[derive(Clone, Copy, Debug, Default)]
struct RemoteUse {
    used: u64,
    reported_at: Micros,
}

impl RemoteUse {
    /// So much was used in all, of which this node used its own.
    fn from_total(now: Micros, all: u64, window: &mut MinuteWindow) -> Self {
        Self { used: all.saturating_sub(window.used(now)), reported_at: now }
    }

    /// What of it may still count.
    fn current(self, now: Micros) -> u64 {
        if now.saturating_sub(self.reported_at) < MINUTE_MICROS { self.used } else { 0 }
    }
}

const MINUTE_MICROS: Micros = 60_000_000;

/// What a call ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitExceeded {
    /// Too many requests in a minute; fewer in so long.
    Requests(u32, Duration),
    /// Too many tokens in a minute; fewer in so long.
    Tokens(u32, Duration),
    /// Too many calls at once.
    Calls(u32),
}

/// What of a limit is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemainingLimit {
    /// The limit.
    pub limit: u64,
    /// What is left of it now.
    pub remaining: u64,
    /// How long until all of it is there again.
    pub reset: Duration,
}

/// What of the limits is left; `None` where there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemainingLimits {
    pub requests: Option<RemainingLimit>,
    pub tokens: Option<RemainingLimit>,
    pub calls: Option<RemainingLimit>,
}

/// The share of a limit one of so many nodes may use: never nothing, unless nothing is allowed.
fn node_share(limit: u32, nodes: u32) -> u32 {
    (limit / nodes.max(1)).max(limit.min(1))
}

impl RateWindow {
    /// A pace with these limits.
    pub fn new(limits: RateLimits) -> Self {
        let pace = Self::default();
        pace.set_limits(limits);
        pace
    }

    /// Changes the limits. What was counted stays counted.
    pub fn set_limits(&self, limits: RateLimits) {
        let mut state = self.state.lock();
        state.limits = limits;
        self.is_limited.store(!limits.is_none(), Ordering::Relaxed);
    }

    /// The limits, if there are any.
    pub fn limits(&self) -> Option<RateLimits> {
        self.is_limited.load(Ordering::Relaxed).then(|| self.state.lock().limits)
    }

    /// One more call, of which nothing but its being a request is known. Tells the step it is
    /// counted in. Of calls at once this node may have its share, and of requests as well when
    /// it cannot ask the others.
    pub fn admit(
        &self,
        now: Micros,
        nodes: u32,
        alone: bool,
    ) -> Result<Option<i64>, LimitExceeded> {
        let mut state = self.state.lock();
        let RateState { limits, requests, tokens, running, .. } = &mut *state;
        if let Some(most) = limits.concurrency
            && *running >= node_share(most, nodes)
        {
            return Err(LimitExceeded::Calls(most));
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

    /// A call has ended.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(1);
    }

    /// A call that was let in here was refused elsewhere: it counts as never made.
    pub fn cancel(&self, now: Micros, step: Option<i64>) {
        self.state.lock().cancel(now, step);
    }

    /// All nodes together made so many requests in the last minute.
    pub fn set_shared_requests(&self, now: Micros, all: u64) {
        let mut state = self.state.lock();
        let RateState { requests, remote_requests: requests_elsewhere, .. } = &mut *state;
        *requests_elsewhere = RemoteUse::from_total(now, all, requests);
    }

    /// All nodes together used so many tokens in the last minute.
    pub fn set_shared_tokens(&self, now: Micros, all: u64) {
        let mut state = self.state.lock();
        let RateState { tokens, remote_tokens: tokens_elsewhere, .. } = &mut *state;
        *tokens_elsewhere = RemoteUse::from_total(now, all, tokens);
    }

    /// Whether a call that was let in is within this node's share of requests, now that the others
    /// cannot be asked. If not, it counts as never made from this very moment: of many that look at
    /// once no more are refused than have to be.
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

    /// Counts the tokens a call will use, by estimate. More than a minute's worth is counted as a
    /// minute's worth, lest it could never run. Tells the step and what was counted.
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

    /// What a call really used, in place of the estimate.
    pub fn correct_tokens(&self, now: Micros, step: i64, from: u64, to: u64) {
        self.state.lock().tokens.correct(now, step, from, to);
    }

    /// What of the limits is left.
    pub fn remaining(&self, now: Micros) -> RemainingLimits {
        if !self.is_limited.load(Ordering::Relaxed) {
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
    /// The tighter of each.
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
    fn of_many_that_find_themselves_alone_at_once_the_share_stays() {
        for round in 0..200 {
            let pace = RateWindow::new(RateLimits { rpm: Some(30), ..RateLimits::default() });
            let now = round * MINUTE_MICROS;
            let steps: Vec<_> = (0..30).map(|_| pace.admit(now, 3, false).unwrap()).collect();
            let begin = Barrier::new(6);
            let stay = |steps: &[Option<i64>]| {
                begin.wait();
                steps.iter().filter(|step| pace.check_share(now, 3, **step).is_ok()).count()
            };
            let stayed: usize = std::thread::scope(|scope| {
                let all: Vec<_> = steps.chunks(5).map(|some| scope.spawn(|| stay(some))).collect();
                all.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert_eq!(stayed, 10);
            assert!(pace.admit(now, 3, true).is_err());
        }
    }
}
