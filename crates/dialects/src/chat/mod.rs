//! OpenAI chat completions, `POST /v1/chat/completions`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/chat/create>. Other vendors extend
//! this format. The supported extensions are `reasoning_content`, `reasoning` and
//! `reasoning_details[]` for thinking and its signatures, `extra_content.google.thought_signature`
//! on tool calls, and `message.images[]` for generated images.

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
use canon::{ApiError, ChatReply, Lossy};

/// The chat completions format.
#[derive(Clone, Copy, Debug)]
pub struct ChatDialect;

impl Dialect for ChatDialect {
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
        chat: &canon::ChatRequest,
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
        chat: &canon::ChatRequest,
        stamp: &ReplyStamp,
    ) -> Lossy<Vec<u8>> {
        write_reply::write(reply, chat, stamp)
    }

    fn stream_reader(&self) -> Box<dyn StreamReader> {
        Box::<RepeatingReader<read_stream::ChatStreamReader>>::default()
    }

    fn stream_writer(
        &self,
        chat: &canon::ChatRequest,
        stamp: &ReplyStamp,
    ) -> Box<dyn StreamWriter> {
        Box::new(write_stream::ChatStreamWriter::new(chat, stamp))
    }

    fn read_error(&self, status: u16, body: &[u8]) -> ApiError {
        fault::read(status, body)
    }

    fn write_error(&self, fault: &ApiError, _request_id: &str) -> (u16, Vec<u8>) {
        fault::write(fault)
    }
}
