//! The loop: a turn of the model, the calls that it asks for, the next turn with their results.

use bytes::Bytes;
use canon::{ApiError, ErrorKind, Money, NeedKind, ToolKind, WireFormat};
use dialects::{RequestFacts, SseDecoder};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use std::sync::Arc;
use transport::{ServerBody, ServerReply};

use super::bench::ToolBench;
use super::event_body::{EventSink, event_body};
use super::paid_call::PaidToolCall;
use super::tool_outcome::ToolOutcome;
use super::turn_format::{FunctionUse, OpenedTurns, StreamFailure, TurnEnd, TurnFormat};
use super::{messages, native, responses};
use crate::call::Call;
use crate::reply::event_reply;
use crate::route;

/// Turns of one answer, whatever the request says.
const MAX_TURNS: usize = 64;
/// Largest whole reply of a turn.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// Ids of the turns, each of which has a receipt.
const TURNS_HEADER: &str = "x-portunus-turns";
/// Ids of the calls of servers of the operator, each of which has a receipt.
const TOOL_CALLS_HEADER: &str = "x-portunus-tool-calls";
const COST_HEADER: &str = "x-portunus-cost";

/// Returns true if a request needs servers and no lane of its model asks them.
pub(crate) fn are_needed(call: &Call, facts: &RequestFacts) -> bool {
    !facts.needs.is_empty()
        && facts.needs.iter().any(|need| need.kind == NeedKind::Tool(ToolKind::Mcp))
        && call.may_ask_servers()
        && !route::lane_asks_servers(call, facts)
}

/// Serves a call whose servers the gateway asks.
pub(crate) async fn serve(call: Arc<Call>) -> Result<ServerReply, ApiError> {
    let read = || dialects::json::read_bytes::<Map<String, Value>>(&call.body);
    let body = call.work_permit().await.run(read).await.map_err(|error| {
        ApiError::invalid("", format!("the body is not a JSON object: {error}"))
    })?;
    // The first turn without tools of servers. What it is refused for is refused before a server is asked:
    // its fields, and a key that cannot pay.
    let mut first = open(&call, body.clone(), false).await?;
    let request = Bytes::from(first.format.next_body(true).to_string());
    let mut turn = call.next_turn(request, true)?;
    messages::drop_connector_beta(&mut turn.forwarded_headers);
    if call.is_dry_run() {
        let dry = crate::serve_turn(turn).await;
        return dry.map_err(|error| first.format.with_own_paths(error));
    }
    let checked = crate::check_call_funds(&turn).await;
    checked.map_err(|error| first.format.with_own_paths(error))?;
    drop((first, turn));
    let shows_images = takes_images(&call, &body);
    let mut opened = within_own_time(&call, open(&call, body, true)).await??;
    opened.bench.shows_images = shows_images;
    let streamed = opened.streamed;
    let mut turns = TurnLoop {
        call,
        format: opened.format,
        bench: opened.bench,
        calls_left: opened.max_calls,
        may_call: true,
        ids: Vec::new(),
        tool_ids: Vec::new(),
        cost: None,
        has_worked: false,
    };
    let started = match turns.run_approved().await {
        Ok(()) => turns.start().await,
        Err(error) => Err(error),
    };
    let first = match started {
        Ok(first) => first,
        Err(error) => return Err(turns.after_work(error)),
    };
    if !streamed {
        let whole = turns.run_whole(first).await;
        return whole.map_err(|error| turns.after_work(error));
    }
    let mut reply = event_reply(ServerBody::Empty, turns.call.target.json_array);
    for (name, value) in first.headers.iter().filter(|(name, _)| name.starts_with("x-portunus-")) {
        reply.headers.insert(name, value);
    }
    let body = first.body;
    let keep_alive = turns.call.dialect.traits().keep_alive;
    let events = event_body(keep_alive, |sink| turns.run_stream(body, sink));
    reply.body = ServerBody::Stream(events);
    Ok(reply)
}

async fn open(call: &Call, body: Map<String, Value>, asks: bool) -> Result<OpenedTurns, ApiError> {
    match call.dialect.origin() {
        WireFormat::Responses => responses::open(call, body, asks).await,
        WireFormat::Messages => messages::open(call, body, asks).await,
        WireFormat::Native => native::open(call, body, asks).await,
        WireFormat::Chat | WireFormat::Images => {
            Err(ApiError::internal("this format has no words for servers"))
        }
    }
}

/// Returns true if every lane of the model is known to take images.
fn takes_images(call: &Call, body: &Map<String, Value>) -> bool {
    let named = call.target.model.as_deref();
    let model = named.or_else(|| body.get("model").and_then(Value::as_str)).unwrap_or_default();
    let route = call.config.routes.get(model);
    route.is_some_and(|route| {
        let takes = |kinds: &[String]| kinds.iter().any(|kind| kind == "image");
        route.lanes.iter().all(|lane| takes(&lane.capabilities.input))
    })
}

