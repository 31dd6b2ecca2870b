//! Lanes are tried until one answers: in their order, within the retry budget and the deadline,
//! and the next one only before the caller saw a byte.

use axum::response::Response;
use canon::{Blame, Fault, Reach, Trouble};
use dialects::{Dialect, Outgoing, Peek};
use http::{HeaderMap, HeaderValue};
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::time::Duration;
use upstream::{Answer, Body, Failure, Sending, Standing, wait_hint};

use super::admit::Admitted;
use super::fetch::Named;
use super::prepare::{Prepared, prepare, speech};
use super::route::Pick;
use super::settle::Tab;
use super::wishes::HOPS;
use super::{Call, pump, route, whole};
use crate::config::Route;
use crate::ids;

/// How much of a provider's error is read.
const ERROR_BODY: usize = 64 << 10;
/// How long a provider may take to tell its error.
const ERROR_TIME: Duration = Duration::from_secs(5);
/// How often a call is sent at most, unless there are more lanes than that.
const TRIES: u32 = 3;
/// How long a lane that asked for it is waited for when there is no other.
const WAIT: Duration = Duration::from_secs(2);
/// How long a retry waits for others to prove that its lane is worth it.
const PROOF: Duration = Duration::from_millis(300);
/// The first pause before the same lane is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// Has a conversation answered by one of the lanes. On failure the tab is closed as failed.
pub(super) async fn attempt(
    call: &Arc<Call>,
    peek: &Peek,
    found: &Route,
    admitted: Admitted,
    named: Named,
) -> Result<Response, Fault> {
    let Admitted { tab, limit, asked } = admitted;
    let named = &named;
    let origin = call.dialect.origin();
    let one = |pick: Pick, mut tab: Tab| async move {
        let lane = &pick.lane;
        // Money was set aside for the output of the model asked for; another may not say more.
        let own = pick.lane.serves.id == found.model.id || peek.max_output.is_some();
        let limit = if own { limit } else { limit.or(Some(asked)) };
        let ready = async {
            let brought = named.bring(call, lane, speech(lane, origin)?.origin()).await?;
            prepare(call, peek, lane, limit, &brought)
        };
        let prepared = match ready.await {
            Ok(prepared) => prepared,
            Err(fault) => return Err((fault, tab)),
        };
        tab.try_lane(&pick);
        try_lane(call, peek, &pick, prepared, tab).await
    };
    over_lanes(call, &peek.model, found, tab, one).await
}

/// Tries the lanes, whatever is asked of them. On failure the tab is closed as failed.
pub(super) async fn over_lanes<F, A>(
    call: &Call,
    model: &str,
    found: &Route,
    mut tab: Tab,
    one: F,
) -> Result<Response, Fault>
where
    F: Fn(Pick, Tab) -> A,
    A: Future<Output = Result<Response, (Fault, Tab)>>,
{
    let mut journey = Journey::new(route::order(call, found, call.app.ticks()));
    let mut next = match journey.first(call).await {
        Ok(pick) => pick,
        Err(fault) => return Err(give_up(tab, call, fault.unwrap_or_else(|| no_lane(model)))),
    };
    next.lane.budget.call();
    loop {
        match one(next.clone(), tab).await {
            Ok(response) => {
                if journey.retries > 0 {
                    next.lane.budget.worthwhile();
                }
                return Ok(response);
            }
            Err((fault, open)) => {
                tab = open;
                if fault.blamed() == Blame::Caller {
                    tab.lane_answered();
                    return Err(give_up(tab, call, fault));
                }
                let tried = tab.is_trying();
                note(call, model, &next, &fault, &mut tab);
                let onward = if tried {
                    journey.next(call, &next, &fault, tab.attempts()).await
                } else {
                    // It could not even be asked, and that will not change.
                    journey.other(call).await
                };
                match onward {
                    Some(pick) => next = pick,
                    None => return Err(give_up(tab, call, fault)),
                }
            }
        }
    }
}

