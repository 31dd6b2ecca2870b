//! The charge of a call: its usage, as told by the provider or counted here, and its price.
//!
//! The usage that the provider tells is billed, whatever the size of the request is: a small file may be
//! a long prompt. The ledger charges at most the reservation, and the operator absorbs the rest. Only counts
//! that no call can have are replaced by the gateway's own.

use canon::{Charge, Money, ServiceTier, SharedText, ToolUses, Usage};
use catalog::{BilledTier, BilledUnits, ImageSpec, ModelKind};
use dialects::ReplyMeter;
use ledger::{CallOutcome, HoldTicket};
use std::time::Duration;

use super::{BYTES_PER_TOKEN, CallAccount};

/// Bytes per token that no tokeniser exceeds on the average of a text reply.
const MAX_BYTES_PER_TOKEN: u64 = 16;
/// Silence of a stream after which a model that nothing is known of may think.
const LONG_SILENCE: Duration = Duration::from_secs(5);
/// Context window of a model whose own is not known: larger than that of any.
pub(super) const UNKNOWN_CONTEXT_WINDOW: u64 = 1 << 24;
/// A window may be so many times larger than the directory says.
const MAX_WINDOW_GROWTH: u64 = 8;
/// Most uses of one tool, such as searches, that a call can have.
const MAX_TOOL_USES: u64 = 1_000;

impl CallAccount {
    /// Returns the reply size that costs more than the reservation at the prices of this lane.
    pub(super) fn max_affordable_bytes(&self) -> Option<u64> {
        let held = self.hold.as_ref()?.amount().as_nanos();
        let million = Usage { output: 1_000_000, ..Usage::default() };
        let price = self.prices.cost(&million).as_nanos();
        let tokens = i128::from(held) * 1_000_000 / i128::from(price.max(1));
        u64::try_from(tokens).ok().filter(|_| price > 0)?.checked_mul(MAX_BYTES_PER_TOKEN)
    }

    /// Returns true if a running reply has exceeded its reservation, because the provider ignores
    /// the output limit. One that has its end is not ended a second time.
    pub(crate) fn exceeds_hold(&self, meter: &ReplyMeter) -> bool {
        if meter.is_finished {
            return false;
        }
        if self.max_reply_bytes.is_some_and(|most| meter.output_bytes > most) {
            return true;
        }
        // Usage that the provider reports during the stream counts if it is possible.
        let Some(reported) = meter.usage.filter(|usage| usage.output > 0) else { return false };
        let Some(hold) = &self.hold else { return false };
        self.is_possible(&reported) && self.price_of(&reported) > hold.amount()
    }

    /// Returns true if a call can have this usage: the window of the model bounds it.
    pub(super) fn is_possible(&self, usage: &Usage) -> bool {
        self.fits_window(usage, self.context_window.unwrap_or(UNKNOWN_CONTEXT_WINDOW))
    }

    /// Returns true if counts above the window may be true: a window may be larger than the directory says,
    /// for example by a header of the caller.
    pub(super) fn is_conceivable(&self, usage: &Usage) -> bool {
        let window = self.context_window.map(|window| window.saturating_mul(MAX_WINDOW_GROWTH));
        window.is_some_and(|window| self.fits_window(usage, window))
    }

    fn fits_window(&self, usage: &Usage, window: u64) -> bool {
        let (input, output) = usage.whole_sums();
        // Some providers limit prompt and output apart.
        let both = window.saturating_add(self.max_output_tokens);
        let ToolUses { file_searches, code_runs, image_tokens } = usage.tools;
        input <= window.saturating_mul(self.rounds)
            && input.saturating_add(output) <= both.saturating_mul(self.rounds)
            && usage.searches.max(file_searches).max(code_runs) <= MAX_TOOL_USES
            && image_tokens <= UNKNOWN_CONTEXT_WINDOW
    }

    /// Returns the usage to bill and true if it is estimated.
    pub(super) fn final_usage(&self, outcome: CallOutcome) -> (Usage, bool) {
        match outcome {
            CallOutcome::Failed | CallOutcome::Recovered => (Usage::default(), false),
            CallOutcome::Done => self.count_usage(&self.meter, 0, self.copies),
            // The end of a drain is not the caller's doing.
            CallOutcome::CallerLeft if self.engine.must_end_calls() && !self.has_delivered() => {
                (Usage::default(), false)
            }
            CallOutcome::CallerLeft
                if self.sent.is_whole()
                    && !self.meter.is_finished
                    && let Some(expected) = self.expected_usage =>
            {
                (expected, true)
            }
            // Without output nothing is billed.
            CallOutcome::BrokeOff | CallOutcome::CallerLeft => {
                let (usage, estimated) =
                    self.count_usage(&self.meter, self.unseen_output, self.copies);
                let is_unused = usage.output == 0 && usage.images == 0;
                if is_unused { (Usage::default(), false) } else { (usage, estimated) }
            }
        }
    }

