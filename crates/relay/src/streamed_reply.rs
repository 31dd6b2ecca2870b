//! A streamed reply with backpressure: frames from the provider are metered, converted and
//! forwarded.
//!
//! All events that are available at one time leave as one chunk.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, Blame, ErrorKind, WireFormat};
use http_body::{Body as HttpBody, Frame};
use http_body_util::BodyExt as _;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;
use tokio_util::task::TaskTracker;
use transport::ClientResponse;

use super::Call;
use super::reply::{add_call_headers, before_first_byte, event_stream, unusable_answer};
use super::settle::BoxedAccount;
use super::stream_pipeline::{StreamPipeline, StreamProgress};
use crate::error_format::ErrorFormat;
use config::LiveLane;

/// Output size at which a chunk is sent even if more data is available.
const FLUSH_THRESHOLD_BYTES: usize = 64 << 10;
/// Interval of checks of key, deadlines and silence.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest silence towards the caller before a keep-alive is sent.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Longest silence after the finish reason. The reply then ends without the provider's end marker.
const END_MARKER_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the error event to leave before the body is aborted. An abort discards unsent bytes.
const ABORT_FLUSH_TIME: Duration = Duration::from_millis(50);
/// Longest wait for the first chunk before the response headers are sent.
const FIRST_CHUNK_WAIT: Duration = Duration::from_secs(10);

/// Starts a stream. An error before the first byte lets the next lane try.
pub(super) async fn begin_stream(
    call: &Arc<Call>,
    lane: &Arc<LiveLane>,
    pipeline: StreamPipeline,
    array: bool,
    answer: ClientResponse,
    account: BoxedAccount,
) -> Result<Response, (ApiError, BoxedAccount)> {
    // The headers are written first, because a stream that is complete in its first chunk is
    // settled there.
    let mut response = event_stream(Body::empty(), array);
    add_call_headers(&mut response, &account);
    let mut reply = StreamedReply {
        call: Arc::clone(call),
        lane: Arc::clone(lane),
        upstream: Some(answer.body),
        pipeline,
        account: Some(account),
        out: Vec::new(),
        tick: Box::pin(tokio::time::sleep(CHECK_INTERVAL)),
        last_check: Instant::now(),
        last_received: Instant::now(),
        last_sent: Instant::now(),
        must_abort: false,
    };
    if let Err(error) = reply.wait_first_chunk().await {
        return match reply.account.take() {
            Some(account) => Err((before_first_byte(error), account)),
            // A settled stream has no error left. If it had one, no other lane could be paid for.
            None => Ok(ErrorFormat::Dialect(call.dialect).to_response(&error, &call.id)),
        };
    }
    if let Some(account) = &mut reply.account {
        account.first_byte();
    }
    *response.body_mut() = Body::new(reply);
    Ok(response)
}

/// Body of a streamed reply.
struct StreamedReply {
    call: Arc<Call>,
    lane: Arc<LiveLane>,
    upstream: Option<transport::ClientBody>,
    pipeline: StreamPipeline,
    /// `None` once the stream is settled.
    account: Option<BoxedAccount>,
    out: Vec<u8>,
    tick: Pin<Box<Sleep>>,
    /// Time of the last check of key, deadlines and silence.
    last_check: Instant,
    last_received: Instant,
    last_sent: Instant,
    /// True if the body must end with an error, for clients that ignore an error event.
    must_abort: bool,
}

