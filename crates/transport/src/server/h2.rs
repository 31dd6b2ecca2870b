//! HTTP/2 server on hyper, with two checks that hyper lacks: callers that reset too many requests
//! (CVE-2023-44487, "Rapid Reset") and callers that do not read their response.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use futures_util::task::AtomicWaker;
use http::header::{EXPECT, HOST};
use http::{HeaderMap, Method, Request, Uri};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::connections::{Connection, ConnectionUse, Connections, ShutdownPhase};
use super::h1::{self, ByteStream, DeadlineTimer};
use super::h2_frames::PrefixedStream;
use super::handler::RequestHandler;
use super::limits::HttpLimits;
use super::request_body::PacedBody;
use super::server_request::ServerRequest;

/// Interval of pings on an idle connection.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffered bytes of a response that wait for the caller's window.
const MAX_SEND_BUFFER_BYTES: usize = 64 << 10;
/// Resets forgiven per second.
const RESETS_FORGIVEN_PER_SECOND: f64 = 10.0;

/// Serves a connection until it ends.
pub(super) async fn serve<S: ByteStream, H: RequestHandler>(
    stream: PrefixedStream<S>,
    handler: H,
    connection: Connection,
    limits: HttpLimits,
    tasks: TaskTracker,
) {
    let mut server = http2::Builder::new(StreamExecutor { stall: limits.stall, tasks });
    server
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(limits.resets as usize)
        .max_send_buf_size(MAX_SEND_BUFFER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    let streams = Arc::new(StreamCounter::new(&connection, &limits));
    let handler = Arc::new(handler);
    let connections = connection.connections();
    let counted = Arc::clone(&streams);
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, connections) = (Arc::clone(&handler), Arc::clone(&connections));
        let running = StreamGuard::new(&counted);
        async move {
            Ok::<_, Infallible>(answer(&*handler, &connections, request, running, &limits).await)
        }
    });
    let mut serving = pin!(server.serve_connection(TokioIo::new(stream), service));
    let mut timer = DeadlineTimer::default();
    let mut closing = false;
    poll_fn(|cx| {
        connection.register_waker(cx);
        if streams.is_flooded() {
            tracing::debug!("closing a connection that reset too many requests");
            // One more poll, so that GOAWAY is sent.
            serving.as_mut().graceful_shutdown();
            let _ = serving.as_mut().poll(cx);
            return Poll::Ready(());
        }
        if connection.is_replaced() {
            return Poll::Ready(());
        }
        match connection.phase() {
            ShutdownPhase::Serve | ShutdownPhase::HandOver | ShutdownPhase::Linger => {}
            ShutdownPhase::Drain | ShutdownPhase::End if closing => {}
            ShutdownPhase::Drain | ShutdownPhase::End => {
                closing = true;
                serving.as_mut().graceful_shutdown();
            }
            ShutdownPhase::Cut => return Poll::Ready(()),
        }
        if let Poll::Ready(outcome) = serving.as_mut().poll(cx) {
            if let Err(e) = outcome {
                tracing::debug!("a connection failed: {e}");
            }
            return Poll::Ready(());
        }
        let idle_until = streams.idle_until(limits.idle);
        connection.set_use(streams.connection_use());
        if !closing
            && let Some(deadline) = idle_until
            && timer.poll(cx, deadline).is_ready()
        {
            closing = true;
            serving.as_mut().graceful_shutdown();
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

async fn answer<H: RequestHandler>(
    handler: &H,
    connections: &Connections,
    request: Request<Incoming>,
    running: StreamGuard,
    limits: &HttpLimits,
) -> Response<TrackedBody> {
    let request = request.map(|body| Body::new(PacedBody::new(body, |_| 0, limits)));
    let checked = check_target(request.method(), request.uri())
        .and_then(|()| check_headers(request.headers(), limits));
    let request = ServerRequest::from(request);
    let context = handler.context(request.head());
    let reply = match checked {
        Err(error) => handler.refuse(&error, request.path()),
        Ok(()) => tokio::select! {
            biased;
            reply = handler.answer(request, &context) => reply,
            () = connections.wait_for_end() => handler.stopped(&context),
        },
    };
    reply.into_response().map(|body| TrackedBody { body, running: running.mark_answered() })
}

/// Refuses a target that HTTP/1 refuses: everything but a path, and `*` for `OPTIONS` (RFC 9113, section
/// 8.3.1). Code behind a listener appends the path to its own address.
fn check_target(method: &Method, target: &Uri) -> Result<(), ApiError> {
    let path = target.path();
    if *method == Method::CONNECT {
        return Err(ApiError::new(ErrorKind::MethodNotAllowed, "CONNECT is not served here"));
    }
    if path.starts_with('/') || (path == "*" && *method == Method::OPTIONS) {
        return Ok(());
    }
    Err(ApiError::invalid("", "the target of the request is not a path"))
}

/// Applies the rules of HTTP/1 that hyper does not enforce on HTTP/2.
fn check_headers(headers: &HeaderMap, limits: &HttpLimits) -> Result<(), ApiError> {
    if headers.len() > limits.headers {
        let message = format!("a request may have {} headers at most", limits.headers);
        return Err(ApiError::new(ErrorKind::HeadersTooLarge, message));
    }
    let mut hosts = headers.get_all(HOST).iter();
    if hosts.next().is_some_and(|host| !h1::is_host(host.as_bytes())) || hosts.next().is_some() {
        return Err(ApiError::invalid("host", "`Host` is not the name of a host"));
    }
    let expects = headers.get(EXPECT);
    if expects.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        let message = "`Expect` can only be `100-continue`";
        return Err(ApiError::new(ErrorKind::ExpectationFailed, message).with_param("expect"));
    }
    Ok(())
}

/// Streams of one connection.
struct StreamCounter {
    running: AtomicUsize,
    /// Streams of `running` on which a handler works.
    unanswered: AtomicUsize,
    /// End of the last stream, and the count of resets after forgiveness.
    state: Mutex<(Instant, f64)>,
    max_resets: f64,
    flooded: AtomicUsize,
    waker: Arc<AtomicWaker>,
}

impl StreamCounter {
    fn new(connection: &Connection, limits: &HttpLimits) -> Self {
        Self {
            running: AtomicUsize::new(0),
            unanswered: AtomicUsize::new(0),
            state: Mutex::new((Instant::now(), 0.0)),
            max_resets: f64::from(limits.resets),
            flooded: AtomicUsize::new(0),
            waker: connection.waker(),
        }
    }

    fn is_flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed) > 0
    }

    fn connection_use(&self) -> ConnectionUse {
        if self.unanswered.load(Ordering::Acquire) > 0 {
            ConnectionUse::Busy
        } else if self.running.load(Ordering::Acquire) > 0 {
            ConnectionUse::Answered
        } else {
            ConnectionUse::Waiting
        }
    }

    fn idle_until(&self, idle: Duration) -> Option<Instant> {
        (self.running.load(Ordering::Acquire) == 0).then(|| self.state.lock().0 + idle)
    }

    fn finish_stream(&self, was_reset: bool) {
        let mut state = self.state.lock();
        let now = Instant::now();
        let (last, count) = *state;
        let count =
            (count - now.duration_since(last).as_secs_f64() * RESETS_FORGIVEN_PER_SECOND).max(0.0);
        let count = count + f64::from(u8::from(was_reset));
        *state = (now, count);
        drop(state);
        if count > self.max_resets {
            self.flooded.store(1, Ordering::Relaxed);
        }
        // The end of the last stream starts the idle time.
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 || count > self.max_resets {
            self.waker.wake();
        }
    }
}

