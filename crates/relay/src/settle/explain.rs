//! The difference between what a provider told and what is charged: answers that cannot be used,
//! whose cost the operator absorbs, and the reasons on the receipt.

use canon::{Money, Usage};
use dialects::ReplyMeter;
use ledger::ChargeReason;

use super::{BYTES_PER_TOKEN, CallAccount};

impl CallAccount {
    /// Returns the usage of an answer by its meter, and true if the provider told it.
    fn usage_of(&self, meter: &ReplyMeter) -> (Usage, bool) {
        match meter.usage.filter(|told| self.is_possible(told)) {
            Some(told) => (told.with_whole_sums(), !meter.is_estimated),
            None => {
                let output = meter.output_bytes.div_ceil(BYTES_PER_TOKEN);
                let input = self.input_bytes.div_ceil(BYTES_PER_TOKEN);
                (Usage { input, output, ..Usage::default() }, false)
            }
        }
    }

    /// Adds the cost of an answer that came and cannot be used or delivered to the amount the
    /// operator absorbs. The provider bills it.
    pub(crate) fn absorb_answer(&mut self, meter: &ReplyMeter) {
        let (usage, is_told) = self.usage_of(meter);
        let cost = self.price_of(&usage);
        self.entry.absorbed = self.entry.absorbed.saturating_add(cost);
        self.has_absorbed = true;
        if is_told {
            self.lost_usage = Some(self.lost_usage.unwrap_or_default().plus(usage));
        }
    }

    /// Adds the cost of the recorded reply, which cannot be delivered, to that amount.
    pub(crate) fn absorb_recorded(&mut self) {
        let meter = std::mem::take(&mut self.meter);
        self.absorb_answer(&meter);
    }

    /// Adds the estimated cost of an attempt that may have been carried out, unless its answer was
    /// absorbed already.
    pub(crate) fn absorb_estimate(&mut self, cost: Money) {
        if !std::mem::replace(&mut self.has_absorbed, true) {
            self.entry.absorbed = self.entry.absorbed.saturating_add(cost);
        }
    }

    /// Records the counts that the provider told if others are billed, and why. The ledger adds its
    /// own reasons: the hold and the cap.
    pub(super) fn explain_charge(&mut self) {
        let is_unused = self.entry.usage == Usage::default();
        if !self.entry.estimated && !is_unused {
            return;
        }
        let told = self.meter.usage.filter(|_| !self.meter.is_estimated);
        let told = told.or(self.lost_usage.filter(|_| is_unused));
        let reason = match told {
            None if is_unused => return,
            None => ChargeReason::NotTold,
            Some(_) if is_unused => ChargeReason::NotDelivered,
            Some(told) if !self.is_possible(&told) => ChargeReason::Impossible,
            Some(_) => ChargeReason::Incomplete,
        };
        self.entry.told = told.map(Box::new);
        self.entry.explain(reason);
        if self.unseen_output > 0 {
            self.entry.explain(ChargeReason::CallerLeft);
        }
    }
}
