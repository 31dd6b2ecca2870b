//! Writes a whole response from canon: the last event of a stream.

use canon::{ChatReply, ChatRequest, Lossy, PartDelta, PartKind, PartStart};

use super::write_stream::ResponsesStreamWriter;
use crate::{ReplyStamp, StreamWriter as _};

/// Writes a reply to the given request.
pub(super) fn write(
    mut reply: ChatReply,
    chat: &ChatRequest,
    stamp: &ReplyStamp,
) -> Lossy<Vec<u8>> {
    let mut writer = ResponsesStreamWriter::new(chat, stamp, true);
    for candidate in &mut reply.candidates {
        let parts = std::mem::take(&mut candidate.parts);
        let mut logprobs = std::mem::take(&mut candidate.logprobs);
        if candidate.index != 0 && !parts.is_empty() {
            writer.note_candidate();
            continue;
        }
        let has_text = parts.iter().any(|part| matches!(part.kind, PartKind::Text { .. }));
        for part in parts {
            let has_logprobs = match part.kind {
                PartKind::Text { .. } => true,
                PartKind::Refusal(_) => !has_text,
                _ => false,
            };
            // Everything of the part is known from the start, so that it keeps its ids.
            writer.items.open_part(PartStart::Complete(Box::new(part)));
            if has_logprobs && !logprobs.is_empty() {
                writer.items.add_growth(PartDelta::Logprobs(std::mem::take(&mut logprobs)));
            }
            writer.items.close_part();
        }
    }
    let mut out = Vec::new();
    for event in canon::into_events(reply) {
        writer.push(event, &mut out);
    }
    let (_, response) = writer.end();
    (response.into_json(), writer.take_losses())
}
