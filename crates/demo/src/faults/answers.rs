//! Faults of complete answers: error statuses in each format's shape, and invalid bodies.

use bytes::Bytes;
use canon::WireFormat;
use serde_json::{Value, json};

use super::order::{FaultOrder, OrderError};
use super::proper_answer::{BodyPiece, ProperAnswer};
use super::script::{AnswerScript, BodyFraming, ScriptHead};
use crate::server::now;

/// Replaces the answer by one with that status and body.
fn instead(good: ProperAnswer, status: u16, kind: &str, body: impl Into<Bytes>) -> AnswerScript {
    let body = body.into();
    let good = ProperAnswer {
        status,
        kind: kind.to_owned(),
        pieces: vec![BodyPiece::new(body)],
        events: false,
        ..good
    };
    let length = good.length();
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        // These statuses have no body and no length; a reader would wait for one (RFC 9110, section
        // 6.4.1).
        let bare = matches!(status, 100..=199 | 204 | 304);
        head.framing = if bare { BodyFraming::None } else { BodyFraming::Length(length) };
        if bare {
            head.headers.clear();
            script.body.clear();
        }
    }
    script
}

const JSON: &str = "application/json";
const PAGE: &str = "<!doctype html><html><head><title>Sign in</title></head><body>\
                    <h1>Sign in to the network</h1></body></html>";

/// Kind of an error, independent of the format.
#[derive(Clone, Copy)]
pub(super) enum ErrorClass {
    Overloaded,
    Rate,
    Invalid,
    Auth,
}

pub(super) const ERROR_CLASSES: &[(&str, ErrorClass)] = &[
    ("overloaded", ErrorClass::Overloaded),
    ("rate", ErrorClass::Rate),
    ("invalid", ErrorClass::Invalid),
    ("auth", ErrorClass::Auth),
];

impl ErrorClass {
    pub(super) const fn status(self) -> u16 {
        match self {
            Self::Overloaded => 529,
            Self::Rate => 429,
            Self::Invalid => 400,
            Self::Auth => 401,
        }
    }
}

/// Returns a format's error body for a status. It contains text that must not reach a caller.
pub(super) fn error(origin: WireFormat, status: u16, delay: Option<&str>) -> Value {
    let message = format!(
        "Upstream says {status}: see https://status.example.com for org-4711, key sk-proj-abc123"
    );
    match origin {
        WireFormat::Messages => {
            let kind = match status {
                400 | 422 => "invalid_request_error",
                401 => "authentication_error",
                402 => "billing_error",
                403 => "permission_error",
                404 => "not_found_error",
                413 => "request_too_large",
                429 => "rate_limit_error",
                504 => "timeout_error",
                529 => "overloaded_error",
                _ => "api_error",
            };
            json!({ "type": "error", "error": { "type": kind, "message": message },
                    "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy" })
        }
        WireFormat::Native => {
            let word = match status {
                400 | 413 | 422 => "INVALID_ARGUMENT",
                401 => "UNAUTHENTICATED",
                402 | 403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                408 | 504 => "DEADLINE_EXCEEDED",
                409 => "ABORTED",
                429 => "RESOURCE_EXHAUSTED",
                500 => "INTERNAL",
                _ => "UNAVAILABLE",
            };
            let details: Vec<Value> = delay
                .map(|delay| {
                    json!({ "@type": "type.googleapis.com/google.rpc.RetryInfo",
                            "retryDelay": delay })
                })
                .into_iter()
                .collect();
            json!({ "error": { "code": status, "message": message, "status": word,
                               "details": details } })
        }
        WireFormat::Chat | WireFormat::Responses | WireFormat::Images => {
            let (kind, code) = match status {
                400 | 413 | 422 => ("invalid_request_error", "invalid_value"),
                401 => ("invalid_request_error", "invalid_api_key"),
                402 => ("insufficient_quota", "insufficient_quota"),
                403 => ("invalid_request_error", "unsupported_country_region_territory"),
                404 => ("invalid_request_error", "model_not_found"),
                429 => ("requests", "rate_limit_exceeded"),
                529 => ("server_error", "server_is_overloaded"),
                _ => ("server_error", "server_error"),
            };
            json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
        }
    }
}

/// Form in which a provider states the retry delay.
#[derive(Clone, Copy)]
enum RetryHint {
    None,
    Seconds,
    Millis,
    Date,
    Past,
    Far,
    Malformed,
    Negative,
    Reset,
    Delay,
    Rfc3339,
}

#[derive(Clone, Copy)]
enum ErrorPlacement {
    Own,
    Html,
    Text,
    Empty,
}

