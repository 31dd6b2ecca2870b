//! Errors inside a response: in a failed response object, or in a stream.
//!
//! Error responses with an HTTP status have the same shape as those of the chat format, so the chat
//! module reads and writes them. See <https://platform.openai.com/docs/guides/error-codes>.

use canon::ApiError;
use serde_json::Value;
use std::fmt::Display;

use super::own::event_writer::EventWriter;
use super::own::response_object::{self, ResponseEcho, ResponseEnd};
use crate::Dialect as _;
use crate::fields::ObjectWriter;
use crate::json;
use crate::upstream_error::{UpstreamError, map_upstream_error, unreadable_reply};

/// Reads the error of a failed response or of an `error` event, nested or flat.
pub(super) fn read(error: &Value) -> ApiError {
    let error = error.get("error").filter(|inner| inner.is_object()).unwrap_or(error);
    let mut words = UpstreamError::read(error);
    // In a flat event, `type` is the event type and not the error type.
    if words.kind == "error" {
        words.kind.clear();
    }
    let status = match (words.openai_status(), &*words.code) {
        (503, "data_residency_mismatch") => 403,
        (503, "vector_store_timeout") => 504,
        // All image error codes are about the caller's image.
        (503, code) if code.contains("image") => 400,
        (status, _) => status,
    };
    map_upstream_error(status, Some(words))
}

/// Error for a body that is not a response.
pub(super) fn unreadable(why: impl Display) -> ApiError {
    unreadable_reply("a response", &why.to_string())
}

/// Writes the last two events of a failed stream: `error` and `response.failed`. The `error` event
/// has its fields twice: flat, as the reference documents it, and nested, as the service sends it.
/// See <https://platform.openai.com/docs/api-reference/responses-streaming>.
pub(super) fn write_stream_error(fault: &ApiError, echo: &ResponseEcho, events: &mut EventWriter) {
    let (status, body) = crate::chat::ChatDialect.write_error(fault, "");
    let body: Value = json::read_bytes(&body).unwrap_or_default();
    let nested = body.get("error").cloned().unwrap_or_default();
    let field = |name: &str| nested.get(name).cloned().unwrap_or_default();
    let event = ObjectWriter::new()
        .set("code", field("code"))
        .set("message", field("message"))
        .set("param", field("param"))
        .set("error", nested.clone());
    events.write_object("error", event);
    let error = Some(response_object::write_error(fault, status));
    let output = std::mem::take(&mut events.output);
    let end = ResponseEnd { status: "failed", error, output, ..ResponseEnd::default() };
    events.write_response("response.failed", &echo.clone().into_state(end));
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::ErrorKind;
    use serde_json::json;

    #[test]
    fn maps_error_codes() {
        for (code, trouble) in [
            ("server_error", ErrorKind::Unavailable),
            ("rate_limit_exceeded", ErrorKind::RateLimited),
            ("insufficient_quota", ErrorKind::Unavailable),
            ("invalid_prompt", ErrorKind::ContentPolicy),
            ("content_filter", ErrorKind::ContentPolicy),
            ("context_length_exceeded", ErrorKind::ContextTooLong),
            ("bio_policy", ErrorKind::ContentPolicy),
            ("image_content_policy_violation", ErrorKind::ContentPolicy),
            ("image_too_large", ErrorKind::InvalidRequest),
            ("failed_to_download_image", ErrorKind::InvalidRequest),
            ("vector_store_timeout", ErrorKind::Timeout),
            ("something_new", ErrorKind::Unavailable),
        ] {
            let nested = json!({"type":"error","error":{"type":"x","code":code,"message":"m"}});
            let flat = json!({"type":"error","code":code,"message":"m","param":null});
            for error in [nested, flat, json!({"code":code,"message":"m"})] {
                assert_eq!(read(&error).kind(), trouble, "{error}");
            }
        }
    }

    #[test]
    fn error_event_has_flat_and_nested_fields() {
        let fault = ApiError::new(ErrorKind::Interrupted, "it \"broke\"\noff");
        let mut events = EventWriter::starting_at(7);
        write_stream_error(&fault, &ResponseEcho::without_request("req_1"), &mut events);
        let text = String::from_utf8(events.out).unwrap();
        let data: Vec<Value> = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        assert_eq!(data[0]["error"]["message"], data[0]["message"]);
        assert_eq!(data[0]["code"], "upstream_interrupted");
        assert_eq!(data[1]["response"]["status"], "failed");
        assert_eq!(data[1]["response"]["error"]["code"], "server_error");
        assert_eq!(
            (&data[0]["sequence_number"], &data[1]["sequence_number"]),
            (&json!(7), &json!(8))
        );
    }
}
