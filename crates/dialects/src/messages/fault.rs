//! Reads and writes errors of the messages format, <https://docs.anthropic.com/en/api/errors>.

use canon::{ApiError, ErrorKind};
use serde_json::Value;
use std::borrow::Cow;

use crate::chat::error_status;
use crate::fields::ObjectWriter;
use crate::json;
use crate::upstream_error::{UpstreamError, map_upstream_error};

/// The error code that makes tool runners resend their whole history instead of the last turn of a
/// thread.
pub(super) const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";

/// Reads a provider's error response. AWS puts the message at the top level, without an `error`
/// object.
pub(super) fn read(status: u16, body: &[u8]) -> ApiError {
    let body: Value = json::read_bytes(body).unwrap_or_default();
    let field = |name: &&str| body.get(*name).filter(|error| !error.is_null());
    let Some(error) = ["error", "message"].iter().find_map(field) else {
        return map_upstream_error(status, None);
    };
    let words = read_words(error);
    map_upstream_error(effective_status(status, &words), Some(words))
}

/// The types of errors and their statuses.
const KINDS: [(u16, &str); 10] = [
    (400, "invalid_request_error"),
    (401, "authentication_error"),
    (402, "billing_error"),
    (403, "permission_error"),
    (404, "not_found_error"),
    (413, "request_too_large"),
    (429, "rate_limit_error"),
    (500, "api_error"),
    (504, "timeout_error"),
    (529, "overloaded_error"),
];

/// Reads an error object that came in place of a reply, in a 200 response or inside a stream.
pub(super) fn read_object(error: &Value) -> ApiError {
    let words = read_words(error);
    let known = KINDS.iter().find(|(_, kind)| *kind == words.kind);
    let status = known.map_or(500, |(status, _)| *status);
    map_upstream_error(effective_status(status, &words), Some(words))
}

/// Returns the status that an error means: an account without credit answers 400, although the
/// caller's request is correct.
fn effective_status(status: u16, words: &UpstreamError) -> u16 {
    let out_of_credit = words.message.contains("credit balance is too low")
        || words.message.contains("reached your specified API usage limits");
    if status == 400 && out_of_credit { 402 } else { status }
}

fn read_words(error: &Value) -> UpstreamError {
    let words = UpstreamError::read(error);
    let message = &words.message;
    let too_long = message.starts_with("prompt is too long")
        || message.contains("exceed context limit")
        || message.contains("maximum context length");
    let blocked = message.contains("blocked by content filtering policy");
    let details = error.get("details").and_then(|details| details.get("error_code"));
    // Imitations of this format put the code of the chat format into the error object.
    let code = details.or_else(|| error.get("code"));
    let code = match code.and_then(Value::as_str) {
        _ if too_long => "context_length_exceeded",
        _ if blocked => "content_policy_violation",
        Some(code) => code,
        None => "",
    };
    UpstreamError { code: code.to_owned(), param: None, ..words }
}

/// Writes an error: status and body. The body includes the request id.
pub(super) fn write(fault: &ApiError, request_id: Option<&str>) -> (u16, Vec<u8>) {
    let status = error_status(fault.kind());
    let details = fault.code().filter(|code| code.starts_with("thread_")).map(|code| {
        let unsupported = (code == THREAD_UNSUPPORTED).then(|| vec!["thread"]);
        ObjectWriter::new().set("error_code", code).set_some("unsupported", unsupported)
    });
    let error = ObjectWriter::new()
        .set("type", kind(fault.kind()))
        .set("message", message(fault).as_ref())
        .set_some("details", details);
    let body = ObjectWriter::typed("error").set("error", error).set("request_id", request_id);
    (status, body.into_json())
}

