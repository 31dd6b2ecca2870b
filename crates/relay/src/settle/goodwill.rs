//! Ends without delivery that a caller can provoke: a deadline of the gateway, and a stream that is left
//! before any output. Nobody knows what the provider made until then, so it is estimated.
//!
//! An account has a small goodwill on each node. The operator absorbs such an end while the goodwill covers
//! it, and the key pays it otherwise. What the account pays for complete answers refills the goodwill. So
//! these ends cost the operator at most the goodwill more than the account has paid for answers.

use canon::{Charge, Money, Usage};
use ledger::{CallOutcome, ChargeReason, HoldTicket};

use super::CallAccount;

/// An attempt that a deadline of the gateway ended.
pub(super) struct DeadlineLoss {
    /// Its estimated usage.
    usage: Usage,
    /// The charges for that usage at the prices of its lane.
    charges: Vec<Charge>,
    /// The amount that is absorbed for it.
    absorbed: Money,
}

impl CallAccount {
    /// Records that a deadline of the gateway ended the current attempt, whose cost is absorbed.
    pub(super) fn note_deadline(&mut self) {
        // A caller cannot make images or embeddings slow, and a task tries them again.
        if self.expected_usage.is_some() {
            return;
        }
        self.push_deadline_loss();
    }

    /// Records the cost of the current attempt, which is absorbed, as one that goodwill must cover.
    pub(super) fn push_deadline_loss(&mut self) {
        self.deadline_losses.push(DeadlineLoss {
            usage: self.attempt_usage,
            charges: self.charges_of(&self.attempt_usage),
            absorbed: self.entry.absorbed.saturating_sub(self.absorbed_before),
        });
    }

    /// Lets the key pay for the attempts that a deadline ended, of a call that delivered nothing and that its
    /// goodwill does not cover. Returns their usage and charges.
    pub(super) fn pay_deadlines(
        &mut self,
        outcome: CallOutcome,
        hold: &HoldTicket,
    ) -> (Usage, Vec<Charge>) {
        let losses = std::mem::take(&mut self.deadline_losses);
        let absorbed = losses.iter().fold(Money::ZERO, |sum, one| sum.saturating_add(one.absorbed));
        let is_delivered = match outcome {
            CallOutcome::Done | CallOutcome::Recovered => true,
            CallOutcome::BrokeOff | CallOutcome::CallerLeft => self.has_delivered(),
            CallOutcome::Failed => false,
        };
        if losses.is_empty() || is_delivered || hold.use_goodwill(absorbed, self.goodwill) {
            return (Usage::default(), Vec::new());
        }
        let (mut usage, mut charges) = (Usage::default(), Vec::new());
        for loss in losses {
            let charged = Charge::total(&loss.charges).min(loss.absorbed);
            self.entry.absorbed = self.entry.absorbed.saturating_sub(charged);
            usage = usage.plus(loss.usage);
            charges.extend(loss.charges);
        }
        if self.entry.absorbed == Money::ZERO {
            (self.absorbs_estimate, self.lost_usage) = (false, None);
        }
        if outcome == CallOutcome::Failed {
            // A failed call costs nothing.
            self.entry.outcome = CallOutcome::BrokeOff;
        }
        self.entry.explain(ChargeReason::Deadline);
        (usage, charges)
    }

    /// Returns true if the caller has seen output.
    pub(super) fn has_delivered(&self) -> bool {
        let (seen, _) = self.count_usage(&self.meter, 0, self.copies);
        seen.output > 0 || seen.images > 0
    }

    /// Returns the reason on the receipt if the caller can have provoked this end, which delivered nothing.
    fn provoked_end(&self, outcome: CallOutcome) -> Option<ChargeReason> {
        let reason = match outcome {
            CallOutcome::Done | CallOutcome::Recovered | CallOutcome::Failed => return None,
            CallOutcome::BrokeOff if self.is_deadline => ChargeReason::Deadline,
            CallOutcome::BrokeOff => return None,
            // A whole answer is paid, and so is one that was ordered as a whole.
            CallOutcome::CallerLeft if !self.entry.stream || self.expected_usage.is_some() => {
                return None;
            }
            CallOutcome::CallerLeft if self.engine.must_end_calls() => return None,
            CallOutcome::CallerLeft => ChargeReason::CallerLeft,
        };
        // A provider without the whole request has not begun to work.
        (self.sent.is_whole() && !self.has_absorbed && !self.has_delivered()).then_some(reason)
    }

    /// Returns the usage to bill, and true if it is estimated.
    pub(super) fn usage_within_goodwill(
        &mut self,
        outcome: CallOutcome,
        hold: &HoldTicket,
    ) -> (Usage, bool) {
        let Some(reason) = self.provoked_end(outcome) else { return self.final_usage(outcome) };
        let is_unused = (Usage::default(), false);
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
