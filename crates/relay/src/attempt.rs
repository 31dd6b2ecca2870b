//! Tries lanes until one answers, in order, within the retry budget and the deadline.
//!
//! Another lane is tried only while the caller has received no byte.

use canon::{ApiError, Blame, ChatReply, ErrorKind, ReplyCandidate, UpstreamProgress};
use dialects::{RefusedRequest, RequestFacts, with_caller_paths};
use std::sync::Arc;
use transport::{ServerBody, ServerReply};
use upstream::AttemptFailure;

use super::admit::AdmittedCall;
use super::cache_use::CacheUse;
use super::call_texts::RequestTexts;
use super::fan_out::send_copies;
use super::media_refs::MediaRefs;
use super::prepare::{PreparedRequest, TRANSLATION_LOSS, prepare};
use super::reply::{event_reply, json_response, relay_reply};
use super::retry_plan::RetryPlan;
use super::route::Candidate;
use super::send::{classify_failure, may_have_run, send};
use super::settle::BoxedAccount;
use super::{Call, route};
use config::Route;

/// Answers a chat call through one of its lanes. On failure the account is closed as failed.
pub(super) async fn attempt(
    call: &Arc<Call>,
    facts: &RequestFacts,
    route: &Route,
    admitted: AdmittedCall,
    media: MediaRefs,
) -> Result<ServerReply, ApiError> {
    let AdmittedCall { account, lowered_limit: limit, requested_output } = admitted;
    let media = &media;
    let origin = call.dialect.origin();
    let send_one = |candidate: Candidate, mut account: BoxedAccount| async move {
        let lane = &candidate.lane;
        // The reservation covers the output of the requested model, so a fallback model gets the
        // same limit.
        let own =
            candidate.lane.served_model.id == route.model.id || facts.max_output_tokens.is_some();
        let limit = if own { limit } else { limit.or(Some(requested_output)) };
        let ready = || async {
            let dialect = route::choose_dialect(lane, origin, &facts.needs)?;
            let inlined = media.inline(call, lane, dialect).await?;
            call.work_permit()
                .await
                .run(|| prepare(call, facts, lane, dialect, limit, inlined))
                .await
        };
        let mut prepared = match ready().await {
            Ok(prepared) => prepared,
            Err(error) => return Err((error, account)),
        };
        let cache = call.cache.as_ref().filter(|cache| cache.is_at(candidate.slot_hash()));
        let cache = match cache {
            Some(cache) if prepared.reply.dialect.origin() == origin => {
                let permit = call.work_permit().await;
                let named = permit.run(|| cache.name_in(&prepared.outgoing.body)).await;
                named.map(|named| {
                    prepared.outgoing.body = named;
                    cache
                })
            }
            Some(_) | None => None,
        };
        if let Err(error) = account.begin_attempt(&candidate).await {
            return Err((error, account));
        }
        let Some(cache) = cache else {
            return send_to_lane(call, facts, &candidate, prepared, account).await;
        };
        account.set_cached_input(cache.tokens());
        // Boxed because it is rare: the future of every call would grow by its size.
        let sent = Box::pin(send_to_lane(call, facts, &candidate, prepared, account)).await;
        let (error, mut account) = match sent {
            Err((error, account)) if CacheUse::may_be_gone(&error) => (error, account),
            answered => return answered,
        };
        account.set_cached_input(0);
        tracing::debug!(lane.name = &*lane.name, "lane `{}` refused a cache: {error}", lane.name);
        match ready().await {
            Ok(whole) => Box::pin(send_to_lane(call, facts, &candidate, whole, account))
                .await
                .inspect(|_| cache.mark_gone()),
            Err(error) => Err((error, account)),
        }
    };
    match try_lanes(call, &facts.model, account, send_one).await {
        Err(error) if error.kind() == ErrorKind::ContentPolicy => {
            let permit = call.work_permit().await;
            permit.run(|| blocked_prompt(call, facts, &error)).await.ok_or(error)
        }
        result => result,
    }
}

/// Returns the answer to a prompt that a provider refused because of its content, for formats in
/// which that is an answer and not an error.
fn blocked_prompt(call: &Call, facts: &RequestFacts, error: &ApiError) -> Option<ServerReply> {
    if !call.dialect.traits().answers_blocked_prompts {
        return None;
    }
    let chat = call.read_chat().ok()?;
    let finish = Some(dialects::blocked_finish(error));
    let candidate = ReplyCandidate { finish, ..ReplyCandidate::default() };
    let reply = ChatReply { candidates: vec![candidate], ..ChatReply::default() };
    let stamp = call.reply_stamp();
    if !facts.stream {
        let (body, _) = call.dialect.write_reply(reply, &chat, &stamp);
        return Some(json_response(body).into());
    }
    let mut writer = call.dialect.stream_writer(&chat, &stamp);
    let mut out = Vec::new();
    for event in canon::into_events(reply) {
        writer.push(event, &mut out);
    }
    writer.finish(&mut out);
    Some(event_reply(ServerBody::Whole(out.into()), facts.json_array))
}