/// One stream, from its request to the end of its response.
struct StreamGuard {
    streams: Arc<StreamCounter>,
    answered: bool,
}

impl StreamGuard {
    fn new(streams: &Arc<StreamCounter>) -> Self {
        streams.running.fetch_add(1, Ordering::AcqRel);
        streams.unanswered.fetch_add(1, Ordering::AcqRel);
        Self { streams: Arc::clone(streams), answered: false }
    }

    /// Notes that the handler has answered. The connection is polled afterwards, because it sends the head.
    fn mark_answered(mut self) -> Self {
        self.answered = true;
        self.streams.unanswered.fetch_sub(1, Ordering::AcqRel);
        self
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        if !self.answered {
            self.streams.unanswered.fetch_sub(1, Ordering::AcqRel);
        }
        self.streams.finish_stream(!self.answered);
    }
}

tokio::task_local! {
    /// Twice the number of frames that the response of this task has produced, plus one while the
    /// last frame waits for the caller's window.
    static FRAMES: Arc<AtomicU64>;
}

/// Executor for the streams of a connection.
#[derive(Clone)]
struct StreamExecutor {
    stall: Duration,
    tasks: TaskTracker,
}

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        self.tasks.spawn(run_until_stalled(stream, self.stall));
    }
}

/// Runs a stream until it ends or its caller reads nothing for too long. Dropping the future resets
/// the stream.
async fn run_until_stalled<F: Future>(stream: F, stall: Duration) {
    let frames = Arc::new(AtomicU64::new(0));
    let mut stream = pin!(FRAMES.scope(Arc::clone(&frames), stream));
    let mut timer = DeadlineTimer::default();
    let mut stalled: Option<(u64, Instant)> = None;
    poll_fn(|cx| {
        if stream.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let frames = frames.load(Ordering::Relaxed);
        if frames & 1 == 0 {
            stalled = None;
            return Poll::Pending;
        }
        let deadline = match stalled {
            Some((same, deadline)) if same == frames => deadline,
            _ => Instant::now() + stall,
        };
        stalled = Some((frames, deadline));
        timer.poll(cx, deadline)
    })
    .await;
}

/// Response body that records if it waits for the provider or for the caller.
struct TrackedBody {
    body: Body,
    #[expect(dead_code, reason = "dropped with the body, which ends the stream")]
    running: StreamGuard,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let has_frame = matches!(polled, Poll::Ready(Some(Ok(_))));
        let _ = FRAMES.try_with(|frames| {
            let pieces = (frames.load(Ordering::Relaxed) >> 1) + u64::from(has_frame);
            frames.store(pieces << 1 | u64::from(has_frame), Ordering::Relaxed);
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
