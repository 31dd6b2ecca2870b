//! Records of a running call in the journal and the lease store, and its settlement after a death.

use canon::{Micros, Money, SharedText, Usage};
use serde::{Deserialize, Serialize};

use crate::{
    CallOutcome, CallTags, ChargeReason, FailedAttempt, LeaseToken, LedgerEntry,
    SettlementKnowledge,
};

/// A call at its admission, with its reservation. It is in the journal before the first byte goes to
/// a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The call's id.
    pub request_id: SharedText,
    /// The key that pays.
    pub key_id: SharedText,
    /// The account behind the key.
    pub account_id: SharedText,
    /// Time of admission.
    pub at: Micros,
    /// The reserved amount.
    pub amount: Money,
    /// The format the caller speaks.
    pub dialect: SharedText,
    /// The model asked for.
    pub model: SharedText,
    /// True if the reply is streamed.
    pub stream: bool,
    /// The price list in force.
    pub price_version: SharedText,
    /// The lease that pays; `None` for a key without a cap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseToken>,
    /// The lane that is asked first.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub lane: SharedText,
    /// Estimated cost of the prompt at that lane.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub start_cost: Money,
    /// Estimated cost of a second of output at the usual speed of that lane.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_per_second: Money,
    /// Session that the caller named; empty without one.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub session: SharedText,
    /// End user that the caller named; empty without one.
    #[serde(default, skip_serializing_if = "SharedText::is_empty")]
    pub end_user: SharedText,
    /// Tags that the caller named.
    #[serde(default, skip_serializing_if = "CallTags::is_empty")]
    pub tags: CallTags,
}

fn is_zero(amount: &Money) -> bool {
    *amount == Money::ZERO
}

/// Estimates what the provider made and nobody saw, until the death of the process: the prompt if
/// nothing was seen at all, and output at the usual speed since the given moment.
fn unseen_cost(attempt: &LaterAttempt, since: Option<Micros>, died_at: Option<Micros>) -> Money {
    let prompt = if since.is_some() { Money::ZERO } else { attempt.start_cost };
    let since = since.unwrap_or(attempt.at);
    let time = died_at.map_or(Micros::ZERO, |died_at| died_at - since).max(Micros::ZERO);
    let picos = i128::from(attempt.cost_per_second.as_nanos()) * i128::from(time.get()) / 1_000;
    prompt.saturating_add(Money::from_picos(picos)).max(Money::ZERO)
}

/// An attempt at a lane after earlier ones failed, and what these have cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterAttempt {
    /// Time at which the lane is asked.
    pub at: Micros,
    /// Estimated cost of the prompt at that lane.
    pub start_cost: Money,
    /// Estimated cost of a second of output at the usual speed of that lane.
    pub cost_per_second: Money,
    /// Version of the price list of that lane.
    pub price_version: String,
    /// Amount that the operator absorbs for the earlier attempts.
    pub absorbed: Money,
    /// The earlier attempts, in order.
    pub failed: Vec<FailedAttempt>,
}

/// Usage of a running call at some moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The attempt, if it is not the first one. It is in the journal before the first byte goes to its
    /// lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Box<LaterAttempt>>,
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
    /// known progress. The operator absorbs the estimate of the rest, as far as the hold goes, and the
    /// cost of earlier attempts.
    pub fn settle(
        self,
        now: Micros,
        died_at: Option<Micros>,
        knowledge: SettlementKnowledge,
    ) -> LedgerEntry {
        let seen = self.reached.as_ref().filter(|reached| reached.usage != Usage::default());
        let seen_at = seen.map(|reached| reached.at);
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
            start_cost,
            cost_per_second,
            session,
            end_user,
            tags,
        } = self.held;
        let (lane, usage, cost, attempt) = match self.reached {
            Some(ProgressRecord { lane, usage, cost, attempt, .. }) => {
                (lane.into(), usage, cost.max(Money::ZERO).min(amount), attempt)
            }
            None => (first_lane, Usage::default(), Money::ZERO, None),
        };
        let first = || {
            let first = LaterAttempt {
                at,
                start_cost,
                cost_per_second,
                price_version: price_version.into(),
                ..Default::default()
            };
            Box::new(first)
        };
        let attempt = attempt.unwrap_or_else(first);
        let unseen = unseen_cost(&attempt, seen_at, died_at).min(amount.saturating_sub(cost));
        let LaterAttempt { price_version, absorbed, failed, .. } = *attempt;
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
            attempts: u32::try_from(failed.len()).unwrap_or(u32::MAX).saturating_add(1),
            failed,
            stream,
            status: 503,
            outcome: CallOutcome::Recovered,
            usage,
            estimated: true,
            cost,
            held: Some(amount),
            absorbed: unseen.saturating_add(absorbed),
            price_version: price_version.into(),
            losses: Vec::new(),
            ended_by: CallOutcome::Recovered.usual_end(),
            service: SharedText::default(),
            charges: Vec::new(),
            told: None,
            reasons: vec![ChargeReason::GatewayDied],
            knowledge,
            session,
            end_user,
            tags,
            error: None,
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
            lane: "first".into(),
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
            attempt: None,
        });
        OpenCall { held, reached }
    }

    #[test]
    fn a_later_attempt_is_estimated_by_its_own_prices_and_the_earlier_ones_are_absorbed() {
        let attempt = LaterAttempt {
            at: 12 * SECOND,
            start_cost: Money::from_nanos(200),
            cost_per_second: Money::from_nanos(100),
            price_version: "second list".to_owned(),
            absorbed: Money::from_nanos(5_000),
            failed: vec![FailedAttempt { lane: "first".to_owned(), ..FailedAttempt::default() }],
        };
        for (reached, expected) in [
            // Asked at 12 s and dead at 15 s: the prompt, and three seconds.
            ((12, 0, 0), (0, 5_500)),
            // Seen until 14 s: one more second.
            ((14, 7, 90), (90, 5_100)),
            // The hold bounds the estimate, not what earlier attempts have cost.
            ((14, 7, 990), (990, 5_010)),
        ] {
            let mut call = call(Some(reached));
            if let Some(reached) = &mut call.reached {
                reached.attempt = Some(Box::new(attempt.clone()));
            }
            let died_at = Some(15 * SECOND);
            let entry = call.settle(90 * SECOND, died_at, SettlementKnowledge::Journal);
            assert_eq!((entry.cost.as_nanos(), entry.absorbed.as_nanos()), expected);
            assert_eq!((&*entry.lane, &*entry.price_version), ("second", "second list"));
            assert_eq!((entry.attempts, entry.failed), (2, attempt.failed.clone()));
        }
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
