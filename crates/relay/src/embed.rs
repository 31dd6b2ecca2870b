//! The life of one call for embeddings: the steps of a conversation, without a stream.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, Loss, Losses, WireFormat, ErrorKind, Usage};
use catalog::ModelKind;
use dialects::embeddings::{EmbeddingRequest, EmbeddingReply, EmbeddingEndpoint, EmbeddingFacts};
use dialects::{ProviderRequest, RequestFacts, ReplyMeter};
use std::sync::Arc;

use super::admit::{self, Admitted};
use super::dry_run::{self, Found};
use super::fetch::Named;
use super::route::Pick;
use super::send::send;
use super::settle::Tab;
use super::{Call, attempt, fit, prepare, route, whole};
use crate::json::json as json_response;
use config::{LiveLane, Route};

/// Serves one call for embeddings, asked in that shape.
pub async fn embed(call: Call, form: EmbeddingEndpoint) -> Result<Response, ApiError> {
    let glimpse = call.at_length(|| form.read_facts(&call.target, &call.body))?;
    let asked = Asked { form, glimpse };
    let model = asked.glimpse.model.as_str();
    let found = route::find_kind(&call, model, ModelKind::Embedding)?;
    let named = Named::look(&call, false)?;
    if call.dry_run {
        return dry_run(&call, &asked, &found);
    }
    // Vectors are not billed, so there is no output to set money aside for.
    let peek =
        RequestFacts { model: model.to_owned(), max_output_tokens: Some(0), candidates: 1, ..RequestFacts::default() };
    admit::pace(&call, &peek).await?;
    let Admitted { tab, limit: _, asked: _ } = admit::admit(&call, &peek, &found, &named).await?;
    admit::secure(&call).await?;
    let (call, asked) = (&Arc::new(call), &asked);
    let one = |pick: Pick, tab: Tab| async move { lane_of(call, asked, &pick, tab).await };
    attempt::over_lanes(call, model, &found, tab, one).await
}

/// What is asked for, and in which shape.
struct Asked {
    form: EmbeddingEndpoint,
    glimpse: EmbeddingFacts,
}

/// What a lane is sent.
enum Prepared {
    /// It has the caller's shape: the caller's own bytes.
    Same(ProviderRequest),
    /// It has another one, and its answer has to be translated back.
    Other(Translation),
}

struct Translation {
    /// The shape the lane answers in.
    form: EmbeddingEndpoint,
    /// What it is sent, one after the other.
    outgoing: Vec<ProviderRequest>,
    embed: EmbeddingRequest,
    losses: Vec<Loss>,
}

fn prepare(call: &Call, asked: &Asked, lane: &LiveLane) -> Result<Prepared, ApiError> {
    let Asked { form, glimpse } = asked;
    if lane.speaks.contains(&form.origin()) {
        let outgoing = form.patch(&call.body, glimpse, &lane.model);
        return Ok(Prepared::Same(at_its_path(lane, form.origin(), outgoing)));
    }
    let spoken = lane.speaks.iter().find_map(|origin| EmbeddingEndpoint::for_provider(*origin));
    let spoken = spoken.ok_or_else(|| {
        ApiError::new(ErrorKind::Unavailable, "no provider serves this model at the moment")
            .with_log_note(format!("lane {} speaks no format that has embeddings", lane.name))
    })?;
    let embed = form.read_request(&call.target, &call.body)?;
    let (outgoing, losses) = spoken.write_requests(&embed, &lane.model)?;
    prepare::refuse_losses(call, &losses)?;
    let fitted = |outgoing| at_its_path(lane, spoken.origin(), outgoing);
    let outgoing = outgoing.into_iter().map(fitted).collect();
    Ok(Prepared::Other(Translation { form: spoken, outgoing, embed, losses }))
}

fn at_its_path(lane: &LiveLane, origin: WireFormat, outgoing: ProviderRequest) -> ProviderRequest {
    fit::at_its_path(&lane.ways, origin, &lane.model, false, outgoing)
}

