//! Bodies of requests: they must keep arriving, and are read within a limit.

use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::LengthLimitError;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

use super::h1::DeadlineTimer;
use super::limits::HttpLimits;
use super::server_request::ServerBody;

/// A request body that must keep arriving.
///
/// The reader waits at most `body_time` for the bytes of that time at `body_rate`, whatever came
/// before. Only the time that the reader waits counts.
pub(super) struct PacedBody<B> {
    body: B,
    /// Returns the bytes that have arrived and that the body holds back.
    held: fn(&B) -> u64,
    limits: HttpLimits,
    forwarded: u64,
    /// Time until which the reader waits, and the bytes that must have arrived by then.
    due: Option<(Instant, u64)>,
    timer: DeadlineTimer,
}

impl<B> PacedBody<B> {
    pub(super) fn new(body: B, held: fn(&B) -> u64, limits: &HttpLimits) -> Self {
        let (limits, timer) = (*limits, DeadlineTimer::default());
        Self { body, held, limits, forwarded: 0, due: None, timer }
    }

    /// Begins to wait for the next bytes; `None` if the time is no limit.
    fn wait(&mut self, arrived: u64) -> Option<(Instant, u64)> {
        let HttpLimits { body_time, body_rate, .. } = self.limits;
        let until = Instant::now().checked_add(body_time)?;
        let time = u64::try_from(body_time.as_millis()).unwrap_or(u64::MAX);
        let bytes = (body_rate.saturating_mul(time) / 1_000).max(1);
        self.due = Some((until, arrived.saturating_add(bytes)));
        self.due
    }
}

impl<B> HttpBody for PacedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            let bytes = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => 0,
            };
            self.forwarded = self.forwarded.saturating_add(bytes as u64);
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let arrived = self.forwarded.saturating_add((self.held)(&self.body));
        let due = match self.due {
            Some((_, bytes)) if arrived >= bytes => self.wait(arrived),
            Some(due) => Some(due),
            None => self.wait(arrived),
        };
        let Some((until, _)) = due else { return Poll::Pending };
        ready!(self.timer.poll(cx, until));
        let late = io::Error::new(io::ErrorKind::TimedOut, "the body did not arrive in time");
        Poll::Ready(Some(Err(late.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a whole body of at most `limit` bytes.
///
/// # Errors
/// 413 if it is larger, 408 if it stalls, 400 if it breaks off.
pub async fn read_whole(body: ServerBody, limit: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body.into_body(), limit).await.map_err(|error| body_error(&error, limit))
}

/// Returns the error of a body that could not be read.
pub fn body_error(error: &axum::Error, limit: usize) -> ApiError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ApiError>() {
            return error.clone();
        }
        if error.is::<LengthLimitError>() {
            return too_large(limit);
        }
        if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::TimedOut) {
            return ApiError::new(ErrorKind::RequestTimeout, "the body did not arrive in time");
        }
        cause = error.source();
    }
    ApiError::invalid("", "the body broke off").with_log_note(error.to_string())
}

/// Returns the error of a body beyond the limit.
pub fn too_large(limit: usize) -> ApiError {
    let message = format!("the body is larger than {limit} bytes, the limit here");
    ApiError::new(ErrorKind::BodyTooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    /// A body that holds all its bytes back.
    struct HeldBody(Arc<AtomicU64>);

    impl HttpBody for HeldBody {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Pending
        }
    }

    const LIMITS: HttpLimits = HttpLimits {
        connections: 1,
        connections_per_address: 1,
        headers: 1,
        header_bytes: 1,
        header_time: Duration::MAX,
        body_time: Duration::from_secs(30),
        body_rate: 1_000,
        idle: Duration::MAX,
        stall: Duration::MAX,
        streams: 1,
        resets: 1,
        control_frames: 1,
    };

    #[tokio::test]
    async fn bytes_that_a_body_holds_back_have_arrived() {
        let arrived = Arc::new(AtomicU64::new(0));
        let held = |body: &HeldBody| body.0.load(Ordering::Relaxed);
        let mut body = PacedBody::new(HeldBody(Arc::clone(&arrived)), held, &LIMITS);
        // 30,000 bytes are due in 30 seconds; then as many more, whatever came before.
        for (bytes, due) in
            [(0, 30_000), (29_999, 30_000), (30_000, 60_000), (9_000_000, 9_030_000)]
        {
            arrived.store(bytes, Ordering::Relaxed);
            assert!(body.frame().now_or_never().is_none());
            assert_eq!(body.due.map(|(_, bytes)| bytes), Some(due), "{bytes} bytes");
        }
    }
}
