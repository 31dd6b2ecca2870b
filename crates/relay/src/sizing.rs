//! Size of a call before it runs: upper bounds of its input, its billed units and its cost.

use canon::{Money, ToolUses};
use catalog::{BilledUnits, ModelCounts};
use config::{LiveLane, Route};
use dialects::{RequestFacts, StoredObject};
use std::sync::Arc;

use super::media_refs::MediaRefs;
use super::prepare::MAX_COPIES;
use super::{Call, route};

/// Assumed context window of a model without one in the catalogue.
pub(super) const DEFAULT_CONTEXT_TOKENS: u64 = 1 << 20;
/// Assumed output limit of such a model, for content of its earlier replies.
const DEFAULT_ITEM_TOKENS: u64 = 32_768;
/// Tokens that one web search is assumed to add to the prompt. The operator pays for more.
const TOKENS_PER_SEARCH: u64 = 8_192;
/// Seconds that a call may exceed its timeout: streams are checked once a second, and a started
/// second is billed in full.
const OVERTIME_SECONDS: u64 = 3;

/// Notes the objects in a provider's storage that a request names: their content is part of the
/// prompt, and only the provider knows it.
pub(super) fn note_objects(facts: &mut RequestFacts, named: &[StoredObject]) {
    let contained = named.iter().filter(|object| object.is_contained).count();
    facts.reads_storage |= contained < named.len();
    facts.looked_up_items = contained as u64;
}

/// Upper bound of input tokens over all lanes.
pub(super) fn max_input_tokens(
    call: &Call,
    facts: &RequestFacts,
    route: &Route,
    media: &MediaRefs,
) -> u64 {
    let body = call.body.len() as u64;
    let lanes = route.lanes.iter().map(|lane| lane_input(body, facts, media, lane));
    let input = lanes.max().unwrap_or(body);
    // Candidates that a lane's format cannot ask for are requests of their own.
    let sends_copies = |lane: &Arc<LiveLane>| {
        route::choose_dialect(lane, call.dialect.origin(), &facts.needs)
            .is_ok_and(|own| !own.traits().takes_candidates)
    };
    match facts.candidates {
        count @ 2..=MAX_COPIES if route.lanes.iter().any(sends_copies) => {
            input.saturating_mul(u64::from(count))
        }
        _ => input,
    }
}

/// Upper bound of the input tokens of a request at one lane: one token per byte of the text, plus media
/// by their measured size or at URLs, plus the results of web searches. Content that only the provider can see is
/// bounded by the context window, and so is everything together if the model reads it once.
fn lane_input(body: u64, facts: &RequestFacts, media: &MediaRefs, lane: &LiveLane) -> u64 {
    let (model, own) = (&lane.served_model, &lane.capabilities);
    let window = own.context_window.unwrap_or(DEFAULT_CONTEXT_TOKENS);
    if facts.reads_storage || facts.hosted_tools.read_content() {
        return window.max(if own.context_window.is_some() { 0 } else { body });
    }
    let most = facts.hosted_tools.searches.max(model.counts.searches);
    let searches = most.saturating_mul(TOKENS_PER_SEARCH).min(window);
    let item = own.max_output_tokens.unwrap_or(DEFAULT_ITEM_TOKENS);
    let items = facts.looked_up_items.saturating_mul(item).min(window);
    let input = body
        .saturating_add(facts.client_tool_bytes)
        .saturating_sub(media.inline.chars())
        .saturating_add(media.inline.max_tokens(lane, window))
        .saturating_add(media.max_tokens(lane))
        .saturating_add(searches)
        .saturating_add(items);
    match own.context_window {
        Some(window) if most == 0 => input.min(window),
        Some(_) | None => input,
    }
}

/// Size of the input on the scale of text, to estimate its tokens.
pub(super) fn likely_input_bytes(call: &Call, route: &Route, media: &MediaRefs) -> u64 {
    let body = call.body.len() as u64;
    let Some(lane) = route.lanes.first().filter(|_| media.inline.chars() > 0) else { return body };
    let window = lane.capabilities.context_window.unwrap_or(DEFAULT_CONTEXT_TOKENS);
    body.saturating_sub(media.inline.chars())
        .saturating_add(media.inline.likely_chars(lane, window))
}

/// Upper bound of what a chat call can use beyond tokens: searches, other tools and seconds.
pub(super) fn max_units<'a>(facts: &'a RequestFacts, route: &Route) -> BilledUnits<'a> {
    let total = route.lanes.iter().map(|lane| lane.timeouts.total).max().unwrap_or_default();
    let searches = route.lanes.iter().map(|lane| {
        let ModelCounts { searches, searches_once, image: _ } = lane.served_model.counts;
        let most = facts.hosted_tools.searches.max(searches);
        if searches_once { most.min(1) } else { most }
    });
    BilledUnits {
        searches: searches.max().unwrap_or(facts.hosted_tools.searches),
        tools: ToolUses {
            file_searches: facts.hosted_tools.file_searches,
            code_runs: facts.hosted_tools.run_units(facts.hosted_tools.code_runs),
            image_tokens: facts.hosted_tools.images.saturating_mul(canon::TOOL_IMAGE_TOKENS),
        },
        seconds: total.as_secs().saturating_add(OVERTIME_SECONDS),
        tier: facts.service_tier.as_ref(),
        ..BilledUnits::default()
    }
}

/// Highest cost over all price lists of the route.
pub(super) fn max_cost(route: &Route, input: u64, output: u64, units: &BilledUnits<'_>) -> Money {
    let bounds = route.prices.iter().map(|prices| prices.max_cost_with(input, output, units));
    bounds.max().unwrap_or_else(|| route.model.prices.max_cost_with(input, output, units))
}

/// Largest output limit whose cost the money covers, found by bisection.
pub(super) fn affordable_output(
    bound: impl Fn(u64) -> Money,
    money: Money,
    requested_output: u64,
) -> u64 {
    let (mut fits, mut too_much) = (0, requested_output.saturating_add(1));
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if bound(middle) <= money {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    fits
}
