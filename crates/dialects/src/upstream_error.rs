//! Maps a provider's error to the error of the gateway's caller, independent of the wire format.
//!
//! The status decides the error kind. The provider's message is repeated only if it helps the
//! caller to fix the request, and never with a credential or a URL in it.

use canon::{ApiError, Blame, ErrorKind, UpstreamProgress, scrub, scrub_for_log};
use serde_json::Value;
use std::borrow::Cow;

use crate::prompt_blocks;

/// Fields of a provider's error object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamError {
    pub(crate) message: String,
    pub(crate) kind: String,
    pub(crate) code: String,
    /// Field of the request that caused the error.
    pub(crate) param: Option<String>,
}

impl UpstreamError {
    /// Reads the fields by the names that most formats use. Some providers send a bare message.
    pub(crate) fn read(error: &Value) -> Self {
        let text = |name: &str| match error.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        Self {
            message: error.as_str().map_or_else(|| text("message"), str::to_owned),
            kind: text("type"),
            code: text("code"),
            param: error.get("param").and_then(Value::as_str).map(str::to_owned),
        }
    }

    /// Returns the status of an error of the chat or the responses format that came without one.
    pub(crate) fn openai_status(&self) -> u16 {
        match (&*self.code, &*self.kind) {
            ("rate_limit_exceeded" | "429", _)
            | (_, "rate_limit_error" | "requests" | "tokens") => 429,
            ("insufficient_quota", _) | (_, "insufficient_quota") => 402,
            ("invalid_api_key", _) | (_, "authentication_error") => 401,
            ("model_not_found", _) => 404,
            ("context_length_exceeded", _) | (_, "invalid_request_error") => 400,
            (code, _) if prompt_blocks::block_reason(code).is_some() => 400,
            ("timeout", _) => 504,
            ("server_is_overloaded" | "slow_down" | "overloaded", _) | (_, "overloaded_error") => {
                529
            }
            _ => 503,
        }
    }
}

/// Returns the gateway's error for a provider's error status.
pub(crate) fn map_upstream_error(status: u16, words: Option<UpstreamError>) -> ApiError {
    let words = words.unwrap_or_default();
    let status = if is_out_of_credit(status, &words) { 402 } else { status };
    let note = format!(
        "the provider answered {status} {} {}: {}",
        scrub_for_log(&words.kind),
        scrub_for_log(&words.code),
        scrub_for_log(&words.message)
    );
    let with_message = |trouble, fallback: &'static str| {
        let message = scrub(&words.message);
        let message = if message.is_empty() { fallback.into() } else { Cow::Owned(message) };
        let fault = ApiError::new(trouble, message);
        match &words.param {
            Some(param) => fault.with_param(scrub(param)),
            None => fault,
        }
    };
    let fault = match status {
        400 | 422 if words.code == "context_length_exceeded" => {
            with_message(ErrorKind::ContextTooLong, "the prompt is longer than the model's window")
        }
        400 | 422 if prompt_blocks::block_reason(&words.code).is_some() => {
            with_message(ErrorKind::ContentPolicy, "the provider refused the prompt")
                .with_code(words.code.clone())
        }
        400 | 422 => {
            with_message(ErrorKind::InvalidRequest, "the provider refused the request as invalid")
        }
        413 => {
            with_message(ErrorKind::BodyTooLarge, "the provider refused the request as too large")
        }
        // The caller named an object that the provider does not hold. A path without a field
        // means the model.
        404 if words.param.as_deref().is_some_and(|field| field != "model") => {
            with_message(ErrorKind::NotFound, "the provider does not hold an object of the request")
        }
        // The gateway's own credential or account failed. The caller cannot fix that.
        401..=404 => {
            ApiError::new(ErrorKind::Unavailable, "the model is not available at the moment")
        }
        429 => ApiError::new(
            ErrorKind::RateLimited,
            "the model's provider is at its rate limit, retry later",
        ),
        408 | 504 => ApiError::new(ErrorKind::Timeout, "the provider took too long to answer"),
        529 => ApiError::new(ErrorKind::Overloaded, "the model is overloaded, retry later"),
        _ => ApiError::new(ErrorKind::Unavailable, "the provider failed to answer, retry later"),
    };
    let is_callers = matches!(status, 400 | 413 | 422) || fault.kind() == ErrorKind::NotFound;
    fault
        .with_blame(if is_callers { Blame::Caller } else { Blame::Upstream })
        .with_progress(UpstreamProgress::Answered(status))
        .with_log_note(note)
}

/// Returns the error of a reply that cannot be read. `what` is the reply that was expected.
pub(crate) fn unreadable_reply(what: &str, why: &str) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
        .with_log_note(format!("not {what}: {why}"))
}

