//! Background runs: started, polled, streamed again, cancelled. See
//! <https://platform.openai.com/docs/guides/background>.

use axum::response::Response;
use bytes::Bytes;
use canon::{ApiError, ChatReply};
use dialects::{SseDecoder, StreamFrame};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::conversation::Conversation;
use super::conversation_log::ConversationLog;
use super::recorder::{ResponseRecorder, final_response};
use super::stored::RunFollower;
use crate::json_object::{parse_object, set_fields, text_field};
use crate::state::ApiState;
use crate::stored_answers::BackgroundRun;
use crate::tasks::too_many_tasks;
use relay::json_response;
use relay::{self, Call};

/// Starts the run and answers at once.
pub(super) async fn start(
    state: Arc<ApiState>,
    mut call: Box<Call>,
    conversation: Conversation,
    log: Option<ConversationLog>,
) -> Result<Response, ApiError> {
    let mut facts =
        call.work_permit().await.run(|| call.dialect.read_facts(&call.target, &call.body)).await?;
    let route = relay::find_route(&call, &facts)?;
    relay::check_references(&call, &mut facts, &route).await?;
    let streamed = facts.stream;
    // The lane receives a plain streaming call. The gateway runs it in the background itself.
    call.body = call
        .work_permit()
        .await
        .run(|| {
            let mut body = parse_object(&call.body);
            body.shift_remove("background");
            set_fields(&mut body, [("stream", Value::Bool(true))]);
            Bytes::from(Value::from(body).to_string())
        })
        .await;
    call.edits.clear();
    call.rewrite_reply = true;
    let (queued, text) = call
        .work_permit()
        .await
        .run(|| {
            let queued = queued_response(&call)?;
            let text = Value::from(queued.clone()).to_string();
            Ok::<_, ApiError>((queued, text))
        })
        .await?;
    let id = text_field(&queued, "id").to_owned();
    let recorder = ResponseRecorder::new(Arc::clone(&state), &call, conversation, None).await;
    let limit = call.config.tasks.max_waiting;
    let run = state.stored_answers.begin_run(&id, &call.key.record, limit);
    let run = run.ok_or_else(|| too_many_tasks(limit))?;
    recorder.store(&text);
    let key = Arc::clone(&call.key);
    let task =
        run_to_end(Arc::clone(&state), call, (recorder, log), (id, queued), Arc::clone(&run));
    state.engine.tasks.spawn(task);
    if streamed {
        return Ok(RunFollower { state, key, run, after: None }.into_response());
    }
    Ok(json_response(text))
}

/// Returns the response object of a run that has not started yet.
fn queued_response(call: &Call) -> Result<Map<String, Value>, ApiError> {
    let chat = call.dialect.read_request(&call.target, &call.body)?;
    let (body, _) = call.dialect.write_reply(ChatReply::default(), &chat, &call.reply_stamp());
    let mut queued = parse_object(body);
    let fields = [
        ("status", json!("queued")),
        ("background", json!(true)),
        ("output", json!([])),
        ("usage", Value::Null),
        ("completed_at", Value::Null),
        ("incomplete_details", Value::Null),
    ];
    set_fields(&mut queued, fields);
    Ok(queued)
}

async fn run_to_end(
    state: Arc<ApiState>,
    call: Box<Call>,
    (recorder, log): (ResponseRecorder, Option<ConversationLog>),
    (id, queued): (String, Map<String, Value>),
    run: Arc<BackgroundRun>,
) {
    let outcome = tokio::select! {
        () = run.cancel.cancelled() => Ok(()),
        outcome = consume_answer(call, &recorder, log, &run) => outcome,
    };
    if let Err(error) = outcome {
        record_failure(&recorder, &run, queued, &error);
    }
    state.stored_answers.end_run(&id);
}

/// Reads the answer and records its events.
async fn consume_answer(
    call: Box<Call>,
    recorder: &ResponseRecorder,
    log: Option<ConversationLog>,
    run: &BackgroundRun,
) -> Result<(), ApiError> {
    let mut reply = relay::serve(call).await?;
    if let Some(log) = log {
        reply = log.record(reply).await?;
    }
    let mut body = reply.body;
    let mut cutter = SseDecoder::default();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|e| ApiError::internal(format!("a background run was interrupted: {e}")))?;
        let Ok(data) = frame.into_data() else { continue };
        cutter.push(data);
        while let Some(frame) = cutter.next_frame()? {
            record_event(&frame, recorder, run);
        }
    }
    Ok(())
}

fn record_event(frame: &StreamFrame, recorder: &ResponseRecorder, run: &BackgroundRun) {
    #[derive(Deserialize)]
    struct EventNumber {
        #[serde(default)]
        sequence_number: u64,
    }
    let number =
        dialects::json::read_bytes::<EventNumber>(&frame.data).map_or(0, |n| n.sequence_number);
    if let Some(reply) = final_response(&frame.data) {
        let mut reply = parse_object(reply);
        set_fields(&mut reply, [("background", json!(true))]);
        let reply = Value::from(reply).to_string();
        if !run.decide_end(|| recorder.store(&reply)) {
            return;
        }
    }
    let name = frame.event.clone().unwrap_or_default();
    let event = [b"event: ", &name[..], b"\ndata: ", &frame.data[..], b"\n\n"].concat();
    run.push_event(number, Bytes::from(event));
}

/// Records that the run failed.
fn record_failure(
    recorder: &ResponseRecorder,
    run: &BackgroundRun,
    mut response: Map<String, Value>,
    error: &ApiError,
) {
    tracing::warn!("a background run failed: {error} [{}]", error.log_note().unwrap_or_default());
    let error = json!({ "code": "server_error", "message": error.message() });
    set_fields(&mut response, [("status", json!("failed")), ("error", error)]);
    let text = Value::from(response.clone()).to_string();
    if !run.decide_end(|| recorder.store(&text)) {
        return;
    }
    let event = json!({ "type": "response.failed", "sequence_number": 0, "response": response });
    run.push_event(0, Bytes::from(format!("event: response.failed\ndata: {event}\n\n")));
}
