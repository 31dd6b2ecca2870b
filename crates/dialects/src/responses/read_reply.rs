//! Reads a whole response into canon: the last event of a stream.

use canon::{ApiError, ChatReply, ReplyBuilder, ReplyCandidate};

use super::fault;
use super::read_stream::ResponsesStreamReader;
use super::reply::ResponsesReplyView;
use crate::json;

/// Reads a response. A failed response becomes its error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    let view: ResponsesReplyView<'_> = json::read_bytes(body).map_err(fault::unreadable)?;
    let (mut reader, mut events) = (ResponsesStreamReader::default(), Vec::new());
    reader.read_response(&view, &mut events)?;
    let mut reply = ReplyBuilder::build(events)?;
    if reply.candidates.is_empty() {
        reply.candidates.push(ReplyCandidate::default());
    }
    Ok(reply)
}
