//! Money of one call of a tool on a server of the operator: the reservation of its price, and the receipt. It
//! is the ordinary reservation of the ledger, so caps and budgets hold, and a crash charges nothing.

use access::keys::ApiKey;
use canon::{ApiError, Charge, Micros, Money, Price, PriceDimension, SharedText};
use config::{Config, McpServerSettings};
use ledger::{CallOutcome, EndedBy, HoldRecord, HoldTicket, LedgerEntry};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::admit;
use crate::engine::Engine;
use crate::refusals::{RefusalReason, RefusedAt};

/// Format on receipts.
const FORMAT: &str = "mcp";

/// Reserved price of one call. Dropping it settles the call as one whose caller left.
pub struct PaidToolCall {
    hold: Option<HoldTicket>,
    price: Price,
    /// Name of the server on receipts.
    lane: SharedText,
    begun: Instant,
    /// True once the server may have the request.
    is_sent: AtomicBool,
}

impl PaidToolCall {
    /// Reserves the price of a call under this id, or refuses the call. A free call has a receipt too.
    pub async fn reserve(
        (engine, config): (&Engine, &Config),
        key: &ApiKey,
        server: &McpServerSettings,
        (id, session): (&Arc<str>, SharedText),
    ) -> Result<Self, ApiError> {
        let lane: SharedText = format!("{FORMAT}/{}", server.name).into();
        let price = server.price;
        let amount = Money::from_picos(price.times(1));
        let record = Arc::new(HoldRecord {
            request_id: Arc::clone(id).into(),
            key_id: key.balance.key_id().clone(),
            account_id: key.balance.share_account(&key.record.account_id),
            dialect: SharedText::fixed(FORMAT),
            model: lane.clone(),
            price_version: SharedText::fixed(FORMAT),
            lane: lane.clone(),
            session,
            ..HoldRecord::default()
        });
        let payer = (engine, &key.balance);
        let reserved = admit::reserve_from(payer, config.money_wait, record, amount, || amount);
        let hold = reserved.await.inspect_err(|error| {
            let refused = RefusedAt { at: engine.clock.now(), reason: RefusalReason::of(error) };
            engine.metrics.record_refusal(refused.reason.word());
            let (id, account_id) = (&key.record.id, &key.record.account_id);
            engine.funds.refusals.add(id, account_id, &lane, refused);
        })?;
        let is_sent = AtomicBool::new(false);
        Ok(Self { hold: Some(hold), price, lane, begun: Instant::now(), is_sent })
    }

    /// Notes that the request goes to the server now. A caller who leaves later pays it.
    pub fn note_sent(&self) {
        self.is_sent.store(true, Ordering::Relaxed);
    }

    /// Settles the call and returns its cost. A call that failed costs nothing.
    pub async fn settle(mut self, is_done: bool) -> Money {
        let (outcome, status) =
            if is_done { (CallOutcome::Done, 200) } else { (CallOutcome::Failed, 502) };
        let Some((hold, entry)) = self.close(outcome, status, is_done) else { return Money::ZERO };
        let cost = entry.cost;
        // A failure is counted by the journal, which writes the entry later.
        let _ = hold.settle(entry).await;
        cost
    }

    fn close(
        &mut self,
        outcome: CallOutcome,
        status: u16,
        is_charged: bool,
    ) -> Option<(HoldTicket, LedgerEntry)> {
        let hold = self.hold.take()?;
        let charge = Charge { dimension: PriceDimension::Request, count: 1, price: self.price };
        let is_charged = is_charged && self.price > Price::FREE;
        let charges: Vec<Charge> = is_charged.then_some(charge).into_iter().collect();
        let ended_by = match outcome {
            CallOutcome::CallerLeft => EndedBy::Caller,
            CallOutcome::Done
            | CallOutcome::BrokeOff
            | CallOutcome::Failed
            | CallOutcome::Recovered => outcome.usual_end(),
        };
        let entry = LedgerEntry {
            lane: self.lane.clone(),
            attempts: u32::from(self.is_sent.load(Ordering::Relaxed)),
            status,
            outcome,
            ended_by,
            first_byte_us: Some(Micros::from(self.begun.elapsed())),
            cost: Charge::total(&charges),
            held: Some(hold.amount()),
            charges,
            ..LedgerEntry::default()
        };
        Some((hold, entry))
    }
}

impl Drop for PaidToolCall {
    fn drop(&mut self) {
        let is_sent = self.is_sent.load(Ordering::Relaxed);
        // 499 is the status that nginx logs for a client that closed the request.
        if let Some((hold, entry)) = self.close(CallOutcome::CallerLeft, 499, is_sent) {
            drop(hold.settle(entry));
        }
    }
}
