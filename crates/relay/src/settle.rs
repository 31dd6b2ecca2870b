//! Settlement: usage → cost → charge, exactly once, even if the caller disconnects.

mod attempts;
mod charge;
mod counted;
mod explain;
mod goodwill;

use canon::{
    ApiError, Blame, ErrorKind, HostedTools, Loss, Losses, Money, ServiceTier, SharedText,
    UpstreamProgress, Usage, WireFormat, boxed,
};
use catalog::{Model, ModelKind, ModelPrices};
use config::{LaneCounters, Route};
use dialects::{ReplyMeter, RequestFacts};
use http::HeaderValue;
use ledger::{CallError, CallOutcome, CallProgress, EndedBy, HoldTicket, LedgerEntry};
use std::sync::Arc;
use std::time::{Duration, Instant};
use transport::SentMark;
use upstream::{AttemptGuard, InFlightSlot};

use super::Call;
use super::closed_call::ClosedCall;
use super::loss_header::loss_header;
use super::refusals::{RefusalReason, RefusedAt};
use super::route::Candidate;
use crate::engine::Engine;
use access::limits::RatePermit;
use goodwill::DeadlineLoss;
use telemetry::TraceContext;

/// Average bytes of a token, for estimates.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// A complete reply as the account records it: the end of every pipeline.
pub(super) struct FinishedReply {
    pub(super) meter: ReplyMeter,
    /// Losses of the translation.
    pub(super) losses: Vec<Loss>,
    /// True if the gateway ended the reply at the caller's own limit.
    pub(super) was_stopped: bool,
}

impl From<ReplyMeter> for FinishedReply {
    fn from(meter: ReplyMeter) -> Self {
        Self { meter, losses: Vec::new(), was_stopped: false }
    }
}

/// Account of one call. Boxed because it is large and moves from step to step.
pub(super) type BoxedAccount = Box<CallAccount>;

/// Reservation, usage and ledger entry of one call. Dropping an open account settles the call as
/// one whose caller left.
pub(super) struct CallAccount {
    engine: Arc<Engine>,
    prices: Arc<ModelPrices>,
    arrived: Instant,
    format: WireFormat,
    kind: ModelKind,
    input_bytes: u64,
    /// Upper bound of the output that money was reserved for.
    max_output_tokens: u64,
    /// Part of the prompt that the provider has in a cache, for estimates of the current attempt.
    cached_input: u64,
    /// Number of requests sent at once for the current attempt.
    copies: u64,
    /// Context window of the model, and how often a call may fill it.
    context_window: Option<u64>,
    rounds: u64,
    hosted_tools: HostedTools,
    /// True if all searches of a call cost one fee.
    searches_once: bool,
    requested_tier: Option<ServiceTier>,
    /// Size and quality of the images, if known.
    image_spec: (Option<String>, Option<String>),
    meter: ReplyMeter,
    /// Time at which the current lane was asked.
    attempt_started: Instant,
    /// True if the model is known to think before its first visible output.
    may_think: bool,
    /// True if it is known whether the model thinks.
    is_thinking_known: bool,
    /// Time that the current lane has worked until its first visible output.
    silence: Duration,
    /// True if the cost of the current attempt is absorbed already.
    has_absorbed: bool,
    /// Goodwill of an account at its start.
    goodwill: Money,
    /// Usage of the current attempt that is absorbed, and the amount absorbed before it.
    attempt_usage: Usage,
    absorbed_before: Money,
    /// Attempts that a deadline of the gateway ended.
    deadline_losses: Vec<DeadlineLoss>,
    /// True if a deadline of the gateway ended a reply that had begun.
    is_deadline: bool,
    /// Counts that the provider told of an answer that could not be used.
    lost_usage: Option<Usage>,
    /// True if a part of the absorbed cost is an estimate.
    absorbs_estimate: bool,
    /// Likely usage of a reply that comes only as a whole: images, or vectors.
    expected_usage: Option<Usage>,
    /// Estimate of output that was made and not seen, because the caller left.
    unseen_output: u64,
    /// Output limit over all candidates, if the money lowered it.
    lowered_limit: Option<u64>,
    /// Size of a streamed text that costs more than the reservation; `None` for other replies.
    max_reply_bytes: Option<u64>,
    ended_by: Option<EndedBy>,
    trace: Option<TraceContext>,
    entry: LedgerEntry,
    losses: Losses,
    hold: Option<HoldTicket>,
    /// Lanes to try, in their order. The hold names the first one.
    candidates: Vec<Candidate>,
    /// Cost of the start and of each second at each of several lanes, by the lane's name.
    lane_costs: Vec<(SharedText, (Money, Money))>,
    /// Health record and provider slot of the current attempt.
    attempt: Option<(AttemptGuard, InFlightSlot)>,
    /// Set once a connection has a request of the current attempt. Before that it costs nothing.
    sent: Arc<SentMark>,
    /// Closed together with the account.
    rate_permit: Option<Arc<RatePermit>>,
    /// Place among the calls of this node, freed together with the account.
    in_flight_slot: Arc<InFlightSlot>,
    /// Counts of the lane that was asked last, or of the model before that.
    lane_calls: Arc<LaneCounters>,
    /// Word of the error that ended the call; empty without one.
    error_word: &'static str,
}

