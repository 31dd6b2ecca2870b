//! The Anthropic messages format, `POST /v1/messages`,
//! <https://docs.anthropic.com/en/api/messages>.
//!
//! Every turn and every reply is a list of blocks; a stream has one block open at a time. Clients
//! must return `thinking.signature` and `redacted_thinking.data` unchanged, so these two fields
//! also carry foreign signatures; see module `signatures`.

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

pub use names::BETA_HEADER;

use crate::repeated_text::RepeatingReader;
use crate::{Dialect, FormatFunctions, FormatTraits};

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

    fn functions(&self) -> &'static FormatFunctions {
        &FUNCTIONS
    }
}

static FUNCTIONS: FormatFunctions = FormatFunctions {
    parse: |target, body, wanted| {
        let limit = rules::LimitRule::of(target, wanted);
        wanted.parse(body, |text, view| rules::check(text, view, limit), read_request::read)
    },
    write_request: write_request::write,
    media_problem: write_content::media_problem,
    read_reply: read_reply::read,
    write_reply: write_reply::write,
    stream_reader: || Box::<RepeatingReader<read_stream::MessagesStreamReader>>::default(),
    stream_writer: |chat, stamp| Box::new(write_stream::MessagesStreamWriter::new(chat, stamp)),
    read_error: fault::read,
    write_error: |fault, request_id| fault::write(fault, Some(request_id)),
};
