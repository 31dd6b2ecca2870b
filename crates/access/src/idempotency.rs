//! `Idempotency-Key`: a repeated call gets the stored reply instead of a second run
//! (<https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/>).
//!
//! The store decides which node runs a call. A successful reply is stored and replayed, streams
//! byte for byte. A failed call stores nothing, so that a retry runs. Requests without the header
//! skip this module.
//!
//! The claim of a dead node is taken over by observation and not by time of day: a node that sees a
//! claim without any renewal for [`CLAIM_TIME`] of its own steady clock takes it over.

use aws_lc_rs::digest;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::{Body as HttpBody, Frame};
use ledger::CallOutcome;
use ledger::{Clock, OpenCalls};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use store::{
    CallClaim, CallName, ClaimResult, ClaimSight, ObjectOwner, Store, StoreError, StoredReply,
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use transport::{HeaderBlock, ServerBody, ServerRequest, visible_text};

/// Name of the request header.
pub const HEADER: &str = "idempotency-key";
const REPLAYED_HEADER: HeaderName = HeaderName::from_static("idempotent-replayed");
const MAX_NAME_BYTES: usize = 255;
/// Bytes of a body that are hashed before other tasks get their turn: a few milliseconds.
const HASHED_AT_ONCE_BYTES: usize = 1 << 20;
/// A stored reply is kept for 25 hours.
const REPLY_LIFETIME: Micros = Micros::from_hours(24 + 1);
/// Time without a renewal after which a claim counts as abandoned, and the interval of renewals.
const CLAIM_TIME: Micros = Micros::from_secs(15);
const CLAIM_RENEWAL_INTERVAL: Duration = Duration::from_secs(4);
/// Pause that is recommended to a caller whose request is still running.
const RUNNING_RETRY_PAUSE: Duration = Duration::from_secs(2);
/// Number of claims of others that are remembered. A forgotten one is taken over later.
const MAX_SEEN_CLAIMS: usize = 10_000;
/// Larger replies are not stored. A retry of that call fails instead of running twice.
const MAX_STORED_BYTES: usize = 4 << 20;

/// Idempotency keys of all API keys on all nodes.
pub struct IdempotencyKeys {
    store: Store,
    open_calls: Arc<OpenCalls>,
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    /// Running claims of others, each with the steady time at which it was first seen like this.
    seen_claims: Mutex<HashMap<CallName, (ClaimSight, Micros)>>,
}

impl IdempotencyKeys {
    /// Creates the key service over `store`. Claims are renewed by tasks of `tasks`.
    pub fn new(
        store: Store,
        open_calls: Arc<OpenCalls>,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self { store, open_calls, clock, tasks, seen_claims: Mutex::default() })
    }

    /// Runs a call unless it has already run or is running under the same key.
    pub async fn run_once<F: Future<Output = Result<Response, ApiError>>>(
        self: &Arc<Self>,
        owner: &ObjectOwner,
        request_id: &str,
        body_limit: usize,
        request: ServerRequest,
        run: impl FnOnce(ServerRequest) -> F,
    ) -> Result<Response, ApiError> {
        let name = call_name(request.headers())?;
        let (request, hash) = read_and_hash(request, body_limit).await?;
        let claim = CallClaim {
            call: CallName::new(owner, &name),
            hash,
            owner: request_id.to_owned(),
            lifetime: REPLY_LIFETIME,
        };
        match self.store.claim(&claim).await.map_err(store_error)? {
            ClaimResult::Ours => {}
            ClaimResult::Running(seen) => {
                if !self.is_abandoned(&claim.call, &seen)
                    || !self.store.take_over_claim(&claim, &seen).await.map_err(store_error)?
                {
                    return Err(still_running_error());
                }
            }
            ClaimResult::Over(stored) => return replay(stored),
            ClaimResult::Different => {
                return Err(ApiError::invalid(
                    "Idempotency-Key",
                    "this `Idempotency-Key` was used for a different request",
                )
                .with_code("idempotency_key_reused"));
            }
        }
        let CallClaim { call, owner, .. } = claim;
        let guard = ClaimGuard::new(Arc::clone(self), call, owner);
        let response = run(request).await?;
        guard.store_reply(response).await
    }

    /// Deletes calls that expired: complete ones by the clock of the database, and running ones of nodes
    /// that are dead, which takes two sweeps.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.store.sweep_claims().await?;
        for (call, seen) in self.store.expired_claims().await? {
            if self.is_abandoned(&call, &seen) {
                self.store.drop_claim(&call, &seen).await?;
            }
        }
        Ok(())
    }

    /// Notes a running claim. Returns true if it has not changed for so long that its node is dead.
    fn is_abandoned(&self, call: &CallName, seen: &ClaimSight) -> bool {
        let now = self.clock.steady();
        let mut claims = self.seen_claims.lock();
        match claims.get(call) {
            Some((before, since)) if before == seen => {
                let is_abandoned = now - *since >= CLAIM_TIME;
                if is_abandoned {
                    claims.remove(call);
                }
                return is_abandoned;
            }
            Some(_) | None => {}
        }
        if claims.len() >= MAX_SEEN_CLAIMS {
            claims.retain(|_, (_, since)| now - *since < 2 * CLAIM_TIME);
        }
        if claims.len() < MAX_SEEN_CLAIMS {
            claims.insert(call.clone(), (seen.clone(), now));
        }
        false
    }
}

