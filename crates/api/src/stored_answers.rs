//! Answers stored for later calls, and background runs of this process.
//!
//! An answer can be retrieved as soon as its caller has it. It is visible in memory at once and is
//! written to the store in the background.

use bytes::Bytes;
use canon::{ApiError, ErrorKind, Micros};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{KeyRecord, ObjectOwner, Store, StoredResponse};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Time the events of a finished background run remain available.
const REPLAY_DURATION: Duration = Duration::from_secs(600);

/// Answers that are being written; `None` for one that was deleted meanwhile.
type UnstoredAnswers = Arc<Mutex<HashMap<String, Option<Arc<StoredResponse>>>>>;

/// Stored answers and background runs of this node.
pub struct StoredAnswers {
    store: Store,
    tasks: TaskTracker,
    /// Answers not yet written to the store.
    unstored: UnstoredAnswers,
    runs: Arc<Mutex<HashMap<String, Arc<BackgroundRun>>>>,
}

impl StoredAnswers {
    /// Creates an empty set. `tasks` tracks the writes to the store until shutdown.
    pub fn new(store: Store, tasks: TaskTracker) -> Self {
        Self { store, tasks, unstored: Arc::default(), runs: Arc::default() }
    }

    /// Stores an answer, or a newer state of it.
    pub(crate) fn put(&self, answer: StoredResponse) {
        let id = answer.id.clone();
        let answer = Arc::new(answer);
        let before = self.unstored.lock().insert(id, Some(Arc::clone(&answer)));
        // The task that writes the earlier state also writes this one. An older state therefore
        // never overwrites a newer one.
        if before.is_none() {
            self.tasks.spawn(store_latest(self.store.clone(), Arc::clone(&self.unstored), answer));
        }
    }

    /// Returns an owner's answer. Fails if the owner has none with this id, or if it has expired.
    pub(crate) async fn get(
        &self,
        id: &str,
        owner: &ObjectOwner,
        now: Micros,
    ) -> Result<Arc<StoredResponse>, ApiError> {
        let unstored = self.unstored.lock().get(id).cloned();
        let answer = match unstored {
            Some(answer) => answer.filter(|answer| is_of(answer, owner)),
            None => self
                .store
                .stored_response(id, owner)
                .await
                .map_err(store_unavailable)?
                .map(Arc::new),
        };
        answer.filter(|answer| now < answer.expires).ok_or_else(|| answer_not_found(id))
    }

    /// Deletes an owner's answer. Fails if the owner has none with this id.
    pub(crate) async fn delete(&self, id: &str, owner: &ObjectOwner) -> Result<(), ApiError> {
        if let Some(run) = self.find_run(id, owner) {
            run.decide_end(|| ());
            run.cancel.cancel();
            self.runs.lock().remove(id);
        }
        // The task that writes the answer deletes it afterwards. Until then the entry hides it.
        let unstored = match self.unstored.lock().get_mut(id) {
            Some(answer) => answer.take_if(|answer| is_of(answer, owner)),
            None => None,
        };
        let stored = self.store.drop_response(id, owner).await.map_err(store_unavailable)?;
        if stored || unstored.is_some() { Ok(()) } else { Err(answer_not_found(id)) }
    }

    /// Registers a background run of that key; `None` if it has `limit` on this node already.
    pub(crate) fn begin_run(
        &self,
        id: &str,
        key: &KeyRecord,
        limit: u32,
    ) -> Option<Arc<BackgroundRun>> {
        let run = Arc::new(BackgroundRun {
            account_id: key.account_id.clone(),
            key_id: key.id.clone(),
            cancel: CancellationToken::new(),
            progress: Mutex::new(RunProgress::default()),
            changed: Notify::new(),
        });
        let mut runs = self.runs.lock();
        runs.retain(|_, run| !run.progress.lock().is_expired());
        let is_open =
            |run: &&Arc<BackgroundRun>| run.key_id == key.id && run.progress.lock().ended.is_none();
        if runs.values().filter(is_open).count() >= usize::try_from(limit).unwrap_or(usize::MAX) {
            return None;
        }
        runs.insert(id.to_owned(), Arc::clone(&run));
        Some(run)
    }

    /// Marks a background run as ended. Its events remain available for a while.
    pub(crate) fn end_run(&self, id: &str) {
        if let Some(run) = self.runs.lock().get(id) {
            run.progress.lock().ended = Some(Instant::now());
            run.changed.notify_waiters();
        }
    }