pub(super) fn status(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let code = order.number("code", 503)?;
    let code = u16::try_from(code).ok().filter(|code| (100..=999).contains(code));
    let code = code.ok_or_else(|| OrderError("`code` is a number from 100 to 999".to_owned()))?;
    let hint = order.one_of(
        "hint",
        &[
            ("none", RetryHint::None),
            ("seconds", RetryHint::Seconds),
            ("ms", RetryHint::Millis),
            ("date", RetryHint::Date),
            ("past", RetryHint::Past),
            ("far", RetryHint::Far),
            ("malformed", RetryHint::Malformed),
            ("negative", RetryHint::Negative),
            ("reset", RetryHint::Reset),
            ("delay", RetryHint::Delay),
            ("rfc3339", RetryHint::Rfc3339),
        ],
    )?;
    let shown = order.one_of(
        "body",
        &[
            ("own", ErrorPlacement::Own),
            ("html", ErrorPlacement::Html),
            ("text", ErrorPlacement::Text),
            ("empty", ErrorPlacement::Empty),
        ],
    )?;
    let delay = matches!(hint, RetryHint::Delay).then_some("2s");
    let origin = good.origin;
    let mut script = match shown {
        ErrorPlacement::Own => instead(good, code, JSON, error(origin, code, delay).to_string()),
        ErrorPlacement::Html => instead(good, code, "text/html", PAGE),
        ErrorPlacement::Text => instead(good, code, "text/plain", "upstream connect error"),
        ErrorPlacement::Empty => instead(good, code, JSON, ""),
    };
    if let Some(head) = &mut script.head {
        tell(head, hint);
    }
    Ok(script)
}

fn tell(head: &mut ScriptHead, hint: RetryHint) {
    const AFTER: &str = "retry-after";
    let (name, value) = match hint {
        RetryHint::None | RetryHint::Delay => return,
        RetryHint::Seconds => (AFTER, "2".to_owned()),
        RetryHint::Millis => ("retry-after-ms", "1500".to_owned()),
        RetryHint::Date => (AFTER, http_date(now() + 2)),
        RetryHint::Past => (AFTER, http_date(now() - 3_600)),
        RetryHint::Far => (AFTER, "Fri, 31 Dec 9999 23:59:59 GMT".to_owned()),
        RetryHint::Malformed => (AFTER, "soon, or the day after".to_owned()),
        RetryHint::Negative => (AFTER, "-5".to_owned()),
        RetryHint::Reset => ("x-ratelimit-reset-requests", "6m0s".to_owned()),
        RetryHint::Rfc3339 => ("anthropic-ratelimit-requests-reset", rfc3339(now() + 2)),
    };
    head.headers.push((name.to_owned(), value.into()));
}

fn http_date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds)
        .map(|time| time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        .unwrap_or_default()
}

fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

pub(super) fn error_body(
    order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let kind = order.one_of("kind", ERROR_CLASSES)?;
    let body = error(good.origin, kind.status(), None).to_string();
    Ok(instead(good, 200, JSON, body))
}

pub(super) fn empty(_order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let kind = good.kind.clone();
    Ok(instead(good, 200, &kind, ""))
}

pub(super) fn wrong_shape(
    _order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(instead(good, 200, JSON, r#"{"ok":true,"result":[1,2,3]}"#))
}

pub(super) fn not_json(
    _order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(instead(good, 200, JSON, "{\"choices\":[{\"message\":"))
}

pub(super) fn html(_order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    Ok(instead(good, 200, "text/html; charset=utf-8", PAGE))
}

pub(super) fn redirect(order: &FaultOrder, good: ProperAnswer) -> Result<AnswerScript, OrderError> {
    let code = order
        .one_of("code", &[("302", 302), ("301", 301), ("303", 303), ("307", 307), ("308", 308)])?;
    let mut script = instead(good, code, "text/plain", "elsewhere");
    if let Some(head) = &mut script.head {
        // The URL points to this server, so the meter shows a caller that follows it.
        head.headers.push(("location".to_owned(), Bytes::from_static(b"/v1/redirected")));
    }
    Ok(script)
}

/// Returns a wrong number of answers: the first ones, or the last one several times.
pub(super) fn choices(
    order: &FaultOrder,
    mut good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    let count = order.count("count", 1)?;
    let tokens = good.tokens();
    if !good.events
        && let Ok(Value::Object(mut body)) = dialects::json::read_bytes(&good.joined())
    {
        for name in ["choices", "candidates"] {
            if let Some(Value::Array(list)) = body.get_mut(name)
                && let Some(mut last) = list.last().cloned()
            {
                list.truncate(count);
                while list.len() < count {
                    if let Value::Object(fields) = &mut last {
                        fields.insert("index".to_owned(), json!(list.len()));
                    }
                    list.push(last.clone());
                }
            }
        }
        good.pieces = vec![BodyPiece { bytes: Value::Object(body).to_string().into(), tokens }];
    }
    Ok(good.script())
}

/// Returns the answer unchanged; the fault was applied before.
pub(super) fn as_it_is(
    _order: &FaultOrder,
    good: ProperAnswer,
) -> Result<AnswerScript, OrderError> {
    Ok(good.script())
}
