//! Money that is requested from the lease store, and the requests that it fails on or does not answer.

use canon::{Micros, Money};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Clock, KeyBalance, LeaseGrant, LeaseStoreError};

/// Time after which a request that nobody waits for any more counts as a failure of the store. A caller may
/// leave earlier.
const ANSWER_TIME: Micros = Micros::from_secs(1);
const NO_ANSWER: &str = "a request for money has no answer";

/// Money to request for a call.
#[derive(Clone, Copy, Default)]
pub(crate) struct LeaseNeed {
    pub(crate) full: Money,
    pub(crate) least: Money,
    /// Size of the whole hold.
    pub(crate) hold: Money,
}

/// A failure of the store to lease money, though it may answer everything else. On a full disk only some
/// statements fail.
#[derive(Clone)]
pub struct LeaseFailure {
    /// Steady time of the first failure since the last success.
    pub since: Micros,
    /// Reason of the last failure.
    pub why: String,
    pub(crate) balance: Arc<KeyBalance>,
}

/// The requests without an answer, and the failure to lease money, until money is leased again.
#[derive(Default)]
pub(crate) struct LeaseRequests(Mutex<RequestState>);

#[derive(Default)]
struct RequestState {
    failure: Option<LeaseFailure>,
    /// Steady time of each request without an answer, by its number.
    waiting: BTreeMap<i64, (Micros, Arc<KeyBalance>)>,
    /// When money was leased last.
    leased_at: Micros,
}

impl RequestState {
    /// Notes the result of a request.
    fn note(
        &mut self,
        balance: &Arc<KeyBalance>,
        granted: &Result<LeaseGrant, LeaseStoreError>,
        since: Micros,
    ) {
        let failed = &mut self.failure;
        let is_same = failed.as_ref().is_some_and(|failed| Arc::ptr_eq(&failed.balance, balance));
        match granted {
            Err(LeaseStoreError::Unreachable(why)) => {
                let since = failed.as_ref().map_or(since, |failed| failed.since);
                *failed =
                    Some(LeaseFailure { since, why: why.clone(), balance: Arc::clone(balance) });
            }
            // A request that leases nothing to another key may need less of the store.
            Ok(LeaseGrant::Lease { amount, .. }) if is_same || *amount > Money::ZERO => {
                *failed = None
            }
            Ok(LeaseGrant::Unlimited | LeaseGrant::Short(_)) if is_same => *failed = None,
            Ok(LeaseGrant::Lease { .. } | LeaseGrant::Unlimited | LeaseGrant::Short(_)) => {}
            Err(LeaseStoreError::Rejected(_)) if !is_same => {}
            Err(LeaseStoreError::Rejected(_) | LeaseStoreError::Fenced) => *failed = None,
        }
    }
}

impl LeaseRequests {
    /// Returns the failure that lasts, if there is one.
    pub(crate) fn failure(&self) -> Option<LeaseFailure> {
        self.0.lock().failure.clone()
    }

    /// Returns the same, or the oldest request without an answer since money was leased last.
    pub(crate) fn trouble(&self) -> Option<LeaseFailure> {
        let state = self.0.lock();
        let waiting = || {
            let (sent, balance) = state.waiting.values().next()?;
            let since = (*sent).max(state.leased_at);
            Some(LeaseFailure { since, why: NO_ANSWER.to_owned(), balance: Arc::clone(balance) })
        };
        state.failure.clone().or_else(waiting)
    }

    /// Notes that a request is sent.
    pub(crate) fn send<'a>(
        &'a self,
        seq: i64,
        balance: &'a Arc<KeyBalance>,
        clock: &'a dyn Clock,
    ) -> SentRequest<'a> {
        let sent = clock.steady();
        self.0.lock().waiting.insert(seq, (sent, Arc::clone(balance)));
        SentRequest { requests: self, seq, balance, clock, sent }
    }
}

/// A request until its answer. One that is dropped before had none in time.
pub(crate) struct SentRequest<'a> {
    requests: &'a LeaseRequests,
    seq: i64,
    balance: &'a Arc<KeyBalance>,
    clock: &'a dyn Clock,
    pub(crate) sent: Micros,
}

impl SentRequest<'_> {
    /// Notes the answer.
    pub(crate) fn answered(self, granted: &Result<LeaseGrant, LeaseStoreError>) {
        let now = self.clock.steady();
        let mut state = self.requests.0.lock();
        state.waiting.remove(&self.seq);
        if matches!(granted, Ok(LeaseGrant::Lease { amount, .. }) if *amount > Money::ZERO) {
            state.leased_at = now;
        }
        state.note(self.balance, granted, now);
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        let now = self.clock.steady();
        let mut state = self.requests.0.lock();
        let is_unanswered = state.waiting.remove(&self.seq).is_some();
        if is_unanswered && now.saturating_sub(self.sent) >= ANSWER_TIME {
            let since = self.sent.max(state.leased_at);
            let failed = Err(LeaseStoreError::Unreachable(NO_ANSWER.to_owned()));
            state.note(self.balance, &failed, since);
        }
    }
}