impl CallAccount {
    /// Creates an account without a reservation.
    pub(super) fn new(call: &Call, facts: &RequestFacts, route: &Route) -> BoxedAccount {
        let model: &Model = &route.model;
        boxed(|| Self {
            engine: Arc::clone(&call.engine),
            prices: Arc::clone(&model.prices),
            arrived: call.arrived,
            format: call.dialect.origin(),
            kind: model.kind,
            input_bytes: call.body.len() as u64,
            max_output_tokens: 0,
            cached_input: 0,
            copies: 1,
            context_window: model.capabilities.context_window,
            rounds: facts.max_rounds().saturating_add(model.counts.searches),
            hosted_tools: facts.hosted_tools,
            searches_once: model.counts.searches_once,
            requested_tier: facts.service_tier.clone(),
            image_spec: (None, None),
            meter: ReplyMeter::default(),
            attempt_started: call.arrived,
            may_think: model.capabilities.thinking.range().is_some(),
            is_thinking_known: !model.capabilities.thinking.is_unknown(),
            silence: Duration::ZERO,
            has_absorbed: false,
            goodwill: call.config.goodwill,
            attempt_usage: Usage::default(),
            absorbed_before: Money::ZERO,
            deadline_losses: Vec::new(),
            is_deadline: false,
            lost_usage: None,
            absorbs_estimate: false,
            expected_usage: None,
            unseen_output: 0,
            lowered_limit: None,
            max_reply_bytes: None,
            ended_by: None,
            trace: call.trace,
            losses: Losses::new(),
            hold: None,
            candidates: Vec::new(),
            lane_costs: Vec::new(),
            attempt: None,
            sent: Arc::clone(&call.sent),
            rate_permit: call.admission.rate.clone(),
            in_flight_slot: Arc::clone(&call.in_flight_slot),
            lane_calls: Arc::clone(&route.unplaced_calls),
            error_word: "",
            // The hold has the texts and the time.
            entry: LedgerEntry {
                stream: facts.stream,
                status: 503,
                outcome: CallOutcome::CallerLeft,
                ..LedgerEntry::default()
            },
        })
    }

    /// Sets the lanes to try, and what settles each of several if the gateway dies.
    pub(super) fn set_candidates(
        &mut self,
        candidates: Vec<Candidate>,
        costs: impl Fn(&Candidate) -> (Money, Money),
    ) {
        if candidates.len() > 1 {
            let costs = candidates.iter().map(|one| (one.lane.name.clone(), costs(one)));
            self.lane_costs = costs.collect();
        }
        self.candidates = candidates;
    }

    /// Takes the lanes to try.
    pub(super) fn take_candidates(&mut self) -> Vec<Candidate> {
        std::mem::take(&mut self.candidates)
    }

    /// Attaches the reservation: for `output` tokens, or for `lowered_limit` if that is less than
    /// requested.
    pub(super) fn attach_hold(
        mut self: BoxedAccount,
        hold: HoldTicket,
        output: u64,
        lowered_limit: Option<u64>,
    ) -> BoxedAccount {
        self.max_output_tokens = lowered_limit.unwrap_or(output);
        self.engine.metrics.running_calls.inc();
        self.entry.held = Some(hold.amount());
        self.hold = Some(hold);
        self.lowered_limit = lowered_limit;
        self
    }

    /// Counts a call whose reservation was refused. It costs nothing, so the ledger has no row of it.
    pub(super) fn record_refusal(
        mut self,
        call: &Call,
        facts: &RequestFacts,
        error: ApiError,
    ) -> ApiError {
        let reason = RefusalReason::of(&error);
        let (record, at) = (&call.key.record, self.engine.clock.now());
        self.entry = LedgerEntry {
            request_id: Arc::clone(&call.id).into(),
            key_id: call.key.balance.key_id().clone(),
            account_id: call.key.balance.share_account(&record.account_id),
            dialect: SharedText::fixed(self.format.as_str()),
            model: facts.model.as_str().into(),
            price_version: self.prices.version.clone(),
            started: at,
            ended: at,
            ..std::mem::take(&mut self.entry)
        };
        self.entry.outcome = CallOutcome::Failed;
        self.entry.status = reason.status();
        self.entry.ended_by = match reason {
            RefusalReason::Spent | RefusalReason::Reserved => EndedBy::Cap,
            RefusalReason::Unavailable => EndedBy::Operator,
        };
        self.error_word = error.kind().as_str();
        self.count_call(Instant::now(), Money::ZERO);
        self.engine.metrics.record_refusal(reason.word());
        self.engine.telemetry.record_call(self.trace, self.kind, &self.entry);
        let LedgerEntry { key_id, account_id, model, .. } = &self.entry;
        let refused = RefusedAt { at, reason };
        self.engine.funds.refusals.add(key_id, account_id, model, refused);
        error
    }

