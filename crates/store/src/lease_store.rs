//! The store as the lease store of the ledger.

use canon::Micros;
use ledger::{
    ClosedCounts, HeartbeatReply, HeartbeatReport, KeyStatus, LeaseGrant, LeaseRequest,
    LeaseReturn, LeaseStore, LeaseStoreError, MarkRaise, Node, PostedBatch, PostedMark,
    SettledCall, StoreRollback,
};

use crate::{Store, StoreError};

fn away(error: StoreError) -> LeaseStoreError {
    LeaseStoreError::Unreachable(error.to_string())
}

impl LeaseStore for Store {
    async fn enter(&self, id: &str) -> Result<Node, LeaseStoreError> {
        self.enter_node(id).await.map_err(away)
    }

    async fn leave(&self, node: &Node) -> Result<(), LeaseStoreError> {
        self.leave_node(node).await.map_err(away)
    }

    async fn grant(&self, request: &LeaseRequest) -> Result<LeaseGrant, LeaseStoreError> {
        let granted = self.grant_lease(request).await.map_err(|error| match error {
            // The store works: it went back to a state from before the key, for instance.
            StoreError::Missing(_) => LeaseStoreError::Rejected(error.to_string()),
            other => away(other),
        });
        granted?.ok_or(LeaseStoreError::Fenced)
    }

    async fn heartbeat(&self, report: &HeartbeatReport) -> Result<HeartbeatReply, LeaseStoreError> {
        self.record_heartbeat(report).await.map_err(away)?.ok_or(LeaseStoreError::Fenced)
    }

    async fn take_back(&self, back: &LeaseReturn) -> Result<(), LeaseStoreError> {
        self.return_lease(back).await.map_err(away)
    }

    async fn post(
        &self,
        settled: &[SettledCall],
        raise: Option<&MarkRaise>,
    ) -> Result<PostedBatch, LeaseStoreError> {
        self.post_marked(settled, raise).await.map_err(away)
    }

    async fn posted_mark(&self, id: &str) -> Result<PostedMark, LeaseStoreError> {
        self.node_mark(id).await.map_err(away)
    }

    async fn mark_posted(&self, raise: &MarkRaise, posted: i64) -> Result<bool, LeaseStoreError> {
        self.raise_node_mark(raise, posted).await.map_err(away)
    }

    async fn note_rollback(
        &self,
        id: &str,
        rollback: StoreRollback,
        is_expected: bool,
    ) -> Result<(), LeaseStoreError> {
        self.add_rollback(id, rollback, is_expected).await.map_err(away)
    }

    async fn key_status(
        &self,
        key_id: &str,
        node: &Node,
    ) -> Result<Option<KeyStatus>, LeaseStoreError> {
        self.key_spending(key_id, node).await.map_err(away)
    }

    async fn close_gone(&self, now: Micros) -> Result<ClosedCounts, LeaseStoreError> {
        self.close_gone_nodes(now).await.map_err(away)
    }
}
