//! The lease client connects the open calls of this node with the lease store of all nodes.
//!
//! A call whose hold the lease covers never waits for the store. Otherwise one call per key at a time
//! requests more. Once a second [`LeaseClient::tend`] sends a heartbeat, renews the leases and returns
//! money this node does not need.

use canon::{AtomicMicros, Micros, Money};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use crate::lease_need::{LeaseFailure, LeaseNeed, LeaseRequests};
use crate::store_rollback::PendingRepost;
use crate::{
    Clock, ClosedCounts, HeartbeatReport, HoldError, HoldRecord, HoldRefusal, HoldTicket,
    KeyBalance, KeySpending, LEASE_DURATION, LEASE_MARGIN, LeaseGrant, LeaseRequest, LeaseReturn,
    LeaseState, LeaseStore, LeaseStoreError, MoneyBounds, Node, OpenCalls, OpenedJournal,
    PendingHold, PostedMark, StoreRollback, UnreportedSpend,
};

/// Default time the store may be unreachable before keys without a cap are refused.
const DEFAULT_OUTAGE_LIMIT: Micros = Micros::from_secs(60);
/// Maximum number of lease requests for one hold. Another call may take the money that was fetched
/// for this one.
const MAX_LEASE_REQUESTS: usize = 8;
/// Maximum number of settled calls posted at once. Their sums of usage are written together.
pub const MAX_BATCH_CALLS: usize = 4_000;
/// Calls of an earlier process that are posted at once. Most of them may be recorded already, which is
/// slow to find out, and other processes wait for the lock of the store meanwhile.
const RECOVERY_BATCH_CALLS: usize = 250;

/// The lease client of one node.
pub struct LeaseClient<S> {
    book: Arc<OpenCalls>,
    store: S,
    clock: Arc<dyn Clock>,
    /// The name to register under.
    name: String,
    node: Mutex<Node>,
    /// Balances that have or requested a lease, by key.
    balances: Mutex<HashMap<String, Arc<KeyBalance>>>,
    /// Held while settled calls are posted and during a heartbeat. A report made during a posting
    /// would be out of date on arrival.
    session: tokio::sync::Mutex<ClientSession>,
    /// When the last answered message was sent, by the steady clock.
    last_contact: AtomicMicros,
    outage_limit: AtomicMicros,
    requests: LeaseRequests,
    /// True if every heartbeat returns all free money.
    yields_money: AtomicBool,
    nodes: AtomicU32,
    /// Numbers the announcements of unreported spending.
    seq: AtomicI64,
    /// Number of calls that this node has posted. Changed while `session` is held.
    mark: Mutex<PostedMark>,
    /// Calls that are posted again after a rollback of the store.
    repost: Mutex<Option<PendingRepost>>,
    /// Rollbacks of the store that nobody was told yet.
    rollbacks: Mutex<Vec<StoreRollback>>,
}

#[derive(Default)]
struct ClientSession {
    /// When the last confirmed heartbeat was sent.
    last_heartbeat: Micros,
    /// Number of registrations under another name.
    renames: u32,
    left: bool,
}

/// The result of a hold that may not wait for the store.
#[derive(Debug)]
pub enum TryHold {
    /// The money is reserved.
    Held(PendingHold),
    /// This node's lease does not cover the call. The hold comes back, for [`LeaseClient::hold`].
    MustWait(Arc<HoldRecord>),
}

/// The result of one attempt to reserve money from this node's lease.
enum Attempt {
    Held(HoldTicket),
    Short { held: Arc<HoldRecord>, free: Money },
}

