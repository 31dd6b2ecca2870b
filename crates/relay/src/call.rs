//! One client call, everything explicit.

use access::keys::ApiKey;
use access::limits::RatePermit;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, ErrorKind};
use config::Config;
use dialects::json::BodyEdit;
use dialects::{Dialect, RequestTarget};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};
use telemetry::TraceContext;
use transport::{BodyDecoder, ContentCoding, DecodeError, SUPPORTED_CODINGS};
use upstream::{InFlightSlot, Timeouts};

use super::call_options::CallOptions;
use crate::engine::Engine;
use crate::request_id::RequestId;

/// Refuse what cannot be carried.
const STRICT_HEADER: HeaderName = HeaderName::from_static("x-portunus-strict");
/// Tell what would be sent, and send nothing.
const DRY_RUN_HEADER: HeaderName = HeaderName::from_static("x-portunus-dry-run");
const TRACEPARENT_HEADER: HeaderName = HeaderName::from_static("traceparent");
/// How many bytes a second a body has to bring, once its patience is used up.
const MIN_BODY_BYTES_PER_SECOND: u64 = 1 << 10;

/// Size above which a body is parsed where other tasks of the runtime need not wait for it.
const LARGE_BODY_BYTES: usize = 256 << 10;

/// A request for a call, whose key is known and whose body is still to be read.
pub struct CallRequest {
    /// Everything a call uses.
    pub engine: Arc<Engine>,
    /// The caller's key.
    pub key: Arc<ApiKey>,
    /// The id of the request.
    pub id: RequestId,
    /// Its permit within the rate limits of its key and account, where there are any.
    pub rate_permit: Option<Arc<RatePermit>>,
    /// The request itself.
    pub request: Request<Body>,
}

/// A call: who asks, in which format, for what.
pub struct Call {
    pub engine: Arc<Engine>,
    /// The configuration in force when the call arrived; it stays in force for this call.
    pub config: Arc<Config>,
    pub key: Arc<ApiKey>,
    pub id: Arc<str>,
    /// Its place within the limits of its key and account, where there are any.
    pub rate_permit: Option<Arc<RatePermit>>,
    pub dialect: &'static dyn Dialect,
    pub target: RequestTarget,
    pub body: Bytes,
    /// Changes to the body that only a provider of the caller's own format needs.
    pub edits: Vec<BodyEdit>,
    /// Whether the answer must be written by us even where the formats agree.
    pub rewrite_reply: bool,
    /// Where a provider's word on how far it has come is noted, for whoever asks meanwhile.
    pub progress: Option<Arc<AtomicU8>>,
    /// The caller's headers that a provider of its own format is given.
    pub forwarded_headers: HeaderMap,
    /// Whether a translation that loses anything is refused.
    pub strict: bool,
    /// Whether only to tell what would be sent.
    pub dry_run: bool,
    /// Its place in a trace, where there is one.
    pub trace: Option<TraceContext>,
    /// What other tracers on the way have to say, handed on unread.
    pub trace_state: Option<HeaderValue>,
    /// What the headers ask of the gateway itself.
    pub options: CallOptions,
    pub arrived: Instant,
    /// Its place among the running calls, free again when it ends.
    _in_flight_slot: InFlightSlot,
}

impl Call {
    /// Reads a request's body within the limits.
    pub async fn read(
        asked: CallRequest,
        dialect: &'static dyn Dialect,
        target: RequestTarget,
    ) -> Result<Self, ApiError> {
        Self::read_as(asked, dialect, target, BodyKind::Json).await
    }

    /// Reads a request's body of that kind within the limits.
    pub async fn read_as(
        asked: CallRequest,
        dialect: &'static dyn Dialect,
        target: RequestTarget,
        takes: BodyKind,
    ) -> Result<Self, ApiError> {
        let CallRequest { engine, key, id, rate_permit: pass, request } = asked;
        let arrived = Instant::now();
        let config = engine.config();
        let place = engine.in_flight.admit(config.max_running_calls)?;
        let wishes = CallOptions::from_headers(request.headers(), &engine.instance)?;
        let strict = is_true(request.headers(), &STRICT_HEADER);
        let dry_run = is_true(request.headers(), &DRY_RUN_HEADER);
        let handed_on = collect_forwarded_headers(dialect, request.headers());
        let trace = start_trace(&engine, request.headers());
        let trace_state =
            trace.is_some().then(|| request.headers().get("tracestate").cloned()).flatten();
        let body =
            read_body(request, takes, config.max_body_bytes, config.http_limits.body_time).await?;
        Ok(Self {
            engine,
            config,
            key,
            id: id.0,
            rate_permit: pass,
            dialect,
            target,
            body,
            edits: Vec::new(),
            rewrite_reply: false,
            progress: None,
            forwarded_headers: handed_on,
            strict,
            dry_run,
            trace,
            trace_state,
            options: wishes,
            arrived,
            _in_flight_slot: place,
        })
    }

    /// Does work in proportion to the body. With a large body that takes up to seconds, during which
    /// this thread's other tasks, health checks among them, are handed to another thread.
    pub fn run_blocking<T>(&self, work: impl FnOnce() -> T) -> T {
        use tokio::runtime::{Handle, RuntimeFlavor};
        // A runtime of one thread, as in tests, has no other to hand them to.
        let many = || Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread;
        if self.body.len() > LARGE_BODY_BYTES && many() {
            return tokio::task::block_in_place(work);
        }
        work()
    }

