//! Reads a provider's whole reply into canon, as the events of a stream.

use canon::{ApiError, ChatReply, ReplyBuilder};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::fault;
use super::own::plain_reply;
use super::read_stream::MessagesStreamReader;
use super::reply::{MessagesDelta, MessagesEvent, MessagesMeterView, MessagesReplyView};
use crate::json;
use crate::upstream_error::unreadable_reply;
use crate::wire_object::raw_value;

/// Reads a reply.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    plain_reply::read(body).map_or_else(|| read_parsed(body), Ok)
}

pub(super) fn read_parsed(body: &[u8]) -> Result<ChatReply, ApiError> {
    let mut view: MessagesReplyView<'_> = read_view(body)?;
    let content = view.content.take();
    let blocks = check(view.error, content)?.0;
    let blocks = blocks.ok_or_else(|| unreadable("its `content` is not a list of blocks"))?;
    let (mut reader, mut events) = (MessagesStreamReader::default(), Vec::with_capacity(8));
    let delta = MessagesDelta {
        stop_reason: view.stop_reason.take(),
        stop_sequence: view.stop_sequence.take(),
        stop_details: view.stop_details.take(),
        ..MessagesDelta::default()
    };
    let usage = view.usage.take();
    let end = MessagesEvent { delta: Some(delta), usage, ..MessagesEvent::default() };
    reader.start(view, &mut events)?;
    for (index, block) in (0..).zip(blocks) {
        reader.start_block(index, block, &mut events)?;
        reader.stop_block(index, &mut events).map_err(|e| unreadable(&e.to_string()))?;
    }
    reader.end(end, &mut events)?;
    ReplyBuilder::build(events)
}

/// Parses a whole reply for its counts.
pub(super) fn parse(body: &[u8]) -> Result<MessagesMeterView<'_>, ApiError> {
    let view: MessagesMeterView<'_> = read_view(body)?;
    check(view.error, view.content)?;
    Ok(view)
}

fn read_view<'a, V: Deserialize<'a>>(body: &'a [u8]) -> Result<V, ApiError> {
    json::read_bytes(body).map_err(|e| unreadable(&e.to_string()))
}

/// Returns the content of a reply. An error object in its place is returned as that error.
fn check<T>(error: Option<&RawValue>, content: Option<T>) -> Result<T, ApiError> {
    match error {
        Some(error) => Err(fault::read_object(&raw_value(error))),
        None => content.ok_or_else(|| unreadable("there is no `content`")),
    }
}

fn unreadable(why: &str) -> ApiError {
    unreadable_reply("a message", why)
}
