//! Writes a whole response from canon: the last event of a stream.

use canon::{ChatReply, ChatRequest, Event, Lossy, PartDelta, PartIndex, PartKind, PartStart};

use super::write_stream::ResponsesStreamWriter;
use crate::{ReplyStamp, StreamWriter as _};

/// Writes a reply to the given request.
pub(super) fn write(
    mut reply: ChatReply,
    chat: &ChatRequest,
    stamp: &ReplyStamp,
) -> Lossy<Vec<u8>> {
    let mut parts = Vec::new();
    for candidate in &mut reply.candidates {
        let list = std::mem::take(&mut candidate.parts);
        let mut logprobs = Some(std::mem::take(&mut candidate.logprobs));
        let has_text = list.iter().any(|part| matches!(part.kind, PartKind::Text { .. }));
        for (slot, part) in (0..).zip(list) {
            let place = PartIndex { candidate: candidate.index, slot };
            let has_logprobs = match part.kind {
                PartKind::Text { .. } => true,
                PartKind::Refusal(_) => !has_text,
                _ => false,
            };
            let own = logprobs.take_if(|list| has_logprobs && !list.is_empty());
            // Everything of the part is known from the start, so that it keeps its ids.
            parts.push(Event::PartStart(place, PartStart::Complete(Box::new(part))));
            parts.extend(own.map(|list| Event::PartDelta(place, PartDelta::Logprobs(list))));
            parts.push(Event::PartEnd(place));
        }
    }
    let mut events = canon::into_events(reply);
    events.splice(1..1, parts);
    let (mut writer, mut out) = (ResponsesStreamWriter::new(chat, stamp, true), Vec::new());
    for event in events {
        writer.push(event, &mut out);
    }
    let (_, response) = writer.end(&mut out);
    (response.to_json(), writer.take_losses())
}
