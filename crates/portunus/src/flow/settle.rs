//! Settlement: usage → cost → charge, exactly once, also when the caller vanishes.

use canon::{Fault, Money, Reach, Usage};
use catalog::Prices;
use dialects::{Peek, Said};
use ledger::{Entry, Outcome, Progress, Ticket, Try};
use std::sync::Arc;
use std::time::Instant;
use upstream::{Failure, Turn};

use super::Call;
use super::route::Pick;
use crate::app::App;
use crate::limits::Pass;
use crate::telemetry::Trace;

/// Bytes a token has, roughly, where a count must be estimated.
pub(super) const BYTES_PER_TOKEN: u64 = 4;

/// The running tab of one call. Dropped before it was closed, it is closed as the caller's leaving.
pub(super) struct Tab {
    app: Arc<App>,
    prices: Arc<Prices>,
    arrived: Instant,
    dialect: &'static str,
    input_bytes: u64,
    said: Said,
    trace: Option<Trace>,
    /// Boxed: a tab moves from step to step, and an entry is large.
    entry: Box<Entry>,
    ticket: Option<Ticket>,
    /// The lane's part in it, while one is at work.
    turn: Option<Turn>,
    /// Its place within limits, given back with the money.
    pass: Option<Arc<Pass>>,
}

impl Tab {
    /// A tab on which nothing is set aside yet.
    pub(super) fn new(call: &Call, peek: &Peek, prices: &Arc<Prices>) -> Self {
        let now = call.app.clock.now();
        Self {
            app: Arc::clone(&call.app),
            prices: Arc::clone(prices),
            arrived: call.arrived,
            dialect: call.dialect.origin().name(),
            input_bytes: call.body.len() as u64,
            said: Said::default(),
            trace: call.trace,
            ticket: None,
            turn: None,
            pass: call.pass.clone(),
            entry: Box::new(Entry {
                request_id: call.id.to_string(),
                key_id: call.key.record.id.clone(),
                account_id: call.key.record.account_id.clone(),
                started: now,
                ended: now,
                first_byte_us: None,
                dialect: call.dialect.origin().name().to_owned(),
                model: peek.model.clone(),
                lane: String::new(),
                attempts: 0,
                failed: Vec::new(),
                stream: peek.stream,
                status: 503,
                outcome: Outcome::CallerLeft,
                usage: Usage::default(),
                estimated: false,
                cost: Money::ZERO,
                held: None,
                borne: Money::ZERO,
                price_version: prices.version.clone(),
                losses: Vec::new(),
            }),
        }
    }

    /// Money was set aside.
    pub(super) fn open(mut self, ticket: Ticket) -> Self {
        self.app.meters.running.inc();
        self.ticket = Some(ticket);
        self
    }

    /// No money was set aside; the refusal is noted.
    pub(super) fn refuse(mut self, fault: Fault) -> Fault {
        self.entry.outcome = Outcome::Failed;
        self.entry.status = if fault.trouble() == canon::Trouble::Quota { 429 } else { 503 };
        self.app.meters.ended(self.dialect, &self.entry);
        self.app.telemetry.ended(self.trace, &self.entry);
        self.app.book.note(*std::mem::take(&mut self.entry));
        fault
    }

    /// A lane is tried: what it says from here on is paid at its price.
    pub(super) fn try_lane(&mut self, pick: &Pick) {
        let lane = &pick.lane;
        self.turn = Some(pick.health.begin(self.app.ticks()));
        self.entry.attempts += 1;
        lane.name.clone_into(&mut self.entry.lane);
        if self.prices.version != lane.prices.version {
            self.prices = Arc::clone(&lane.prices);
            lane.prices.version.clone_into(&mut self.entry.price_version);
        }
    }

    /// Whether a lane is being tried.
    pub(super) fn is_trying(&self) -> bool {
        self.turn.is_some()
    }

    /// The try never took place: nobody was at the other end.
    pub(super) fn untry(&mut self) {
        self.turn = None;
        self.entry.attempts = self.entry.attempts.saturating_sub(1);
    }

    /// How often a lane was tried.
    pub(super) fn attempts(&self) -> u32 {
        self.entry.attempts
    }