    /// Records that the gateway truncates the reply at its reservation. Returns the usage to report
    /// to the caller.
    pub(super) fn truncate_at_hold(&mut self, meter: &ReplyMeter) -> Usage {
        let who = if self.lowered_limit.is_some() { EndedBy::Cap } else { EndedBy::Limit };
        self.ended_by = Some(who);
        self.record_usage(meter);
        self.estimate_usage(meter, 0, self.copies)
    }

    /// Sets the losses of the current attempt. Those of a lane that failed do not count.
    pub(super) fn set_losses(&mut self, losses: impl IntoIterator<Item = Loss>) {
        self.losses = losses.into_iter().collect();
    }

    /// Sets the size of the input on the scale of text, for estimates.
    pub(super) fn set_input_bytes(&mut self, input_bytes: u64) {
        self.input_bytes = input_bytes;
    }

    /// Sets the input bytes for the estimate, if they are fewer than the body. Returns the
    /// estimated tokens.
    pub(super) fn estimate_input(&mut self, input_bytes: u64) -> u64 {
        self.input_bytes = input_bytes.min(self.input_bytes);
        self.input_bytes.div_ceil(BYTES_PER_TOKEN)
    }

    /// Sets the part of the prompt that the provider has in a cache, for estimates of this attempt.
    pub(super) fn set_cached_input(&mut self, tokens: u64) {
        self.cached_input = tokens;
    }

    /// Sets the likely usage of a reply that comes only as a whole. The provider makes all of it once it
    /// has the request, and a caller who leaves pays it.
    pub(super) fn expect_usage(&mut self, usage: Usage) {
        self.expected_usage = Some(usage);
    }

    /// Returns the losses as a header.
    pub(super) fn loss_header(&self) -> Option<HeaderValue> {
        loss_header(&self.losses)
    }

    /// Returns the lane of the current attempt.
    pub(super) fn lane(&self) -> &str {
        &self.entry.lane
    }

    /// Records the start of the reply.
    pub(super) fn first_byte(&mut self) {
        let now = Instant::now();
        self.answered_at(now);
        self.entry.status = 200;
        let wait = now.saturating_duration_since(self.arrived);
        self.entry.first_byte_us.get_or_insert(wait.into());
    }

    /// Records a reply that is complete.
    pub(super) fn record_reply(&mut self, reply: FinishedReply) {
        let FinishedReply { meter, losses, was_stopped } = reply;
        self.first_byte();
        self.meter = meter;
        self.losses.extend(losses);
        if was_stopped {
            let who = if self.lowered_limit.is_some() { EndedBy::Cap } else { EndedBy::Limit };
            self.ended_by.get_or_insert(who);
        }
    }

    /// Records the first visible output.
    pub(super) fn first_output(&mut self) {
        self.silence = self.attempt_started.elapsed();
    }

    /// Records usage and output so far.
    pub(super) fn record_usage(&mut self, meter: &ReplyMeter) {
        self.meter.clone_from(meter);
    }

    /// Records the bytes of a whole reply that broke off. They are at most the output limit, because
    /// some are not output: replies repeat parts of their request.
    pub(super) fn record_received(&mut self, bytes: usize) {
        let most = self.max_output_tokens.saturating_mul(BYTES_PER_TOKEN);
        let output_bytes = most.min(bytes as u64);
        self.meter = ReplyMeter { output_bytes, ..ReplyMeter::default() };
    }

    /// Writes the usage so far to the journal, so that it is billed after a crash.
    pub(super) fn checkpoint(&self) {
        let (usage, _) = self.final_usage(CallOutcome::BrokeOff);
        if let Some(hold) = &self.hold {
            // Without output a crash bills nothing, not even a fee per request.
            let is_unused = usage == Usage::default();
            let cost = if is_unused { Money::ZERO } else { self.price_of(&usage) };
            hold.progress(CallProgress { lane: self.entry.lane.to_string(), usage, cost });
        }
    }

    /// Settles an answered call. The caller may have the last byte once the entry is written.
    pub(super) fn close_done(mut self: BoxedAccount) -> ClosedCall {
        self.close(CallOutcome::Done)
    }

