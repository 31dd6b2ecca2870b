//! A lease store in memory with the rules of the real one.

use canon::{Micros, Money};
use ledger::{
    ALIVE_WINDOW, BoundState, BudgetPeriod, BudgetTerms, ClosedCounts, HeartbeatReply,
    HeartbeatReport, LEASE_DURATION, LEASE_GRACE, LeaseGrant, LeaseRequest, LeaseReturn,
    LeaseState, LeaseStoreError, LeaseToken, LedgerEntry, MarkRaise, MoneyBounds, Node, OpenCall,
    PostedBatch, PostedMark, RECALL_WINDOW, SettledCall, SettlementKnowledge, SpendTerms,
    StoreRollback, UnleasedCost, lease_slice,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Largest difference of clocks for which budgets hold.
pub(crate) const MAX_CLOCK_ERROR: Micros = Micros::from_secs(4);

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Enter(String),
    Leave(Node),
    Grant(LeaseRequest),
    Heartbeat(HeartbeatReport),
    TakeBack(LeaseReturn),
    Post(Vec<SettledCall>, Option<MarkRaise>),
    Mark(String),
    MarkPosted(MarkRaise, i64),
    NoteRollback(StoreRollback, bool),
    CloseGone(Micros),
}

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Node(Node),
    LeaseGrant(LeaseGrant),
    HeartbeatReply(HeartbeatReply),
    Posted(PostedBatch),
    Known(bool),
    Mark(PostedMark),
    ClosedCounts(ClosedCounts),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyRow {
    pub(crate) cap: Option<Money>,
    /// Upper bound of spending and leases, given all changes of the cap.
    pub(crate) ceiling: Money,
    pub(crate) spent: Money,
    pub(crate) leased: Money,
    wanted: Micros,
    pub(crate) budget: Option<BudgetTerms>,
    /// Number of the last change of its terms, or those of the account.
    pub(crate) changed: usize,
}

/// The account of all keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccountRow {
    pub(crate) cap: Option<Money>,
    /// Upper bound of spending and leases while there is a cap, given all its changes.
    ceiling: Money,
    pub(crate) budget: Option<BudgetTerms>,
}

#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
    pub(crate) key_id: String,
    pub(crate) node_id: String,
    pub(crate) amount: Money,
    version: i64,
    expires: Micros,
    pub(crate) unreported: Money,
    seq: i64,
    pub(crate) closed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStore {
    pub(crate) now: Micros,
    pub(crate) keys: BTreeMap<String, KeyRow>,
    pub(crate) account: AccountRow,
    /// Number of changes of terms.
    pub(crate) changes: usize,
    /// Upper bound of the spending of each day, with its begin, by key; the account has no name. A day
    /// that was without a budget for a while has none.
    day_ceilings: BTreeMap<(String, Micros), Option<Money>>,
    pub(crate) leases: BTreeMap<LeaseToken, LeaseRow>,
    pub(crate) entries: BTreeMap<String, LedgerEntry>,
    pub(crate) holds: BTreeMap<String, (String, OpenCall)>,
    nodes: BTreeMap<String, (i64, Micros)>,
    tokens: LeaseToken,
    marks: BTreeMap<String, i64>,
    pub(crate) rollbacks: Vec<StoreRollback>,
    /// Nodes that have posted nothing since an operator set the store back.
    pub(crate) adopted: BTreeSet<String>,
    /// Delayed messages whose sender has given up.
    pub(crate) late: Vec<Message>,
    /// True if a lease was closed for a dead node.
    pub(crate) closed_any: bool,
    /// Calls whose first record was corrected.
    pub(crate) corrected: BTreeSet<String>,
    corrections: i64,
    /// Number of restores, and the nodes that registered since the last one.
    pub(crate) restores: usize,
    entered: BTreeSet<String>,
    /// True once the clock was stepped. Leases may then expire before their nodes expect it.
    pub(crate) is_stepped: bool,
}

