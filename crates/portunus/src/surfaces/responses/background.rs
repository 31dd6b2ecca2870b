//! Calls that run on without their caller: polled, streamed again, cancelled.

use axum::response::Response;
use bytes::Bytes;
use canon::{Fault, Reply};
use dialects::{Cutter, Frame};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

use super::conversation::Conversation;
use super::kept::replay;
use super::remember::{Keeper, last_word};
use crate::app::App;
use crate::flow::{self, Call};
use crate::memory::Run;
use crate::surfaces::json;

/// Begins the run and answers at once.
pub(super) async fn start(mut call: Call, conversation: Conversation) -> Result<Response, Fault> {
    let peek = call.dialect.peek(&call.target, &call.body)?;
    flow::find_route(&call, &peek)?;
    let streamed = peek.stream;
    // The lane sees a plain stream: running in the background is our business.
    let mut body: Value = serde_json::from_slice(&call.body)
        .map_err(|e| Fault::invalid("", format!("the body is not valid JSON: {e}")))?;
    if let Some(fields) = body.as_object_mut() {
        fields.shift_remove("background");
        fields.insert("stream".to_owned(), Value::Bool(true));
    }
    call.body = Bytes::from(body.to_string());
    call.edits.clear();
    call.own_reply = true;
    let queued = queued(&call)?;
    let id = queued["id"].as_str().unwrap_or_default().to_owned();
    let keeper = Keeper::new(&call, conversation);
    keeper.keep(&queued.to_string());
    let (app, run) =
        (Arc::clone(&call.app), call.app.memory.begin(&id, &call.key.record.account_id));
    let task = work(call, keeper, id, queued.clone(), Arc::clone(&run));
    app.tasks.spawn(task);
    if streamed { Ok(replay(run, None)) } else { Ok(json(queued.to_string())) }
}

/// The response object before there is an answer.
fn queued(call: &Call) -> Result<Value, Fault> {
    let chat = call.dialect.read_request(&call.target, &call.body)?;
    let (body, _) = call.dialect.write_reply(Reply::default(), &chat, &flow::stamp(call));
    let mut queued: Value = serde_json::from_slice(&body).unwrap_or_default();
    queued["status"] = json!("queued");
    queued["background"] = json!(true);
    queued["output"] = json!([]);
    queued["usage"] = Value::Null;
    queued["completed_at"] = Value::Null;
    queued["incomplete_details"] = Value::Null;
    Ok(queued)
}

async fn work(call: Call, keeper: Keeper, id: String, queued: Value, run: Arc<Run>) {
    let app = Arc::clone(&call.app);
    let outcome = tokio::select! {
        () = run.cancel.cancelled() => Ok(()),
        outcome = answer(call, &keeper, &run) => outcome,
    };
    if let Err(fault) = outcome {
        fail(&keeper, &run, queued, &fault);
    }
    finish(&app, &id);
}

fn finish(app: &App, id: &str) {
    app.memory.end(id);
}

/// Takes the answer in, event by event.
async fn answer(call: Call, keeper: &Keeper, run: &Run) -> Result<(), Fault> {
    let mut body = flow::serve(call).await?.into_body();
    let mut cutter = Cutter::default();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Fault::internal(format!("a run broke off: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        cutter.push(data);
        while let Some(frame) = cutter.next_frame()? {
            take(&frame, keeper, run);
        }
    }
    Ok(())
}

fn take(frame: &Frame, keeper: &Keeper, run: &Run) {
    #[derive(Deserialize)]
    struct Numbered {
        #[serde(default)]
        sequence_number: u64,
    }
    let number = serde_json::from_slice::<Numbered>(&frame.data).map_or(0, |n| n.sequence_number);
    if let Some(reply) = last_word(&frame.data) {
        let mut reply: Value = serde_json::from_str(reply).unwrap_or_default();
        reply["background"] = json!(true);
        keeper.keep(&reply.to_string());
    }
    let name = frame.event.clone().unwrap_or_default();
    let event = [b"event: ", &name[..], b"\ndata: ", &frame.data[..], b"\n\n"].concat();
    run.tell(number, Bytes::from(event));
}

/// The run failed before or while it answered.
fn fail(keeper: &Keeper, run: &Run, mut response: Value, fault: &Fault) {
    tracing::warn!("a background run failed: {fault} [{}]", fault.noted().unwrap_or_default());
    response["status"] = json!("failed");
    response["error"] = json!({ "code": "server_error", "message": fault.say() });
    keeper.keep(&response.to_string());
    let event = json!({ "type": "response.failed", "sequence_number": 0, "response": response });
    run.tell(0, Bytes::from(format!("event: response.failed\ndata: {event}\n\n")));
}