/// Tries the lanes with `send_one`, which sends the request. On failure the account is closed as
/// failed.
pub(super) async fn try_lanes<T, F, A>(
    call: &Call,
    model: &str,
    mut account: BoxedAccount,
    send_one: F,
) -> Result<T, ApiError>
where
    F: Fn(Candidate, BoxedAccount) -> A,
    A: Future<Output = Result<T, (ApiError, BoxedAccount)>>,
{
    let mut plan = RetryPlan::new(account.take_candidates());
    let mut next = match plan.first_candidate(call).await {
        Ok(candidate) => candidate,
        Err(error) => {
            return Err(close_failed(account, call, error.unwrap_or_else(|| no_lane_error(model))));
        }
    };
    next.lane.retry_budget.record_call();
    loop {
        match send_one(next.clone(), account).await {
            Ok(response) => {
                next.keep_session(call);
                if plan.has_retried() {
                    next.lane.retry_budget.record_useful_retry();
                }
                return Ok(response);
            }
            Err((error, returned)) => {
                let hide = || {
                    let sent = RequestTexts::of(call);
                    sent.hide_in_error(&next.lane.provider, error)
                };
                let error = call.work_permit().await.run(hide).await;
                account = returned;
                if error.blame() == Blame::Caller {
                    // Another lane may carry what this one cannot.
                    let is_lane_fault =
                        !account.has_attempt() && error.code() == Some(TRANSLATION_LOSS);
                    if is_lane_fault && let Some(candidate) = plan.skip_lane(call) {
                        next = candidate;
                        continue;
                    }
                    account.attempt_answered();
                    return Err(close_failed(account, call, error));
                }
                let tried = account.has_attempt();
                // A caller must not get work for nothing by naming a short time.
                if tried && error.kind() == ErrorKind::Timeout && call.is_past_own_timeout() {
                    let (status, _) = call.dialect.write_error(&error, &call.id);
                    account.close_timed_out(status, &error);
                    return Err(error);
                }
                record_failure(call, model, &next, &error, &mut account);
                // Boxed because it is rare: the future of every call would grow by its size.
                let next_candidate = if tried {
                    Box::pin(plan.next_candidate(call, &next, &error, account.attempts())).await
                } else {
                    // The lane could not be asked at all, and a retry would not change that.
                    Box::pin(plan.next_lane(call)).await
                };
                match next_candidate {
                    Some(candidate) => next = candidate,
                    None => return Err(close_failed(account, call, error)),
                }
            }
        }
    }
}

/// Records a failed lane in its health, in the ledger entry and in the log.
fn record_failure(
    call: &Call,
    model: &str,
    candidate: &Candidate,
    error: &ApiError,
    account: &mut BoxedAccount,
) {
    let name = candidate.lane.name.as_str();
    let why = error.log_note().unwrap_or_default();
    if !account.has_attempt() && error.kind() == ErrorKind::Overloaded {
        tracing::debug!(lane.name = name, "lane `{name}` is at its `max_in_flight`: {why}");
        return;
    }
    if !account.has_attempt() {
        tracing::warn!(lane.name = name, model.id = model, "lane `{name}` cannot serve: {why}");
        return;
    }
    if error.progress() == Some(UpstreamProgress::StaleConnection) {
        account.end_stale_attempt();
        tracing::debug!(
            lane.name = name,
            "an idle connection to `{name}` was closed by the provider"
        );
        return;
    }
    let failure = classify_failure(error);
    let alert = account.attempt_failed(failure, error, may_have_run(error));
    let credential = candidate.credential_index + 1;
    match failure {
        AttemptFailure::CredentialRefused if alert => tracing::error!(
            lane.name = name,
            credential,
            "`{}` refuses credential {credential}, paused now; check its key and balance [{why}]",
            candidate.lane.provider.name
        ),
        AttemptFailure::ModelGone if alert => tracing::error!(
            lane.name = name,
            model.id = model,
            "lane `{name}` does not know its model; check the configuration [{why}]"
        ),
        AttemptFailure::Down | AttemptFailure::TimedOut if alert => tracing::warn!(
            lane.name = name,
            model.id = model,
            "lane `{name}` keeps failing and is paused now: {error} [{why}]"
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
            "lane `{name}` failed for `{model}`: {error} [{why}]"
        ),
    }
}

fn no_lane_error(model: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
        .with_log_note(format!("model {model} has no lane"))
}

fn close_failed(account: BoxedAccount, call: &Call, error: ApiError) -> ApiError {
    let (status, _) = call.dialect.write_error(&error, &call.id);
    account.close_failed(status, &error);
    error
}

/// Sends a request to one lane. An error returns the account for the next lane.
async fn send_to_lane(
    call: &Arc<Call>,
    facts: &RequestFacts,
    candidate: &Candidate,
    prepared: PreparedRequest,
    mut account: BoxedAccount,
) -> Result<ServerReply, (ApiError, BoxedAccount)> {
    let PreparedRequest { outgoing, reply, losses } = prepared;
    account.set_losses(losses);
    let format = reply.dialect.origin();
    let sent = (format != call.dialect.origin()).then(|| outgoing.body.clone());
    let answered = if reply.copies > 1 {
        // Boxed because it is rare: the future of every call would grow by its size.
        Box::pin(send_copies(call, facts, candidate, outgoing, reply, account)).await
    } else {
        match send(call, candidate, reply.dialect, outgoing).await {
            Ok(answer) => relay_reply(call, facts, &candidate.lane, reply, answer, account).await,
            Err(error) => Err((error, account)),
        }
    };
    match (answered, sent) {
        (Err((error, account)), Some(sent)) if error.blame() == Blame::Caller => {
            let error = call
                .work_permit()
                .await
                .run(|| {
                    let sent = sent.to_vec();
                    let refused = RefusedRequest::Body(format, &sent);
                    with_caller_paths(error, refused, call.dialect.origin(), &call.body)
                })
                .await;
            Err((error, account))
        }
        (answered, _) => answered,
    }
}
