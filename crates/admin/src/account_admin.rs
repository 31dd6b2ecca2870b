//! The part of administration that needs no running gateway: accounts, teams, keys.

use access::keys::KeyCache;
use access::limits::SharedLimits;
use ledger::{Clock, Micros};
use std::sync::Arc;
use store::{KeyRecord, Store};
use tokio_util::task::TaskTracker;

use crate::actor::Actor;

/// Administration of accounts, teams and keys. The command line has one without a gateway around
/// it.
pub struct AccountAdmin {
    /// Accounts, keys, usage.
    pub store: Store,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// API keys of this node.
    pub keys: Arc<KeyCache>,
    /// The way to tell other nodes of changed keys, where there is one.
    pub shared: Option<Arc<SharedLimits>>,
    /// Tasks that must end before the process does.
    pub tasks: TaskTracker,
}

impl AccountAdmin {
    /// The time.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Makes this node use a new or changed key at once, and tells the other nodes of it.
    pub fn key_changed(&self, record: KeyRecord) {
        self.keys.insert_changed(record);
        if let Some(shared) = &self.shared {
            let shared = Arc::clone(shared);
            self.tasks.spawn(async move { shared.publish_key_change().await });
        }
    }

    /// Writes a line of the audit log. A failure is logged and does not undo the change.
    pub async fn audit(&self, actor: &Actor, action: &str, subject: &str, detail: &str) {
        let name = match actor {
            Actor::FirstStart => return,
            Actor::Operator | Actor::Person(_) | Actor::Key { .. } => actor.audit_name(),
        };
        let written = self.store.add_audit(self.now(), name, action, subject, detail).await;
        if let Err(error) = written {
            tracing::error!(action, subject, "the audit log could not be written: {error}");
        }
    }
}
