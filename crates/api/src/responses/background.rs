//! Calls that run on without their caller: polled, streamed again, cancelled.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ChatReply};
use dialects::{SseDecoder, StreamFrame};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::conversation::Conversation;
use super::kept::replay;
use super::remember::{Keeper, last_word};
use crate::memory::Run;
use crate::object::{object, set, text};
use crate::state::ApiState;
use relay::json;
use relay::{self, Call};

/// Begins the run and answers at once.
pub(super) async fn start(
    state: Arc<ApiState>,
    mut call: Call,
    conversation: Conversation,
) -> Result<Response, ApiError> {
    let peek = call.at_length(|| call.dialect.read_facts(&call.target, &call.body))?;
    relay::find_route(&call, &peek)?;
    let streamed = peek.stream;
    // The lane sees a plain stream: running in the background is our business.
    let mut body = object(&call.body);
    body.shift_remove("background");
    set(&mut body, [("stream", Value::Bool(true))]);
    call.body = Bytes::from(Value::from(body).to_string());
    call.edits.clear();
    call.own_reply = true;
    let queued = call.at_length(|| queued(&call))?;
    let id = text(&queued, "id").to_owned();
    let keeper = Keeper::new(Arc::clone(&state), &call, conversation);
    let told = Value::from(queued.clone()).to_string();
    keeper.keep(&told);
    let run = state.memory.begin(&id, &call.key.record.account_id);
    let task = work(Arc::clone(&state), call, keeper, (id, queued), Arc::clone(&run));
    state.engine.tasks.spawn(task);
    if streamed { Ok(replay(run, None)) } else { Ok(json(told)) }
}

/// The response object before there is an answer.
fn queued(call: &Call) -> Result<Map<String, Value>, ApiError> {
    let chat = call.dialect.read_request(&call.target, &call.body)?;
    let (body, _) = call.dialect.write_reply(ChatReply::default(), &chat, &relay::stamp(call));
    let mut queued = object(body);
    let fields = [
        ("status", json!("queued")),
        ("background", json!(true)),
        ("output", json!([])),
        ("usage", Value::Null),
        ("completed_at", Value::Null),
        ("incomplete_details", Value::Null),
    ];
    set(&mut queued, fields);
    Ok(queued)
}

async fn work(
    state: Arc<ApiState>,
    call: Call,
    keeper: Keeper,
    (id, queued): (String, Map<String, Value>),
    run: Arc<Run>,
) {
    let outcome = tokio::select! {
        () = run.cancel.cancelled() => Ok(()),
        outcome = answer(call, &keeper, &run) => outcome,
    };
    if let Err(fault) = outcome {
        fail(&keeper, &run, queued, &fault);
    }
    state.memory.end(&id);
}

/// Takes the answer in, event by event.
async fn answer(call: Call, keeper: &Keeper, run: &Run) -> Result<(), ApiError> {
    let mut body = relay::serve(call).await?.into_body();
    let mut cutter = SseDecoder::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| ApiError::internal(format!("a run broke off: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        cutter.push(data);
        while let Some(frame) = cutter.next_frame()? {
            take(&frame, keeper, run);
        }
    }
    Ok(())
}

fn take(frame: &StreamFrame, keeper: &Keeper, run: &Run) {
    #[derive(Deserialize)]
    struct Numbered {
        #[serde(default)]
        sequence_number: u64,
    }
    let number = serde_json::from_slice::<Numbered>(&frame.data).map_or(0, |n| n.sequence_number);
    if let Some(reply) = last_word(&frame.data) {
        let mut reply = object(reply);
        set(&mut reply, [("background", json!(true))]);
        let reply = Value::from(reply).to_string();
        if !run.close(|| keeper.keep(&reply)) {
            return;
        }
    }
    let name = frame.event.clone().unwrap_or_default();
    let event = [b"event: ", &name[..], b"\ndata: ", &frame.data[..], b"\n\n"].concat();
    run.tell(number, Bytes::from(event));
}

/// The run failed before or while it answered.
fn fail(keeper: &Keeper, run: &Run, mut response: Map<String, Value>, fault: &ApiError) {
    tracing::warn!("a background run failed: {fault} [{}]", fault.log_note().unwrap_or_default());
    let error = json!({ "code": "server_error", "message": fault.message() });
    set(&mut response, [("status", json!("failed")), ("error", error)]);
    let told = Value::from(response.clone()).to_string();
    if !run.close(|| keeper.keep(&told)) {
        return;
    }
    let event = json!({ "type": "response.failed", "sequence_number": 0, "response": response });
    run.tell(0, Bytes::from(format!("event: response.failed\ndata: {event}\n\n")));
}
