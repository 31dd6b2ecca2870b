//! The stored conversation a request continues, placed before the request's own input.

use bytes::Bytes;
use canon::{ApiError, SharedText};
use dialects::InsertedItems;
use dialects::json::{BodyEdit, BodySegments, range_of};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::sync::Arc;
use store::StoredResponse;

use super::compact;
use super::conversation_log::{self, ConversationLog};
use super::items::expand_content;
use crate::connection_answers::ConnectionAnswers;
use crate::state::ApiState;
use relay::Call;

/// Field that names a conversation.
const CONVERSATION: &str = "conversation";

/// Conversation fields of a request.
pub(super) struct Conversation {
    /// True if the answer is stored.
    pub(super) store: bool,
    /// True if the call runs in the background.
    pub(super) background: bool,
    /// The whole input, including stored answers.
    pub(super) items: Vec<Value>,
    /// Position of the request's own input in it.
    pub(super) offset: InputOffset,
    /// The conversation that the call belongs to.
    pub(super) log: Option<ConversationLog>,
}

/// Position of a request's own input behind the conversation that was inserted before it.
#[derive(Clone, Copy, Default)]
pub(super) struct InputOffset {
    inserted: usize,
    /// True if the request's own input is a plain text.
    is_text: bool,
    /// True if the inserted items are those of `conversation`.
    is_conversation: bool,
}

impl InputOffset {
    /// Returns an error with the path in the request's own input.
    pub(super) fn restore_path(self, error: ApiError) -> ApiError {
        let source = if self.is_conversation { CONVERSATION } else { "previous_response_id" };
        let list = "input";
        let error = InsertedItems { list, source, count: self.inserted }.restore_path(error);
        let path = error.param().filter(|_| self.inserted > 0 && self.is_text).unwrap_or_default();
        if !path.starts_with("input[") {
            return error;
        }
        let message = error.message().replace(path, list);
        error.with_message(message).with_param(list)
    }
}

#[derive(Default, Deserialize)]
struct ConversationFields<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    previous_response_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    conversation: Option<&'a RawValue>,
    #[serde(default)]
    store: Option<bool>,
    #[serde(default)]
    background: Option<bool>,
}

impl Conversation {
    /// Reads the fields of the request and inserts the previous conversation into it. See
    /// <https://platform.openai.com/docs/guides/conversation-state>.
    ///
    /// Answers of the caller's WebSocket are found before stored ones.
    pub(super) async fn load(
        state: &Arc<ApiState>,
        call: &mut Call,
        answers: Option<&Arc<ConnectionAnswers>>,
    ) -> Result<Self, ApiError> {
        // The rules of the format refuse an unreadable body and name the path.
        let body = call.body.clone();
        let read = || {
            let text = std::str::from_utf8(&body).ok()?;
            let head: ConversationFields<'_> = dialects::json::read(text).ok()?;
            Some((text, head))
        };
        let Some((text, head)) = call.work_permit().await.run(read).await else {
            // A body that only the rules can read is refused too: a provider might find a conversation
            // in it.
            call.work_permit()
                .await
                .run(|| call.dialect.read_facts(&call.target, &call.body))
                .await?;
            return Err(ApiError::invalid("", "the body cannot be read"));
        };
        let store = head.store.unwrap_or(true);
        let background = head.background.unwrap_or(false);
        if background && !store {
            return Err(ApiError::invalid("background", "`background` needs `store` to be true"));
        }
        let previous = head.previous_response_id.filter(|raw| raw.get() != "null");
        let named = head.conversation.filter(|raw| raw.get() != "null");
        if previous.is_some() && named.is_some() {
            let message = "`conversation` cannot be given with `previous_response_id`";
            return Err(ApiError::invalid(CONVERSATION, message));
        }
        // Most requests have none, and are not searched item by item.
        let summaries = match memmem::find(text.as_bytes(), compact::ITEM_TYPE.as_bytes()) {
            Some(_) => {
                call.work_permit().await.run(|| compact::summary_edits(text, head.input)).await
            }
            None => Vec::new(),
        };
        if !store && previous.or(named).is_none() && summaries.is_empty() && answers.is_none() {
            let offset = InputOffset::default();
            return Ok(Self { store, background, items: Vec::new(), offset, log: None });
        }
        let mut items = call
            .work_permit()
            .await
            .run(|| {
                let mut items = request_items(head.input);
                if !summaries.is_empty() {
                    compact::expand_summaries(&mut items);
                }
                items
            })
            .await;
        let is_text = head.input.is_some_and(|raw| raw.get().starts_with('"'));
        let mut offset = InputOffset { inserted: 0, is_text, is_conversation: named.is_some() };
        let mut conversation_bytes = text.len();
        if let Some(raw) = previous {
            let id: String = dialects::json::read(raw.get()).map_err(|_| {
                ApiError::invalid("previous_response_id", "`previous_response_id` must be a string")
            })?;
            let stored = match answers.and_then(|answers| answers.get(&id)) {
                Some(answer) => answer,
                None => stored_answer(state, call, &id).await?,
            };
            call.continued_session = Some(continued_session(&stored.request, &id));
            let stored_bytes = stored.request.len() + stored.reply.len();
            conversation_bytes += stored_bytes;
            let permit = call.permit_for(stored_bytes).await;
            let mut before = permit.run(|| previous_items(&stored.request, &stored.reply)).await;
            offset.inserted = before.len();
            before.append(&mut items);
            items = before;
        }
        let mut log = None;
        if let Some(raw) = named {
            let id = conversation_id(raw)?;
            call.continued_session = Some(id.as_str().into());
            let (mut found, mut before) = conversation_log::find(state, call, &id).await?;
            conversation_bytes += found.bytes();
            offset.inserted = before.len();
            found.set_input(items.clone());
            before.append(&mut items);
            (items, log) = (before, Some(found));
        }
        if previous.or(named).is_some() {
            let permit = call.permit_for(conversation_bytes).await;
            permit.run(|| rewrite_input(call, text, &head, &items)).await;
            // The gateway writes the reply itself, so that it names the previous response.
            call.rewrite_reply = true;
        } else if !summaries.is_empty() {
            // All other items keep the caller's bytes.
            let permit = call.work_permit().await;
            call.body = permit
                .run(|| BodySegments::with_edits(&call.body, summaries).to_vec().into())
                .await;
        }
        Ok(Self { store, background, items, offset, log })
    }
}

