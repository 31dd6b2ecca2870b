//! The Gemini format, `POST /v1beta/models/{model}:generateContent`,
//! <https://ai.google.dev/api/generate-content>.
//!
//! The path, not the body, names the model and asks for a stream. Input is ProtoJSON
//! (<https://protobuf.dev/programming-guides/json/>): snake_case or camelCase, one object in place
//! of a list, whole numbers as strings, either base64 alphabet. Output is always camelCase. A
//! stream is a sequence of `data: ` lines without event names and without an end marker, or one
//! JSON array if the caller left out `alt=sse`.
//!
//! Conventions of this folder:
//! - Fields of nested objects that canon has no place for are kept in extras under a dotted name
//!   (`generationConfig.imageConfig`), so that a loss names the field and not its container.
//! - A caller that wants a JSON array is marked in the request's extras, because a stream writer is
//!   created from the request alone.
//! - Module `signatures` describes how signatures travel.

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

#[cfg(test)]
mod tests;

pub(crate) use names::operator_path;
pub(crate) use signatures::BYPASS_SIGNATURE;

use crate::repeated_text::RepeatingReader;
use crate::{
    Dialect, FormatTraits, LaneSettings, ParsedRequest, ProviderRequest, ReplyStamp, RequestTarget,
    RequestUse, StreamReader, StreamWriter,
};
use canon::{ApiError, ChatReply, Lossy};

/// The native (Gemini) format.
#[derive(Clone, Copy, Debug)]
pub struct NativeDialect;

impl Dialect for NativeDialect {
    fn traits(&self) -> &'static FormatTraits {
        &names::TRAITS
    }

    fn parse(
        &self,
        target: &RequestTarget,
        body: &[u8],
        wanted: RequestUse<'_>,
    ) -> Result<ParsedRequest, ApiError> {
        wanted.parse(
            body,
            |text, view| rules::check(target, text, view),
            |view| Ok(read_request::read(target, view)),
        )
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
        Box::<RepeatingReader<read_stream::NativeStreamReader>>::default()
    }

    fn stream_writer(
        &self,
        chat: &canon::ChatRequest,
        stamp: &ReplyStamp,
    ) -> Box<dyn StreamWriter> {
        Box::new(write_stream::NativeStreamWriter::new(chat, stamp))
    }

    fn read_error(&self, status: u16, body: &[u8]) -> ApiError {
        fault::read(status, body)
    }

    fn write_error(&self, fault: &ApiError, _request_id: &str) -> (u16, Vec<u8>) {
        fault::write(fault)
    }
}
