//! Attempts at lanes: their begin, their failure, and the cost that a failed one leaves to the operator.

use canon::{ApiError, Blame, Money, UpstreamProgress, Usage};
use dialects::ReplyMeter;
use ledger::{FailedAttempt, LaterAttempt};
use std::sync::Arc;
use std::time::{Duration, Instant};
use upstream::{AttemptFailure, InFlightSlot};

use super::CallAccount;
use crate::route::Candidate;

/// Time after which a connection that closes without an answer was not closed while it was idle: the
/// provider may have worked.
const STALE_WITHIN: Duration = Duration::from_millis(500);

impl CallAccount {
    /// Starts an attempt if the provider has a free slot. The lane's prices apply from here on. The
    /// journal has the attempt at the end, with what earlier ones have cost.
    pub(crate) async fn begin_attempt(&mut self, candidate: &Candidate) -> Result<(), ApiError> {
        let lane = &candidate.lane;
        let slot = lane.in_flight.admit(lane.provider.max_in_flight);
        let slot = slot.map_err(|error| {
            error.with_blame(Blame::Upstream).with_progress(UpstreamProgress::NotSent)
        })?;
        let is_first = self.entry.failed.is_empty() && self.entry.absorbed == Money::ZERO;
        match &mut self.hold {
            Some(hold) if is_first && hold.is_first_lane(&lane.name) => hold.note_sent(),
            Some(hold) => {
                let costs = self.lane_costs.iter().find(|(name, _)| *name == lane.name);
                let (start_cost, cost_per_second) =
                    costs.map(|(_, costs)| *costs).unwrap_or_default();
                let attempt = LaterAttempt {
                    start_cost,
                    cost_per_second,
                    price_version: lane.prices.version.to_string(),
                    absorbed: self.entry.absorbed,
                    failed: self.entry.failed.clone(),
                    ..LaterAttempt::default()
                };
                // The journal counts a failure. The call goes on, as it does without a checkpoint.
                drop(hold.note_later_attempt(&lane.name, attempt).await);
            }
            None => {}
        }
        let now = Instant::now();
        self.attempt = Some((candidate.health.begin_attempt(self.engine.monotonic_at(now)), slot));
        self.sent.clear();
        self.entry.attempts += 1;
        (self.copies, self.cached_input) = (1, 0);
        self.has_absorbed = false;
        (self.attempt_usage, self.absorbed_before) = (Usage::default(), self.entry.absorbed);
        self.entry.lane = lane.name.clone();
        self.lane_calls = Arc::clone(&lane.calls);
        self.attempt_started = now;
        self.silence = Duration::ZERO;
        self.meter = ReplyMeter::default();
        self.searches_once = lane.served_model.counts.searches_once;
        if self.prices.version != lane.prices.version {
            self.prices = Arc::clone(&lane.prices);
            self.entry.price_version = lane.prices.version.clone();
        }
        let is_text = || lane.capabilities.output.iter().all(|kind| kind == "text");
        let may_exceed = self.entry.stream && is_text();
        self.max_reply_bytes = may_exceed.then(|| self.max_affordable_bytes()).flatten();
        Ok(())
    }

    /// Sets the number of requests that the current attempt sends. Each has the whole input.
    pub(crate) fn set_copies(&mut self, copies: u32) {
        self.copies = u64::from(copies.max(1));
    }

    /// Takes further places at the provider, at most one for each copy but the first.
    pub(crate) fn admit_copies(&self, candidate: &Candidate, copies: u32) -> Vec<InFlightSlot> {
        let lane = &candidate.lane;
        let admit = |_| lane.in_flight.admit(lane.provider.max_in_flight).ok();
        (1..copies).map_while(admit).collect()
    }

