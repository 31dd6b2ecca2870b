//! Writes a whole messages reply.

use canon::{
    ChatReply, ChatRequest, Finish, FinishReason, Losses, Lossy, Part, PartKind, ReplyCandidate,
    ThinkingDisplay,
};
use serde_json::Value;

use super::names::ORIGIN;
use super::usage;
use super::write_reply_blocks::ReplyBlocks;
use crate::ReplyStamp;
use crate::endings;
use crate::fields::ObjectWriter;
use crate::service_tier::{self, TIER_FIELD, USAGE_EXTRA};

/// Writes a reply to the caller of `chat`.
pub(super) fn write(reply: ChatReply, chat: &ChatRequest, stamp: &ReplyStamp) -> Lossy<Vec<u8>> {
    let ChatReply { id: _, model: _, created: _, candidates, usage: counts, extras } = reply;
    let mut losses = Losses::new();
    let tier = service_tier::note_reply_extras(&extras, ORIGIN, &mut losses);
    losses.add_if(candidates.len() > 1, "candidates", "the messages format has a single candidate");
    let first = candidates.into_iter().min_by_key(|candidate| candidate.index).unwrap_or_default();
    let ReplyCandidate { index: _, parts, finish, logprobs, extras: own } = first;
    service_tier::note_reply_extras(&own, ORIGIN, &mut losses);
    losses.add_if(!logprobs.is_empty(), "reply.logprobs", "the messages format has none");
    let refused = parts.iter().any(|part| matches!(part.kind, PartKind::Refusal(_)));
    let hidden = chat.thinking.display == Some(ThinkingDisplay::Hidden);
    let parts = parts.into_iter().map(|part| if hidden { hide(part) } else { part }).collect();
    let blocks = ReplyBlocks::new(&stamp.id).write_all(parts, &mut losses);
    let (reason, stop) = finish_words(finish.as_ref(), refused, &mut losses);
    let other_fields = extras.get(ORIGIN, USAGE_EXTRA);
    let usage = usage::write_usage(&counts.unwrap_or_default(), other_fields, true);
    let usage = with_tier(usage, tier);
    let body = ObjectWriter::new()
        .set("id", format!("msg_{}", stamp.id))
        .set("type", "message")
        .set("role", "assistant")
        .set("model", chat.model.as_str())
        .set("content", blocks)
        .set("stop_reason", reason)
        .set("stop_sequence", stop)
        .set("usage", usage)
        .with_extras(&own, ORIGIN)
        .with_extras(&extras, ORIGIN);
    (body.to_json(), losses.into_vec())
}

/// Adds the service tier that another format's reply reports.
pub(super) fn with_tier(usage: ObjectWriter, tier: Option<&'static str>) -> ObjectWriter {
    usage.set_some(TIER_FIELD, tier)
}

/// Removes the text of a thought, for callers that asked not to see it.
pub(super) fn hide(mut part: Part) -> Part {
    if let PartKind::Thought(thought) = &mut part.kind {
        thought.text.clear();
    }
    part
}

/// Returns stop reason and stop sequence to write. A refusal is plain text here, so only the reason
/// marks it.
pub(super) fn finish_words(
    finish: Option<&Finish>,
    refused: bool,
    losses: &mut Losses,
) -> (Value, Value) {
    let Some(Finish { reason: why, raw, stop_sequence: stop }) = finish else {
        return (Value::Null, Value::Null);
    };
    let why =
        if refused && *why == FinishReason::Stop { &FinishReason::ContentFilter } else { why };
    let word = match raw.for_format(ORIGIN) {
        Some(own) => own,
        None => endings::write_or_truncated(ORIGIN, *why, losses),
    };
    (Value::from(word), stop.as_deref().map_or(Value::Null, Value::from))
}
