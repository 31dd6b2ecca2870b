//! Reads a whole chat completion into canon: a stream of one chunk.

use canon::{ApiError, ChatReply, Citation, ExtraFields, ReplyBuilder};
use serde_json::Value;

use super::names::ORIGIN;
use super::own::plain_reply;
use super::read_stream::ChatStreamReader;
use super::reply::ChatReplyView;
use crate::json;
use crate::upstream_error::unreadable_reply;

/// Reads a reply. An `error` object in place of a reply becomes that error.
pub(super) fn read(body: &[u8]) -> Result<ChatReply, ApiError> {
    plain_reply::read(body).map_or_else(|| read_parsed(body), Ok)
}

pub(super) fn read_parsed(body: &[u8]) -> Result<ChatReply, ApiError> {
    let view: ChatReplyView<'_> = json::read_bytes(body).map_err(|e| unreadable(&e.to_string()))?;
    if view.choices.is_none() && view.error.is_none() {
        return Err(unreadable("there is no `choices`"));
    }
    let (mut reader, mut events) = (ChatStreamReader::default(), Vec::with_capacity(8));
    reader.read_chunk(view, &mut events)?;
    reader.close(&mut events);
    ReplyBuilder::build(events)
}

pub(super) fn unreadable(why: &str) -> ApiError {
    unreadable_reply("a chat completion", why)
}

/// Reads a citation of a text. An annotation of another kind is kept in the extras.
pub(super) fn citation(annotation: Value) -> Option<Citation> {
    let Some(inner) = annotation.get("url_citation") else {
        let Value::Object(mut fields) = annotation else { return None };
        // Streams number the annotations.
        fields.shift_remove("index");
        let extras = ExtraFields::from_fields(ORIGIN, fields);
        return Some(Citation { extras, ..Citation::default() });
    };
    let text = |name: &str| inner.get(name).and_then(Value::as_str).map(str::to_owned);
    let at = |name: &str| usize::try_from(inner.get(name)?.as_u64()?).ok();
    Some(Citation {
        url: text("url"),
        title: text("title"),
        quote: text("content"),
        span: at("start_index").zip(at("end_index")),
        extras: ExtraFields::new(),
    })
}
