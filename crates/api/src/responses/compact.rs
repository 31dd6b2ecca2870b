//! `POST /v1/responses/compact`: replaces a long conversation by a summary, on any model.
//!
//! The model writes the summary. It comes back as one opaque item that the client sends again
//! unchanged. User messages are kept verbatim.

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use dialects::json::{BodyEdit, range_of};
use dialects::{RequestTarget, responses::ResponsesDialect};
use memchr::memmem;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::sync::Arc;

use super::conversation::Conversation;
use crate::json_object::{parse_object, set_fields};
use crate::request::ApiRequest;
use relay::json_response;
use relay::{self, Call};

/// Type of the item that carries a summary.
pub(super) const ITEM_TYPE: &str = "compaction";
const SUMMARY_PREFIX: &str = "portunus:1:";
const MAX_SUMMARY_BYTES: usize = 8 << 20;
const SUMMARY_PROMPT: &str = "Summarise our conversation so far, so that you could go on from your summary \
    alone: what I want, what was decided, what was found out and done, what is still open. Keep \
    names, numbers, paths and code that matter. Answer with the summary only.";

pub(crate) async fn compact(incoming: ApiRequest) -> Result<Response, ApiError> {
    let state = Arc::clone(&incoming.state);
    let mut call =
        Call::read(incoming.into_call(), &ResponsesDialect, RequestTarget::default()).await?;
    let (body, text) = call
        .work_permit()
        .await
        .run(|| {
            let mut body: Map<String, Value> =
                dialects::json::read_bytes(&call.body).map_err(|e| {
                    ApiError::invalid("", format!("the body is not a JSON object: {e}"))
                })?;
            set_fields(&mut body, [("store", Value::Bool(true))]);
            let text = Value::from(body.clone()).to_string();
            body.retain(|name, _| matches!(name.as_str(), "model" | "instructions"));
            Ok::<_, ApiError>((body, text))
        })
        .await?;
    call.body = Bytes::from(text);
    let Conversation { items, .. } = Conversation::load(&state, &mut call, None).await?;
    if items.is_empty() {
        return Err(ApiError::invalid("input", "`input` holds nothing to compact"));
    }
    let (request, users) = call.work_permit().await.run(|| summary_request(&body, items)).await;
    call.body = request;
    call.edits.clear();
    let request_bytes = call.body.len();
    let id = call.id.trim_start_matches("req_").to_owned();
    let created = state.clock().now().as_secs();
    let reply = relay::serve(call).await?.into_response();
    let (head, reply) = reply.into_parts();
    let reply = axum::body::to_bytes(reply, MAX_SUMMARY_BYTES)
        .await
        .map_err(|e| ApiError::internal(format!("a summary could not be read back: {e}")))?;
    let reply = parse_object(&reply);
    let summary = output_text(&reply);
    if summary.is_empty() {
        return Err(ApiError::new(ErrorKind::Unavailable, "the model gave no summary, retry"));
    }
    let mut output = users;
    output.push(json!({
        "type": ITEM_TYPE,
        "id": format!("cmp_{id}"),
        "encrypted_content": format!("{SUMMARY_PREFIX}{}", STANDARD.encode(summary)),
    }));
    let permit = state.engine.heavy_work.permit(request_bytes).await;
    let compaction = permit
        .run(|| {
            let compaction = json!({
                "id": format!("resp_{id}"),
                "object": "response.compaction",
                "created_at": created,
                "output": output,
                "usage": reply.get("usage"),
            });
            compaction.to_string()
        })
        .await;
    let mut response = json_response(Body::from(compaction));
    for (name, value) in &head.headers {
        if name.as_str().starts_with("x-portunus-") {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    Ok(response)
}

/// Returns the request for a summary of these items, and those of the user.
fn summary_request(body: &Map<String, Value>, mut items: Vec<Value>) -> (Bytes, Vec<Value>) {
    let users = items.iter().filter(|item| field_is(item, "role", "user")).cloned().collect();
    items.push(json!({
        "type": "message", "role": "user", "content": [{ "type": "input_text", "text": SUMMARY_PROMPT }],
    }));
    let mut request = json!({
        "model": body.get("model"),
        "instructions": body.get("instructions"),
        "input": null,
        "store": false,
    });
    // Moved, not copied: a conversation may have tens of megabytes.
    if let Some(input) = request.get_mut("input") {
        *input = Value::from(items);
    }
    (Bytes::from(request.to_string()), users)
}

fn field_is(item: &Value, name: &str, word: &str) -> bool {
    item.get(name).and_then(Value::as_str) == Some(word)
}

fn output_text(reply: &Map<String, Value>) -> String {
    let list = |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let parts = list(reply.get("output")).into_iter().flat_map(|item| list(item.get("content")));
    parts.filter_map(|part| part.get("text")?.as_str().map(str::to_owned)).collect()
}

/// Replaces the gateway's own summary items by readable messages. Items of other origin stay
/// unchanged.
pub(super) fn expand_summaries(items: &mut [Value]) {
    for item in items {
        if let Some(message) = summary_message(item) {
            *item = message;
        }
    }
}

/// Returns edits of a request that replace the gateway's own summary items in its input by readable
/// messages.
pub(super) fn summary_edits(text: &str, input: Option<&RawValue>) -> Vec<BodyEdit> {
    let items = input.and_then(|input| dialects::json::read::<Vec<&RawValue>>(input.get()).ok());
    let edit = |raw: &RawValue| {
        // Items without the word are not parsed.
        memmem::find(raw.get().as_bytes(), SUMMARY_PREFIX.as_bytes())?;
        let message = summary_message(&dialects::json::read(raw.get()).ok()?)?;
        Some(BodyEdit { range: range_of(text, raw), replacement: message.to_string().into() })
    };
    items.into_iter().flatten().filter_map(edit).collect()
}

/// Returns the readable message of an item that carries a summary of the gateway.
fn summary_message(item: &Value) -> Option<Value> {
    let sealed = item.get("encrypted_content").filter(|_| field_is(item, "type", ITEM_TYPE));
    let sealed = sealed.and_then(Value::as_str)?.strip_prefix(SUMMARY_PREFIX)?;
    let summary = String::from_utf8(STANDARD.decode(sealed).ok()?).ok()?;
    let text = format!("Summary of the conversation so far:\n{summary}");
    Some(json!({
        "type": "message", "role": "developer",
        "content": [{ "type": "input_text", "text": text }],
    }))
}
