//! One client call with everything it needs.

use access::keys::{ApiKey, FoundKey};
use access::limits::Admission;
use bytes::{Bytes, BytesMut};
use canon::{ApiError, ChatRequest, ErrorKind, SharedText, WireFormat, boxed};
use config::Config;
use dialects::json::BodyEdit;
use dialects::{
    Dialect, ParsedRequest, ReplyStamp, RequestFacts, RequestTarget, RequestUse, with_own_spelling,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use telemetry::TraceContext;
use transport::{HeaderBlock, SUPPORTED_CODINGS, SentMark, ServerBody, ServerRequest};
use upstream::{InFlightSlot, SentSecrets, Timeouts};

use super::cache_use::CacheUse;
use super::call_head::{CallHead, CallHeaders};
use super::call_options::CallOptions;
use super::compressed_body::CompressedBody;
use crate::engine::Engine;
use crate::large_work::WorkPermit;
use crate::request_id::RequestId;
use crate::value_count::reserve_values;

/// A request whose key is known and whose body has not been read.
pub struct CallRequest {
    /// Parts of the gateway that a call uses.
    pub engine: Arc<Engine>,
    /// Configuration at arrival.
    pub config: Arc<Config>,
    /// Key of the caller.
    pub key: FoundKey,
    /// Id of the request.
    pub id: RequestId,
    /// Facts of the head about the call.
    pub head: Arc<CallHead>,
    /// Resources held until the request ends.
    pub admission: Admission,
    /// HTTP request.
    pub request: ServerRequest,
}

/// Returns an error with the paths of the caller's own body.
pub type OwnPaths = Arc<dyn Fn(ApiError) -> ApiError + Send + Sync>;

/// A call: the caller's key, format and request.
pub struct Call {
    /// Parts of the gateway that a call uses.
    pub engine: Arc<Engine>,
    /// Configuration at arrival. A reload does not affect a running call.
    pub config: Arc<Config>,
    /// Key of the caller.
    pub key: Arc<ApiKey>,
    /// Id of the request.
    pub id: Arc<str>,
    /// Resources held until the call ends.
    pub admission: Admission,
    /// Format of the caller.
    pub dialect: &'static dyn Dialect,
    /// Facts of the request from its path and headers.
    pub target: RequestTarget,
    /// Decompressed body.
    pub body: Bytes,
    /// Gives errors the paths of the caller's own body, if content was inserted into it.
    pub own_paths: Option<OwnPaths>,
    /// The body as it was read for a translation, until a lane takes it.
    pub(crate) parsed: Mutex<Option<Box<ChatRequest>>>,
    /// Cached content of the body that has a copy at a provider.
    pub cache: Option<Arc<CacheUse>>,
    /// True if it is one turn of an answer that has several.
    pub(crate) is_turn: bool,
    /// Edits of the body for providers of the caller's format.
    pub edits: Vec<BodyEdit>,
    /// True if the reply is parsed and rewritten even where the formats agree.
    pub rewrite_reply: bool,
    /// Progress in percent as reported by the provider, for a task that is polled.
    pub progress: Option<Arc<AtomicU8>>,
    /// Headers of the caller that go to providers of the same format.
    pub forwarded_headers: HeaderMap,
    /// Position in a trace, if the call is traced.
    pub trace: Option<TraceContext>,
    /// `tracestate` of the caller, forwarded unread
    /// (<https://www.w3.org/TR/trace-context/#tracestate-header>).
    pub trace_state: Option<HeaderValue>,
    /// Options for the gateway from the request headers.
    pub(crate) options: CallOptions,
    /// Session of the stored response that the request continues.
    pub continued_session: Option<SharedText>,
    /// Session that the call begins if nothing names one: its answer is stored, and may be continued.
    opened_session: Option<SharedText>,
    /// The session of the call, known once money is reserved. The turns of an answer share it.
    found_session: Arc<OnceLock<SharedText>>,
    /// Time at which the request arrived. Timeouts count from here.
    pub arrived: Instant,
    /// Freed when the account is closed: a caller that does not read keeps an ended call alive.
    pub(crate) in_flight_slot: Arc<InFlightSlot>,
    /// Set once a connection has a request of the current attempt. The account has it too.
    pub(crate) sent: Arc<SentMark>,
    /// Fetched secrets of its requests, which providers may repeat.
    pub(crate) sent_secrets: SentSecrets,
}

impl Call {
    /// Parses the request once: its facts, and the request itself if every lane of its model needs a
    /// translation.
    pub(super) fn parse(&self) -> Result<RequestFacts, ApiError> {
        let origin = self.dialect.origin();
        let is_translated = |model: &str| {
            let route = self.config.routes.get(model);
            route
                .is_some_and(|route| route.lanes.iter().all(|lane| !lane.formats.contains(&origin)))
        };
        let wanted = RequestUse::Both(&is_translated);
        let ParsedRequest { facts, chat } = self
            .dialect
            .parse(&self.target, &self.body, wanted)
            .map_err(|error| with_own_spelling(error, origin, &self.body))?;
        chat.into_iter().for_each(|chat| self.keep_chat(chat));
        Ok(facts.unwrap_or_default())
    }

    /// Forgets a parsed request that was kept.
    pub(super) fn forget_chat(&self) {
        *self.parsed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Keeps the parsed request for the next one who reads it.
    pub(super) fn keep_chat(&self, chat: Box<ChatRequest>) {
        *self.parsed.lock().unwrap_or_else(PoisonError::into_inner) = Some(chat);
    }

    /// Returns the parsed request. Only the first lane saves the parsing.
    pub(super) fn read_chat(&self) -> Result<Box<ChatRequest>, ApiError> {
        match self.parsed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(chat) => Ok(chat),
            None => self.dialect.read_request(&self.target, &self.body).map(Box::new),
        }
    }

    /// Reads a JSON request within the limits of size and time. Boxed, because a call is large and
    /// moves from step to step.
    pub fn read(
        call_request: CallRequest,
        dialect: &'static dyn Dialect,
        target: RequestTarget,
    ) -> impl Future<Output = Result<Box<Self>, ApiError>> {
        // Not `async`: the request would be copied from one future into the next.
        Self::read_as(call_request, dialect, target, BodyKind::Json)
    }

    /// Reads a request with this kind of body within the limits of size and time.
    pub async fn read_as(
        call_request: CallRequest,
        dialect: &'static dyn Dialect,
        target: RequestTarget,
        body_kind: BodyKind,
    ) -> Result<Box<Self>, ApiError> {
        let CallRequest { engine, config, key, id, head, admission, request } = call_request;
        let arrived = Instant::now();
        let slot = engine.in_flight.admit(config.max_running_calls)?;
        let head = head.headers(request.headers(), &engine.instance);
        let options = head.options.clone()?;
        let forwarded_headers = collect_forwarded_headers(dialect, request.headers());
        let trace = start_trace(&engine, options.has_trace, request.headers());
        let trace_state = trace.is_some().then(|| request.headers().value("tracestate")).flatten();
        let limit = config.max_body_bytes;
        let body = read_body(request, (body_kind, head), limit, &admission, &engine).await?;
        if body_kind == BodyKind::Json {
            reserve_values(&engine, &body, &admission).await?;
        }
        // A body can take long. The key may have been revoked since the head was read.
        let key = engine.keys.recheck(key)?;
        Ok(boxed(|| Self {
            engine,
            config,
            key,
            id: id.0,
            admission,
            dialect,
            target,
            body,
            own_paths: None,
            parsed: Mutex::new(None),
            cache: None,
            is_turn: false,
            edits: Vec::new(),
            rewrite_reply: false,
            progress: None,
            forwarded_headers,
            trace,
            trace_state,
            options,
            continued_session: None,
            opened_session: None,
            found_session: Arc::default(),
            arrived,
            in_flight_slot: Arc::new(slot),
            sent: Arc::default(),
            sent_secrets: SentSecrets::default(),
        }))
    }

    /// Returns true if the gateway asks MCP servers for the call where no lane does: its format has words for
    /// them, and it is not a turn in which they are asked already.
    pub(super) fn may_ask_servers(&self) -> bool {
        let has_words = match self.dialect.origin() {
            WireFormat::Responses | WireFormat::Messages | WireFormat::Native => true,
            WireFormat::Chat | WireFormat::Images => false,
        };
        has_words && !self.is_turn
    }

    /// Returns the call of one turn of an answer that has several: with a body of its own, the current state
    /// of the key, its own place among running calls, and an id of its own unless it is the first.
    pub(super) fn next_turn(&self, body: Bytes, is_first: bool) -> Result<Box<Self>, ApiError> {
        let engine = &self.engine;
        let key = engine.keys.still_live(&self.key)?;
        let id = match is_first {
            true => Arc::clone(&self.id),
            false => engine.request_ids.next_id(engine.clock.now()),
        };
        let in_flight_slot = match is_first {
            true => Arc::clone(&self.in_flight_slot),
            false => Arc::new(engine.in_flight.admit(self.config.max_running_calls)?),
        };
        let mut options = self.options.clone();
        options.timeout = options.timeout.map(|time| time.saturating_sub(self.arrived.elapsed()));
        Ok(Box::new(Self {
            engine: Arc::clone(engine),
            config: Arc::clone(&self.config),
            key,
            id,
            admission: self.admission.clone(),
            dialect: self.dialect,
            // The turns of an answer are joined event by event, however the caller gets them.
            target: RequestTarget { json_array: false, ..self.target.clone() },
            body,
            own_paths: None,
            parsed: Mutex::new(None),
            cache: None,
            is_turn: true,
            edits: Vec::new(),
            rewrite_reply: self.rewrite_reply,
            continued_session: self.continued_session.clone(),
            opened_session: self.opened_session.clone(),
            found_session: Arc::clone(&self.found_session),
            progress: None,
            forwarded_headers: self.forwarded_headers.clone(),
            trace: match is_first {
                true => self.trace,
                // Every turn is a span of its own.
                false => self.trace.map(|trace| trace.with_span(engine.request_ids.next_word())),
            },
            trace_state: self.trace_state.clone(),
            options,
            arrived: Instant::now(),
            in_flight_slot,
            sent: Arc::default(),
            sent_secrets: SentSecrets::default(),
        }))
    }

    /// Returns an error with the paths of the caller's own body.
    pub(super) fn with_own_paths(&self, error: ApiError) -> ApiError {
        match &self.own_paths {
            Some(restore) => restore(error),
            None => error,
        }
    }

    /// Reserves memory for so many bytes of kept content, before it is read. The limits of a body hold for
    /// the whole.
    pub fn reserve_content(&self, bytes: usize) -> Result<(), ApiError> {
        let limit = self.config.max_body_bytes;
        let size = self.body.len().saturating_add(bytes);
        if size > limit {
            let message = format!(
                "the body is larger than {limit} bytes, the limit here, with what it names"
            );
            return Err(ApiError::new(ErrorKind::BodyTooLarge, message));
        }
        if let Some(permit) = &self.admission.buffer {
            permit.grow(bytes as u64)?;
        }
        Ok(())
    }

    /// Replaces the body by one with so many bytes of kept content in it, for which memory is reserved.
    pub async fn insert_content<T>(
        &mut self,
        bytes: usize,
        insert: impl FnOnce(&Bytes) -> Result<(Bytes, T), ApiError>,
    ) -> Result<T, ApiError> {
        let permit = self.permit_for(self.body.len().saturating_add(bytes)).await;
        let (body, inserted) = permit.run(|| insert(&self.body)).await?;
        reserve_values(&self.engine, &body, &self.admission).await?;
        self.body = body;
        Ok(inserted)
    }

    /// Waits until work may run whose duration grows with the body.
    pub async fn work_permit(&self) -> WorkPermit {
        self.permit_for(self.body.len()).await
    }

    /// Waits until work may run whose duration grows with that many bytes.
    pub async fn permit_for(&self, input_bytes: usize) -> WorkPermit {
        self.engine.heavy_work.permit(input_bytes).await
    }

    /// Returns id and time for replies that the gateway writes.
    pub fn reply_stamp(&self) -> ReplyStamp {
        let id = self.id.strip_prefix("req_").unwrap_or(&self.id).to_owned();
        ReplyStamp { id, created: self.engine.clock.now().as_secs() }
    }

    /// Lets the call begin a session, if nothing names one. Its id is that of a response which the gateway
    /// writes for this call.
    pub fn open_session(&mut self) {
        let id = self.id.strip_prefix("req_").unwrap_or(&self.id);
        self.opened_session = Some(format!("resp_{id}").into());
    }

    /// Returns the session that the call begins if nothing names one.
    pub(crate) const fn opened_session(&self) -> Option<&SharedText> {
        self.opened_session.as_ref()
    }

    /// Notes the session of the call.
    pub(crate) fn set_session(&self, session: &SharedText) {
        // The turns of an answer have the session of its first one.
        let _ = self.found_session.set(session.clone());
    }

    /// Returns a reader of the session, for work that outlives the call. Before money is reserved it is the
    /// session that a header names, that of the stored response which the request continues, or the one that
    /// the call begins.
    pub fn session_reader(&self) -> impl Fn() -> Option<SharedText> + Send + Sync + use<> {
        let named = self.options.session.as_ref().or(self.continued_session.as_ref());
        let first = named.or(self.opened_session.as_ref()).cloned();
        let found = Arc::clone(&self.found_session);
        move || found.get().or(first.as_ref()).cloned()
    }

    /// Returns true if the caller asks what the call would do, without doing it.
    pub const fn is_dry_run(&self) -> bool {
        self.options.dry_run
    }

    /// Forgets the caller's own timeout, for work that goes on without the caller.
    pub const fn forget_own_timeout(&mut self) {
        self.options.timeout = None;
    }

    /// Returns the time that the caller's own timeout leaves, if there is one.
    pub(super) fn own_time_left(&self) -> Option<Duration> {
        self.options.timeout.map(|time| time.saturating_sub(self.arrived.elapsed()))
    }

    /// Returns true if the caller's own timeout is over.
    pub(super) fn is_past_own_timeout(&self) -> bool {
        self.options.timeout.is_some_and(|time| self.arrived.elapsed() >= time)
    }

    /// Returns the time left until the reply must have begun, or be complete if it is not streamed.
    /// The caller's own timeout counts if it is shorter.
    pub(super) fn time_left(&self, timeouts: &Timeouts) -> Duration {
        let total = self.options.timeout.map_or(timeouts.total, |time| time.min(timeouts.total));
        total.saturating_sub(self.arrived.elapsed())
    }
}

/// Continues the caller's trace. A new trace starts only if a collector is configured.
pub fn start_trace(
    engine: &Engine,
    has_trace: bool,
    headers: &HeaderBlock,
) -> Option<TraceContext> {
    // Most calls have no header, and then no span id is generated.
    let parent = if has_trace { headers.text("traceparent") } else { None };
    let trace = parent.and_then(|text| TraceContext::parse(text, engine.request_ids.next_word()));
    if trace.is_some() || !engine.telemetry.is_on() {
        return trace;
    }
    let id = u128::from(engine.request_ids.next_word()) << 64
        | u128::from(engine.request_ids.next_word());
    Some(TraceContext::start(id, engine.request_ids.next_word()))
}

fn collect_forwarded_headers(dialect: &dyn Dialect, headers: &HeaderBlock) -> HeaderMap {
    let mut kept = HeaderMap::new();
    let forwarded = dialect.traits().forwarded_headers;
    if forwarded.is_empty() {
        return kept;
    }
    for (name, value) in headers.iter().filter(|(name, _)| forwarded.contains(name)) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value))
        {
            kept.append(name, value);
        }
    }
    kept
}

