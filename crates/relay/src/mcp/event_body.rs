//! Body of events that work writes while the caller reads. The work is polled by the reader, so it ends when
//! the caller leaves.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use std::convert::Infallible;
use std::task::Poll;
use tokio::sync::mpsc;

/// Pieces that wait for the caller.
const WAITING_PIECES: usize = 8;

/// Takes the events of the work.
#[derive(Clone)]
pub(super) struct EventSink(mpsc::Sender<Bytes>);

impl EventSink {
    /// Sends what was written, and waits while the caller does not read.
    pub(super) async fn send(&self, out: &mut Vec<u8>) {
        if !out.is_empty() {
            // The reader polls this work, so there is one.
            let _ = self.0.send(Bytes::from(std::mem::take(out))).await;
        }
    }
}

/// Returns a body of what the work sends.
pub(super) fn event_body<F>(work: impl FnOnce(EventSink) -> F) -> Body
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, mut pieces) = mpsc::channel(WAITING_PIECES);
    let mut work = Some(Box::pin(work(EventSink(sender))));
    Body::from_stream(stream::poll_fn(move |context| {
        if let Some(running) = &mut work
            && running.as_mut().poll(context).is_ready()
        {
            work = None;
        }
        match pieces.poll_recv(context) {
            Poll::Ready(piece) => Poll::Ready(piece.map(Ok::<_, Infallible>)),
            Poll::Pending => Poll::Pending,
        }
    }))
}