    /// Returns what the provider has made, and true if a part of it is an estimate: all of a reply that
    /// comes only as a whole and has not come, and otherwise what is told, seen and estimated.
    pub(super) fn made_usage(&self, meter: &ReplyMeter, unseen: u64, copies: u64) -> (Usage, bool) {
        let (usage, is_estimated) = match self.expected_usage {
            Some(expected) if meter.usage.is_none() && !meter.is_finished => (expected, true),
            Some(_) | None => self.count_usage(meter, unseen, copies),
        };
        (self.with_seconds(usage), is_estimated)
    }

    /// Adds the seconds of the current attempt where they have a price.
    fn with_seconds(&self, usage: Usage) -> Usage {
        if self.prices.per_second.is_none() {
            return usage;
        }
        let micros = self.attempt_started.elapsed().as_micros();
        Usage { seconds: u64::try_from(micros.div_ceil(1_000_000)).unwrap_or(u64::MAX), ..usage }
    }

    /// Returns the usage that the provider tells in the replies to that many copies of the request,
    /// completed by what was counted here and by output that was not seen, and true if a part of it is
    /// an estimate.
    pub(super) fn count_usage(
        &self,
        meter: &ReplyMeter,
        unseen: u64,
        copies: u64,
    ) -> (Usage, bool) {
        let estimate = || self.estimate_usage(meter, unseen, copies);
        let Some(mut told) = meter.usage.filter(|told| self.is_possible(told)) else {
            // The gateway counts the images itself.
            let images = meter.usage.map_or(0, |told| told.images);
            return (Usage { images, ..estimate() }, true);
        };
        // The output of an image model that tells no parts is its images, which cost more than text.
        if self.kind == ModelKind::Image && told.output_image == 0 {
            told.output_image = told.output.saturating_sub(told.thinking);
        }
        // Providers count containers, and bill them by the memory that the request sets.
        told.tools.code_runs = self.hosted_tools.run_units(told.tools.code_runs);
        if self.searches_once {
            told.searches = told.searches.min(1);
        }
        let mut usage = told.with_whole_sums();
        // Images that cost tokens have some.
        if let Some(expected) = self.expected_usage
            && usage.images > 0
            && usage.output == 0
        {
            let each = expected.output / expected.images.max(1);
            usage.output = each.saturating_mul(usage.images);
            usage.output_image = usage.output;
        }
        // A provider that reports no prompt tokens forgot to count them.
        if usage.input == 0 {
            usage.input = estimate().input;
        }
        // Counts before the end of a reply are those of its begin.
        if !meter.is_finished || (usage.output == 0 && usage.images == 0) {
            usage.output = usage.output.max(estimate().output);
        }
        (usage, usage != told || meter.is_estimated)
    }

    /// Estimates usage from bytes, and from output that was not seen.
    pub(super) fn estimate_usage(&self, meter: &ReplyMeter, unseen: u64, copies: u64) -> Usage {
        let seen = meter.output_bytes.div_ceil(BYTES_PER_TOKEN);
        let input = self.input_bytes.div_ceil(BYTES_PER_TOKEN).saturating_mul(copies);
        Usage {
            input,
            cache_read: self.cached_input.min(input),
            output: seen.saturating_add(unseen),
            ..Usage::default()
        }
    }

    /// Estimates the output of the current attempt that nobody saw: the rest of a whole reply that
    /// was being made, or the thinking before the first visible output. The speed of the lane tells
    /// how much it is. A provider without the request makes none.
    pub(super) fn estimate_unseen(&self, meter: &ReplyMeter, copies: u64) -> u64 {
        let Some((attempt, _)) = &self.attempt else { return 0 };
        if self.kind != ModelKind::Chat || meter.is_finished || !self.sent.is_whole() {
            return 0;
        }
        let running = self.attempt_started.elapsed();
        let seen = meter.output_bytes.div_ceil(BYTES_PER_TOKEN);
        let silence = if seen == 0 { running } else { self.silence };
        let is_unknown = !self.is_thinking_known && !attempt.has_counted();
        let may_think =
            self.may_think || attempt.has_thought() || (is_unknown && silence >= LONG_SILENCE);
        let usual = match (self.entry.stream, may_think) {
            (true, false) => 0,
            (true, true) => attempt.usual_output(silence),
            (false, _) => attempt.usual_output(running).saturating_mul(copies).saturating_sub(seen),
        };
        usual.min(self.max_output_tokens.saturating_sub(seen))
    }