    /// Adds the cost of copies that no caller gets, because another one failed: of those with a reply
    /// by its usage, of those that were running by an estimate.
    pub(crate) fn absorb_copies<'a>(
        &mut self,
        replies: impl Iterator<Item = &'a ReplyMeter>,
        running: usize,
    ) {
        for meter in replies {
            self.absorb_answer(meter);
        }
        for _ in 0..running {
            self.absorb_answer(&ReplyMeter::default());
        }
        // The copy that failed is still to be absorbed.
        self.has_absorbed = false;
    }

    /// Returns true while a lane is being tried.
    pub(crate) fn has_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// Ends an attempt on a connection that the provider closed without an answer. It is taken back if the
    /// connection was closed while it was idle. A provider that had the whole request for a while may have
    /// worked on it, so that its cost is absorbed.
    pub(crate) fn end_stale_attempt(&mut self) {
        let has_worked = self.sent.is_whole() && self.attempt_started.elapsed() >= STALE_WITHIN;
        if has_worked {
            self.absorb_attempt();
            self.record_failed(AttemptFailure::Down, None);
        } else {
            self.entry.attempts = self.entry.attempts.saturating_sub(1);
        }
        self.attempt = None;
        self.sent.clear();
    }

    /// Adds the current attempt to the failed ones.
    fn record_failed(&mut self, failure: AttemptFailure, status: Option<u16>) {
        let elapsed = self.attempt_started.elapsed();
        self.entry.failed.push(FailedAttempt {
            lane: self.entry.lane.to_string(),
            outcome: failure.as_str().to_owned(),
            status,
            ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// Returns true if the provider may have worked on the current attempt: it has the whole request, or
    /// has answered before.
    pub(super) fn may_have_worked(&self) -> bool {
        self.sent.is_whole() || self.meter.usage.is_some() || self.meter.output_bytes > 0
    }

    /// Returns the number of attempts.
    pub(crate) fn attempts(&self) -> u32 {
        self.entry.attempts
    }

    /// Records that the lane answered, even if it refused the request.
    pub(crate) fn attempt_answered(&mut self) {
        self.answered_at(Instant::now());
    }

    pub(super) fn answered_at(&mut self, now: Instant) {
        if let Some((attempt, _)) = &mut self.attempt {
            attempt.succeeded(self.engine.monotonic_at(now));
        }
    }

    /// Records an attempt that was not a call of the model, and that its provider refused. It says nothing of
    /// the lane's health. `spent` says that the provider may bill it, which the operator absorbs. The account's
    /// goodwill covers a deadline, or the key pays.
    pub(crate) fn attempt_refused(&mut self, error: &ApiError, spent: bool) {
        let failure = crate::send::classify_failure(error);
        if spent && !self.has_absorbed && self.may_have_worked() {
            self.absorb_recorded();
            if failure == AttemptFailure::TimedOut {
                self.push_deadline_loss();
            }
        }
        self.record_failed(failure, told_status(error));
        self.attempt = None;
        self.sent.clear();
    }

    /// Records a failed attempt. `spent` says that the provider may bill it, which the operator
    /// absorbs. Returns true if the operator should be alerted.
    pub(crate) fn attempt_failed(
        &mut self,
        failure: AttemptFailure,
        error: &ApiError,
        spent: bool,
    ) -> bool {
        if spent && !self.has_absorbed && self.may_have_worked() {
            self.absorb_recorded();
        }
        if spent && failure == AttemptFailure::TimedOut && self.sent.is_whole() {
            self.note_deadline();
        }
        let Some((mut attempt, _)) = self.attempt.take() else { return false };
        let now = self.engine.monotonic_now();
        let status = told_status(error);
        self.record_failed(failure, status);
        self.sent.clear();
        attempt.failed(failure, now)
    }
}

/// Returns the status of the provider's answer, if there was one.
fn told_status(error: &ApiError) -> Option<u16> {
    match error.progress() {
        Some(UpstreamProgress::Answered(status)) => Some(status),
        Some(
            UpstreamProgress::NotSent
            | UpstreamProgress::StaleConnection
            | UpstreamProgress::Refused
            | UpstreamProgress::Sent,
        )
        | None => None,
    }
}
