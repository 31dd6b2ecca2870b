//! What a lane is sent: the caller's own bytes where the formats agree, a translation elsewhere.

use canon::{Chat, Fault, Loss, Origin, Show};
use dialects::{Brake, Dialect, Lane, Outgoing, Peek, Scale};

use super::Call;
use crate::config::{LiveLane, Route};
use crate::tokens;

/// A request ready for a lane.
pub(super) struct Prepared {
    pub(super) outgoing: Outgoing,
    /// The format the lane answers in.
    pub(super) dialect: &'static dyn Dialect,
    /// What the answer is translated back by, where it has to be.
    pub(super) speech: Option<Speech>,
    pub(super) losses: Vec<Loss>,
}

/// The request in canon, and where the gateway itself has to end the answer.
pub(super) struct Speech {
    pub(super) chat: Chat,
    pub(super) brake: Option<Brake>,
}

/// Prepares the call for a lane.
pub(super) fn prepare(
    call: &Call,
    peek: &Peek,
    route: &Route,
    lane: &LiveLane,
    limit: Option<u64>,
) -> Result<Prepared, Fault> {
    let own = call.dialect.origin();
    let dialect = speech(lane, own)?;
    let words = Lane { model: &lane.model, limit, max_output: route.model.max_output };
    if dialect.origin() == own {
        let outgoing = if call.edits.is_empty() {
            dialect.patch(&call.body, peek, &words)
        } else {
            let mut peek = peek.clone();
            peek.edits.extend(call.edits.iter().cloned());
            dialect.patch(&call.body, &peek, &words)
        };
        let speech = if call.own_reply {
            let chat = call.dialect.read_request(&call.target, &call.body)?;
            Some(Speech { chat, brake: None })
        } else {
            None
        };
        return Ok(Prepared { outgoing, dialect, speech, losses: Vec::new() });
    }
    let mut chat = call.dialect.read_request(&call.target, &call.body)?;
    if own == Origin::Chat {
        call.app.seals.restore(&call.key.record.account_id, &mut chat);
    }
    // Where a format has no word for it, or shows thinking unless told otherwise, a caller that asks
    // for thinking is shown it; the other formats must be asked.
    let thinking = &mut chat.thinking;
    let thinks = thinking.dynamic || thinking.tokens().is_some_and(|tokens| tokens > 0);
    if matches!(own, Origin::Messages | Origin::Chat) && thinks && thinking.show.is_none() {
        thinking.show = Some(Show::Auto);
    }
    // What is kept between calls is kept here, so no lane has to know of it.
    let state = std::mem::take(&mut chat.state);
    let (sampling, stream) = (chat.sampling.clone(), chat.stream);
    let lane_ends = (dialect.origin(), dialect.ends());
    let brake = Brake::take(&mut chat, limit, call.dialect.ends(), lane_ends);
    let (outgoing, losses) = dialect.write_request(&chat, &words)?;
    (chat.state, chat.sampling, chat.stream) = (state, sampling, stream);
    refuse_losses(call, &losses)?;
    let scale = || Scale { input: tokens::of_chat(&chat), of_text: tokens::of_text };
    let brake = brake.map(|brake| brake.scaled(scale()));
    Ok(Prepared { outgoing, dialect, speech: Some(Speech { chat, brake }), losses })
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
fn speech(lane: &LiveLane, own: Origin) -> Result<&'static dyn Dialect, Fault> {
    let mut spoken = lane.speaks.iter().filter_map(|origin| dialects::get(*origin));
    let same = if lane.speaks.contains(&own) { dialects::get(own) } else { None };
    same.or_else(|| spoken.next()).ok_or_else(|| {
        Fault::internal(format!("lane {} speaks no format this gateway knows", lane.name))
    })
}
