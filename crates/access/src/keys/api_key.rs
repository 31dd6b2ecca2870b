//! An API key in memory, with its money, limits and use on this node.

use canon::{Micros, covers_model};
use config::IpRange;
use ledger::{Clock, KeyBalance};
use std::sync::Arc;
use store::{KeyRecord, ObjectOwner, ObjectSharing};

use super::account_funds::AccountFunds;
use super::token_proof::TokenProof;
use crate::limits::{CallerUse, RateWindow};

/// An API key in the cache.
#[derive(Debug)]
pub struct ApiKey {
    /// Stored record of the key.
    pub record: KeyRecord,
    /// Reserved and spent money of the key on this node.
    pub balance: Arc<KeyBalance>,
    /// Cap, budget, sharing and models of the account.
    pub account: Arc<AccountFunds>,
    /// Rate limits of the key and their current use.
    pub rate_window: Arc<RateWindow>,
    /// Networks the key may be used from. An unreadable entry of the record is left out, so that it
    /// allows nothing.
    pub allowed_networks: Vec<IpRange>,
    /// Use of this node's own resources by the key.
    pub node_use: Arc<CallerUse>,
    /// Proof of the token that matched the hash of the record. A changed record starts without one.
    pub(super) proof: TokenProof,
}

impl ApiKey {
    /// Returns true if the key is neither revoked nor expired.
    pub fn is_live(&self, now: Micros) -> bool {
        self.record.revoked.is_none() && self.record.expires.is_none_or(|expires| now < expires)
    }

    /// The same at the time of this clock. Most keys do not expire, and then it is not read.
    pub(super) fn is_live_now(&self, clock: &dyn Clock) -> bool {
        match self.record.expires {
            Some(_) => self.is_live(clock.now()),
            None => self.record.revoked.is_none(),
        }
    }

    /// The owner of the answers, tasks, replays and receipts this key may see.
    pub fn object_owner(&self) -> ObjectOwner {
        match self.account.share() {
            ObjectSharing::Key => ObjectOwner::key(&self.record.account_id, &self.record.id),
            ObjectSharing::Account => ObjectOwner::account(&self.record.account_id),
        }
    }

    /// Returns true if the key and its account may use the model.
    pub fn may_use(&self, model: &str) -> bool {
        let models = &self.record.models;
        (models.is_empty() || models.iter().any(|allowed| covers_model(allowed, model)))
            && self.account.permits(model)
    }
}