    /// Returns a background run of that owner, running or recently ended.
    pub(crate) fn find_run(&self, id: &str, owner: &ObjectOwner) -> Option<Arc<BackgroundRun>> {
        let runs = self.runs.lock();
        let run = runs.get(id).filter(|run| run.belongs_to(owner));
        run.filter(|run| !run.progress.lock().is_expired()).cloned()
    }
}

/// Writes an answer to the store, and then any newer state of it.
async fn store_latest(store: Store, unstored: UnstoredAnswers, mut answer: Arc<StoredResponse>) {
    loop {
        let mut wait = Duration::from_millis(50);
        for _ in 0..8 {
            match store.store_response(&answer).await {
                Ok(()) => break,
                Err(e) => tracing::warn!("an answer could not be stored yet: {e}"),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        let latest = {
            let mut unstored = unstored.lock();
            match unstored.get(&answer.id) {
                Some(Some(now)) if !Arc::ptr_eq(now, &answer) => Some(Arc::clone(now)),
                Some(Some(_)) => {
                    unstored.remove(&answer.id);
                    return;
                }
                Some(None) | None => None,
            }
        };
        match latest {
            Some(latest) => answer = latest,
            None => {
                // The answer was deleted while it was being written.
                let owner = ObjectOwner::account(&answer.account_id);
                if let Err(e) = store.drop_response(&answer.id, &owner).await {
                    tracing::warn!("a deleted answer could not be removed from the store: {e}");
                }
                unstored.lock().remove(&answer.id);
                return;
            }
        }
    }
}

fn is_of(answer: &StoredResponse, owner: &ObjectOwner) -> bool {
    owner.owns(&answer.account_id, answer.key_id.as_deref())
}

fn answer_not_found(id: &str) -> ApiError {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(ErrorKind::NotFound, format!("there is no answer `{shown}`; it may have expired"))
}

fn store_unavailable(error: store::StoreError) -> ApiError {
    if let store::StoreError::Sealing(_) = &error {
        let message = "this answer cannot be decrypted; ask the operator of the gateway";
        return ApiError::new(ErrorKind::Unavailable, message)
            .without_retry()
            .with_log_note(error.to_string());
    }
    ApiError::new(
        ErrorKind::Overloaded,
        "stored answers cannot be read at the moment, retry shortly",
    )
    .with_log_note(error.to_string())
}

/// A call that runs in the background.
pub(crate) struct BackgroundRun {
    account_id: String,
    key_id: String,
    /// Cancels the run.
    pub(crate) cancel: CancellationToken,
    progress: Mutex<RunProgress>,
    changed: Notify,
}

#[derive(Default)]
struct RunProgress {
    events: Vec<(u64, Bytes)>,
    /// True once an answer, a failure or a cancellation decided the end.
    end_decided: bool,
    /// The time the run ended, if it has.
    ended: Option<Instant>,
}

impl RunProgress {
    /// Returns true if the run ended so long ago that its events are no longer available.
    fn is_expired(&self) -> bool {
        self.ended.is_some_and(|at| at.elapsed() > REPLAY_DURATION)
    }
}

impl BackgroundRun {
    /// Returns true if that owner may see the run.
    pub(crate) fn belongs_to(&self, owner: &ObjectOwner) -> bool {
        owner.owns(&self.account_id, Some(&self.key_id))
    }

    /// Appends the next event of the answer, framed as SSE.
    pub(crate) fn push_event(&self, number: u64, event: Bytes) {
        self.progress.lock().events.push((number, event));
        self.changed.notify_waiters();
    }

    /// Decides how the run ends and runs `end`, unless the end is already decided. The first of an
    /// answer, a failure and a cancellation wins.
    pub(crate) fn decide_end(&self, end: impl FnOnce()) -> bool {
        let mut progress = self.progress.lock();
        if progress.end_decided {
            return false;
        }
        progress.end_decided = true;
        end();
        true
    }

    /// Returns the events after that number and waits for at least one; `None` if there will be no
    /// more.
    pub(crate) async fn events_after(&self, number: Option<u64>) -> Option<Vec<(u64, Bytes)>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no event in between is missed.
            changed.as_mut().enable();
            {
                let progress = self.progress.lock();
                let events: Vec<(u64, Bytes)> = progress
                    .events
                    .iter()
                    .filter(|(own, _)| number.is_none_or(|number| *own > number))
                    .cloned()
                    .collect();
                if !events.is_empty() {
                    return Some(events);
                }
                if progress.ended.is_some() {
                    return None;
                }
            }
            changed.await;
        }
    }
}
