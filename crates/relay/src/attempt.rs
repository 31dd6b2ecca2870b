//! Tries lanes until one answers, in order, within the retry budget and the deadline.
//!
//! Another lane is tried only while the caller has received no byte.

use axum::response::Response;
use canon::{Blame, ApiError, UpstreamProgress, ErrorKind};
use dialects::RequestFacts;
use std::sync::Arc;
use upstream::AttemptFailure;

use super::admit::AdmittedCall;
use super::media_refs::MediaRefs;
use super::retry_plan::RetryPlan;
use super::prepare::{PreparedRequest, prepare, choose_dialect};
use super::route::Candidate;
use super::send::send;
use super::settle::BoxedAccount;
use super::{Call, streamed_reply, route, whole_reply};
use config::Route;

/// Answers a chat call through one of its lanes. On failure the account is closed as failed.
pub(super) async fn attempt(
    call: &Arc<Call>,
    peek: &RequestFacts,
    found: &Route,
    admitted: AdmittedCall,
    named: MediaRefs,
) -> Result<Response, ApiError> {
    let AdmittedCall { account: tab, lowered_limit: limit, requested_output: asked } = admitted;
    let named = &named;
    let origin = call.dialect.origin();
    let one = |pick: Candidate, mut tab: BoxedAccount| async move {
        let lane = &pick.lane;
        // The reservation covers the output of the requested model, so a fallback model gets the
        // same limit.
        let own = pick.lane.served_model.id == found.model.id || peek.max_output_tokens.is_some();
        let limit = if own { limit } else { limit.or(Some(asked)) };
        let ready = async {
            let brought = named.inline(call, lane, choose_dialect(lane, origin)?.origin()).await?;
            call.run_blocking(|| prepare(call, peek, lane, limit, &brought))
        };
        let prepared = match ready.await {
            Ok(prepared) => prepared,
            Err(fault) => return Err((fault, tab)),
        };
        if let Err(fault) = tab.begin_attempt(&pick) {
            return Err((fault, tab));
        }
        send_to_lane(call, peek, &pick, prepared, tab).await
    };
    try_lanes(call, &peek.model, found, tab, one).await
}

/// Tries the lanes with `one`, which sends the request. On failure the account is closed as failed.
pub(super) async fn try_lanes<T, F, A>(
    call: &Call,
    model: &str,
    found: &Route,
    mut tab: BoxedAccount,
    one: F,
) -> Result<T, ApiError>
where
    F: Fn(Candidate, BoxedAccount) -> A,
    A: Future<Output = Result<T, (ApiError, BoxedAccount)>>,
{
    let mut journey = RetryPlan::new(route::ordered_candidates(call, found, call.engine.monotonic_micros()));
    let mut next = match journey.first_candidate(call).await {
        Ok(pick) => pick,
        Err(fault) => return Err(close_failed(tab, call, fault.unwrap_or_else(|| no_lane_error(model)))),
    };
    next.lane.retry_budget.record_call();
    loop {
        match one(next.clone(), tab).await {
            Ok(response) => {
                if journey.has_retried() {
                    next.lane.retry_budget.record_useful_retry();
                }
                return Ok(response);
            }
            Err((fault, open)) => {
                tab = open;
                if fault.blame() == Blame::Caller {
                    tab.attempt_answered();
                    return Err(close_failed(tab, call, fault));
                }
                let tried = tab.has_attempt();
                record_failure(call, model, &next, &fault, &mut tab);
                // Boxed because it is rare: the future of every call would grow by its size.
                let onward = if tried {
                    Box::pin(journey.next_candidate(call, &next, &fault, tab.attempts())).await
                } else {
                    // The lane could not be asked at all, and a retry would not change that.
                    Box::pin(journey.next_lane(call)).await
                };
                match onward {
                    Some(pick) => next = pick,
                    None => return Err(close_failed(tab, call, fault)),
                }
            }
        }
    }
}

