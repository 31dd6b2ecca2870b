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
use store::{StoredResponse, Store};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the events of a finished background run can be asked for again.
const REPLAY: Duration = Duration::from_secs(600);

type Fresh = Arc<Mutex<HashMap<String, Arc<StoredResponse>>>>;

/// The memory.
pub struct Memory {
    store: Store,
    tasks: TaskTracker,
    /// Answers that are not in the store yet.
    fresh: Fresh,
    runs: Arc<Mutex<HashMap<String, Arc<Run>>>>,
}

impl Memory {
    pub fn new(store: Store, tasks: TaskTracker) -> Self {
        Self { store, tasks, fresh: Arc::default(), runs: Arc::default() }
    }

    /// Remembers an answer, or its newer state.
    pub(crate) fn put(&self, kept: StoredResponse) {
        let id = kept.id.clone();
        let kept = Arc::new(kept);
        let before = self.fresh.lock().insert(id.clone(), Arc::clone(&kept));
        // Whoever stores the state before stores this one as well, so that no older state of an
        // answer is ever stored behind a newer one.
        if before.is_none() {
            self.tasks.spawn(store_latest(self.store.clone(), Arc::clone(&self.fresh), kept));
        }
    }

    /// An account's answer; a fault when it has none with that id, or its time is over.
    pub(crate) async fn get(&self, id: &str, account: &str, now: i64) -> Result<Arc<StoredResponse>, ApiError> {
        let fresh = self.fresh.lock().get(id).filter(|kept| kept.account_id == account).cloned();
        let kept = match fresh {
            Some(kept) => Some(kept),
            None => self.store.stored_response(id, account).await.map_err(unreadable)?.map(Arc::new),
        };
        kept.filter(|kept| now < kept.expires).ok_or_else(|| unknown(id))
    }

    /// Forgets an account's answer; a fault when it has none with that id.
    pub(crate) async fn forget(&self, id: &str, account: &str) -> Result<(), ApiError> {
        if let Some(run) = self.run(id, account) {
            run.close(|| ());
            run.cancel.cancel();
        }
        let fresh = {
            let mut fresh = self.fresh.lock();
            let ours = fresh.get(id).is_some_and(|kept| kept.account_id == account);
            if ours { fresh.remove(id) } else { None }
        };
        let stored = self.store.drop_response(id, account).await.map_err(unreadable)?;
        if stored || fresh.is_some() { Ok(()) } else { Err(unknown(id)) }
    }

    /// A background run begins.
    pub(crate) fn begin(&self, id: &str, account: &str) -> Arc<Run> {
        let run = Arc::new(Run {
            account: account.to_owned(),
            cancel: CancellationToken::new(),
            told: Mutex::new(Told::default()),
            news: Notify::new(),
        });
        self.runs.lock().insert(id.to_owned(), Arc::clone(&run));
        run
    }

    /// A background run has ended; its events stay for a while.
    pub(crate) fn end(&self, id: &str) {
        if let Some(run) = self.runs.lock().get(id) {
            run.told.lock().over = true;
            run.news.notify_waiters();
        }
        let (runs, id) = (Arc::clone(&self.runs), id.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(REPLAY).await;
            runs.lock().remove(&id);
        });
    }

    /// A background run of that account, here and now or a while ago.
    pub(crate) fn run(&self, id: &str, account: &str) -> Option<Arc<Run>> {
        self.runs.lock().get(id).filter(|run| run.account == account).cloned()
    }
}

/// Stores an answer, and its newer states for as long as there are any.
async fn store_latest(store: Store, fresh: Fresh, mut kept: Arc<StoredResponse>) {
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

fn unknown(id: &str) -> ApiError {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(ErrorKind::NotFound, format!("there is no answer `{shown}`; it may have expired"))
}

fn unreadable(error: store::StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "kept answers cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}

/// A call that runs without its caller waiting.
pub struct Run {
    account: String,
    /// The order to stop.
    pub(crate) cancel: CancellationToken,
    told: Mutex<Told>,
    news: Notify,
}

#[derive(Default)]
struct Told {
    events: Vec<(u64, Bytes)>,
    /// Whether its end is decided.
    closed: bool,
    over: bool,
}

impl Run {
    /// The next event of the answer, framed for a stream.
    pub(crate) fn tell(&self, number: u64, event: Bytes) {
        self.told.lock().events.push((number, event));
        self.news.notify_waiters();
    }

    /// Decides how it ends and does what belongs to that, unless that is decided already: the first
    /// of an answer, a failure and a cancellation counts, whoever comes at the same time.
    pub(crate) fn close(&self, end: impl FnOnce()) -> bool {
        let mut told = self.told.lock();
        if told.closed {
            return false;
        }
        told.closed = true;
        end();
        true
    }

    /// The events behind that number, waiting for at least one; `None` when there will be no more.
    pub(crate) async fn after(&self, number: Option<u64>) -> Option<Vec<(u64, Bytes)>> {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            // Registered before looking, so that nothing told in between is missed.
            news.as_mut().enable();
            {
                let told = self.told.lock();
                let fresh: Vec<(u64, Bytes)> = told
                    .events
                    .iter()
                    .filter(|(own, _)| number.is_none_or(|number| *own > number))
                    .cloned()
                    .collect();
                if !fresh.is_empty() {
                    return Some(fresh);
                }
                if told.over {
                    return None;
                }
            }
            news.await;
        }
    }
}