impl<S: LeaseStore> LeaseClient<S> {
    /// Posts the calls that were found in the journal and registers the node. A node whose journal is
    /// lost gets another name, see [`Self::node_name`].
    pub async fn open(
        opened: OpenedJournal,
        store: S,
        clock: Arc<dyn Clock>,
        name: &str,
    ) -> Result<Self, LeaseStoreError> {
        let OpenedJournal { book, found, segments } = opened;
        let mut name = name.to_owned();
        let mut stored = store.posted_mark(&name).await?;
        let is_lost = (stored.posted > 0 || stored.has_leases) && book.look_for_journal();
        if is_lost && stored.has_leases && segments.is_empty() && book.has_no_retired() {
            // Registering closes the leases of that name without a reserve. Those of the lost journal
            // have to expire: nobody can post the calls that they pay for.
            let begin = name.split('.').next().unwrap_or_default();
            name = format!("{begin}.{}", clock.now().get());
            stored = store.posted_mark(&name).await?;
        }
        let own = book.mark_of(&stored.store_id);
        let went_back = own.as_ref().is_some_and(|own| own.posted > stored.posted);
        if went_back {
            // The store has leases of this node again that pay for none of these calls and may cover all
            // the money that they need.
            store.enter(&name).await?;
        }
        // Otherwise posting comes first, because registering closes the leases that pay for them.
        let mut mark = own.filter(|_| went_back).unwrap_or(stored);
        let mut recovered = 0;
        for settled in found.settled.chunks(RECOVERY_BATCH_CALLS) {
            let raise = (!went_back).then(|| mark.raise());
            let posted = store.post(settled, raise.as_ref()).await?;
            recovered += posted.new + posted.corrected;
            if !went_back {
                mark.note(posted, settled.len());
            }
        }
        // Before their records are retired, because this start may fail after that. A mark that cannot
        // be written only hides a rollback.
        drop(book.write_mark(&mark));
        book.record_recovered(&found);
        book.forget_recovered(&segments, &found.damage);
        let node = store.enter(&name).await?;
        let last_contact = AtomicMicros::new(clock.steady());
        let client = Self {
            book,
            store,
            clock,
            name,
            node: Mutex::new(node),
            balances: Mutex::default(),
            session: tokio::sync::Mutex::default(),
            last_contact,
            outage_limit: AtomicMicros::new(DEFAULT_OUTAGE_LIMIT),
            requests: LeaseRequests::default(),
            yields_money: AtomicBool::new(false),
            nodes: AtomicU32::new(1),
            seq: AtomicI64::new(0),
            mark: Mutex::new(mark),
            repost: Mutex::default(),
            rollbacks: Mutex::default(),
        };
        // The store may have gone back while this node was stopped.
        client.check_mark(recovered).await?;
        while client.is_reposting() {
            client.check_mark(0).await?;
        }
        Ok(client)
    }

    pub(crate) fn store(&self) -> &S {
        &self.store
    }

    pub(crate) fn book(&self) -> &OpenCalls {
        &self.book
    }

    pub(crate) const fn balances(&self) -> &Mutex<HashMap<String, Arc<KeyBalance>>> {
        &self.balances
    }

    pub(crate) const fn mark(&self) -> &Mutex<PostedMark> {
        &self.mark
    }

    pub(crate) const fn repost(&self) -> &Mutex<Option<PendingRepost>> {
        &self.repost
    }

    pub(crate) const fn rollbacks(&self) -> &Mutex<Vec<StoreRollback>> {
        &self.rollbacks
    }

    /// Sets the time the store may be unreachable before keys without a cap are refused.
    pub fn set_outage_limit(&self, limit: Micros) {
        self.outage_limit.store(limit);
    }

    pub(crate) fn outage_limit(&self) -> Micros {
        self.outage_limit.load()
    }

    /// Lets every heartbeat return all free money, because another node serves the calls of this one.
    pub fn yield_money(&self) {
        self.yields_money.store(true, Ordering::Relaxed);
    }

    /// Returns the time since the last answer of the store.
    pub fn time_since_contact(&self) -> Micros {
        self.clock.steady() - self.last_contact.load()
    }