/// One lane. The tab comes back with a fault, because the next lane goes on with it.
async fn lane_of(
    call: &Call,
    asked: &Asked,
    pick: &Pick,
    mut tab: Tab,
) -> Result<Response, (ApiError, Tab)> {
    let prepared = match call.at_length(|| prepare(call, asked, &pick.lane)) {
        Ok(prepared) => prepared,
        Err(fault) => return Err((fault, tab)),
    };
    if let Err(fault) = tab.try_lane(pick) {
        return Err((fault, tab));
    }
    // Providers that do not count bill by the text, whatever JSON is around it.
    let estimate = tab.weigh(asked.glimpse.input_bytes);
    let outcome = match prepared {
        Prepared::Same(outgoing) => same(call, pick, asked.form, outgoing).await,
        Prepared::Other(other) => translated(call, asked, pick, other, estimate).await,
    };
    match outcome {
        Ok(Answered { body, usage, losses }) => {
            tab.lost(losses);
            let said = ReplyMeter { usage, is_finished: true, ..ReplyMeter::default() };
            Ok(whole::answered(body, &said, tab))
        }
        Err(fault) => Err((fault, tab)),
    }
}

/// The caller's answer.
struct Answered {
    body: Bytes,
    /// What the provider counted.
    usage: Option<Usage>,
    losses: Vec<Loss>,
}

/// Caller and lane have the same shape: the answer goes on as it is.
async fn same(call: &Call, pick: &Pick, form: EmbeddingEndpoint, outgoing: ProviderRequest) -> Result<Answered, ApiError> {
    let body = ask(call, pick, form, outgoing).await?;
    Ok(Answered { usage: form.read_usage(&body)?, body, losses: Vec::new() })
}

/// They have not: the answers are read, put together and written anew.
async fn translated(
    call: &Call,
    asked: &Asked,
    pick: &Pick,
    translation: Translation,
    estimate: u64,
) -> Result<Answered, ApiError> {
    let Translation { form, outgoing, embed, losses } = translation;
    let mut embedded = EmbeddingReply::default();
    for outgoing in outgoing {
        embedded.append(form.read_reply(&ask(call, pick, form, outgoing).await?)?);
    }
    embedded.check_count(&embed)?;
    let usage = embedded.usage;
    // The caller is told what it is billed for.
    embedded.usage = usage.or(Some(Usage { input: estimate, ..Usage::default() }));
    let (body, more) = asked.form.write_reply(&embedded, &embed);
    let losses = losses.into_iter().chain(more).collect::<Losses>().into_vec();
    Ok(Answered { body: Bytes::from(body), usage, losses })
}

/// One request to the lane, and its whole answer.
async fn ask(call: &Call, pick: &Pick, form: EmbeddingEndpoint, outgoing: ProviderRequest) -> Result<Bytes, ApiError> {
    let dialect = dialects::get(form.origin())
        .ok_or_else(|| ApiError::internal(format!("nobody speaks {}", form.origin())))?;
    let answer = send(call, pick, dialect, outgoing).await?;
    whole::read(answer, &pick.lane, call).await
}

fn dry_run(call: &Call, asked: &Asked, found: &Route) -> Result<Response, ApiError> {
    let model = asked.glimpse.model.as_str();
    let picks = route::order(call, found, call.engine.ticks());
    let lane = &picks.first().ok_or_else(|| route::unknown_model(model))?.lane;
    let (form, outgoing, losses) = match prepare(call, asked, lane)? {
        Prepared::Same(outgoing) => (asked.form, vec![outgoing], Vec::new()),
        Prepared::Other(other) => (other.form, other.outgoing, other.losses),
    };
    let bound = lane.prices.max_cost(call.body.len() as u64, 0);
    let dialect = form.origin();
    let told = Found { lane, dialect, outgoing, losses, bound, fetches: Vec::new() };
    Ok(dry_run::tell(model, told))
}
