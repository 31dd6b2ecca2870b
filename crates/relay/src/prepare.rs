//! What a lane is sent: the caller's own bytes where the formats agree, a translation elsewhere.

use canon::{ApiError, ChatRequest, ConversationState, Loss, Losses, ThinkingDisplay, WireFormat};
use dialects::{
    Dialect, LaneSettings, ProviderRequest, RequestFacts, StopEnforcer, UsageEstimator,
};

use super::Call;
use super::adapt::adapt;
use super::media_refs::InlinedMedia;
use crate::token_estimate;
use config::LiveLane;

/// A request ready for a lane.
pub(super) struct PreparedRequest {
    pub(super) outgoing: ProviderRequest,
    /// The format the lane answers in.
    pub(super) dialect: &'static dyn Dialect,
    /// What the answer is translated back by, where it has to be.
    /// Boxed: it is large, and handed from step to step.
    pub(super) translation: Option<Box<LaneTranslation>>,
    pub(super) losses: Vec<Loss>,
}

/// The request in canon, and where the gateway itself has to end the answer.
pub(super) struct LaneTranslation {
    pub(super) request: ChatRequest,
    pub(super) stop_enforcer: Option<StopEnforcer>,
}

/// Prepares the call for a lane, with what was brought for it.
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
    let (outgoing, more) =
        adapt(&lane.endpoints, dialect.origin(), &lane.model, stream, given, outgoing)?;
    let losses = losses.into_iter().chain(more).collect::<Losses>().into_vec();
    refuse_losses(call, &losses)?;
    Ok(PreparedRequest { outgoing, dialect, translation: speech, losses })
}

/// A request in the lane's format, before it is made to fit the lane's own ways.
struct WrittenRequest {
    outgoing: ProviderRequest,
    /// Whether the lane is asked for a stream.
    stream: bool,
    translation: Option<Box<LaneTranslation>>,
    losses: Vec<Loss>,
}

/// The caller's own bytes with a few edits.
fn patch_body(
    call: &Call,
    peek: &RequestFacts,
    words: &LaneSettings<'_>,
) -> Result<WrittenRequest, ApiError> {
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

/// The caller's own format written anew: what was brought does not fit into the caller's bytes.
fn rewrite_body(
    call: &Call,
    words: &LaneSettings<'_>,
    brought: &InlinedMedia,
) -> Result<WrittenRequest, ApiError> {
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    brought.replace_urls(&mut chat, call.dialect.origin());
    let state = std::mem::take(&mut chat.state);
    let (outgoing, losses) = call.dialect.write_request(&chat, words)?;
    chat.state = state;
    let stream = chat.stream;
    let speech = call
        .rewrite_reply
        .then(|| Box::new(LaneTranslation { request: chat, stop_enforcer: None }));
    Ok(WrittenRequest { outgoing, stream, translation: speech, losses })
}

/// Another format.
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
    // Where a format has no word for it, or shows thinking unless told otherwise, a caller that asks
    // for thinking is shown it; the other formats must be asked.
    let thinking = &mut chat.thinking;
    let thinks = thinking.dynamic || thinking.effective_budget().is_some_and(|tokens| tokens > 0);
    if matches!(own, WireFormat::Messages | WireFormat::Chat)
        && thinks
        && thinking.display.is_none()
    {
        thinking.display = Some(ThinkingDisplay::Auto);
    }
    // What is kept between calls is kept here, and what the lane cannot end is ended here, so no
    // lane has to know of either.
    let asked = (chat.state.clone(), chat.sampling.clone(), chat.stream);
    chat.state = ConversationState::default();
    let ends = (dialect.origin(), dialect.stop_support());
    let brake = StopEnforcer::take_from(
        &mut chat,
        words.max_payable_output,
        call.dialect.stop_support(),
        ends,
    );
    let (outgoing, losses) = dialect.write_request(&chat, words)?;
    let stream = chat.stream;
    (chat.state, chat.sampling, chat.stream) = asked;
    let scale = || UsageEstimator {
        input_tokens: token_estimate::estimate_request(&chat),
        count_tokens: token_estimate::estimate_text,
    };
    let brake = brake.map(|brake| brake.with_estimator(scale()));
    let speech = Some(Box::new(LaneTranslation { request: chat, stop_enforcer: brake }));
    Ok(WrittenRequest { outgoing, stream, translation: speech, losses })
}

/// Refuses a translation that loses anything, for a caller who wants none.
pub(super) fn refuse_losses(call: &Call, losses: &[Loss]) -> Result<(), ApiError> {
    if !call.strict || losses.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = losses.iter().map(ToString::to_string).collect();
    let say = format!("this model cannot be given: {}", list.join("; "));
    Err(ApiError::invalid("", say).with_code("translation_loss"))
}

/// The format a lane is spoken to in: the caller's own if it can, else its preferred one.
pub(super) fn choose_dialect(
    lane: &LiveLane,
    own: WireFormat,
) -> Result<&'static dyn Dialect, ApiError> {
    let mut spoken = lane.formats.iter().filter_map(|origin| dialects::get(*origin));
    let same = if lane.formats.contains(&own) { dialects::get(own) } else { None };
    same.or_else(|| spoken.next()).ok_or_else(|| {
        ApiError::internal(format!("lane {} speaks no format this gateway knows", lane.name))
    })
}