/// Returns the caller's idempotency key.
fn call_name(headers: &HeaderBlock) -> Result<String, ApiError> {
    let invalid = |message: &'static str| ApiError::invalid("Idempotency-Key", message);
    let mut values = headers.get_all(HEADER);
    let value = values.next().and_then(visible_text).unwrap_or_default();
    if value.is_empty() || value.len() > MAX_NAME_BYTES {
        return Err(invalid("`Idempotency-Key` must be a text of 1 to 255 visible characters"));
    }
    if values.next().is_some() {
        return Err(invalid("two `Idempotency-Key` headers were sent; send one"));
    }
    Ok(value.to_owned())
}

/// Reads the body and returns the request with a hash of path, query and body. A different hash
/// under the same key is an error.
async fn read_and_hash(
    mut request: ServerRequest,
    limit: usize,
) -> Result<(ServerRequest, Vec<u8>), ApiError> {
    let body = transport::read_whole(std::mem::take(&mut request.body), limit).await?;
    let mut hash = digest::Context::new(&digest::SHA256);
    hash.update(request.path().as_bytes());
    // `key=` is skipped: it carries the API key, which changes with a rotation.
    let query = request.query().split('&');
    for pair in query.filter(|pair| !pair.starts_with("key=")) {
        hash.update(b"&");
        hash.update(pair.as_bytes());
    }
    hash.update(b"\0");
    // Other tasks of this thread get their turn, and a caller who leaves ends the work.
    for (index, piece) in body.chunks(HASHED_AT_ONCE_BYTES).enumerate() {
        if index > 0 {
            tokio::task::yield_now().await;
        }
        hash.update(piece);
    }
    let hash = hash.finish().as_ref().to_vec();
    request.body = ServerBody::Whole(body);
    Ok((request, hash))
}

/// Claim of this request on its idempotency key. Dropping an unfinished claim releases it, so that
/// a retry can run.
struct ClaimGuard {
    keys: Arc<IdempotencyKeys>,
    call: CallName,
    owner: String,
    /// Stops the renewal task when dropped.
    _renewal: DropGuard,
    is_finished: bool,
}

impl ClaimGuard {
    fn new(keys: Arc<IdempotencyKeys>, call: CallName, owner: String) -> Self {
        let done = CancellationToken::new();
        keys.tasks.spawn(renew_claim(Arc::clone(&keys), call.clone(), owner.clone(), done.clone()));
        Self { keys, call, owner, _renewal: done.drop_guard(), is_finished: false }
    }

