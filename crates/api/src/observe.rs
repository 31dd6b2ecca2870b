//! An answer that is looked at on its way to the caller: whole, or piece by piece.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::ApiError;
use dialects::{SseDecoder, StreamFrame};
use http::header::CONTENT_TYPE;
use http_body::Body as HttpBody;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The largest whole answer that is looked at.
const MAX_WHOLE_BYTES: usize = 64 << 20;

/// Looks at an answer: a whole one is handed to `whole`, the pieces of a streamed one to `on_event`,
/// each before the caller has it. An error answer is not looked at.
pub(super) async fn observe_response<T: Send + 'static>(
    response: Response,
    mut watcher: T,
    whole: impl FnOnce(&mut T, &[u8]),
    piece: fn(&mut T, &StreamFrame),
) -> Result<Response, ApiError> {
    let (head, body) = response.into_parts();
    let streamed = head
        .headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    if streamed {
        let body = ObservedBody {
            body,
            cutter: SseDecoder::default(),
            observer: watcher,
            on_event: piece,
        };
        return Ok(Response::from_parts(head, Body::new(body)));
    }
    let body = axum::body::to_bytes(body, MAX_WHOLE_BYTES)
        .await
        .map_err(|e| ApiError::internal(format!("an answer could not be read back: {e}")))?;
    if head.status.is_success() {
        whole(&mut watcher, &body);
    }
    Ok(Response::from_parts(head, Body::from(body)))
}

struct ObservedBody<T> {
    body: Body,
    cutter: SseDecoder,
    observer: T,
    on_event: fn(&mut T, &StreamFrame),
}

// Nothing in it is pinned but the body, which is pinned in a box of its own.
impl<T> Unpin for ObservedBody<T> {}

impl<T> HttpBody for ObservedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, axum::Error>>> {
        let watched = &mut *self;
        let polled = Pin::new(&mut watched.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            watched.cutter.push(data.clone());
            while let Ok(Some(frame)) = watched.cutter.next_frame() {
                (watched.on_event)(&mut watched.observer, &frame);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
