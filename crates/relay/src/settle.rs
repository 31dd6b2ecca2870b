//! Settlement: usage → cost → charge, exactly once, also when the caller vanishes.

use canon::{
    ApiError, Blame, Charge, ErrorKind, Loss, Losses, Money, ServiceTier, UpstreamProgress, Usage,
};
use catalog::{BilledTier, BilledUnits, ImageSpec, Model, ModelKind, ModelPrices};
use dialects::{ReplyMeter, RequestFacts};
use http::HeaderValue;
use ledger::{CallOutcome, CallProgress, EndedBy, FailedAttempt, HoldTicket, LedgerEntry};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use std::sync::Arc;
use std::time::Instant;
use upstream::{AttemptFailure, AttemptGuard, InFlightSlot};

use super::Call;
use super::route::Candidate;
use crate::engine::Engine;
use access::limits::RatePermit;
use telemetry::TraceContext;

/// Bytes a token has, roughly, where a count must be estimated.
pub(super) const BYTES_PER_TOKEN: u64 = 4;
/// More bytes than this no tokeniser puts into a token, on the average of an answer in words.
const MAX_BYTES_PER_TOKEN: u64 = 16;

/// Bytes that would end an item of a list in a header, or are not allowed in one.
const UNSAFE_IN_LIST: AsciiSet = CONTROLS.add(b' ').add(b',').add(b'"').add(b'%');

/// The running tab of one call. Boxed: it moves from step to step, and there is much on it.
pub(super) type BoxedAccount = Box<CallAccount>;

/// What is on a tab. Dropped before it was closed, it is closed as the caller's leaving.
pub(super) struct CallAccount {
    engine: Arc<Engine>,
    prices: Arc<ModelPrices>,
    arrived: Instant,
    dialect: &'static str,
    kind: ModelKind,
    input_bytes: u64,
    /// The most tokens the prompt was taken for when money was set aside.
    max_input_tokens: u64,
    /// The model's whole window, where it is known, and how often a call may fill it.
    context_window: Option<u64>,
    rounds: u64,
    /// The tier asked for.
    requested_tier: Option<ServiceTier>,
    /// Size and quality of the pictures, where it is about pictures and they are known.
    image_spec: (Option<String>, Option<String>),
    meter: ReplyMeter,
    /// When the lane at work was asked.
    attempt_started: Instant,
    /// The output limit for all answers together, where the money lowered it.
    lowered_limit: Option<u64>,
    /// How many bytes of words surely cost more than was set aside; none where an answer is not of
    /// words alone.
    max_reply_bytes: Option<u64>,
    ended_by: Option<EndedBy>,
    trace: Option<TraceContext>,
    entry: LedgerEntry,
    losses: Losses,
    hold: Option<HoldTicket>,
    /// The lane's part in it, while one is at work, and its place at the provider.
    attempt: Option<(AttemptGuard, InFlightSlot)>,
    /// Its place within limits, given back with the money.
    rate_permit: Option<Arc<RatePermit>>,
}