    /// Stores a reply before the caller receives its last byte.
    async fn store_reply(mut self, response: Response) -> Result<Response, ApiError> {
        if !response.status().is_success() {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let headers = stored_headers(&head.headers);
        let streamed = head
            .headers
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
            || head.headers.contains_key("x-accel-buffering");
        if streamed {
            let recorder = ReplyRecorder {
                body,
                recorded: Some(Vec::new()),
                headers,
                state: RecorderState::Recording(Some(self)),
            };
            return Ok(Response::from_parts(head, Body::new(recorder)));
        }
        let body = axum::body::to_bytes(body, usize::MAX)
            .await
            .map_err(|e| ApiError::internal(format!("a reply could not be read back: {e}")))?;
        let stored = (body.len() <= MAX_STORED_BYTES).then(|| body.to_vec());
        self.finish_claim(StoredReply { status: head.status.as_u16(), headers, body: stored })
            .await;
        Ok(Response::from_parts(head, Body::from(body)))
    }

    /// Stores a stream that was settled as complete. Other streams release the claim.
    async fn stream_ended(mut self, headers: String, body: Option<Vec<u8>>) {
        let settled = match self.keys.open_calls.find_unposted(&self.owner) {
            Some(entry) => Some(entry),
            None => self.keys.store.entry(&self.owner).await.ok().flatten(),
        };
        if settled.is_some_and(|entry| entry.outcome == CallOutcome::Done) {
            self.finish_claim(StoredReply { status: 200, headers, body }).await;
        }
    }

    async fn finish_claim(&mut self, reply: StoredReply) {
        match self.keys.store.finish_claim(&self.call, &self.owner, &reply).await {
            Ok(true) => self.is_finished = true,
            Ok(false) => tracing::warn!(
                request.id = self.owner,
                "a call lost its idempotency key because its claim was taken over"
            ),
            Err(e) => tracing::error!(
                request.id = self.owner,
                "a reply could not be stored under its idempotency key: {e}"
            ),
        }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let (keys, call) = (Arc::clone(&self.keys), self.call.clone());
        let owner = std::mem::take(&mut self.owner);
        self.keys.tasks.spawn(async move {
            // A claim that cannot be released is taken over later.
            if let Err(e) = keys.store.release_claim(&call, &owner).await {
                tracing::warn!("the claim on an idempotency key could not be released: {e}");
            }
        });
    }
}

/// Renews a claim until its call has ended.
async fn renew_claim(
    keys: Arc<IdempotencyKeys>,
    call: CallName,
    owner: String,
    done: CancellationToken,
) {
    loop {
        tokio::select! {
            () = done.cancelled() => return,
            () = tokio::time::sleep(CLAIM_RENEWAL_INTERVAL) => {}
        }
        match keys.store.renew_claim(&call, &owner).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(e) => tracing::warn!("the claim on an idempotency key could not be renewed: {e}"),
        }
    }
}

/// Body of a streamed reply that records the bytes passing through.
struct ReplyRecorder {
    body: Body,
    /// Bytes so far; `None` once they exceed `MAX_STORED_BYTES`.
    recorded: Option<Vec<u8>>,
    headers: String,
    state: RecorderState,
}

enum RecorderState {
    Recording(Option<ClaimGuard>),
    /// Holds back the last frame until the reply is stored.
    Storing(Pin<Box<dyn Future<Output = ()> + Send>>, Option<Frame<Bytes>>),
    Done,
}

impl HttpBody for ReplyRecorder {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let recorder = &mut *self;
        loop {
            match &mut recorder.state {
                RecorderState::Done => return Poll::Ready(None),
                RecorderState::Storing(keeping, last) => {
                    ready!(keeping.as_mut().poll(cx));
                    let last = last.take();
                    recorder.state = RecorderState::Done;
                    return Poll::Ready(last.map(Ok));
                }
                RecorderState::Recording(guard) => {
                    let frame = match ready!(Pin::new(&mut recorder.body).poll_frame(cx)) {
                        Some(Err(e)) => {
                            // A stream that failed is not stored.
                            *guard = None;
                            return Poll::Ready(Some(Err(e)));
                        }
                        frame => frame.and_then(Result::ok),
                    };
                    let data = frame.as_ref().and_then(Frame::data_ref);
                    if let (Some(seen), Some(data)) = (&mut recorder.recorded, data) {
                        if seen.len() + data.len() > MAX_STORED_BYTES {
                            recorder.recorded = None;
                        } else {
                            seen.extend_from_slice(data);
                        }
                    }
                    if frame.is_some() && !recorder.body.is_end_stream() {
                        return Poll::Ready(frame.map(Ok));
                    }
                    let Some(guard) = guard.take() else {
                        recorder.state = RecorderState::Done;
                        return Poll::Ready(frame.map(Ok));
                    };
                    let headers = std::mem::take(&mut recorder.headers);
                    let ended = guard.stream_ended(headers, recorder.recorded.take());
                    recorder.state = RecorderState::Storing(Box::pin(ended), frame);
                }
            }
        }
    }
}

/// Serialises the headers to replay. Rate-limit headers belong to the request and are left out.
fn stored_headers(headers: &HeaderMap) -> String {
    let stored: BTreeMap<&str, &str> = headers
        .iter()
        .filter(|(name, _)| !name.as_str().starts_with("x-ratelimit"))
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    serde_json::to_string(&stored).unwrap_or_default()
}

