//! Requests and answers as text, for snapshots of everything a caller sees.

use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use serde_json::Value;
use std::fmt::Write as _;

use crate::TestResponse;

/// Regular expressions and replacements for everything that differs from run to run: ids, times,
/// durations, ports, versions, and picture data that is too long to read.
pub const REDACTIONS: &[(&str, &str)] = &[
    (r#""(b64_json|data)": "[A-Za-z0-9+/=]{200,}""#, r#""$1": "[base64]""#),
    (r"data:image/(\w+);base64,[A-Za-z0-9+/=]{200,}", "data:image/$1;base64,[base64]"),
    (r"sk-pt-(admin-)?[0-9A-Za-z]+-[0-9A-Za-z]+", "sk-pt-$1[secret]"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[uuid]"),
    (r#"etag: "\w+""#, r#"etag: "[hash]""#),
    (r"/files/[\w.-]+\?expires=\d+&signature=[\w-]+", "/files/[signed]"),
    (r#""(id|key_id|subject)": "[0-9A-Za-z]{12}""#, r#""$1": "[key id]""#),
    (r"/keys/[0-9A-Za-z]{12}\b", "/keys/[key id]"),
    (r"/link/[0-9a-f]{32,}", "/link/[token]"),
    (r#""responseId":( ?)"\w{16,}""#, r#""responseId":$1"[id]""#),
    (r"([a-z]+[_-])[0-9A-Za-z]{16,}(_\d+)?\b", "$1[id]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[time]"),
    (r"\b1[6-9]\d{14}\b", "[micros]"),
    (r"\b1[6-9]\d{8}\b", "[unix]"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:[port]"),
    (r#""((?:[a-z_]+_)?(?:ms|us|seconds))": \d+"#, r#""$1": "[duration]""#),
    (r#""version": "[\d.-]+""#, r#""version": "[version]""#),
];

/// Headers that say how the bytes were sent and not what was answered.
const TRANSPORT_HEADERS: [http::HeaderName; 4] =
    [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING];

/// Request line and body; the headers are the same for nearly every request of a test.
pub(crate) fn request_text(request: &Request<Bytes>) -> String {
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let mut text = format!("{} {path}", request.method());
    let body = request.body();
    if !body.is_empty() {
        let _ = write!(text, "\n{}", String::from_utf8_lossy(body));
    }
    text
}

/// Status line, headers in alphabetical order and the body; JSON is indented, anything else is as
/// it came.
pub fn answer_text(got: &TestResponse) -> String {
    let mut text = format!("HTTP/1.1 {}\n", got.status);
    let mut headers: Vec<_> = got
        .headers
        .iter()
        .filter(|(name, _)| !TRANSPORT_HEADERS.contains(name))
        .map(|(name, value)| format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    headers.sort();
    text.extend(headers);
    text.push('\n');
    match serde_json::from_slice::<Value>(&got.body) {
        Ok(json) => {
            let _ = write!(text, "{json:#}");
        }
        Err(_) => text.push_str(&got.text()),
    }
    if got.is_truncated {
        text.push_str("\n[connection cut]");
    }
    text
}