impl CallAccount {
    /// A tab on which nothing is set aside yet.
    pub(super) fn new(call: &Call, peek: &RequestFacts, model: &Model) -> BoxedAccount {
        let (now, prices) = (call.engine.clock.now(), &model.prices);
        Box::new(Self {
            engine: Arc::clone(&call.engine),
            prices: Arc::clone(prices),
            arrived: call.arrived,
            dialect: call.dialect.origin().as_str(),
            kind: model.kind,
            input_bytes: call.body.len() as u64,
            max_input_tokens: call.body.len() as u64,
            context_window: model.context_window,
            rounds: u64::from(peek.candidates.max(1)).saturating_mul(peek.max_searches + 1),
            requested_tier: peek.service_tier.clone(),
            image_spec: (None, None),
            meter: ReplyMeter::default(),
            attempt_started: call.arrived,
            lowered_limit: None,
            max_reply_bytes: None,
            ended_by: None,
            trace: call.trace,
            losses: Losses::new(),
            hold: None,
            attempt: None,
            rate_permit: call.rate_permit.clone(),
            entry: LedgerEntry {
                request_id: call.id.to_string(),
                key_id: call.key.record.id.clone(),
                account_id: call.key.record.account_id.clone(),
                started: now,
                ended: now,
                first_byte_us: None,
                dialect: call.dialect.origin().as_str().to_owned(),
                model: peek.model.clone(),
                lane: String::new(),
                attempts: 0,
                failed: Vec::new(),
                stream: peek.stream,
                status: 503,
                outcome: CallOutcome::CallerLeft,
                usage: Usage::default(),
                estimated: false,
                cost: Money::ZERO,
                held: None,
                absorbed: Money::ZERO,
                price_version: prices.version.clone(),
                losses: Vec::new(),
                ..LedgerEntry::default()
            },
        })
    }

    /// Money was set aside: for a prompt of so many tokens, and for so much output if that is less
    /// than was asked for.
    pub(super) fn attach_hold(
        mut self: BoxedAccount,
        ticket: HoldTicket,
        input: u64,
        lowered: Option<u64>,
    ) -> BoxedAccount {
        self.max_input_tokens = input;
        self.engine.metrics.running_calls.inc();
        self.hold = Some(ticket);
        self.lowered_limit = lowered;
        self
    }

    /// No money was set aside; the refusal is noted.
    pub(super) fn record_refusal(mut self, fault: ApiError) -> ApiError {
        self.entry.outcome = CallOutcome::Failed;
        let over = fault.kind() == ErrorKind::QuotaExceeded;
        self.entry.status = if over { 429 } else { 503 };
        self.entry.ended_by = if over { EndedBy::Cap } else { EndedBy::Operator };
        self.engine.metrics.record_call(self.dialect, &self.entry);
        self.engine.telemetry.record_call(self.trace, self.kind, &self.entry);
        self.engine.funds.open_calls.record_unheld(std::mem::take(&mut self.entry));
        fault
    }

    /// A lane is tried, if there is room at its provider: what it says from here on is paid at its
    /// price.
    pub(super) fn begin_attempt(&mut self, pick: &Candidate) -> Result<(), ApiError> {
        let lane = &pick.lane;
        let place = lane.in_flight.admit(lane.provider.max_in_flight);
        let place = place.map_err(|fault| {
            fault.with_blame(Blame::Upstream).with_progress(UpstreamProgress::NotSent)
        })?;
        self.attempt = Some((pick.health.begin_attempt(self.engine.monotonic_micros()), place));
        self.entry.attempts += 1;
        lane.name.clone_into(&mut self.entry.lane);
        self.attempt_started = Instant::now();
        if self.prices.version != lane.prices.version {
            self.prices = Arc::clone(&lane.prices);
            lane.prices.version.clone_into(&mut self.entry.price_version);
        }
        let words = lane.served_model.output.iter().all(|kind| kind == "text");
        self.max_reply_bytes = words.then(|| self.max_affordable_bytes()).flatten();
        Ok(())
    }

    /// How many bytes of an answer surely cost more than was set aside, at this lane's price.
    fn max_affordable_bytes(&self) -> Option<u64> {
        let held = self.hold.as_ref()?.amount().as_nanos();
        let million = Usage { output: 1_000_000, ..Usage::default() };
        let price = self.prices.cost(&million).as_nanos();
        let tokens = i128::from(held) * 1_000_000 / i128::from(price.max(1));
        u64::try_from(tokens).ok().filter(|_| price > 0)?.checked_mul(MAX_BYTES_PER_TOKEN)
    }

