//! What a lane is sent: the caller's own bytes where the formats agree, a translation elsewhere.

use canon::{ChatRequest, ApiError, Loss, Losses, WireFormat, ThinkingDisplay, ConversationState};
use dialects::{StopEnforcer, Dialect, LaneSettings, ProviderRequest, RequestFacts, UsageEstimator};

use super::Call;
use super::fetch::Brought;
use super::fit::fit;
use crate::tokens;
use config::LiveLane;

/// A request ready for a lane.
pub(super) struct Prepared {
    pub(super) outgoing: ProviderRequest,
    /// The format the lane answers in.
    pub(super) dialect: &'static dyn Dialect,
    /// What the answer is translated back by, where it has to be.
    /// Boxed: it is large, and handed from step to step.
    pub(super) speech: Option<Box<Speech>>,
    pub(super) losses: Vec<Loss>,
}

/// The request in canon, and where the gateway itself has to end the answer.
pub(super) struct Speech {
    pub(super) chat: ChatRequest,
    pub(super) brake: Option<StopEnforcer>,
}

/// Prepares the call for a lane, with what was brought for it.
pub(super) fn prepare(
    call: &Call,
    peek: &RequestFacts,
    lane: &LiveLane,
    limit: Option<u64>,
    brought: &Brought,
) -> Result<Prepared, ApiError> {
    let dialect = speech(lane, call.dialect.origin())?;
    let words = LaneSettings {
        model: &lane.model,
        max_payable_output: limit,
        model_max_output: lane.serves.max_output_tokens,
        thinking_controls: lane.steering.as_ref(),
    };
    let same = dialect.origin() == call.dialect.origin();
    let written = match same {
        true if brought.is_empty() => patched(call, peek, &words)?,
        true => rewritten(call, &words, brought)?,
        false => translated(call, dialect, &words, brought)?,
    };
    let Written { outgoing, stream, speech, losses } = written;
    let given = same.then_some(&call.handed_on);
    let (outgoing, more) = fit(&lane.ways, dialect.origin(), &lane.model, stream, given, outgoing)?;
    let losses = losses.into_iter().chain(more).collect::<Losses>().into_vec();
    refuse_losses(call, &losses)?;
    Ok(Prepared { outgoing, dialect, speech, losses })
}

/// A request in the lane's format, before it is made to fit the lane's own ways.
struct Written {
    outgoing: ProviderRequest,
    /// Whether the lane is asked for a stream.
    stream: bool,
    speech: Option<Box<Speech>>,
    losses: Vec<Loss>,
}

/// The caller's own bytes with a few edits.
fn patched(call: &Call, peek: &RequestFacts, words: &LaneSettings<'_>) -> Result<Written, ApiError> {
    let outgoing = if call.edits.is_empty() {
        call.dialect.patch(&call.body, peek, words)
    } else {
        let mut peek = peek.clone();
        peek.edits.extend(call.edits.iter().cloned());
        call.dialect.patch(&call.body, &peek, words)
    };
    let speech = match call.own_reply {
        true => {
            let chat = call.dialect.read_request(&call.target, &call.body)?;
            Some(Box::new(Speech { chat, brake: None }))
        }
        false => None,
    };
    let losses = peek.losses.clone().into_vec();
    Ok(Written { outgoing, stream: peek.stream, speech, losses })
}

/// The caller's own format written anew: what was brought does not fit into the caller's bytes.
fn rewritten(call: &Call, words: &LaneSettings<'_>, brought: &Brought) -> Result<Written, ApiError> {
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    brought.place(&mut chat, call.dialect.origin());
    let state = std::mem::take(&mut chat.state);
    let (outgoing, losses) = call.dialect.write_request(&chat, words)?;
    chat.state = state;
    let stream = chat.stream;
    let speech = call.own_reply.then(|| Box::new(Speech { chat, brake: None }));
    Ok(Written { outgoing, stream, speech, losses })
}

/// Another format.
fn translated(
    call: &Call,
    dialect: &'static dyn Dialect,
    words: &LaneSettings<'_>,
    brought: &Brought,
) -> Result<Written, ApiError> {
    let own = call.dialect.origin();
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    brought.place(&mut chat, own);
    if matches!(own, WireFormat::Chat | WireFormat::Messages) {
        call.engine.seals.restore(&call.key.record.account_id, dialect.origin(), &mut chat);
    }
    // Where a format has no word for it, or shows thinking unless told otherwise, a caller that asks
    // for thinking is shown it; the other formats must be asked.
    let thinking = &mut chat.thinking;
    let thinks = thinking.dynamic || thinking.effective_budget().is_some_and(|tokens| tokens > 0);
    if matches!(own, WireFormat::Messages | WireFormat::Chat) && thinks && thinking.display.is_none() {
        thinking.display = Some(ThinkingDisplay::Auto);
    }
    // What is kept between calls is kept here, and what the lane cannot end is ended here, so no
    // lane has to know of either.
    let asked = (chat.state.clone(), chat.sampling.clone(), chat.stream);
    chat.state = ConversationState::default();
    let ends = (dialect.origin(), dialect.stop_support());
    let brake = StopEnforcer::take_from(&mut chat, words.max_payable_output, call.dialect.stop_support(), ends);
    let (outgoing, losses) = dialect.write_request(&chat, words)?;
    let stream = chat.stream;
    (chat.state, chat.sampling, chat.stream) = asked;
    let scale = || UsageEstimator { input_tokens: tokens::of_chat(&chat), count_tokens: tokens::of_text };
    let brake = brake.map(|brake| brake.with_estimator(scale()));
    let speech = Some(Box::new(Speech { chat, brake }));
    Ok(Written { outgoing, stream, speech, losses })
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
pub(super) fn speech(lane: &LiveLane, own: WireFormat) -> Result<&'static dyn Dialect, ApiError> {
    let mut spoken = lane.speaks.iter().filter_map(|origin| dialects::get(*origin));
    let same = if lane.speaks.contains(&own) { dialects::get(own) } else { None };
    same.or_else(|| spoken.next()).ok_or_else(|| {
        ApiError::internal(format!("lane {} speaks no format this gateway knows", lane.name))
    })
}
