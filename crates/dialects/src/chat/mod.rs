//! OpenAI chat completions, `POST /v1/chat/completions`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/chat/create>. Other vendors extend
//! this format. The supported extensions are `reasoning_content`, `reasoning` and
//! `reasoning_details[]` for thinking and its signatures, `extra_content.google.thought_signature`
//! on tool calls, and `message.images[]` for generated images.

mod audio;
mod fault;
mod names;
mod pass_through;
mod read_reply;
mod read_request;
mod read_stream;
mod request_view;
mod rules;
mod signatures;
mod wire;
mod write_reply;
mod write_request;
mod write_stream;

use crate::{Dialect, Ends, Lane, Outgoing, Reader, Stamp, Target, Writer};
use canon::{Fault, Lossy, Origin, Reply};

/// The chat completions format.
#[derive(Clone, Copy, Debug)]
pub struct Chat;

impl Dialect for Chat {
    fn origin(&self) -> Origin {
        names::ORIGIN
    }

    fn ends(&self) -> Ends {
        Ends { stop_texts: names::MAX_STOP_SEQUENCES, tells_stop: false, least_output: 1 }
    }

    fn read_request(&self, _target: &Target, body: &[u8]) -> Result<canon::Chat, Fault> {
        read_request::read(body)
    }

    fn write_request(&self, chat: &canon::Chat, lane: &Lane<'_>) -> Result<Lossy<Outgoing>, Fault> {
        Ok(write_request::write(chat, lane))
    }

    fn read_reply(&self, body: &[u8]) -> Result<Reply, Fault> {
        read_reply::read(body)
    }

    fn write_reply(&self, reply: Reply, chat: &canon::Chat, stamp: &Stamp) -> Lossy<Vec<u8>> {
        write_reply::write(reply, chat, stamp)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read_stream::ChatStreamReader::default())
    }

    fn writer(&self, chat: &canon::Chat, stamp: &Stamp) -> Box<dyn Writer> {
        Box::new(write_stream::ChatStreamWriter::new(chat, stamp))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        fault::read(status, body)
    }

    fn write_fault(&self, fault: &Fault, _request_id: &str) -> (u16, Vec<u8>) {
        fault::write(fault)
    }
}
