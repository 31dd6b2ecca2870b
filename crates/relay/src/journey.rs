//! One call's way through the lanes: which is tried first, which next, and when it is given up.

use canon::{Blame, ApiError, UpstreamProgress, ErrorKind};
use std::time::Duration;
use upstream::{Failure, Standing};

use super::Call;
use super::attempt::{failure, is_unknown};
use super::route::Pick;
use crate::request_id;

/// How often a call is sent at most, unless there are more lanes than that.
const TRIES: u32 = 3;
/// How long a lane that asked for it is waited for when there is no other.
const WAIT: Duration = Duration::from_secs(2);
/// How long a retry waits for others to prove that its lane is worth it.
const PROOF: Duration = Duration::from_millis(300);
/// The first pause before the same lane is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// One call's way through the lanes.
pub(super) struct Journey {
    /// Every lane with every credential, in the order in which to try them.
    picks: Vec<Pick>,
    /// How many of them, from the front, were looked at.
    seen: usize,
    retries: u32,
    refreshed: bool,
    waited: bool,
}

impl Journey {
    pub(super) fn new(picks: Vec<Pick>) -> Self {
        Self { picks, seen: 0, retries: 0, refreshed: false, waited: false }
    }

    /// Whether more than one try was paid for.
    pub(super) const fn has_retried(&self) -> bool {
        self.retries > 0
    }

    /// The first lane to try, whatever its state: the last one is never given up. Only those that
    /// asked to be left alone are, if that takes longer than a caller should wait.
    pub(super) async fn first(&mut self, call: &Call) -> Result<Pick, Option<ApiError>> {
        let pick = self.picks.first().cloned().ok_or(None)?;
        self.seen = 1;
        let Standing::Pressed(left) = pick.standing(call.engine.ticks()) else {
            return Ok(pick);
        };
        if self.sit_out(call, &pick, left).await {
            return Ok(pick);
        }
        let (trouble, say) = if pick.health.is_limited() {
            (ErrorKind::RateLimited, "the model's provider is at its rate limit, retry later")
        } else {
            (ErrorKind::Overloaded, "the model is overloaded, retry later")
        };
        let note = format!("lane {} asked to be left alone", pick.lane.name);
        let fault = ApiError::new(trouble, say).with_blame(Blame::Upstream).with_retry_after(micros(left));
        Err(Some(fault.with_log_note(note)))
    }

    /// The next lane to try after that one failed, or none.
    pub(super) async fn next(
        &mut self,
        call: &Call,
        last: &Pick,
        fault: &ApiError,
        attempts: u32,
    ) -> Option<Pick> {
        if fault.progress() == Some(UpstreamProgress::StaleConnection) && !std::mem::replace(&mut self.refreshed, true) {
            return Some(Pick { fresh: true, ..last.clone() });
        }
        if is_unknown(fault) && !call.config.resend {
            return None;
        }
        match self.other(call).await {
            Some(pick) => Some(pick),
            None => self.again(call, last, fault, attempts).await,
        }
    }

    /// The next lane that is expected to answer. The others are not pushed further by retries.
    pub(super) async fn other(&mut self, call: &Call) -> Option<Pick> {
        let now = call.engine.ticks();
        while let Some(pick) = self.picks.get(self.seen) {
            self.seen += 1;
            let standing = pick.standing(now);
            if matches!(standing, Standing::Good | Standing::Trial) {
                let pick = pick.clone();
                return self.afford(call, pick).await;
            }
        }
        None
    }

    /// There is no other lane: the ones there are once more, if that makes sense.
    async fn again(
        &mut self,
        call: &Call,
        last: &Pick,
        fault: &ApiError,
        attempts: u32,
    ) -> Option<Pick> {
        if attempts >= TRIES.max(u32::try_from(self.picks.len()).unwrap_or(TRIES)) {
            return None;
        }
        let now = call.engine.ticks();
        // Only a time that was named is waited for.
        if matches!(failure(fault), Failure::Limited(Some(_)) | Failure::Busy(Some(_))) {
            let left = |pick: &Pick| match pick.standing(now) {
                Standing::Pressed(left) | Standing::Resting(left) => left,
                Standing::Good | Standing::Trial => 0,
            };
            let soonest = self.picks.iter().min_by_key(|pick| left(pick)).cloned()?;
            return match self.sit_out(call, &soonest, left(&soonest)).await {
                true => self.afford(call, soonest).await,
                false => None,
            };
        }
        let repeats = match fault.progress() {
            Some(UpstreamProgress::Answered(408 | 409 | 425 | 500..)) => {
                !matches!(failure(fault), Failure::Limited(_) | Failure::Busy(_))
            }
            Some(UpstreamProgress::NotSent) => fault.kind() != ErrorKind::Timeout,
            Some(UpstreamProgress::Refused) => true,
            Some(UpstreamProgress::Answered(_) | UpstreamProgress::StaleConnection | UpstreamProgress::Sent) | None => false,
        };
        if !repeats || last.standing(now) != Standing::Good {
            return None;
        }
        let pick = self.afford(call, Pick { fresh: false, ..last.clone() }).await?;
        // Callers that failed together should not come back together.
        let spread = u32::try_from(request_id::luck(&call.id) % 100).unwrap_or(0);
        let pause = PAUSE.saturating_mul(self.retries) * (100 + spread) / 150;
        if pause > call.left(&pick.lane.timeouts) {
            return None;
        }
        tokio::time::sleep(pause).await;
        Some(pick)
    }

    /// Takes a retry from the lane's budget. A lane against which nothing is held is worth a short
    /// wait: others may be proving at this moment that it answers.
    async fn afford(&mut self, call: &Call, pick: Pick) -> Option<Pick> {
        const STEP: Duration = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while !pick.lane.budget.take(call.engine.ticks()) {
            let patience = PROOF.min(call.left(&pick.lane.timeouts));
            if !pick.health.is_innocent() || waited >= patience {
                tracing::warn!(
                    lane.name = pick.lane.name,
                    "`{}` is not tried again: its budget of retries is used up",
                    pick.lane.name
                );
                return None;
            }
            tokio::time::sleep(STEP).await;
            waited += STEP;
        }
        self.retries += 1;
        (call.left(&pick.lane.timeouts) > Duration::ZERO).then_some(pick)
    }

    /// Waits until a lane may be asked again, once per call, and not for long.
    async fn sit_out(&mut self, call: &Call, pick: &Pick, left: i64) -> bool {
        let left = micros(left);
        let fits = left <= WAIT && left < call.left(&pick.lane.timeouts);
        if !fits || std::mem::replace(&mut self.waited, true) {
            return false;
        }
        tokio::time::sleep(left).await;
        true
    }
}

fn micros(time: i64) -> Duration {
    Duration::from_micros(u64::try_from(time).unwrap_or(0))
}
