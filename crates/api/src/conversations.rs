//! `/v1/conversations`: <https://developers.openai.com/api/reference/resources/conversations>. The gateway
//! keeps them itself, so that they work with any provider.

use axum::response::Response;
use canon::{ApiError, ErrorKind, Micros};
use dialects::responses::ResponsesDialect;
use dialects::{Dialect as _, RequestTarget};
use relay::{Call, json_response};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{
    ConversationItem, ConversationLimits, ItemAdmission, ItemPage, ObjectOwner, StoredConversation,
};

use crate::json_object::set_fields;
use crate::query::{percent_decode, query_pairs};
use crate::request::ApiRequest;
use crate::responses::{
    KeptItemIds, complete_item, conversation_not_found, conversations_unavailable, shown_item,
};
use crate::state::ApiState;

/// Items that one request may add.
const MAX_NEW_ITEMS: usize = 20;
/// Bytes of all conversations of a key, as a multiple of the largest body.
const MAX_BODIES: u64 = 32;
const USUAL_PAGE: u64 = 20;
const MAX_PAGE: u64 = 100;

/// A conversation named in a request, and the owner whose conversations the caller may see.
struct ConversationLookup {
    state: Arc<ApiState>,
    owner: ObjectOwner,
    id: String,
    /// Item named in the path.
    item: String,
    query: Vec<(String, String)>,
}

impl ConversationLookup {
    fn new(incoming: &ApiRequest) -> Self {
        let rest = incoming.request.path().strip_prefix("/v1/conversations/").unwrap_or_default();
        let mut parts = rest.split('/');
        let id = percent_decode(parts.next().unwrap_or_default());
        Self {
            state: Arc::clone(&incoming.state),
            owner: incoming.key.object_owner(),
            id,
            item: percent_decode(parts.nth(1).unwrap_or_default()),
            query: query_pairs(incoming.request.query()),
        }
    }

    async fn find(&self) -> Result<StoredConversation, ApiError> {
        let now = self.state.clock().now();
        let found = self.state.store.conversation(&self.id, &self.owner, now).await;
        let found = found.map_err(conversations_unavailable)?;
        found.ok_or_else(|| conversation_not_found(&self.id))
    }

    /// Returns the conversation with the time until which it is kept after a change.
    async fn find_for_change(&self) -> Result<StoredConversation, ApiError> {
        let expires = expiry(&self.state);
        Ok(StoredConversation { expires, ..self.find().await? })
    }

    fn item_not_found(&self, item: &str) -> ApiError {
        let shown: String = item.chars().filter(|c| !c.is_control()).take(64).collect();
        let message = format!("Item with id '{shown}' not found in conversation '{}'.", self.id);
        ApiError::new(ErrorKind::NotFound, message)
    }
}

fn expiry(state: &ApiState) -> Micros {
    state.clock().now() + Micros::from(state.config().conversation_retention)
}

fn limits(call: &Call) -> ConversationLimits {
    let body = call.config.max_body_bytes as u64;
    ConversationLimits { bytes: body, key_bytes: body.saturating_mul(MAX_BODIES) }
}

/// Body of a request, which is checked.
struct ConversationBody {
    items: Vec<Value>,
    /// `None` if the field is absent.
    metadata: Option<Map<String, Value>>,
}

/// Reads the body of a request. Items and metadata obey the rules of `POST /v1/responses`.
async fn read_fields(call: &Call) -> Result<ConversationBody, ApiError> {
    call.work_permit().await.run(|| parse_fields(&call.body)).await
}

