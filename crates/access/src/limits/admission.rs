//! Admission to the gateway's own resources: memory for request bodies, and requests that cost no
//! money. Both are counted on this node alone.

use axum::body::Body;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use config::GateLimits;
use http_body::{Body as HttpBody, Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use store::RateLimits;
use transport::{ServerBody, ServerRequest};

use super::rate_window::RateWindow;
use super::{RateLimiter, RatePermit, limit_error};

/// `Retry-After` for full memory. The time until another request ends is unknown.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Resources that an admitted request holds until it ends.
#[derive(Clone, Default)]
pub struct Admission {
    /// Permit within the rate limits of the key and its account; `None` without limits.
    pub rate: Option<Arc<RatePermit>>,
    /// Memory of the request body; `None` without a body.
    pub buffer: Option<Arc<BufferPermit>>,
    /// Place among the requests of the caller that cost nothing; `None` for other requests.
    pub free: Option<Arc<FreePermit>>,
}

/// Use of the gateway by one caller.
#[derive(Debug, Default)]
pub struct CallerUse {
    free: RateWindow,
    buffered: AtomicU64,
}

impl RateLimiter {
    /// Admits a request that costs nothing, or returns an error with the time to retry after.
    pub fn admit_free(
        &self,
        caller: &Arc<CallerUse>,
        gate: &GateLimits,
    ) -> Result<Arc<FreePermit>, ApiError> {
        let limits = RateLimits {
            rpm: Some(gate.free_rpm),
            tpm: None,
            concurrency: Some(gate.free_running),
        };
        if caller.free.limits() != Some(limits) {
            caller.free.set_limits(limits);
        }
        let admitted = caller.free.admit(self.clock.now(), 1, false);
        admitted.map_err(|exceeded| limit_error(exceeded, "caller"))?;
        Ok(Arc::new(FreePermit(Arc::clone(caller))))
    }

    /// Reserves memory for the body of a request: its declared length, or else what arrives.
    pub fn admit_body(
        &self,
        caller: &Arc<CallerUse>,
        gate: &GateLimits,
        request: &mut ServerRequest,
    ) -> Result<Option<Arc<BufferPermit>>, ApiError> {
        if request.body.is_end_stream() {
            return Ok(None);
        }
        let declared = request.length();
        if declared.is_some_and(|length| length > gate.body) {
            return Err(transport::too_large(usize::try_from(gate.body).unwrap_or(usize::MAX)));
        }
        let permit = Arc::new(self.buffer_permit(caller, gate));
        permit.grow(declared.unwrap_or(0))?;
        if declared.is_none() {
            let body = std::mem::take(&mut request.body);
            let permit = Arc::clone(&permit);
            request.body = ServerBody::Stream(Body::new(CountedBody { body, permit }));
        }
        Ok(Some(permit))
    }

    /// Returns a permit that holds no memory yet.
    pub fn buffer_permit(&self, caller: &Arc<CallerUse>, gate: &GateLimits) -> BufferPermit {
        BufferPermit {
            caller: Arc::clone(caller),
            all: Arc::clone(&self.buffered),
            limits: *gate,
            held: AtomicU64::new(0),
        }
    }

    /// Bytes of request bodies in memory.
    pub fn buffered_bytes(&self) -> u64 {
        self.buffered.load(Ordering::Relaxed)
    }
}

/// Memory of one request body. Dropping it frees the memory.
pub struct BufferPermit {
    caller: Arc<CallerUse>,
    all: Arc<AtomicU64>,
    limits: GateLimits,
    held: AtomicU64,
}

impl BufferPermit {
    /// Reserves more bytes, or returns an error with the time to retry after.
    pub fn grow(&self, bytes: u64) -> Result<(), ApiError> {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let own = self.caller.buffered.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let all = self.all.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let GateLimits { buffered, buffered_per_key, .. } = self.limits;
        let error = if own > buffered_per_key {
            let message = format!(
                "the requests of this API key that are being read or worked on may have \
                 {buffered_per_key} bytes together; retry when one has ended"
            );
            ApiError::new(ErrorKind::RateLimited, message)
        } else if all > buffered {
            ApiError::new(ErrorKind::Overloaded, "the gateway has no memory for another body now")
        } else {
            return Ok(());
        };
        Err(error.with_retry_after(FULL_RETRY_AFTER))
    }

    /// Returns the reserved bytes.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns bytes that were reserved.
    pub fn shrink(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.caller.buffered.fetch_sub(bytes, Ordering::Relaxed);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for BufferPermit {
    fn drop(&mut self) {
        let held = *self.held.get_mut();
        self.caller.buffered.fetch_sub(held, Ordering::Relaxed);
        self.all.fetch_sub(held, Ordering::Relaxed);
    }
}

/// Place of a request that costs nothing. Dropping it frees the place.
pub struct FreePermit(Arc<CallerUse>);

impl Drop for FreePermit {
    fn drop(&mut self) {
        self.0.free.release();
    }
}

/// A body of unknown length, whose bytes are reserved as they arrive.
struct CountedBody {
    body: ServerBody,
    permit: Arc<BufferPermit>,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
        Poll::Ready(Some(match self.permit.grow(bytes) {
            Ok(()) => Ok(frame),
            Err(error) => Err(axum::Error::new(error)),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use ledger::SystemClock;

    const GATE: GateLimits = GateLimits {
        body: 60,
        buffered: 100,
        buffered_per_key: 60,
        free_rpm: 3,
        free_running: 2,
        public_rpm: 1,
        public_running: 1,
    };

    fn limiter() -> RateLimiter {
        RateLimiter::new(Arc::new(SystemClock), None)
    }

    fn upload(length: u64) -> ServerRequest {
        let request = http::Request::builder().header(http::header::CONTENT_LENGTH, length);
        ServerRequest::from(request.body(Body::from("x")).unwrap())
    }

    #[test]
    fn bodies_share_the_memory_of_their_key_and_of_the_process() {
        let limiter = limiter();
        let [a, b, c] = <[Arc<CallerUse>; 3]>::default();
        let admit = |key, length: u64| limiter.admit_body(key, &GATE, &mut upload(length));
        let first = admit(&a, 50).unwrap();
        let refused = admit(&a, 20).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::RateLimited);
        assert_eq!(admit(&a, 61).err().unwrap().kind(), ErrorKind::BodyTooLarge);
        let second = admit(&b, 50).unwrap();
        let refused = admit(&c, 1).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Overloaded);
        assert_eq!(limiter.buffered_bytes(), 100);
        drop((first, second));
        assert_eq!(limiter.buffered_bytes(), 0);
        assert!(admit(&a, 20).is_ok());
    }

    #[tokio::test]
    async fn a_body_of_unknown_length_is_counted_as_it_arrives() {
        let limiter = limiter();
        let pieces = [Ok::<_, std::io::Error>(Bytes::from(vec![0; 40])), Ok(vec![0; 40].into())];
        let body = Body::from_stream(futures_util::stream::iter(pieces));
        let mut request = ServerRequest::from(http::Request::new(body));
        let permit = limiter.admit_body(&Arc::default(), &GATE, &mut request).unwrap();
        let mut body = request.body;
        assert!(body.frame().await.unwrap().is_ok());
        assert_eq!(limiter.buffered_bytes(), 40);
        let error = body.frame().await.unwrap().unwrap_err();
        assert_eq!(transport::body_error(&error, 1_000).kind(), ErrorKind::RateLimited);
        drop((body, permit));
        assert_eq!(limiter.buffered_bytes(), 0);
    }

    #[test]
    fn requests_that_cost_nothing_have_a_rate_and_a_number_at_once() {
        let limiter = limiter();
        let [a, b] = <[Arc<CallerUse>; 2]>::default();
        let admit = || limiter.admit_free(&a, &GATE);
        let running = [admit().unwrap(), admit().unwrap()];
        assert!(admit().is_err(), "two run already");
        drop(running);
        assert!(admit().is_ok());
        let error = admit().err().unwrap();
        assert_eq!(error.kind(), ErrorKind::RateLimited);
        assert!(error.retry_after().is_some());
        assert!(limiter.admit_free(&b, &GATE).is_ok());
    }
}
