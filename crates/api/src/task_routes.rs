//! `/v1/tasks` and `/v1/images/generations/{id}`: state and results of image tasks.

use axum::response::Response;
use canon::{ApiError, ErrorKind, Micros};
use http::header::{HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};
use std::sync::Arc;
use store::{ObjectOwner, StoreError, Task, TaskState};

use super::query::{percent_decode, query_pairs};
use crate::request::ApiRequest;
use crate::state::ApiState;
use crate::tasks::{poll_delay_s, task_json, unreadable_error};
use relay::json_response;

/// Task named in a request, and the owner whose tasks the caller may see.
struct TaskLookup {
    state: Arc<ApiState>,
    owner: ObjectOwner,
    id: String,
}

impl TaskLookup {
    fn from_request(incoming: ApiRequest) -> Self {
        let ApiRequest { state, key, request, .. } = incoming;
        let path = request.path();
        let rest = path.strip_prefix("/v1/tasks/");
        let rest = rest.or_else(|| path.strip_prefix("/v1/images/generations/"));
        let id = percent_decode(rest.unwrap_or_default().split('/').next().unwrap_or_default());
        Self { state, owner: key.object_owner(), id }
    }

    /// Returns the task. A task of another owner is reported as unknown.
    async fn find(&self) -> Result<Task, ApiError> {
        let Self { state, owner, id } = self;
        let found =
            state.store.task(id, owner, state.clock().now()).await.map_err(store_unavailable)?;
        let task = found.ok_or_else(|| {
            let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
            let message = format!("there is no task `{shown}`; it may have expired");
            ApiError::new(ErrorKind::NotFound, message).with_code("task_not_found")
        })?;
        match unreadable_error(&task) {
            Some(error) => Err(error),
            None => Ok(task),
        }
    }
}

pub(super) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = TaskLookup::from_request(incoming);
    let task = lookup.find().await?;
    Ok(task_response(&lookup.state, &task))
}

pub(super) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (mut limit, mut after, mut status) = (20, None, None);
    for (name, value) in query_pairs(incoming.request.query()) {
        match (name.as_str(), value.as_str()) {
            ("limit", text) => match text.parse::<u32>() {
                Ok(count @ 1..=100) => limit = count,
                _ => return Err(ApiError::invalid("limit", "`limit` must be between 1 and 100")),
            },
            ("after", _) => after = Some(value),
            ("status", word) => match TaskState::by_word(word) {
                Some(known) => status = Some(known),
                None => {
                    let known = TaskState::ALL.map(|state| format!("`{}`", state.word()));
                    let message = format!("`status` must be one of {}", known.join(", "));
                    return Err(ApiError::invalid("status", message));
                }
            },
            _ => {}
        }
    }
    let (state, owner) = (&incoming.state, incoming.key.object_owner());
    let found = state.store.tasks(&owner, after.as_deref(), status, limit + 1, state.clock().now());
    let mut found = found.await.map_err(store_unavailable)?;
    let page_size = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = found.len() > page_size;
    found.truncate(page_size);
    let named = |task: Option<&Task>| task.map(|task| task.id.clone());
    let (first, last) = (named(found.first()), named(found.last()));
    let data: Vec<Value> = found.iter().map(|task| task_json(state, task)).collect();
    let body = json!({
        "object": "list",
        "data": data,
        "first_id": first,
        "last_id": last,
        "has_more": has_more,
    });
    Ok(json_response(body.to_string()))
}

/// Cancels a task. Cancelling twice succeeds; a completed or failed task is refused.
pub(super) async fn cancel(incoming: ApiRequest) -> Result<Response, ApiError> {
    let lookup = TaskLookup::from_request(incoming);
    let TaskLookup { state, owner, id } = &lookup;
    let now = state.clock().now();
    let expires = now + Micros::from(state.config().files.retention);
    if state.store.cancel_task(id, owner, now, expires).await.map_err(store_unavailable)? {
        state.image_tasks.cancel_run(id);
    }
    let task = lookup.find().await?;
    if task.state != TaskState::Cancelled {
        let message = format!("the task is {} and cannot be cancelled any more", task.state.word());
        let error =
            ApiError::new(ErrorKind::Conflict, message).with_code("task_over").without_retry();
        return Err(error);
    }
    Ok(task_response(state, &task))
}

/// `GET /v1/webhooks/secret`: the secret that signs the webhooks of the key, or of
/// the account if it shares.
pub(super) async fn webhook_secret(incoming: ApiRequest) -> Result<Response, ApiError> {
    let secret = incoming.state.image_tasks.webhook_secret(&incoming.key.object_owner());
    Ok(json_response(json!({ "object": "webhook.secret", "secret": secret }).to_string()))
}

/// Response with a task, and with `Retry-After` while it is unfinished.
fn task_response(state: &ApiState, task: &Task) -> Response {
    let mut response = json_response(task_json(state, task).to_string());
    if let Some(seconds) = poll_delay_s(task.state) {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn store_unavailable(error: StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "tasks cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}
