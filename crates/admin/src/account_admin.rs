//! Administration that needs no running gateway: accounts, teams, keys.

use access::keys::KeyCache;
use access::limits::SharedLimits;
use canon::Micros;
use ledger::Clock;
use std::sync::Arc;
use store::{KeyRecord, Store};
use tokio_util::task::TaskTracker;

use crate::actor::Actor;

/// Administration of accounts, teams and keys. The command line uses it without a running gateway.
pub struct AccountAdmin {
    /// Accounts, keys, usage.
    pub store: Store,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// API keys of this node.
    pub keys: Arc<KeyCache>,
    /// Announces changed keys to other nodes; `None` on a single node.
    pub shared: Option<Arc<SharedLimits>>,
    /// Tasks that must end before the process does.
    pub tasks: TaskTracker,
}

impl AccountAdmin {
    /// Source of the time.
    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    /// Puts a new or changed key into this node's cache and announces the change to the other
    /// nodes.
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
