//! Administration that needs no running gateway: accounts, teams, keys.

use access::keys::KeyCache;
use access::limits::SharedLimits;
use canon::Micros;
use ledger::Clock;
use std::sync::Arc;
use store::{Account, AuditLine, AuditedChange, KeyRecord, Store, StoreError};
use tokio_util::task::TaskTracker;

use crate::actor::Actor;
use crate::request_origin::RequestOrigin;

/// Name of people who are not signed in, in the audit log.
const ANONYMOUS_AUDIT_NAME: &str = "anonymous";
/// Name of the gateway itself, in the audit log.
const GATEWAY_AUDIT_NAME: &str = "gateway";

/// Action, subject and detail of a line of the audit log.
pub(crate) type AuditNote<'a> = [&'a str; 3];

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

    /// Stores a change together with its lines of the audit log, in one transaction.
    pub(crate) async fn commit(
        &self,
        change: AuditedChange,
        actor: &Actor,
        notes: &[AuditNote<'_>],
    ) -> Result<(), StoreError> {
        match actor {
            Actor::FirstStart => change.commit_unaudited().await,
            Actor::Operator | Actor::Person(_) | Actor::Key { .. } | Actor::Provisioner { .. } => {
                let origin = RequestOrigin::current();
                let lines = notes.iter().map(|note| self.audit_line(actor, &origin, *note));
                change.commit(&lines.collect::<Vec<_>>()).await
            }
        }
    }

    /// Stores a change that the gateway makes by itself, with its line of the audit log.
    pub(crate) async fn commit_by_gateway(
        &self,
        change: AuditedChange,
        note: AuditNote<'_>,
    ) -> Result<(), StoreError> {
        let origin = RequestOrigin::default();
        let line = self.audit_line(&Actor::Operator, &origin, note);
        change.commit(&[AuditLine { actor: GATEWAY_AUDIT_NAME, ..line }]).await
    }

    /// Stores the renewal of a token, which leaves no line: its sign-in and its end do.
    pub(crate) async fn commit_sign_in_step(
        &self,
        change: AuditedChange,
    ) -> Result<(), StoreError> {
        change.commit_unaudited().await
    }

    /// Records an event that changes nothing in the store. It is recorded before it takes place.
    pub(crate) async fn record_event(
        &self,
        actor: &Actor,
        note: AuditNote<'_>,
    ) -> Result<(), StoreError> {
        let origin = RequestOrigin::current();
        self.store.add_audit(&self.audit_line(actor, &origin, note)).await
    }

    /// Records that a stranger was refused, by the method and the account that was tried. The log
    /// never repeats the text that was typed: it may be a password in the wrong field.
    pub async fn record_refused_sign_in(
        &self,
        account: Option<&Account>,
        method: &str,
    ) -> Result<(), StoreError> {
        let origin = RequestOrigin::current();
        let subject = account.map_or("", |account| &account.id);
        let note = ["session.refuse", subject, method];
        let line = AuditLine {
            actor: ANONYMOUS_AUDIT_NAME,
            ..self.audit_line(&Actor::Operator, &origin, note)
        };
        self.store.add_audit(&line).await
    }

    fn audit_line<'a>(
        &self,
        actor: &'a Actor,
        origin: &'a RequestOrigin,
        [action, subject, detail]: AuditNote<'a>,
    ) -> AuditLine<'a> {
        AuditLine {
            at: self.now(),
            actor: actor.audit_name(),
            key_id: actor.key().map(|key| key.id.as_str()),
            action,
            subject,
            detail,
            address: origin.address.as_deref(),
            agent: origin.agent.as_deref(),
        }
    }
}
