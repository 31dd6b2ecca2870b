//! The one place that turns errors into HTTP responses, in the caller's format.

use axum::body::Body;
use axum::response::Response;
use canon::{ApiError, ErrorKind, UpstreamProgress};
use dialects::{Dialect, LimitHeaderStyle};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, HeaderName, StatusCode};

/// Format of errors on a path.
#[derive(Clone, Copy)]
pub enum ErrorFormat {
    /// A wire format.
    Dialect(&'static dyn Dialect),
    /// The gateway's own JSON: `{"success":false,"message","code"}`, plus `field` if one is at
    /// fault.
    Plain,
}

impl ErrorFormat {
    /// Returns the format for a path, even if no route exists there.
    pub fn for_path(path: &str, has_header: impl Fn(&str) -> bool) -> Self {
        dialects::for_path(path, has_header).map_or(Self::Plain, Self::Dialect)
    }

    /// Returns the style of rate-limit headers; `None` if the format has none.
    pub fn limit_headers(self) -> Option<LimitHeaderStyle> {
        match self {
            Self::Dialect(dialect) => dialect.traits().limit_headers,
            Self::Plain => None,
        }
    }

    /// Returns the status and the body of an error.
    pub fn to_body(self, error: &ApiError, request_id: &str) -> (u16, Vec<u8>) {
        match self {
            Self::Dialect(dialect) => dialect.write_error(error, request_id),
            Self::Plain => plain_body(error),
        }
    }

    /// Converts an error into a response and logs it. Errors of the caller are logged at debug
    /// level.
    pub fn to_response(self, error: &ApiError, request_id: &str) -> Response {
        let (status, body) = self.to_body(error, request_id);
        log_error(error, status, request_id);
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        retry_headers(error, status, headers);
        for (name, value) in error.headers() {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(*name, value);
            }
        }
        if status == 413 {
            // The rest of the body is not read, so the connection cannot be reused (RFC 9112,
            // section 9.6).
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Logs the error of a request that was answered with this status. Errors of the caller are logged at
/// debug level.
pub fn log_error(error: &ApiError, status: u16, request_id: &str) {
    let note = error.log_note().unwrap_or_default();
    if error.kind() == ErrorKind::Internal {
        tracing::error!(request.id = request_id, status, "answered {status}: {error} [{note}]");
    } else if status >= 500 {
        tracing::warn!(request.id = request_id, status, "answered {status}: {error} [{note}]");
    } else if matches!(error.progress(), Some(UpstreamProgress::Answered(_))) {
        // The message is the provider's, and may repeat a part of the request.
        tracing::debug!(request.id = request_id, status, "answered {status} [{note}]");
    } else {
        tracing::debug!(request.id = request_id, status, "answered {status}: {error} [{note}]");
    }
}

/// Adds the `Allow` header that a 405 response must have (RFC 9110, section 15.5.6).
pub fn with_allow_header(mut response: Response, methods: &HeaderValue) -> Response {
    response.headers_mut().insert(ALLOW, methods.clone());
    response
}

/// Adds headers that control the retries of official clients: `Retry-After` (RFC 9110, section
/// 10.2.3), and `retry-after-ms` and `x-should-retry` of the Stainless SDKs
/// (<https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py>).
fn retry_headers(error: &ApiError, status: u16, headers: &mut HeaderMap) {
    const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
    const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
    if error.is_retryable() && matches!(status, 408 | 409 | 429 | 503) {
        let wait = error.retry_after().map_or(1_000, |wait| wait.as_millis().clamp(1, 60_000));
        let seconds = wait.div_ceil(1_000).to_string();
        for (name, value) in [(RETRY_AFTER, seconds), (RETRY_AFTER_MS, wait.to_string())] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(name, value);
            }
        }
    }
    // A budget says when it is renewed, although nobody should wait for that.
    if error.kind() == ErrorKind::QuotaExceeded
        && let Some(wait) = error.retry_after()
    {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
    }
    // Sent with every status, because some clients retry errors that can never succeed.
    if !error.is_retryable() {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    } else if matches!(status, 409 | 429) {
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("true"));
    }
}

fn plain_body(error: &ApiError) -> (u16, Vec<u8>) {
    // Statuses and codes are those of the default format; only the body differs.
    let (status, body) = dialects::DEFAULT.write_error(error, "");
    let code = dialects::json::read_bytes::<serde_json::Value>(&body)
        .ok()
        .and_then(|body| body.pointer("/error/code").cloned())
        .unwrap_or_default();
    let mut body =
        serde_json::json!({ "success": false, "message": error.message(), "code": code });
    if let (Some(field), Some(object)) = (error.param(), body.as_object_mut()) {
        object.insert("field".to_owned(), field.into());
    }
    (status, body.to_string().into_bytes())
}