    /// Returns the failure of the store to lease money, or a request that it has not answered yet, and the
    /// time since it began.
    pub fn lease_failure(&self) -> Option<(Micros, LeaseFailure)> {
        let failed = self.requests.trouble()?;
        Some((self.steady() - failed.since, failed))
    }

    /// Returns the number of live nodes.
    pub fn live_nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Returns the name this node is registered under. A restart must use the same one.
    pub fn node_name(&self) -> String {
        self.node.lock().id.clone()
    }

    fn node(&self) -> Node {
        self.node.lock().clone()
    }

    pub(crate) fn steady(&self) -> Micros {
        self.clock.steady()
    }

    fn note_contact(&self, sent: Micros) {
        self.last_contact.advance_to(sent);
    }

    /// Reserves all of `full` if this node's lease covers it. This is the usual case and never waits.
    pub fn try_hold(
        &self,
        balance: &Arc<KeyBalance>,
        held: Arc<HoldRecord>,
        full: Money,
    ) -> Result<TryHold, HoldRefusal> {
        let now = self.steady();
        if now - self.last_contact.load() > self.outage_limit.load() && balance.is_unlimited() {
            balance.note_use(now);
            return Err(HoldRefusal::Unreachable(
                "the store has not answered for too long".to_owned(),
            ));
        }
        match self.book.hold_at(now, balance, held, full, full) {
            Ok(pending) => Ok(TryHold::Held(pending)),
            Err(HoldError::Short { held, .. }) => Ok(TryHold::MustWait(held)),
            Err(HoldError::Journal(e)) => Err(HoldRefusal::Journal(e)),
        }
    }

    /// Reserves all of `full`, or what is left if that is at least `least`. Requests a larger lease
    /// when this node's lease is not enough.
    pub async fn hold(
        &self,
        balance: &Arc<KeyBalance>,
        held: Arc<HoldRecord>,
        full: Money,
        least: Money,
    ) -> Result<HoldTicket, HoldRefusal> {
        let mut held = match self.try_hold(balance, held, full)? {
            TryHold::Held(pending) => return pending.written().await.map_err(HoldRefusal::Journal),
            TryHold::MustWait(held) => held,
        };
        for _ in 0..MAX_LEASE_REQUESTS {
            let _turn = balance.request_lock.lock().await;
            let free;
            (held, free) = match self.attempt(balance, held, full, full).await? {
                Attempt::Held(ticket) => return Ok(ticket),
                Attempt::Short { held, free } => (held, free),
            };
            let sent = self.steady();
            // If enough is free, the request only announces more unreported spending.
            let lacks = if full <= free {
                Money::ZERO
            } else {
                least.saturating_sub(free).max(Money::from_nanos(1))
            };
            // An amount that was refused to another call may be enough for this one.
            let refusal = balance.recent_refusal(sent).map(|refusal| refusal.bounds);
            if let Some(bounds) = refusal.filter(|bounds| bounds.left() < Some(lacks)) {
                return self.hold_what_is_left(balance, held, full, least, &bounds).await;
            }
            let need = LeaseNeed { full: full.saturating_sub(free), least: lacks, hold: full };
            match self.fetch(balance, need, false).await {
                Ok(LeaseGrant::Short(bounds)) => {
                    return self.hold_what_is_left(balance, held, full, least, &bounds).await;
                }
                Ok(LeaseGrant::Lease { .. } | LeaseGrant::Unlimited) => {}
                Err(e) => {
                    // Without the store, only the money on this node can be spent.
                    return match self.attempt(balance, held, full, least).await? {
                        Attempt::Held(ticket) => Ok(ticket),
                        Attempt::Short { .. } => Err(HoldRefusal::Unreachable(e.to_string())),
                    };
                }
            }
            held = match self.attempt(balance, held, full, full).await? {
                Attempt::Held(ticket) => return Ok(ticket),
                Attempt::Short { held, .. } => held,
            };
        }
        // Other calls took the money each time, so it is reserved.
        self.hold_what_is_left(balance, held, full, least, &MoneyBounds::default()).await
    }

