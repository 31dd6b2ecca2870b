//! Reads a provider's whole reply into canon, as the events of a stream.

use canon::{ApiError, ChatReply, ErrorKind, ReplyBuilder};
use serde_json::value::RawValue;

use super::fault;
use super::read_stream::MessagesStreamReader;
use super::reply::{MessagesDelta, MessagesEvent, MessagesReplyBlock, MessagesReplyView};
use crate::wire_object::raw_value;

/// Reads a reply. An error object in place of a reply is returned as that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let mut view = parse(body)?;
    let (mut reader, mut events) = (MessagesStreamReader::default(), Vec::new());
    let delta = MessagesDelta {
        stop_reason: view.stop_reason.take(),
        stop_sequence: view.stop_sequence.take(),
        stop_details: view.stop_details.take(),
        ..MessagesDelta::default()
    };
    let usage = view.usage.take();
    let end = MessagesEvent { delta: Some(delta), usage, ..MessagesEvent::default() };
    let content = view.content.take().map(RawValue::get).unwrap_or_default();
    let blocks: Vec<MessagesReplyBlock<'_>> =
        serde_json::from_str(content).map_err(|e| unreadable(&e.to_string()))?;
    reader.start(view, &mut events)?;
    for (index, block) in (0..).zip(blocks) {
        reader.start_block(index, block, &mut events)?;
        reader.stop_block(index, &mut events).map_err(|e| unreadable(&e.to_string()))?;
    }
    reader.end(end, &mut events)?;
    let mut reply = ReplyBuilder::default();
    events.into_iter().try_for_each(|event| reply.push(event))?;
    Ok(reply.finish())
}

/// Parses a whole reply.
pub(super) fn parse(body: &[u8]) -> Result<MessagesReplyView<'_>, ApiError> {
    let view: MessagesReplyView<'_> =
        serde_json::from_slice(body).map_err(|e| unreadable(&e.to_string()))?;
    match (view.error, view.content) {
        (Some(error), _) => Err(fault::read_object(&raw_value(error))),
        (None, None) => Err(unreadable("there is no `content`")),
        (None, Some(_)) => Ok(view),
    }
}

fn unreadable(why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("not a message: {why}"))
}
