//! Retry plan of a call: the first lane, the next lane, and the end of retries.

use canon::{ApiError, Blame, ErrorKind, Micros, UpstreamProgress};
use std::time::Duration;
use upstream::{AttemptFailure, LaneState};

use super::Call;
use super::route::Candidate;
use super::send::{classify_failure, may_have_run};
use crate::request_id;

/// Limit of attempts, unless there are more candidates than that.
const MAX_ATTEMPTS: u32 = 3;
/// Longest wait for a lane that asked for a pause, if there is no other.
const MAX_LANE_WAIT: Duration = Duration::from_secs(2);
/// Longest wait for the retry budget of a lane. Successful calls of others refill it.
const MAX_BUDGET_WAIT: Duration = Duration::from_millis(300);
/// First pause before a retry on the same lane.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Lanes that a call may still try.
pub(super) struct RetryPlan {
    /// Every lane with every credential, in the order to try them.
    candidates: Vec<Candidate>,
    /// Number of candidates considered so far.
    considered: usize,
    retries: u32,
    used_new_connection: bool,
    has_waited: bool,
}

impl RetryPlan {
    pub(super) fn new(candidates: Vec<Candidate>) -> Self {
        Self {
            candidates,
            considered: 0,
            retries: 0,
            used_new_connection: false,
            has_waited: false,
        }
    }

    /// Returns true if a retry was taken from a budget.
    pub(super) const fn has_retried(&self) -> bool {
        self.retries > 0
    }

    /// Returns the first lane, even one in poor health, because the last lane is never given up.
    ///
    /// Fails only if the lane asked for a pause that is longer than a caller should wait.
    pub(super) async fn first_candidate(
        &mut self,
        call: &Call,
    ) -> Result<Candidate, Option<ApiError>> {
        let candidate = self.candidates.first().cloned().ok_or(None)?;
        self.considered = 1;
        let LaneState::Busy(left) = candidate.standing(call.engine.monotonic_now()) else {
            return Ok(candidate);
        };
        if self.wait_for_lane(call, &candidate, left).await {
            return Ok(candidate);
        }
        let (kind, message) = if candidate.health.is_rate_limited() {
            (ErrorKind::RateLimited, "the model's provider is at its rate limit, retry later")
        } else {
            (ErrorKind::Overloaded, "the model is overloaded, retry later")
        };
        let note = format!("lane {} asked for a pause", candidate.lane.name);
        let error = ApiError::new(kind, message)
            .with_blame(Blame::Upstream)
            .with_retry_after(left.to_duration());
        Err(Some(error.with_log_note(note)))
    }

    /// Returns the next lane after a failure; `None` to give up.
    pub(super) async fn next_candidate(
        &mut self,
        call: &Call,
        last: &Candidate,
        error: &ApiError,
        attempts: u32,
    ) -> Option<Candidate> {
        if error.progress() == Some(UpstreamProgress::StaleConnection)
            && !std::mem::replace(&mut self.used_new_connection, true)
        {
            return Some(Candidate { new_connection: true, ..last.clone() });
        }
        if may_have_run(error) && !call.config.resend_uncertain_calls {
            return None;
        }
        match self.next_lane(call).await {
            Some(candidate) => Some(candidate),
            None => self.repeat_lane(call, last, error, attempts).await,
        }
    }

    /// Returns the next lane that is expected to answer. Retries would only add load to the others.
    pub(super) async fn next_lane(&mut self, call: &Call) -> Option<Candidate> {
        let candidate = self.skip_lane(call)?;
        self.take_retry(call, candidate).await
    }

    /// Returns the next lane that is expected to answer, after one that was not asked.
    pub(super) fn skip_lane(&mut self, call: &Call) -> Option<Candidate> {
        let now = call.engine.monotonic_now();
        while let Some(candidate) = self.candidates.get(self.considered) {
            self.considered += 1;
            let standing = candidate.standing(now);
            if matches!(standing, LaneState::Good | LaneState::Probing) {
                return Some(candidate.clone());
            }
        }
        None
    }

