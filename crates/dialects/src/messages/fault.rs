//! Reads and writes errors of the messages format, <https://docs.anthropic.com/en/api/errors>.

use canon::{Fault, Trouble};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

use crate::fault::{UpstreamWords, of_upstream};
use crate::fields::Object;

/// The error code that makes tool runners resend their whole history instead of the last turn of a
/// thread.
pub(super) const THREAD_UNSUPPORTED: &str = "thread_unsupported_request";

#[derive(Debug, Default, Deserialize)]
struct MessagesErrorBody {
    #[serde(default)]
    error: Option<Value>,
    /// AWS puts the message at the top level, without an `error` object.
    #[serde(default)]
    message: Option<Value>,
}

/// Reads a provider's error response.
pub(super) fn read(status: u16, body: &[u8]) -> Fault {
    let body = serde_json::from_slice::<MessagesErrorBody>(body).ok();
    let error = body.and_then(|body| body.error.or(body.message));
    let Some(error) = error else { return of_upstream(status, None) };
    let words = read_words(&error);
    of_upstream(effective_status(status, &words), Some(words))
}

/// Reads an error object that came in place of a reply, in a 200 response or inside a stream.
pub(super) fn read_object(error: &Value) -> Fault {
    let words = read_words(error);
    let status = match words.kind.as_str() {
        "invalid_request_error" => 400,
        "authentication_error" => 401,
        "billing_error" => 402,
        "permission_error" => 403,
        "not_found_error" => 404,
        "request_too_large" => 413,
        "rate_limit_error" => 429,
        "timeout_error" => 504,
        "overloaded_error" => 529,
        _ => 500,
    };
    of_upstream(effective_status(status, &words), Some(words))
}

/// Returns the status that an error means: an account without credit answers 400, although the
/// caller's request is correct.
fn effective_status(status: u16, words: &UpstreamWords) -> u16 {
    if status == 400 && words.message.contains("credit balance is too low") { 402 } else { status }
}

fn read_words(error: &Value) -> UpstreamWords {
    let text = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let message = match error {
        Value::String(message) => message.clone(),
        _ => text("message"),
    };
    let too_long = message.starts_with("prompt is too long")
        || message.contains("exceed context limit")
        || message.contains("maximum context length");
    let details = error.get("details").and_then(|details| details.get("error_code"));
    let code = match details.and_then(Value::as_str) {
        _ if too_long => "context_length_exceeded",
        Some(code) => code,
        None => "",
    };
    UpstreamWords { code: code.to_owned(), kind: text("type"), message, param: None }
}

/// Writes an error: status and body. The body includes the request id.
pub(super) fn write(fault: &Fault, request_id: Option<&str>) -> (u16, Vec<u8>) {
    let (status, kind) = kind(fault.trouble());
    let details = (fault.detail() == Some(THREAD_UNSUPPORTED)).then(|| {
        Object::new().set("error_code", THREAD_UNSUPPORTED).set("unsupported", vec!["thread"])
    });
    let error = Object::new()
        .set("type", kind)
        .set("message", message(fault).as_ref())
        .maybe("details", details);
    let body: Value = Object::new()
        .set("type", "error")
        .set("error", error)
        .set("request_id", request_id.map_or(Value::Null, Value::from))
        .into();
    (status, body.to_string().into_bytes())
}

/// Returns the message for the caller. The format has no field for the path, so the message names
/// it.
fn message(fault: &Fault) -> Cow<'_, str> {
    let say = fault.say();
    // Agents of this format shorten their history when they read this prefix.
    const TOO_LONG: &str = "prompt is too long";
    if fault.trouble() == Trouble::TooLong && !say.starts_with(TOO_LONG) {
        return Cow::Owned(format!("{TOO_LONG}: {say}"));
    }
    match fault.path() {
        Some(path) if !say.contains(path) => Cow::Owned(format!("{path}: {say}")),
        _ => Cow::Borrowed(say),
    }
}

const fn kind(trouble: Trouble) -> (u16, &'static str) {
    const INVALID: &str = "invalid_request_error";
    match trouble {
        Trouble::Invalid | Trouble::TooLong | Trouble::Policy => (400, INVALID),
        Trouble::NoKey => (401, "authentication_error"),
        Trouble::Forbidden => (403, "permission_error"),
        Trouble::NoPath | Trouble::NoModel | Trouble::NotFound => (404, "not_found_error"),
        Trouble::NoMethod => (405, INVALID),
        Trouble::SlowCaller => (408, INVALID),
        Trouble::Conflict => (409, INVALID),
        Trouble::Stale => (412, INVALID),
        Trouble::Gone => (410, "not_found_error"),
        Trouble::TooLarge => (413, "request_too_large"),
        Trouble::MediaType => (415, INVALID),
        Trouble::Expectation => (417, INVALID),
        Trouble::Upgrade => (426, INVALID),
        Trouble::RateLimit | Trouble::Quota => (429, "rate_limit_error"),
        Trouble::HeadTooLarge => (431, INVALID),
        Trouble::Internal => (500, "api_error"),
        Trouble::Interrupted => (503, "api_error"),
        Trouble::Unavailable | Trouble::Overload => (503, "overloaded_error"),
        Trouble::Timeout => (504, "timeout_error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Blame;

    fn upstream(status: u16, kind: &str, message: &str) -> Fault {
        let error = format!(
            r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}},"request_id":"r"}}"#
        );
        read(status, error.as_bytes())
    }

    #[test]
    fn provider_errors_are_classified() {
        let cases = [
            (400, "invalid_request_error", "max_tokens: too large", Trouble::Invalid),
            (400, "invalid_request_error", "prompt is too long: 9 > 8", Trouble::TooLong),
            (400, "invalid_request_error", "Your credit balance is too low", Trouble::Unavailable),
            (401, "authentication_error", "invalid x-api-key", Trouble::Unavailable),
            (413, "request_too_large", "too large", Trouble::TooLarge),
            (429, "rate_limit_error", "slow down", Trouble::RateLimit),
            (500, "api_error", "oops", Trouble::Unavailable),
            (504, "timeout_error", "late", Trouble::Timeout),
            (529, "overloaded_error", "Overloaded", Trouble::Overload),
        ];
        for (status, kind, message, trouble) in cases {
            let fault = upstream(status, kind, message);
            assert_eq!(fault.trouble(), trouble, "{status} {message}");
            assert_eq!(
                fault.blamed() == Blame::Caller,
                matches!(trouble, Trouble::Invalid | Trouble::TooLong | Trouble::TooLarge)
            );
            let error = serde_json::json!({"type": kind, "message": message});
            assert_eq!(read_object(&error).trouble(), trouble, "{message} in a stream");
        }
        assert_eq!(read(502, b"<html>").trouble(), Trouble::Unavailable);
        let bare = read(400, br#"{"message":"prompt is too long: 9 > 8"}"#);
        assert_eq!(bare.trouble(), Trouble::TooLong);
    }

    #[test]
    fn body_names_the_path_and_the_request_id() {
        let fault = Fault::invalid("messages[0].role", "is no role");
        let (status, body) = write(&fault, Some("req_1"));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 400);
        assert_eq!(body["type"], "error");
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert_eq!(body["error"]["message"], "messages[0].role: is no role");
        assert_eq!(body["request_id"], "req_1");
        assert!(body["error"].get("details").is_none());
    }
}
