//! Marks by which a node notices that the database was set back to an earlier state.

use ledger::{MarkRaise, PostedMark, StoreRollback};

use crate::audited_change::in_change;
use crate::db::{on_reader, on_writer};
use crate::{AuditedChange, Store, StoreError};

const STORE_ID: &str = "SELECT id FROM store_identity";
const MARK: &str = "SELECT posted, adopted FROM node_marks WHERE node_id = $1";
const HAS_LEASES: &str = "SELECT COUNT(*) FROM leases WHERE node_id = $1";
/// Sets the mark. No effect if it is below the one that the node had before.
const RAISE: &str = "INSERT INTO node_marks (node_id, posted, at) \
    SELECT $1, $3, (SELECT now FROM store_clock) \
    WHERE $2 = 0 OR EXISTS (SELECT 1 FROM node_marks WHERE node_id = $1) \
    ON CONFLICT (node_id) DO UPDATE SET at = excluded.at, adopted = 0, posted = \
    CASE WHEN node_marks.posted < excluded.posted THEN excluded.posted ELSE node_marks.posted END \
    WHERE node_marks.posted >= $2";
/// Raises it by the calls of a batch. No effect if it is below the one that the node had before.
pub(crate) const RAISE_BY_BATCH: &str = "INSERT INTO node_marks (node_id, posted, at) \
    SELECT $1, $3, (SELECT now FROM store_clock) \
    WHERE $2 = 0 OR EXISTS (SELECT 1 FROM node_marks WHERE node_id = $1) \
    ON CONFLICT (node_id) DO UPDATE SET posted = node_marks.posted + $3, at = excluded.at, adopted = 0 \
    WHERE node_marks.posted >= $2 RETURNING posted";
const ADD: &str = "INSERT INTO rollbacks (node_id, at, missing, reposted, accepted) \
    VALUES ($1, (SELECT now FROM store_clock), $2, $3, $4)";
/// Tells every node that the database was set back on purpose.
pub(crate) const ADOPT_MARKS: &str = "UPDATE node_marks SET adopted = 1";
const OPEN: &str =
    "SELECT node_id, missing, reposted FROM rollbacks WHERE accepted = 0 ORDER BY at, node_id";
const ACCEPT: &str = "UPDATE rollbacks SET accepted = 1 WHERE accepted = 0";

impl Store {
    /// Returns the number of calls that a node has posted, as far as this database knows.
    pub(crate) async fn node_mark(&self, id: &str) -> Result<PostedMark, StoreError> {
        let (store_id, mark, leases): (String, Option<(i64, i64)>, i64) = on_reader!(&self.db, pool => (
            sqlx::query_scalar(STORE_ID).fetch_one(pool).await?,
            sqlx::query_as(MARK).bind(id).fetch_optional(pool).await?,
            sqlx::query_scalar(HAS_LEASES).bind(id).fetch_one(pool).await?,
        ));
        let (posted, adopted) = mark.unwrap_or_default();
        let (node_id, is_adopted, has_leases) = (id.to_owned(), adopted != 0, leases != 0);
        Ok(PostedMark { node_id, store_id, posted, is_adopted, has_leases })
    }

    /// Raises the number of calls that a node has posted. Returns false if it is smaller than the node
    /// knows it.
    pub(crate) async fn raise_node_mark(
        &self,
        raise: &MarkRaise,
        posted: i64,
    ) -> Result<bool, StoreError> {
        let MarkRaise { node_id, before } = raise;
        Ok(on_writer!(&self.db, pool => {
            let raised = sqlx::query(RAISE).bind(node_id).bind(before).bind(posted);
            raised.execute(pool).await?.rows_affected()
        }) == 1)
    }

    /// Records that this database had lost calls of a node.
    pub(crate) async fn add_rollback(
        &self,
        id: &str,
        rollback: StoreRollback,
        is_expected: bool,
    ) -> Result<(), StoreError> {
        let StoreRollback { missing, reposted } = rollback;
        on_writer!(&self.db, pool => {
            let added = sqlx::query(ADD).bind(id).bind(missing).bind(reposted);
            added.bind(i64::from(is_expected)).execute(pool).await?;
        });
        Ok(())
    }

    /// Returns the rollbacks that no operator has accepted, each with the node that noticed it.
    pub async fn rollbacks(&self) -> Result<Vec<(String, StoreRollback)>, StoreError> {
        let rows: Vec<(String, i64, i64)> =
            on_reader!(&self.db, pool => sqlx::query_as(OPEN).fetch_all(pool).await?);
        let rows = rows.into_iter();
        Ok(rows
            .map(|(node, missing, reposted)| (node, StoreRollback { missing, reposted }))
            .collect())
    }
}

impl AuditedChange {
    /// Accepts all rollbacks.
    pub async fn accept_rollbacks(&mut self) -> Result<(), StoreError> {
        in_change!(self, tx => {
            sqlx::query(ACCEPT).execute(&mut *tx).await?;
        });
        Ok(())
    }
}
