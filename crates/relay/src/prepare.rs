//! Request for a lane: the caller's own bytes if the formats agree, a translation otherwise.

use canon::{ChatRequest, ApiError, Loss, Losses, WireFormat, ThinkingDisplay, ConversationState};
use dialects::{StopEnforcer, Dialect, LaneSettings, ProviderRequest, RequestFacts, UsageEstimator};

use super::Call;
use super::media_refs::InlinedMedia;
use super::adapt::adapt;
use crate::token_estimate;
use config::LiveLane;

/// A request ready for a lane.
pub(super) struct PreparedRequest {
    pub(super) outgoing: ProviderRequest,
    /// Format of the lane's reply.
    pub(super) dialect: &'static dyn Dialect,
    /// Needed to translate the reply back; `None` for pass-through. Boxed because it is large and
    /// moves from step to step.
    pub(super) translation: Option<Box<LaneTranslation>>,
    pub(super) losses: Vec<Loss>,
}

/// A parsed request, and the point at which the gateway itself must end the reply.
pub(super) struct LaneTranslation {
    pub(super) request: ChatRequest,
    pub(super) stop_enforcer: Option<StopEnforcer>,
}

/// Prepares the request for a lane, with its inlined media.
pub(super) fn prepare(
    call: &Call,
    peek: &RequestFacts,
    lane: &LiveLane,
    limit: Option<u64>,
    brought: &InlinedMedia,
) -> Result<PreparedRequest, ApiError> {
    let dialect = choose_dialect(lane, call.dialect.origin())?;
    let words = LaneSettings {
        model: &lane.model,
        max_payable_output: limit,
        model_max_output: lane.served_model.max_output_tokens,
        thinking_controls: lane.thinking_controls.as_ref(),
    };
    let same = dialect.origin() == call.dialect.origin();
    let written = match same {
        true if brought.is_empty() => patch_body(call, peek, &words)?,
        true => rewrite_body(call, &words, brought)?,
        false => translate_request(call, dialect, &words, brought)?,
    };
    let WrittenRequest { outgoing, stream, translation: speech, losses } = written;
    let given = same.then_some(&call.forwarded_headers);
    let (outgoing, more) = adapt(&lane.endpoints, dialect.origin(), &lane.model, stream, given, outgoing)?;
    let losses = losses.into_iter().chain(more).collect::<Losses>().into_vec();
    refuse_losses(call, &losses)?;
    Ok(PreparedRequest { outgoing, dialect, translation: speech, losses })
}

/// A request in the lane's format, before it is adapted to the provider.
struct WrittenRequest {
    outgoing: ProviderRequest,
    /// True if the lane is asked for a stream.
    stream: bool,
    translation: Option<Box<LaneTranslation>>,
    losses: Vec<Loss>,
}

/// Edits a few spans of the caller's bytes.
fn patch_body(call: &Call, peek: &RequestFacts, words: &LaneSettings<'_>) -> Result<WrittenRequest, ApiError> {
    let outgoing = if call.edits.is_empty() {
        call.dialect.patch(&call.body, peek, words)
    } else {
        let mut peek = peek.clone();
        peek.edits.extend(call.edits.iter().cloned());
        call.dialect.patch(&call.body, &peek, words)
    };
    let speech = match call.rewrite_reply {
        true => {
            let chat = call.dialect.read_request(&call.target, &call.body)?;
            Some(Box::new(LaneTranslation { request: chat, stop_enforcer: None }))
        }
        false => None,
    };
    let losses = peek.losses.clone().into_vec();
    Ok(WrittenRequest { outgoing, stream: peek.stream, translation: speech, losses })
}

/// Parses and rewrites a request in the caller's own format, because inlined media do not fit into
/// the caller's bytes.
fn rewrite_body(call: &Call, words: &LaneSettings<'_>, brought: &InlinedMedia) -> Result<WrittenRequest, ApiError> {
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    brought.replace_urls(&mut chat, call.dialect.origin());
    let state = std::mem::take(&mut chat.state);
    let (outgoing, losses) = call.dialect.write_request(&chat, words)?;
    chat.state = state;
    let stream = chat.stream;
    let speech = call.rewrite_reply.then(|| Box::new(LaneTranslation { request: chat, stop_enforcer: None }));
    Ok(WrittenRequest { outgoing, stream, translation: speech, losses })
}

/// Translates a request to the lane's format.
fn translate_request(
    call: &Call,
    dialect: &'static dyn Dialect,
    words: &LaneSettings<'_>,
    brought: &InlinedMedia,
) -> Result<WrittenRequest, ApiError> {
    let own = call.dialect.origin();
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    brought.replace_urls(&mut chat, own);
    if matches!(own, WireFormat::Chat | WireFormat::Messages) {
        call.engine.signatures.restore(&call.key.record.account_id, dialect.origin(), &mut chat);
    }
    // The chat format has no field for showing thoughts, and the messages format shows them by
    // default. So a caller of either that enables thinking is shown it. The other formats must ask.
    let thinking = &mut chat.thinking;
    let thinks = thinking.dynamic || thinking.effective_budget().is_some_and(|tokens| tokens > 0);
    if matches!(own, WireFormat::Messages | WireFormat::Chat) && thinks && thinking.display.is_none() {
        thinking.display = Some(ThinkingDisplay::Auto);
    }
    // The gateway keeps the conversation state and enforces the stops that the lane cannot, so both
    // are removed from the lane's request.
    let asked = (chat.state.clone(), chat.sampling.clone(), chat.stream);
    chat.state = ConversationState::default();
    let ends = (dialect.origin(), dialect.stop_support());
    let brake = StopEnforcer::take_from(&mut chat, words.max_payable_output, call.dialect.stop_support(), ends);
    let (outgoing, losses) = dialect.write_request(&chat, words)?;
    let stream = chat.stream;
    (chat.state, chat.sampling, chat.stream) = asked;
    let scale = || UsageEstimator { input_tokens: token_estimate::estimate_request(&chat), count_tokens: token_estimate::estimate_text };
    let brake = brake.map(|brake| brake.with_estimator(scale()));
    let speech = Some(Box::new(LaneTranslation { request: chat, stop_enforcer: brake }));
    Ok(WrittenRequest { outgoing, stream, translation: speech, losses })
}

/// Refuses a translation with losses if the caller asked for strictness.
pub(super) fn refuse_losses(call: &Call, losses: &[Loss]) -> Result<(), ApiError> {
    if !call.strict || losses.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = losses.iter().map(ToString::to_string).collect();
    let say = format!("this model does not support: {}", list.join("; "));
    Err(ApiError::invalid("", say).with_code("translation_loss"))
}

/// Returns the format for a lane: the caller's own if the lane has it, else the lane's preferred
/// one.
pub(super) fn choose_dialect(lane: &LiveLane, own: WireFormat) -> Result<&'static dyn Dialect, ApiError> {
    let mut spoken = lane.formats.iter().filter_map(|origin| dialects::get(*origin));
    let same = if lane.formats.contains(&own) { dialects::get(own) } else { None };
    same.or_else(|| spoken.next()).ok_or_else(|| {
        ApiError::internal(format!("lane {} has no format known to this gateway", lane.name))
    })
}
