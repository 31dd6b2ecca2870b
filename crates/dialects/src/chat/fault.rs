//! Errors of the chat format, read and written.
//!
//! See <https://platform.openai.com/docs/guides/error-codes>.

use canon::{Fault, Trouble};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

use crate::fields::Object;

/// Reads a provider's error response.
pub(super) fn read(status: u16, body: &[u8]) -> Fault {
    #[derive(Deserialize)]
    struct ChatErrorBody {
        error: Option<Value>,
    }
    // Some providers send the error without the `error` wrapper.
    let error = serde_json::from_slice::<ChatErrorBody>(body).ok().and_then(|body| body.error);
    let error = error.or_else(|| serde_json::from_slice(body).ok());
    crate::fault::of_upstream(status, error.as_ref().map(message_and_code))
}

/// Reads an error object that came in place of an answer: with status 200, or inside a stream.
pub(super) fn read_object(error: &str) -> Fault {
    let value: Value = serde_json::from_str(error).unwrap_or_default();
    let error_fields = message_and_code(&value);
    let status = match (&*error_fields.code, &*error_fields.kind) {
        ("rate_limit_exceeded" | "429", _) | (_, "rate_limit_error" | "requests" | "tokens") => 429,
        ("insufficient_quota", _) | (_, "insufficient_quota") => 402,
        ("invalid_api_key", _) | (_, "authentication_error") => 401,
        ("model_not_found", _) => 404,
        ("context_length_exceeded", _) | (_, "invalid_request_error") => 400,
        ("timeout", _) => 504,
        ("server_is_overloaded" | "slow_down" | "overloaded", _) | (_, "overloaded_error") => 529,
        _ => 503,
    };
    crate::fault::of_upstream(status, Some(error_fields))
}

fn message_and_code(error: &Value) -> crate::fault::UpstreamWords {
    let text = |name: &str| match error.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    match error {
        Value::String(message) => crate::fault::UpstreamWords {
            message: message.clone(),
            ..crate::fault::UpstreamWords::default()
        },
        _ => crate::fault::UpstreamWords {
            message: text("message"),
            kind: text("type"),
            code: text("code"),
            param: error.get("param").and_then(Value::as_str).map(str::to_owned),
        },
    }
}

/// Writes an error in this format.
pub(super) fn write(fault: &Fault) -> (u16, Vec<u8>) {
    let (status, kind, code) = error_words(fault.trouble());
    let code: Option<Cow<'_, str>> = fault.detail().map(Cow::Borrowed).or(code.map(Cow::Borrowed));
    let body: Value = Object::new()
        .set(
            "error",
            Object::new()
                .set("message", fault.say())
                .set("type", kind)
                .set("param", fault.path().map_or(Value::Null, Value::from))
                .set("code", code.map_or(Value::Null, |code| Value::from(code.into_owned()))),
        )
        .into();
    (status, body.to_string().into_bytes())
}

const fn error_words(trouble: Trouble) -> (u16, &'static str, Option<&'static str>) {
    const INVALID: &str = "invalid_request_error";
    match trouble {
        Trouble::Invalid => (400, INVALID, Some("invalid_value")),
        Trouble::TooLong => (400, INVALID, Some("context_length_exceeded")),
        Trouble::Policy => (400, INVALID, Some("content_policy_violation")),
        Trouble::NoKey => (401, INVALID, Some("invalid_api_key")),
        Trouble::Forbidden => (403, INVALID, Some("model_not_allowed")),
        Trouble::NoPath => (404, INVALID, Some("unknown_url")),
        Trouble::NoModel => (404, INVALID, Some("model_not_found")),
        Trouble::NotFound => (404, INVALID, Some("not_found")),
        Trouble::NoMethod => (405, INVALID, Some("method_not_supported")),
        Trouble::SlowCaller => (408, INVALID, Some("request_timeout")),
        Trouble::Conflict => (409, INVALID, Some("request_in_progress")),
        Trouble::Stale => (412, INVALID, Some("precondition_failed")),
        Trouble::Gone => (410, INVALID, Some("resource_expired")),
        Trouble::TooLarge => (413, INVALID, Some("request_too_large")),
        Trouble::MediaType => (415, INVALID, Some("unsupported_media_type")),
        Trouble::Expectation => (417, INVALID, Some("expectation_failed")),
        Trouble::Upgrade => (426, INVALID, Some("upgrade_not_supported")),
        Trouble::RateLimit => (429, "rate_limit_error", Some("rate_limit_exceeded")),
        Trouble::Quota => (429, "insufficient_quota", Some("insufficient_quota")),
        Trouble::HeadTooLarge => (431, INVALID, Some("headers_too_large")),
        Trouble::Internal => (500, "server_error", None),
        Trouble::Unavailable => (503, "server_error", Some("upstream_unavailable")),
        Trouble::Overload => (503, "server_error", Some("overloaded")),
        Trouble::Interrupted => (503, "server_error", Some("upstream_interrupted")),
        Trouble::Timeout => (504, "server_error", Some("timeout")),
    }
}
