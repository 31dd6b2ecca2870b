//! OpenAI chat completions, `POST /v1/chat/completions`.
//!
//! Reference: <https://platform.openai.com/docs/api-reference/chat/create>. Other vendors extend
//! this format. The supported extensions are `reasoning_content`, `reasoning` and
//! `reasoning_details[]` for thinking and its signatures, `extra_content.google.thought_signature`
//! on tool calls, and `message.images[]` for generated images.

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
mod usage;
mod write_content;
mod write_reply;
mod write_request;
mod write_stream;
mod write_tools;

pub(crate) use fault::error_status;

use crate::repeated_text::RepeatingReader;
use crate::{Dialect, FormatFunctions, FormatTraits};

/// The chat completions format.
#[derive(Clone, Copy, Debug)]
pub struct ChatDialect;

impl Dialect for ChatDialect {
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
    stream_reader: || Box::<RepeatingReader<read_stream::ChatStreamReader>>::default(),
    stream_writer: |chat, stamp| Box::new(write_stream::ChatStreamWriter::new(chat, stamp)),
    read_error: fault::read,
    write_error: |fault, _| fault::write(fault),
};
