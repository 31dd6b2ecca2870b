//! Request for a lane: the caller's own bytes if the formats agree, a translation otherwise.

use canon::{ApiError, ChatRequest, Loss, Losses, StopEnforcer, ThinkingDisplay, UsageEstimator};
use dialects::{
    Dialect, LaneSettings, ProviderRequest, RefusedRequest, RequestFacts, with_caller_paths,
};

use super::adapt::adapt;
use super::call_options::LOSSY_HEADER;
use super::fence;
use super::media_refs::InlinedRequest;
use super::{Call, route};
use crate::token_estimate;
use config::LiveLane;
use std::sync::Arc;
use upstream::Provider;

/// Requests that the gateway sends for one call at most. A caller that asks for more candidates is
/// told that it gets one.
pub(super) const MAX_COPIES: u32 = 8;

/// A request ready for a lane.
pub(super) struct PreparedRequest {
    pub(super) outgoing: ProviderRequest,
    pub(super) reply: ExpectedReply,
    pub(super) losses: Vec<Loss>,
}

/// The reply that a lane is asked for.
pub(super) struct ExpectedReply {
    pub(super) dialect: &'static dyn Dialect,
    pub(super) provider: Arc<Provider>,
    /// True for a stream: for the caller, or because the gateway may have to end the reply early.
    pub(super) is_stream: bool,
    /// Number of times the request is sent, for candidates that the lane's format cannot ask for.
    pub(super) copies: u32,
    /// Needed to translate the reply back; `None` for pass-through. Boxed because it is large and
    /// moves from step to step.
    pub(super) translation: Option<Box<LaneTranslation>>,
}

/// A parsed request, and the point at which the gateway itself must end the reply.
pub(super) struct LaneTranslation {
    pub(super) request: Box<ChatRequest>,
    pub(super) stop_enforcer: Option<StopEnforcer>,
}

/// Prepares the request for a lane and its format. `inlined` is the result of the media step.
pub(super) fn prepare(
    call: &Call,
    facts: &RequestFacts,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    limit: Option<u64>,
    inlined: InlinedRequest,
) -> Result<PreparedRequest, ApiError> {
    let quirks = lane.endpoints.quirks(dialect.origin());
    let settings = LaneSettings {
        model: &lane.model,
        max_payable_output: limit,
        model_max_output: max_output(lane),
        thinking_range: lane.thinking_range.as_ref(),
        cache_field: quirks.and_then(|own| own.cache_field),
        client_tools: quirks.map_or(&[], |own| own.client_tools.as_slice()),
    };
    let same = dialect.origin() == call.dialect.origin();
    fence::check_lane(&facts.foreign_objects, lane, same)?;
    let has_unread = || facts.needs.media().any(|(_, kind)| !lane.capabilities.may_read(kind));
    let must_parse = !same || facts.has_reply_images || (call.options.lossy && has_unread());
    let parsed = match inlined {
        None if must_parse => Some(call.read_chat()?),
        inlined => inlined,
    };
    let mut dropped = Vec::new();
    let written = match parsed {
        None => patch_body(call, facts, &settings)?,
        Some(mut chat) => {
            if must_parse {
                dropped = carry_media(call, lane, dialect, &mut chat)?;
            }
            match same {
                true => rewrite_body(call, &settings, chat)?,
                false => translate_request(call, dialect, &settings, chat)?,
            }
        }
    };
    let WrittenRequest { outgoing, stream, copies, translation, losses } = written;
    let forwarded = same.then_some(&call.forwarded_headers);
    let (outgoing, more) =
        adapt(&lane.endpoints, dialect.origin(), &lane.model, stream, forwarded, outgoing)?;
    let losses = dropped.into_iter().chain(losses).chain(more).collect::<Losses>().into_vec();
    refuse_losses(call, &losses)?;
    let provider = Arc::clone(&lane.provider);
    let reply = ExpectedReply { dialect, provider, is_stream: stream, copies, translation };
    Ok(PreparedRequest { outgoing, reply, losses })
}

/// Returns the maximum output of the model at a lane, within that of the requested one, which was reserved.
fn max_output(lane: &LiveLane) -> Option<u64> {
    let (own, requested) = (&lane.capabilities, &lane.served_model.capabilities);
    own.max_output_tokens.into_iter().chain(requested.max_output_tokens).min()
}

/// A request in the lane's format, before it is adapted to the provider.
struct WrittenRequest {
    outgoing: ProviderRequest,
    /// True if the lane is asked for a stream.
    stream: bool,
    copies: u32,
    translation: Option<Box<LaneTranslation>>,
    losses: Vec<Loss>,
}

/// Edits a few spans of the caller's bytes.
fn patch_body(
    call: &Call,
    facts: &RequestFacts,
    settings: &LaneSettings<'_>,
) -> Result<WrittenRequest, ApiError> {
    let outgoing = if call.edits.is_empty() {
        call.dialect.patch(&call.body, facts, settings)
    } else {
        let mut facts = facts.clone();
        facts.edits.extend(call.edits.iter().cloned());
        call.dialect.patch(&call.body, &facts, settings)
    };
    let translation = match call.rewrite_reply {
        true => {
            let chat = call.read_chat()?;
            Some(Box::new(LaneTranslation { request: chat, stop_enforcer: None }))
        }
        false => None,
    };
    let losses = facts.losses.clone().into_vec();
    Ok(WrittenRequest { outgoing, stream: facts.stream, copies: 1, translation, losses })
}

