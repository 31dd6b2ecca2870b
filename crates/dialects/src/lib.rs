//! Wire formats. One folder per format reads it into `canon` and writes it from `canon`, whole and
//! streamed.
//!
//! Every conversation format has the same files: `request`, `content` and `reply` (descriptions),
//! `rules` (checks over several fields that answer 400), `read_*` and `write_*` (to and from canon),
//! `usage`, `pass_through` (patches the caller's own bytes), `fault` (errors), `signatures`, `objects`
//! (fields that name objects of a provider) and `names`. What only one format has is in its folder `own`. This crate knows nothing of sockets,
//! keys, prices or async.

mod address_scan;
mod body_outline;
mod call_ids;
mod caller_labels;
mod carried_media;
pub mod chat;
mod checks;
mod client_tools;
mod count_endpoint;
mod dialect;
pub mod embeddings;
mod endings;
mod envelope;
mod envelope_mac;
mod error_paths;
mod field_scan;
mod fields;
mod format_functions;
mod format_traits;
pub mod images;
pub mod json;
mod json_reader;
mod known_replies;
mod media_problem;
mod media_rules;
mod media_urls;
pub mod messages;
pub mod native;
mod object_fields;
mod openai_values;
mod plain_chat;
mod plain_reply;
mod plain_request;
mod plain_shape;
mod prompt_blocks;
mod proto_json;
mod repeated_text;
mod reply_shape;
mod request_option;
pub mod responses;
mod service_tier;
mod session_sign;
pub mod signature_cache;
mod signed_span;
mod skeleton;
mod sse;
mod stream_completer;
mod text;
mod text_run;
mod text_template;
mod thinking_range;
mod upstream_error;
mod value_count;
mod wire_object;
mod wire_rule;
mod wire_value;
mod word_search;
mod write_json;

pub use address_scan::first_address;
pub use body_outline::BodyOutline;
pub use caller_labels::CallerLabels;
pub use carried_media::{check_media, drop_media};
pub use client_tools::ClientToolCalls;
pub use count_endpoint::CountEndpoint;
pub use dialect::{
    Dialect, FrameAction, LaneSettings, ParsedRequest, PassThrough, ProviderRequest, ReplyMeter,
    ReplyStamp, RequestFacts, RequestTarget, RequestUse, StreamMeter, StreamReader, StreamWriter,
};
pub use endings::failed_turn;
pub use envelope_mac::{EnvelopeMac, MAC_BYTES, envelope_mac, set_envelope_mac};
pub use error_paths::{InsertedItems, RefusedRequest, with_caller_paths, with_own_spelling};
pub use format_functions::FormatFunctions;
pub use format_traits::{FormatTraits, LimitHeaderStyle};
pub use media_problem::MediaProblem;
pub use media_urls::{MediaUrl, MediaUrlFields, RequestMedia, request_media};
pub use object_fields::{
    ForeignObject, MadeObjects, ObjectFields, StoredObject, snake_case, stored_objects,
};
pub use prompt_blocks::blocked_finish;
pub use sse::{MAX_FRAME_BYTES, SseDecoder, StreamFrame};
pub use text_run::TextRun;
pub use value_count::{MAX_REQUEST_VALUES, count_values};
pub use word_search::has_escaped_letter;

use canon::WireFormat;
use std::borrow::Cow;

/// The format of errors where no other one applies.
pub const DEFAULT: &dyn Dialect = &chat::ChatDialect;

/// Returns all conversation formats in their listing order.
pub fn all() -> impl Iterator<Item = &'static dyn Dialect> {
    WireFormat::ALL.into_iter().filter_map(get)
}

/// Returns the format that a path belongs to, even if no route exists there; `None` for a path of the
/// gateway's own. `has_header` tells if the request has a header.
pub fn for_path(path: &str, has_header: impl Fn(&str) -> bool) -> Option<&'static dyn Dialect> {
    let (messages, native): (&dyn Dialect, &dyn Dialect) =
        (&messages::MessagesDialect, &native::NativeDialect);
    let meant = meant_path(path);
    let path = meant.as_deref().unwrap_or(path);
    if path.starts_with("/v1/messages") {
        return Some(messages);
    }
    let is_upload = path.starts_with("/upload/v1beta/");
    let is_cache = path.starts_with("/v1/cachedContents");
    if is_upload || is_cache || path.starts_with("/v1beta/") || path == "/v1beta" {
        return Some(native);
    }
    // Several formats have this list.
    if let Some(rest) = path.strip_prefix("/v1/models") {
        if has_header("anthropic-version") {
            return Some(messages);
        }
        if rest.contains(':') || is_native_client(&has_header) {
            return Some(native);
        }
    }
    (path.starts_with("/v1/") || path == "/v1").then_some(DEFAULT)
}

/// Returns the path that a client meant whose base address lacks the version of the API, or has it twice;
/// `None` for every other path.
pub fn meant_path(path: &str) -> Option<Cow<'_, str>> {
    if let Some(rest) = path.strip_prefix("/v1") {
        let is_versioned = rest.starts_with("/v1/") || rest.starts_with("/v1beta/");
        return is_versioned.then_some(Cow::Borrowed(rest));
    }
    let first = path.strip_prefix('/')?.split('/').next()?;
    let version = match first {
        "chat" | "completions" | "responses" | "messages" | "embeddings" | "images" => "/v1",
        "cachedContents" => "/v1beta",
        // Pages of models have the same path without an operator.
        "models" if path.ends_with("Content") || path.ends_with("Contents") => "/v1beta",
        "models" if path.ends_with(":countTokens") => "/v1beta",
        _ => return None,
    };
    Some(Cow::Owned(format!("{version}{path}")))
}

/// Returns true if a request has a header that only official clients of the native format send.
/// `x-vendor-api-key` is not one: it is a key header of this gateway, for every format.
pub fn is_native_client(has_header: impl Fn(&str) -> bool) -> bool {
    ["x-goog-api-key", "x-goog-api-client"].into_iter().any(has_header)
}

/// Returns the format of an origin; `None` for an origin without conversations.
pub fn get(origin: WireFormat) -> Option<&'static dyn Dialect> {
    match origin {
        WireFormat::Chat => Some(&chat::ChatDialect),
        WireFormat::Messages => Some(&messages::MessagesDialect),
        WireFormat::Native => Some(&native::NativeDialect),
        WireFormat::Responses => Some(&responses::ResponsesDialect),
        WireFormat::Images => None,
    }
}

/// Returns the paths of the described fields of a format's request, such as `reasoning.effort`.
pub fn request_paths(format: WireFormat) -> Vec<String> {
    let paths = request_option::described_paths(request_fields(format));
    paths.into_iter().map(|(path, _)| path).collect()
}

/// Returns the described fields of a format's request.
pub(crate) fn request_fields(format: WireFormat) -> &'static [wire_object::FieldSpec] {
    get(format).map_or(&[], |dialect| dialect.traits().request_fields)
}
