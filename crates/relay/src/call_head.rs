//! Facts of the head of a request about its call.

use canon::ApiError;
use http::HeaderValue;
use std::sync::OnceLock;
use transport::{ContentCoding, HeaderBlock, UnknownCoding, visible_text};

use super::call_options::CallOptions;

/// Facts of the head of a request about its call. Empty until the first request with the head is
/// read; requests with the same head share it.
#[derive(Default)]
pub struct CallHead(OnceLock<CallHeaders>);

/// Facts from the headers of a call.
pub(super) struct CallHeaders {
    /// Options for the gateway.
    pub(super) options: Result<CallOptions, ApiError>,
    /// Content coding of the body.
    pub(super) coding: Result<Option<ContentCoding>, UnknownCoding>,
    /// True if the body is declared as JSON.
    pub(super) is_json: bool,
}

impl CallHead {
    /// Returns the facts from the headers of a request to the gateway with the id `own`.
    pub(super) fn headers(&self, headers: &HeaderBlock, own: &HeaderValue) -> &CallHeaders {
        self.0.get_or_init(|| CallHeaders {
            options: CallOptions::from_headers(headers, own),
            coding: ContentCoding::from_values(headers.get_all("content-encoding")),
            is_json: headers.get("content-type").is_some_and(is_json),
        })
    }
}

fn is_json(content_type: &[u8]) -> bool {
    // The usual case needs no search.
    if content_type == b"application/json" {
        return true;
    }
    let mut parts = visible_text(content_type).unwrap_or_default().split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix("charset="));
    kind.eq_ignore_ascii_case("application/json")
        && charset.is_none_or(|word| word.trim_matches('"').eq_ignore_ascii_case("utf-8"))
}