    /// Reserves money of this node's lease. A lease that is too small is not an error yet.
    async fn attempt(
        &self,
        balance: &Arc<KeyBalance>,
        held: Arc<HoldRecord>,
        full: Money,
        least: Money,
    ) -> Result<Attempt, HoldRefusal> {
        match self.book.hold(balance, held, full, least) {
            Ok(pending) => pending.written().await.map(Attempt::Held).map_err(HoldRefusal::Journal),
            Err(HoldError::Short { held, free }) => Ok(Attempt::Short { held, free }),
            Err(HoldError::Journal(e)) => Err(HoldRefusal::Journal(e)),
        }
    }

    /// Reserves what this node has, because the store has no more.
    async fn hold_what_is_left(
        &self,
        balance: &Arc<KeyBalance>,
        held: Arc<HoldRecord>,
        full: Money,
        least: Money,
        bounds: &MoneyBounds,
    ) -> Result<HoldTicket, HoldRefusal> {
        let (held, free) = match self.attempt(balance, held, full, least).await? {
            Attempt::Held(ticket) => return Ok(ticket),
            Attempt::Short { held, free } => (held, free),
        };
        if free < least || free <= Money::ZERO {
            return Err(balance.refusal(bounds, least, free));
        }
        // The free money is enough, but using it must be announced.
        let announcement = LeaseNeed { hold: free, ..LeaseNeed::default() };
        self.fetch(balance, announcement, false).await.ok();
        match self.attempt(balance, held, full, least).await? {
            Attempt::Held(ticket) => Ok(ticket),
            Attempt::Short { free, .. } => Err(balance.refusal(bounds, least, free)),
        }
    }

    /// Requests money from the store.
    async fn fetch(
        &self,
        balance: &Arc<KeyBalance>,
        need: LeaseNeed,
        ahead: bool,
    ) -> Result<LeaseGrant, LeaseStoreError> {
        if self.is_reposting() {
            let why = "the store went back, and its calls are posted again";
            return Err(LeaseStoreError::Unreachable(why.to_owned()));
        }
        let LeaseNeed { full, least, hold } = need;
        self.balances.lock().insert(balance.key_id().to_string(), Arc::clone(balance));
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let request = LeaseRequest {
            node: self.node(),
            key_id: balance.key_id().to_string(),
            least,
            full: full.max(Money::ZERO),
            hold,
            wish: balance.wish(),
            unleased: self.book.unleased(balance),
            unreported: balance.announce(seq, Some(hold), self.steady()).1,
            seq,
            ahead,
        };
        let waiting = self.requests.send(seq, balance, &*self.clock);
        let sent = waiting.sent;
        let granted = self.store.grant(&request).await;
        waiting.answered(&granted);
        let granted = granted?;
        self.note_contact(sent);
        if !(ahead && matches!(granted, LeaseGrant::Short(_))) {
            balance.apply(granted, seq, usable_until(sent), self.steady());
        }
        Ok(granted)
    }

    /// Posts a batch of settled calls and returns their number. After an error they stay unposted.
    pub async fn post(&self) -> Result<usize, LeaseStoreError> {
        let _session = self.session.lock().await;
        let batch = self.book.take_batch(MAX_BATCH_CALLS);
        if batch.is_empty() {
            return Ok(0);
        }
        // Also puts the batch back when this future is dropped before the answer.
        let _unless_posted = PutBack(&self.book);
        let sent = self.steady();
        let count = batch.settled().len();
        self.post_and_mark(batch.settled()).await?;
        self.note_contact(sent);
        self.book.posted(batch);
        Ok(count)
    }