/// Runs work on servers within the caller's own timeout.
async fn within_own_time<T>(call: &Call, work: impl Future<Output = T>) -> Result<T, ApiError> {
    let Some(left) = call.own_time_left() else { return Ok(work.await) };
    tokio::time::timeout(left, work).await.map_err(|_| {
        let message = "the timeout of the request is over, and its MCP servers did not answer";
        ApiError::new(ErrorKind::Timeout, message)
    })
}

struct TurnLoop {
    call: Arc<Call>,
    format: Box<dyn TurnFormat>,
    bench: ToolBench,
    calls_left: u64,
    /// False if the model must answer without tools in the current turn.
    may_call: bool,
    ids: Vec<Arc<str>>,
    /// Ids of the calls of servers of the operator.
    tool_ids: Vec<Arc<str>>,
    /// Cost of the turns that told theirs, and of calls of tools.
    cost: Option<Money>,
    /// True once a tool was called or a turn was answered. To repeat the request would repeat that.
    has_worked: bool,
}

impl TurnLoop {
    /// Returns an error that tells what was done before it.
    fn after_work(&self, error: ApiError) -> ApiError {
        if !self.has_worked {
            return error;
        }
        let mut error = error.after_work().with_header(TURNS_HEADER, self.ids.join(","));
        if !self.tool_ids.is_empty() {
            error = error.with_header(TOOL_CALLS_HEADER, self.tool_ids.join(","));
        }
        match self.cost {
            Some(cost) => error.with_header(COST_HEADER, cost.to_string()),
            None => error,
        }
    }

    /// Makes the calls that the caller approved, if the key can pay the turn that reads their results.
    async fn run_approved(&mut self) -> Result<(), ApiError> {
        let approved = self.format.approved();
        let Some(body) = self.format.first_body().filter(|_| !approved.is_empty()) else {
            return Ok(());
        };
        let turn = self.call.next_turn(Bytes::from(body.to_string()), true)?;
        crate::check_call_funds(&turn).await.map_err(|error| self.format.with_own_paths(error))?;
        drop(turn);
        for used in approved {
            let outcome = self.call_tool(&used).await?;
            self.format.add_outcome(&self.bench, &used, outcome, &mut Vec::new());
        }
        Ok(())
    }

    /// Calls a tool, within the limits of the request.
    async fn call_tool(&mut self, used: &FunctionUse) -> Result<ToolOutcome, ApiError> {
        let Some(left) = self.calls_left.checked_sub(1).filter(|_| self.may_call) else {
            let why = "the limit `max_tool_calls` of the request is reached";
            return Ok(ToolOutcome::refused(why));
        };
        self.calls_left = left;
        // A key that was revoked meanwhile calls nothing any more.
        self.call.engine.keys.still_live(&self.call.key)?;
        self.has_worked = true;
        let outcome = self.call_server(used).await?;
        self.call.reserve_content(outcome.bytes())?;
        Ok(outcome)
    }

    /// Calls the tool at its server. The price of a server of the operator is reserved before, and a key that
    /// cannot pay it makes no call.
    async fn call_server(&mut self, used: &FunctionUse) -> Result<ToolOutcome, ApiError> {
        let Some(server) = self.bench.offered_server(&used.function).cloned() else {
            let called = self.bench.call(&used.function, &used.arguments);
            return within_own_time(&self.call, called).await;
        };
        let call = &self.call;
        let id = call.engine.request_ids.next_id(call.engine.clock.now());
        let session = call.session_reader()().unwrap_or_default();
        let parts = (&*call.engine, &*call.config);
        let reserved = PaidToolCall::reserve(parts, &call.key, &server, (&id, session)).await;
        let paid = match reserved {
            Ok(paid) => paid,
            Err(error) => return Ok(ToolOutcome::refused(&error.to_string())),
        };
        paid.note_sent();
        let called = self.bench.call(&used.function, &used.arguments);
        let outcome = within_own_time(call, called).await;
        let cost = paid.settle(outcome.as_ref().is_ok_and(|told| told.error.is_none())).await;
        self.cost = self.cost.unwrap_or_default().checked_add(cost);
        self.tool_ids.push(id);
        outcome
    }

    /// Starts the next turn, a call of its own with the current key.
    async fn start(&mut self) -> Result<ServerReply, ApiError> {
        let call = &self.call;
        self.may_call = self.calls_left > 0 && self.ids.len() + 1 < MAX_TURNS;
        let (format, may_call) = (&mut self.format, self.may_call);
        let permit = call.permit_for(call.body.len()).await;
        let body = permit.run(|| Bytes::from(format.next_body(may_call).to_string())).await;
        let limit = call.config.max_body_bytes;
        if body.len() > limit {
            let message = format!(
                "the request with the results of its tools is larger than {limit} bytes, the limit here"
            );
            return Err(ApiError::new(ErrorKind::BodyTooLarge, message));
        }
        let is_first = self.ids.is_empty();
        let mut turn = call.next_turn(body, is_first)?;
        messages::drop_connector_beta(&mut turn.forwarded_headers);
        if let Some(permit) = call.admission.rate.as_ref().filter(|_| !is_first) {
            // The limits of the key count every call of a provider.
            turn.admission.rate = Some(permit.next_call().await?);
        }
        self.ids.push(Arc::clone(&turn.id));
        let served = crate::serve_turn(turn).await;
        let reply = served.map_err(|error| self.format.with_own_paths(error))?;
        self.has_worked = true;
        Ok(reply)
    }

