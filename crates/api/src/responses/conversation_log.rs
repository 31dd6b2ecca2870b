//! The conversation that a call belongs to: its items go before the input, and input and output are added
//! to it when the response is complete.

use axum::body::Body;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros};
use dialects::responses::ResponsesDialect;
use dialects::{PassThrough as _, SseDecoder};
use http_body::{Body as HttpBody, Frame};
use serde_json::Value;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use store::{ConversationItem, ItemAdmission, ObjectOwner, StoreError, StoredConversation};
use tokio::task::JoinHandle;
use transport::{ServerBody, ServerReply};

use super::items::{KeptItemIds, complete_item, sent_item};
use super::recorder::final_response;
use crate::state::ApiState;
use relay::Call;

/// Largest answer that is read as a whole.
const MAX_WHOLE_BYTES: usize = 64 << 20;

/// The conversation of a call.
#[derive(Clone)]
pub(super) struct ConversationLog {
    state: Arc<ApiState>,
    owner: ObjectOwner,
    stored: Arc<StoredConversation>,
    request_id: Arc<str>,
    /// Input of the call.
    input: Arc<Vec<Value>>,
}

/// Returns the conversation that a call names, and its items.
pub(super) async fn find(
    state: &Arc<ApiState>,
    call: &Call,
    id: &str,
) -> Result<(ConversationLog, Vec<Value>), ApiError> {
    let (owner, now) = (call.key.object_owner(), state.clock().now());
    let found = state.store.conversation(id, &owner, now).await;
    let found = found.map_err(store_unavailable)?;
    let stored = found.ok_or_else(|| not_found(id).with_param("conversation"))?;
    // The size is known before the items are read, so that what does not fit is not read.
    call.reserve_content(usize::try_from(stored.bytes).unwrap_or(usize::MAX))?;
    let items = state.store.all_items(&stored).await.map_err(store_unavailable)?;
    let bytes = items.iter().map(|item| item.body.len()).sum();
    let read = || items.iter().map(|item| sent_item(&item.body)).collect();
    let items = call.permit_for(bytes).await.run(read).await;
    let log = ConversationLog {
        state: Arc::clone(state),
        owner,
        stored: Arc::new(stored),
        request_id: Arc::clone(&call.id),
        input: Arc::default(),
    };
    Ok((log, items))
}

impl ConversationLog {
    /// Returns the size of the items.
    pub(super) fn bytes(&self) -> usize {
        usize::try_from(self.stored.bytes).unwrap_or(usize::MAX)
    }

    /// Sets the input of the call.
    pub(super) fn set_input(&mut self, input: Vec<Value>) {
        self.input = Arc::new(input);
    }

    /// Adds input and output of a response, unless it failed. It goes on if the caller leaves.
    pub(super) fn append(&self, reply: &str) -> JoinHandle<Result<(), ApiError>> {
        let (log, reply) = (self.clone(), reply.to_owned());
        self.state.engine.tasks.spawn(async move { log.append_now(&reply).await })
    }

    async fn append_now(&self, reply: &str) -> Result<(), ApiError> {
        let mut ids = KeptItemIds::new(&self.request_id);
        let Some(mut items) = self.new_items(reply, &mut ids) else { return Ok(()) };
        let (now, retention) =
            (self.state.clock().now(), self.state.config().conversation_retention);
        let expires = now + Micros::from(retention);
        let stored = StoredConversation { expires, ..(*self.stored).clone() };
        let store = &self.state.store;
        // Every repetition gives one more item an id of its own.
        for _ in 0..=items.len() {
            let texts: Vec<ConversationItem> = items
                .iter()
                .map(|(id, item)| ConversationItem { id: id.clone(), body: item.to_string() })
                .collect();
            let added = store.append_items(&stored, &self.owner, &texts, None, now).await;
            match added.map_err(store_unavailable)? {
                ItemAdmission::Duplicate(id) => {
                    let repeated = items.iter_mut().rev().find(|(own, _)| *own == id);
                    let Some((own, item)) = repeated else { break };
                    *own = ids.next_id(item);
                    if let Some(fields) = item.as_object_mut() {
                        fields.insert("id".to_owned(), own.as_str().into());
                    }
                }
                // The owner has deleted the conversation in the meantime.
                ItemAdmission::NotFound => return Ok(()),
                ItemAdmission::Added | ItemAdmission::TooLarge | ItemAdmission::KeyFull => {
                    return Ok(());
                }
            }
        }
        Err(ApiError::internal("the items of a conversation have no ids of their own"))
    }

