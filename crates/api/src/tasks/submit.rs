//! Submission of an image task: the call is checked, stored and answered at once.

use axum::response::Response;
use canon::{ApiError, ErrorKind, Micros};
use http::header::{HeaderValue, LOCATION, RETRY_AFTER};
use http::{HeaderName, StatusCode};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{NewTask, ObjectOwner, TaskBody};
use transport::{HeaderBlock, ServerRequest, visible_text};

use super::view::{task_json, task_path};
use crate::query::query_pairs;
use crate::state::ApiState;
use relay::ImageTask;
use relay::json_response;

/// Larger bodies are stored as files.
const MAX_INLINE_BODY_BYTES: usize = 64 << 10;
/// `Retry-After` for a key with too many unfinished tasks. The time until one ends is unknown.
const TASK_RETRY_AFTER: Duration = Duration::from_secs(5);
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Asynchronous options of a request, and the parts of its head that a run needs.
pub(crate) struct AsyncOptions {
    /// True if the caller does not wait for the result.
    is_async: bool,
    /// True if the caller used `Prefer: respond-async`, which needs `Preference-Applied` in the
    /// answer (RFC 7240, section 3).
    by_prefer_header: bool,
    path: String,
    headers: BTreeMap<String, String>,
}

impl AsyncOptions {
    /// Reads the options from a request.
    pub(crate) fn from_request(request: &ServerRequest) -> Result<Self, ApiError> {
        let query = query_pairs(request.query());
        let requested =
            query.iter().find(|(name, _)| name == "async").map(|(_, value)| value.as_str());
        let requested = match requested {
            None | Some("false" | "0") => false,
            Some("true" | "1" | "") => true,
            Some(_) => return Err(ApiError::invalid("async", "`async` must be true or false")),
        };
        let preferred = prefers_async(request.headers());
        // Content-Encoding and Content-Length are left out, because the stored body is already
        // decoded.
        let is_stored = |name: &str| {
            matches!(
                name,
                "content-type"
                    | "x-portunus-strict"
                    | "x-portunus-lossy"
                    | "x-portunus-route"
                    | "x-portunus-tags"
                    | "x-portunus-end-user"
            )
        };
        let headers = request.headers().iter().filter(|(name, _)| is_stored(name));
        let headers = headers
            .filter_map(|(name, value)| Some((name.to_owned(), visible_text(value)?.to_owned())));
        let (path, headers) = (request.path().to_owned(), headers.collect());
        Ok(Self { is_async: requested || preferred, by_prefer_header: preferred, path, headers })
    }

    /// True if the caller does not wait for the result.
    pub(crate) const fn is_async(&self) -> bool {
        self.is_async
    }
}

/// Returns true for `Prefer: respond-async` (RFC 7240, section 4.1).
fn prefers_async(headers: &HeaderBlock) -> bool {
    let words = headers.get_all("prefer").filter_map(visible_text);
    words
        .flat_map(|value| value.split([',', ';']))
        .any(|word| word.trim().eq_ignore_ascii_case("respond-async"))
}

/// Stores a checked call as a task and answers with the task object.
pub(crate) async fn submit(
    state: &ApiState,
    options: AsyncOptions,
    task: ImageTask,
) -> Result<Response, ApiError> {
    let ImageTask { call, model, provider, webhook } = task;
    let account = &call.key.record.account_id;
    if let Some(url) = &webhook {
        let guard = call.config.media.fetcher.guard();
        guard.check(url).map_err(|e| ApiError::invalid("webhook", format!("`webhook` {e}")))?;
    }
    let now = state.clock().now();
    let retention = Micros::from(call.config.files.retention);
    let (body, file) = if call.body.len() <= MAX_INLINE_BODY_BYTES {
        (Some(call.body.to_vec()), None)
    } else {
        let file =
            state.engine.files.put(account, call.body.clone(), "application/octet-stream").await?;
        (None, Some(file.name))
    };
    let head =
        serde_json::to_string(&options.headers).map_err(|e| ApiError::internal(e.to_string()))?;
    let id = state.engine.request_ids.next_id(now).replacen("req_", "task_", 1);
    let task = NewTask {
        id,
        account_id: account.clone(),
        key_id: call.key.record.id.clone(),
        path: options.path,
        model,
        provider,
        request: TaskBody { head, body, file },
        webhook,
        created: now,
        expires: now + retention,
        max_open: call.config.tasks.max_waiting,
    };
    let unavailable = |why: String| {
        ApiError::new(
            ErrorKind::Overloaded,
            "tasks cannot be accepted at the moment, retry shortly",
        )
        .with_log_note(why)
    };
    let added = state.store.add_task(&task).await;
    if !matches!(added, Ok(true))
        && let Some(file) = &task.request.file
    {
        state.engine.files.delete(file).await;
    }
    if !added.map_err(|e| unavailable(e.to_string()))? {
        return Err(too_many_tasks(task.max_open));
    }
    state.image_tasks.new_work.notify_one();
    let owner = ObjectOwner::key(account, &task.key_id);
    let found =
        state.store.task(&task.id, &owner, now).await.map_err(|e| unavailable(e.to_string()))?;
    let found =
        found.ok_or_else(|| unavailable("a new task was not found in the store".to_owned()))?;
    let mut response = json_response(task_json(state, &found).to_string());
    *response.status_mut() = StatusCode::ACCEPTED;
    let headers = response.headers_mut();
    if let Ok(path) = HeaderValue::from_str(&task_path(&task.id)) {
        headers.insert(LOCATION, path);
    }
    headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    if options.by_prefer_header {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async"));
    }
    Ok(response)
}

/// Error for a key with too many unfinished tasks.
pub(crate) fn too_many_tasks(limit: u32) -> ApiError {
    let message =
        format!("this API key may have {limit} unfinished tasks; retry when one has ended");
    ApiError::new(ErrorKind::RateLimited, message)
        .with_code("too_many_tasks")
        .with_retry_after(TASK_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::Request;

    fn options(uri: &str, prefer: &str) -> Result<AsyncOptions, ApiError> {
        let request =
            Request::post(uri).header("prefer", prefer).header("x-portunus-strict", "true");
        let request = request.header("authorization", "Bearer x").body(Body::empty());
        AsyncOptions::from_request(&request.unwrap().into())
    }

    #[test]
    fn query_and_prefer_header_select_async() {
        let is_async = |uri, prefer| options(uri, prefer).unwrap().is_async();
        assert!(!is_async("/v1/images/generations", "wait=10"));
        assert!(is_async("/v1/images/generations?async=true", ""));
        assert!(!is_async("/v1/images/generations?async=false", ""));
        assert!(is_async("/v1/images/generations", "wait=10, Respond-Async"));
        assert_eq!(options("/x?async=maybe", "").err().unwrap().param(), Some("async"));
    }

    #[test]
    fn credentials_are_not_stored() {
        let headers = options("/x", "").unwrap().headers;
        assert_eq!(headers.keys().collect::<Vec<_>>(), ["x-portunus-strict"]);
    }
}