fn replay(stored: StoredReply) -> Result<Response, ApiError> {
    let StoredReply { status, headers, body } = stored;
    let Some(body) = body else {
        return Err(ApiError::new(
            ErrorKind::Conflict,
            "the request with this `Idempotency-Key` was answered and charged, but its answer was \
             too large to be kept; use another key to run it again",
        )
        .with_code("idempotent_answer_not_kept")
        .without_retry());
    };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(status)
        .map_err(|e| ApiError::internal(format!("a stored reply has no status: {e}")))?;
    let headers: BTreeMap<String, String> = serde_json::from_str(&headers)
        .map_err(|e| ApiError::internal(format!("a stored reply has no headers: {e}")))?;
    for (name, value) in headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    Ok(response)
}

fn still_running_error() -> ApiError {
    ApiError::new(ErrorKind::Conflict, "the request with this `Idempotency-Key` is still running")
        .with_retry_after(RUNNING_RETRY_PAUSE)
}

fn store_error(error: StoreError) -> ApiError {
    if let StoreError::Sealing(_) = &error {
        let message = "the answer under this `Idempotency-Key` cannot be decrypted; ask the operator \
                       of the gateway, or use another key to run the request again";
        return ApiError::new(ErrorKind::Unavailable, message)
            .without_retry()
            .with_log_note(error.to_string());
    }
    let message = "idempotency keys cannot be checked at the moment, retry shortly";
    ApiError::new(ErrorKind::Overloaded, message).with_log_note(error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use ledger::{MemoryDisk, TestClock};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use store::{Account, AccountRole};
    use tokio::sync::Semaphore;

    async fn keys(clock: &Arc<TestClock>) -> (Arc<IdempotencyKeys>, ObjectOwner) {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let account = Account {
            id: "a".to_owned(),
            username: "ada".to_owned(),
            email: None,
            role: AccountRole::Member,
            password_hash: None,
            disabled: false,
            created: Micros::new(1),
            changed: Micros::new(1),
        };
        store.add_account(&account).await.unwrap();
        let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
        let disk = Arc::new(MemoryDisk::default());
        let book = OpenCalls::open(Arc::clone(&clock), disk).unwrap().book;
        let keys = IdempotencyKeys::new(store, book, clock, TaskTracker::new());
        (keys, ObjectOwner::account("a"))
    }

    fn request() -> ServerRequest {
        let request = http::Request::builder().uri("/v1/x").header(HEADER, "n");
        ServerRequest::from(request.body(Body::from("body")).unwrap())
    }

    #[tokio::test]
    async fn no_step_of_the_time_of_day_runs_a_call_twice() {
        let clock = Arc::new(TestClock::at(Micros::from_days(20_000)));
        let (keys, owner) = keys(&clock).await;
        let (gate, runs) = (Semaphore::new(0), AtomicUsize::new(0));
        let once = |id: &'static str, waits: bool| {
            let (gate, runs) = (&gate, &runs);
            keys.run_once(&owner, id, 1_000, request(), move |_| async move {
                runs.fetch_add(1, Ordering::Relaxed);
                if waits {
                    gate.acquire().await.unwrap().forget();
                }
                Ok(Response::new(Body::from("answer")))
            })
        };
        let second = async {
            while runs.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            for hours in [0, 1, 30, -90] {
                clock.jump(Micros::from_hours(hours) + Micros::from_secs(20));
                let refused = once("second", false).await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Conflict, "{hours}");
            }
            gate.add_permits(1);
        };
        let (first, ()) = tokio::join!(once("first", true), second);
        assert_eq!(first.unwrap().status(), StatusCode::OK);
        assert_eq!(once("third", false).await.unwrap().headers()[REPLAYED_HEADER], "true");
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_claim_that_nobody_renews_is_taken_over_after_a_while() {
        let clock = Arc::new(TestClock::at(Micros::from_days(20_000)));
        let (keys, owner) = keys(&clock).await;
        let (_, hash) = read_and_hash(request(), 1_000).await.unwrap();
        let call = CallName::new(&owner, "n");
        let dead = CallClaim {
            call: call.clone(),
            hash,
            owner: "dead".to_owned(),
            lifetime: REPLY_LIFETIME,
        };
        assert_eq!(keys.store.claim(&dead).await.unwrap(), ClaimResult::Ours);
        let once = || {
            keys.run_once(&owner, "next", 1_000, request(), |_| async {
                Ok(Response::new(Body::from("answer")))
            })
        };
        assert!(once().await.is_err());
        clock.pass(CLAIM_TIME - Micros::new(1));
        assert!(once().await.is_err());
        // It lives after all.
        assert!(keys.store.renew_claim(&call, "dead").await.unwrap());
        clock.pass(Micros::new(1));
        assert!(once().await.is_err());
        clock.pass(CLAIM_TIME);
        assert_eq!(once().await.unwrap().status(), StatusCode::OK);
    }
}