/// A lane failed: its health, the record and the log are told.
fn note(call: &Call, model: &str, pick: &Pick, fault: &Fault, tab: &mut Tab) {
    let name = pick.lane.name.as_str();
    let why = fault.noted().unwrap_or_default();
    if !tab.is_trying() {
        tracing::warn!(lane.name = name, model.id = model, "lane `{name}` cannot serve: {why}");
        return;
    }
    if fault.reached() == Some(Reach::Stale) {
        tab.untry();
        tracing::debug!(lane.name = name, "a kept connection to `{name}` was closed meanwhile");
        return;
    }
    let failure = failure(fault);
    let alarm = tab.lane_failed(failure, fault, is_unknown(fault));
    let credential = pick.credential + 1;
    match failure {
        Failure::Refused if alarm => tracing::error!(
            lane.name = name,
            credential,
            "`{}` refuses credential {credential}, which rests now; check key and balance [{why}]",
            pick.lane.provider.name
        ),
        Failure::Gone if alarm => tracing::error!(
            lane.name = name,
            model.id = model,
            "lane `{name}` does not know its model; check the configuration [{why}]"
        ),
        Failure::Down | Failure::Slow if alarm => tracing::warn!(
            lane.name = name,
            model.id = model,
            "lane `{name}` keeps failing and rests now: {fault} [{why}]"
        ),
        Failure::Down
        | Failure::Slow
        | Failure::Limited(_)
        | Failure::Busy(_)
        | Failure::Refused
        | Failure::Gone
        | Failure::Odd => tracing::warn!(
            lane.name = name,
            model.id = model,
            request.id = %call.id,
            "lane `{name}` failed for `{model}`: {fault} [{why}]"
        ),
    }
}

/// What a fault says of the lane it came from.
pub(super) fn failure(fault: &Fault) -> Failure {
    match (fault.reached(), fault.trouble()) {
        (Some(Reach::Answered(401..=403)), _) => Failure::Refused,
        (Some(Reach::Answered(404)), _) => Failure::Gone,
        (Some(Reach::Answered(408 | 409 | 425)), _) => Failure::Odd,
        (Some(Reach::Answered(429)), _) | (_, Trouble::RateLimit) => Failure::Limited(fault.wait()),
        (Some(Reach::Answered(529)), _) | (_, Trouble::Overload) => Failure::Busy(fault.wait()),
        (Some(Reach::Answered(503)), _) if fault.wait().is_some() => Failure::Busy(fault.wait()),
        (_, Trouble::Timeout) => Failure::Slow,
        _ => Failure::Down,
    }
}

/// Whether the provider may have done work that nobody will see.
fn is_unknown(fault: &Fault) -> bool {
    match fault.reached() {
        Some(Reach::Nothing | Reach::Stale | Reach::Answered(_)) => false,
        Some(Reach::Sent) | None => true,
    }
}

fn no_lane(model: &str) -> Fault {
    Fault::new(Trouble::Unavailable, "no provider serves this model at the moment")
        .note(format!("model {model} has no lane"))
}

fn give_up(tab: Tab, call: &Call, fault: Fault) -> Fault {
    let (status, _) = call.dialect.write_fault(&fault, &call.id);
    tab.failed(status);
    fault
}

/// One call's way through the lanes.
struct Journey {
    /// Every lane with every credential, in the order in which to try them.
    picks: Vec<Pick>,
    /// How many of them, from the front, were looked at.
    seen: usize,
    retries: u32,
    refreshed: bool,
    waited: bool,
}

impl Journey {
    fn new(picks: Vec<Pick>) -> Self {
        Self { picks, seen: 0, retries: 0, refreshed: false, waited: false }
    }

    /// The first lane to try, whatever its state: the last one is never given up. Only those that
    /// asked to be left alone are, if that takes longer than a caller should wait.
    async fn first(&mut self, call: &Call) -> Result<Pick, Option<Fault>> {
        let pick = self.picks.first().cloned().ok_or(None)?;
        self.seen = 1;
        let Standing::Pressed(left) = pick.health.standing(call.app.ticks()) else {
            return Ok(pick);
        };
        if self.sit_out(call, &pick, left).await {
            return Ok(pick);
        }
        let (trouble, say) = if pick.health.is_limited() {
            (Trouble::RateLimit, "the model's provider is at its rate limit, retry later")
        } else {
            (Trouble::Overload, "the model is overloaded, retry later")
        };
        let note = format!("lane {} asked to be left alone", pick.lane.name);
        let fault = Fault::new(trouble, say).blame(Blame::Upstream).retry_after(micros(left));
        Err(Some(fault.note(note)))
    }

