//! The audit log in pages, newest change first.
use canon::Micros;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use store::{AuditFilter, AuditRecord};

use crate::Admin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::time_text::serialize_time;

/// Maximum number of changes on one page.
const MAX_PAGE_ROWS: u32 = 1_000;

/// One change.
#[derive(Clone, Debug, Serialize)]
pub struct AuditEntry {
    /// Time of the change.
    #[serde(serialize_with = "serialize_time")]
    pub at: Micros,
    /// The account id or command that made it.
    pub actor: String,
    /// The action, for example `key.revoke`.
    pub action: String,
    /// Id of the changed object.
    pub subject: String,
    /// Further details.
    pub detail: String,
    /// The key that the account used; `None` for people and commands.
    pub key_id: Option<String>,
    /// Address the request came from; `None` for commands.
    pub address: Option<String>,
    /// User agent of the request; `None` for commands.
    pub agent: Option<String>,
}

impl From<AuditRecord> for AuditEntry {
    fn from(record: AuditRecord) -> Self {
        let AuditRecord { id: _, at, actor, key_id, action, subject, detail, address, agent } =
            record;
        Self { at, actor, action, subject, detail, key_id, address, agent }
    }
}

/// Some changes, newest first.
#[derive(Clone, Debug)]
pub struct AuditPage {
    /// The changes.
    pub entries: Vec<AuditEntry>,
    /// The last change of a full page, for the page after it.
    pub next: Option<AuditCursor>,
}

/// Position in the audit log: time and number of a change, written `time~number`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditCursor {
    at: Micros,
    id: i64,
}

impl fmt::Display for AuditCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.at, self.id)
    }
}

impl FromStr for AuditCursor {
    type Err = AdminError;

    fn from_str(text: &str) -> Result<Self, AdminError> {
        let parts = text.split_once('~');
        let parts = parts.and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
        let parts = parts.map(|(at, id)| Self { at: Micros::new(at), id });
        parts.ok_or_else(|| AdminError::invalid("before", "write the `next` of another answer"))
    }
}

/// Selection of changes; `None` is no condition.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// Made by this account or command.
    pub actor: Option<String>,
    /// Of this action (`key.revoke`), or of all actions on this kind of object (`key`).
    pub action: Option<String>,
    /// At this time or later.
    pub since: Option<Micros>,
    /// Before this time.
    pub until: Option<Micros>,
    /// Older than this position.
    pub before: Option<AuditCursor>,
}

impl Admin {
    /// Returns a page of the audit log with up to `limit` changes.
    pub async fn audit_page(
        &self,
        actor: &Actor,
        query: AuditQuery,
        limit: u32,
    ) -> Result<AuditPage, AdminError> {
        actor.require_admin()?;
        if !(1..=MAX_PAGE_ROWS).contains(&limit) {
            return Err(AdminError::invalid("limit", "write a whole number from 1 to 1000"));
        }
        let AuditQuery { actor, action, since, until, before } = query;
        let before = before.map(|AuditCursor { at, id }| (at, id));
        let actors = actor.into_iter().collect();
        let filter = AuditFilter { actors, action, since, until, before, after: None };
        let records = self.store.audits_of(&filter, limit).await?;
        let full = u32::try_from(records.len()) == Ok(limit);
        let last = records.last().filter(|_| full);
        let next = last.map(|last| AuditCursor { at: last.at, id: last.id });
        Ok(AuditPage { entries: records.into_iter().map(AuditEntry::from).collect(), next })
    }
}
