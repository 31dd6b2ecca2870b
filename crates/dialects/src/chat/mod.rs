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

use crate::json;
use crate::repeated_text::RepeatingReader;
use crate::{
    Dialect, FormatTraits, LaneSettings, ProviderRequest, ReplyStamp, RequestFacts, RequestTarget,
    StopSupport, StreamReader, StreamWriter,
};
use canon::{ApiError, ChatReply, Lossy, WireFormat};

/// The described fields of a request.
pub(crate) const REQUEST_FIELDS: &[crate::wire_object::FieldSpec] =
    request::ChatRequestView::FIELDS;

/// The chat completions format.
#[derive(Clone, Copy, Debug)]
pub struct ChatDialect;

impl Dialect for ChatDialect {
    fn origin(&self) -> WireFormat {
        names::ORIGIN
    }

    fn traits(&self) -> &'static FormatTraits {
        &names::TRAITS
    }

    fn stop_support(&self) -> StopSupport {
        StopSupport {
            max_stop_texts: names::MAX_STOP_SEQUENCES,
            reports_stop_text: false,
            min_output_tokens: 1,
        }
    }

    fn takes_candidates(&self) -> bool {
        true
    }

    fn parse_request(
        &self,
        _target: &RequestTarget,
        body: &[u8],
        wants_chat: &dyn Fn(&RequestFacts) -> bool,
    ) -> Result<(RequestFacts, Option<canon::ChatRequest>), ApiError> {
        let text = json::checked_text(body)?;
        let view = json::parse(text)?;
        let facts = rules::check(text, &view)?;
        let chat = wants_chat(&facts).then(|| read_request::read(view));
        Ok((facts, chat))
    }

    fn read_request(
        &self,
        _target: &RequestTarget,
        body: &[u8],
    ) -> Result<canon::ChatRequest, ApiError> {
        let text = json::checked_text(body)?;
        Ok(read_request::read(json::parse(text)?))
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
