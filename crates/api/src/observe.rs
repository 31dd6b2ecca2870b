//! Observation of an answer on its way to the caller, whole or event by event.

use axum::body::Body;
use bytes::Bytes;
use canon::ApiError;
use dialects::{SseDecoder, StreamFrame};
use http_body::Body as HttpBody;
use relay::HeavyWork;
use std::pin::Pin;
use std::task::{Context, Poll};
use transport::{ServerBody, ServerReply};

/// Maximum size of an observed whole answer.
const MAX_WHOLE_BYTES: usize = 64 << 20;

/// Hands a whole answer to `whole`, or the events of a streamed one to `on_event`, each before the
/// caller receives it. Error answers are not observed.
pub(super) async fn observe_response<T: Send + 'static>(
    work: &HeavyWork,
    response: ServerReply,
    mut observer: T,
    whole: impl FnOnce(&mut T, &[u8]),
    on_event: fn(&mut T, &StreamFrame),
) -> Result<ServerReply, ApiError> {
    let mut response = response;
    let body = std::mem::take(&mut response.body);
    let streamed = response
        .headers
        .get("content-type")
        .is_some_and(|kind| kind.starts_with(b"text/event-stream"));
    if streamed {
        let body = ObservedBody { body, cutter: SseDecoder::default(), observer, on_event };
        response.body = ServerBody::Stream(Body::new(body));
        return Ok(response);
    }
    let body = axum::body::to_bytes(body.into_body(), MAX_WHOLE_BYTES)
        .await
        .map_err(|e| ApiError::internal(format!("an answer could not be read back: {e}")))?;
    if response.status.is_success() {
        work.permit(body.len()).await.run(|| whole(&mut observer, &body)).await;
    }
    response.body = ServerBody::Whole(body);
    Ok(response)
}

struct ObservedBody<T> {
    body: ServerBody,
    cutter: SseDecoder,
    observer: T,
    on_event: fn(&mut T, &StreamFrame),
}

// The observer is never pinned, and `Body` is `Unpin`.
impl<T> Unpin for ObservedBody<T> {}

impl<T> HttpBody for ObservedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            this.cutter.push(data.clone());
            while let Ok(Some(frame)) = this.cutter.next_frame() {
                (this.on_event)(&mut this.observer, &frame);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
