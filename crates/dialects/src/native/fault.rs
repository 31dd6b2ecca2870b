//! Reads and writes errors of the native format: the `google.rpc.Status` shape of
//! <https://google.aip.dev/193>.

use canon::{ApiError, ErrorKind};
use serde_json::Value;
use std::time::Duration;

use super::names::CACHE_NOT_FOUND;
use crate::chat::error_status;
use crate::fields::ObjectWriter;
use crate::json;
use crate::upstream_error::{UpstreamError, map_upstream_error};

const DETAIL_PREFIX: &str = "type.googleapis.com/google.rpc.";

/// Reads a provider's error response. A stream that is a JSON array wraps the error object in an
/// array.
pub(super) fn read(status: u16, body: &[u8]) -> ApiError {
    let value: Value = json::read_bytes(body).unwrap_or_default();
    match value.get(0).unwrap_or(&value).get("error") {
        Some(error) => read_error(status, error),
        None => map_upstream_error(status, None),
    }
}

/// Reads an error object that came in place of a reply, in a 200 response or inside a stream.
pub(super) fn read_object(error: &Value) -> ApiError {
    let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
    let status = match error.get("status").and_then(Value::as_str).unwrap_or_default() {
        "INVALID_ARGUMENT" | "OUT_OF_RANGE" => 400,
        "RESOURCE_EXHAUSTED" => 429,
        "UNAUTHENTICATED" => 401,
        "PERMISSION_DENIED" | "FAILED_PRECONDITION" => 403,
        "NOT_FOUND" => 404,
        "DEADLINE_EXCEEDED" => 504,
        _ => code.filter(|code| *code >= 400).unwrap_or(503),
    };
    read_error(status, error)
}

fn read_error(status: u16, error: &Value) -> ApiError {
    let words = words(error);
    // The provider reports a refused key, an account without funds and an unsupported location as
    // 400. The caller cannot fix any of them, so they count as the gateway's fault.
    let is_gateway_fault = words.code == "API_KEY_INVALID" || words.kind == "FAILED_PRECONDITION";
    if words.message.starts_with(CACHE_NOT_FOUND) {
        let words = UpstreamError { param: Some("cachedContent".to_owned()), ..words };
        return map_upstream_error(404, Some(words));
    }
    // The same words describe a rate limit and an account without credit. Only the first one names
    // the quota or the time after which it is lifted.
    let out_of_credit = words.message.contains("exceeded your current quota")
        && detail(error, "RetryInfo").is_none()
        && detail(error, "QuotaFailure").is_none();
    let status = match status {
        400 if is_gateway_fault => 403,
        429 if out_of_credit => 402,
        status => status,
    };
    let fault = map_upstream_error(status, Some(words));
    match retry_delay(error) {
        Some(wait) => fault.with_retry_after(wait),
        None => fault,
    }
}

fn words(error: &Value) -> UpstreamError {
    let text = |value: Option<&Value>| {
        value.and_then(Value::as_str).map(str::to_owned).unwrap_or_default()
    };
    let message = text(Some(error).filter(|error| error.is_string()).or(error.get("message")));
    let reason = text(detail(error, "ErrorInfo").and_then(|detail| detail.get("reason")));
    let too_long = message.contains("token count") && message.contains("exceed");
    let code = if too_long { "context_length_exceeded".to_owned() } else { reason };
    let param = detail(error, "BadRequest")
        .and_then(|detail| detail.get("fieldViolations")?.get(0)?.get("field")?.as_str())
        .filter(|field| !field.is_empty())
        .map(camel_path);
    UpstreamError { message, kind: text(error.get("status")), code, param }
}

/// Converts a field path to camelCase: the provider names fields in snake_case, callers write
/// camelCase.
fn camel_path(field: &str) -> String {
    let steps: Vec<_> = field.split('.').map(crate::text::to_camel_case).collect();
    steps.join(".")
}

fn detail<'a>(error: &'a Value, kind: &str) -> Option<&'a Value> {
    let list = error.get("details")?.as_array()?;
    list.iter().find(|detail| {
        let name = detail.get("@type").and_then(Value::as_str).unwrap_or_default();
        name.rsplit('.').next() == Some(kind)
    })
}

