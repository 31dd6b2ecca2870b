//! `x-portunus-dry-run: true`: returns the provider request and its maximum cost without sending
//! it.

use axum::response::Response;
use canon::{ApiError, Blame, Loss, Money, WireFormat};
use dialects::{ProviderRequest, RequestFacts};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::media_refs::MediaRefs;
use super::reply::json_response;
use super::route::Candidate;
use super::{Call, prepare, route, session, sizing};
use config::{LiveLane, Route};
use std::sync::Arc;

/// Result of a dry run.
pub(super) struct DryRun<'a> {
    pub(super) lane: &'a LiveLane,
    pub(super) dialect: WireFormat,
    /// Requests that the lane would receive, in order.
    pub(super) outgoing: Vec<ProviderRequest>,
    pub(super) losses: Vec<Loss>,
    pub(super) max_cost: Money,
    /// JSON paths of the URLs that would be fetched.
    pub(super) fetched_paths: Vec<String>,
}

/// Refuses a call that no lane could be sent, before money is reserved for it: a strict one with losses, and one
/// with media that only a provider of the caller's format takes.
pub(super) fn check_refusals(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    media: &MediaRefs,
) -> Result<(), ApiError> {
    let own = call.dialect.origin();
    let is_translated = || route.lanes.iter().all(|lane| !lane.formats.contains(&own));
    let has_media = !facts.needs.media_is_empty() || facts.has_reply_images;
    match () {
        // A dry run prepares the request anyway.
        () if call.options.dry_run => Ok(()),
        () if call.options.strict => match prepare_first(call, facts, route, media) {
            Err(error) if error.blame() == Blame::Caller => Err(error),
            Ok(_) | Err(_) => Ok(()),
        },
        () if has_media && !call.options.lossy && media.is_inline() && is_translated() => {
            prepare::check_carried(call, facts, &route.lanes)
        }
        () => Ok(()),
    }
}

/// A request that is ready for the first lane that takes it.
struct FirstRequest {
    lane: Arc<LiveLane>,
    dialect: WireFormat,
    fetched_paths: Vec<String>,
    prepared: prepare::PreparedRequest,
}

fn prepare_first(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    media: &MediaRefs,
) -> Result<FirstRequest, ApiError> {
    let session = session::find(call, facts);
    let wanted = (&facts.needs, session.as_deref());
    let candidates = route::ordered_candidates(call, wanted, route, call.engine.monotonic_now());
    let prepare_for = |candidate: &Candidate| {
        let lane = Arc::clone(&candidate.lane);
        let dialect = route::choose_dialect(&lane, call.dialect.origin(), &facts.needs)?;
        let (inlined, fetched_paths) = media.inline_placeholders(call, &lane, dialect)?;
        let prepared = prepare::prepare(call, facts, &lane, dialect, None, inlined)?;
        Ok(FirstRequest { lane, dialect: dialect.origin(), fetched_paths, prepared })
    };
    let mut result = Err(route::unknown_model(&facts.model));
    for candidate in &candidates {
        result = prepare_for(candidate);
        // Another lane may carry what this one cannot.
        let is_lane_fault = |error: &ApiError| error.code() == Some(prepare::TRANSLATION_LOSS);
        if !result.as_ref().is_err_and(is_lane_fault) {
            break;
        }
    }
    result
}

/// Dry run of a chat call.
pub(super) fn dry_run(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    media: &MediaRefs,
) -> Result<Response, ApiError> {
    let FirstRequest { lane, dialect, fetched_paths, prepared } =
        prepare_first(call, facts, route, media)?;
    let output =
        facts.max_output_tokens.or(lane.capabilities.max_output_tokens).unwrap_or_default();
    let output = facts.max_output(output);
    let input = sizing::max_input_tokens(call, facts, route, media);
    let max_cost = lane.prices.max_cost_with(input, output, &sizing::max_units(facts, route));
    let result = DryRun {
        lane: &lane,
        dialect,
        outgoing: vec![prepared.outgoing; prepared.reply.copies as usize],
        losses: prepared.losses,
        max_cost,
        fetched_paths,
    };
    Ok(dry_run_response(&facts.model, result))
}

/// Writes the result as JSON.
pub(super) fn dry_run_response(model: &str, result: DryRun<'_>) -> Response {
    let DryRun { lane, dialect, outgoing, losses, max_cost, fetched_paths } = result;
    let path = outgoing.first().map(|outgoing| outgoing.path.clone());
    // The very bytes. Forms of image requests are no JSON, and are not shown.
    let json = |outgoing: &ProviderRequest| {
        let text = String::from_utf8(outgoing.body.to_vec()).ok()?;
        RawValue::from_string(text).ok()
    };
    let mut bodies: Vec<Option<Box<RawValue>>> = outgoing.iter().map(json).collect();
    let body = match bodies.len() {
        1 => bodies.pop().flatten(),
        _ => to_raw_value(&bodies).ok(),
    };
    let losses: Vec<Value> =
        losses.iter().map(|loss| json!({ "what": loss.path, "why": loss.reason })).collect();
    let has_fetches = !fetched_paths.is_empty();
    let shown = ShownDryRun {
        object: "portunus.dry_run",
        model,
        lane: &lane.name,
        dialect: dialect.as_str(),
        path,
        body,
        losses,
        quote: json!({ "at_most_usd": max_cost.to_string(), "price_version": lane.prices.version }),
        fetches: fetched_paths,
        fetched: has_fetches.then_some(false),
    };
    json_response(serde_json::to_string(&shown).unwrap_or_default())
}

/// A dry run as its caller sees it.
#[derive(Serialize)]
struct ShownDryRun<'a> {
    object: &'static str,
    model: &'a str,
    lane: &'a str,
    dialect: &'static str,
    path: Option<String>,
    body: Option<Box<RawValue>>,
    losses: Vec<Value>,
    quote: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fetches: Vec<String>,
    /// Nothing is fetched, so the media are empty in the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    fetched: Option<bool>,
}