/// Returns the id of a conversation, which is named by its id or an object with it.
fn conversation_id(raw: &RawValue) -> Result<String, ApiError> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NamedConversation {
        Id(String),
        Object { id: String },
    }
    match dialects::json::read(raw.get()) {
        Ok(NamedConversation::Id(id) | NamedConversation::Object { id }) => Ok(id),
        Err(_) => {
            let message = "`conversation` must be a string or an object with an `id`";
            Err(ApiError::invalid(CONVERSATION, message))
        }
    }
}

async fn stored_answer(
    state: &ApiState,
    call: &Call,
    id: &str,
) -> Result<Arc<StoredResponse>, ApiError> {
    let (owner, now) = (call.key.object_owner(), state.clock().now());
    state.stored_answers.get(id, &owner, now).await.map_err(|error| {
        error.with_param("previous_response_id").with_code("previous_response_not_found")
    })
}

/// Returns the request's own input as a list. A plain text becomes one message.
fn request_items(input: Option<&RawValue>) -> Vec<Value> {
    match input.and_then(|raw| dialects::json::read(raw.get()).ok()) {
        Some(Value::String(text)) => vec![json!({
            "type": "message",
            "role": "user",
            "content": [{ "type": "input_text", "text": text }],
        })],
        Some(Value::Array(mut items)) => {
            items.iter_mut().for_each(expand_content);
            items
        }
        _ => Vec::new(),
    }
}

/// Returns the session of a stored response: the one of its call, or else its own id, which the calls after
/// it have in common.
fn continued_session(request: &str, id: &str) -> SharedText {
    #[derive(Deserialize)]
    struct StoredSession {
        session: String,
    }
    let stored: Option<StoredSession> = dialects::json::read(request).ok();
    stored.map_or_else(|| id.into(), |stored| stored.session.into())
}

/// Returns the input and the output of a stored response.
fn previous_items(request: &str, reply: &str) -> Vec<Value> {
    let list = |text: &str, name: &str| -> Vec<Value> {
        let mut value: Value = dialects::json::read(text).unwrap_or_default();
        match value.get_mut(name).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    };
    let mut items = list(request, "input");
    items.extend(list(reply, "output"));
    items
}

/// Replaces the request's input by the whole conversation. The previous id is removed, so that a
/// provider with its own storage does not add the conversation again.
fn rewrite_input(call: &mut Call, text: &str, head: &ConversationFields<'_>, items: &[Value]) {
    let input = Bytes::from(Value::from(items.to_vec()).to_string());
    let range = match head.input {
        Some(raw) => range_of(text, raw),
        None => {
            let open = text.find('{').map_or(0, |at| at + 1);
            open..open
        }
    };
    let replacement = if head.input.is_some() {
        input
    } else {
        Bytes::from([b"\"input\":", &input[..], b","].concat())
    };
    let body = BodySegments::with_edits(&call.body, vec![BodyEdit { range, replacement }]).to_vec();
    call.body = Bytes::from(body);
    if let Ok(text) = std::str::from_utf8(&call.body)
        && let Ok(fields) = dialects::json::read::<ConversationFields<'_>>(text)
    {
        let ConversationFields { previous_response_id, conversation, .. } = fields;
        let edits = [previous_response_id, conversation].into_iter().flatten().map(|raw| {
            BodyEdit { range: range_of(text, raw), replacement: Bytes::from_static(b"null") }
        });
        let edits: Vec<BodyEdit> = edits.collect();
        call.edits.extend(edits);
    }
}
