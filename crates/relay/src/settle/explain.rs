//! The difference between what a provider told and what is charged: answers that cannot be used,
//! whose cost the operator absorbs, and the reasons on the receipt.

use canon::{Money, Usage};
use dialects::ReplyMeter;
use ledger::ChargeReason;

use super::charge::UNKNOWN_CONTEXT_WINDOW;
use super::{BYTES_PER_TOKEN, CallAccount};

/// A provider's own price counts as dearer if it is so by more than this part of it.
const BILL_ROUNDING: i64 = 50;

impl CallAccount {
    /// Adds the cost of an answer that cannot be used or delivered, or of the part of it that came, to
    /// the amount the operator absorbs. The provider bills it. Counts that it has not told are
    /// estimated, within the reservation.
    pub(crate) fn absorb_answer(&mut self, meter: &ReplyMeter) {
        let unseen = self.estimate_unseen(meter, 1);
        let (usage, is_estimated) = self.made_usage(meter, unseen, 1);
        self.attempt_usage = self.attempt_usage.plus(usage);
        self.has_absorbed = true;
        if is_estimated {
            self.add_estimate(self.price_of(&usage));
        } else {
            self.entry.absorbed = self.entry.absorbed.saturating_add(self.price_of(&usage));
        }
        let told = meter.usage.filter(|told| !meter.is_estimated && self.is_possible(told));
        if let Some(told) = told {
            let lost = self.lost_usage.unwrap_or_default().plus(told.with_whole_sums());
            self.lost_usage = Some(lost);
        }
    }

    /// Adds the cost of thinking that a stream which broke off did not show to the amount the operator
    /// absorbs. `usage` is charged.
    pub(super) fn absorb_unseen(&mut self, usage: &Usage) {
        let unseen = self.estimate_unseen(&self.meter, self.copies);
        let seen = self.meter.output_bytes.div_ceil(BYTES_PER_TOKEN);
        // Output that is told and was not seen is a part of it.
        let more = seen.saturating_add(unseen).saturating_sub(usage.output).min(unseen);
        if more > 0 {
            let output = usage.output.saturating_add(more);
            let thinking = usage.thinking.saturating_add(more);
            let all = self.price_of(&Usage { output, thinking, ..*usage });
            self.add_estimate(all.saturating_sub(self.price_of(usage)));
        }
    }

    /// Adds an estimate, at most the reservation, to that amount.
    pub(super) fn add_estimate(&mut self, cost: Money) {
        let most = self.entry.held.unwrap_or(Money::MAX);
        self.entry.absorbed = self.entry.absorbed.saturating_add(cost.min(most));
        self.absorbs_estimate = true;
    }

    /// Adds the cost of the recorded reply, which cannot be delivered, to that amount.
    pub(crate) fn absorb_recorded(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        self.absorb_answer(&meter);
    }

    /// Adds the estimated cost of an attempt that may have been carried out, unless its answer was
    /// absorbed already.
    pub(crate) fn absorb_attempt(&mut self) {
        if !self.has_absorbed {
            self.absorb_answer(&ReplyMeter::default());
        }
    }

    /// Compares the provider's own price of the call with ours. The operator absorbs what it is dearer, if a
    /// call can cost that: within the reservation, or the price of the whole window.
    pub(super) fn absorb_bill(&mut self, bill: Money, held: Money) {
        let provider = self.entry.lane.split('/').next().unwrap_or_default();
        self.engine.metrics.record_bill(provider, bill, self.entry.cost);
        let window = self.context_window.unwrap_or(UNKNOWN_CONTEXT_WINDOW);
        let whole = Usage {
            input: window.saturating_mul(self.rounds),
            output: self.max_output_tokens,
            ..Usage::default()
        };
        let rest = bill.saturating_sub(self.entry.cost);
        // Some providers round the parts of their price.
        let is_dearer = rest.as_nanos() > bill.as_nanos() / BILL_ROUNDING;
        if is_dearer && bill <= held.max(self.price_of(&whole)) {
            self.entry.absorbed = self.entry.absorbed.saturating_add(rest);
            let told = self.entry.told.as_deref().copied().unwrap_or(self.entry.usage);
            self.entry.told = Some(Box::new(Usage { bill: Some(bill), ..told }));
            self.entry.explain(ChargeReason::DearerBill);
        }
    }

    /// Records the counts that the provider told if others are billed, and why. The ledger adds its
    /// own reasons: the hold and the cap.
    pub(super) fn explain_charge(&mut self) {
        let is_unused = self.entry.usage == Usage::default();
        if !is_unused && (self.absorbs_estimate || self.lost_usage.is_some()) {
            self.entry.explain(ChargeReason::NotDelivered);
        }
        if !self.entry.estimated && !is_unused {
            return;
        }
        let told = self.meter.usage.filter(|_| !self.meter.is_estimated);
        let told = told.or(self.lost_usage.filter(|_| is_unused));
        let reason = match told {
            None if is_unused && !self.entry.estimated => return,
            None => ChargeReason::NotTold,
            Some(_) if is_unused => ChargeReason::NotDelivered,
            Some(told) if !self.is_possible(&told) => ChargeReason::Impossible,
            Some(_) => ChargeReason::Incomplete,
        };
        self.entry.told = told.map(Box::new);
        self.entry.explain(reason);
        if self.unseen_output > 0 {
            let is_deadline = self.is_deadline;
            self.entry.explain(match is_deadline {
                true => ChargeReason::Deadline,
                false => ChargeReason::CallerLeft,
            });
        }
    }
}
