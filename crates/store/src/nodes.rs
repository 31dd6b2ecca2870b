//! Nodes: who is alive, and what becomes of the leases and calls of one that is not.
//!
//! A node's journal is its own; others know of its calls what it told once a second. When its
//! leases have run out, whoever comes first settles these calls from what was last told and sets
//! the rest of the leases free, but for what the node may have used without telling: that pays for
//! what its journal will tell when it comes back. Calls that are settled already are skipped then.

use ledger::{Closed, GRACE, LEASE, Micros, Node, OpenCall, Settled, Token};
use std::sync::Arc;

use crate::db::{in_transaction, on_reader, on_writer};
use crate::leases::{LOCK_KEY, Locked, UNLEASE};
use crate::{Store, StoreError};

/// How long an empty node is remembered, and how long something is set aside for one that is gone.
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
    WHERE expires < (SELECT now FROM store_clock) - $1 AND closed = 0 ORDER BY key_id LIMIT $2";
const FORGOTTEN: &str = "SELECT token, key_id FROM leases \
    WHERE expires < (SELECT now FROM store_clock) - $1 AND closed <> 0 ORDER BY key_id LIMIT $2";
const CLOSE: &str = "DELETE FROM leases WHERE token = $1 RETURNING amount";
const STILL_EXPIRED: &str = "SELECT amount, exposed FROM leases \
    WHERE token = $1 AND expires < (SELECT now FROM store_clock) - $2 AND closed = 0";
const KEEP_CLOSED: &str = "UPDATE leases SET amount = $2, version = version + 1, closed = 1 \
    WHERE token = $1";
const CALLS_OF_NODE: &str = "SELECT body FROM holds WHERE node_id = $1";
const CALLS_OF_LEASE: &str = "SELECT body FROM holds WHERE lease = $1";
// What a lease pays for is settled with the lease.
const CALLS_OF_GONE: &str = "SELECT body FROM holds WHERE NOT EXISTS (SELECT 1 FROM nodes \
    WHERE nodes.id = holds.node_id AND nodes.seen >= (SELECT now FROM store_clock) - $1) \
    AND NOT EXISTS (SELECT 1 FROM leases WHERE token = holds.lease AND closed = 0) LIMIT $2";

const SEEN: &str =
    "SELECT id, (SELECT now FROM store_clock) - seen FROM nodes ORDER BY seen DESC, id";

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
        self.close_leases(&leases).await
    }

    /// Closes leases for good.
    async fn close_leases(&self, leases: &[(Token, String)]) -> Result<(), StoreError> {
        for (token, key_id) in leases {
            in_transaction!(&self.db, tx: Kind => {
                let _: Option<Locked> =
                    sqlx::query_as(LOCK_KEY).bind(key_id).fetch_optional(&mut *tx).await?;
                let amount: Option<i64> =
                    sqlx::query_scalar(CLOSE).bind(token).fetch_optional(&mut *tx).await?;
                if let Some(amount) = amount {
                    sqlx::query(UNLEASE).bind(key_id).bind(amount).execute(&mut *tx).await?;
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
            let found: Option<(i64, i64)> = in_transaction!(&self.db, tx: Kind => {
                let _: Option<Locked> =
                    sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
                let found: Option<(i64, i64)> = sqlx::query_as(STILL_EXPIRED)
                    .bind(token)
                    .bind(GRACE)
                    .fetch_optional(&mut *tx)
                    .await?;
                if let Some((amount, exposed)) = found {
                    let keep = exposed.clamp(0, amount);
                    let back = amount - keep;
                    sqlx::query(UNLEASE).bind(&key_id).bind(back).execute(&mut *tx).await?;
                    if keep > 0 {
                        sqlx::query(KEEP_CLOSED).bind(token).bind(keep).execute(&mut *tx).await?;
                    } else {
                        sqlx::query(CLOSE).bind(token).execute(&mut *tx).await?;
                    }
                }
                found
            });
            closed.leases += usize::from(found.is_some());
        }
        let forgotten: Vec<(Token, String)> = on_reader!(&self.db, pool => {
            sqlx::query_as(FORGOTTEN).bind(REMEMBERED).bind(AT_ONCE).fetch_all(pool).await?
        });
        self.close_leases(&forgotten).await?;
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

    /// Every node that is remembered: its name, and for how long it was not heard.
    pub async fn nodes(&self) -> Result<Vec<(String, Micros)>, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_as(SEEN).fetch_all(pool).await?))
    }

    /// The time by the database's clock.
    pub(crate) async fn now(&self) -> Result<Micros, StoreError> {
        Ok(on_reader!(&self.db, pool => {
            sqlx::query_scalar("SELECT now FROM store_clock").fetch_one(pool).await?
        }))
    }
}
