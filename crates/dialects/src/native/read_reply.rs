//! Reads a whole reply into canon: a stream of one chunk.

use canon::{ApiError, ChatReply, ReplyBuilder};
use std::fmt::Display;

use super::fault;
use super::read_stream::NativeStreamReader;
use super::reply::NativeReplyView;
use crate::json;
use crate::upstream_error::unreadable_reply;
use crate::wire_object::raw_value;

/// Reads a reply. An error object in place of a reply is returned as that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let view = parse(body)?;
    let (mut reader, mut events) = (NativeStreamReader::of_whole(), Vec::new());
    reader.read_chunk(view, &mut events).map_err(unreadable)?;
    reader.close(&mut events);
    ReplyBuilder::build(events)
}

/// Parses a whole reply.
pub(super) fn parse(body: &[u8]) -> Result<NativeReplyView<'_>, ApiError> {
    let view: NativeReplyView<'_> = json::read_bytes(body).map_err(unreadable)?;
    match view.error {
        Some(error) => Err(fault::read_object(&raw_value(error))),
        None if view.is_foreign() => Err(unreadable("there is neither a candidate nor usage")),
        None => Ok(view),
    }
}

fn unreadable(why: impl Display) -> ApiError {
    unreadable_reply("a native answer", &why.to_string())
}
