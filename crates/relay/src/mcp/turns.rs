//! The loop: a turn of the model, the calls that it asks for, the next turn with their results.

use bytes::Bytes;
use canon::{ApiError, ErrorKind, Money, WireFormat};
use dialects::SseDecoder;
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use std::sync::Arc;
use transport::{ServerBody, ServerReply};

use super::bench::ToolBench;
use super::event_body::{EventSink, event_body};
use super::paid_call::PaidToolCall;
use super::tool_outcome::ToolOutcome;
use super::turn_format::{FunctionUse, TurnEnd, TurnFormat};
use super::{messages, native, responses};
use crate::call::Call;
use crate::reply::event_reply;

/// Calls of tools in one answer, unless the request names another number.
pub(super) const DEFAULT_MAX_CALLS: u64 = 16;
/// TurnLoop of one answer, whatever the request says.
const MAX_TURNS: usize = 64;
/// Largest whole reply of a turn.
const MAX_REPLY_BYTES: usize = 64 << 20;
/// Ids of the turns, each of which has a receipt.
const TURNS_HEADER: &str = "x-portunus-turns";
/// Ids of the calls of servers of the operator, each of which has a receipt.
const TOOL_CALLS_HEADER: &str = "x-portunus-tool-calls";

/// Request with its servers asked.
pub(super) struct OpenedTurns {
    pub(super) format: Box<dyn TurnFormat>,
    pub(super) bench: ToolBench,
    pub(super) streamed: bool,
    pub(super) max_calls: u64,
}

/// Serves a call whose servers the gateway asks.
pub(crate) async fn serve(call: Arc<Call>) -> Result<ServerReply, ApiError> {
    let body = call
        .work_permit()
        .await
        .run(|| dialects::json::read_bytes::<Map<String, Value>>(&call.body))
        .await
        .map_err(|error| {
            ApiError::invalid("", format!("the body is not a JSON object: {error}"))
        })?;
    let shows_images = takes_images(&call, &body);
    let mut opened = match call.dialect.origin() {
        WireFormat::Responses => responses::open(&call, body).await?,
        WireFormat::Messages => messages::open(&call, body).await?,
        WireFormat::Native => native::open(&call, body).await?,
        WireFormat::Chat | WireFormat::Images => {
            return Err(ApiError::internal("this format has no words for servers"));
        }
    };
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
    };
    let mut early = Vec::new();
    turns.run_approved(&mut early).await;
    let first = turns.start().await?;
    if !streamed {
        return turns.run_whole(first).await;
    }
    let mut reply = event_reply(ServerBody::Empty, turns.call.target.json_array);
    for (name, value) in first.headers.iter().filter(|(name, _)| name.starts_with("x-portunus-")) {
        reply.headers.insert(name, value);
    }
    let body = first.body;
    reply.body = ServerBody::Stream(event_body(|sink| turns.run_stream(body, sink)));
    Ok(reply)
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
}

impl TurnLoop {
    /// Makes the calls that the caller approved.
    async fn run_approved(&mut self, out: &mut Vec<u8>) {
        for approved in self.format.approved() {
            let outcome = self.call_tool(&approved).await;
            self.calls_left = self.calls_left.saturating_sub(1);
            self.format.add_outcome(&self.bench, &approved, outcome, out);
        }
    }

    /// Calls a tool. The price of a server of the operator is reserved before, and a key that cannot pay it
    /// makes no call.
    async fn call_tool(&mut self, used: &FunctionUse) -> ToolOutcome {
        let Some(server) = self.bench.offered_server(&used.function).cloned() else {
            return self.bench.call(&used.function, &used.arguments).await;
        };
        let call = &self.call;
        let id = call.engine.request_ids.next_id(call.engine.clock.now());
        let session = call.named_session().cloned().unwrap_or_default();
        let parts = (&*call.engine, &*call.config);
        let reserved = PaidToolCall::reserve(parts, &call.key, &server, (&id, session)).await;
        let paid = match reserved {
            Ok(paid) => paid,
            Err(error) => return ToolOutcome::refused(&error.to_string()),
        };
        paid.note_sent();
        let outcome = self.bench.call(&used.function, &used.arguments).await;
        let cost = paid.settle(outcome.error.is_none()).await;
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
        let mut turn = call.next_turn(body, self.ids.is_empty())?;
        messages::drop_connector_beta(&mut turn.forwarded_headers);
        self.ids.push(Arc::clone(&turn.id));
        crate::serve_turn(turn).await
    }

    async fn run_whole(mut self, first: ServerReply) -> Result<ServerReply, ApiError> {
        let mut reply = first;
        let mut out = Vec::new();
        loop {
            let told = reply
                .headers
                .get("x-portunus-cost")
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
        let own = |name: &str| name.starts_with("x-portunus-") && name != "x-portunus-cost";
        for (name, value) in reply.headers.iter().filter(|(name, _)| own(name)) {
            whole.headers.insert(name, value);
        }
        if let Some(cost) = self.cost {
            cost.with_text(|text| whole.headers.insert("x-portunus-cost", text.as_bytes()));
        }
        whole.headers.insert(TURNS_HEADER, self.ids.join(",").as_bytes());
        if !self.tool_ids.is_empty() {
            whole.headers.insert(TOOL_CALLS_HEADER, self.tool_ids.join(",").as_bytes());
        }
        Ok(whole)
    }

    async fn run_stream(mut self, first: ServerBody, sink: EventSink) {
        if let Err(error) = self.stream_turns(first, &sink).await {
            let error = self.call.with_own_paths(error);
            let mut out = self.call.dialect.write_abort(&error, &self.call.id);
            sink.send(&mut out).await;
        }
    }

    async fn stream_turns(
        &mut self,
        mut body: ServerBody,
        sink: &EventSink,
    ) -> Result<(), ApiError> {
        let mut out = Vec::new();
        loop {
            let mut decoder = SseDecoder::default();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| {
                    ApiError::new(ErrorKind::Interrupted, "the answer broke off")
                        .with_log_note(error.to_string())
                })?;
                let Ok(data) = frame.into_data() else { continue };
                decoder.push(data);
                while let Some(frame) = decoder.next_frame()? {
                    self.format.take_event(&self.bench, &frame, &mut out)?;
                }
                sink.send(&mut out).await;
            }
            let end = self.format.end_turn(&self.bench, &mut out)?;
            sink.send(&mut out).await;
            if self.run_calls(end, &mut out, Some(sink)).await? {
                break;
            }
            body = self.start().await?.body;
        }
        self.format.finish_stream(&mut out);
        sink.send(&mut out).await;
        Ok(())
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
            if let Some(sink) = sink {
                sink.send(out).await;
            }
            let outcome = match self.calls_left.checked_sub(1).filter(|_| self.may_call) {
                Some(left) => {
                    self.calls_left = left;
                    // A key that was revoked meanwhile calls nothing any more.
                    self.call.engine.keys.still_live(&self.call.key)?;
                    self.call_tool(used).await
                }
                None => {
                    ToolOutcome::refused("the limit `max_tool_calls` of the request is reached")
                }
            };
            self.call.reserve_content(outcome.bytes())?;
            self.format.add_outcome(&self.bench, used, outcome, out);
            if let Some(sink) = sink {
                sink.send(out).await;
            }
        }
        Ok(is_last)
    }
}
