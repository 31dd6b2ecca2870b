//! Liveness of nodes, and recovery of the leases and calls of dead ones.
//!
//! Other nodes know a node's calls from its heartbeats. When its leases have expired, any node
//! settles these calls from the last heartbeat and frees the leases except for the announced
//! unreported spending. That amount pays for the calls in the dead node's journal when it restarts.
//! The journal knows more than the heartbeats, so it corrects calls that are settled already.

use canon::{Micros, Money};
use ledger::{
    ClosedCounts, LEASE_DURATION, LEASE_GRACE, LeaseToken, Node, OpenCall, SettledCall,
    SettlementKnowledge,
};
use std::sync::Arc;

use crate::db::{in_transaction, on_reader, on_writer};
use crate::lease_bounds::{LOCK_KEY, LockedKey};
use crate::leases::UNLEASE;
use crate::row::row;
use crate::{Store, StoreError};

/// Time for which an unused node, and the reserve of a dead one, is kept.
const NODE_RETENTION: Micros = Micros::from_days(1);
/// Maximum number of leases closed by one call, so that nodes share the work.
const MAX_CLOSED_LEASES: i64 = 200;

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
const CALLS_OF_NODE: &str = "SELECT body, (SELECT seen FROM nodes WHERE id = node_id) AS seen FROM holds WHERE node_id = $1";
const CALLS_OF_LEASE: &str =
    "SELECT body, (SELECT seen FROM nodes WHERE id = node_id) AS seen FROM holds WHERE lease = $1";
// Calls that an open lease pays for are settled with that lease.
const CALLS_OF_GONE: &str = "SELECT body, (SELECT seen FROM nodes WHERE id = node_id) AS seen \
    FROM holds WHERE NOT EXISTS (SELECT 1 FROM nodes \
    WHERE nodes.id = holds.node_id AND nodes.seen >= (SELECT now FROM store_clock) - $1) \
    AND NOT EXISTS (SELECT 1 FROM leases WHERE token = holds.lease AND closed = 0) LIMIT $2";

const SEEN: &str =
    "SELECT id, (SELECT now FROM store_clock) - seen FROM nodes ORDER BY seen DESC, id";

row! {
    /// A running call as its node reported it.
    pub(crate) struct ReportedCall {
        body: String,
        /// The last heartbeat of the node, which is taken for the time of its death.
        seen: Option<Micros>,
    }
}

/// Settles calls from their last report.
pub(crate) fn settled(calls: &[ReportedCall], now: Micros) -> Result<Vec<SettledCall>, StoreError> {
    let calls = calls.iter().map(|ReportedCall { body, seen }| {
        let call: OpenCall = serde_json::from_str(body).map_err(|e| {
            StoreError::Other(format!("a stored running call cannot be decoded: {e}"))
        })?;
        let lease = call.held.lease;
        let entry = Arc::new(call.settle(now, *seen, SettlementKnowledge::Reported));
        Ok(SettledCall { entry, lease, shown: true })
    });
    calls.collect()
}

row! {
    #[derive(Clone, Copy)]
    struct ExpiredLease {
        amount: Money,
        unreported: Money as "exposed",
    }
}

impl Store {
    /// Registers a node. The leases of an earlier process of that name are closed.
    pub(crate) async fn enter_node(&self, id: &str) -> Result<Node, StoreError> {
        self.close_node(id).await?;
        let epoch = on_writer!(&self.db, pool => {
            sqlx::query_scalar(ENTER).bind(id).fetch_one(pool).await?
        });
        Ok(Node { id: id.to_owned(), epoch })
    }

    /// Closes the leases of a node and deletes it, unless another process has its name.
    pub(crate) async fn leave_node(&self, node: &Node) -> Result<(), StoreError> {
        let left = on_writer!(&self.db, pool => {
            sqlx::query(LEAVE).bind(&node.id).bind(node.epoch).execute(pool).await?.rows_affected()
        });
        if left > 0 {
            self.close_node(&node.id).await?;
        }
        Ok(())
    }

