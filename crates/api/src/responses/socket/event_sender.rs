//! Sends the events of one response, which ends with exactly one last event.

use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use dialects::{SseDecoder, StreamFrame};
use http_body_util::BodyExt as _;
use relay::RequestId;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use tokio::sync::mpsc;
use transport::{ReplyHeaders, ServerReply};

use super::server_event::{failed_event, stream_field, with_fields};
use crate::json_object::parse_object;

/// Sends the events of one response.
pub(super) struct EventSender<'a> {
    stream_id: Option<&'a str>,
    events: &'a mpsc::Sender<Bytes>,
    /// The first event, which has the response as it began.
    first: Option<Bytes>,
    /// Number of events that were sent.
    sent: u64,
}

/// Error of a response that failed, as its `error` has it.
pub(super) struct ResponseFailure(Value);

impl<'a> EventSender<'a> {
    pub(super) fn new(stream_id: Option<&'a str>, events: &'a mpsc::Sender<Bytes>) -> Self {
        Self { stream_id, events, first: None, sent: 0 }
    }

    /// Sends the events of a reply. The first one carries the headers of the reply.
    ///
    /// A stream over HTTP that fails ends with `error` and `response.failed`. Neither is sent here, and
    /// the error is returned: a client that ends its turn at the first event would take the second for
    /// the next turn.
    pub(super) async fn forward(
        &mut self,
        reply: ServerReply,
        id: &RequestId,
    ) -> Result<Option<ResponseFailure>, ApiError> {
        let mut body = reply.body;
        let mut fields = stream_field(self.stream_id);
        fields.insert("headers".to_owned(), reply_headers(&reply.headers, id));
        let mut cutter = SseDecoder::default();
        let mut failure: Option<Value> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                ApiError::new(ErrorKind::Interrupted, "the answer was interrupted")
                    .with_log_note(error.to_string())
            })?;
            let Ok(data) = frame.into_data() else { continue };
            cutter.push(data);
            while let Some(event) = cutter.next_frame()? {
                // The end of some providers' streams is a word.
                if !event.data.trim_ascii_start().starts_with(b"{") {
                    continue;
                }
                if failure.is_some() || is_error(&event) {
                    failure = read_failure(&event.data).or(failure);
                    continue;
                }
                self.first.get_or_insert_with(|| event.data.clone());
                let event = with_fields(event.data, &fields);
                fields.shift_remove("headers");
                self.sent += 1;
                if self.events.send(event).await.is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(failure.map(ResponseFailure))
    }

    /// Sends the last event of a response that failed.
    pub(super) async fn fail(&self, failure: ResponseFailure) {
        let first = self.first.as_deref().unwrap_or_default();
        let event = failed_event(first, failure.0, self.sent);
        let _ = self.events.send(with_fields(event, &stream_field(self.stream_id))).await;
    }
}

#[derive(Deserialize)]
struct EventView<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

/// Returns true for an event that tells of an error.
fn is_error(event: &StreamFrame) -> bool {
    match &event.event {
        Some(name) => &**name == b"error",
        None => {
            let view = dialects::json::read_bytes::<EventView<'_>>(&event.data);
            view.is_ok_and(|view| view.r#type == "error")
        }
    }
}

/// Returns the error that an event of a failed stream tells: `error`, or better `response.failed`.
fn read_failure(data: &[u8]) -> Option<Value> {
    let event = parse_object(data);
    if let Some(response) = event.get("response") {
        return response.get("error").filter(|error| error.is_object()).cloned();
    }
    let message = event.get("message").or_else(|| event.get("error")?.get("message"));
    let message = message.and_then(Value::as_str).unwrap_or("the answer was interrupted");
    Some(json!({ "code": "server_error", "message": message }))
}

/// Returns the headers of a reply that tell about the call.
fn reply_headers(headers: &ReplyHeaders, id: &RequestId) -> Value {
    let mut shown = Map::new();
    shown.insert("x-request-id".to_owned(), id.0.as_ref().into());
    for (name, value) in headers.iter().filter(|(name, _)| name.starts_with("x-portunus-")) {
        shown.insert(name.to_owned(), String::from_utf8_lossy(value).into());
    }
    shown.into()
}
