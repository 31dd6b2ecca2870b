//! The task object of the API.

use canon::{ApiError, ErrorKind, Micros};
use dialects::Dialect as _;
use dialects::chat::ChatDialect;
use serde_json::{Map, Value, json};
use store::{Task, TaskState};

use crate::state::ApiState;

/// Field of a stored image that names its file.
pub(super) const FILE_FIELD: &str = "file";

/// JSON of a task. Once completed, it has the fields of the synchronous answer, with freshly signed
/// links.
pub(crate) fn task_json(state: &ApiState, task: &Task) -> Value {
    let expires = task.expires.as_secs();
    let webhook = task.webhook.as_ref().map(|hook| {
        json!({
            "url": hook.url,
            "status": hook.delivery.map(store::DeliveryState::word),
            "attempts": hook.tries,
            "last_status": hook.status,
        })
    });
    let mut shown = Map::new();
    let mut set = |name: &str, value: Value| drop(shown.insert(name.to_owned(), value));
    set("id", json!(task.id));
    set("object", json!("image.generation.task"));
    set("model", json!(task.model));
    set("created", json!(task.created.as_secs()));
    set("status", json!(task.state.word()));
    set("progress", json!(task.progress));
    set("request_id", json!(task.request_id));
    set("poll_url", json!(format!("{}{}", state.config().public_url, task_path(&task.id))));
    set("completed_at", json!(task.ended.map(Micros::as_secs)));
    set("expires_at", json!(task.state.is_over().then_some(expires)));
    let mut result: Map<String, Value> =
        task.result.as_deref().and_then(|text| dialects::json::read(text).ok()).unwrap_or_default();
    let data = result.shift_remove("data").map(|data| with_links(state, data, expires));
    set("data", data.unwrap_or_default());
    set("usage", result.shift_remove("usage").unwrap_or_default());
    let error = match unreadable_error(task) {
        Some(error) => Some(error_json(&error, task.request_id.as_deref().unwrap_or_default())),
        None => task.error.as_deref().and_then(|text| dialects::json::read(text).ok()),
    };
    set("error", error.unwrap_or_default());
    set("webhook", webhook.unwrap_or_default());
    // Copies size, quality, format and the other fields of the synchronous answer.
    for (name, value) in result {
        if !shown.contains_key(&name) {
            shown.insert(name, value);
        }
    }
    Value::Object(shown)
}

/// Error of a task whose result is kept but cannot be opened. A retry cannot help; the operator
/// reads the reason in the log.
pub(crate) fn unreadable_error(task: &Task) -> Option<ApiError> {
    let why = task.unreadable.as_ref()?;
    let message = "the result of this task cannot be decrypted; ask the operator of the gateway";
    let error = ApiError::new(ErrorKind::Unavailable, message).without_retry();
    Some(error.with_log_note(format!("task {} cannot be opened: {why}", task.id)))
}

/// Path at which a task is polled.
pub(crate) fn task_path(id: &str) -> String {
    format!("/v1/images/generations/{id}")
}

/// Recommended polling delay; `None` once the task is finished.
pub(crate) const fn poll_delay_s(state: TaskState) -> Option<u32> {
    match state {
        TaskState::Pending | TaskState::Processing => Some(2),
        TaskState::Completed | TaskState::Failed | TaskState::Cancelled => None,
    }
}

/// Replaces file names by signed links that expire at this time in seconds.
fn with_links(state: &ApiState, data: Value, expires: i64) -> Value {
    let Value::Array(mut pictures) = data else { return data };
    for picture in pictures.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(Value::String(name)) = picture.shift_remove(FILE_FIELD) {
            let link = state.engine.files.link(&name, expires);
            picture.shift_insert(0, "url".to_owned(), json!(link.url));
        }
    }
    Value::Array(pictures)
}

/// JSON of an error, as in the synchronous answer.
pub(super) fn error_json(error: &ApiError, request_id: &str) -> Value {
    let (_, body) = ChatDialect.write_error(error, request_id);
    let parsed: Option<Value> = dialects::json::read_bytes(&body).ok();
    parsed.and_then(|mut parsed| parsed.get_mut("error").map(Value::take)).unwrap_or_default()
}
