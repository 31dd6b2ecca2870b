//! Lanes are tried until one answers: in their order, within the retry budget and the deadline,
//! and the next one only before the caller saw a byte.

use axum::response::Response;
use canon::{Blame, ApiError, UpstreamProgress, ErrorKind};
use dialects::RequestFacts;
use std::sync::Arc;
use upstream::Failure;

use super::admit::Admitted;
use super::fetch::Named;
use super::journey::Journey;
use super::prepare::{Prepared, prepare, speech};
use super::route::Pick;
use super::send::send;
use super::settle::Tab;
use super::{Call, pump, route, whole};
use config::Route;

/// Has a conversation answered by one of the lanes. On failure the tab is closed as failed.
pub(super) async fn attempt(
    call: &Arc<Call>,
    peek: &RequestFacts,
    found: &Route,
    admitted: Admitted,
    named: Named,
) -> Result<Response, ApiError> {
    let Admitted { tab, limit, asked } = admitted;
    let named = &named;
    let origin = call.dialect.origin();
    let one = |pick: Pick, mut tab: Tab| async move {
        let lane = &pick.lane;
        // Money was set aside for the output of the model asked for; another may not say more.
        let own = pick.lane.serves.id == found.model.id || peek.max_output_tokens.is_some();
        let limit = if own { limit } else { limit.or(Some(asked)) };
        let ready = async {
            let brought = named.bring(call, lane, speech(lane, origin)?.origin()).await?;
            call.at_length(|| prepare(call, peek, lane, limit, &brought))
        };
        let prepared = match ready.await {
            Ok(prepared) => prepared,
            Err(fault) => return Err((fault, tab)),
        };
        if let Err(fault) = tab.try_lane(&pick) {
            return Err((fault, tab));
        }
        try_lane(call, peek, &pick, prepared, tab).await
    };
    over_lanes(call, &peek.model, found, tab, one).await
}

/// Tries the lanes, whatever is asked of them. On failure the tab is closed as failed.
pub(super) async fn over_lanes<T, F, A>(
    call: &Call,
    model: &str,
    found: &Route,
    mut tab: Tab,
    one: F,
) -> Result<T, ApiError>
where
    F: Fn(Pick, Tab) -> A,
    A: Future<Output = Result<T, (ApiError, Tab)>>,
{
    let mut journey = Journey::new(route::order(call, found, call.engine.ticks()));
    let mut next = match journey.first(call).await {
        Ok(pick) => pick,
        Err(fault) => return Err(give_up(tab, call, fault.unwrap_or_else(|| no_lane(model)))),
    };
    next.lane.budget.call();
    loop {
        match one(next.clone(), tab).await {
            Ok(response) => {
                if journey.has_retried() {
                    next.lane.budget.worthwhile();
                }
                return Ok(response);
            }
            Err((fault, open)) => {
                tab = open;
                if fault.blame() == Blame::Caller {
                    tab.lane_answered();
                    return Err(give_up(tab, call, fault));
                }
                let tried = tab.is_trying();
                note(call, model, &next, &fault, &mut tab);
                // Boxed: it is rare, and every call carries its future along.
                let onward = if tried {
                    Box::pin(journey.next(call, &next, &fault, tab.attempts())).await
                } else {
                    // It could not even be asked, and that will not change.
                    Box::pin(journey.other(call)).await
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
fn note(call: &Call, model: &str, pick: &Pick, fault: &ApiError, tab: &mut Tab) {
    let name = pick.lane.name.as_str();
    let why = fault.log_note().unwrap_or_default();
    if !tab.is_trying() && fault.kind() == ErrorKind::Overloaded {
        tracing::debug!(lane.name = name, "there is no room for more at `{name}`: {why}");
        return;
    }
    if !tab.is_trying() {
        tracing::warn!(lane.name = name, model.id = model, "lane `{name}` cannot serve: {why}");
        return;
    }
    if fault.progress() == Some(UpstreamProgress::StaleConnection) {
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
pub(super) fn failure(fault: &ApiError) -> Failure {
    match (fault.progress(), fault.kind()) {
        (Some(UpstreamProgress::Answered(401..=403)), _) => Failure::Refused,
        (Some(UpstreamProgress::Answered(404)), _) => Failure::Gone,
        (Some(UpstreamProgress::Refused | UpstreamProgress::Answered(408 | 409 | 425)), _) => Failure::Odd,
        (Some(UpstreamProgress::Answered(429)), _) | (_, ErrorKind::RateLimited) => Failure::Limited(fault.retry_after()),
        (Some(UpstreamProgress::Answered(529)), _) | (_, ErrorKind::Overloaded) => Failure::Busy(fault.retry_after()),
        (Some(UpstreamProgress::Answered(503)), _) if fault.retry_after().is_some() => Failure::Busy(fault.retry_after()),
        (_, ErrorKind::Timeout) => Failure::Slow,
        _ => Failure::Down,
    }
}

/// Whether the provider may have done work that nobody will see.
pub(super) fn is_unknown(fault: &ApiError) -> bool {
    match fault.progress() {
        Some(UpstreamProgress::NotSent | UpstreamProgress::StaleConnection | UpstreamProgress::Refused | UpstreamProgress::Answered(_)) => false,
        Some(UpstreamProgress::Sent) | None => true,
    }
}

fn no_lane(model: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
        .with_log_note(format!("model {model} has no lane"))
}

fn give_up(tab: Tab, call: &Call, fault: ApiError) -> ApiError {
    let (status, _) = call.dialect.write_error(&fault, &call.id);
    tab.failed(status, &fault);
    fault
}

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
async fn try_lane(
    call: &Arc<Call>,
    peek: &RequestFacts,
    pick: &Pick,
    prepared: Prepared,
    mut tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    let Prepared { outgoing, dialect, speech, losses } = prepared;
    tab.lost(losses);
    let answer = match send(call, pick, dialect, outgoing).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    let lane = &pick.lane;
    match speech {
        speech if peek.stream => pump::stream(call, peek, lane, dialect, speech, answer, tab).await,
        Some(speech) if speech.brake.is_some() => {
            Box::pin(whole::gather(call, lane, dialect, speech, answer, tab)).await
        }
        speech => whole::whole(call, lane, dialect, speech, answer, tab).await,
    }
}