    /// Whether an answer on its way has surely used up what was set aside for it: its provider
    /// does not keep to the limit it was given.
    pub(super) fn exceeds_hold(&self, said: &ReplyMeter) -> bool {
        if self.max_reply_bytes.is_some_and(|most| said.output_bytes > most) {
            return true;
        }
        // A provider that counts as it goes is believed, unless it counts what cannot be.
        let Some(told) = said.usage.filter(|usage| usage.output > 0) else { return false };
        let Some(ticket) = &self.hold else { return false };
        self.is_plausible(&told) && self.price_of(&told) > ticket.amount()
    }

    /// The gateway ends the answer, because what was set aside for it is used up. Tells what the
    /// caller is to be told of its use.
    pub(super) fn truncate_at_hold(&mut self, said: &ReplyMeter) -> Usage {
        let who = if self.lowered_limit.is_some() { EndedBy::Cap } else { EndedBy::Limit };
        self.ended_by = Some(who);
        self.record_usage(said);
        self.estimated_usage()
    }

    /// The gateway ended the answer where the caller wanted it ended.
    pub(super) fn note_gateway_stop(&mut self) {
        let who = if self.lowered_limit.is_some() { EndedBy::Cap } else { EndedBy::Limit };
        self.ended_by.get_or_insert(who);
    }

    /// Whether a lane is being tried.
    pub(super) fn has_attempt(&self) -> bool {
        self.attempt.is_some()
    }

    /// The try never took place: nobody was at the other end.
    pub(super) fn cancel_attempt(&mut self) {
        self.attempt = None;
        self.entry.attempts = self.entry.attempts.saturating_sub(1);
    }

    /// How often a lane was tried.
    pub(super) fn attempts(&self) -> u32 {
        self.entry.attempts
    }

    /// The lane answered, if only to refuse the caller's request.
    pub(super) fn attempt_answered(&mut self) {
        if let Some((turn, _)) = &mut self.attempt {
            turn.succeeded(self.engine.monotonic_micros());
        }
    }

    /// The lane failed. Whether the provider may want to be paid all the same is told by `spent`:
    /// that is the operator's loss. True when the operator should hear of the lane.
    pub(super) fn attempt_failed(
        &mut self,
        failure: AttemptFailure,
        fault: &ApiError,
        spent: bool,
    ) -> bool {
        let Some((mut turn, _)) = self.attempt.take() else { return false };
        let now = self.engine.monotonic_micros();
        let status = match fault.progress() {
            Some(UpstreamProgress::Answered(status)) => Some(status),
            Some(
                UpstreamProgress::NotSent
                | UpstreamProgress::StaleConnection
                | UpstreamProgress::Refused
                | UpstreamProgress::Sent,
            )
            | None => None,
        };
        self.entry.failed.push(FailedAttempt {
            lane: self.entry.lane.clone(),
            outcome: failure.as_str().to_owned(),
            status,
            ms: u64::try_from(turn.elapsed(now).as_millis()).unwrap_or(u64::MAX),
        });
        if spent {
            self.absorb_cost();
        }
        turn.failed(failure, now)
    }

    /// The provider took the request, and nothing of its answer can be charged: the operator bears
    /// what it costs.
    fn absorb_cost(&mut self) {
        let input = self.input_bytes.div_ceil(BYTES_PER_TOKEN);
        let lost = self.price_of(&Usage { input, ..Usage::default() });
        self.entry.absorbed = self.entry.absorbed.saturating_add(lost);
    }

    /// What a translation could not carry.
    pub(super) fn add_losses(&mut self, losses: impl IntoIterator<Item = Loss>) {
        self.losses.extend(losses);
    }

    /// How many bytes are to be counted as input where a count must be estimated, when that is
    /// less than the body. Tells the estimate.
    pub(super) fn estimate_input(&mut self, input_bytes: u64) -> u64 {
        self.input_bytes = input_bytes.min(self.input_bytes);
        self.input_bytes.div_ceil(BYTES_PER_TOKEN)
    }