/// Writes a parsed request in the caller's own format, because inlined media do not fit into the
/// caller's bytes.
fn rewrite_body(
    call: &Call,
    settings: &LaneSettings<'_>,
    mut chat: Box<ChatRequest>,
) -> Result<WrittenRequest, ApiError> {
    let state = std::mem::take(&mut chat.state);
    let written = call.dialect.write_request(&chat, settings);
    let (outgoing, losses) = written.map_err(|error| name_caller_field(call, error, &chat))?;
    chat.state = state;
    let stream = chat.stream;
    let translation = call
        .rewrite_reply
        .then(|| Box::new(LaneTranslation { request: chat, stop_enforcer: None }));
    Ok(WrittenRequest { outgoing, stream, copies: 1, translation, losses })
}

/// Translates a parsed request to the lane's format.
fn translate_request(
    call: &Call,
    dialect: &'static dyn Dialect,
    settings: &LaneSettings<'_>,
    mut chat: Box<ChatRequest>,
) -> Result<WrittenRequest, ApiError> {
    let own = call.dialect.traits();
    if !own.returns_signatures {
        call.engine.signatures.restore(&call.key.record.account_id, dialect.origin(), &mut chat);
    }
    let thinking = &mut chat.thinking;
    let thinks = thinking.dynamic || thinking.effective_budget().is_some_and(|tokens| tokens > 0);
    if own.shows_thoughts && thinks && thinking.display.is_none() {
        thinking.display = Some(ThinkingDisplay::Auto);
    }
    // The gateway keeps the conversation state and enforces the stops that the lane cannot, so both
    // are removed from the lane's request.
    let saved = (std::mem::take(&mut chat.state), chat.sampling.clone(), chat.stream);
    let lane_stops = (dialect.origin(), dialect.traits().stop_support);
    let enforcer = StopEnforcer::take_from(
        &mut chat,
        settings.max_payable_output,
        call.dialect.traits().stop_support,
        lane_stops,
    );
    let copies = match chat.sampling.candidates {
        // A reply that the gateway must end itself is a stream, and streams are not joined.
        Some(count @ 2..=MAX_COPIES)
            if enforcer.is_none() && !dialect.traits().takes_candidates =>
        {
            (chat.sampling.candidates, chat.stream) = (None, false);
            count
        }
        Some(_) | None => 1,
    };
    let written = dialect.write_request(&chat, settings);
    let (outgoing, losses) = written.map_err(|error| name_caller_field(call, error, &chat))?;
    let stream = chat.stream;
    (chat.state, chat.sampling, chat.stream) = saved;
    let scale = || UsageEstimator {
        input_tokens: token_estimate::estimate_request(&chat),
        count_tokens: token_estimate::estimate_text,
    };
    let enforcer = enforcer.map(|enforcer| enforcer.with_estimator(scale()));
    let translation = Some(Box::new(LaneTranslation { request: chat, stop_enforcer: enforcer }));
    Ok(WrittenRequest { outgoing, stream, copies, translation, losses })
}

/// Replaces the path in the parsed request by the path in the caller's own.
fn name_caller_field(call: &Call, error: ApiError, chat: &ChatRequest) -> ApiError {
    with_caller_paths(error, RefusedRequest::Parsed(chat), call.dialect.origin(), &call.body)
}

/// Code of a refusal because of losses.
pub(super) const TRANSLATION_LOSS: &str = "translation_loss";

/// Refuses a request with media that the lane's format cannot carry, unless the caller has them left out,
/// together with those that the lane's model does not read. Returns the losses of that.
fn carry_media(
    call: &Call,
    lane: &LiveLane,
    dialect: &'static dyn Dialect,
    chat: &mut ChatRequest,
) -> Result<Vec<Loss>, ApiError> {
    if call.options.lossy {
        let reads = |kind| lane.capabilities.may_read(kind);
        return Ok(dialects::drop_media(chat, dialect, reads));
    }
    dialects::check_media(chat, dialect).map_err(|error| {
        let hint = format!("the header `{LOSSY_HEADER}: true` leaves it out");
        let message = format!("{}; {hint}", error.message());
        let error = error.with_message(message).with_code(TRANSLATION_LOSS);
        name_caller_field(call, error, chat)
    })?;
    Ok(Vec::new())
}

/// Refuses a request with media that no lane's format can carry. All lanes need a translation. The error is that
/// of the first lane.
pub(super) fn check_carried(
    call: &Call,
    facts: &RequestFacts,
    lanes: &[Arc<LiveLane>],
) -> Result<(), ApiError> {
    let mut chat = call.read_chat()?;
    let mut result = Ok(());
    for lane in lanes {
        let dialect = route::choose_dialect(lane, call.dialect.origin(), &facts.needs)?;
        let carried = carry_media(call, lane, dialect, &mut chat).map(|_| ());
        if carried.is_ok() {
            result = carried;
            break;
        }
        result = result.and(carried);
    }
    call.keep_chat(chat);
    result
}

/// Refuses a translation with losses if the caller asked for strictness.
pub(super) fn refuse_losses(call: &Call, losses: &[Loss]) -> Result<(), ApiError> {
    if !call.options.strict || losses.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = losses.iter().map(ToString::to_string).collect();
    let message = format!("this model does not support: {}", list.join("; "));
    Err(ApiError::invalid("", message).with_code(TRANSLATION_LOSS))
}
