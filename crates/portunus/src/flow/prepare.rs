//! What a lane is sent: the caller's own bytes where the formats agree, a translation elsewhere.

use canon::{Chat, Fault, Loss, Origin, Show};
use dialects::{Dialect, Lane, Outgoing, Peek};

use super::Call;
use crate::config::{LiveLane, Route};

/// A request ready for a lane.
pub(super) struct Prepared {
    pub(super) outgoing: Outgoing,
    /// The format the lane answers in.
    pub(super) dialect: &'static dyn Dialect,
    /// The request in canon, when the answer has to be translated back.
    pub(super) chat: Option<Chat>,
    pub(super) losses: Vec<Loss>,
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
    let words = Lane {
        model: &lane.model,
        limit,
        max_output: route.model.max_output,
        steering: lane.steering.as_ref(),
    };
    if dialect.origin() == own {
        let outgoing = if call.edits.is_empty() {
            dialect.patch(&call.body, peek, &words)
        } else {
            let mut peek = peek.clone();
            peek.edits.extend(call.edits.iter().cloned());
            dialect.patch(&call.body, &peek, &words)
        };
        let losses: Vec<Loss> = peek.losses.iter().cloned().collect();
        refuse_losses(call, &losses)?;
        let chat = if call.own_reply {
            Some(call.dialect.read_request(&call.target, &call.body)?)
        } else {
            None
        };
        return Ok(Prepared { outgoing, dialect, chat, losses });
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
    let (outgoing, losses) = dialect.write_request(&chat, &words)?;
    chat.state = state;
    refuse_losses(call, &losses)?;
    Ok(Prepared { outgoing, dialect, chat: Some(chat), losses })
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