    /// The lane answered, if only to refuse the caller's request.
    pub(super) fn lane_answered(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.answered(self.app.ticks());
        }
    }

    /// The lane failed. Whether the provider may want to be paid all the same is told by `spent`:
    /// that is the operator's loss. True when the operator should hear of the lane.
    pub(super) fn lane_failed(&mut self, failure: Failure, fault: &Fault, spent: bool) -> bool {
        let Some(mut turn) = self.turn.take() else { return false };
        let now = self.app.ticks();
        let status = match fault.reached() {
            Some(Reach::Answered(status)) => Some(status),
            Some(Reach::Nothing | Reach::Stale | Reach::Sent) | None => None,
        };
        self.entry.failed.push(Try {
            lane: self.entry.lane.clone(),
            outcome: failure.word().to_owned(),
            status,
            ms: u64::try_from(turn.elapsed(now).as_millis()).unwrap_or(u64::MAX),
        });
        if spent {
            let input = self.input_bytes.div_ceil(BYTES_PER_TOKEN);
            let lost = self.prices.cost(&Usage { input, ..Usage::default() });
            self.entry.borne = self.entry.borne.saturating_add(lost);
        }
        turn.failed(failure, now)
    }

    /// What a translation could not carry.
    pub(super) fn lost(&mut self, losses: impl IntoIterator<Item = String>) {
        for loss in losses {
            if !self.entry.losses.contains(&loss) {
                self.entry.losses.push(loss);
            }
        }
    }

    /// How many bytes are to be counted as input where a count must be estimated, when that is
    /// less than the body. Tells the estimate.
    pub(super) fn weigh(&mut self, input_bytes: u64) -> u64 {
        self.input_bytes = input_bytes.min(self.input_bytes);
        self.input_bytes.div_ceil(BYTES_PER_TOKEN)
    }

    /// The losses so far.
    pub(super) fn losses(&self) -> &[String] {
        &self.entry.losses
    }

    /// The lane that answers.
    pub(super) fn lane(&self) -> &str {
        &self.entry.lane
    }

    /// The answer has begun.
    pub(super) fn first_byte(&mut self) {
        self.lane_answered();
        self.entry.status = 200;
        let micros = i64::try_from(self.arrived.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.entry.first_byte_us.get_or_insert(micros);
    }

    /// What the answer has said of itself so far.
    pub(super) fn heard(&mut self, said: &Said) {
        self.said.clone_from(said);
    }

    /// Notes how far the call has come, so that a crash charges for it.
    pub(super) fn checkpoint(&self) {
        let (usage, _) = self.count(Outcome::BrokeOff);
        if let Some(ticket) = &self.ticket {
            // Nothing came out yet, so a crash now charges nothing, whatever a request costs.
            let nothing = usage == Usage::default();
            let cost = if nothing { Money::ZERO } else { self.prices.cost(&usage) };
            ticket.progress(Progress { lane: self.entry.lane.clone(), usage, cost });
        }
    }

    /// Closes the tab of an answered call and tells what it costs.
    pub(super) fn done(mut self) -> Money {
        self.close(Outcome::Done)
    }

    /// Closes the tab of a call whose answer broke off after it had begun.
    pub(super) fn broke_off(mut self, fault: &Fault) {
        // What cannot be mended by another try was not the lane's fault.
        if let Some(turn) = self.turn.as_mut().filter(|_| fault.may_retry()) {
            turn.failed(super::attempt::failure(fault), self.app.ticks());
        }
        self.close(Outcome::BrokeOff);
    }

    /// Closes the tab of a call that failed before there was an answer.
    pub(super) fn failed(mut self, status: u16) {
        self.entry.status = status;
        self.close(Outcome::Failed);
    }

    /// What was used: the provider's count, or ours where it gives none or one that cannot be.
    fn count(&self, outcome: Outcome) -> (Usage, bool) {
        let Said { usage, output_bytes, .. } = &self.said;
        let told = usage.filter(|usage| {
            !usage.is_absurd()
                && usage.input <= self.input_bytes.saturating_mul(8).max(4_096)
                && (usage.output > 0 || *output_bytes == 0)
        });
        let estimate = Usage {
            input: self.input_bytes.div_ceil(BYTES_PER_TOKEN),
            output: output_bytes.div_ceil(BYTES_PER_TOKEN),
            ..Usage::default()
        };
        // A provider that forgot to count the prompt did not answer without one.
        let whole = |usage: Usage| match usage.input {
            0 => (Usage { input: estimate.input, ..usage }, true),
            _ => (usage, self.said.estimated),
        };
        match outcome {
            Outcome::Failed | Outcome::Recovered => (Usage::default(), false),
            Outcome::Done => told.map_or((estimate, true), whole),
            // Nothing came out, so nothing is paid.
            Outcome::BrokeOff | Outcome::CallerLeft
                if *output_bytes == 0 && told.is_none_or(|usage| usage.output == 0) =>
            {
                (Usage::default(), false)
            }
            Outcome::BrokeOff | Outcome::CallerLeft => match told {
                Some(usage) if usage.output > 0 => whole(usage),
                Some(usage) => (Usage { output: estimate.output, ..usage }, true),
                None => (estimate, true),
            },
        }
    }

    fn close(&mut self, outcome: Outcome) -> Money {
        let Some(ticket) = self.ticket.take() else { return Money::ZERO };
        self.turn = None;
        let (usage, estimated) = self.count(outcome);
        self.entry.outcome = outcome;
        self.entry.usage = usage;
        self.entry.estimated = estimated;
        self.entry.cost = match outcome {
            Outcome::Failed | Outcome::Recovered => Money::ZERO,
            Outcome::Done => self.prices.cost(&usage),
            Outcome::BrokeOff | Outcome::CallerLeft if usage == Usage::default() => Money::ZERO,
            Outcome::BrokeOff | Outcome::CallerLeft => self.prices.cost(&usage),
        };
        if let Some(pass) = &self.pass {
            pass.close(usage.total());
        }
        let cost = self.entry.cost.min(ticket.amount());
        self.app.meters.running.dec();
        self.app.meters.ended(self.dialect, &self.entry);
        if self.app.telemetry.is_on() {
            self.entry.ended = self.app.clock.now();
            self.app.telemetry.ended(self.trace, &self.entry);
        }
        ticket.settle(*std::mem::take(&mut self.entry));
        cost
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        if self.ticket.is_some() {
            if self.entry.first_byte_us.is_none() {
                // The status a caller that left would have been told, by convention.
                self.entry.status = 499;
            }
            self.close(Outcome::CallerLeft);
        }
    }
}
