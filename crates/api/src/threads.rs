//! Threads of the messages format. The caller sends only new messages, and the gateway inserts the
//! stored conversation before them. This works with any provider.
use transport::ServerReply;

use access::keys::ApiKey;
use bytes::Bytes;
use canon::{ApiError, ChatRequest, Event, Micros, ReplyBuilder};
use dialects::messages::MessagesDialect;
use dialects::{Dialect as _, InsertedItems, ReplyStamp, StreamFrame, StreamReader};
use memchr::memmem::Finder;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};
use store::StoredResponse;

use super::observe::observe_response;
use crate::json_object::{parse_object, set_fields, text_field};
use crate::state::ApiState;
use relay::{self, Call};

/// Error code on which clients send their whole history instead.
const UNSUPPORTED_CODE: &str = "thread_unsupported_request";
/// Error code on which they do that under a new thread.
const NOT_FOUND_CODE: &str = "thread_not_found";
/// The name of the field, compiled once because most requests lack it.
static THREAD_FIELD: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"thread\""));

/// A conversation that is continued.
pub(super) struct MessageThread {
    state: Arc<ApiState>,
    key: Arc<ApiKey>,
    /// The request with the stored conversation.
    request: Bytes,
    chat: ChatRequest,
    stamp: ReplyStamp,
    /// Stored messages before those of the caller.
    inserted: InsertedItems,
}

/// Returns false for a body without a `thread` field. A letter of the name may be escaped.
pub(super) fn may_name_thread(body: &[u8]) -> bool {
    THREAD_FIELD.find(body).is_some() || dialects::has_escaped_letter(body)
}

/// Reads the `thread` field of a request and inserts the stored conversation; `None` if absent.
pub(super) async fn open_thread(
    state: &Arc<ApiState>,
    call: &mut Call,
) -> Result<Option<MessageThread>, ApiError> {
    // An unreadable body is refused later by the rules of its format, which name the path.
    let Ok(Value::Object(mut body)) =
        call.work_permit().await.run(|| dialects::json::read_bytes(&call.body)).await
    else {
        return Ok(None);
    };
    let Some(thread) = body.shift_remove("thread").filter(|thread| !thread.is_null()) else {
        return Ok(None);
    };
    call.work_permit().await.run(|| call.dialect.read_facts(&call.target, &call.body)).await?;
    let mut conversation_bytes = call.body.len();
    let mut stored_messages = 0;
    let word = |name: &str| thread.get(name).and_then(Value::as_str);
    match word("type") {
        Some("create") => {}
        Some("continue") => {
            let id = word("previous_message_id").unwrap_or_default();
            let owner = call.key.object_owner();
            let stored = state.stored_answers.get(id, &owner, state.clock().now()).await;
            // The client can still continue by sending the whole conversation.
            let stored = stored.map_err(|error| {
                error.with_param("thread.previous_message_id").with_code(NOT_FOUND_CODE)
            })?;
            let size = stored.request.len() + stored.reply.len() + call.body.len();
            let permit = call.permit_for(size).await;
            (body, stored_messages) = permit.run(|| continue_conversation(&stored, body)).await;
            conversation_bytes = size;
        }
        _ => {
            return Err(ApiError::invalid(
                "thread.type",
                "`thread.type` must be `create` or `continue`",
            )
            .with_code(UNSUPPORTED_CODE));
        }
    }
    let permit = call.permit_for(conversation_bytes).await;
    call.body = permit.run(|| Bytes::from(Value::Object(body).to_string())).await;
    let chat = call
        .work_permit()
        .await
        .run(|| call.dialect.read_request(&call.target, &call.body))
        .await?;
    Ok(Some(MessageThread {
        state: Arc::clone(state),
        key: Arc::clone(&call.key),
        request: call.body.clone(),
        chat,
        stamp: call.reply_stamp(),
        inserted: InsertedItems {
            list: "messages",
            source: "thread.previous_message_id",
            count: stored_messages,
        },
    }))
}

/// Returns the stored conversation, its answer and the new messages, and the number of those before. Fields the new request leaves
/// out keep their values.
fn continue_conversation(
    stored: &StoredResponse,
    mut new: Map<String, Value>,
) -> (Map<String, Value>, usize) {
    let before = parse_object(&stored.request);
    let reply = parse_object(&stored.reply);
    let mut messages = match before.get("messages") {
        Some(Value::Array(messages)) => messages.clone(),
        _ => Vec::new(),
    };
    messages.push(json!({ "role": "assistant", "content": reply.get("content") }));
    let inserted = messages.len();
    if let Some(Value::Array(more)) = new.shift_remove("messages") {
        messages.extend(more);
    }
    for (name, value) in &before {
        if name != "stream" {
            new.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    new.insert("messages".to_owned(), Value::Array(messages));
    (new, inserted)
}

impl MessageThread {
    /// Serves the call. An error names the caller's own field.
    pub(super) async fn serve(self, call: Box<Call>) -> Result<ServerReply, ApiError> {
        let inserted = self.inserted;
        let served = relay::serve(call).await;
        let response = served.map_err(|error| inserted.restore_path(error))?;
        self.record_response(response).await
    }

    fn store_reply(&self, reply: Map<String, Value>) {
        let id = text_field(&reply, "id").to_owned();
        if id.is_empty() {
            return;
        }
        let now = self.state.clock().now();
        let retention = Micros::from(self.state.config().answer_retention);
        let request = store::run_in_place(self.request.len(), || {
            String::from_utf8_lossy(&self.request).into_owned()
        });
        self.state.stored_answers.put(StoredResponse {
            id,
            account_id: self.key.record.account_id.clone(),
            key_id: Some(self.key.record.id.clone()),
            request,
            reply: Value::from(reply).to_string(),
            created: now,
            expires: now + retention,
        });
    }

    /// Stores the answer before the caller receives its last byte.
    async fn record_response(self, response: ServerReply) -> Result<ServerReply, ApiError> {
        let state = Arc::clone(&self.state);
        let recorder = ThreadRecorder {
            reader: MessagesDialect.stream_reader(),
            events: Vec::new(),
            thread: Some(self),
        };
        let whole = |recorder: &mut ThreadRecorder, body: &[u8]| {
            if let Some(thread) = recorder.thread.take() {
                thread.store_reply(parse_object(body));
            }
        };
        let work = &state.engine.heavy_work;
        observe_response(work, response, recorder, whole, ThreadRecorder::record_event).await
    }
}

/// Reassembles a streamed answer while it is sent.
struct ThreadRecorder {
    reader: Box<dyn StreamReader>,
    events: Vec<Event>,
    thread: Option<MessageThread>,
}

impl ThreadRecorder {
    fn record_event(&mut self, frame: &StreamFrame) {
        if self.thread.is_some() && self.reader.push(frame, &mut self.events).is_err() {
            self.thread = None;
        }
        if self.reader.is_done()
            && let Some(thread) = self.thread.take()
        {
            let mut fold = ReplyBuilder::default();
            for event in self.events.drain(..) {
                if fold.push(event).is_err() {
                    return;
                }
            }
            let reply = fold.finish();
            let id = reply.id.clone();
            let (body, _) = MessagesDialect.write_reply(reply, &thread.chat, &thread.stamp);
            let mut message = parse_object(body);
            if let Some(id) = id {
                set_fields(&mut message, [("id", Value::from(id))]);
            }
            thread.store_reply(message);
        }
    }
}
