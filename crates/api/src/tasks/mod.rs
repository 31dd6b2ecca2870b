//! Tasks: calls that go on without their caller, on whichever node has time, until they are done.
//!
//! What was asked lies in the store; a run is an ordinary call made of it, with a hold of its own.
//! A run that died with its process cost the caller nothing and is begun again: the result is
//! stored before the run is paid, so that nobody pays for what cannot be fetched.

mod run;
mod show;
mod submit;
mod tell;

pub(crate) use show::{path_of, show, wait};
pub(crate) use submit::{Wish, submit};

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use relay::files::derived;

/// What this node knows of its own runs.
pub struct Tasks {
    /// The runs of this process, by the id of their task.
    running: Mutex<HashMap<String, Arc<Job>>>,
    /// There may be something to run.
    work: Notify,
    /// There may be something to tell.
    ends: Notify,
    /// What the secrets of webhooks are made of.
    secret: hmac::Key,
}

/// One run.
#[derive(Default)]
struct Job {
    /// The order to stop: its caller does not want it any more.
    cancel: CancellationToken,
    /// How far it has come, in hundredths, as the provider tells it.
    progress: Arc<AtomicU8>,
}

impl Tasks {
    pub fn new(secret: &str) -> Self {
        Self {
            running: Mutex::default(),
            work: Notify::new(),
            ends: Notify::new(),
            secret: derived(secret, "webhooks"),
        }
    }

    /// How many run here.
    fn count(&self) -> usize {
        self.running.lock().len()
    }

    fn begin(&self, id: &str) -> Arc<Job> {
        let job = Arc::new(Job::default());
        self.running.lock().insert(id.to_owned(), Arc::clone(&job));
        job
    }

    fn end(&self, id: &str, job: &Arc<Job>) {
        let mut running = self.running.lock();
        // A later run of the same task is another one's.
        if running.get(id).is_some_and(|now| Arc::ptr_eq(now, job)) {
            running.remove(id);
        }
        drop(running);
        self.work.notify_one();
    }

    /// A task was cancelled; if it runs here, it ends at once.
    pub(crate) fn cancelled(&self, id: &str) {
        if let Some(job) = self.running.lock().get(id) {
            job.cancel.cancel();
        }
        self.ends.notify_one();
    }

    /// The secret an account's webhooks are signed with, as Standard Webhooks write it.
    pub(crate) fn webhook_secret(&self, account: &str) -> String {
        tell::secret_text(&self.hook_key(account))
    }

    fn hook_key(&self, account: &str) -> Vec<u8> {
        hmac::sign(&self.secret, account.as_bytes()).as_ref().to_vec()
    }
}