impl MemoryStore {
    /// Creates a store with keys `k0`, `k1`, … of these caps.
    pub(crate) fn new(caps: &[Option<i64>]) -> Arc<Mutex<Self>> {
        let mut store = Self { now: Micros::from_secs(1_000), ..Self::default() };
        for (number, cap) in caps.iter().enumerate() {
            let cap = cap.map(Money::from_nanos);
            let ceiling = cap.unwrap_or(Money::ZERO);
            store.keys.insert(format!("k{number}"), KeyRow { cap, ceiling, ..KeyRow::default() });
        }
        Arc::new(Mutex::new(store))
    }

    pub(crate) fn apply(&mut self, message: &Message) -> Result<Answer, LeaseStoreError> {
        Ok(match message {
            Message::Enter(id) => {
                self.entered.insert(id.clone());
                self.close_node(id);
                let before = self.nodes.get(id).map_or(0, |(epoch, _)| *epoch);
                let epoch = self.now.get().max(before + 1);
                self.nodes.insert(id.clone(), (epoch, self.now));
                Answer::Node(Node { id: id.clone(), epoch })
            }
            Message::Leave(node) => {
                if self.is(node) {
                    self.nodes.remove(&node.id);
                    self.close_node(&node.id);
                }
                Answer::Done
            }
            Message::Grant(ask) => Answer::LeaseGrant(self.grant(ask)?),
            Message::Heartbeat(report) => Answer::HeartbeatReply(self.heartbeat(report)?),
            Message::TakeBack(back) => {
                self.take_back(*back);
                Answer::Done
            }
            Message::Post(settled, raise) => {
                let before = self.corrections;
                let new = self.post(settled);
                let changed = new as i64 + self.corrections - before;
                let mark = raise.as_ref().and_then(|MarkRaise { node_id, before }| {
                    let mark = self.marks.entry(node_id.clone()).or_default();
                    let is_known = *mark >= *before;
                    *mark += if is_known { changed } else { 0 };
                    is_known.then_some(*mark)
                });
                if let Some(MarkRaise { node_id, .. }) = raise.as_ref().filter(|_| mark.is_some()) {
                    self.adopted.remove(node_id);
                }
                let corrected = usize::try_from(self.corrections - before).unwrap();
                Answer::Posted(PostedBatch { new, corrected, mark })
            }
            Message::Mark(id) => {
                let posted = self.marks.get(id).copied().unwrap_or_default();
                let (node_id, store_id) = (id.clone(), "store".to_owned());
                let is_adopted = self.adopted.contains(id);
                let has_leases = self.leases.values().any(|row| row.node_id == *id);
                Answer::Mark(PostedMark { node_id, store_id, posted, is_adopted, has_leases })
            }
            Message::MarkPosted(MarkRaise { node_id, before }, posted) => {
                let mark = self.marks.entry(node_id.clone()).or_default();
                let is_known = *mark >= *before;
                *mark = if is_known { (*mark).max(*posted) } else { *mark };
                Answer::Known(is_known)
            }
            Message::NoteRollback(rollback, is_expected) => {
                self.rollbacks.extend((!is_expected).then_some(*rollback));
                Answer::Done
            }
            Message::CloseGone(now) => Answer::ClosedCounts(self.close_gone(*now)),
        })
    }

    /// Goes back to an earlier state. The clock goes on, tokens do not repeat, and administrators have
    /// set the terms again. No message to the lost state arrives any more.
    pub(crate) fn restore(&mut self, earlier: &Self) {
        let before = std::mem::replace(self, earlier.clone());
        (self.now, self.tokens, self.is_stepped) = (before.now, before.tokens, before.is_stepped);
        self.restores = before.restores + 1;
        (self.changes, self.account) = (before.changes, before.account);
        self.day_ceilings = before.day_ceilings;
        self.late.clear();
        self.entered.clear();
        for (id, now) in before.keys {
            let key = self.keys.entry(id).or_default();
            (key.cap, key.budget, key.changed) = (now.cap, now.budget, now.changed);
        }
        for id in self.keys.keys().cloned().collect::<Vec<_>>() {
            self.set_terms(&id, |_| {});
        }
        self.set_account(|_| {});
    }

