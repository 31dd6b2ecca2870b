//! Nodes: who is alive, and what becomes of the leases and calls of one that is not.
//!
//! A node's journal is its own; others know of its calls what it told once a second. When its
//! leases have run out, whoever comes first settles these calls from what was last told and sets
//! the rest of the leases free. A node that comes back posts its journal: calls that are settled
//! already are skipped, the others pay as far as the cap has room (`post.rs`).

use ledger::{Closed, GRACE, LEASE, Micros, Node, OpenCall, Settled, Token};
use std::sync::Arc;

use crate::db::{in_transaction, on_reader, on_writer};
use crate::leases::{LOCK_KEY, Locked, UNLEASE};
use crate::{Store, StoreError};

/// How long an empty node is remembered.
const REMEMBERED: Micros = 86_400_000_000;
/// How many leases are closed in one go, so that many nodes share the work.
const AT_ONCE: i64 = 200;

const ENTER: &str = "INSERT INTO nodes (id, epoch, seen) \
    VALUES ($1, (SELECT now FROM store_clock), (SELECT now FROM store_clock)) \
    ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, epoch = \
    CASE WHEN excluded.epoch > nodes.epoch THEN excluded.epoch ELSE nodes.epoch + 1 END \
    RETURNING epoch";
const LEAVE: &str = "DELETE FROM nodes WHERE id = $1 AND epoch = $2";
const FORGET: &str = "DELETE FROM nodes WHERE seen < (SELECT now FROM store_clock) - $1 \
    AND NOT EXISTS (SELECT 1 FROM leases WHERE node_id = nodes.id) \
    AND NOT EXISTS (SELECT 1 FROM holds WHERE node_id = nodes.id)";
const OF_NODE: &str = "SELECT token, key_id FROM leases WHERE node_id = $1 ORDER BY key_id";
const EXPIRED: &str = "SELECT token, key_id FROM leases \
    WHERE expires < (SELECT now FROM store_clock) - $1 ORDER BY key_id LIMIT $2";
const CLOSE: &str = "DELETE FROM leases WHERE token = $1 RETURNING amount";
const CLOSE_EXPIRED: &str = "DELETE FROM leases \
    WHERE token = $1 AND expires < (SELECT now FROM store_clock) - $2 RETURNING amount";
const CALLS_OF_NODE: &str = "SELECT body FROM holds WHERE node_id = $1";
const CALLS_OF_LEASE: &str = "SELECT body FROM holds WHERE lease = $1";
// What a lease pays for is settled with the lease.
const CALLS_OF_GONE: &str = "SELECT body FROM holds WHERE NOT EXISTS (SELECT 1 FROM nodes \
    WHERE nodes.id = holds.node_id AND nodes.seen >= (SELECT now FROM store_clock) - $1) \
    AND NOT EXISTS (SELECT 1 FROM leases WHERE token = holds.lease) LIMIT $2";

/// Calls as they were last told, settled as far as they had come.
fn settled(bodies: &[String], now: Micros) -> Result<Vec<Settled>, StoreError> {
    let calls = bodies.iter().map(|body| {
        let call: OpenCall = serde_json::from_str(body)
            .map_err(|e| StoreError::Other(format!("a running call cannot be read: {e}")))?;
        let lease = call.held.lease;
        Ok(Settled { entry: Arc::new(call.settle(now)), lease, shown: true })
    });
    calls.collect()
}

impl Store {
    /// Enters a node under that name. What an earlier process of that name left is closed.
    pub(crate) async fn enter_node(&self, id: &str) -> Result<Node, StoreError> {
        self.close_node(id).await?;
        let epoch = on_writer!(&self.db, pool => {
            sqlx::query_scalar(ENTER).bind(id).fetch_one(pool).await?
        });
        Ok(Node { id: id.to_owned(), epoch })
    }

    /// Closes what a node has and forgets it, unless another entered under its name.
    pub(crate) async fn leave_node(&self, node: &Node) -> Result<(), StoreError> {
        let left = on_writer!(&self.db, pool => {
            sqlx::query(LEAVE).bind(&node.id).bind(node.epoch).execute(pool).await?.rows_affected()
        });
        if left > 0 {
            self.close_node(&node.id).await?;
        }
        Ok(())
    }

    async fn close_node(&self, id: &str) -> Result<(), StoreError> {
        let now = self.now().await?;
        let bodies: Vec<String> = on_writer!(&self.db, pool => {
            sqlx::query_scalar(CALLS_OF_NODE).bind(id).fetch_all(pool).await?
        });
        // Normally there are none left: the journal told of all of them.
        self.post(&settled(&bodies, now)?).await?;
        let leases: Vec<(Token, String)> = on_writer!(&self.db, pool => {
            sqlx::query_as(OF_NODE).bind(id).fetch_all(pool).await?
        });
        for (token, key_id) in leases {
            in_transaction!(&self.db, tx: Kind => {
                let _: Option<Locked> =
                    sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
                let amount: Option<i64> =
                    sqlx::query_scalar(CLOSE).bind(token).fetch_optional(&mut *tx).await?;
                if let Some(amount) = amount {
                    sqlx::query(UNLEASE).bind(&key_id).bind(amount).execute(&mut *tx).await?;
                }
            });
        }
        Ok(())
    }

    /// Closes what nodes that are gone left behind.
    pub(crate) async fn close_gone_nodes(&self, now: Micros) -> Result<Closed, StoreError> {
        let mut closed = Closed::default();
        let expired: Vec<(Token, String)> = on_reader!(&self.db, pool => {
            sqlx::query_as(EXPIRED).bind(GRACE).bind(AT_ONCE).fetch_all(pool).await?
        });
        for (token, key_id) in expired {
            let bodies: Vec<String> = on_reader!(&self.db, pool => {
                sqlx::query_scalar(CALLS_OF_LEASE).bind(token).fetch_all(pool).await?
            });
            // Against the lease, which is still there: what was set aside pays for them.
            closed.calls += self.post(&settled(&bodies, now)?).await?;
            let amount: Option<i64> = in_transaction!(&self.db, tx: Kind => {
                let _: Option<Locked> =
                    sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
                let amount = sqlx::query_scalar(CLOSE_EXPIRED)
                    .bind(token)
                    .bind(GRACE)
                    .fetch_optional(&mut *tx)
                    .await?;
                if let Some(amount) = amount {
                    sqlx::query(UNLEASE).bind(&key_id).bind(amount).execute(&mut *tx).await?;
                }
                amount
            });
            closed.leases += usize::from(amount.is_some());
        }
        let bodies: Vec<String> = on_reader!(&self.db, pool => {
            sqlx::query_scalar(CALLS_OF_GONE)
                .bind(LEASE + GRACE)
                .bind(AT_ONCE)
                .fetch_all(pool)
                .await?
        });
        closed.calls += self.post(&settled(&bodies, now)?).await?;
        on_writer!(&self.db, pool => {
            sqlx::query(FORGET).bind(REMEMBERED).execute(pool).await?;
        });
        Ok(closed)
    }

    /// The time by the database's clock.
    pub(crate) async fn now(&self) -> Result<Micros, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar("SELECT now FROM store_clock").fetch_one(pool).await?
        }))
    }
}