fn parse_fields(body: &[u8]) -> Result<ConversationBody, ApiError> {
    let mut fields: Map<String, Value> = dialects::json::read_bytes(body).map_err(|error| {
        ApiError::invalid("", format!("the body is not a JSON object: {error}"))
    })?;
    let items = match fields.shift_remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return Err(ApiError::invalid("items", "`items` must be a list")),
    };
    if items.len() > MAX_NEW_ITEMS {
        let message = format!("`items` may have {MAX_NEW_ITEMS} items at a time");
        return Err(ApiError::invalid("items", message));
    }
    for (at, item) in items.iter().enumerate() {
        let path = format!("items[{at}]");
        if item.get("type").and_then(Value::as_str) == Some("item_reference") {
            let message = format!("`{path}` must be the item itself, not a reference to one");
            return Err(ApiError::invalid(path, message));
        }
        let is_id = |id: &Value| id.as_str().is_some_and(|id| (1..=256).contains(&id.len()));
        if item.get("id").is_some_and(|id| !id.is_null() && !is_id(id)) {
            let message = format!("`{path}.id` must be a string of 1 to 256 bytes");
            return Err(ApiError::invalid(format!("{path}.id"), message));
        }
    }
    let metadata = fields.shift_remove("metadata");
    let input = if items.is_empty() { "-".into() } else { Value::from(items) };
    let mut request = Map::new();
    set_fields(
        &mut request,
        [
            ("model", "m".into()),
            ("conversation", "c".into()),
            ("input", input),
            ("metadata", metadata.clone().unwrap_or_default()),
        ],
    );
    let request = Value::from(request);
    let checked = ResponsesDialect
        .read_facts(&RequestTarget::default(), request.to_string().as_bytes())
        .map(|_| ());
    checked.map_err(|error| match error.param() {
        Some(path) if path.starts_with("input") => {
            let own = path.replacen("input", "items", 1);
            let message = error.message().replace(path, &own);
            error.with_message(message).with_param(own)
        }
        Some(_) | None => error,
    })?;
    let items = match request {
        Value::Object(mut request) => request.shift_remove("input").unwrap_or_default(),
        _ => Value::Null,
    };
    let items = match items {
        Value::Array(items) => items,
        _ => Vec::new(),
    };
    let metadata = metadata.map(|metadata| match metadata {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    });
    Ok(ConversationBody { items, metadata })
}

fn kept_items(call: &Call, items: Vec<Value>) -> Vec<ConversationItem> {
    let mut ids = KeptItemIds::new(&call.id);
    let keep = |mut item: Value| {
        let id = complete_item(&mut item, &mut ids);
        ConversationItem { id, body: item.to_string() }
    };
    items.into_iter().map(keep).collect()
}

fn check_added(added: ItemAdmission, lookup: &str) -> Result<(), ApiError> {
    Err(match added {
        ItemAdmission::Added => return Ok(()),
        ItemAdmission::NotFound => conversation_not_found(lookup),
        ItemAdmission::Duplicate(id) => {
            let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
            ApiError::invalid("items", format!("the conversation has an item `{shown}` already"))
        }
        ItemAdmission::TooLarge => ApiError::new(
            ErrorKind::BodyTooLarge,
            "the conversation would be larger than a request may be; begin another one",
        ),
        ItemAdmission::KeyFull => {
            let message = "this API key keeps as many conversations as it may; delete some";
            ApiError::new(ErrorKind::RateLimited, message)
                .with_code("too_many_conversations")
                .without_retry()
        }
    })
}

async fn read_call(incoming: ApiRequest) -> Result<Box<Call>, ApiError> {
    Call::read(incoming.into_call(), &ResponsesDialect, RequestTarget::default()).await
}

/// Begins a conversation.
pub(super) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let state = Arc::clone(&incoming.state);
    let call = read_call(incoming).await?;
    let ConversationBody { items, metadata } = read_fields(&call).await?;
    let conversation = StoredConversation {
        id: format!("conv_{}", call.reply_stamp().id),
        account_id: call.key.record.account_id.clone(),
        key_id: call.key.record.id.clone(),
        metadata: Value::from(metadata.unwrap_or_default()).to_string(),
        bytes: 0,
        created: state.clock().now(),
        expires: expiry(&state),
    };
    let items = call.work_permit().await.run(|| kept_items(&call, items)).await;
    let added = state.store.add_conversation(&conversation, &items, limits(&call)).await;
    check_added(added.map_err(conversations_unavailable)?, &conversation.id)?;
    Ok(conversation_response(&conversation))
}

pub(super) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let found = ConversationLookup::new(&incoming).find().await?;
    Ok(conversation_response(&found))
}

/// Replaces the metadata of a conversation.
pub(super) async fn update(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ConversationLookup::new(&incoming);
    let call = read_call(incoming).await?;
    let ConversationBody { metadata, .. } = read_fields(&call).await?;
    let metadata =
        metadata.ok_or_else(|| ApiError::invalid("metadata", "`metadata` is missing"))?;
    let mut conversation = lookup.find_for_change().await?;
    conversation.metadata = Value::from(metadata).to_string();
    let now = lookup.state.clock().now();
    let store = &lookup.state.store;
    let changed = store.set_conversation_metadata(&conversation, &lookup.owner, now).await;
    if !changed.map_err(conversations_unavailable)? {
        return Err(conversation_not_found(&lookup.id));
    }
    Ok(conversation_response(&conversation))
}