impl StreamedReply {
    /// Waits for the first chunk, so that a failure can still become an error status or a retry on
    /// another lane.
    async fn wait_first_chunk(&mut self) -> Result<(), ApiError> {
        let deadline = tokio::time::Instant::now() + FIRST_CHUNK_WAIT.min(self.lane.timeouts.gap);
        let mut empty = true;
        while self.out.is_empty() {
            let Some(upstream) = &mut self.upstream else { return Ok(()) };
            let progress = match tokio::time::timeout_at(deadline, upstream.frame()).await {
                Err(_) if FIRST_CHUNK_WAIT < self.lane.timeouts.gap => return Ok(()),
                Err(_) => StreamProgress::Broken(stalled_error()),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        empty &= data.is_empty();
                        match self.pipeline.push_bytes(data, &mut self.out) {
                            // `timeout_at` prefers a ready frame to the deadline, so frames without
                            // output would keep the caller waiting for ever.
                            StreamProgress::Ongoing
                                if self.out.is_empty()
                                    && tokio::time::Instant::now() >= deadline =>
                            {
                                if FIRST_CHUNK_WAIT < self.lane.timeouts.gap {
                                    return Ok(());
                                }
                                StreamProgress::Broken(stalled_error())
                            }
                            progress => progress,
                        }
                    }
                    Err(_) => continue,
                },
                Ok(Some(Err(e))) => self.pipeline.fail(broken_error(&e), &mut self.out),
                Ok(None) if empty => StreamProgress::Broken(unusable_answer(
                    "an empty body was returned instead of a stream",
                )),
                Ok(None) => self.pipeline.finish(&mut self.out),
            };
            match progress {
                StreamProgress::Ongoing => {}
                StreamProgress::Complete => self.complete(),
                StreamProgress::Broken(error) if self.out.is_empty() => {
                    self.upstream = None;
                    return Err(error);
                }
                // The result must not depend on how many frames arrive at once: output before the
                // failure is delivered and billed.
                StreamProgress::Broken(error) => {
                    if let Some(account) = &mut self.account {
                        account.first_byte();
                    }
                    self.abort(&error);
                }
            }
        }
        if let Some(account) = &mut self.account {
            account.record_usage(self.pipeline.meter());
        }
        Ok(())
    }

    /// Settles the call before the caller receives the last byte.
    fn complete(&mut self) {
        if let Some(mut account) = self.account.take() {
            account.record_reply(self.pipeline.finished(&self.call));
            account.close_done();
        }
        match self.upstream.take() {
            // Dropped, so that the provider notices and stops generating.
            Some(_) if self.pipeline.was_stopped() => {}
            Some(body) if body.is_end_stream() => {}
            Some(body) => drain_body(body, &self.call.engine.tasks),
            None => {}
        }
    }

    /// Ends a stream that failed after its first byte, with an error in the caller's format.
    fn abort(&mut self, error: &ApiError) {
        tracing::warn!(
            request.id = %self.call.id,
            lane.name = self.lane.name,
            "lane `{}` broke off mid-stream: {} [{}]",
            self.lane.name,
            error,
            error.log_note().unwrap_or_default()
        );
        self.upstream = None;
        if let Some(mut account) = self.account.take() {
            account.record_usage(self.pipeline.meter());
            account.close_broken_off(error);
        }
        if self.call.target.json_array {
            let (_, body) = self.call.dialect.write_error(error, &self.call.id);
            self.out.extend_from_slice(b",\r\n");
            self.out.extend_from_slice(&body);
        } else {
            let last = self.pipeline.abort_event(error);
            let last = last.unwrap_or_else(|| self.call.dialect.write_abort(error, &self.call.id));
            self.out.extend_from_slice(&last);
        }
        if self.call.dialect.origin() == WireFormat::Native {
            self.must_abort = true;
            self.tick.as_mut().reset(tokio::time::Instant::now() + ABORT_FLUSH_TIME);
        }
    }

    fn apply_progress(&mut self, progress: StreamProgress) {
        match progress {
            StreamProgress::Ongoing => self.enforce_hold(),
            StreamProgress::Complete => self.complete(),
            StreamProgress::Broken(error) => self.abort(&error),
        }
    }

    /// Ends the reply as if it had reached its output limit, once it exceeds the reserved money.
    /// The provider ignored the limit it was given.
    fn enforce_hold(&mut self) {
        let meter = self.pipeline.meter();
        let Some(account) = self.account.as_mut().filter(|account| account.exceeds_hold(meter))
        else {
            return;
        };
        let usage = account.truncate_at_hold(meter);
        self.pipeline.truncate(&usage, &mut self.out);
        self.complete();
    }

    /// Checks the key, the deadlines and the silence towards the caller, and writes a checkpoint.
    /// Runs once a second, also if the provider always has data ready.
    fn check(&mut self) {
        if self.upstream.is_none() {
            return;
        }
        self.last_check = Instant::now();
        self.tick.as_mut().reset(tokio::time::Instant::now() + CHECK_INTERVAL);
        let now = self.call.engine.clock.now();
        let key = self.call.engine.keys.get(&self.call.key.record.id);
        if !key.is_some_and(|key| key.is_live(now)) {
            let error = ApiError::new(ErrorKind::Interrupted, "the API key was revoked");
            return self.abort(&error.with_blame(Blame::Caller).without_retry());
        }
        if self.call.engine.must_end_calls() {
            let error =
                ApiError::new(ErrorKind::Interrupted, "the gateway is stopping; please retry");
            return self.abort(&error.with_blame(Blame::Gateway));
        }
        if self.last_received.elapsed() >= END_MARKER_TIMEOUT
            && let StreamProgress::Complete = self.pipeline.finish_early(&mut self.out)
        {
            return self.complete();
        }
        if self.last_received.elapsed() > self.lane.timeouts.gap {
            return self.abort(&stalled_error());
        }
        if self.call.arrived.elapsed() > self.lane.timeouts.total {
            let error = ApiError::new(ErrorKind::Timeout, "the answer took longer than is allowed");
            return self.abort(&error);
        }
        if self.last_sent.elapsed() > KEEP_ALIVE_INTERVAL {
            self.out.extend_from_slice(self.call.dialect.keep_alive());
        }
        if let Some(account) = &mut self.account {
            account.record_usage(self.pipeline.meter());
            account.checkpoint();
        }
    }

    fn emit(&mut self) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        self.last_sent = Instant::now();
        let bytes = Bytes::from(std::mem::take(&mut self.out));
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }
}