    /// Returns true if this node knows the present state: nothing was lost since it registered.
    pub(crate) fn is_known_to(&self, node: &str) -> bool {
        self.restores == 0 || self.entered.contains(node)
    }

    fn is(&self, node: &Node) -> bool {
        self.nodes.get(&node.id).is_some_and(|(epoch, _)| *epoch == node.epoch)
    }

    fn alive(&self) -> u32 {
        self.nodes.values().filter(|(_, seen)| *seen > self.now - ALIVE_WINDOW).count() as u32
    }

    fn grant(&mut self, ask: &LeaseRequest) -> Result<LeaseGrant, LeaseStoreError> {
        if !self.is(&ask.node) {
            return Err(LeaseStoreError::Fenced);
        }
        let (now, nodes) = (self.now, self.alive());
        let bounds = self.bounds(&ask.key_id);
        let mut unleased = ask.unleased;
        for (node_id, OpenCall { held, .. }) in self.holds.values() {
            if *node_id != ask.node.id && held.lease.is_none() {
                let is_own = held.key_id == ask.key_id;
                let key = if is_own { held.amount } else { Money::ZERO };
                unleased = unleased.plus(UnleasedCost { key, account: held.amount });
            }
        }
        let key = self.keys.get_mut(&ask.key_id).unwrap();
        let Some(left) = bounds.left_to_lease(&unleased) else {
            return Ok(LeaseGrant::Unlimited);
        };
        let mine = self
            .leases
            .iter_mut()
            .find(|(_, row)| row.key_id == ask.key_id && row.node_id == ask.node.id && !row.closed);
        let Some(amount) = lease_slice(ask, left, nodes, key.wanted > now) else {
            let mine = mine.map_or(Money::ZERO, |(_, row)| row.amount);
            let elsewhere = key.leased.saturating_sub(mine);
            if elsewhere > Money::ZERO && !ask.ahead {
                key.wanted = now + RECALL_WINDOW;
            }
            return Ok(LeaseGrant::Short(bounds));
        };
        assert!(amount <= left.max(Money::ZERO), "{ask:?}: {amount} of {left}");
        key.leased = key.leased.saturating_add(amount);
        let (token, version) = match mine {
            Some((token, row)) => {
                row.amount = row.amount.saturating_add(amount);
                row.version += 1;
                row.expires = now + LEASE_DURATION;
                if row.seq < ask.seq {
                    (row.seq, row.unreported) = (ask.seq, ask.unreported);
                }
                (*token, row.version)
            }
            None => {
                self.tokens += 1;
                let row = LeaseRow {
                    key_id: ask.key_id.clone(),
                    node_id: ask.node.id.clone(),
                    amount,
                    version: 1,
                    expires: now + LEASE_DURATION,
                    unreported: ask.unreported,
                    seq: ask.seq,
                    closed: false,
                };
                self.leases.insert(self.tokens, row);
                (self.tokens, 1)
            }
        };
        Ok(LeaseGrant::Lease { token, version, amount })
    }

    fn heartbeat(&mut self, report: &HeartbeatReport) -> Result<HeartbeatReply, LeaseStoreError> {
        if !self.is(&report.node) {
            return Err(LeaseStoreError::Fenced);
        }
        let id = &report.node.id;
        self.nodes.insert(id.clone(), (report.node.epoch, self.now));
        for call in &report.calls {
            self.holds.insert(call.held.request_id.to_string(), (id.clone(), call.clone()));
        }
        let bounds: BTreeMap<String, MoneyBounds> =
            self.keys.keys().map(|id| (id.clone(), self.bounds(id))).collect();
        let mut leases = Vec::new();
        for (token, row) in self.leases.iter_mut().filter(|(_, row)| row.node_id == *id) {
            if !row.closed {
                row.expires = self.now + LEASE_DURATION;
                let unreported = report.unreported.iter().find(|spend| spend.token == *token);
                if let Some(spend) = unreported.filter(|_| row.seq < report.seq) {
                    (row.seq, row.unreported) = (report.seq, spend.amount);
                }
            }
            let (key, bounds) = (&self.keys[&row.key_id], &bounds[&row.key_id]);
            let above = bounds.is_exceeded();
            leases.push(LeaseState {
                token: *token,
                version: row.version,
                key_id: row.key_id.clone(),
                amount: row.amount,
                wanted: key.wanted > self.now || above || bounds.left().is_none(),
                above,
                closed: row.closed,
            });
        }
        Ok(HeartbeatReply { now: self.now, nodes: self.alive(), leases })
    }

