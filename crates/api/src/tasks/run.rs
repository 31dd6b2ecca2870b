//! Runs of tasks: a task is claimed, sent again as an ordinary call, and its result is stored.

use access::limits::Admission;
use axum::body::Body;
use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros};
use http::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{ObjectOwner, StoreError, Task, TaskBody, TaskClaim, TaskEnd, TaskState};

use super::TaskRun;
use super::view::FILE_FIELD;
use crate::images::read_image_call as read_picture;
use crate::request::ApiRequest;
use crate::state::ApiState;
use relay::RequestId;
use relay::{ImageResult, generate_images};

/// Lifetime of a claim without a heartbeat, and the period of the heartbeat.
const CLAIM_TIME: Micros = Micros::from_secs(15);
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);
/// Period of checking for shutdown.
const SHUTDOWN_POLL_PERIOD: Duration = Duration::from_millis(500);
/// Delay in seconds before the next run, by the number of failed runs.
const RETRY_DELAYS_S: [u64; 4] = [2, 10, 30, 120];

impl ApiState {
    /// Runs tasks until shutdown.
    pub async fn run_tasks(self: Arc<Self>) {
        let name = self.engine.funds.lease_client.node_name();
        match self.store.release_tasks_of(&name).await {
            Ok(0) => {}
            Ok(released) => tracing::warn!(
                tasks = released,
                "{released} tasks were running when the gateway last stopped; they start again"
            ),
            Err(e) => tracing::warn!("tasks of the previous process cannot be released yet: {e}"),
        }
        while !self.stop.is_cancelled() {
            let terms = self.config().tasks;
            if self.image_tasks.running_count() < terms.max_running {
                let request_id = self.engine.request_ids.next_id(self.clock().now());
                let claim = TaskClaim {
                    owner: &name,
                    request_id: &request_id,
                    hold: CLAIM_TIME,
                    per_provider: terms.max_per_provider,
                };
                match self.store.claim_task(&claim).await {
                    Ok(Some(task)) => {
                        let task_run = self.image_tasks.begin_run(&task.id);
                        let state = Arc::clone(&self);
                        self.engine.tasks.spawn(async move {
                            state.run_task(&task, &task_run).await;
                            state.image_tasks.end_run(&task.id, &task_run);
                        });
                        continue;
                    }
                    Ok(None) => {}
                    Err(e) => tracing::warn!("tasks cannot be claimed at the moment: {e}"),
                }
            }
            tokio::select! {
                () = self.image_tasks.new_work.notified() => {}
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    /// Fails tasks that expired without a run, and deletes old finished ones.
    pub async fn sweep_tasks(&self) {
        let message = "the task expired before it could run";
        let error = super::view::error_json(&ApiError::new(ErrorKind::Unavailable, message), "");
        let TaskEnd { ended, expires, .. } = self.task_end(TaskState::Failed, None, None, None);
        match self.store.sweep_tasks(ended, &error.to_string(), expires).await {
            Ok((0, _)) => {}
            Ok((given_up, _)) => {
                tracing::warn!(tasks = given_up, "{given_up} tasks expired without a run");
            }
            Err(e) => tracing::warn!("expired tasks could not be swept: {e}"),
        }
    }

    /// Runs a task once. If the run ends early, the call is dropped and settled like one whose
    /// caller disconnected.
    async fn run_task(self: &Arc<Self>, task: &Task, task_run: &Arc<TaskRun>) {
        let id = &task.id;
        let images = tokio::select! {
            () = task_run.cancel.cancelled() => return,
            () = self.keep_claim(task, task_run) => return,
            () = self.wait_until_ending() => {
                // Releases the task, so that another node can run it at once.
                if let Err(e) = self.store.postpone_task(id, task.runs, Micros::ZERO).await {
                    tracing::warn!(task.id = id, "{id} could not be released: {e}");
                }
                return;
            }
            images = self.make_images(task, task_run) => images,
        };
        let outcome = match images {
            Ok(images) => self.deliver(task, task_run, images).await,
            Err(error) => Err(error),
        };
        let Err(error) = outcome else { return };
        let note = error.log_note().unwrap_or_default();
        let wait = usize::try_from(task.runs.saturating_sub(1)).unwrap_or(usize::MAX);
        let wait = RETRY_DELAYS_S.get(wait).or(RETRY_DELAYS_S.last()).copied().unwrap_or(1);
        if error.is_retryable() && task.runs < self.config().tasks.max_attempts {
            tracing::warn!(
                task.id = id,
                run = task.runs,
                "run {} of {id} failed, the next one starts in {wait} s: {error} [{note}]",
                task.runs
            );
            let wait = Micros::from_secs(i64::try_from(wait).unwrap_or(i64::MAX));
            if let Err(e) = self.store.postpone_task(id, task.runs, wait).await {
                // The claim expires by itself.
                tracing::warn!(task.id = id, "{id} could not be postponed: {e}");
            }
            return;
        }
        tracing::debug!(task.id = id, run = task.runs, "{id} failed: {error} [{note}]");
        let error = super::view::error_json(&error, task.request_id.as_deref().unwrap_or_default());
        let end = self.task_end(TaskState::Failed, None, Some(error.to_string()), None);
        if let Err(error) = self.end_task(task, &end).await {
            tracing::warn!(task.id = id, "{error} [{}]", error.log_note().unwrap_or_default());
        }
    }

    /// Renews the claim. Returns when this run no longer owns the task.
    async fn keep_claim(&self, task: &Task, task_run: &TaskRun) {
        let (id, run) = (&task.id, task.runs);
        let mut last_renewal = self.clock().steady();
        loop {
            tokio::time::sleep(HEARTBEAT_PERIOD).await;
            // 100 is set only by the end of the task.
            let progress = task_run.progress.load(Ordering::Relaxed).min(99);
            match self.store.hold_task(id, run, CLAIM_TIME, progress).await {
                Ok(true) => last_renewal = self.clock().steady(),
                Ok(false) => {
                    tracing::debug!(
                        task.id = id,
                        run,
                        "{id} was cancelled or claimed by another run"
                    );
                    return;
                }
                Err(e) => {
                    tracing::warn!(task.id = id, "the claim of {id} could not be renewed: {e}")
                }
            }
            if self.clock().steady() - last_renewal > CLAIM_TIME {
                tracing::warn!(
                    task.id = id,
                    run,
                    "the claim of {id} expired; another node may run it"
                );
                return;
            }
        }
    }

    /// Waits until running calls must end.
    async fn wait_until_ending(&self) {
        while !self.engine.must_end_calls() {
            tokio::time::sleep(SHUTDOWN_POLL_PERIOD).await;
        }
    }

    /// Makes the images. The returned call is not charged yet.
    async fn make_images(
        self: &Arc<Self>,
        task: &Task,
        task_run: &TaskRun,
    ) -> Result<ImageResult, ApiError> {
        let max_runs = self.config().tasks.max_attempts;
        if task.runs > max_runs {
            let message = format!("the task was started {max_runs} times and never finished");
            return Err(ApiError::new(ErrorKind::Unavailable, message).without_retry());
        }
        let (mut call, form) = read_picture(self.rebuild_request(task).await?).await?;
        call.progress = Some(Arc::clone(&task_run.progress));
        generate_images(call, form).await
    }

    /// Stores the result before charging for it. If the process crashes in between, or the result
    /// cannot be stored, the operator pays. If the caller cancelled after the images were made, the
    /// caller pays as after a disconnect.
    async fn deliver(
        &self,
        task: &Task,
        task_run: &TaskRun,
        images: ImageResult,
    ) -> Result<(), ApiError> {
        let stored = tokio::select! {
            () = self.keep_claim(task, task_run) => None,
            stored = self.store_images(task, &images.body) => Some(stored),
        };
        let ended = match stored {
            None => Ok(false),
            Some(Ok((result, expires))) => {
                let result = Some(result.to_string());
                let end = self.task_end(TaskState::Completed, result, None, Some(expires));
                self.end_task(task, &end).await
            }
            Some(Err(error)) => Err(error),
        };
        match ended {
            Ok(true) => {
                images.settle().await;
            }
            Ok(false) if self.is_cancelled(task).await => drop(images),
            Ok(false) => images.fail(),
            Err(error) => {
                images.fail();
                return Err(error);
            }
        }
        Ok(())
    }

    async fn is_cancelled(&self, task: &Task) -> bool {
        let owner = ObjectOwner::key(&task.account_id, &task.key_id);
        let found = self.store.task(&task.id, &owner, self.clock().now()).await;
        found.ok().flatten().is_some_and(|task| task.state == TaskState::Cancelled)
    }

    /// Rebuilds the stored request under the id of this run.
    async fn rebuild_request(self: &Arc<Self>, task: &Task) -> Result<ApiRequest, ApiError> {
        if self.engine.keys.get(&task.key_id).is_none() {
            // The key may have been created on another node within the last second.
            self.engine.keys.refresh().await.map_err(store_unavailable)?;
        }
        let key = self.engine.keys.find_cached(&task.key_id);
        let key = key.filter(|key| key.is_live(self.clock().now()));
        let key = key.ok_or_else(|| {
            let message = "the API key of this task has expired or was revoked";
            ApiError::new(ErrorKind::Unauthenticated, message)
        })?;
        let body =
            self.store.task_body(&task.id).await.map_err(store_unavailable)?.unwrap_or_default();
        let TaskBody { head, body, file } = body;
        let body = match (body, file) {
            (Some(body), _) => Bytes::from(body),
            (None, Some(file)) => self.engine.files.read(&file).await?,
            (None, None) => return Err(ApiError::internal("a task has no stored body")),
        };
        let head: BTreeMap<String, String> =
            dialects::json::read(&head).map_err(|e| ApiError::internal(e.to_string()))?;
        let mut request = Request::post(task.path.as_str());
        for (name, value) in head {
            request = request.header(name, value);
        }
        let request =
            request.body(Body::from(body)).map_err(|e| ApiError::internal(e.to_string()))?;
        let id = RequestId(task.request_id.clone().unwrap_or_default().into());
        Ok(ApiRequest {
            state: Arc::clone(self),
            config: self.config(),
            key,
            id,
            head: Arc::default(),
            admission: Admission::default(),
            // The caller was checked when it submitted the task.
            peer: (Ipv4Addr::UNSPECIFIED, 0).into(),
            socket: None,
            request: request.into(),
        })
    }

    fn task_end(
        &self,
        state: TaskState,
        result: Option<String>,
        error: Option<String>,
        expires: Option<Micros>,
    ) -> TaskEnd {
        let ended = self.clock().now();
        let retention = Micros::from(self.config().files.retention);
        let expires = expires.unwrap_or_else(|| ended + retention);
        TaskEnd { state, result, error, ended, expires }
    }

    /// Ends a task, with retries, because the images are already made. Returns false if this run no
    /// longer owns the task.
    async fn end_task(&self, task: &Task, end: &TaskEnd) -> Result<bool, ApiError> {
        let stored_request = self.store.task_body(&task.id).await.ok().flatten();
        let mut wait = Duration::from_millis(100);
        loop {
            match self.store.end_task(&task.id, task.runs, end).await {
                Ok(ended) => {
                    self.image_tasks.new_ends.notify_one();
                    if let Some(file) = stored_request
                        .and_then(|stored_request| stored_request.file)
                        .filter(|_| ended)
                    {
                        self.engine.files.delete(&file).await;
                    }
                    return Ok(ended);
                }
                Err(e) if wait > Duration::from_secs(5) => return Err(store_unavailable(e)),
                Err(e) => {
                    tracing::warn!(task.id = task.id, "the end of a task is not stored yet: {e}")
                }
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    /// Stores the images of a reply as files. Returns the rest of the reply, and the expiry time of
    /// the files.
    async fn store_images(&self, task: &Task, reply: &[u8]) -> Result<(Value, Micros), ApiError> {
        let mut reply: Value = dialects::json::read_bytes(reply)
            .map_err(|e| ApiError::internal(format!("a reply is not JSON: {e}")))?;
        let mut expires = Micros::MAX;
        let pictures = reply.get_mut("data").and_then(Value::as_array_mut);
        for picture in pictures.into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(Value::String(data)) = picture.shift_remove("b64_json") else { continue };
            let bytes = media::decode_base64(&data)
                .ok_or_else(|| ApiError::internal("an image is not base64"))?;
            let mime = media::image_info(&bytes).map(|info| info.mime());
            let mime = mime.as_deref().unwrap_or("application/octet-stream");
            let link = self.engine.files.put(&task.account_id, Bytes::from(bytes), mime).await?;
            expires = expires.min(Micros::from_secs(link.expires_at));
            picture.insert(FILE_FIELD.to_owned(), json!(link.name));
        }
        let retention = Micros::from(self.config().files.retention);
        Ok((reply, expires.min(self.clock().now() + retention)))
    }
}

fn store_unavailable(error: StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "tasks cannot be read at the moment")
        .with_log_note(error.to_string())
}