impl HttpBody for StreamedReply {
    type Data = Bytes;
    type Error = AbortedBody;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AbortedBody>>> {
        let reply = &mut *self;
        loop {
            let Some(upstream) = &mut reply.upstream else {
                if !reply.out.is_empty() {
                    return reply.emit();
                }
                if !reply.must_abort {
                    return Poll::Ready(None);
                }
                return reply.tick.as_mut().poll(cx).map(|()| Some(Err(AbortedBody)));
            };
            if reply.out.len() > FLUSH_THRESHOLD_BYTES {
                return reply.emit();
            }
            match Pin::new(upstream).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        reply.last_received = Instant::now();
                        let progress = reply.pipeline.push_bytes(data, &mut reply.out);
                        reply.apply_progress(progress);
                        // The timer is polled only while the provider is silent.
                        if reply.last_received.duration_since(reply.last_check) >= CHECK_INTERVAL {
                            reply.check();
                        }
                    }
                }
                Poll::Ready(Some(Err(e))) => {
                    let progress = reply.pipeline.fail(broken_error(&e), &mut reply.out);
                    reply.apply_progress(progress);
                    reply.upstream = None;
                }
                Poll::Ready(None) => {
                    let progress = reply.pipeline.finish(&mut reply.out);
                    // No more bytes follow, whatever the progress is.
                    reply.apply_progress(progress);
                    reply.upstream = None;
                }
                Poll::Pending if !reply.out.is_empty() => return reply.emit(),
                Poll::Pending => {
                    if reply.tick.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    reply.check();
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.upstream.is_none() && self.out.is_empty() && !self.must_abort
    }
}

impl Drop for StreamedReply {
    fn drop(&mut self) {
        // The caller left. The output so far is billed.
        if let Some(account) = &mut self.account {
            account.record_usage(self.pipeline.meter());
        }
    }
}

/// Error that ends a body abnormally, so that no client takes it for complete.
#[derive(Debug)]
struct AbortedBody;

impl std::fmt::Display for AbortedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the stream was aborted")
    }
}

impl std::error::Error for AbortedBody {}

/// Reads the few bytes after the end of a reply, so that the connection can be reused.
fn drain_body(mut body: transport::ClientBody, tasks: &TaskTracker) {
    tasks.spawn(async move {
        let reading = async { while let Some(Ok(_)) = body.frame().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(2), reading).await;
    });
}

fn stalled_error() -> ApiError {
    ApiError::new(ErrorKind::Timeout, "the provider's answer stalled")
        .with_log_note("silence in a stream")
}

fn broken_error(error: &transport::BodyError) -> ApiError {
    ApiError::new(ErrorKind::Interrupted, "the provider's answer broke off")
        .with_log_note(error.to_string())
}
