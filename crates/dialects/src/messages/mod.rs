//! The Anthropic messages format, `POST /v1/messages`,
//! <https://docs.anthropic.com/en/api/messages>.
//!
//! Every turn and every reply is a list of blocks; a stream has one block open at a time. Clients
//! must return `thinking.signature` and `redacted_thinking.data` unchanged, so these two fields
//! also carry foreign signatures; see module `signatures`.

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

pub use names::BETA_HEADER;

use crate::repeated_text::RepeatingReader;
use crate::{
    Dialect, FormatTraits, LaneSettings, ParsedRequest, ProviderRequest, ReplyStamp, RequestTarget,
    RequestUse, StreamReader, StreamWriter,
};
use canon::{ApiError, ChatReply, ChatRequest, Lossy};

/// The messages format.
#[derive(Clone, Copy, Debug)]
pub struct MessagesDialect;

/// Returns true if the header enables thinking between tool calls,
/// <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>.
pub fn enables_interleaved_thinking(betas: &str) -> bool {
    betas.split(',').any(|beta| beta.trim().starts_with("interleaved-thinking-"))
}

impl Dialect for MessagesDialect {
    fn traits(&self) -> &'static FormatTraits {
        &names::TRAITS
    }

    fn parse(
        &self,
        target: &RequestTarget,
        body: &[u8],
        wanted: RequestUse<'_>,
    ) -> Result<ParsedRequest, ApiError> {
        let limit = rules::LimitRule::of(target, wanted);
        wanted.parse(body, |text, view| rules::check(text, view, limit), read_request::read)
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
        Box::<RepeatingReader<read_stream::MessagesStreamReader>>::default()
    }

    fn stream_writer(&self, chat: &ChatRequest, stamp: &ReplyStamp) -> Box<dyn StreamWriter> {
        Box::new(write_stream::MessagesStreamWriter::new(chat, stamp))
    }

    fn read_error(&self, status: u16, body: &[u8]) -> ApiError {
        fault::read(status, body)
    }

    fn write_error(&self, fault: &ApiError, request_id: &str) -> (u16, Vec<u8>) {
        fault::write(fault, Some(request_id))
    }
}
