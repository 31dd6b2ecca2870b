//! Faults on demand: what a provider can do wrong, ordered per request by a header, by words in the
//! prompt, or by the rules of a file.
//!
//! `order.rs` reads an order, `catalog.rs` lists the faults, the files beside it spoil a proper
//! answer into a `script.rs`, and `perform.rs` carries that out on the `socket.rs`.

mod answers;
mod catalog;
mod connection;
mod good;
mod heads;
mod order;
mod perform;
mod rules;
mod script;
mod socket;
mod streams;

pub use order::BadOrder;
pub use rules::Rules;

pub(crate) use order::Order;
pub(crate) use perform::{Steps, over_http1, over_http2};
pub(crate) use rules::Seen;
pub(crate) use script::Script;
pub(crate) use socket::{Line, Wire};

use bytes::Bytes;
use canon::Origin;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use serde_json::{Value, json};
use std::time::Duration;

use crate::server::{About, Body, Ticket, Upstream, model_of};
use good::{Good, Piece};

/// The header by which a request orders its fault.
const HEADER: &str = "x-simulate-fault";

/// Every fault as `(name, parameters, what it does)`.
pub fn faults() -> impl Iterator<Item = (&'static str, &'static [&'static str], &'static str)> {
    catalog::ALL.iter().map(|entry| (entry.name, entry.takes, entry.about))
}

/// The faults as `GET /faults` tells them.
pub(crate) fn listed() -> Value {
    let list: Vec<Value> = faults()
        .map(|(name, takes, about)| json!({ "fault": name, "takes": takes, "about": about }))
        .collect();
    json!({ "faults": list })
}

impl Order {
    /// The fault a header orders.
    pub(crate) fn in_headers(headers: &HeaderMap) -> Option<Result<Self, BadOrder>> {
        let value = headers.get(HEADER)?;
        Some(match value.to_str() {
            Ok(text) => Self::read(text),
            Err(_) => Err(BadOrder(format!("`{HEADER}` is not text"))),
        })
    }

    /// Whether the fault happens before the request is read to its end.
    pub(crate) fn interrupts(&self) -> bool {
        matches!(self.name(), catalog::RESET_REQUEST | catalog::STALL_REQUEST)
    }

    /// What to do to a connection nothing was read from.
    pub(crate) fn on_connection(&self) -> Result<Script, BadOrder> {
        let nothing = Good::new(200, String::new(), Origin::Chat, Vec::new());
        (self.entry.make)(self, nothing)
    }

    /// What to do instead of answering that request, and its row in the meter.
    pub(crate) fn on_request(
        &self,
        upstream: &Upstream,
        request: Request<Bytes>,
    ) -> Result<(Script, Option<Ticket>), BadOrder> {
        let request = if self.name() == catalog::SWAP { swapped(request) } else { request };
        let (origin, _) = model_of(request.uri().path(), request.uri().query());
        let about = About { fault: Some(self.name()), tag: self.tag().map(str::to_owned) };
        let (head, body) = upstream.serve_as(request, about).into_parts();
        let kind = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let (pieces, ticket) = body.into_pieces();
        let pieces = pieces.into_iter().map(|(bytes, tokens)| Piece { bytes, tokens }).collect();
        let kind = kind.unwrap_or_default().to_owned();
        let good = Good::new(head.status.as_u16(), kind, origin, pieces);
        Ok(((self.entry.make)(self, good)?, ticket))
    }
}

impl Script {
    /// For how long no connection is to be taken.
    pub(crate) fn refuses(&self) -> Option<Duration> {
        self.refuse
    }
}

/// The same request for a stream where it asked for a whole answer, and the other way round.
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
    let body = match serde_json::from_slice::<Value>(&body) {
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

/// A refusal to carry out an order, as the answer to its request.
pub(crate) fn refused(why: &BadOrder, upstream: &Upstream, uri: &http::Uri) -> Response<Body> {
    upstream.refuse_at(uri, &canon::Fault::invalid("fault", why.to_string()))
}
