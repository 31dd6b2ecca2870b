//! A response without output, which a client asks for before it needs one (`generate: false`).
//!
//! It is checked like a call, is not sent to a provider and costs nothing. The next request of its
//! connection may continue it.

use axum::body::Body;
use bytes::Bytes;
use canon::{ApiError, ChatReply};
use serde_json::{Map, Value, json};
use transport::ServerReply;

use super::recorder::ResponseRecorder;
use crate::json_object::{parse_object, set_fields};
use relay::{Call, event_stream};

/// Records an empty response and returns its events.
pub(super) async fn prepare(
    call: &Call,
    recorder: &ResponseRecorder,
) -> Result<ServerReply, ApiError> {
    let mut response = call.work_permit().await.run(|| empty_response(call)).await?;
    let created = event("response.created", 0, &response);
    let fields = [
        ("status", json!("completed")),
        ("completed_at", response.get("created_at").cloned().unwrap_or_default()),
        (
            "usage",
            json!({
                "input_tokens": 0,
                "input_tokens_details": { "cached_tokens": 0 },
                "output_tokens": 0,
                "output_tokens_details": { "reasoning_tokens": 0 },
                "total_tokens": 0,
            }),
        ),
    ];
    set_fields(&mut response, fields);
    recorder.store(&Value::from(response.clone()).to_string());
    let completed = event("response.completed", 1, &response);
    Ok(event_stream(Body::from(format!("{created}{completed}")), false).into())
}

/// Returns the response object before its end.
fn empty_response(call: &Call) -> Result<Map<String, Value>, ApiError> {
    let body = with_input(&call.body);
    let facts = call.dialect.read_facts(&call.target, &body)?;
    relay::find_route(call, &facts)?;
    let chat = call.dialect.read_request(&call.target, &body)?;
    let (body, _) = call.dialect.write_reply(ChatReply::default(), &chat, &call.reply_stamp());
    let mut response = parse_object(body);
    let fields = [
        ("status", json!("in_progress")),
        ("output", json!([])),
        ("store", json!(false)),
        ("usage", Value::Null),
        ("completed_at", Value::Null),
        ("incomplete_details", Value::Null),
    ];
    set_fields(&mut response, fields);
    Ok(response)
}

/// Returns the body with an input, which a call must have and a prepared response need not.
fn with_input(body: &Bytes) -> Bytes {
    let mut fields = parse_object(body);
    let is_empty = |input: &Value| input.is_null() || input.as_array().is_some_and(Vec::is_empty);
    if !fields.is_empty() && fields.get("input").is_none_or(is_empty) {
        set_fields(&mut fields, [("input", "-".into())]);
        return Value::from(fields).to_string().into();
    }
    body.clone()
}

fn event(kind: &str, number: u64, response: &Map<String, Value>) -> String {
    let event = json!({ "type": kind, "sequence_number": number, "response": response });
    format!("event: {kind}\ndata: {event}\n\n")
}