/// Refuses a stream that ended too early.
pub(crate) fn ensure_ended(is_ended: bool, note: &'static str) -> Result<(), ApiError> {
    let why = "the provider's answer broke off before its end";
    let error = || ApiError::new(ErrorKind::Interrupted, why).with_log_note(note);
    is_ended.then_some(()).ok_or_else(error)
}

/// Error words of providers whose account has no credit left or is not paid.
const CREDIT_CODES: &[&str] = &[
    "insufficient_quota",
    "insufficient_balance",
    "insufficient_credits",
    "billing_error",
    "billing_disabled",
    "billing_not_active",
    "billing_hard_limit_reached",
];

/// Messages of the same errors, for formats without a code for them.
const CREDIT_MESSAGES: &[&str] = &[
    "insufficient_quota",
    "insufficient balance",
    "insufficient credit",
    "credit balance is too low",
    "credits are depleted",
    "spending cap",
    "billing hard limit",
];

/// Returns true if the provider's account has no credit. Such an error often has status 429, but
/// waiting does not help, and only the operator can end it. See
/// <https://platform.openai.com/docs/guides/error-codes>.
///
/// A message is read only of statuses that do not repeat parts of the request.
fn is_out_of_credit(status: u16, words: &UpstreamError) -> bool {
    let coded = [&words.code, &words.kind]
        .iter()
        .any(|word| CREDIT_CODES.iter().any(|code| word.eq_ignore_ascii_case(code)));
    let message = words.message.to_ascii_lowercase();
    match status {
        400 | 403 => coded,
        429 => coded || CREDIT_MESSAGES.iter().any(|part| message.contains(part)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_secrets_and_urls() {
        let words = UpstreamError {
            message: "Incorrect key sk-abc123 at https://x.example/keys for org-77".to_owned(),
            ..UpstreamError::default()
        };
        let fault = map_upstream_error(400, Some(words));
        assert_eq!(fault.message(), "Incorrect key [hidden] at [hidden] for [hidden]");
    }

    #[test]
    fn an_object_the_provider_does_not_hold_is_the_callers_error() {
        let fault = |param: &str| {
            let words = UpstreamError {
                message: "Item with id 'x' not found.".to_owned(),
                param: Some(param.to_owned()),
                ..UpstreamError::default()
            };
            let fault = map_upstream_error(404, Some(words));
            (fault.kind(), fault.blame())
        };
        assert_eq!(fault("input"), (ErrorKind::NotFound, Blame::Caller));
        assert_eq!(fault("model"), (ErrorKind::Unavailable, Blame::Upstream));
    }

    #[test]
    fn an_account_without_credit_is_the_operators_trouble() {
        let shapes: [(&dyn crate::Dialect, &str); 9] = [
            (
                &crate::chat::ChatDialect,
                r#"{"error":{"message":"m","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            ),
            (
                &crate::responses::ResponsesDialect,
                r#"{"error":{"message":"m","type":"x","code":"insufficient_quota"}}"#,
            ),
            (
                &crate::messages::MessagesDialect,
                r#"{"type":"error","error":{"type":"insufficient_quota","message":"m"}}"#,
            ),
            (
                &crate::messages::MessagesDialect,
                r#"{"type":"error","error":{"type":"rate_limit_error","code":"insufficient_quota","message":"m"}}"#,
            ),
            (
                &crate::messages::MessagesDialect,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"insufficient_quota: no credit"}}"#,
            ),
            (
                &crate::native::NativeDialect,
                r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"insufficient_quota"}}"#,
            ),
            (
                &crate::native::NativeDialect,
                r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"m","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INSUFFICIENT_QUOTA"}]}}"#,
            ),
            (
                &crate::native::NativeDialect,
                r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan and billing details."}}"#,
            ),
            (
                &crate::native::NativeDialect,
                r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Your prepayment credits are depleted."}}"#,
            ),
        ];
        for (dialect, body) in shapes {
            let fault = dialect.read_error(429, body.as_bytes());
            assert_eq!(
                (fault.kind(), fault.blame(), fault.progress()),
                (ErrorKind::Unavailable, Blame::Upstream, Some(UpstreamProgress::Answered(402))),
                "{body}"
            );
        }
        let limited = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota, please check your plan and billing details.","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#;
        let fault =
            crate::Dialect::read_error(&crate::native::NativeDialect, 429, limited.as_bytes());
        assert_eq!(fault.kind(), ErrorKind::RateLimited);
    }

    #[test]
    fn hides_failures_of_the_gateways_own_credential() {
        for status in [401, 402, 403, 404] {
            let fault = map_upstream_error(status, None);
            assert_eq!((fault.kind(), fault.blame()), (ErrorKind::Unavailable, Blame::Upstream));
        }
    }
}