    /// Returns a lane that was tried before, if a repetition can succeed.
    async fn repeat_lane(
        &mut self,
        call: &Call,
        last: &Candidate,
        error: &ApiError,
        attempts: u32,
    ) -> Option<Candidate> {
        if attempts
            >= MAX_ATTEMPTS.max(u32::try_from(self.candidates.len()).unwrap_or(MAX_ATTEMPTS))
        {
            return None;
        }
        let now = call.engine.monotonic_now();
        // Only an announced wait is worth waiting for.
        if matches!(
            classify_failure(error),
            AttemptFailure::RateLimited(Some(_)) | AttemptFailure::Overloaded(Some(_))
        ) {
            let left = |candidate: &Candidate| match candidate.standing(now) {
                LaneState::Busy(left) | LaneState::CoolingDown(left) => left,
                LaneState::Good | LaneState::Probing => Micros::ZERO,
            };
            let soonest =
                self.candidates.iter().min_by_key(|candidate| left(candidate)).cloned()?;
            return match self.wait_for_lane(call, &soonest, left(&soonest)).await {
                true => self.take_retry(call, soonest).await,
                false => None,
            };
        }
        let repeats = match error.progress() {
            Some(UpstreamProgress::Answered(408 | 409 | 425 | 500..)) => !matches!(
                classify_failure(error),
                AttemptFailure::RateLimited(_) | AttemptFailure::Overloaded(_)
            ),
            Some(UpstreamProgress::NotSent) => error.kind() != ErrorKind::Timeout,
            Some(UpstreamProgress::Refused) => true,
            Some(
                UpstreamProgress::Answered(_)
                | UpstreamProgress::StaleConnection
                | UpstreamProgress::Sent,
            )
            | None => false,
        };
        if !repeats || last.standing(now) != LaneState::Good {
            return None;
        }
        let candidate =
            self.take_retry(call, Candidate { new_connection: false, ..last.clone() }).await?;
        // Jitter: callers that failed together must not return together.
        let spread = u32::try_from(request_id::random_from_id(&call.id) % 100).unwrap_or(0);
        let pause = FIRST_RETRY_PAUSE.saturating_mul(self.retries) * (100 + spread) / 150;
        if pause > call.time_left(&candidate.lane.timeouts) {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some(candidate)
    }

    /// Takes a retry from the budget of the lane.
    ///
    /// A healthy lane is worth a short wait: successful calls of others refill its budget.
    async fn take_retry(&mut self, call: &Call, candidate: Candidate) -> Option<Candidate> {
        const POLL_INTERVAL: Duration = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while !candidate.lane.retry_budget.try_take(call.engine.monotonic_now()) {
            let max_wait = MAX_BUDGET_WAIT.min(call.time_left(&candidate.lane.timeouts));
            if !candidate.health.has_no_recent_failure() || waited >= max_wait {
                call.engine.metrics.refused_retries.inc();
                tracing::warn!(
                    lane.name = &*candidate.lane.name,
                    "`{}` is not retried: its retry budget is used up",
                    candidate.lane.name
                );
                return None;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            waited += POLL_INTERVAL;
        }
        self.retries += 1;
        (call.time_left(&candidate.lane.timeouts) > Duration::ZERO).then_some(candidate)
    }

    /// Waits for a lane that asked for a pause. At most once per call.
    async fn wait_for_lane(&mut self, call: &Call, candidate: &Candidate, left: Micros) -> bool {
        let left = left.to_duration();
        let fits = left <= MAX_LANE_WAIT && left < call.time_left(&candidate.lane.timeouts);
        if !fits || std::mem::replace(&mut self.has_waited, true) {
            return false;
        }
        tokio::time::sleep(left).await;
        true
    }
}