    /// The losses so far as a header: names in a list, then `and N more`. Names come from the
    /// caller, so that whatever could break the list or the header is percent-encoded.
    pub(super) fn loss_header(&self) -> Option<HeaderValue> {
        if self.losses.is_empty() {
            return None;
        }
        let told = |loss: Loss| match loss.is_count() {
            true => loss.path,
            false => utf8_percent_encode(&loss.path, &UNSAFE_IN_LIST).to_string(),
        };
        let list: Vec<String> = self.losses.clone().into_vec().into_iter().map(told).collect();
        HeaderValue::from_str(&list.join(", ")).ok()
    }

    /// The lane that answers.
    pub(super) fn lane(&self) -> &str {
        &self.entry.lane
    }

    /// The answer has begun.
    pub(super) fn first_byte(&mut self) {
        self.attempt_answered();
        self.entry.status = 200;
        let micros = i64::try_from(self.arrived.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.entry.first_byte_us.get_or_insert(micros);
    }

    /// What the answer has said of itself so far.
    pub(super) fn record_usage(&mut self, said: &ReplyMeter) {
        self.meter.clone_from(said);
    }

    /// Notes how far the call has come, so that a crash charges for it.
    pub(super) fn checkpoint(&self) {
        let (usage, _) = self.final_usage(CallOutcome::BrokeOff);
        if let Some(ticket) = &self.hold {
            // Nothing came out yet, so a crash now charges nothing, whatever a request costs.
            let nothing = usage == Usage::default();
            let cost = if nothing { Money::ZERO } else { self.price_of(&usage) };
            ticket.progress(CallProgress { lane: self.entry.lane.clone(), usage, cost });
        }
    }

    /// Closes the tab of an answered call and tells what it costs.
    pub(super) fn close_done(mut self) -> Money {
        self.close(CallOutcome::Done)
    }

    /// Closes the tab of a call whose answer broke off after it had begun.
    pub(super) fn close_broken_off(mut self, fault: &ApiError) {
        // What cannot be mended by another try was not the lane's fault.
        if let Some((turn, _)) = self.attempt.as_mut().filter(|_| fault.is_retryable()) {
            turn.failed(super::attempt::classify_failure(fault), self.engine.monotonic_micros());
        }
        self.ended_by = Some(ended_by(fault));
        self.close(CallOutcome::BrokeOff);
    }

    /// Closes the tab of a call whose provider worked on it and held the answer back: what it
    /// counts is paid for.
    pub(super) fn close_withheld(mut self, status: u16, said: &ReplyMeter) {
        self.attempt_answered();
        self.record_usage(said);
        self.entry.status = status;
        self.close(CallOutcome::Done);
    }

    /// Closes the tab of a call that failed before there was an answer.
    pub(super) fn close_failed(mut self, status: u16, fault: &ApiError) {
        self.entry.status = status;
        self.ended_by = Some(ended_by(fault));
        self.close(CallOutcome::Failed);
    }

    /// Whether counts can be: no part above its whole, no prompt far above what was sent, nothing
    /// beyond the model's window, however often it was filled.
    fn is_plausible(&self, usage: &Usage) -> bool {
        let window = self.context_window.map(|context| context.saturating_mul(self.rounds));
        !usage.is_inconsistent()
            && usage.input <= self.max_input_tokens.saturating_mul(8).max(4_096)
            && window.is_none_or(|window| usage.total() <= window)
    }

    /// What was used: the provider's count, or ours where it gives none or one that cannot be.
    fn final_usage(&self, outcome: CallOutcome) -> (Usage, bool) {
        let ReplyMeter { usage, output_bytes, .. } = &self.meter;
        let made = |usage: &Usage| usage.output > 0 || usage.images > 0;
        let told =
            usage.filter(|usage| self.is_plausible(usage) && (made(usage) || *output_bytes == 0));
        let estimate = self.estimated_usage();
        // A provider that forgot to count the prompt did not answer without one.
        let whole = |usage: Usage| match usage.input {
            0 => (Usage { input: estimate.input, ..usage }, true),
            _ => (usage, self.meter.is_estimated),
        };
        match outcome {
            CallOutcome::Failed | CallOutcome::Recovered => (Usage::default(), false),
            CallOutcome::Done => told.map_or((estimate, true), whole),
            // Nothing came out, so nothing is paid.
            CallOutcome::BrokeOff | CallOutcome::CallerLeft
                if *output_bytes == 0
                    && told.is_none_or(|usage| usage.output == 0 && usage.images == 0) =>
            {
                (Usage::default(), false)
            }
            CallOutcome::BrokeOff | CallOutcome::CallerLeft => match told {
                Some(usage) if usage.output > 0 || usage.images > 0 => whole(usage),
                Some(usage) => (Usage { output: estimate.output, ..usage }, true),
                None => (estimate, true),
            },
        }
    }

    /// Our own count.
    fn estimated_usage(&self) -> Usage {
        Usage {
            input: self.input_bytes.div_ceil(BYTES_PER_TOKEN),
            output: self.meter.output_bytes.div_ceil(BYTES_PER_TOKEN),
            ..Usage::default()
        }
    }

    /// The tier that is billed: the one the answer tells, else the one asked for, if it is one.
    fn billed_tier(&self) -> Option<&ServiceTier> {
        let asked = self.requested_tier.as_ref().filter(|tier| BilledTier::of(tier).is_some());
        self.meter.service_tier.as_ref().or(asked)
    }

    /// Which pictures are paid for: what was asked for counts, and where that was left open what
    /// was made.
    pub(super) fn set_image_spec(&mut self, size: Option<&str>, quality: Option<&str>) {
        let ImageSpec { size, quality } = ImageSpec::from_request(size, quality);
        let (own_size, own_quality) = &mut self.image_spec;
        *own_size = own_size.take().or_else(|| size.map(str::to_owned));
        *own_quality = own_quality.take().or_else(|| quality.map(str::to_owned));
    }

    /// The terms a call is billed on.
    fn billed_units(&self) -> BilledUnits<'_> {
        let (size, quality) = &self.image_spec;
        let picture = ImageSpec::from_request(size.as_deref(), quality.as_deref());
        BilledUnits { image: picture, tier: self.billed_tier(), ..BilledUnits::default() }
    }

