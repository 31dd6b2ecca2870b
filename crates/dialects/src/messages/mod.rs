//! Anthropic messages, `POST /v1/messages`.
//!
//! The format of blocks: every turn and every answer is a list of them, one open at a time in a
//! stream. It has slots a client must return unchanged (`thinking.signature`,
//! `redacted_thinking.data`), which makes it the best carrier of foreign seals; `seals` tells how.

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

/// Whether what stands in that header lets the model think between calls.
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
