//! Keeps an answer on its way to the caller, whole or streamed.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::Fault;
use dialects::Cutter;
use http::header::CONTENT_TYPE;
use http_body::{Body as HttpBody, Frame};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use store::Kept;

use super::conversation::Conversation;
use crate::app::App;
use crate::flow::Call;

/// The largest whole answer that is kept.
const LARGEST: usize = 64 << 20;

/// What is needed to keep an answer once it is there.
pub(super) struct Keeper {
    app: Arc<App>,
    account: String,
    items: Vec<Value>,
}

impl Keeper {
    pub(super) fn new(call: &Call, conversation: Conversation) -> Self {
        Self {
            app: Arc::clone(&call.app),
            account: call.key.record.account_id.clone(),
            items: conversation.items,
        }
    }

    /// Keeps a response object.
    pub(super) fn keep(&self, reply: &str) {
        #[derive(Deserialize)]
        struct Named {
            id: String,
        }
        let Ok(Named { id }) = serde_json::from_str(reply) else { return };
        let now = self.app.clock.now();
        let span = i64::try_from(self.app.config().keep_answers.as_micros()).unwrap_or(i64::MAX);
        self.app.memory.put(Kept {
            id,
            account_id: self.account.clone(),
            request: json!({ "input": self.items }).to_string(),
            reply: reply.to_owned(),
            created: now,
            expires: now.saturating_add(span),
        });
    }
}

/// Keeps the answer in a response before the caller has its last byte.
pub(super) async fn remember(keeper: Keeper, response: Response) -> Result<Response, Fault> {
    let (head, body) = response.into_parts();
    let streamed = head
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if streamed {
        let body = Remembering { body, cutter: Cutter::default(), keeper: Some(keeper) };
        return Ok(Response::from_parts(head, Body::new(body)));
    }
    let body = axum::body::to_bytes(body, LARGEST)
        .await
        .map_err(|e| Fault::internal(format!("an answer could not be read back: {e}")))?;
    if head.status.is_success() {
        keeper.keep(&String::from_utf8_lossy(&body));
    }
    Ok(Response::from_parts(head, Body::from(body)))
}

/// A stream that is watched for its last event.
struct Remembering {
    body: Body,
    cutter: Cutter,
    keeper: Option<Keeper>,
}

impl HttpBody for Remembering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.cutter.push(data.clone());
            while let Ok(Some(frame)) = self.cutter.next_frame() {
                if let Some(reply) = last_word(&frame.data)
                    && let Some(keeper) = self.keeper.take()
                {
                    keeper.keep(reply);
                }
            }
        }
        polled
    }
}

/// The response object of an event that ends a stream.
pub(super) fn last_word(data: &[u8]) -> Option<&str> {
    #[derive(Deserialize)]
    struct Ending<'a> {
        #[serde(borrow)]
        r#type: std::borrow::Cow<'a, str>,
        #[serde(borrow, default)]
        response: Option<&'a RawValue>,
    }
    // Most events are pieces of text; only few begin like an end.
    let start = data.get(..64).unwrap_or(data);
    memchr::memmem::find(start, b"\"response.")?;
    let event: Ending<'_> = serde_json::from_slice(data).ok()?;
    match &*event.r#type {
        "response.completed" | "response.incomplete" | "response.failed" => {
            event.response.map(RawValue::get)
        }
        _ => None,
    }
}
