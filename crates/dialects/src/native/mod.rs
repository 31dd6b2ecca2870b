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

#[cfg(test)]
mod tests;

pub(crate) use names::operator_path;
pub(crate) use own::dotted_extras;
pub(crate) use signatures::BYPASS_SIGNATURE;

pub use own::cached_content::{
    CacheExpiry, CachedPrefix, ExpandedRequest, NewCachedContent, cached_content_id,
    cached_content_name, cached_content_not_found, insert_cached_content, read_cache_change,
    read_cached_content,
};
pub use own::count_request::{COUNTED_REQUEST, wrapped_request};
pub use own::provider_cache::{CacheEndpoint, CreatedCache, name_provider_cache};

use crate::repeated_text::RepeatingReader;
use crate::{Dialect, FormatFunctions, FormatTraits};

/// The native (Gemini) format.
#[derive(Clone, Copy, Debug)]
pub struct NativeDialect;

impl Dialect for NativeDialect {
    fn traits(&self) -> &'static FormatTraits {
        &names::TRAITS
    }

    fn functions(&self) -> &'static FormatFunctions {
        &FUNCTIONS
    }
}

static FUNCTIONS: FormatFunctions = FormatFunctions {
    parse: |target, body, wanted| {
        wanted.parse(
            body,
            |text, view| rules::check(target, text, view),
            |view| Ok(read_request::read(target, *view)),
        )
    },
    write_request: write_request::write,
    media_problem: write_content::media_problem,
    read_reply: read_reply::read,
    write_reply: write_reply::write,
    stream_reader: || Box::<RepeatingReader<read_stream::NativeStreamReader>>::default(),
    stream_writer: |chat, stamp| Box::new(write_stream::NativeStreamWriter::new(chat, stamp)),
    read_error: fault::read,
    write_error: |fault, _| fault::write(fault),
};
