//! The audit log: who changed what, when. Append-only.

use ledger::Micros;
use sqlx::FromRow;

use crate::db::{clean, on_reader, on_writer};
use crate::{Store, StoreError};

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Audit {
    /// When.
    pub at: Micros,
    /// Who: an account id, or the name of a command.
    pub actor: String,
    /// What was done: `key.revoke`.
    pub action: String,
    /// To what: an id.
    pub subject: String,
    /// Anything more worth knowing. Never a secret.
    pub detail: String,
}

const ADD: &str =
    "INSERT INTO audits (at, actor, action, subject, detail) VALUES ($1, $2, $3, $4, $5)";
const LATEST: &str = "SELECT at, actor, action, subject, detail FROM audits \
    ORDER BY at DESC, id DESC LIMIT $1";

impl Store {
    /// Notes a change.
    pub async fn add_audit(
        &self,
        at: Micros,
        actor: &str,
        action: &str,
        subject: &str,
        detail: &str,
    ) -> Result<(), StoreError> {
        on_writer!(&self.db, pool => {
            sqlx::query(ADD)
                .bind(at)
                .bind(clean(actor))
                .bind(clean(action))
                .bind(clean(subject))
                .bind(clean(detail))
                .execute(pool)
                .await?;
        });
        Ok(())
    }

    /// The latest changes, newest first.
    pub async fn audits(&self, limit: u32) -> Result<Vec<Audit>, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_as(LATEST).bind(i64::from(limit)).fetch_all(pool).await?
        }))
    }
}
