//! Errors of the chat format, read and written.
//!
//! See <https://platform.openai.com/docs/guides/error-codes>.

use canon::{ApiError, ErrorKind};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

use crate::fields::ObjectWriter;
use crate::json;
use crate::upstream_error::{UpstreamError, map_upstream_error};
use crate::wire_object::raw_value;

/// Reads a provider's error response.
pub(super) fn read(status: u16, body: &[u8]) -> ApiError {
    let body: Option<Value> = json::read_bytes(body).ok();
    let inner = body.as_ref().and_then(|body| body.get("error")).filter(|inner| !inner.is_null());
    // Some providers send the error without the `error` wrapper.
    map_upstream_error(status, inner.or(body.as_ref()).map(UpstreamError::read))
}

/// Reads an error object that came in place of an answer: with status 200, or inside a stream.
pub(super) fn read_object(error: &RawValue) -> ApiError {
    let words = UpstreamError::read(&raw_value(error));
    map_upstream_error(words.openai_status(), Some(words))
}

/// Writes an error in this format.
pub(super) fn write(fault: &ApiError) -> (u16, Vec<u8>) {
    let (status, kind, code) = error_words(fault.kind());
    let error = ObjectWriter::new()
        .set("message", message(fault).as_ref())
        .set("type", kind)
        .set("param", fault.param())
        .set("code", fault.code().or(code));
    (status, ObjectWriter::new().set("error", error).into_json())
}

/// Returns the status of an error, which is the same in all formats.
pub(crate) const fn error_status(trouble: ErrorKind) -> u16 {
    error_words(trouble).0
}

/// Returns the message for the caller. Wrappers of the official clients recognise a wrong key by
/// these words, and not by the code: <https://platform.openai.com/docs/guides/error-codes>.
fn message(fault: &ApiError) -> Cow<'_, str> {
    match (fault.kind(), fault.code()) {
        (ErrorKind::Unauthenticated, Some("invalid_api_key")) => {
            Cow::Owned(format!("Incorrect API key provided: {}", fault.message()))
        }
        _ => Cow::Borrowed(fault.message()),
    }
}

const fn error_words(trouble: ErrorKind) -> (u16, &'static str, Option<&'static str>) {
    const INVALID: &str = "invalid_request_error";
    match trouble {
        ErrorKind::InvalidRequest => (400, INVALID, Some("invalid_value")),
        ErrorKind::ContextTooLong => (400, INVALID, Some("context_length_exceeded")),
        ErrorKind::ContentPolicy => (400, INVALID, Some("content_policy_violation")),
        ErrorKind::Unauthenticated => (401, INVALID, Some("invalid_api_key")),
        ErrorKind::Forbidden => (403, INVALID, Some("model_not_allowed")),
        ErrorKind::UnknownPath => (404, INVALID, Some("unknown_url")),
        ErrorKind::UnknownModel => (404, INVALID, Some("model_not_found")),
        ErrorKind::NotFound => (404, INVALID, Some("not_found")),
        ErrorKind::MethodNotAllowed => (405, INVALID, Some("method_not_supported")),
        ErrorKind::RequestTimeout => (408, INVALID, Some("request_timeout")),
        ErrorKind::Conflict => (409, INVALID, Some("request_in_progress")),
        ErrorKind::PreconditionFailed => (412, INVALID, Some("precondition_failed")),
        ErrorKind::Gone => (410, INVALID, Some("resource_expired")),
        ErrorKind::BodyTooLarge => (413, INVALID, Some("request_too_large")),
        ErrorKind::UnsupportedMediaType => (415, INVALID, Some("unsupported_media_type")),
        ErrorKind::ExpectationFailed => (417, INVALID, Some("expectation_failed")),
        ErrorKind::UpgradeRefused => (426, INVALID, Some("upgrade_not_supported")),
        ErrorKind::RateLimited => (429, "rate_limit_error", Some("rate_limit_exceeded")),
        ErrorKind::QuotaExceeded => (429, "insufficient_quota", Some("insufficient_quota")),
        ErrorKind::HeadersTooLarge => (431, INVALID, Some("headers_too_large")),
        ErrorKind::Internal => (500, "server_error", None),
        ErrorKind::Unavailable => (503, "server_error", Some("upstream_unavailable")),
        ErrorKind::Overloaded => (503, "server_error", Some("overloaded")),
        ErrorKind::Interrupted => (503, "server_error", Some("upstream_interrupted")),
        ErrorKind::Timeout => (504, "server_error", Some("timeout")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_key_is_named_in_the_words_of_the_reference() {
        let message = |fault: &ApiError| {
            let body: Value = serde_json::from_slice(&write(fault).1).unwrap();
            body["error"]["message"].as_str().unwrap().to_owned()
        };
        let fault = ApiError::new(ErrorKind::Unauthenticated, "it is not valid");
        assert_eq!(message(&fault), "it is not valid");
        let wrong = fault.with_code("invalid_api_key");
        assert_eq!(message(&wrong), "Incorrect API key provided: it is not valid");
    }
}
