//! What a lane is sent: the caller's own bytes where the formats agree, a translation elsewhere.

use canon::{Chat, Fault, Loss, Origin, Show, State};
use dialects::{Brake, Dialect, Lane, Outgoing, Peek, Scale};

use super::Call;
use super::fetch::Brought;
use super::fit::fit;
use crate::tokens;
use config::LiveLane;

/// A request ready for a lane.
pub(super) struct Prepared {
    pub(super) outgoing: Outgoing,
    /// The format the lane answers in.
    pub(super) dialect: &'static dyn Dialect,
    /// What the answer is translated back by, where it has to be.
    /// Boxed: it is large, and handed from step to step.
    pub(super) speech: Option<Box<Speech>>,
    pub(super) losses: Vec<Loss>,
}

/// The request in canon, and where the gateway itself has to end the answer.
pub(super) struct Speech {
    pub(super) chat: Chat,
    pub(super) brake: Option<Brake>,
}

/// Prepares the call for a lane, with what was brought for it.
pub(super) fn prepare(
    call: &Call,
    peek: &Peek,
    lane: &LiveLane,
    limit: Option<u64>,
    brought: &Brought,
) -> Result<Prepared, Fault> {
    let dialect = speech(lane, call.dialect.origin())?;
    let words = Lane {
        model: &lane.model,
        limit,
        max_output: lane.serves.max_output,
        steering: lane.steering.as_ref(),
    };
    let same = dialect.origin() == call.dialect.origin();
    let written = match same {
        true if brought.is_empty() => patched(call, peek, &words)?,
        true => rewritten(call, &words, brought)?,
        false => translated(call, dialect, &words, brought)?,
    };
    let Written { outgoing, stream, speech, mut losses } = written;
    let given = same.then_some(&call.handed_on);
    let (outgoing, more) = fit(&lane.ways, dialect.origin(), &lane.model, stream, given, outgoing)?;
    losses.extend(more);
    refuse_losses(call, &losses)?;
    Ok(Prepared { outgoing, dialect, speech, losses })
}

/// A request in the lane's format, before it is made to fit the lane's own ways.
struct Written {
    outgoing: Outgoing,
    /// Whether the lane is asked for a stream.
    stream: bool,
    speech: Option<Box<Speech>>,
    losses: Vec<Loss>,
}

/// The caller's own bytes with a few edits.
fn patched(call: &Call, peek: &Peek, words: &Lane<'_>) -> Result<Written, Fault> {
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
    let losses = peek.losses.iter().cloned().collect();
    Ok(Written { outgoing, stream: peek.stream, speech, losses })
}

/// The caller's own format written anew: what was brought does not fit into the caller's bytes.
fn rewritten(call: &Call, words: &Lane<'_>, brought: &Brought) -> Result<Written, Fault> {
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
    words: &Lane<'_>,
    brought: &Brought,
) -> Result<Written, Fault> {
    let own = call.dialect.origin();
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    brought.place(&mut chat, own);
    if matches!(own, Origin::Chat | Origin::Messages) {
        call.engine.seals.restore(&call.key.record.account_id, dialect.origin(), &mut chat);
    }
    // Where a format has no word for it, or shows thinking unless told otherwise, a caller that asks
    // for thinking is shown it; the other formats must be asked.
    let thinking = &mut chat.thinking;
    let thinks = thinking.dynamic || thinking.tokens().is_some_and(|tokens| tokens > 0);
    if matches!(own, Origin::Messages | Origin::Chat) && thinks && thinking.show.is_none() {
        thinking.show = Some(Show::Auto);
    }
    // What is kept between calls is kept here, and what the lane cannot end is ended here, so no
    // lane has to know of either.
    let asked = (chat.state.clone(), chat.sampling.clone(), chat.stream);
    chat.state = State::default();
    let ends = (dialect.origin(), dialect.ends());
    let brake = Brake::take(&mut chat, words.limit, call.dialect.ends(), ends);
    let (outgoing, losses) = dialect.write_request(&chat, words)?;
    let stream = chat.stream;
    (chat.state, chat.sampling, chat.stream) = asked;
    let scale = || Scale { input: tokens::of_chat(&chat), of_text: tokens::of_text };
    let brake = brake.map(|brake| brake.scaled(scale()));
    let speech = Some(Box::new(Speech { chat, brake }));
    Ok(Written { outgoing, stream, speech, losses })
}

/// Refuses a translation that loses anything, for a caller who wants none.
pub(super) fn refuse_losses(call: &Call, losses: &[Loss]) -> Result<(), Fault> {
    if !call.strict || losses.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = losses.iter().map(ToString::to_string).collect();
    let say = format!("this model cannot be given: {}", list.join("; "));
    Err(Fault::invalid("", say).code("translation_loss"))
}

/// The format a lane is spoken to in: the caller's own if it can, else its preferred one.
pub(super) fn speech(lane: &LiveLane, own: Origin) -> Result<&'static dyn Dialect, Fault> {
    let mut spoken = lane.speaks.iter().filter_map(|origin| dialects::get(*origin));
    let same = if lane.speaks.contains(&own) { dialects::get(own) } else { None };
    same.or_else(|| spoken.next()).ok_or_else(|| {
        Fault::internal(format!("lane {} speaks no format this gateway knows", lane.name))
    })
}
