//! Bodies of requests: they must keep arriving, and are read within a limit.

use axum::body::Body;
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

/// A request body that must keep arriving.
///
/// The reader waits at most `body_time` for the bytes of that time at `body_rate`, whatever came
/// before. Only the time that the reader waits counts.
pub(super) struct PacedBody<B> {
    body: B,
    limits: HttpLimits,
    /// Bytes since the reader began to wait.
    received: u64,
    /// Time until which the reader waits.
    deadline: Option<Instant>,
    timer: DeadlineTimer,
}

impl<B> PacedBody<B> {
    pub(super) fn new(body: B, limits: &HttpLimits) -> Self {
        Self { body, limits: *limits, received: 0, deadline: None, timer: DeadlineTimer::default() }
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
        let Self { body, limits, received, deadline, timer } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let bytes = match &frame {
                Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => 0,
            };
            *received = received.saturating_add(bytes as u64);
            let due = limits.body_rate.saturating_mul(limits.body_time.as_secs().max(1));
            if *received >= due {
                (*received, *deadline) = (0, None);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        // A time that cannot be represented is no limit.
        let Some(until) = deadline.or_else(|| Instant::now().checked_add(limits.body_time)) else {
            return Poll::Pending;
        };
        *deadline = Some(until);
        ready!(timer.poll(cx, until));
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
pub async fn read_whole(body: Body, limit: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, limit).await.map_err(|error| body_error(&error, limit))
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
