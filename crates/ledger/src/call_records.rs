//! Records of a running call in the journal and the lease store, and its settlement after a death.

use canon::{Micros, Money, Usage};
use serde::{Deserialize, Serialize};

use crate::{CallOutcome, ChargeReason, LeaseToken, LedgerEntry, SettlementKnowledge};

/// A call at its admission, with its reservation. It is in the journal before the first byte goes to
/// a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The lane that is asked first.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lane: String,
    /// Estimated cost of the prompt at that lane.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_cost: Money,
    /// Estimated cost of a second of output at the usual speed of that lane.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_per_second: Money,
}

fn is_zero(amount: &Money) -> bool {
    *amount == Money::ZERO
}

impl HoldRecord {
    /// Estimates what the provider made and nobody saw, until the death of the process: the prompt
    /// if nothing was seen at all, and output at the usual speed since the given moment.
    fn unseen_cost(&self, since: Option<Micros>, died_at: Option<Micros>) -> Money {
        let prompt = if since.is_some() { Money::ZERO } else { self.start_cost };
        let since = since.unwrap_or(self.at);
        let time = died_at.map_or(Micros::ZERO, |died_at| died_at - since).max(Micros::ZERO);
        let picos = i128::from(self.cost_per_second.as_nanos()) * i128::from(time.get()) / 1_000;
        prompt.saturating_add(Money::from_picos(picos)).max(Money::ZERO)
    }
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
    /// Returns the entry of a call that was running when its process died. The key pays for the last
    /// known progress. The operator absorbs the estimate of the rest, as far as the hold goes.
    pub fn settle(
        self,
        now: Micros,
        died_at: Option<Micros>,
        knowledge: SettlementKnowledge,
    ) -> LedgerEntry {
        let seen = self.reached.as_ref().filter(|reached| reached.usage != Usage::default());
        let unseen = self.held.unseen_cost(seen.map(|reached| reached.at), died_at);
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
            lane: first_lane,
            start_cost: _,
            cost_per_second: _,
        } = self.held;
        let (lane, usage, cost) = match self.reached {
            Some(ProgressRecord { lane, usage, cost, .. }) => {
                (lane, usage, cost.max(Money::ZERO).min(amount))
            }
            None => (first_lane, Usage::default(), Money::ZERO),
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
            absorbed: unseen.min(amount.saturating_sub(cost)),
            price_version,
            losses: Vec::new(),
            ended_by: CallOutcome::Recovered.usual_end(),
            service: String::new(),
            charges: Vec::new(),
            told: None,
            reasons: vec![ChargeReason::GatewayDied],
            knowledge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_secs(1);

    fn call(reached: Option<(i64, u64, i64)>) -> OpenCall {
        let held = HoldRecord {
            at: 10 * SECOND,
            amount: Money::from_nanos(1_000),
            lane: "first".to_owned(),
            start_cost: Money::from_nanos(50),
            cost_per_second: Money::from_nanos(30),
            ..HoldRecord::default()
        };
        let reached = reached.map(|(at, output, cost)| ProgressRecord {
            request_id: String::new(),
            at: at * SECOND,
            lane: "second".to_owned(),
            usage: Usage { output, ..Usage::default() },
            cost: Money::from_nanos(cost),
        });
        OpenCall { held, reached }
    }

    #[test]
    fn the_key_pays_for_what_was_seen_and_the_operator_for_the_rest() {
        for (reached, died_at, expected) in [
            // Nothing was seen: the prompt, and the usual output until the death.
            (None, None, ("first", 0, 50)),
            (None, Some(10 * SECOND), ("first", 0, 50)),
            (None, Some(14 * SECOND), ("first", 0, 170)),
            // The clock went back.
            (None, Some(3 * SECOND), ("first", 0, 50)),
            // Another lane was asked and had no output yet.
            (Some((12, 0, 0)), Some(14 * SECOND), ("second", 0, 170)),
            (Some((12, 7, 90)), Some(12 * SECOND), ("second", 90, 0)),
            (Some((12, 7, 90)), Some(14 * SECOND), ("second", 90, 60)),
            // The hold bounds both.
            (Some((12, 7, 990)), Some(14 * SECOND), ("second", 990, 10)),
            (Some((12, 7, 5_000)), Some(14 * SECOND), ("second", 1_000, 0)),
            (None, Some(Micros::MAX), ("first", 0, 1_000)),
        ] {
            let entry = call(reached).settle(90 * SECOND, died_at, SettlementKnowledge::Journal);
            let found = (&*entry.lane, entry.cost.as_nanos(), entry.absorbed.as_nanos());
            assert_eq!(found, expected, "{reached:?} {died_at:?}");
            assert!(entry.estimated);
        }
    }
}
