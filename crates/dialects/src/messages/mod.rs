//! The Anthropic messages format, `POST /v1/messages`,
//! <https://docs.anthropic.com/en/api/messages>.
//!
//! Every turn and every reply is a list of blocks; a stream has one block open at a time. Clients
//! must return `thinking.signature` and `redacted_thinking.data` unchanged, so these two fields
//! also carry foreign signatures; see module `signatures`.

mod fault;
mod gateway_blocks;
mod names;
mod pass_through;
mod read_blocks;
mod read_reply;
mod read_request;
mod read_stream;
mod request_view;
mod rules;
mod schema;
mod signatures;
#[cfg(test)]
mod tests;
mod thinking;
mod tool_names;
mod tools;
mod wire;
mod write_reply;
mod write_reply_blocks;
mod write_request;
mod write_request_blocks;
mod write_stream;

pub use names::BETA;

use crate::{Dialect, Ends, Lane, Outgoing, Reader, Stamp, Target, Writer};
use canon::{Chat, Fault, Lossy, Origin, Reply};

/// The messages format.
#[derive(Clone, Copy, Debug)]
pub struct Messages;

/// Returns true if the header enables thinking between tool calls,
/// <https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking>.
pub fn is_interleaved(betas: &str) -> bool {
    betas.split(',').any(|beta| beta.trim().starts_with("interleaved-thinking-"))
}

impl Dialect for Messages {
    fn origin(&self) -> Origin {
        names::ORIGIN
    }

    fn ends(&self) -> Ends {
        Ends { stop_texts: usize::MAX, tells_stop: true, least_output: 1 }
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn read_request(&self, _target: &Target, body: &[u8]) -> Result<Chat, Fault> {
        read_request::read(body)
    }

    fn write_request(&self, chat: &Chat, lane: &Lane<'_>) -> Result<Lossy<Outgoing>, Fault> {
        write_request::write(chat, lane)
    }

    fn read_reply(&self, body: &[u8]) -> Result<Reply, Fault> {
        read_reply::read(body)
    }

    fn write_reply(&self, reply: Reply, chat: &Chat, stamp: &Stamp) -> Lossy<Vec<u8>> {
        write_reply::write(reply, chat, stamp)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read_stream::MessagesStreamReader::default())
    }

    fn writer(&self, chat: &Chat, stamp: &Stamp) -> Box<dyn Writer> {
        Box::new(write_stream::MessagesStreamWriter::new(chat, stamp))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        fault::read(status, body)
    }

    fn write_fault(&self, fault: &Fault, request_id: &str) -> (u16, Vec<u8>) {
        fault::write(fault, Some(request_id))
    }
}
