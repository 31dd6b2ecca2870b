//! Start of a streamed reply, and its body.
//!
//! The body shares the stream with a task that checks it every second. A transport does not poll a
//! body while a write to its caller waits, so a caller that reads slowly would otherwise switch off
//! the deadlines, the revocation of its key and the checkpoints.

use axum::body::Body;
use bytes::Bytes;
use canon::ApiError;
use http_body::{Body as HttpBody, Frame};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use transport::{ClientResponse, ServerBody, ServerReply};

use super::Call;
use super::reply::{add_call_headers, before_first_byte, event_reply};
use super::settle::BoxedAccount;
use super::stream_pipeline::StreamPipeline;
use super::streamed_reply::{AbortedBody, CHECK_INTERVAL, StreamedReply};
use crate::error_format::ErrorFormat;
use config::LiveLane;

/// Time for which a stream is read on after its caller left: until the end of a reply that is about
/// to end, and until the counts of one that has ended.
const END_WAIT: Duration = Duration::from_millis(500);
const COUNTS_WAIT: Duration = Duration::from_secs(2);
/// Bytes that are read on at most: a provider is let go that has much more to say.
const MAX_READ_ON_BYTES: usize = 256 << 10;

/// Starts a stream. An error before the first byte lets the next lane try.
pub(super) async fn begin_stream(
    call: &Arc<Call>,
    lane: &Arc<LiveLane>,
    pipeline: StreamPipeline,
    array: bool,
    answer: ClientResponse,
    account: BoxedAccount,
) -> Result<ServerReply, (ApiError, BoxedAccount)> {
    // The headers are written first, because a stream that is complete in its first chunk is
    // settled there.
    let mut started = event_reply(ServerBody::Empty, array);
    add_call_headers(&mut started.headers, &account);
    let mut reply = StreamedReply::new(call, lane, pipeline, answer.body, account);
    if let Err(error) = reply.wait_first_chunk().await {
        return match reply.take_account() {
            Some(account) => Err((before_first_byte(error), account)),
            // A settled stream has no error left. If it had one, no other lane could be paid for.
            None => Ok(ErrorFormat::Dialect(call.dialect).to_response(&error, &call.id).into()),
        };
    }
    reply.first_byte();
    reply.take_burst().await;
    let body = Body::new(StreamedBody::new(reply, &call.engine.tasks));
    started.body = ServerBody::Stream(body);
    Ok(started)
}

/// Body of a streamed reply.
struct StreamedBody {
    reply: Arc<Mutex<StreamedReply>>,
    tasks: TaskTracker,
    /// Task of the checks; `None` if the reply is already complete.
    checks: Option<AbortHandle>,
}

impl StreamedBody {
    fn new(reply: StreamedReply, tasks: &TaskTracker) -> Self {
        let is_open = reply.is_open();
        let reply = Arc::new(Mutex::new(reply));
        let checks =
            is_open.then(|| tasks.spawn(run_checks(Arc::downgrade(&reply))).abort_handle());
        Self { reply, tasks: tasks.clone(), checks }
    }
}

/// Checks a stream every second until it ends.
async fn run_checks(reply: Weak<Mutex<StreamedReply>>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Some(reply) = reply.upgrade() else { return };
        let mut reply = reply.lock();
        reply.check();
        if !reply.is_open() {
            return;
        }
    }
}

impl HttpBody for StreamedBody {
    type Data = Bytes;
    type Error = AbortedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        self.reply.lock().poll_chunk(cx).map(|next| next.map(|chunk| chunk.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.reply.lock().is_finished()
    }
}

impl Drop for StreamedBody {
    fn drop(&mut self) {
        // A sleeping task would delay the end of the process.
        if let Some(checks) = &self.checks {
            checks.abort();
        }
        let mut reply = self.reply.lock();
        if reply.awaits_counts() {
            // Nothing else writes one while the stream is read on.
            reply.checkpoint();
            self.tasks.spawn(read_counts(Arc::clone(&self.reply)));
        }
    }
}

/// Reads on for the usage of a reply whose caller left, so that leaving before it comes saves
/// nothing. Other output is discarded.
async fn read_counts(reply: Arc<Mutex<StreamedReply>>) {
    let mut read_on = 0;
    let mut reading = std::pin::pin!(poll_fn(|cx| {
        loop {
            match reply.lock().poll_chunk(cx) {
                Poll::Ready(Some(Ok(chunk))) if read_on < MAX_READ_ON_BYTES => {
                    read_on += chunk.len();
                }
                Poll::Ready(Some(Ok(_))) => return Poll::Ready(()),
                Poll::Ready(Some(Err(AbortedBody)) | None) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }));
    let left = Instant::now();
    if tokio::time::timeout(END_WAIT, &mut reading).await.is_err() && reply.lock().has_ended() {
        reply.lock().checkpoint();
        let _ = tokio::time::timeout_at(left + COUNTS_WAIT, reading).await;
    }
}