    /// Sends a heartbeat, renews the leases and returns money this node does not need. To be called
    /// once a second.
    pub async fn heartbeat(&self) -> Result<(), LeaseStoreError> {
        let mut session = self.session.lock().await;
        if session.left {
            return Ok(());
        }
        self.check_mark(0).await?;
        let sent = self.steady();
        let (calls, changes): (Vec<_>, Vec<_>) =
            self.book.unconfirmed(session.last_heartbeat).into_iter().unzip();
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let report =
            HeartbeatReport { node: self.node(), calls, unreported: self.unreported(seq), seq };
        let mut reply = match self.store.heartbeat(&report).await {
            Ok(reply) => {
                self.book.note_store_time(reply.now);
                reply
            }
            Err(e @ (LeaseStoreError::Unreachable(_) | LeaseStoreError::Rejected(_))) => {
                return Err(e);
            }
            Err(LeaseStoreError::Fenced) => {
                session.renames += 1;
                self.register_again(session.renames).await?;
                return Err(LeaseStoreError::Fenced);
            }
        };
        if self.yields_money.load(Ordering::Relaxed) {
            reply.leases.iter_mut().for_each(|lease| lease.wanted = true);
        }
        let reported = self.book.confirm(&report.calls, &changes);
        session.last_heartbeat = sent;
        self.note_contact(sent);
        self.nodes.store(reply.nodes.max(1), Ordering::Relaxed);
        // Read again: balances may have been added during the heartbeat, with leases in the reply.
        let balances: Vec<Arc<KeyBalance>> = self.balances.lock().values().cloned().collect();
        let (closed, open): (Vec<_>, Vec<_>) = reply.leases.iter().partition(|l| l.closed);
        let mut leases: HashMap<&str, &LeaseState> =
            open.into_iter().map(|lease| (lease.key_id.as_str(), lease)).collect();
        for balance in balances {
            if let Some(used) = balance.lease()
                && let Some(holds) = reported.get(&used.token)
            {
                balance.reported(used.token, *holds);
            }
            let lease = leases.remove(balance.key_id().as_str());
            if lease.is_some() {
                balance.announced(seq);
            }
            // A lease granted during the heartbeat is not in the report, and its absence from the
            // reply means nothing.
            let was_reported = balance.lease().is_some_and(|used| {
                report.unreported.iter().any(|reported| reported.token == used.token)
            });
            match lease {
                Some(lease) => self.maintain(&balance, lease, seq, reply.nodes <= 1, sent).await?,
                None => self.drop_lease(&balance, was_reported),
            }
        }
        // Drops closed leases, and leases the store granted but this node never received.
        let closed = closed.into_iter().filter(|lease| !self.book.uses(lease.token));
        for lease in closed.chain(leases.into_values()) {
            let LeaseState { token, version, .. } = *lease;
            self.store.take_back(&LeaseReturn { token, version, keep: Money::ZERO }).await?;
        }
        self.repeat_failed_request().await
    }

    /// Requests a lease without money where the store failed to lease some: without calls nothing else would show
    /// that it can lease again.
    async fn repeat_failed_request(&self) -> Result<(), LeaseStoreError> {
        if self.yields_money.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(LeaseFailure { balance, .. }) = self.requests.failure() else { return Ok(()) };
        // A call makes a request of its own now.
        let Ok(_turn) = balance.request_lock.try_lock() else { return Ok(()) };
        match self.fetch(&balance, LeaseNeed::default(), true).await {
            Ok(_) | Err(LeaseStoreError::Rejected(_)) => Ok(()),
            Err(e @ (LeaseStoreError::Unreachable(_) | LeaseStoreError::Fenced)) => Err(e),
        }
    }

    /// Returns the bound of unreported spending of every lease. Calls that this very heartbeat reports
    /// still count; the next one leaves them out.
    fn unreported(&self, seq: i64) -> Vec<UnreportedSpend> {
        let balances: Vec<Arc<KeyBalance>> = self.balances.lock().values().cloned().collect();
        let now = self.steady();
        let announced = balances.iter().map(|balance| balance.announce(seq, None, now));
        announced
            .filter_map(|(token, amount)| Some(UnreportedSpend { token: token?, amount }))
            .collect()
    }