    /// Returns the service tier to bill: the one the reply reports, else the requested one if it
    /// has a price.
    fn billed_tier(&self) -> Option<&ServiceTier> {
        let requested = self.requested_tier.as_ref().filter(|tier| BilledTier::of(tier).is_some());
        self.meter.service_tier.as_ref().or(requested)
    }

    /// Sets size and quality for image prices. Requested values take precedence over generated
    /// ones.
    pub(crate) fn set_image_spec(&mut self, size: Option<&str>, quality: Option<&str>) {
        let ImageSpec { size, quality } = ImageSpec::from_request(size, quality);
        let (own_size, own_quality) = &mut self.image_spec;
        *own_size = own_size.take().or_else(|| size.map(str::to_owned));
        *own_quality = own_quality.take().or_else(|| quality.map(str::to_owned));
    }

    /// Returns the terms of the price list that apply.
    fn billed_units(&self) -> BilledUnits<'_> {
        let (size, quality) = &self.image_spec;
        let picture = ImageSpec::from_request(size.as_deref(), quality.as_deref());
        BilledUnits { image: picture, tier: self.billed_tier(), ..BilledUnits::default() }
    }

    /// Returns the charges for a usage at the prices of the current lane.
    pub(super) fn charges_of(&self, usage: &Usage) -> Vec<Charge> {
        self.prices.charges(usage, &self.billed_units())
    }

    pub(super) fn price_of(&self, usage: &Usage) -> Money {
        self.prices.cost_with(usage, &self.billed_units())
    }

    /// Fills usage and cost into the ledger entry. The ledger charges the cost as far as the
    /// reservation goes, and the operator absorbs the rest.
    pub(super) fn compute_charge(&mut self, outcome: CallOutcome, hold: &HoldTicket) {
        let (lost_usage, lost_charges) = self.pay_deadlines(outcome, hold);
        let (mut usage, mut estimated) = self.usage_within_goodwill(outcome, hold);
        let is_unused = usage == Usage::default() && outcome != CallOutcome::Done;
        if is_unused {
            // A failed call has absorbed its attempts, and one between two attempts has none.
            if outcome != CallOutcome::Failed && !self.has_absorbed && self.may_have_worked() {
                self.absorb_recorded();
            }
        } else {
            if outcome == CallOutcome::BrokeOff && !self.is_deadline {
                self.absorb_unseen(&usage);
            }
            usage = self.with_seconds(usage);
            self.entry.charges = self.charges_of(&usage);
        }
        if !lost_charges.is_empty() {
            (usage, estimated) = (usage.plus(lost_usage), true);
            self.entry.charges.extend(lost_charges);
        }
        self.entry.cost = Charge::total(&self.entry.charges);
        if let Some(told) = self.meter.usage.filter(|told| !self.is_possible(told)) {
            self.report_bad_count(hold, "reports impossible usage");
            if self.is_conceivable(&told) {
                let rest = self.price_of(&told.with_whole_sums()).saturating_sub(self.entry.cost);
                self.entry.absorbed = self.entry.absorbed.saturating_add(rest.max(Money::ZERO));
            }
        } else if self.entry.cost > hold.amount() {
            // The reservation covers every limit that was sent, so the provider exceeded one.
            self.report_bad_count(hold, "exceeded the limits it was given");
        }
        self.entry.service = self.billed_tier().map(tier_label).unwrap_or_default();
        let bill = usage.bill.take();
        self.entry.usage = usage;
        self.entry.estimated = estimated || (is_unused && self.absorbs_estimate);
        self.explain_charge();
        if let Some(bill) = bill {
            self.absorb_bill(bill, hold.amount());
        }
    }

    fn report_bad_count(&self, hold: &HoldTicket, what: &str) {
        let request_id = hold.record().map_or("", |record| &record.request_id);
        let reported = self.meter.usage.unwrap_or_default();
        tracing::error!(
            request.id = request_id,
            lane.name = &*self.entry.lane,
            tokens.input = reported.input,
            tokens.output = reported.output,
            "lane `{}` {what} ({} tokens in, {} out): the key is charged at most its reservation",
            self.entry.lane,
            reported.input,
            reported.output
        );
    }
}

/// Returns the name of a tier on receipts. The standard tier has none.
fn tier_label(tier: &ServiceTier) -> SharedText {
    match tier {
        ServiceTier::Auto | ServiceTier::Standard => SharedText::default(),
        ServiceTier::Flex => SharedText::fixed(BilledTier::Flex.as_str()),
        ServiceTier::Priority => SharedText::fixed(BilledTier::Priority.as_str()),
        ServiceTier::Fast => SharedText::fixed(BilledTier::Fast.as_str()),
        ServiceTier::Other(_, word) => word.as_str().into(),
    }
}
