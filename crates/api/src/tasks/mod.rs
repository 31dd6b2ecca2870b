//! Tasks: calls that go on without their caller, on whichever node has time, until they are done.
//!
//! What was asked lies in the store; a run is an ordinary call made of it, with a hold of its own.
//! A run that died with its process cost the caller nothing and is begun again: the result is
//! stored before the run is paid, so that nobody pays for what cannot be fetched.

mod run;
mod submit;
mod view;
mod webhooks;

pub(crate) use submit::{AsyncOptions, submit};
pub(crate) use view::{poll_delay_s, task_json, task_path};

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use relay::file_store::derive_key;

/// What this node knows of its own runs.
pub struct ImageTasks {
    /// The runs of this process, by the id of their task.
    running: Mutex<HashMap<String, Arc<TaskRun>>>,
    /// There may be something to run.
    new_work: Notify,
    /// There may be something to tell.
    new_ends: Notify,
    /// What the secrets of webhooks are made of.
    secret: hmac::Key,
}

/// One run.
#[derive(Default)]
struct TaskRun {
    /// The order to stop: its caller does not want it any more.
    cancel: CancellationToken,
    /// How far it has come, in hundredths, as the provider tells it.
    progress: Arc<AtomicU8>,
}

impl ImageTasks {
    pub fn new(secret: &str) -> Self {
        Self {
            running: Mutex::default(),
            new_work: Notify::new(),
            new_ends: Notify::new(),
            secret: derive_key(secret, "webhooks"),
        }
    }

    /// How many run here.
    fn running_count(&self) -> usize {
        self.running.lock().len()
    }

    fn begin_run(&self, id: &str) -> Arc<TaskRun> {
        let job = Arc::new(TaskRun::default());
        self.running.lock().insert(id.to_owned(), Arc::clone(&job));
        job
    }

    fn end_run(&self, id: &str, job: &Arc<TaskRun>) {
        let mut running = self.running.lock();
        // A later run of the same task is another one's.
        if running.get(id).is_some_and(|now| Arc::ptr_eq(now, job)) {
            running.remove(id);
        }
        drop(running);
        self.new_work.notify_one();
    }

    /// A task was cancelled; if it runs here, it ends at once.
    pub(crate) fn cancel_run(&self, id: &str) {
        if let Some(job) = self.running.lock().get(id) {
            job.cancel.cancel();
        }
        self.new_ends.notify_one();
    }

    /// The secret an account's webhooks are signed with, as Standard Webhooks write it.
    pub(crate) fn webhook_secret(&self, account: &str) -> String {
        webhooks::secret_text(&self.webhook_key(account))
    }

    fn webhook_key(&self, account: &str) -> Vec<u8> {
        hmac::sign(&self.secret, account.as_bytes()).as_ref().to_vec()
    }
}