/// Returns the provider's retry delay, written as `34.4s`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let text = detail(error, "RetryInfo")?.get("retryDelay")?.as_str()?;
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Writes an error: status and body.
pub(super) fn write(fault: &ApiError) -> (u16, Vec<u8>) {
    // All formats have the same status for an error.
    let status = error_status(fault.kind());
    let reason = match fault.kind() {
        ErrorKind::Unauthenticated => Some("API_KEY_INVALID"),
        ErrorKind::RateLimited => Some("RATE_LIMIT_EXCEEDED"),
        ErrorKind::QuotaExceeded => Some("INSUFFICIENT_QUOTA"),
        _ => None,
    };
    let mut details = Vec::new();
    let typed = |kind: &str| ObjectWriter::new().set("@type", format!("{DETAIL_PREFIX}{kind}"));
    let reason = reason.map(str::to_owned).or_else(|| Some(fault.code()?.to_ascii_uppercase()));
    let info = |reason| typed("ErrorInfo").set("reason", reason).set("domain", "portunus");
    details.extend(reason.map(info));
    if let Some(path) = fault.param() {
        let violation = ObjectWriter::new().set("field", path).set("description", fault.message());
        details.push(typed("BadRequest").set("fieldViolations", vec![violation]));
    }
    if matches!(fault.kind(), ErrorKind::RateLimited | ErrorKind::QuotaExceeded) {
        let violation = ObjectWriter::new().set("description", fault.message());
        details.push(typed("QuotaFailure").set("violations", vec![violation]));
    }
    let retry = |wait| typed("RetryInfo").set("retryDelay", seconds(wait));
    details.extend(fault.retry_after().map(retry));
    let error = ObjectWriter::new()
        .set("code", status)
        .set("message", fault.message())
        .set("status", code_of(status))
        .set_some("details", (!details.is_empty()).then_some(details));
    (status, ObjectWriter::new().set("error", error).into_json())
}

fn seconds(wait: Duration) -> String {
    match wait.subsec_millis() {
        0 => format!("{}s", wait.as_secs()),
        millis => format!("{}.{millis:03}s", wait.as_secs()),
    }
}

/// Returns the word for an HTTP status.
const fn code_of(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 | 410 => "NOT_FOUND",
        405 => "UNIMPLEMENTED",
        408 | 504 => "DEADLINE_EXCEEDED",
        409 => "ABORTED",
        412 | 417 | 426 => "FAILED_PRECONDITION",
        429 => "RESOURCE_EXHAUSTED",
        500 => "INTERNAL",
        503 => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_field_is_named_in_message_and_details() {
        let fault = ApiError::invalid("generationConfig.topP", "`generationConfig.topP` is wrong");
        let (status, body) = write(&fault);
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, &body["error"]["status"]), (400, &json!("INVALID_ARGUMENT")));
        let violation = &body["error"]["details"][0]["fieldViolations"][0];
        assert_eq!(violation["field"], "generationConfig.topP");
        assert!(body.to_string().starts_with(r#"{"error":{"code":400,"message":"#));
    }

    #[test]
    fn retry_delay_and_reason_round_trip() {
        let fault = ApiError::new(ErrorKind::RateLimited, "slow down")
            .with_retry_after(Duration::from_millis(1_500));
        let (status, body) = write(&fault);
        let again = read(status, &body);
        assert_eq!(
            (again.kind(), again.retry_after()),
            (ErrorKind::RateLimited, fault.retry_after())
        );
        let (status, body) = write(&ApiError::new(ErrorKind::Unauthenticated, "no key"));
        assert_eq!(status, 401);
        assert!(String::from_utf8(body).unwrap().contains("API_KEY_INVALID"));
    }

    #[test]
    fn provider_errors_are_attributed() {
        let error = |status: &str, reason: &str, message: &str| {
            let reason = json!({"@type": "x/google.rpc.ErrorInfo", "reason": reason});
            let list = json!([{"error": {"code": 400, "message": message, "status": status, "details": [reason]}}]);
            read(400, list.to_string().as_bytes()).kind()
        };
        assert_eq!(error("INVALID_ARGUMENT", "API_KEY_INVALID", "x"), ErrorKind::Unavailable);
        assert_eq!(error("FAILED_PRECONDITION", "", "User location"), ErrorKind::Unavailable);
        assert_eq!(error("INVALID_ARGUMENT", "", "bad"), ErrorKind::InvalidRequest);
        assert_eq!(error("PERMISSION_DENIED", "", CACHE_NOT_FOUND), ErrorKind::NotFound);
        let long = "The input token count (9) exceeds the maximum number of tokens allowed (5).";
        assert_eq!(error("INVALID_ARGUMENT", "", long), ErrorKind::ContextTooLong);
        assert_eq!(read(503, b"<html>").kind(), ErrorKind::Unavailable);
        assert_eq!(read_object(&json!({"code": 504})).kind(), ErrorKind::Timeout);
    }
}