    /// Returns input and output with their ids; `None` if the response failed.
    fn new_items(&self, reply: &str, ids: &mut KeptItemIds) -> Option<Vec<(String, Value)>> {
        let mut reply: Value = dialects::json::read(reply).ok()?;
        let status = reply.get("status").and_then(Value::as_str);
        if !matches!(status, Some("completed" | "incomplete")) {
            return None;
        }
        let output = reply.get_mut("output").map(Value::take);
        let Some(Value::Array(output)) = output else { return None };
        let complete = |mut item: Value| (complete_item(&mut item, ids), item);
        Some(self.input.iter().cloned().chain(output).map(complete).collect())
    }

    /// Adds the items of a reply before the caller receives its end.
    pub(super) async fn record(self, mut reply: ServerReply) -> Result<ServerReply, ApiError> {
        let streamed = reply
            .headers
            .get("content-type")
            .is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        let body = std::mem::take(&mut reply.body);
        if streamed {
            let cutter = SseDecoder::default();
            let body = LoggedBody { body, cutter, log: self, held: None, has_failed: false };
            reply.body = ServerBody::Stream(Body::new(body));
            return Ok(reply);
        }
        let body = axum::body::to_bytes(body.into_body(), MAX_WHOLE_BYTES)
            .await
            .map_err(|e| ApiError::internal(format!("an answer could not be read back: {e}")))?;
        if reply.status.is_success() {
            joined(self.append(&String::from_utf8_lossy(&body)).await)?;
        }
        reply.body = ServerBody::Whole(body);
        Ok(reply)
    }
}

/// Returns the result of a task.
pub(super) fn joined(
    result: Result<Result<(), ApiError>, tokio::task::JoinError>,
) -> Result<(), ApiError> {
    result.unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
}

/// A stream whose last event waits until the conversation has the items. If it cannot have them, the
/// stream ends with an error.
struct LoggedBody {
    body: ServerBody,
    cutter: SseDecoder,
    log: ConversationLog,
    /// Addition of the items, and the bytes that wait for it.
    held: Option<(JoinHandle<Result<(), ApiError>>, Bytes)>,
    has_failed: bool,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if this.has_failed {
            return Poll::Ready(None);
        }
        if this.held.is_none() {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
            let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
            let Ok(data) = frame.into_data() else { return Poll::Ready(None) };
            this.cutter.push(data.clone());
            while let Ok(Some(event)) = this.cutter.next_frame() {
                if let Some(reply) = final_response(&event.data) {
                    this.held = Some((this.log.append(reply), data.clone()));
                }
            }
            if this.held.is_none() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
        }
        let Some((task, data)) = &mut this.held else { return Poll::Ready(None) };
        let added = joined(ready!(Pin::new(task).poll(cx)));
        let mut data = std::mem::take(data);
        this.held = None;
        if let Err(error) = added {
            this.has_failed = true;
            data = ResponsesDialect.write_abort(&error, &this.log.request_id).into();
        }
        Poll::Ready(Some(Ok(Frame::data(data))))
    }
}

/// Returns the error of a conversation that the caller does not have.
pub(crate) fn not_found(id: &str) -> ApiError {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(ErrorKind::NotFound, format!("Conversation with id '{shown}' not found."))
}

/// Returns the error of a store that cannot be used.
pub(crate) fn store_unavailable(error: StoreError) -> ApiError {
    if let StoreError::Sealing(_) = &error {
        let message = "this conversation cannot be decrypted; ask the operator of the gateway";
        return ApiError::new(ErrorKind::Unavailable, message)
            .without_retry()
            .with_log_note(error.to_string());
    }
    let message = "conversations cannot be used at the moment, retry shortly";
    ApiError::new(ErrorKind::Overloaded, message).with_log_note(error.to_string())
}
