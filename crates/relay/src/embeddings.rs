//! One embeddings call: the steps of a chat call, without a stream.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, Loss, Losses, WireFormat, ErrorKind, Usage};
use catalog::ModelKind;
use dialects::embeddings::{EmbeddingRequest, EmbeddingReply, EmbeddingEndpoint, EmbeddingFacts};
use dialects::{ProviderRequest, RequestFacts, ReplyMeter};
use std::sync::Arc;

use super::admit::{self, AdmittedCall};
use super::dry_run::{self, DryRun};
use super::media_refs::MediaRefs;
use super::route::Candidate;
use super::send::send;
use super::settle::BoxedAccount;
use super::{Call, attempt, adapt, prepare, route, whole_reply};
use crate::json_response::json_response as json_response;
use config::{LiveLane, Route};

/// Serves one embeddings call for this endpoint.
pub async fn serve_embeddings(call: Call, form: EmbeddingEndpoint) -> Result<Response, ApiError> {
    let glimpse = call.run_blocking(|| form.read_facts(&call.target, &call.body))?;
    let asked = EmbeddingCall { endpoint: form, facts: glimpse };
    let model = asked.facts.model.as_str();
    let found = route::find_kind(&call, model, ModelKind::Embedding)?;
    let named = MediaRefs::find_in(&call, false)?;
    if call.dry_run {
        return dry_run(&call, &asked, &found);
    }
    // Vectors are not billed, so no output is reserved.
    let peek =
        RequestFacts { model: model.to_owned(), max_output_tokens: Some(0), candidates: 1, ..RequestFacts::default() };
    admit::check_token_rate(&call, &peek).await?;
    let AdmittedCall { account: tab, lowered_limit: _, requested_output: _ } = admit::admit(&call, &peek, &found, &named).await?;
    admit::sync_journal(&call).await?;
    let (call, asked) = (&Arc::new(call), &asked);
    let one = |pick: Candidate, tab: BoxedAccount| async move { try_lane(call, asked, &pick, tab).await };
    attempt::try_lanes(call, model, &found, tab, one).await
}

struct EmbeddingCall {
    endpoint: EmbeddingEndpoint,
    facts: EmbeddingFacts,
}

/// A request ready for a lane.
enum PreparedEmbedding {
    /// The lane has the caller's format and receives the caller's bytes.
    PassThrough(ProviderRequest),
    /// The lane has another format, and its reply is translated back.
    Translated(EmbeddingTranslation),
}

struct EmbeddingTranslation {
    /// Format of the lane's replies.
    endpoint: EmbeddingEndpoint,
    /// Sent one after the other.
    outgoing: Vec<ProviderRequest>,
    request: EmbeddingRequest,
    losses: Vec<Loss>,
}

fn prepare(call: &Call, asked: &EmbeddingCall, lane: &LiveLane) -> Result<PreparedEmbedding, ApiError> {
    let EmbeddingCall { endpoint: form, facts: glimpse } = asked;
    if lane.formats.contains(&form.origin()) {
        let outgoing = form.patch(&call.body, glimpse, &lane.model);
        return Ok(PreparedEmbedding::PassThrough(set_path(lane, form.origin(), outgoing)));
    }
    let spoken = lane.formats.iter().find_map(|origin| EmbeddingEndpoint::for_provider(*origin));
    let spoken = spoken.ok_or_else(|| {
        ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
            .with_log_note(format!("lane {} has no format with embeddings", lane.name))
    })?;
    let embed = form.read_request(&call.target, &call.body)?;
    let (outgoing, losses) = spoken.write_requests(&embed, &lane.model)?;
    prepare::refuse_losses(call, &losses)?;
    let fitted = |outgoing| set_path(lane, spoken.origin(), outgoing);
    let outgoing = outgoing.into_iter().map(fitted).collect();
    Ok(PreparedEmbedding::Translated(EmbeddingTranslation { endpoint: spoken, outgoing, request: embed, losses }))
}

fn set_path(lane: &LiveLane, origin: WireFormat, outgoing: ProviderRequest) -> ProviderRequest {
    adapt::set_path(&lane.endpoints, origin, &lane.model, false, outgoing)
}

