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
mod objects;
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

pub(crate) use own::client_tools::read_shell_call;
pub use own::server_secrets::hide_server_secrets;

use crate::chat::ChatDialect;
use crate::repeated_text::RepeatingReader;
use crate::{Dialect, FormatFunctions, FormatTraits};

/// The responses format.
#[derive(Clone, Copy, Debug)]
pub struct ResponsesDialect;

impl Dialect for ResponsesDialect {
    fn traits(&self) -> &'static FormatTraits {
        &names::TRAITS
    }

    fn functions(&self) -> &'static FormatFunctions {
        &FUNCTIONS
    }
}

static FUNCTIONS: FormatFunctions = FormatFunctions {
    parse: |_, body, wanted| wanted.parse(body, rules::check, |view| Ok(read_request::read(view))),
    write_request: write_request::write,
    media_problem: write_content::media_problem,
    read_reply: read_reply::read,
    write_reply: write_reply::write,
    stream_reader: || Box::<RepeatingReader<read_stream::ResponsesStreamReader>>::default(),
    stream_writer: |chat, stamp| {
        Box::new(write_stream::ResponsesStreamWriter::new(chat, stamp, false))
    },
    // OpenAI uses one error shape for both formats.
    read_error: |status, body| ChatDialect.read_error(status, body),
    write_error: |fault, request_id| ChatDialect.write_error(fault, request_id),
};