    /// How long there is left until the answer must have begun, or have come if it is whole: ours
    /// and the caller's own time, whichever is shorter.
    pub(super) fn time_left(&self, timeouts: &Timeouts) -> Duration {
        let total = self.options.timeout.map_or(timeouts.total, |time| time.min(timeouts.total));
        total.saturating_sub(self.arrived.elapsed())
    }
}

/// The caller's trace goes on; one of our own begins only when somebody records it.
fn start_trace(engine: &Engine, headers: &HeaderMap) -> Option<TraceContext> {
    // Most calls have none, and then no word is drawn for it.
    let told = headers.contains_key(TRACEPARENT_HEADER);
    let trace =
        told.then(|| TraceContext::from_headers(headers, engine.request_ids.next_word())).flatten();
    if trace.is_some() || !engine.telemetry.is_on() {
        return trace;
    }
    let id = u128::from(engine.request_ids.next_word()) << 64
        | u128::from(engine.request_ids.next_word());
    Some(TraceContext::start(id, engine.request_ids.next_word()))
}

fn collect_forwarded_headers(dialect: &dyn Dialect, headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in dialect.forwarded_headers() {
        for value in headers.get_all(*name) {
            kept.append(*name, value.clone());
        }
    }
    kept
}

fn is_true(headers: &HeaderMap, name: &HeaderName) -> bool {
    headers.get(name).is_some_and(|value| value == "true")
}

/// Reads a body. It must keep coming: so much time beyond what its bytes are worth, and no more.
async fn read_body(
    request: Request<Body>,
    takes: BodyKind,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, ApiError> {
    let (head, mut body) = request.into_parts();
    let wrong = check_content_type(&head.headers, takes).err();
    let declared =
        head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: usize| length > limit) {
        return Err(too_large_error(limit));
    }
    let mut decoder = match ContentCoding::from_headers(&head.headers) {
        Ok(coding) => coding.map(|coding| BodyDecoder::new(coding, limit)).transpose(),
        // Like any wrong header, it is told when the body was read.
        Err(_) => Ok(None),
    }
    .map_err(|why| undecodable_error(why, limit))?;
    let begun = tokio::time::Instant::now();
    let mut came = 0;
    let mut all = BodyBuffer::new(declared);
    while !body.is_end_stream() {
        let until = begun + patience + Duration::from_secs(came / MIN_BODY_BYTES_PER_SECOND);
        let frame = match tokio::time::timeout_at(until, body.frame()).await {
            Err(_) => {
                return Err(ApiError::new(
                    ErrorKind::RequestTimeout,
                    "the body did not arrive in time",
                ));
            }
            Ok(None) => break,
            Ok(Some(Err(e))) => {
                return Err(
                    ApiError::invalid("", "the body broke off").with_log_note(e.to_string())
                );
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        came += data.len() as u64;
        if came > limit as u64 {
            return Err(too_large_error(limit));
        }
        match &mut decoder {
            None => all.push(data),
            Some(decoder) => {
                all.push(decoder.push(&data).map_err(|why| undecodable_error(why, limit))?);
            }
        }
    }
    // Told only now: a connection closed with bytes unread looks like a failure of the network.
    if let Some(fault) = wrong {
        return Err(fault);
    }
    if let Some(mut decoder) = decoder {
        decoder.finish().map_err(|why| undecodable_error(why, limit))?;
    }
    Ok(all.into_bytes())
}

/// The pieces of a body. One piece is the usual case and is not copied.
struct BodyBuffer {
    first: Bytes,
    all: BytesMut,
    declared: Option<usize>,
}

impl BodyBuffer {
    fn new(declared: Option<usize>) -> Self {
        Self { first: Bytes::new(), all: BytesMut::new(), declared }
    }

    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() && self.all.is_empty() {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(self.declared.unwrap_or(self.first.len() * 4));
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&piece);
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

/// What kind of body is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// JSON.
    Json,
    /// A form with files, whose boundary the surface has read.
    Form,
}

fn check_content_type(headers: &HeaderMap, takes: BodyKind) -> Result<(), ApiError> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut parts = text(CONTENT_TYPE).split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let charset = parts.find_map(|part| part.strip_prefix("charset="));
    let plain = kind.eq_ignore_ascii_case("application/json")
        && charset.is_none_or(|word| word.trim_matches('"').eq_ignore_ascii_case("utf-8"));
    if takes == BodyKind::Json && !plain {
        return Err(ApiError::new(
            ErrorKind::UnsupportedMediaType,
            "the body must be JSON: send the header `Content-Type: application/json`",
        ));
    }
    match ContentCoding::from_headers(headers) {
        Ok(_) => Ok(()),
        Err(unknown) => {
            let say = format!(
                "the body is encoded as `{unknown}`; accepted is one of: {SUPPORTED_CODINGS}"
            );
            Err(ApiError::new(ErrorKind::UnsupportedMediaType, say).with_param("content-encoding"))
        }
    }
}

fn undecodable_error(why: DecodeError, limit: usize) -> ApiError {
    match why {
        DecodeError::TooLarge => {
            let say = format!(
                "the body is larger than {limit} bytes, the limit here, once it is decompressed"
            );
            ApiError::new(ErrorKind::BodyTooLarge, say)
        }
        DecodeError::Broken(why) => {
            let say = "the body is not what `Content-Encoding` says";
            ApiError::invalid("content-encoding", say).with_log_note(why)
        }
    }
}

fn too_large_error(limit: usize) -> ApiError {
    ApiError::new(
        ErrorKind::BodyTooLarge,
        format!("the body is larger than {limit} bytes, the limit here"),
    )
}