/// Records a failed lane in its health, in the ledger entry and in the log.
fn record_failure(call: &Call, model: &str, pick: &Candidate, fault: &ApiError, tab: &mut BoxedAccount) {
    let name = pick.lane.name.as_str();
    let why = fault.log_note().unwrap_or_default();
    if !tab.has_attempt() && fault.kind() == ErrorKind::Overloaded {
        tracing::debug!(lane.name = name, "lane `{name}` is at its `max_in_flight`: {why}");
        return;
    }
    if !tab.has_attempt() {
        tracing::warn!(lane.name = name, model.id = model, "lane `{name}` cannot serve: {why}");
        return;
    }
    if fault.progress() == Some(UpstreamProgress::StaleConnection) {
        tab.cancel_attempt();
        tracing::debug!(lane.name = name, "an idle connection to `{name}` was closed by the provider");
        return;
    }
    let failure = classify_failure(fault);
    let alarm = tab.attempt_failed(failure, fault, may_have_run(fault));
    let credential = pick.credential_index + 1;
    match failure {
        AttemptFailure::CredentialRefused if alarm => tracing::error!(
            lane.name = name,
            credential,
            "`{}` refuses credential {credential}, which is paused now; check its key and balance [{why}]",
            pick.lane.provider.name
        ),
        AttemptFailure::ModelGone if alarm => tracing::error!(
            lane.name = name,
            model.id = model,
            "lane `{name}` does not know its model; check the configuration [{why}]"
        ),
        AttemptFailure::Down | AttemptFailure::TimedOut if alarm => tracing::warn!(
            lane.name = name,
            model.id = model,
            "lane `{name}` keeps failing and is paused now: {fault} [{why}]"
        ),
        AttemptFailure::Down
        | AttemptFailure::TimedOut
        | AttemptFailure::RateLimited(_)
        | AttemptFailure::Overloaded(_)
        | AttemptFailure::CredentialRefused
        | AttemptFailure::ModelGone
        | AttemptFailure::NotNow => tracing::warn!(
            lane.name = name,
            model.id = model,
            request.id = %call.id,
            "lane `{name}` failed for `{model}`: {fault} [{why}]"
        ),
    }
}

/// Classifies an error for the health of the lane.
pub(super) fn classify_failure(fault: &ApiError) -> AttemptFailure {
    match (fault.progress(), fault.kind()) {
        (Some(UpstreamProgress::Answered(401..=403)), _) => AttemptFailure::CredentialRefused,
        (Some(UpstreamProgress::Answered(404)), _) => AttemptFailure::ModelGone,
        (Some(UpstreamProgress::Refused | UpstreamProgress::Answered(408 | 409 | 425)), _) => AttemptFailure::NotNow,
        (Some(UpstreamProgress::Answered(429)), _) | (_, ErrorKind::RateLimited) => AttemptFailure::RateLimited(fault.retry_after()),
        (Some(UpstreamProgress::Answered(529)), _) | (_, ErrorKind::Overloaded) => AttemptFailure::Overloaded(fault.retry_after()),
        (Some(UpstreamProgress::Answered(503)), _) if fault.retry_after().is_some() => AttemptFailure::Overloaded(fault.retry_after()),
        (_, ErrorKind::Timeout) => AttemptFailure::TimedOut,
        _ => AttemptFailure::Down,
    }
}

/// Returns true if the provider may have done work whose result is lost.
pub(super) fn may_have_run(fault: &ApiError) -> bool {
    match fault.progress() {
        Some(UpstreamProgress::NotSent | UpstreamProgress::StaleConnection | UpstreamProgress::Refused | UpstreamProgress::Answered(_)) => false,
        Some(UpstreamProgress::Sent) | None => true,
    }
}

fn no_lane_error(model: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
        .with_log_note(format!("model {model} has no lane"))
}

fn close_failed(tab: BoxedAccount, call: &Call, fault: ApiError) -> ApiError {
    let (status, _) = call.dialect.write_error(&fault, &call.id);
    tab.close_failed(status, &fault);
    fault
}

/// Sends a request to one lane. An error returns the account for the next lane.
async fn send_to_lane(
    call: &Arc<Call>,
    peek: &RequestFacts,
    pick: &Candidate,
    prepared: PreparedRequest,
    mut tab: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    let PreparedRequest { outgoing, dialect, translation: speech, losses } = prepared;
    tab.add_losses(losses);
    let answer = match send(call, pick, dialect, outgoing).await {
        Ok(answer) => answer,
        Err(fault) => return Err((fault, tab)),
    };
    let lane = &pick.lane;
    match speech {
        speech if peek.stream => streamed_reply::relay_stream(call, peek, lane, dialect, speech, answer, tab).await,
        Some(speech) if speech.stop_enforcer.is_some() => {
            Box::pin(whole_reply::gather_stream(call, lane, dialect, speech, answer, tab)).await
        }
        speech => whole_reply::relay_whole(call, lane, dialect, speech, answer, tab).await,
    }
}