    /// Settles a call whose reply failed after its start.
    pub(super) fn close_broken_off(mut self: BoxedAccount, error: &ApiError) -> ClosedCall {
        // An error that a retry cannot fix is not the lane's fault.
        if let Some((attempt, _)) = self.attempt.as_mut().filter(|_| error.is_retryable()) {
            attempt.failed(super::send::classify_failure(error), self.engine.monotonic_now());
        }
        self.end_with(error, ended_by(error));
        let is_timeout = error.kind() == ErrorKind::Timeout;
        self.is_deadline = is_timeout && super::send::may_have_run(error);
        self.close(CallOutcome::BrokeOff)
    }

    /// Settles a call whose provider withheld the reply. Usage that the provider reports is billed.
    pub(super) fn close_withheld(
        mut self: BoxedAccount,
        status: u16,
        error: &ApiError,
        meter: &ReplyMeter,
    ) -> ClosedCall {
        self.attempt_answered();
        self.record_usage(meter);
        self.entry.status = status;
        self.entry.error = Some(Box::new(call_error(error)));
        self.close(CallOutcome::Done)
    }

    /// Settles a call that ended at its caller's own timeout, like one whose caller left.
    pub(super) fn close_timed_out(
        mut self: BoxedAccount,
        status: u16,
        error: &ApiError,
    ) -> ClosedCall {
        self.entry.status = status;
        self.end_with(error, EndedBy::Deadline);
        self.close(CallOutcome::CallerLeft)
    }

    /// Settles a call that failed before its reply.
    pub(super) fn close_failed(
        mut self: BoxedAccount,
        status: u16,
        error: &ApiError,
    ) -> ClosedCall {
        self.entry.status = status;
        self.end_with(error, ended_by(error));
        self.close(CallOutcome::Failed)
    }

    /// Records the error that ends the call.
    fn end_with(&mut self, error: &ApiError, ended_by: EndedBy) {
        (self.ended_by, self.error_word) = (Some(ended_by), error.kind().as_str());
        self.entry.error = Some(Box::new(call_error(error)));
    }

    /// Returns the default cause of the end.
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

    fn close(&mut self, outcome: CallOutcome) -> ClosedCall {
        let Some(hold) = self.hold.take() else { return ClosedCall::default() };
        let now = Instant::now();
        if outcome == CallOutcome::CallerLeft || self.is_deadline {
            self.unseen_output = self.estimate_unseen(&self.meter, self.copies);
        }
        if let (CallOutcome::Done, Some((attempt, _))) = (outcome, &self.attempt) {
            let told = self.meter.usage.filter(|told| self.is_possible(told));
            let Usage { output, thinking, .. } = told.unwrap_or_default();
            attempt.record_output(output, thinking, self.engine.monotonic_at(now));
        }
        self.in_flight_slot.free();
        self.entry.outcome = outcome;
        if !self.losses.is_empty() {
            let losses = std::mem::take(&mut self.losses).into_vec();
            self.entry.losses = losses.into_iter().map(|loss| loss.path).collect();
        }
        self.compute_charge(outcome, &hold);
        self.attempt = None;
        self.entry.ended_by = self.ended_by.unwrap_or_else(|| self.default_end(outcome));
        if let Some(permit) = &self.rate_permit {
            permit.close(self.entry.usage.total());
        }
        let cost = self.entry.cost.min(hold.amount());
        self.engine.metrics.running_calls.dec();
        self.count_call(now, cost);
        if self.engine.telemetry.is_on() {
            if let Some(record) = hold.record() {
                self.entry.started = record.at;
                self.entry.complete(record.clone());
            }
            self.entry.ended = self.engine.clock.now();
            self.engine.telemetry.record_call(self.trace, self.kind, &self.entry);
        }
        let receipt = Some(hold.settle(std::mem::take(&mut self.entry)));
        ClosedCall { cost, receipt }
    }
}

/// Returns an error as the record of its call has it. A provider that refuses a request may repeat a part
/// of it in its message, but not in the note.
fn call_error(error: &ApiError) -> CallError {
    let is_refused = error.blame() == Blame::Caller
        && matches!(error.progress(), Some(UpstreamProgress::Answered(_)));
    let message = match error.log_note() {
        Some(note) if is_refused => note,
        Some(_) | None => error.message(),
    };
    let code = error.code().unwrap_or_else(|| error.kind().as_str());
    CallError::new(code, error.param().unwrap_or_default(), message)
}

/// Returns the cause of an end by an error.
fn ended_by(error: &ApiError) -> EndedBy {
    match (error.kind(), error.blame()) {
        (ErrorKind::Timeout, _) => EndedBy::Deadline,
        // Only the operator ends running calls: a key was revoked, or the gateway stops.
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
                // 499 is the status that nginx logs for a client that closed the request.
                self.entry.status = 499;
            }
            self.close(CallOutcome::CallerLeft);
        }
    }
}
