//! The difference between what a provider told and what is charged, for the receipt.

use canon::Usage;
use ledger::ChargeReason;

use super::CallAccount;

impl CallAccount {
    /// Records the counts that the provider told if others are billed, and why. The ledger adds its
    /// own reasons: the hold and the cap.
    pub(super) fn explain_charge(&mut self) {
        let is_unused = self.entry.usage == Usage::default();
        if !self.entry.estimated && !is_unused {
            return;
        }
        let told = self.meter.usage.filter(|_| !self.meter.is_estimated);
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
