//! One embeddings call: the steps of a chat call, without a stream.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, Loss, Losses, Usage, WireFormat};
use catalog::ModelKind;
use dialects::embeddings::{EmbeddingEndpoint, EmbeddingFacts, EmbeddingReply, EmbeddingRequest};
use dialects::{ForeignObject, ProviderRequest, ReplyMeter, RequestFacts};
use std::sync::Arc;

use super::admit::{self, AdmittedCall};
use super::dry_run::{self, DryRun};
use super::media_refs::MediaRefs;
use super::route::Candidate;
use super::send::send;
use super::settle::{BoxedAccount, FinishedReply};
use super::{Call, adapt, attempt, fence, prepare, reply, route, sizing};
use config::{LiveLane, Route};

/// Serves one embeddings call for this endpoint.
pub async fn serve_embeddings(
    call: Call,
    endpoint: EmbeddingEndpoint,
) -> Result<Response, ApiError> {
    let facts =
        call.work_permit().await.run(|| endpoint.read_facts(&call.target, &call.body)).await?;
    let route = route::find_kind(&call, &facts.model, ModelKind::Embedding)?;
    check_media(&facts, &route, endpoint)?;
    route::check_needs(&call, &facts.needs, &route)?;
    let (named, media) = call
        .work_permit()
        .await
        .run(|| {
            let body_facts = RequestFacts::default();
            let named = fence::named_objects(&call, &body_facts.outline)?;
            let media = MediaRefs::find_in(&call, &body_facts, &named, &route.lanes)?;
            Ok::<_, ApiError>((named, media))
        })
        .await?;
    // Vectors are not billed, so no output is reserved.
    let mut sizes = RequestFacts {
        model: facts.model.clone(),
        max_output_tokens: Some(0),
        candidates: 1,
        needs: facts.needs.clone(),
        labels: facts.labels.clone(),
        ..RequestFacts::default()
    };
    sizing::note_objects(&mut sizes, &named);
    let foreign_objects = fence::foreign_objects(&call, &route, named).await?;
    let embedding_call = EmbeddingCall { endpoint, facts, foreign_objects, media };
    let media = &embedding_call.media;
    let model = embedding_call.facts.model.as_str();
    let facts = sizes;
    if call.options.dry_run {
        let input = sizing::max_input_tokens(&call, &facts, &route, media);
        let permit = call.work_permit().await;
        return permit.run(|| dry_run(&call, &embedding_call, &route, input)).await;
    }
    admit::check_token_rate(&call, &facts).await?;
    let AdmittedCall { account, lowered_limit: _, requested_output: _ } =
        admit::admit(&call, &facts, &route, media).await?;
    let (call, embedding_call) = (&Arc::new(call), &embedding_call);
    let send_one = |candidate: Candidate, account: BoxedAccount| async move {
        try_lane(call, embedding_call, &candidate, account).await
    };
    attempt::try_lanes(call, model, account, send_one).await
}

/// Refuses media that would have to be translated: only the native format has them.
fn check_media(
    facts: &EmbeddingFacts,
    route: &Route,
    endpoint: EmbeddingEndpoint,
) -> Result<(), ApiError> {
    let origin = endpoint.origin();
    let is_carried = || route.lanes.iter().any(|lane| lane.formats.contains(&origin));
    match facts.needs.media().next() {
        Some((path, _)) if !is_carried() => {
            let message = format!("`{path}` must be text: this model takes no other input");
            Err(ApiError::invalid(path, message))
        }
        Some(_) | None => Ok(()),
    }
}

