//! What is remembered between calls: answers kept in the store, and background runs in memory.
//!
//! An answer can be asked for the moment its caller has it: it is visible here at once and on its
//! way to the store behind the caller's back.

use bytes::Bytes;
use canon::{ApiError, ErrorKind};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Store, StoredResponse};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the events of a finished background run can be asked for again.
const REPLAY_DURATION: Duration = Duration::from_secs(600);

type UnstoredAnswers = Arc<Mutex<HashMap<String, Arc<StoredResponse>>>>;

/// The memory.
pub struct StoredAnswers {
    store: Store,
    tasks: TaskTracker,
    /// Answers that are not in the store yet.
    unstored: UnstoredAnswers,
    runs: Arc<Mutex<HashMap<String, Arc<BackgroundRun>>>>,
}

impl StoredAnswers {
    pub fn new(store: Store, tasks: TaskTracker) -> Self {
        Self { store, tasks, unstored: Arc::default(), runs: Arc::default() }
    }

    /// Remembers an answer, or its newer state.
    pub(crate) fn put(&self, kept: StoredResponse) {
        let id = kept.id.clone();
        let kept = Arc::new(kept);
        let before = self.unstored.lock().insert(id.clone(), Arc::clone(&kept));
        // Whoever stores the state before stores this one as well, so that no older state of an
        // answer is ever stored behind a newer one.
        if before.is_none() {
            self.tasks.spawn(store_latest(self.store.clone(), Arc::clone(&self.unstored), kept));
        }
    }

    /// An account's answer; a fault when it has none with that id, or its time is over.
    pub(crate) async fn get(
        &self,
        id: &str,
        account: &str,
        now: i64,
    ) -> Result<Arc<StoredResponse>, ApiError> {
        let fresh = self.unstored.lock().get(id).filter(|kept| kept.account_id == account).cloned();
        let kept = match fresh {
            Some(kept) => Some(kept),
            None => self
                .store
                .stored_response(id, account)
                .await
                .map_err(store_unavailable)?
                .map(Arc::new),
        };
        kept.filter(|kept| now < kept.expires).ok_or_else(|| answer_not_found(id))
    }

    /// Forgets an account's answer; a fault when it has none with that id.
    pub(crate) async fn delete(&self, id: &str, account: &str) -> Result<(), ApiError> {
        if let Some(run) = self.find_run(id, account) {
            run.decide_end(|| ());
            run.cancel.cancel();
        }
        let fresh = {
            let mut fresh = self.unstored.lock();
            let ours = fresh.get(id).is_some_and(|kept| kept.account_id == account);
            if ours { fresh.remove(id) } else { None }
        };
        let stored = self.store.drop_response(id, account).await.map_err(store_unavailable)?;
        if stored || fresh.is_some() { Ok(()) } else { Err(answer_not_found(id)) }
    }

    /// A background run begins.
    pub(crate) fn begin_run(&self, id: &str, account: &str) -> Arc<BackgroundRun> {
        let run = Arc::new(BackgroundRun {
            account: account.to_owned(),
            cancel: CancellationToken::new(),
            progress: Mutex::new(RunProgress::default()),
            changed: Notify::new(),
        });
        self.runs.lock().insert(id.to_owned(), Arc::clone(&run));
        run
    }

    /// A background run has ended; its events stay for a while.
    pub(crate) fn end_run(&self, id: &str) {
        if let Some(run) = self.runs.lock().get(id) {
            run.progress.lock().ended = true;
            run.changed.notify_waiters();
        }
        let (runs, id) = (Arc::clone(&self.runs), id.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(REPLAY_DURATION).await;
            runs.lock().remove(&id);
        });
    }

    /// A background run of that account, here and now or a while ago.
    pub(crate) fn find_run(&self, id: &str, account: &str) -> Option<Arc<BackgroundRun>> {
        self.runs.lock().get(id).filter(|run| run.account == account).cloned()
    }
}

/// Stores an answer, and its newer states for as long as there are any.
async fn store_latest(store: Store, fresh: UnstoredAnswers, mut kept: Arc<StoredResponse>) {
    loop {
        let mut wait = Duration::from_millis(50);
        for _ in 0..8 {
            match store.store_response(&kept).await {
                Ok(()) => break,
                Err(e) => tracing::warn!("an answer could not be kept yet: {e}"),
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        let latest = {
            let mut fresh = fresh.lock();
            match fresh.get(&kept.id) {
                Some(now) if !Arc::ptr_eq(now, &kept) => Some(Arc::clone(now)),
                Some(_) => {
                    fresh.remove(&kept.id);
                    return;
                }
                None => None,
            }
        };
        match latest {
            Some(latest) => kept = latest,
            None => {
                // Forgotten while it was on its way to the store.
                if let Err(e) = store.drop_response(&kept.id, &kept.account_id).await {
                    tracing::warn!("an answer that was deleted could not be dropped: {e}");
                }
                return;
            }
        }
    }
}

fn answer_not_found(id: &str) -> ApiError {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(ErrorKind::NotFound, format!("there is no answer `{shown}`; it may have expired"))
}

fn store_unavailable(error: store::StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "kept answers cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}

/// A call that runs without its caller waiting.
pub struct BackgroundRun {
    account: String,
    /// The order to stop.
    pub(crate) cancel: CancellationToken,
    progress: Mutex<RunProgress>,
    changed: Notify,
}

#[derive(Default)]
struct RunProgress {
    events: Vec<(u64, Bytes)>,
    /// Whether its end is decided.
    end_decided: bool,
    ended: bool,
}

impl BackgroundRun {
    /// The next event of the answer, framed for a stream.
    pub(crate) fn push_event(&self, number: u64, event: Bytes) {
        self.progress.lock().events.push((number, event));
        self.changed.notify_waiters();
    }

    /// Decides how it ends and does what belongs to that, unless that is decided already: the first
    /// of an answer, a failure and a cancellation counts, whoever comes at the same time.
    pub(crate) fn decide_end(&self, end: impl FnOnce()) -> bool {
        let mut told = self.progress.lock();
        if told.end_decided {
            return false;
        }
        told.end_decided = true;
        end();
        true
    }

    /// The events behind that number, waiting for at least one; `None` when there will be no more.
    pub(crate) async fn events_after(&self, number: Option<u64>) -> Option<Vec<(u64, Bytes)>> {
        loop {
            let news = self.changed.notified();
            tokio::pin!(news);
            // Registered before looking, so that nothing told in between is missed.
            news.as_mut().enable();
            {
                let told = self.progress.lock();
                let fresh: Vec<(u64, Bytes)> = told
                    .events
                    .iter()
                    .filter(|(own, _)| number.is_none_or(|number| *own > number))
                    .cloned()
                    .collect();
                if !fresh.is_empty() {
                    return Some(fresh);
                }
                if told.ended {
                    return None;
                }
            }
            news.await;
        }
    }
}
