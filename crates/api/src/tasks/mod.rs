//! Image tasks: calls that continue without their caller, on any node with free capacity.
//!
//! The request is stored. A run repeats it as an ordinary call with its own reservation. A run that
//! ended with its process costs the caller nothing and starts again. The result is stored before
//! the run is charged, so that nothing is charged that cannot be fetched.

mod run;
mod submit;
mod view;
mod webhooks;

pub(crate) use submit::{AsyncOptions, submit, too_many_tasks};
pub(crate) use view::{poll_delay_s, task_json, unreadable_error};

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use store::ObjectOwner;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use relay::file_store::derive_key;

/// Image tasks of this node.
pub struct ImageTasks {
    /// Runs of this process by task id.
    running: Mutex<HashMap<String, Arc<TaskRun>>>,
    /// Signals that a task may be ready to run.
    new_work: Notify,
    /// Signals that a webhook may be ready to be sent.
    new_ends: Notify,
    /// Key from which webhook secrets are derived.
    secret: hmac::Key,
}

/// One run of a task.
#[derive(Default)]
struct TaskRun {
    /// Cancelled when the caller cancels the task.
    cancel: CancellationToken,
    /// Progress in percent, as reported by the provider.
    progress: Arc<AtomicU8>,
}

impl ImageTasks {
    /// Creates an empty set. Webhook secrets are derived from `secret`.
    pub fn new(secret: &str) -> Self {
        Self {
            running: Mutex::default(),
            new_work: Notify::new(),
            new_ends: Notify::new(),
            secret: derive_key(secret, "webhooks"),
        }
    }

    /// Returns the number of runs on this node.
    fn running_count(&self) -> usize {
        self.running.lock().len()
    }

    fn begin_run(&self, id: &str) -> Arc<TaskRun> {
        let task_run = Arc::new(TaskRun::default());
        self.running.lock().insert(id.to_owned(), Arc::clone(&task_run));
        task_run
    }

    fn end_run(&self, id: &str, task_run: &Arc<TaskRun>) {
        let mut running = self.running.lock();
        // A later run of the same task must stay registered.
        if running.get(id).is_some_and(|now| Arc::ptr_eq(now, task_run)) {
            running.remove(id);
        }
        drop(running);
        self.new_work.notify_one();
    }

    /// Ends the run of a cancelled task if it runs here.
    pub(crate) fn cancel_run(&self, id: &str) {
        if let Some(task_run) = self.running.lock().get(id) {
            task_run.cancel.cancel();
        }
        self.new_ends.notify_one();
    }

    /// Returns the secret that signs an owner's webhooks, in the notation of Standard Webhooks.
    pub(crate) fn webhook_secret(&self, owner: &ObjectOwner) -> String {
        webhooks::secret_text(&self.webhook_key(owner))
    }

    /// Returns the secret of a key or of an account. The ids of accounts contain no colon, so that
    /// no key gets the secret of an account.
    fn webhook_key(&self, owner: &ObjectOwner) -> Vec<u8> {
        let signed = match owner.key_id() {
            Some(key_id) => hmac::sign(&self.secret, format!("key:{key_id}").as_bytes()),
            None => hmac::sign(&self.secret, owner.account_id().as_bytes()),
        };
        signed.as_ref().to_vec()
    }
}