    /// Settles the calls of a node and closes its leases, without a reserve.
    pub(crate) async fn close_node(&self, id: &str) -> Result<(), StoreError> {
        let now = self.now().await?;
        let calls: Vec<ReportedCall> = on_writer!(&self.db, pool => {
            sqlx::query_as(CALLS_OF_NODE).bind(id).fetch_all(pool).await?
        });
        // Usually there are none, because the journal was posted before.
        self.post(&settled(&calls, now)?).await?;
        let leases: Vec<(LeaseToken, String)> = on_writer!(&self.db, pool => {
            sqlx::query_as(OF_NODE).bind(id).fetch_all(pool).await?
        });
        self.close_leases(&leases).await
    }

    /// Deletes leases.
    pub(crate) async fn close_leases(
        &self,
        leases: &[(LeaseToken, String)],
    ) -> Result<(), StoreError> {
        for (token, key_id) in leases {
            in_transaction!(&self.db, tx: Kind => {
                let _: Option<LockedKey> =
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

    /// Closes the leases of dead nodes and settles their calls.
    pub(crate) async fn close_gone_nodes(&self, now: Micros) -> Result<ClosedCounts, StoreError> {
        let mut closed = ClosedCounts::default();
        let expired: Vec<(LeaseToken, String)> = on_reader!(&self.db, pool => {
            let expired = sqlx::query_as(EXPIRED).bind(LEASE_GRACE.get()).bind(MAX_CLOSED_LEASES);
            expired.fetch_all(pool).await?
        });
        for (token, key_id) in expired {
            let calls: Vec<ReportedCall> = on_reader!(&self.db, pool => {
                sqlx::query_as(CALLS_OF_LEASE).bind(token).fetch_all(pool).await?
            });
            // Posted before the lease is closed, so that it pays for them.
            closed.calls += self.post(&settled(&calls, now)?).await?;
            let found: Option<ExpiredLease> = in_transaction!(&self.db, tx: Kind => {
                let _: Option<LockedKey> =
                    sqlx::query_as(LOCK_KEY).bind(&key_id).fetch_optional(&mut *tx).await?;
                let found: Option<ExpiredLease> = sqlx::query_as(STILL_EXPIRED)
                    .bind(token)
                    .bind(LEASE_GRACE.get())
                    .fetch_optional(&mut *tx)
                    .await?;
                if let Some(ExpiredLease { amount, unreported }) = found {
                    let keep = unreported.max(Money::ZERO).min(amount);
                    let back = amount.saturating_sub(keep).as_nanos();
                    sqlx::query(UNLEASE).bind(&key_id).bind(back).execute(&mut *tx).await?;
                    if keep > Money::ZERO {
                        let keep = sqlx::query(KEEP_CLOSED).bind(token).bind(keep.as_nanos());
                        keep.execute(&mut *tx).await?;
                    } else {
                        sqlx::query(CLOSE).bind(token).execute(&mut *tx).await?;
                    }
                }
                found
            });
            closed.leases += usize::from(found.is_some());
        }
        let forgotten: Vec<(LeaseToken, String)> = on_reader!(&self.db, pool => {
            sqlx::query_as(FORGOTTEN)
                .bind(NODE_RETENTION.get())
                .bind(MAX_CLOSED_LEASES)
                .fetch_all(pool)
                .await?
        });
        self.close_leases(&forgotten).await?;
        let calls: Vec<ReportedCall> = on_reader!(&self.db, pool => {
            sqlx::query_as(CALLS_OF_GONE)
                .bind((LEASE_DURATION + LEASE_GRACE).get())
                .bind(MAX_CLOSED_LEASES)
                .fetch_all(pool)
                .await?
        });
        closed.calls += self.post(&settled(&calls, now)?).await?;
        on_writer!(&self.db, pool => {
            sqlx::query(FORGET).bind(NODE_RETENTION.get()).execute(pool).await?;
        });
        Ok(closed)
    }

    /// Returns the name of every known node and the time since its last heartbeat.
    pub async fn nodes(&self) -> Result<Vec<(String, Micros)>, StoreError> {
        let nodes: Vec<(String, i64)> =
            on_reader!(&self.db, pool => sqlx::query_as(SEEN).fetch_all(pool).await?);
        Ok(nodes.into_iter().map(|(id, silence)| (id, Micros::new(silence))).collect())
    }

    /// Returns the time of the database's clock.
    pub async fn now(&self) -> Result<Micros, StoreError> {
        let now = on_reader!(&self.db, pool => {
            sqlx::query_scalar("SELECT now FROM store_clock").fetch_one(pool).await?
        });
        Ok(Micros::new(now))
    }
}
