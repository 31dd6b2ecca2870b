//! OpenAI responses, `POST /v1/responses`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/responses/create>. A conversation is
//! a list of items instead of messages: text, thinking, calls and results are separate items.
//! Consecutive items of the model become one turn of canon, and the same items again on the way
//! back. Fields only an item has are kept in the extras of its part. `signatures` describes how
//! signatures travel, `tool_names` how tools in namespaces do.

mod fault;
mod input_rules;
mod item_writer;
mod names;
mod partial_response;
mod pass_through;
mod read_items;
mod read_reply;
mod read_request;
mod read_stream;
mod read_tools;
mod reply_items;
mod request_view;
mod response_object;
mod rules;
mod signatures;
mod sse;
#[cfg(test)]
mod tests;
mod tool_names;
mod whole_parts;
mod wire;
mod write_items;
mod write_output;
mod write_reply;
mod write_request;
mod write_stream;
mod write_tools;

use crate::{Dialect, Ends, Lane, Outgoing, Reader, Stamp, Target, Writer};
use canon::{Chat, Fault, Lossy, Origin, Reply};

/// The responses format.
#[derive(Clone, Copy, Debug)]
pub struct Responses;

impl Dialect for Responses {
    fn origin(&self) -> Origin {
        names::ORIGIN
    }

    fn ends(&self) -> Ends {
        Ends { stop_texts: 0, tells_stop: false, least_output: names::MIN_OUTPUT_TOKENS }
    }

    fn read_request(&self, _target: &Target, body: &[u8]) -> Result<Chat, Fault> {
        read_request::read(body)
    }

    fn write_request(&self, chat: &Chat, lane: &Lane<'_>) -> Result<Lossy<Outgoing>, Fault> {
        Ok(write_request::write(chat, lane))
    }

    fn read_reply(&self, body: &[u8]) -> Result<Reply, Fault> {
        read_reply::read(body)
    }

    fn write_reply(&self, reply: Reply, chat: &Chat, stamp: &Stamp) -> Lossy<Vec<u8>> {
        write_reply::write(reply, chat, stamp)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(read_stream::ResponsesStreamReader::default())
    }

    fn writer(&self, chat: &Chat, stamp: &Stamp) -> Box<dyn Writer> {
        Box::new(write_stream::ResponsesStreamWriter::new(chat, stamp))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        // OpenAI uses one error shape for both formats.
        crate::chat::Chat.read_fault(status, body)
    }

    fn write_fault(&self, fault: &Fault, request_id: &str) -> (u16, Vec<u8>) {
        crate::chat::Chat.write_fault(fault, request_id)
    }
}
