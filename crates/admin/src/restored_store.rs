//! Databases that were restored, and nodes that are lost.

use store::AdoptedCounts;

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;

impl AccountAdmin {
    /// Takes over a restored database, so that capped keys can spend at once what they have left.
    /// `is_copy` is true for a file that no node has used yet.
    pub async fn adopt_store(
        &self,
        actor: &Actor,
        is_copy: bool,
    ) -> Result<AdoptedCounts, AdminError> {
        actor.require_admin()?;
        if !is_copy {
            self.store.require_no_nodes().await?;
        }
        let adopted = self.store.adopt().await?;
        let AdoptedCounts { leases, calls } = adopted;
        let detail = format!("{leases} leases closed, {calls} calls settled");
        self.record_event(actor, ["store.adopt", "", &detail]).await?;
        Ok(adopted)
    }

    /// Accepts that the database went back to an earlier state. From then on nothing reports it any
    /// more.
    pub async fn accept_rollbacks(&self, actor: &Actor) -> Result<(), AdminError> {
        actor.require_admin()?;
        let mut change = self.store.begin_change().await?;
        change.accept_rollbacks().await?;
        self.commit(change, actor, &[["store.accept_rollback", "", ""]]).await?;
        Ok(())
    }

    /// Gives up a node that will not come back.
    pub async fn forget_node(&self, actor: &Actor, id: &str) -> Result<(), AdminError> {
        actor.require_admin()?;
        if !self.store.nodes().await?.iter().any(|(node, _)| node == id) {
            return Err(AdminError::NotFound("node"));
        }
        self.store.forget_node(id).await?;
        self.record_event(actor, ["node.forget", id, ""]).await?;
        Ok(())
    }
}
