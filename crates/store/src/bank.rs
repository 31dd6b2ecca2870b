//! The store as the ledger's bank.

use ledger::{
    Ask, Bank, BankError, Closed, GiveBack, Granted, KeyStanding, Micros, Node, Report, Settled,
    Tidings,
};

use crate::{Store, StoreError};

fn away(error: StoreError) -> BankError {
    BankError::Away(error.to_string())
}

impl Bank for Store {
    async fn enter(&self, id: &str) -> Result<Node, BankError> {
        self.enter_node(id).await.map_err(away)
    }

    async fn leave(&self, node: &Node) -> Result<(), BankError> {
        self.leave_node(node).await.map_err(away)
    }

    async fn grant(&self, ask: &Ask) -> Result<Granted, BankError> {
        self.lease(ask).await.map_err(away)?.ok_or(BankError::Fenced)
    }

    async fn tend(&self, report: &Report) -> Result<Tidings, BankError> {
        self.hear(report).await.map_err(away)?.ok_or(BankError::Fenced)
    }

    async fn take_back(&self, back: &GiveBack) -> Result<(), BankError> {
        self.unlease(back).await.map_err(away)
    }

    async fn post(&self, settled: &[Settled]) -> Result<usize, BankError> {
        Self::post(self, settled).await.map_err(away)
    }

    async fn standing(&self, key_id: &str, node: &Node) -> Result<Option<KeyStanding>, BankError> {
        self.key_standing(key_id, node).await.map_err(away)
    }

    async fn close_gone(&self, now: Micros) -> Result<Closed, BankError> {
        self.close_gone_nodes(now).await.map_err(away)
    }
}
