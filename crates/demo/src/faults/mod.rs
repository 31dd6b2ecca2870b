//! Faults on demand. A request orders a fault by a header or by words in its prompt; a rules file
//! orders faults for matching requests.
//!
//! `order.rs` parses an order and `catalog.rs` lists the faults. The files beside it turn a proper
//! answer into a `script.rs`, and `perform.rs` executes that on the `socket.rs`.

mod answers;
mod catalog;
mod connection;
mod heads;
mod order;
mod perform;
mod proper_answer;
mod rules;
mod script;
mod socket;
mod streams;

pub use order::OrderError;
pub use rules::FaultRules;

pub(crate) use order::FaultOrder;
pub(crate) use perform::{ScriptBody, over_http1, over_http2};
pub(crate) use rules::RequestProperties;
pub(crate) use script::AnswerScript;
pub(crate) use socket::{ServerIo, SharedSocket};

use bytes::Bytes;
use canon::WireFormat;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use std::time::Duration;

use crate::server::{CallInfo, DemoBody, DemoUpstream, MeterTicket, model_of};
use proper_answer::{BodyPiece, ProperAnswer};

/// Header in which a request orders its fault.
const HEADER: &str = "x-simulate-fault";

/// Returns all faults as `(name, parameters, description)`.
pub fn faults() -> impl Iterator<Item = (&'static str, &'static [&'static str], &'static str)> {
    catalog::ALL.iter().map(|entry| (entry.name, entry.takes, entry.about))
}

/// Returns the body of `GET /faults`.
pub(crate) fn listed() -> Value {
    let list: Vec<Value> = faults()
        .map(|(name, takes, about)| json!({ "fault": name, "takes": takes, "about": about }))
        .collect();
    json!({ "faults": list })
}

impl FaultOrder {
    /// Returns the fault that a header orders.
    pub(crate) fn in_headers(headers: &HeaderMap) -> Option<Result<Self, OrderError>> {
        let value = headers.get(HEADER)?;
        Some(match value.to_str() {
            Ok(text) => Self::read(text),
            Err(_) => Err(OrderError(format!("`{HEADER}` is not text"))),
        })
    }

    /// Returns true if the fault happens before the request is read to its end.
    pub(crate) fn interrupts(&self) -> bool {
        matches!(self.name(), catalog::RESET_REQUEST | catalog::STALL_REQUEST)
    }

    /// Returns the script for a connection from which nothing was read.
    pub(crate) fn on_connection(&self) -> Result<AnswerScript, OrderError> {
        let nothing = ProperAnswer::new(200, String::new(), WireFormat::Chat, Vec::new());
        (self.entry.make)(self, nothing)
    }

    /// Returns the script that replaces the answer to a request, with its row in the meter.
    pub(crate) fn on_request(
        &self,
        upstream: &DemoUpstream,
        request: Request<Bytes>,
    ) -> Result<(AnswerScript, Option<MeterTicket>), OrderError> {
        let request = if self.name() == catalog::SWAP { swapped(request) } else { request };
        let (origin, _) = model_of(request.uri().path(), request.uri().query());
        let about = CallInfo { fault: Some(self.name()), tag: self.tag().map(str::to_owned) };
        let (head, body) = upstream.serve_as(request, about).into_parts();
        let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let (pieces, ticket) = body.into_pieces();
        let pieces =
            pieces.into_iter().map(|(bytes, tokens)| BodyPiece { bytes, tokens }).collect();
        let kind = kind.unwrap_or_default().to_owned();
        let good = ProperAnswer::new(head.status.as_u16(), kind, origin, pieces);
        Ok(((self.entry.make)(self, good)?, ticket))
    }
}

impl AnswerScript {
    /// Returns the time during which no connection is accepted.
    pub(crate) fn refuses(&self) -> Option<Duration> {
        self.refuse
    }
}

/// Returns the request with `stream` inverted.
fn swapped(request: Request<Bytes>) -> Request<Bytes> {
    const WHOLE: &str = ":generateContent";
    const STREAM: &str = ":streamGenerateContent";
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let other = if let Some(begin) = path.strip_suffix(WHOLE) {
        format!("{begin}{STREAM}?alt=sse").parse().ok()
    } else {
        path.strip_suffix(STREAM).and_then(|begin| format!("{begin}{WHOLE}").parse().ok())
    };
    if let Some(uri) = other {
        head.uri = uri;
        return Request::from_parts(head, body);
    }
    let body = match dialects::json::read_bytes::<Value>(&body) {
        Ok(Value::Object(mut fields)) => {
            let stream = fields.get("stream").and_then(Value::as_bool).unwrap_or(false);
            fields.remove("stream_options");
            fields.insert("stream".to_owned(), json!(!stream));
            Value::Object(fields).to_string().into()
        }
        Ok(_) | Err(_) => body,
    };
    Request::from_parts(head, body)
}

/// Returns the error response to an invalid order.
pub(crate) fn refused(
    why: &OrderError,
    upstream: &DemoUpstream,
    uri: &http::Uri,
) -> Response<DemoBody> {
    upstream.refuse_at(uri, &canon::ApiError::invalid("fault", why.to_string()))
}
