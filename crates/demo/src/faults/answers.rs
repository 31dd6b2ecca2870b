//! Faults of whole answers: error statuses in the words of each format, and bodies that are none.

use bytes::Bytes;
use canon::Origin;
use serde_json::{Value, json};

use super::good::{Good, Piece};
use super::order::{BadOrder, Order};
use super::script::{Framing, Head, Script};
use crate::server::now;

/// An answer with that status and body instead.
fn instead(good: Good, status: u16, kind: &str, body: impl Into<Bytes>) -> Script {
    let body = body.into();
    let good = Good {
        status,
        kind: kind.to_owned(),
        pieces: vec![Piece::new(body)],
        events: false,
        ..good
    };
    let length = good.length();
    let mut script = good.script();
    if let Some(head) = &mut script.head {
        // These have no body and no length, or a reader would wait for it.
        let bare = matches!(status, 100..=199 | 204 | 304);
        head.framing = if bare { Framing::None } else { Framing::Length(length) };
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

/// What an error is about, whatever its format calls it.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Overloaded,
    Rate,
    Invalid,
    Auth,
}

pub(super) const KINDS: &[(&str, Kind)] = &[
    ("overloaded", Kind::Overloaded),
    ("rate", Kind::Rate),
    ("invalid", Kind::Invalid),
    ("auth", Kind::Auth),
];

impl Kind {
    pub(super) const fn status(self) -> u16 {
        match self {
            Self::Overloaded => 529,
            Self::Rate => 429,
            Self::Invalid => 400,
            Self::Auth => 401,
        }
    }
}

/// A format's own error body for a status, with things in it that must not reach a caller.
pub(super) fn error(origin: Origin, status: u16, delay: Option<&str>) -> Value {
    let message = format!(
        "Upstream says {status}: see https://status.example.com for org-4711, key sk-proj-abc123"
    );
    match origin {
        Origin::Messages => {
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
        Origin::Native => {
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
        Origin::Chat | Origin::Responses | Origin::Images => {
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

/// How a provider says when to come back.
#[derive(Clone, Copy)]
enum Hint {
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
enum Shown {
    Own,
    Html,
    Text,
    Empty,
}

pub(super) fn status(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let code = order.number("code", 503)?;
    let code = u16::try_from(code).ok().filter(|code| (100..=999).contains(code));
    let code = code.ok_or_else(|| BadOrder("`code` is a number from 100 to 999".to_owned()))?;
    let hint = order.one_of(
        "hint",
        &[
            ("none", Hint::None),
            ("seconds", Hint::Seconds),
            ("ms", Hint::Millis),
            ("date", Hint::Date),
            ("past", Hint::Past),
            ("far", Hint::Far),
            ("malformed", Hint::Malformed),
            ("negative", Hint::Negative),
            ("reset", Hint::Reset),
            ("delay", Hint::Delay),
            ("rfc3339", Hint::Rfc3339),
        ],
    )?;
    let shown = order.one_of(
        "body",
        &[
            ("own", Shown::Own),
            ("html", Shown::Html),
            ("text", Shown::Text),
            ("empty", Shown::Empty),
        ],
    )?;
    let delay = matches!(hint, Hint::Delay).then_some("2s");
    let origin = good.origin;
    let mut script = match shown {
        Shown::Own => instead(good, code, JSON, error(origin, code, delay).to_string()),
        Shown::Html => instead(good, code, "text/html", PAGE),
        Shown::Text => instead(good, code, "text/plain", "upstream connect error"),
        Shown::Empty => instead(good, code, JSON, ""),
    };
    if let Some(head) = &mut script.head {
        tell(head, hint);
    }
    Ok(script)
}

fn tell(head: &mut Head, hint: Hint) {
    const AFTER: &str = "retry-after";
    let (name, value) = match hint {
        Hint::None | Hint::Delay => return,
        Hint::Seconds => (AFTER, "2".to_owned()),
        Hint::Millis => ("retry-after-ms", "1500".to_owned()),
        Hint::Date => (AFTER, http_date(now() + 2)),
        Hint::Past => (AFTER, http_date(now() - 3_600)),
        Hint::Far => (AFTER, "Fri, 31 Dec 9999 23:59:59 GMT".to_owned()),
        Hint::Malformed => (AFTER, "soon, or the day after".to_owned()),
        Hint::Negative => (AFTER, "-5".to_owned()),
        Hint::Reset => ("x-ratelimit-reset-requests", "6m0s".to_owned()),
        Hint::Rfc3339 => ("anthropic-ratelimit-requests-reset", rfc3339(now() + 2)),
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

pub(super) fn error_body(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let kind = order.one_of("kind", KINDS)?;
    let body = error(good.origin, kind.status(), None).to_string();
    Ok(instead(good, 200, JSON, body))
}

pub(super) fn empty(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    let kind = good.kind.clone();
    Ok(instead(good, 200, &kind, ""))
}

pub(super) fn wrong_shape(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(instead(good, 200, JSON, r#"{"ok":true,"result":[1,2,3]}"#))
}

pub(super) fn not_json(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(instead(good, 200, JSON, "{\"choices\":[{\"message\":"))
}

pub(super) fn html(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(instead(good, 200, "text/html; charset=utf-8", PAGE))
}

pub(super) fn redirect(order: &Order, good: Good) -> Result<Script, BadOrder> {
    let code = order
        .one_of("code", &[("302", 302), ("301", 301), ("303", 303), ("307", 307), ("308", 308)])?;
    let mut script = instead(good, code, "text/plain", "elsewhere");
    if let Some(head) = &mut script.head {
        // The place it names is this server: a caller that follows is seen in the meter.
        head.headers.push(("location".to_owned(), Bytes::from_static(b"/v1/redirected")));
    }
    Ok(script)
}

/// Another number of answers than was asked for: the first ones, or the last one several times.
pub(super) fn choices(order: &Order, mut good: Good) -> Result<Script, BadOrder> {
    let count = order.count("count", 1)?;
    let tokens = good.tokens();
    if !good.events
        && let Ok(Value::Object(mut body)) = serde_json::from_slice(&good.joined())
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
        good.pieces = vec![Piece { bytes: Value::Object(body).to_string().into(), tokens }];
    }
    Ok(good.script())
}

/// The answer as it is; what is wrong with it was done before.
pub(super) fn as_it_is(_order: &Order, good: Good) -> Result<Script, BadOrder> {
    Ok(good.script())
}