/// Sends the request to one lane. An error returns the account for the next lane.
async fn try_lane(
    call: &Call,
    asked: &EmbeddingCall,
    pick: &Candidate,
    mut tab: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    let prepared = match call.run_blocking(|| prepare(call, asked, &pick.lane)) {
        Ok(prepared) => prepared,
        Err(fault) => return Err((fault, tab)),
    };
    if let Err(fault) = tab.begin_attempt(pick) {
        return Err((fault, tab));
    }
    // Providers without usage figures bill by the text, without the JSON around it.
    let estimate = tab.estimate_input(asked.facts.input_bytes);
    let outcome = match prepared {
        PreparedEmbedding::PassThrough(outgoing) => pass_through(call, pick, asked.endpoint, outgoing).await,
        PreparedEmbedding::Translated(other) => translate(call, asked, pick, other, estimate).await,
    };
    match outcome {
        Ok(EmbeddingOutcome { body, usage, losses }) => {
            tab.add_losses(losses);
            let said = ReplyMeter { usage, is_finished: true, ..ReplyMeter::default() };
            Ok(whole_reply::settled_response(body, &said, tab))
        }
        Err(fault) => Err((fault, tab)),
    }
}

struct EmbeddingOutcome {
    body: Bytes,
    /// Usage as counted by the provider.
    usage: Option<Usage>,
    losses: Vec<Loss>,
}

/// Forwards the reply unchanged.
async fn pass_through(call: &Call, pick: &Candidate, form: EmbeddingEndpoint, outgoing: ProviderRequest) -> Result<EmbeddingOutcome, ApiError> {
    let body = request_lane(call, pick, form, outgoing).await?;
    Ok(EmbeddingOutcome { usage: form.read_usage(&body)?, body, losses: Vec::new() })
}

/// Merges the replies and writes them in the caller's format.
async fn translate(
    call: &Call,
    asked: &EmbeddingCall,
    pick: &Candidate,
    translation: EmbeddingTranslation,
    estimate: u64,
) -> Result<EmbeddingOutcome, ApiError> {
    let EmbeddingTranslation { endpoint: form, outgoing, request: embed, losses } = translation;
    let mut embedded = EmbeddingReply::default();
    for outgoing in outgoing {
        embedded.append(form.read_reply(&request_lane(call, pick, form, outgoing).await?)?);
    }
    embedded.check_count(&embed)?;
    let usage = embedded.usage;
    // The caller sees the usage it is billed for.
    embedded.usage = usage.or(Some(Usage { input: estimate, ..Usage::default() }));
    let (body, more) = asked.endpoint.write_reply(&embedded, &embed);
    let losses = losses.into_iter().chain(more).collect::<Losses>().into_vec();
    Ok(EmbeddingOutcome { body: Bytes::from(body), usage, losses })
}

/// Sends one request and reads the whole reply.
async fn request_lane(call: &Call, pick: &Candidate, form: EmbeddingEndpoint, outgoing: ProviderRequest) -> Result<Bytes, ApiError> {
    let dialect = dialects::get(form.origin())
        .ok_or_else(|| ApiError::internal(format!("no dialect for the format {}", form.origin())))?;
    let answer = send(call, pick, dialect, outgoing).await?;
    whole_reply::read_body(answer, &pick.lane, call).await
}

fn dry_run(call: &Call, asked: &EmbeddingCall, found: &Route) -> Result<Response, ApiError> {
    let model = asked.facts.model.as_str();
    let picks = route::ordered_candidates(call, found, call.engine.monotonic_micros());
    let lane = &picks.first().ok_or_else(|| route::unknown_model(model))?.lane;
    let (form, outgoing, losses) = match prepare(call, asked, lane)? {
        PreparedEmbedding::PassThrough(outgoing) => (asked.endpoint, vec![outgoing], Vec::new()),
        PreparedEmbedding::Translated(other) => (other.endpoint, other.outgoing, other.losses),
    };
    let bound = lane.prices.max_cost(call.body.len() as u64, 0);
    let dialect = form.origin();
    let told = DryRun { lane, dialect, outgoing, losses, max_cost: bound, fetched_paths: Vec::new() };
    Ok(dry_run::dry_run_response(model, told))
}