pub(super) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ConversationLookup::new(&incoming);
    let ConversationLookup { state, owner, id, .. } = &lookup;
    let dropped = state.store.drop_conversation(id, owner, state.clock().now()).await;
    if !dropped.map_err(conversations_unavailable)? {
        return Err(conversation_not_found(id));
    }
    let body = json!({ "id": id, "object": "conversation.deleted", "deleted": true });
    Ok(json_response(body.to_string()))
}

/// Adds items to a conversation.
pub(super) async fn add_items(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ConversationLookup::new(&incoming);
    let call = read_call(incoming).await?;
    let ConversationBody { items, .. } = read_fields(&call).await?;
    if items.is_empty() {
        return Err(ApiError::invalid("items", "`items` must have at least one item"));
    }
    let conversation = lookup.find_for_change().await?;
    let items = call.work_permit().await.run(|| kept_items(&call, items)).await;
    let (store, now) = (&lookup.state.store, lookup.state.clock().now());
    let limits = Some(limits(&call));
    let added = store.append_items(&conversation, &lookup.owner, &items, limits, now).await;
    check_added(added.map_err(conversations_unavailable)?, &lookup.id)?;
    Ok(list_response(&items, false))
}

/// Lists the items of a conversation, the newest first by default.
pub(super) async fn list_items(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ConversationLookup::new(&incoming);
    let mut page = ItemPage { after: None, ascending: false, limit: USUAL_PAGE };
    for (name, value) in &lookup.query {
        match (name.as_str(), value.as_str()) {
            ("order", "asc") => page.ascending = true,
            ("order", "desc") => page.ascending = false,
            ("order", _) => {
                return Err(ApiError::invalid("order", "`order` must be `asc` or `desc`"));
            }
            ("limit", text) => match text.parse() {
                Ok(count @ 1..=MAX_PAGE) => page.limit = count,
                _ => return Err(ApiError::invalid("limit", "`limit` must be between 1 and 100")),
            },
            ("after", after) => page.after = Some(after),
            _ => {}
        }
    }
    let conversation = lookup.find().await?;
    let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
    // One more tells whether there are more.
    page.limit += 1;
    let items = lookup.state.store.list_items(&conversation, page).await;
    let items = items.map_err(conversations_unavailable)?;
    let missing = || lookup.item_not_found(page.after.unwrap_or_default()).with_param("after");
    let mut items = items.ok_or_else(missing)?;
    let has_more = items.len() > limit;
    items.truncate(limit);
    Ok(list_response(&items, has_more))
}

pub(super) async fn get_item(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ConversationLookup::new(&incoming);
    let conversation = lookup.find().await?;
    let item = lookup.state.store.conversation_item(&conversation, &lookup.item).await;
    let item = item.map_err(conversations_unavailable)?;
    let item = item.ok_or_else(|| lookup.item_not_found(&lookup.item))?;
    Ok(json_response(shown_item(&item.body).to_string()))
}

/// Deletes an item and returns its conversation.
pub(super) async fn delete_item(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = ConversationLookup::new(&incoming);
    let conversation = lookup.find().await?;
    let dropped = lookup.state.store.drop_item(&conversation, &lookup.item).await;
    if !dropped.map_err(conversations_unavailable)? {
        return Err(lookup.item_not_found(&lookup.item));
    }
    Ok(conversation_response(&conversation))
}

fn conversation_response(conversation: &StoredConversation) -> Response {
    let metadata: Value = dialects::json::read(&conversation.metadata).unwrap_or_default();
    let body = json!({
        "id": conversation.id,
        "object": "conversation",
        "created_at": conversation.created.as_secs(),
        "metadata": metadata,
    });
    json_response(body.to_string())
}

fn list_response(items: &[ConversationItem], has_more: bool) -> Response {
    let data: Vec<Value> = items.iter().map(|item| shown_item(&item.body)).collect();
    let body = json!({
        "object": "list",
        "data": data,
        "first_id": items.first().map(|item| &item.id),
        "last_id": items.last().map(|item| &item.id),
        "has_more": has_more,
    });
    json_response(body.to_string())
}