struct EmbeddingCall {
    endpoint: EmbeddingEndpoint,
    facts: EmbeddingFacts,
    /// Objects that the request names and that its caller does not own.
    foreign_objects: Vec<ForeignObject>,
    media: MediaRefs,
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

fn prepare(
    call: &Call,
    embedding_call: &EmbeddingCall,
    lane: &LiveLane,
) -> Result<PreparedEmbedding, ApiError> {
    let EmbeddingCall { endpoint, facts, foreign_objects, media } = embedding_call;
    let same = lane.formats.contains(&endpoint.origin());
    fence::check_lane(foreign_objects, lane, same)?;
    if same {
        media.check_own_bytes(call, lane)?;
        let outgoing = endpoint.patch(&call.body, facts, &lane.model);
        return Ok(PreparedEmbedding::PassThrough(set_path(lane, endpoint.origin(), outgoing)));
    }
    let lane_endpoint =
        lane.formats.iter().find_map(|origin| EmbeddingEndpoint::for_provider(*origin));
    let lane_endpoint = lane_endpoint.ok_or_else(|| {
        ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
            .with_log_note(format!("lane {} has no format with embeddings", lane.name))
    })?;
    let request = endpoint.read_request(&call.target, &call.body)?;
    let (outgoing, losses) = lane_endpoint.write_requests(&request, &lane.model)?;
    prepare::refuse_losses(call, &losses)?;
    let fitted = |outgoing| set_path(lane, lane_endpoint.origin(), outgoing);
    let outgoing = outgoing.into_iter().map(fitted).collect();
    Ok(PreparedEmbedding::Translated(EmbeddingTranslation {
        endpoint: lane_endpoint,
        outgoing,
        request,
        losses,
    }))
}

fn set_path(lane: &LiveLane, origin: WireFormat, outgoing: ProviderRequest) -> ProviderRequest {
    adapt::set_path(&lane.endpoints, origin, &lane.model, false, outgoing)
}

/// Sends the request to one lane. An error returns the account for the next lane.
async fn try_lane(
    call: &Call,
    embedding_call: &EmbeddingCall,
    candidate: &Candidate,
    mut account: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    let prepared =
        match call.work_permit().await.run(|| prepare(call, embedding_call, &candidate.lane)).await
        {
            Ok(prepared) => prepared,
            Err(error) => return Err((error, account)),
        };
    if let Err(error) = account.begin_attempt(candidate).await {
        return Err((error, account));
    }
    // Providers without usage figures bill by the text, without the JSON around it.
    let estimate = account.estimate_input(embedding_call.facts.input_bytes);
    account.expect_usage(Usage { input: estimate, ..Usage::default() });
    let outcome = match prepared {
        PreparedEmbedding::PassThrough(outgoing) => {
            pass_through(call, candidate, embedding_call.endpoint, outgoing).await
        }
        PreparedEmbedding::Translated(other) => {
            translate(call, embedding_call, candidate, other, estimate, &mut account).await
        }
    };
    match outcome {
        Ok(EmbeddingOutcome { body, usage, losses }) => {
            let meter = ReplyMeter { usage, is_finished: true, ..ReplyMeter::default() };
            account.record_reply(FinishedReply { meter, losses, was_stopped: false });
            Ok(reply::settled_response(body, account).await.into_response())
        }
        Err(error) => Err((error, account)),
    }
}

struct EmbeddingOutcome {
    body: Bytes,
    /// Usage as counted by the provider.
    usage: Option<Usage>,
    losses: Vec<Loss>,
}

/// Forwards the reply unchanged.
async fn pass_through(
    call: &Call,
    candidate: &Candidate,
    endpoint: EmbeddingEndpoint,
    outgoing: ProviderRequest,
) -> Result<EmbeddingOutcome, ApiError> {
    let body = request_lane(call, candidate, endpoint, outgoing).await?;
    let usage = call.permit_for(body.len()).await.run(|| endpoint.read_usage(&body)).await?;
    Ok(EmbeddingOutcome { usage, body, losses: Vec::new() })
}

/// Merges the replies and writes them in the caller's format.
async fn translate(
    call: &Call,
    embedding_call: &EmbeddingCall,
    candidate: &Candidate,
    translation: EmbeddingTranslation,
    estimate: u64,
    account: &mut BoxedAccount,
) -> Result<EmbeddingOutcome, ApiError> {
    let EmbeddingTranslation { endpoint, outgoing, request, losses } = translation;
    let mut reply = EmbeddingReply::default();
    let mut received_bytes = 0;
    for outgoing in outgoing {
        let body = request_lane(call, candidate, endpoint, outgoing).await?;
        received_bytes += body.len();
        let permit = call.permit_for(body.len()).await;
        reply.append(permit.run(|| endpoint.read_reply(&body)).await?);
    }
    let usage = reply.usage;
    reply.check_count(&request).inspect_err(|_| {
        account.absorb_answer(&ReplyMeter { usage, ..ReplyMeter::default() });
    })?;
    // The caller sees the usage it is billed for.
    reply.usage = usage.or(Some(Usage { input: estimate, ..Usage::default() }));
    let permit = call.permit_for(received_bytes).await;
    let (body, more) = permit.run(|| embedding_call.endpoint.write_reply(&reply, &request)).await;
    let losses = losses.into_iter().chain(more).collect::<Losses>().into_vec();
    Ok(EmbeddingOutcome { body: Bytes::from(body), usage, losses })
}

/// Sends one request and reads the whole reply.
async fn request_lane(
    call: &Call,
    candidate: &Candidate,
    endpoint: EmbeddingEndpoint,
    outgoing: ProviderRequest,
) -> Result<Bytes, ApiError> {
    let dialect = dialects::get(endpoint.origin()).ok_or_else(|| {
        ApiError::internal(format!("no dialect for the format {}", endpoint.origin()))
    })?;
    let answer = send(call, candidate, dialect, outgoing).await?;
    reply::read_body(answer, &candidate.lane, call).await
}

fn dry_run(
    call: &Call,
    embedding_call: &EmbeddingCall,
    route: &Route,
    max_input: u64,
) -> Result<Response, ApiError> {
    let model = embedding_call.facts.model.as_str();
    let candidates = route::ordered_candidates(
        call,
        (&embedding_call.facts.needs, None),
        route,
        call.engine.monotonic_now(),
    );
    let lane = &candidates.first().ok_or_else(|| route::unknown_model(model))?.lane;
    let (endpoint, outgoing, losses) = match prepare(call, embedding_call, lane)? {
        PreparedEmbedding::PassThrough(outgoing) => {
            (embedding_call.endpoint, vec![outgoing], Vec::new())
        }
        PreparedEmbedding::Translated(other) => (other.endpoint, other.outgoing, other.losses),
    };
    let max_cost = lane.prices.max_cost(max_input, 0);
    let dialect = endpoint.origin();
    let dry_run_result =
        DryRun { lane, dialect, outgoing, losses, max_cost, fetched_paths: Vec::new() };
    Ok(dry_run::dry_run_response(model, dry_run_result))
}
