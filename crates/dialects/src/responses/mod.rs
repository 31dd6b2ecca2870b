//! OpenAI responses, `POST /v1/responses`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/responses/create>. A conversation is
//! a list of items instead of messages: text, thinking, calls and results are separate items.
//! Consecutive items of the model become one turn of canon, and the same items again on the way
//! back. Fields only an item has are kept in the extras of its part. `signatures` describes how
//! signatures travel, `tool_names` how tools in namespaces do.

mod content;
mod fault;
mod names;
mod own;
mod pass_through;
mod read_content;
mod read_reply;
mod read_request;
mod read_stream;
mod read_tools;
mod reply;
mod request;
mod rules;
mod signatures;
#[cfg(test)]
mod tests;
mod usage;
mod write_content;
mod write_reply;
mod write_request;
mod write_stream;
mod write_tools;

use crate::repeated_text::RepeatingReader;
use crate::{
    Dialect, FormatTraits, LaneSettings, ParsedRequest, ProviderRequest, ReplyStamp, RequestTarget,
    RequestUse, StreamReader, StreamWriter,
};
use canon::{ApiError, ChatReply, ChatRequest, Lossy};

/// The responses format.
#[derive(Clone, Copy, Debug)]
pub struct ResponsesDialect;

impl Dialect for ResponsesDialect {
    fn traits(&self) -> &'static FormatTraits {
        &names::TRAITS
    }

    fn parse(
        &self,
        _target: &RequestTarget,
        body: &[u8],
        wanted: RequestUse<'_>,
    ) -> Result<ParsedRequest, ApiError> {
        wanted.parse(body, rules::check, |view| Ok(read_request::read(view)))
    }

    fn write_request(
        &self,
        chat: &ChatRequest,
        lane: &LaneSettings<'_>,
    ) -> Result<Lossy<ProviderRequest>, ApiError> {
        write_request::write(chat, lane)
    }

    fn read_reply(&self, body: &[u8]) -> Result<ChatReply, ApiError> {
        read_reply::read(body)
    }

    fn write_reply(
        &self,
        reply: ChatReply,
        chat: &ChatRequest,
        stamp: &ReplyStamp,
    ) -> Lossy<Vec<u8>> {
        write_reply::write(reply, chat, stamp)
    }

    fn stream_reader(&self) -> Box<dyn StreamReader> {
        Box::<RepeatingReader<read_stream::ResponsesStreamReader>>::default()
    }

    fn stream_writer(&self, chat: &ChatRequest, stamp: &ReplyStamp) -> Box<dyn StreamWriter> {
        Box::new(write_stream::ResponsesStreamWriter::new(chat, stamp, false))
    }

    fn read_error(&self, status: u16, body: &[u8]) -> ApiError {
        // OpenAI uses one error shape for both formats.
        crate::chat::ChatDialect.read_error(status, body)
    }

    fn write_error(&self, fault: &ApiError, request_id: &str) -> (u16, Vec<u8>) {
        crate::chat::ChatDialect.write_error(fault, request_id)
    }
}