    /// The limits of a key for new leases.
    pub(crate) fn bounds(&self, key_id: &str) -> MoneyBounds {
        self.bounds_in(key_id, |period| (period.counted_since(self.now), Micros::MAX))
    }

    /// The limits of a key, of budgets in these stretches of time.
    fn bounds_in(
        &self,
        key_id: &str,
        stretch: impl Fn(BudgetPeriod) -> (Micros, Micros),
    ) -> MoneyBounds {
        let key = &self.keys[key_id];
        let state = |limit, spent| {
            let (leased, resets) = (key.leased, None);
            BoundState { limit, spent, leased, resets }
        };
        let in_period = |period, owner: Option<&str>| {
            let (begin, end) = stretch(period);
            let in_time = |entry: &&LedgerEntry| entry.started >= begin && entry.started < end;
            let calls = self.entries.values().filter(in_time);
            let calls = calls.filter(|entry| owner.is_none_or(|owner| entry.key_id == owner));
            calls.map(|entry| entry.cost).sum()
        };
        let (spent, leased) = self.account_sums();
        let of_account = |limit, spent| BoundState { limit, spent, leased, resets: None };
        MoneyBounds {
            key_cap: key.cap.map(|limit| state(limit, key.spent)),
            account_cap: self.account.cap.map(|limit| of_account(limit, spent)),
            key_budget: key
                .budget
                .map(|BudgetTerms { limit, period }| state(limit, in_period(period, Some(key_id)))),
            account_budget: self
                .account
                .budget
                .map(|BudgetTerms { limit, period }| of_account(limit, in_period(period, None))),
        }
    }

    /// Money spent by all keys and leased to them.
    fn account_sums(&self) -> (Money, Money) {
        (
            self.keys.values().map(|key| key.spent).sum(),
            self.keys.values().map(|key| key.leased).sum(),
        )
    }

    /// The terms of a key.
    pub(crate) fn terms(&self, key_id: &str) -> SpendTerms {
        let (key, account) = (&self.keys[key_id], &self.account);
        SpendTerms {
            key_cap: key.cap,
            key_budget: key.budget,
            account_cap: account.cap,
            account_budget: account.budget,
        }
    }

    /// Returns true if more is spent and leased than a cap of the key or its account allows.
    pub(crate) fn is_above_cap(&self, key_id: &str) -> bool {
        let bounds = self.bounds(key_id);
        let caps = bounds.key_cap.into_iter().chain(bounds.account_cap);
        caps.into_iter().any(|cap| cap.left() < Money::ZERO)
    }

    fn take_back(&mut self, back: LeaseReturn) {
        let LeaseReturn { token, version, keep } = back;
        let Some(row) = self.leases.get_mut(&token).filter(|row| row.version == version) else {
            return;
        };
        let more = row.amount.saturating_sub(keep).max(Money::ZERO);
        row.amount = row.amount.saturating_sub(more);
        let key = self.keys.get_mut(&row.key_id).unwrap();
        key.leased = key.leased.saturating_sub(more);
        if keep == Money::ZERO {
            self.leases.remove(&token);
        }
    }

