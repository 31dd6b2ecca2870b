//! Runs: a task is claimed, made an ordinary call again, and its result is written down.

use axum::body::Body;
use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use http::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use store::{StoreError, Task, TaskBody, TaskClaim, TaskEnd, TaskState};

use super::TaskRun;
use super::view::FILE_FIELD;
use crate::images::read_image_call as read_picture;
use crate::request::ApiRequest;
use crate::state::ApiState;
use relay::RequestId;
use relay::{ImageResult, generate_images};

/// How long a claim lasts without a word of its runner, and how often the runner gives it.
const CLAIM_US: i64 = 15_000_000;
const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);
/// How often a runner looks whether it is to end.
const SHUTDOWN_POLL_PERIOD: Duration = Duration::from_millis(500);
/// How long a failed task waits for its next run, after each.
const RETRY_DELAYS_S: [u64; 4] = [2, 10, 30, 120];

impl ApiState {
    /// Runs tasks, until the order to stop.
    pub async fn run_tasks(self: Arc<Self>) {
        let name = self.engine.funds.lease_client.node_name();
        match self.store.release_tasks_of(&name).await {
            Ok(0) => {}
            Ok(left) => tracing::warn!(
                tasks = left,
                "{left} tasks were running when the gateway last stopped; they are begun again"
            ),
            Err(e) => tracing::warn!("tasks that were left cannot be taken up yet: {e}"),
        }
        while !self.stop.is_cancelled() {
            let terms = self.config().tasks;
            if self.image_tasks.running_count() < terms.max_running {
                let request_id = self.engine.request_ids.next_id(self.clock().now());
                let claim = TaskClaim {
                    owner: &name,
                    request_id: &request_id,
                    hold: CLAIM_US,
                    per_provider: terms.max_per_provider,
                };
                match self.store.claim_task(&claim).await {
                    Ok(Some(task)) => {
                        let job = self.image_tasks.begin_run(&task.id);
                        let state = Arc::clone(&self);
                        self.engine.tasks.spawn(async move {
                            state.run_task(&task, &job).await;
                            state.image_tasks.end_run(&task.id, &job);
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

    /// Gives up what nobody had time for, and forgets what has been over for long.
    pub async fn sweep_tasks(&self) {
        let say = "nobody had time for this task while it was remembered";
        let error = super::view::error_json(&ApiError::new(ErrorKind::Unavailable, say), "");
        let TaskEnd { ended, expires, .. } = self.task_end(TaskState::Failed, None, None, None);
        match self.store.sweep_tasks(ended, &error.to_string(), expires).await {
            Ok((0, _)) => {}
            Ok((given_up, _)) => {
                tracing::warn!(tasks = given_up, "{given_up} tasks were given up: none had a run");
            }
            Err(e) => tracing::warn!("expired tasks could not be swept: {e}"),
        }
    }

    /// One run. Whatever ends it early drops the call, which is settled like one whose caller left.
    async fn run_task(self: &Arc<Self>, task: &Task, job: &Arc<TaskRun>) {
        let id = &task.id;
        let painted = tokio::select! {
            () = job.cancel.cancelled() => return,
            () = self.keep_claim(task, job) => return,
            () = self.wait_until_ending() => {
                // Another node may go on at once, or this one when it is back.
                if let Err(e) = self.store.postpone_task(id, task.runs, 0).await {
                    tracing::warn!(task.id = id, "{id} could not be handed back: {e}");
                }
                return;
            }
            painted = self.make_images(task, job) => painted,
        };
        let outcome = match painted {
            Ok(painted) => self.deliver(task, job, painted).await,
            Err(fault) => Err(fault),
        };
        let Err(fault) = outcome else { return };
        let note = fault.log_note().unwrap_or_default();
        let wait = usize::try_from(task.runs.saturating_sub(1)).unwrap_or(usize::MAX);
        let wait = RETRY_DELAYS_S.get(wait).or(RETRY_DELAYS_S.last()).copied().unwrap_or(1);
        if fault.is_retryable() && task.runs < self.config().tasks.max_attempts {
            tracing::warn!(
                task.id = id,
                run = task.runs,
                "run {} of {id} failed, the next one begins in {wait} s: {fault} [{note}]",
                task.runs
            );
            let wait = i64::try_from(wait).unwrap_or(i64::MAX).saturating_mul(1_000_000);
            if let Err(e) = self.store.postpone_task(id, task.runs, wait).await {
                // Its claim runs out by itself.
                tracing::warn!(task.id = id, "{id} could not be put off: {e}");
            }
            return;
        }
        tracing::debug!(task.id = id, run = task.runs, "{id} failed: {fault} [{note}]");
        let error = super::view::error_json(&fault, task.request_id.as_deref().unwrap_or_default());
        let end = self.task_end(TaskState::Failed, None, Some(error.to_string()), None);
        if let Err(fault) = self.end_task(task, &end).await {
            tracing::warn!(task.id = id, "{fault} [{}]", fault.log_note().unwrap_or_default());
        }
    }

    /// Says that the run goes on; comes back when the task is not this run's any more.
    async fn keep_claim(&self, task: &Task, job: &TaskRun) {
        let (id, run) = (&task.id, task.runs);
        let mut heard = self.clock().steady();
        loop {
            tokio::time::sleep(HEARTBEAT_PERIOD).await;
            // A hundred is said by the end alone.
            let come = job.progress.load(Ordering::Relaxed).min(99);
            match self.store.hold_task(id, run, CLAIM_US, come).await {
                Ok(true) => heard = self.clock().steady(),
                Ok(false) => {
                    tracing::debug!(task.id = id, run, "{id} was cancelled or given to another");
                    return;
                }
                Err(e) => tracing::warn!(task.id = id, "{id} could not be held: {e}"),
            }
            if self.clock().steady().saturating_sub(heard) > CLAIM_US {
                tracing::warn!(task.id = id, run, "{id} may have been given to another by now");
                return;
            }
        }
    }

    /// Until running calls must end.
    async fn wait_until_ending(&self) {
        while !self.engine.must_end_calls() {
            tokio::time::sleep(SHUTDOWN_POLL_PERIOD).await;
        }
    }

    /// Makes the pictures, still to be paid for.
    async fn make_images(
        self: &Arc<Self>,
        task: &Task,
        job: &TaskRun,
    ) -> Result<ImageResult, ApiError> {
        let most = self.config().tasks.max_attempts;
        if task.runs > most {
            let say = format!("the task was begun {most} times and never came to an end");
            return Err(ApiError::new(ErrorKind::Unavailable, say).without_retry());
        }
        let (mut call, form) = read_picture(self.rebuild_request(task).await?).await?;
        call.progress = Some(Arc::clone(&job.progress));
        generate_images(call, form).await
    }

    /// The result is written down before it is paid for: a crash in between is the operator's loss,
    /// and so is whatever we could not hand over. Only a caller that cancelled what was made all the
    /// same pays like one that left.
    async fn deliver(
        &self,
        task: &Task,
        job: &TaskRun,
        painted: ImageResult,
    ) -> Result<(), ApiError> {
        let kept = tokio::select! {
            () = self.keep_claim(task, job) => None,
            kept = self.store_images(task, &painted.body) => Some(kept),
        };
        let ended = match kept {
            None => Ok(false),
            Some(Ok((result, expires))) => {
                let result = Some(result.to_string());
                let end = self.task_end(TaskState::Completed, result, None, Some(expires));
                self.end_task(task, &end).await
            }
            Some(Err(fault)) => Err(fault),
        };
        match ended {
            Ok(true) => {
                painted.settle();
            }
            Ok(false) if self.is_cancelled(task).await => drop(painted),
            Ok(false) => painted.fail(),
            Err(fault) => {
                painted.fail();
                return Err(fault);
            }
        }
        Ok(())
    }

    async fn is_cancelled(&self, task: &Task) -> bool {
        let found = self.store.task(&task.id, &task.account_id, self.clock().now()).await;
        found.ok().flatten().is_some_and(|task| task.state == TaskState::Cancelled)
    }

    /// The call as it was asked, under the id of this run.
    async fn rebuild_request(self: &Arc<Self>, task: &Task) -> Result<ApiRequest, ApiError> {
        if self.engine.keys.get(&task.key_id).is_none() {
            // Made on another node within the last second.
            self.engine.keys.refresh().await.map_err(store_unavailable)?;
        }
        let key = self.engine.keys.get(&task.key_id).filter(|key| key.is_live(self.clock().now()));
        let key = key.ok_or_else(|| {
            let say = "the API key of this task has expired or was revoked";
            ApiError::new(ErrorKind::Unauthenticated, say)
        })?;
        let body =
            self.store.task_body(&task.id).await.map_err(store_unavailable)?.unwrap_or_default();
        let TaskBody { head, body, file } = body;
        let body = match (body, file) {
            (Some(body), _) => Bytes::from(body),
            (None, Some(file)) => self.engine.files.read(&file).await?,
            (None, None) => return Err(ApiError::internal("a task has nothing to do")),
        };
        let head: BTreeMap<String, String> =
            serde_json::from_str(&head).map_err(|e| ApiError::internal(e.to_string()))?;
        let mut request = Request::post(task.path.as_str());
        for (name, value) in head {
            request = request.header(name, value);
        }
        let request =
            request.body(Body::from(body)).map_err(|e| ApiError::internal(e.to_string()))?;
        let id = RequestId(task.request_id.clone().unwrap_or_default().into());
        Ok(ApiRequest { state: Arc::clone(self), key, id, permit: None, request })
    }

    fn task_end(
        &self,
        state: TaskState,
        result: Option<String>,
        error: Option<String>,
        expires: Option<i64>,
    ) -> TaskEnd {
        let ended = self.clock().now();
        let lives = i64::try_from(self.config().files.retention.as_micros()).unwrap_or(i64::MAX);
        let expires = expires.unwrap_or_else(|| ended.saturating_add(lives));
        TaskEnd { state, result, error, ended, expires }
    }

    /// Ends a task, patiently: a picture was made. False when it is not this run's any more.
    async fn end_task(&self, task: &Task, end: &TaskEnd) -> Result<bool, ApiError> {
        let asked = self.store.task_body(&task.id).await.ok().flatten();
        let mut wait = Duration::from_millis(100);
        loop {
            match self.store.end_task(&task.id, task.runs, end).await {
                Ok(ended) => {
                    self.image_tasks.new_ends.notify_one();
                    if let Some(file) = asked.and_then(|asked| asked.file).filter(|_| ended) {
                        self.engine.files.delete(&file).await;
                    }
                    return Ok(ended);
                }
                Err(e) if wait > Duration::from_secs(5) => return Err(store_unavailable(e)),
                Err(e) => tracing::warn!(task.id = task.id, "an end is not noted yet: {e}"),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    /// Puts the pictures of an answer into files. Tells what is left to store, and until when the
    /// files live.
    async fn store_images(&self, task: &Task, reply: &[u8]) -> Result<(Value, i64), ApiError> {
        let mut reply: Value = serde_json::from_slice(reply)
            .map_err(|e| ApiError::internal(format!("an answer is no JSON: {e}")))?;
        let mut expires = i64::MAX;
        let pictures = reply.get_mut("data").and_then(Value::as_array_mut);
        for picture in pictures.into_iter().flatten().filter_map(Value::as_object_mut) {
            let Some(Value::String(data)) = picture.shift_remove("b64_json") else { continue };
            let bytes = dialects::images::decode(&data)
                .ok_or_else(|| ApiError::internal("a picture is no base64"))?;
            let mime = dialects::images::image_info(&bytes).map(|seen| seen.mime());
            let mime = mime.as_deref().unwrap_or("application/octet-stream");
            let link = self.engine.files.put(&task.account_id, Bytes::from(bytes), mime).await?;
            expires = expires.min(link.expires_at.saturating_mul(1_000_000));
            picture.insert(FILE_FIELD.to_owned(), json!(link.name));
        }
        let lives = i64::try_from(self.config().files.retention.as_micros()).unwrap_or(i64::MAX);
        Ok((reply, expires.min(self.clock().now().saturating_add(lives))))
    }
}

fn store_unavailable(error: StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "tasks cannot be read at the moment")
        .with_log_note(error.to_string())
}