/// Reads a body within its limit and decodes it.
async fn read_body(
    mut request: ServerRequest,
    (body_kind, head): (BodyKind, &CallHeaders),
    limit: usize,
    admission: &Admission,
    engine: &Engine,
) -> Result<Bytes, ApiError> {
    let mut body = std::mem::take(&mut request.body);
    let wrong = check_content_type(head, body_kind).err();
    // A caller that waits to be asked is not asked for a body that is refused.
    if let Some(error) = wrong.as_ref().filter(|_| request.headers().contains("expect")) {
        return Err(error.clone());
    }
    let declared = request.length().and_then(|length| usize::try_from(length).ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(transport::too_large(limit));
    }
    let mut compressed = match head.coding {
        Ok(Some(coding)) => Some(CompressedBody::new(coding, limit, admission)?),
        // An unknown coding is reported after the body was read, like any wrong header.
        Ok(None) | Err(_) => None,
    };
    if let (ServerBody::Whole(bytes), None, None) = (&mut body, &wrong, &compressed) {
        let bytes = std::mem::take(bytes);
        return if bytes.len() > limit { Err(transport::too_large(limit)) } else { Ok(bytes) };
    }
    let mut received = 0;
    let mut all = BodyBuffer::new(declared);
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| transport::body_error(&error, limit))?;
        let Ok(data) = frame.into_data() else { continue };
        received += data.len() as u64;
        if received > limit as u64 {
            return Err(transport::too_large(limit));
        }
        match &mut compressed {
            None => all.push(data),
            Some(compressed) => compressed.push(data, &mut all)?,
        }
    }
    // Reported only now: closing a connection with unread bytes can reset it, and the client would
    // see a network failure (RFC 9112, section 9.6).
    if let Some(error) = wrong {
        return Err(error);
    }
    if let Some(compressed) = compressed {
        compressed.finish(&engine.heavy_work, &mut all).await?;
    }
    Ok(all.into_bytes())
}

/// Chunks of a body. A single chunk, the usual case, is not copied.
pub(super) struct BodyBuffer {
    first: Bytes,
    all: BytesMut,
    declared: Option<usize>,
}

impl BodyBuffer {
    fn new(declared: Option<usize>) -> Self {
        Self { first: Bytes::new(), all: BytesMut::new(), declared }
    }

    pub(super) fn push(&mut self, piece: Bytes) {
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

/// Accepted content type of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// `application/json`.
    Json,
    /// `multipart/form-data`; the handler has read its boundary.
    Form,
}

fn check_content_type(head: &CallHeaders, body_kind: BodyKind) -> Result<(), ApiError> {
    if body_kind == BodyKind::Json && !head.is_json {
        return Err(ApiError::new(
            ErrorKind::UnsupportedMediaType,
            "the body must be JSON: send the header `Content-Type: application/json`",
        ));
    }
    match &head.coding {
        Ok(_) => Ok(()),
        Err(unknown) => {
            let message = format!(
                "the body is encoded as `{unknown}`; accepted encodings: {SUPPORTED_CODINGS}"
            );
            Err(ApiError::new(ErrorKind::UnsupportedMediaType, message)
                .with_param("content-encoding"))
        }
    }
}