    fn post(&mut self, settled: &[SettledCall]) -> usize {
        let mut new = 0;
        for SettledCall { entry, lease, .. } in settled {
            self.holds.remove(&*entry.request_id);
            let before = self.entries.get(&*entry.request_id).cloned();
            if before.as_ref().is_some_and(|before| before.knowledge >= entry.knowledge) {
                continue;
            }
            let paid = before.as_ref().map_or(Money::ZERO, |before| before.cost);
            new += usize::from(before.is_none());
            let mut entry = (**entry).clone();
            // In the period of its admission.
            let bounds = self.bounds_in(&entry.key_id, |period| period.bounds(entry.started));
            let key = self.keys.get_mut(&*entry.key_id).unwrap();
            let due = entry.cost.saturating_sub(paid);
            // The rest of a closed lease is for calls that were not reported.
            let lease = lease.filter(|_| before.is_none());
            if before.is_some() {
                self.corrected.insert(entry.request_id.to_string());
                self.corrections += 1;
            }
            let row = lease.and_then(|token| self.leases.get_mut(&token));
            let pays = match row.filter(|row| row.amount >= due) {
                Some(row) => {
                    row.amount = row.amount.saturating_sub(due);
                    key.leased = key.leased.saturating_sub(due);
                    due
                }
                None if due < Money::ZERO => due,
                None => {
                    if let Some(room) = bounds.left() {
                        due.min(room.max(Money::ZERO))
                    } else {
                        key.ceiling = key.ceiling.saturating_add(due);
                        due
                    }
                }
            };
            let rest = due.saturating_sub(pays);
            entry.absorbed = entry.absorbed.saturating_add(rest);
            entry.cost = entry.cost.saturating_sub(rest);
            key.spent = key.spent.saturating_add(pays);
            self.entries.insert(entry.request_id.to_string(), entry);
        }
        new
    }

    fn settle_open(&mut self, calls: Vec<OpenCall>, now: Micros) -> usize {
        let settled: Vec<SettledCall> = calls
            .into_iter()
            .map(|call| {
                let lease = call.held.lease;
                let entry = Arc::new(call.settle(now, None, SettlementKnowledge::Reported));
                SettledCall { entry, lease, shown: true }
            })
            .collect();
        self.post(&settled)
    }

    fn close(&mut self, token: LeaseToken) {
        if let Some(row) = self.leases.remove(&token) {
            let key = self.keys.get_mut(&row.key_id).unwrap();
            key.leased = key.leased.saturating_sub(row.amount);
        }
    }

    fn close_node(&mut self, id: &str) {
        let of_node = |(node, call): &(String, OpenCall)| (node == id).then(|| call.clone());
        let calls = self.holds.values().filter_map(of_node).collect();
        self.settle_open(calls, self.now);
        let tokens: Vec<LeaseToken> =
            self.leases.iter().filter(|(_, row)| row.node_id == id).map(|(t, _)| *t).collect();
        for token in tokens {
            self.close(token);
        }
    }

    fn close_gone(&mut self, now: Micros) -> ClosedCounts {
        let mut closed = ClosedCounts::default();
        let limit = self.now - LEASE_GRACE;
        let expired = self.leases.iter().filter(|(_, row)| row.expires < limit && !row.closed);
        let tokens: Vec<LeaseToken> = expired.map(|(token, _)| *token).collect();
        for token in tokens {
            let of_lease = |(_, call): &(String, OpenCall)| {
                (call.held.lease == Some(token)).then(|| call.clone())
            };
            let calls = self.holds.values().filter_map(of_lease).collect();
            closed.calls += self.settle_open(calls, now);
            closed.leases += 1;
            self.closed_any = true;
            let row = self.leases.get_mut(&token).unwrap();
            let back = row.amount.saturating_sub(row.unreported).max(Money::ZERO);
            row.amount = row.amount.saturating_sub(back);
            row.version += 1;
            row.closed = true;
            let (key_id, rest) = (row.key_id.clone(), row.amount);
            let key = self.keys.get_mut(&key_id).unwrap();
            key.leased = key.leased.saturating_sub(back);
            if rest == Money::ZERO {
                self.leases.remove(&token);
            }
        }
        let gone: Vec<OpenCall> = self
            .holds
            .values()
            .filter(|(node, call)| {
                self.nodes
                    .get(node)
                    .is_none_or(|(_, seen)| *seen < self.now - LEASE_DURATION - LEASE_GRACE)
                    && !self
                        .leases
                        .iter()
                        .any(|(token, row)| call.held.lease == Some(*token) && !row.closed)
            })
            .map(|(_, call)| call.clone())
            .collect();
        closed.calls += self.settle_open(gone, now);
        closed
    }