    /// Forgets the lease of a balance that the store has none for.
    fn drop_lease(&self, balance: &Arc<KeyBalance>, was_reported: bool) {
        let Ok(_turn) = balance.request_lock.try_lock() else { return };
        if was_reported {
            balance.forget_lease();
        }
        if balance.lease().is_none() {
            self.balances.lock().remove(balance.key_id().as_str());
        }
    }

    /// Applies the renewal of one lease and returns or requests money.
    async fn maintain(
        &self,
        balance: &Arc<KeyBalance>,
        lease: &LeaseState,
        seq: i64,
        alone: bool,
        sent: Micros,
    ) -> Result<(), LeaseStoreError> {
        balance.decay();
        balance.renewed(lease, seq, usable_until(sent));
        // During a lease request the reply may be out of date.
        let Ok(_turn) = balance.request_lock.try_lock() else { return Ok(()) };
        let LeaseState { token, amount, wanted, .. } = *lease;
        let trimmed = balance.trim(lease, alone, self.steady());
        let (version, keep) = match trimmed {
            Some(trimmed) => trimmed,
            // Another lease is in use, granted after the reply.
            None if balance.lease().is_some() => return Ok(()),
            None => (lease.version, Money::ZERO),
        };
        if keep < amount || balance.lease().is_none() {
            return self.store.take_back(&LeaseReturn { token, version, keep }).await;
        }
        // Requested ahead, so that the next call does not wait.
        if let Some(full) = balance.runs_low(self.steady()).filter(|_| !wanted) {
            let need = LeaseNeed { full, least: Money::from_nanos(1), hold: full };
            self.fetch(balance, need, true).await?;
        }
        Ok(())
    }

    /// Registers under another name, without leases, because another process uses this node's name.
    async fn register_again(&self, renames: u32) -> Result<(), LeaseStoreError> {
        self.enter(&format!("{}.{renames}", self.name)).await
    }

    /// Registers again under the present name, without leases.
    pub(crate) async fn enter_again(&self) -> Result<(), LeaseStoreError> {
        self.enter(&self.node_name()).await
    }

    async fn enter(&self, name: &str) -> Result<(), LeaseStoreError> {
        for balance in self.balances.lock().values() {
            balance.forget_lease();
        }
        self.book.unconfirm_all();
        let node = self.store.enter(name).await?;
        *self.node.lock() = node;
        Ok(())
    }

    /// Closes the leases of dead nodes.
    pub async fn close_dead_nodes(&self) -> Result<ClosedCounts, LeaseStoreError> {
        self.store.close_gone(self.book.now()).await
    }

    /// Returns cap, spending and holds of a key on all nodes.
    pub async fn key_status(&self, balance: &KeyBalance) -> Result<KeySpending, LeaseStoreError> {
        let _session = self.session.lock().await;
        let status = self.store.key_status(balance.key_id(), &self.node()).await?;
        Ok(match status {
            Some(found) => balance.merge_totals(found),
            None => KeySpending { own: balance.status(), ..KeySpending::default() },
        })
    }

    /// Returns all leases, if no call is running or unposted.
    pub async fn leave(&self) -> Result<(), LeaseStoreError> {
        let mut session = self.session.lock().await;
        if self.book.running_count() > 0 || self.book.unposted_count() > 0 {
            return Ok(());
        }
        session.left = true;
        for balance in self.balances.lock().values() {
            balance.forget_lease();
        }
        self.store.leave(&self.node()).await
    }
}

/// Puts the batch back on drop. After [`OpenCalls::posted`] there is none.
struct PutBack<'a>(&'a OpenCalls);

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        self.0.put_back();
    }
}

/// Returns when this node stops using a lease that was requested or renewed at that moment.
const fn usable_until(sent: Micros) -> Micros {
    sent.saturating_add(LEASE_DURATION).saturating_sub(LEASE_MARGIN)
}
