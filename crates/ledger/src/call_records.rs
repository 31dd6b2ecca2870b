//! What the journal and the lease store know of a running call, and its settlement after a death.

use canon::{Micros, Money, Usage};
use serde::{Deserialize, Serialize};

use crate::{CallOutcome, LeaseToken, LedgerEntry, SettlementKnowledge};

/// A call at its admission, with its reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The call's id.
    pub request_id: String,
    /// The key that pays.
    pub key_id: String,
    /// The account behind the key.
    pub account_id: String,
    /// Time of admission.
    pub at: Micros,
    /// The reserved amount.
    pub amount: Money,
    /// The format the caller speaks.
    pub dialect: String,
    /// The model asked for.
    pub model: String,
    /// True if the reply is streamed.
    pub stream: bool,
    /// The price list in force.
    pub price_version: String,
    /// The lease that pays; `None` for a key without a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseToken>,
}

/// Usage of a running call at some moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressRecord {
    /// The call's id.
    pub request_id: String,
    /// The moment.
    pub at: Micros,
    /// The lane that answers.
    pub lane: String,
    /// Usage so far, as far as it is known.
    pub usage: Usage,
    /// Cost of that usage.
    pub cost: Money,
}

/// A running call, with all that another node needs to settle it if this one dies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenCall {
    /// The reservation.
    pub held: HoldRecord,
    /// The last known progress.
    pub reached: Option<ProgressRecord>,
}

impl OpenCall {
    /// Returns the entry of a call that was running when its process died. It pays for the last
    /// known progress.
    pub fn settle(self, now: Micros, knowledge: SettlementKnowledge) -> LedgerEntry {
        let HoldRecord {
            request_id,
            key_id,
            account_id,
            at,
            amount,
            dialect,
            model,
            stream,
            price_version,
            lease: _,
        } = self.held;
        let (lane, usage, cost) = match self.reached {
            Some(ProgressRecord { lane, usage, cost, .. }) => {
                (lane, usage, cost.max(Money::ZERO).min(amount))
            }
            None => (String::new(), Usage::default(), Money::ZERO),
        };
        LedgerEntry {
            request_id,
            key_id,
            account_id,
            started: at,
            ended: now,
            first_byte_us: None,
            dialect,
            model,
            lane,
            attempts: 1,
            failed: Vec::new(),
            stream,
            status: 503,
            outcome: CallOutcome::Recovered,
            usage,
            estimated: true,
            cost,
            held: Some(amount),
            absorbed: Money::ZERO,
            price_version,
            losses: Vec::new(),
            ended_by: CallOutcome::Recovered.usual_end(),
            service: String::new(),
            charges: Vec::new(),
            knowledge,
        }
    }
}