    async fn run_whole(&mut self, first: ServerReply) -> Result<ServerReply, ApiError> {
        let mut reply = first;
        let mut out = Vec::new();
        loop {
            let told = reply
                .headers
                .get(COST_HEADER)
                .and_then(|cost| std::str::from_utf8(cost).ok()?.parse::<Money>().ok());
            self.cost = self.cost.unwrap_or_default().checked_add(told.unwrap_or_default());
            let body = std::mem::take(&mut reply.body).into_body();
            let body = axum::body::to_bytes(body, MAX_REPLY_BYTES)
                .await
                .map_err(|e| ApiError::internal(format!("a turn could not be read back: {e}")))?;
            let read = dialects::json::read_bytes::<Map<String, Value>>(&body);
            let read = read.map_err(|error| {
                ApiError::internal(format!("a turn is not a JSON object: {error}"))
            })?;
            self.format.take_reply(&self.bench, read);
            let end = self.format.end_turn(&self.bench, &mut out)?;
            out.clear();
            if self.run_calls(end, &mut out, None).await? {
                break;
            }
            out.clear();
            reply = self.start().await?;
        }
        let body = self.format.finish_reply().to_string();
        let mut whole =
            ServerReply::with_lines(crate::reply::JSON_LINES, ServerBody::Whole(body.into()));
        let own = |name: &str| name.starts_with("x-portunus-") && name != COST_HEADER;
        for (name, value) in reply.headers.iter().filter(|(name, _)| own(name)) {
            whole.headers.insert(name, value);
        }
        if let Some(cost) = self.cost {
            cost.with_text(|text| whole.headers.insert(COST_HEADER, text.as_bytes()));
        }
        whole.headers.insert(TURNS_HEADER, self.ids.join(",").as_bytes());
        if !self.tool_ids.is_empty() {
            whole.headers.insert(TOOL_CALLS_HEADER, self.tool_ids.join(",").as_bytes());
        }
        Ok(whole)
    }

    async fn run_stream(mut self, first: ServerBody, sink: EventSink) {
        let is_whole = match self.stream_turns(first, &sink).await {
            Ok(is_whole) => is_whole,
            Err(error) => {
                let error = self.call.with_own_paths(self.after_work(error));
                let (dialect, mut out) = (self.call.dialect, Vec::new());
                let failure = StreamFailure { dialect, error: &error, request_id: &self.call.id };
                self.format.write_failure(failure, &mut out);
                sink.send(&mut out).await;
                false
            }
        };
        if !is_whole && self.call.dialect.traits().aborts_broken_streams {
            sink.abort().await;
        }
    }

    /// Returns false if the provider failed and the caller knows it.
    async fn stream_turns(
        &mut self,
        mut body: ServerBody,
        sink: &EventSink,
    ) -> Result<bool, ApiError> {
        let mut out = Vec::new();
        loop {
            let mut decoder = SseDecoder::default();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| {
                    ApiError::new(ErrorKind::Interrupted, "the answer broke off")
                        .with_log_note(error.to_string())
                })?;
                let Ok(data) = frame.into_data() else { continue };
                // A turn without a frame in it is alive: its provider pauses.
                let is_keep_alive = data == self.call.dialect.traits().keep_alive;
                decoder.push(data);
                while let Some(frame) = decoder.next_frame()? {
                    self.format.take_event(&self.bench, &frame, &mut out)?;
                }
                if out.is_empty() && is_keep_alive {
                    out.extend_from_slice(self.call.dialect.traits().keep_alive);
                }
                sink.send(&mut out).await;
                if self.format.has_failed() {
                    return Ok(false);
                }
            }
            let end = self.format.end_turn(&self.bench, &mut out)?;
            sink.send(&mut out).await;
            if self.run_calls(end, &mut out, Some(sink)).await? {
                break;
            }
            body = sink.keep_alive(self.start()).await?.body;
        }
        self.format.finish_stream(&mut out);
        sink.send(&mut out).await;
        Ok(true)
    }

    /// Makes the calls of a turn. Returns true if it was the last one.
    async fn run_calls(
        &mut self,
        end: TurnEnd,
        out: &mut Vec<u8>,
        sink: Option<&EventSink>,
    ) -> Result<bool, ApiError> {
        // A model that calls tools although it must not gets no other turn.
        let is_last = end.is_last || end.uses.is_empty() || !self.may_call;
        for used in &end.uses {
            self.format.begin_call(&self.bench, used, out);
            let outcome = match sink {
                Some(sink) => {
                    sink.send(out).await;
                    sink.keep_alive(self.call_tool(used)).await?
                }
                None => self.call_tool(used).await?,
            };
            self.format.add_outcome(&self.bench, used, outcome, out);
            if let Some(sink) = sink {
                sink.send(out).await;
            }
        }
        Ok(is_last)
    }
}