    pub(crate) fn set_cap(&mut self, key_id: &str, cap: Option<Money>) {
        self.set_terms(key_id, |key| key.cap = cap);
    }

    /// Changes the terms of a key.
    pub(crate) fn set_terms(&mut self, key_id: &str, change: impl FnOnce(&mut KeyRow)) {
        self.note_day();
        self.changes += 1;
        let changed = self.changes;
        let key = self.keys.get_mut(key_id).unwrap();
        change(key);
        key.changed = changed;
        key.ceiling = key.cap.unwrap_or(Money::ZERO).max(key.spent.saturating_add(key.leased));
        self.note_day();
    }

    /// Changes the terms of the account.
    pub(crate) fn set_account(&mut self, change: impl FnOnce(&mut AccountRow)) {
        self.note_day();
        self.changes += 1;
        change(&mut self.account);
        let (spent, leased) = self.account_sums();
        self.account.ceiling =
            self.account.cap.unwrap_or_default().max(spent.saturating_add(leased));
        for key in self.keys.values_mut() {
            key.changed = self.changes;
        }
        self.note_day();
    }

    /// Raises the upper bounds of this day to the budgets in force. To be called before and after each
    /// change and from time to time. Calls may be admitted by clocks that are a little wrong.
    pub(crate) fn note_day(&mut self) {
        let keys = self.keys.iter().map(|(id, key)| (id.clone(), key.budget));
        let all = (String::new(), self.account.budget);
        for (owner, budget) in keys.chain([all]).collect::<Vec<_>>() {
            for at in [self.now - MAX_CLOCK_ERROR, self.now + MAX_CLOCK_ERROR] {
                let (begin, _) = BudgetPeriod::Day.bounds(at);
                let limit = budget.map(|budget| budget.limit);
                let known = self.day_ceilings.entry((owner.clone(), begin)).or_insert(limit);
                *known = known.zip(limit).map(|(known, limit)| known.max(limit));
            }
        }
    }

    /// Cost of the calls of a key that were admitted on a day, or of all calls.
    fn spent_on(&self, owner: &str, begin: Micros) -> Money {
        let end = begin + Micros::from_days(1);
        let of_day = |entry: &&LedgerEntry| entry.started >= begin && entry.started < end;
        let calls = self.entries.values().filter(of_day);
        calls.filter(|e| owner.is_empty() || e.key_id == owner).map(|entry| entry.cost).sum()
    }

    /// Checks that no budget of a day was passed.
    pub(crate) fn check_budgets(&self) {
        for ((owner, begin), ceiling) in &self.day_ceilings {
            let spent = self.spent_on(owner, *begin);
            let is_kept = ceiling.is_none_or(|ceiling| spent <= ceiling);
            assert!(is_kept, "`{owner}` spent {spent} of {ceiling:?} on the day from {begin:?}");
        }
    }

    /// Checks the invariants of the store.
    pub(crate) fn check(&self) {
        for (id, key) in &self.keys {
            let leases = self.leases.values().filter(|row| row.key_id == *id);
            assert_eq!(key.leased, leases.map(|row| row.amount).sum(), "leases of {id}");
            let rows = self.entries.values().filter(|entry| entry.key_id == *id);
            assert_eq!(key.spent, rows.map(|entry| entry.cost).sum(), "calls of {id}");
            let used = key.spent.saturating_add(key.leased);
            let is_kept = used <= key.ceiling || key.cap.is_none();
            assert!(is_kept, "{id} is above its cap: {key:?}");
        }
        assert!(self.leases.values().all(|row| row.amount >= Money::ZERO));
        let (spent, leased) = self.account_sums();
        let is_kept =
            self.account.cap.is_none() || spent.saturating_add(leased) <= self.account.ceiling;
        assert!(is_kept, "the account is above its cap: {spent} {leased} {:?}", self.account);
    }
}