    fn price_of(&self, usage: &Usage) -> Money {
        self.prices.cost_with(usage, &self.billed_units())
    }

    /// Fills in what was used and what that costs.
    fn compute_charge(&mut self, outcome: CallOutcome, held: Money) {
        let (mut usage, mut estimated) = self.final_usage(outcome);
        let nothing = usage == Usage::default() && outcome != CallOutcome::Done;
        if !nothing && self.prices.per_second.is_some() {
            usage.seconds = self.attempt_started.elapsed().as_micros().div_ceil(1_000_000) as u64;
        }
        if outcome == CallOutcome::Done
            && self.meter.usage.is_some_and(|told| !self.is_plausible(&told))
        {
            self.report_bad_count("tells counts that cannot be");
        }
        let told = self.price_of(&usage);
        if !nothing && !estimated && told > held {
            // What was set aside covers every limit that was given, so the provider passed one.
            self.report_bad_count("used more than it was allowed");
            (usage, estimated) = (Usage { seconds: usage.seconds, ..self.estimated_usage() }, true);
            let lost = told.saturating_sub(self.price_of(&usage).min(held)).max(Money::ZERO);
            let over = self.price_of(&usage).saturating_sub(held).max(Money::ZERO);
            // What is above the hold is booked when it is settled.
            self.entry.absorbed = self.entry.absorbed.saturating_add(lost.saturating_sub(over));
        }
        if nothing && outcome != CallOutcome::Failed && self.entry.attempts > 0 {
            self.absorb_cost();
        }
        if !nothing {
            self.entry.charges = self.prices.charges(&usage, &self.billed_units());
        }
        self.entry.cost = Charge::total(&self.entry.charges);
        self.entry.service = self.billed_tier().map(tier_label).unwrap_or_default();
        self.entry.usage = usage;
        self.entry.estimated = estimated;
    }

