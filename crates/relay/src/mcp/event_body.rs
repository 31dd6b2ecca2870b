//! Body of events that work writes while the caller reads. The work is polled by the reader, so it ends when
//! the caller leaves.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc;

use crate::streamed_reply::{ABORT_FLUSH_TIME, AbortedBody, KEEP_ALIVE_INTERVAL};

/// Pieces that wait for the caller.
const WAITING_PIECES: usize = 8;

/// Takes the events of the work.
#[derive(Clone)]
pub(super) struct EventSink {
    sender: mpsc::Sender<Result<Bytes, AbortedBody>>,
    /// Bytes that tell the caller that the answer goes on.
    keep_alive: &'static [u8],
}

impl EventSink {
    /// Sends what was written, and waits while the caller does not read.
    pub(super) async fn send(&self, out: &mut Vec<u8>) {
        if !out.is_empty() {
            // The reader polls this work, so there is one.
            let _ = self.sender.send(Ok(Bytes::from(std::mem::take(out)))).await;
        }
    }

    /// Ends the body with an error, for clients that ignore an error event. What was sent leaves before.
    pub(super) async fn abort(&self) {
        tokio::time::sleep(ABORT_FLUSH_TIME).await;
        let _ = self.sender.send(Err(AbortedBody)).await;
    }

    /// Runs silent work, and tells the caller from time to time that the answer goes on.
    pub(super) async fn keep_alive<T>(&self, work: impl Future<Output = T>) -> T {
        self.keep_alive_every(KEEP_ALIVE_INTERVAL, work).await
    }

    async fn keep_alive_every<T>(&self, pause: Duration, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            match tokio::time::timeout(pause, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.send(&mut self.keep_alive.to_vec()).await,
            }
        }
    }
}

/// Returns a body of what the work sends.
pub(super) fn event_body<F>(keep_alive: &'static [u8], work: impl FnOnce(EventSink) -> F) -> Body
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, mut pieces) = mpsc::channel(WAITING_PIECES);
    let mut work = Some(Box::pin(work(EventSink { sender, keep_alive })));
    Body::from_stream(stream::poll_fn(move |context| {
        if let Some(running) = &mut work
            && running.as_mut().poll(context).is_ready()
        {
            work = None;
        }
        match pieces.poll_recv(context) {
            Poll::Ready(piece) => Poll::Ready(piece),
            Poll::Pending => Poll::Pending,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    #[tokio::test]
    async fn silent_work_keeps_its_caller() {
        let body = event_body(b": keep-alive\n\n", async |sink: EventSink| {
            let pause = Duration::from_millis(20);
            sink.keep_alive_every(pause, tokio::time::sleep(pause * 5)).await;
            sink.send(&mut b"data: end\n\n".to_vec()).await;
        });
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = std::str::from_utf8(&bytes).unwrap();
        assert!(text.starts_with(": keep-alive\n\n") && text.ends_with("data: end\n\n"), "{text}");
    }
}
