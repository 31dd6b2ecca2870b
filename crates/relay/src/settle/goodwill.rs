//! Ends without delivery that a caller can provoke: a deadline of the gateway, and a stream that is left
//! before any output. Nobody knows what the provider made until then, so it is estimated.
//!
//! A key has a small goodwill on each node. The operator absorbs such an end while the goodwill covers it,
//! and the key pays it otherwise. What the key pays refills the goodwill. So these ends cost the operator at
//! most the goodwill more than the key has paid.

use canon::{Money, Usage};
use ledger::{CallOutcome, ChargeReason, HoldTicket};

use super::CallAccount;

/// An attempt that a deadline of the gateway ended.
#[derive(Clone, Copy)]
pub(super) struct DeadlineLoss {
    /// Its estimated usage.
    pub(super) usage: Usage,
    /// The amount that is absorbed for it.
    pub(super) absorbed: Money,
}

impl CallAccount {
    /// Records that a deadline of the gateway ended the current attempt, whose cost is absorbed.
    pub(super) fn note_deadline(&mut self) {
        self.deadline_loss = Some(DeadlineLoss {
            usage: self.attempt_usage,
            absorbed: self.entry.absorbed.saturating_sub(self.absorbed_before),
        });
    }

    /// Returns the reason on the receipt if the caller can have provoked this end, which delivered nothing.
    fn provoked_end(&self, outcome: CallOutcome) -> Option<ChargeReason> {
        let reason = match outcome {
            CallOutcome::Done | CallOutcome::Recovered => return None,
            CallOutcome::Failed => return self.deadline_loss.map(|_| ChargeReason::Deadline),
            CallOutcome::BrokeOff if self.is_deadline => ChargeReason::Deadline,
            CallOutcome::BrokeOff => return None,
            // A whole answer is paid, and so is one that was ordered as a whole.
            CallOutcome::CallerLeft if !self.entry.stream || self.expected_usage.is_some() => {
                return None;
            }
            CallOutcome::CallerLeft if self.engine.must_end_calls() => return None,
            CallOutcome::CallerLeft => ChargeReason::CallerLeft,
        };
        let (seen, _) = self.count_usage(&self.meter, 0, self.copies);
        let has_output = seen.output > 0 || seen.images > 0;
        // A provider without the whole request has not begun to work.
        (self.sent.is_whole() && !self.has_absorbed && !has_output).then_some(reason)
    }

    /// Returns the usage to bill, and true if it is estimated.
    pub(super) fn usage_within_goodwill(
        &mut self,
        outcome: CallOutcome,
        hold: &HoldTicket,
    ) -> (Usage, bool) {
        let Some(reason) = self.provoked_end(outcome) else { return self.final_usage(outcome) };
        let is_unused = (Usage::default(), false);
        if let (CallOutcome::Failed, Some(DeadlineLoss { usage, absorbed })) =
            (outcome, self.deadline_loss)
        {
            if hold.use_goodwill(absorbed, self.goodwill) {
                return is_unused;
            }
            let charged = self.price_of(&usage).min(absorbed);
            self.entry.absorbed = self.entry.absorbed.saturating_sub(charged);
            if self.entry.absorbed == Money::ZERO {
                (self.absorbs_estimate, self.lost_usage) = (false, None);
            }
            // A failed call costs nothing.
            self.entry.outcome = CallOutcome::BrokeOff;
            self.entry.explain(reason);
            return (usage, true);
        }
        // A prompt that the provider has counted is paid by a caller who leaves.
        let told = self.meter.usage.filter(|told| told.input > 0 && self.is_possible(told));
        let (told, paid) = match told {
            Some(_) if outcome == CallOutcome::CallerLeft => {
                let told = self.count_usage(&self.meter, 0, self.copies);
                (told, self.price_of(&told.0))
            }
            Some(_) | None => (is_unused, Money::ZERO),
        };
        let (made, _) = self.made_usage(&self.meter, self.unseen_output, self.copies);
        let loss = self.price_of(&made).min(hold.amount()).saturating_sub(paid).max(Money::ZERO);
        if hold.use_goodwill(loss, self.goodwill) {
            self.has_absorbed = true;
            self.unseen_output = 0;
            if loss > Money::ZERO {
                self.add_estimate(loss);
            }
            return told;
        }
        self.entry.explain(reason);
        (made, true)
    }
}