    /// The next lane to try after that one failed, or none.
    async fn next(
        &mut self,
        call: &Call,
        last: &Pick,
        fault: &Fault,
        attempts: u32,
    ) -> Option<Pick> {
        if fault.reached() == Some(Reach::Stale) && !std::mem::replace(&mut self.refreshed, true) {
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
    async fn other(&mut self, call: &Call) -> Option<Pick> {
        let now = call.app.ticks();
        while let Some(pick) = self.picks.get(self.seen) {
            self.seen += 1;
            let standing = pick.health.standing(now);
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
        fault: &Fault,
        attempts: u32,
    ) -> Option<Pick> {
        if attempts >= TRIES.max(u32::try_from(self.picks.len()).unwrap_or(TRIES)) {
            return None;
        }
        let now = call.app.ticks();
        // Only a time that was named is waited for.
        if matches!(failure(fault), Failure::Limited(Some(_)) | Failure::Busy(Some(_))) {
            let left = |pick: &Pick| match pick.health.standing(now) {
                Standing::Pressed(left) | Standing::Resting(left) => left,
                Standing::Good | Standing::Trial => 0,
            };
            let soonest = self.picks.iter().min_by_key(|pick| left(pick)).cloned()?;
            return match self.sit_out(call, &soonest, left(&soonest)).await {
                true => self.afford(call, soonest).await,
                false => None,
            };
        }
        let repeats = match fault.reached() {
            Some(Reach::Answered(408 | 409 | 425 | 500..)) => {
                !matches!(failure(fault), Failure::Limited(_) | Failure::Busy(_))
            }
            Some(Reach::Nothing) => fault.trouble() != Trouble::Timeout,
            Some(Reach::Answered(_) | Reach::Stale | Reach::Sent) | None => false,
        };
        if !repeats || last.health.standing(now) != Standing::Good {
            return None;
        }
        let pick = self.afford(call, Pick { fresh: false, ..last.clone() }).await?;
        // Callers that failed together should not come back together.
        let spread = u32::try_from(ids::luck(&call.id) % 100).unwrap_or(0);
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
        while !pick.lane.budget.take(call.app.ticks()) {
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

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
async fn try_lane(
    call: &Arc<Call>,
    peek: &Peek,
    pick: &Pick,
    prepared: Prepared,
    mut tab: Tab,
) -> Result<Response, (Fault, Tab)> {
    let Prepared { outgoing, dialect, speech, losses } = prepared;
    tab.lost(losses.into_iter().map(|loss| loss.what));
    let answer = match send(call, pick, dialect, outgoing).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    let lane = &pick.lane;
    match speech {
        speech if peek.stream => pump::stream(call, peek, lane, dialect, speech, answer, tab).await,
        Some(speech) if speech.brake.is_some() => {
            whole::gather(call, lane, dialect, speech, answer, tab).await
        }
        speech => whole::whole(call, lane, dialect, speech, answer, tab).await,
    }
}

/// Sends a request to a lane; anything but a 200 is a fault.
pub(super) async fn send(
    call: &Call,
    pick: &Pick,
    dialect: &'static dyn Dialect,
    outgoing: Outgoing,
) -> Result<Answer, Fault> {
    let lane = &pick.lane;
    let pieces = outgoing.body.into_pieces();
    let headers = headers(call, dialect);
    let how = Sending {
        credential: pick.credential,
        fresh: pick.fresh,
        connect: lane.timeouts.connect,
        first_byte: lane.timeouts.first_byte.min(call.left(&lane.timeouts)),
    };
    let answer = lane.provider.send(&outgoing.path, headers, pieces, &how).await?;
    let status = answer.status;
    if status == 200 {
        return Ok(answer);
    }
    let (told, body) = error_body(answer).await;
    if (400..600).contains(&status) {
        let fault = dialect.read_fault(status, &body);
        let hint = matches!(status, 429 | 503 | 529)
            .then(|| wait_hint(&told, &body, call.app.clock.now()))
            .flatten();
        return Err(match hint {
            Some(wait) => fault.retry_after(wait),
            None => fault,
        });
    }
    Err(Fault::new(Trouble::Unavailable, "the provider gave no usable answer, retry later")
        .reach(Reach::Answered(status))
        .note(format!("status {status}")))
}

/// The headers of the lane's format, and on the same-dialect road the caller's own.
fn headers(call: &Call, dialect: &'static dyn Dialect) -> HeaderMap {
    let same = dialect.origin() == call.dialect.origin();
    let mut headers = if same { call.handed_on.clone() } else { HeaderMap::new() };
    for (name, value) in dialect.headers() {
        headers.entry(*name).or_insert(HeaderValue::from_static(value));
    }
    if let Some(trace) = call.trace.and_then(|trace| trace.header()) {
        headers.insert("traceparent", trace);
    }
    if let Some(state) = &call.trace_state {
        headers.insert("tracestate", state.clone());
    }
    headers.insert(HOPS, call.wishes.hops.clone());
    headers
}

/// What a provider says of its error, as far as it says it soon and briefly.
async fn error_body(answer: Answer) -> (HeaderMap, Vec<u8>) {
    let mut body: Body = answer.body;
    let mut read = Vec::new();
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                read.extend_from_slice(&data);
            }
            if read.len() > ERROR_BODY {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(ERROR_TIME, reading).await;
    (answer.headers, read)
}
