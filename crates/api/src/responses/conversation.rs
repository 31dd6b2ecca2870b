//! The conversation a request goes on from, put before its own input.

use bytes::Bytes;
use canon::ApiError;
use dialects::json::{BodyEdit, BodySegments, range_of};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::compact;
use crate::state::ApiState;
use relay::Call;

/// What a request says of memory.
pub(super) struct Conversation {
    /// Whether the answer is kept.
    pub(super) store: bool,
    /// Whether the call runs on without the caller waiting.
    pub(super) background: bool,
    /// The whole input, kept answers included.
    pub(super) items: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct ConversationFields<'a> {
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    previous_response_id: Option<&'a RawValue>,
    #[serde(default)]
    store: Option<bool>,
    #[serde(default)]
    background: Option<bool>,
}

impl Conversation {
    /// Reads what the request says and puts the earlier conversation into it.
    pub(super) async fn load(state: &ApiState, call: &mut Call) -> Result<Self, ApiError> {
        // What cannot be read is refused by the format's own rules, with the path named.
        let text = String::from_utf8_lossy(&call.body).into_owned();
        let Ok(head) = serde_json::from_str::<ConversationFields<'_>>(&text) else {
            return Ok(Self { store: false, background: false, items: Vec::new() });
        };
        let store = head.store.unwrap_or(true);
        let background = head.background.unwrap_or(false);
        if background && !store {
            return Err(ApiError::invalid("background", "`background` needs `store` to be true"));
        }
        let previous = head.previous_response_id.filter(|raw| raw.get() != "null");
        let compacted = memmem::find(text.as_bytes(), compact::ITEM_TYPE.as_bytes()).is_some();
        if !store && previous.is_none() && !compacted {
            return Ok(Self { store, background, items: Vec::new() });
        }
        let mut items = request_items(head.input);
        if compacted {
            compact::expand_summaries(&mut items);
        }
        if let Some(raw) = previous {
            let id: String = serde_json::from_str(raw.get()).map_err(|_| {
                ApiError::invalid("previous_response_id", "`previous_response_id` must be a string")
            })?;
            let account = &call.key.record.account_id;
            let now = state.clock().now();
            let kept = state.stored_answers.get(&id, account, now).await.map_err(|fault| {
                fault.with_param("previous_response_id").with_code("previous_response_not_found")
            })?;
            let mut before = previous_items(&kept.request, &kept.reply);
            before.append(&mut items);
            items = before;
        }
        if previous.is_some() || compacted {
            rewrite_input(call, &text, &head, &items);
            // Written by us, so that it tells which answer it goes on from.
            call.rewrite_reply = previous.is_some();
        }
        Ok(Self { store, background, items })
    }
}

/// The request's own input as a list; a plain text is one message.
fn request_items(input: Option<&RawValue>) -> Vec<Value> {
    match input.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
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

/// A message whose content is a plain text, as a list of parts: the form every item is kept in.
fn expand_content(item: &mut Value) {
    let Some(item) = item.as_object_mut() else { return };
    let kind = if item.get("role").and_then(Value::as_str) == Some("assistant") {
        "output_text"
    } else {
        "input_text"
    };
    if let Some(content @ Value::String(_)) = item.get_mut("content") {
        let text = content.take();
        *content = match kind {
            "output_text" => json!([{ "type": kind, "text": text, "annotations": [] }]),
            _ => json!([{ "type": kind, "text": text }]),
        };
    }
}

/// The conversation up to a kept answer, and the answer.
fn previous_items(request: &str, reply: &str) -> Vec<Value> {
    let list = |text: &str, name: &str| -> Vec<Value> {
        let mut value: Value = serde_json::from_str(text).unwrap_or_default();
        match value.get_mut(name).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    };
    let mut items = list(request, "input");
    items.extend(list(reply, "output"));
    items
}

/// Puts the whole input in place of the request's own. A provider that keeps conversations itself
/// must not look for the earlier one a second time.
fn rewrite_input(call: &mut Call, text: &str, head: &ConversationFields<'_>, items: &[Value]) {
    let whole = Bytes::from(Value::from(items.to_vec()).to_string());
    let range = match head.input {
        Some(raw) => range_of(text, raw),
        None => {
            let open = text.find('{').map_or(0, |at| at + 1);
            open..open
        }
    };
    let replacement = if head.input.is_some() {
        whole
    } else {
        Bytes::from([b"\"input\":", &whole[..], b","].concat())
    };
    let body = BodySegments::with_edits(&call.body, vec![BodyEdit { range, replacement }]).to_vec();
    call.body = Bytes::from(body);
    let text = String::from_utf8_lossy(&call.body).into_owned();
    if let Ok(ConversationFields { previous_response_id: Some(raw), .. }) =
        serde_json::from_str::<ConversationFields<'_>>(&text)
    {
        call.edits.push(BodyEdit {
            range: range_of(&text, raw),
            replacement: Bytes::from_static(b"null"),
        });
    }
}
