//! Checks of the row of a call: charged and absorbed against the meter of its provider.

use canon::{Money, Usage};
use catalog::ModelDirectory;
use ledger::{CallOutcome, ChargeReason, EndedBy, LedgerEntry};

use super::families::Family;
use super::{CallEvent, Cell, PROMPT};

/// Goodwill of a key.
const GOODWILL: Money = Money::from_nanos(10_000_000);

/// The party that pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payer {
    Key,
    Operator,
}

impl Cell {
    /// Cost of the prompt and of so much output by the price list: what the provider has made for
    /// certain.
    pub(super) fn least_bill(&self, output: u64) -> Money {
        let Family { provider, model, .. } = &*self.family;
        let (_, offer) = ModelDirectory::embedded().find_offer(provider, model).unwrap();
        let input = u64::try_from(PROMPT.repeat(8).len() / 4).unwrap();
        offer.prices.cost(&Usage { input, output, ..Usage::default() })
    }

    /// True if the model may think before it says something.
    fn may_think(&self) -> bool {
        let Family { provider, model, .. } = &*self.family;
        let (entry, _) = ModelDirectory::embedded().find_offer(provider, model).unwrap();
        entry.capabilities.thinking.range().is_some()
    }

    /// Checks the row of the call.
    pub(super) fn check(&self, row: &LedgerEntry) -> Result<(), String> {
        let held = row.held.unwrap_or_default();
        is("the charge within the hold", row.cost <= held, true)?;
        let requests = self.provider.requests().len();
        is("the number of requests", requests, 1)?;
        if let Some(spare) = &self.spare {
            is("the number of requests of the second lane", spare.requests().len(), 1)?;
        }
        let total = row.cost.saturating_add(row.absorbed);
        let has_all_text = matches!(
            self.event,
            CallEvent::CallerLeavesWithoutCounts | CallEvent::ProviderBreaksOffBeforeCounts
        );
        match self.event {
            CallEvent::Nothing
            | CallEvent::ProviderFailsThenNextLane
            | CallEvent::CapIsLowered
            | CallEvent::PriceChanges
            | CallEvent::ClockSteps => {
                is("the outcome", row.outcome, CallOutcome::Done)?;
                self.check_told(row, total)
            }
            CallEvent::KeyIsRevoked if !self.stream => {
                is("the outcome", row.outcome, CallOutcome::Done)?;
                self.check_told(row, total)
            }
            CallEvent::KeyIsRevoked => {
                is("the end", row.ended_by, EndedBy::Operator)?;
                is("the outcome", row.outcome, CallOutcome::BrokeOff)?;
                self.check_estimate(row, Payer::Key, Some(false))
            }
            // The counts may overtake the news that the caller left.
            CallEvent::CallerLeavesBeforeCounts if self.stream => self.check_told(row, total),
            CallEvent::CallerLeavesMidway | CallEvent::CallerLeavesWithoutCounts if self.stream => {
                is("the outcome", row.outcome, CallOutcome::CallerLeft)?;
                self.check_estimate(row, Payer::Key, Some(has_all_text))
            }
            CallEvent::CallerLeavesBeforeHead if self.stream => {
                is("the outcome", row.outcome, CallOutcome::CallerLeft)?;
                let payer = if total <= GOODWILL { Payer::Operator } else { Payer::Key };
                self.check_estimate(row, payer, None)
            }
            CallEvent::CallerLeavesBeforeHead
            | CallEvent::CallerLeavesMidway
            | CallEvent::CallerLeavesBeforeCounts
            | CallEvent::CallerLeavesWithoutCounts => {
                is("the outcome", row.outcome, CallOutcome::CallerLeft)?;
                self.check_estimate(row, Payer::Key, None)
            }
            CallEvent::ProviderBreaksOff | CallEvent::ProviderBreaksOffBeforeCounts
                if self.stream =>
            {
                is("the outcome", row.outcome, CallOutcome::BrokeOff)?;
                self.check_estimate(row, Payer::Key, Some(has_all_text))
            }
            CallEvent::ProviderBreaksOff | CallEvent::ProviderBreaksOffBeforeCounts => {
                is("the outcome", row.outcome, CallOutcome::Failed)?;
                self.check_estimate(row, Payer::Operator, Some(has_all_text))
            }
            CallEvent::ProviderBreaksOffThenNextLane => {
                is("the outcome", row.outcome, CallOutcome::Done)?;
                is("the charge", row.cost, self.family.bill.min(held))?;
                is("the estimate of the charge", row.estimated, false)?;
                let reason = row.reasons.contains(&ChargeReason::NotDelivered);
                is("the reason for what is absorbed", reason, true)?;
                let lost = total.saturating_sub(self.family.bill);
                let output = if self.stream { 0 } else { Family::delivered_tokens(false) };
                self.check_range(lost, output, held)
            }
        }
    }

    /// Checks a call whose counts the provider told.
    fn check_told(&self, row: &LedgerEntry, total: Money) -> Result<(), String> {
        is("charged and absorbed", total, self.family.bill)?;
        is("charged", row.cost, self.family.bill.min(row.held.unwrap_or_default()))?;
        is("the estimate", row.estimated, false)
    }

    /// Checks a call whose counts nobody knows. `delivered` is `None` without output, and true if all of
    /// the text came.
    fn check_estimate(
        &self,
        row: &LedgerEntry,
        payer: Payer,
        delivered: Option<bool>,
    ) -> Result<(), String> {
        is("the estimate", row.estimated, true)?;
        is("the key pays", row.cost > Money::ZERO, payer == Payer::Key)?;
        let output = delivered.map_or(0, Family::delivered_tokens);
        let total = row.cost.saturating_add(row.absorbed);
        self.check_range(total, output, row.held.unwrap_or_default())?;
        if payer == Payer::Key && self.stream && !self.may_think() {
            // A letter may be counted as a token of its own.
            let counted = row.usage.output.abs_diff(output);
            is("output that was counted and not delivered", counted <= 2, true)?;
        }
        Ok(())
    }

    fn check_range(&self, amount: Money, output: u64, held: Money) -> Result<(), String> {
        let least = self.least_bill(output);
        if amount < least || amount > held {
            return Err(format!("{amount} USD are booked, not between {least} and {held}"));
        }
        Ok(())
    }
}

/// Compares a value with the expected one.
pub(super) fn is<T: PartialEq + std::fmt::Debug>(
    what: &str,
    got: T,
    want: T,
) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?}, not {want:?}")) }
}