/// Returns the message for the caller. The format has no field for the path, so the message names
/// it.
fn message(fault: &ApiError) -> Cow<'_, str> {
    let say = fault.message();
    // Agents of this format shorten their history when they read this prefix.
    const TOO_LONG: &str = "prompt is too long";
    if fault.kind() == ErrorKind::ContextTooLong && !say.starts_with(TOO_LONG) {
        return Cow::Owned(format!("{TOO_LONG}: {say}"));
    }
    match fault.param() {
        Some(path) if !names_path(say, path) => Cow::Owned(format!("{path}: {say}")),
        _ => Cow::Borrowed(say),
    }
}

/// Returns true if a message names a path, and not only the same word.
fn names_path(say: &str, path: &str) -> bool {
    let quoted = |quote: char| say.contains(&format!("{quote}{path}{quote}"));
    say.strip_prefix(path).is_some_and(|rest| rest.starts_with([':', ' ']))
        || ['`', '\'', '"'].into_iter().any(quoted)
}

/// Returns the type of an error. Most of those of the caller have no type of their own.
fn kind(trouble: ErrorKind) -> &'static str {
    let status = match (trouble, error_status(trouble)) {
        (ErrorKind::Interrupted, _) => 500,
        // The status stays 429. Agents show the message of this type as it is.
        (ErrorKind::QuotaExceeded, _) => 402,
        (_, 410) => 404,
        (_, 503) => 529,
        (_, status) => status,
    };
    let known = KINDS.iter().find(|(own, _)| *own == status);
    known.map_or("invalid_request_error", |(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Blame;

    fn upstream(status: u16, kind: &str, message: &str) -> ApiError {
        let error = format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"r"}}"#
        );
        read(status, error.as_bytes())
    }

    #[test]
    fn provider_errors_are_classified() {
        let cases = [
            (400, "invalid_request_error", "max_tokens: too large", ErrorKind::InvalidRequest),
            (400, "invalid_request_error", "prompt is too long: 9 > 8", ErrorKind::ContextTooLong),
            (
                400,
                "invalid_request_error",
                "Your credit balance is too low",
                ErrorKind::Unavailable,
            ),
            (401, "authentication_error", "invalid x-api-key", ErrorKind::Unavailable),
            (413, "request_too_large", "too large", ErrorKind::BodyTooLarge),
            (429, "rate_limit_error", "slow down", ErrorKind::RateLimited),
            (500, "api_error", "oops", ErrorKind::Unavailable),
            (504, "timeout_error", "late", ErrorKind::Timeout),
            (529, "overloaded_error", "Overloaded", ErrorKind::Overloaded),
        ];
        for (status, kind, message, trouble) in cases {
            let fault = upstream(status, kind, message);
            assert_eq!(fault.kind(), trouble, "{status} {message}");
            assert_eq!(
                fault.blame() == Blame::Caller,
                matches!(
                    trouble,
                    ErrorKind::InvalidRequest | ErrorKind::ContextTooLong | ErrorKind::BodyTooLarge
                )
            );
            let error = serde_json::json!({"type": kind, "message": message});
            assert_eq!(read_object(&error).kind(), trouble, "{message} in a stream");
        }
        assert_eq!(read(502, b"<html>").kind(), ErrorKind::Unavailable);
        let bare = read(400, br#"{"message":"prompt is too long: 9 > 8"}"#);
        assert_eq!(bare.kind(), ErrorKind::ContextTooLong);
    }

    #[test]
    fn body_names_the_path_and_the_request_id() {
        let fault = ApiError::invalid("messages[0].role", "is no role");
        let (status, body) = write(&fault, Some("req_1"));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 400);
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["message"], "messages[0].role: is no role");
        let word = ApiError::invalid("messages", "expected a list of messages");
        assert_eq!(message(&word), "messages: expected a list of messages");
        let quoted = ApiError::invalid("messages", "`messages` is required");
        assert_eq!(message(&quoted), "`messages` is required");
        assert_eq!(body["request_id"], "req_1");
        assert!(body["error"].get("details").is_none());
    }
}