    fn report_bad_count(&self, what: &str) {
        let told = self.meter.usage.unwrap_or_default();
        tracing::error!(
            request.id = self.entry.request_id,
            lane.name = self.entry.lane,
            tokens.input = told.input,
            tokens.output = told.output,
            "lane `{}` {what} ({} tokens in, {} out): the key is charged by our own count",
            self.entry.lane,
            told.input,
            told.output
        );
    }

    /// Who ended it, as far as it was not told.
    fn default_end(&self, outcome: CallOutcome) -> EndedBy {
        let capped = self.lowered_limit.is_some_and(|most| self.entry.usage.output >= most);
        match outcome {
            CallOutcome::Done if capped => EndedBy::Cap,
            CallOutcome::CallerLeft if self.engine.must_end_calls() => EndedBy::Operator,
            CallOutcome::Done
            | CallOutcome::CallerLeft
            | CallOutcome::BrokeOff
            | CallOutcome::Failed
            | CallOutcome::Recovered => outcome.usual_end(),
        }
    }

    fn close(&mut self, outcome: CallOutcome) -> Money {
        let Some(ticket) = self.hold.take() else { return Money::ZERO };
        self.attempt = None;
        self.entry.outcome = outcome;
        let losses = std::mem::take(&mut self.losses).into_vec();
        self.entry.losses = losses.into_iter().map(|loss| loss.path).collect();
        self.compute_charge(outcome, ticket.amount());
        self.entry.ended_by = self.ended_by.unwrap_or_else(|| self.default_end(outcome));
        if let Some(pass) = &self.rate_permit {
            pass.close(self.entry.usage.total());
        }
        let cost = self.entry.cost.min(ticket.amount());
        self.engine.metrics.running_calls.dec();
        self.engine.metrics.record_call(self.dialect, &self.entry);
        if self.engine.telemetry.is_on() {
            self.entry.ended = self.engine.clock.now();
            self.engine.telemetry.record_call(self.trace, self.kind, &self.entry);
        }
        ticket.settle(std::mem::take(&mut self.entry));
        cost
    }
}

/// The word for a tier on receipts; the usual one has none.
fn tier_label(tier: &ServiceTier) -> String {
    match tier {
        ServiceTier::Auto | ServiceTier::Standard => String::new(),
        ServiceTier::Flex => BilledTier::Flex.as_str().to_owned(),
        ServiceTier::Priority => BilledTier::Priority.as_str().to_owned(),
        ServiceTier::Fast => BilledTier::Fast.as_str().to_owned(),
        ServiceTier::Other(_, word) => word.clone(),
    }
}

/// Whose doing a fault is that ended a call.
fn ended_by(fault: &ApiError) -> EndedBy {
    match (fault.kind(), fault.blame()) {
        (ErrorKind::Timeout, _) => EndedBy::Deadline,
        // Only the operator ends what runs: a key was revoked, the gateway stops.
        (ErrorKind::Interrupted, Blame::Caller | Blame::Gateway) => EndedBy::Operator,
        (ErrorKind::QuotaExceeded, Blame::Gateway) => EndedBy::Cap,
        (_, Blame::Caller) => EndedBy::Caller,
        (_, Blame::Gateway) => EndedBy::Operator,
        (_, Blame::Upstream) => EndedBy::Provider,
    }
}

impl Drop for CallAccount {
    fn drop(&mut self) {
        if self.hold.is_some() {
            if self.entry.first_byte_us.is_none() {
                // The status a caller that left would have been told, by convention.
                self.entry.status = 499;
            }
            self.close(CallOutcome::CallerLeft);
        }
    }
}
