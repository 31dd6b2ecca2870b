//! A lease store in memory with the rules of the real one, and connections with faults: a message is
//! lost, its answer is lost, it is duplicated or delayed.

use canon::{Micros, Money};
use ledger::{
    ALIVE_WINDOW, ClosedCounts, HeartbeatReply, HeartbeatReport, KeyStatus, LEASE_DURATION,
    LEASE_GRACE, LeaseGrant, LeaseRequest, LeaseReturn, LeaseState, LeaseStore, LeaseStoreError,
    LeaseToken, LedgerEntry, Node, OpenCall, RECALL_WINDOW, SettledCall, SettlementKnowledge,
    lease_slice,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::seeded_random::SeededRandom;

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Enter(String),
    Leave(Node),
    Grant(LeaseRequest),
    Heartbeat(HeartbeatReport),
    TakeBack(LeaseReturn),
    Post(Vec<SettledCall>),
    CloseGone(Micros),
}

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Node(Node),
    LeaseGrant(LeaseGrant),
    HeartbeatReply(HeartbeatReply),
    Count(usize),
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

#[derive(Debug, Default)]
pub(crate) struct MemoryStore {
    pub(crate) now: Micros,
    pub(crate) keys: BTreeMap<String, KeyRow>,
    pub(crate) leases: BTreeMap<LeaseToken, LeaseRow>,
    pub(crate) entries: BTreeMap<String, LedgerEntry>,
    pub(crate) holds: BTreeMap<String, (String, OpenCall)>,
    nodes: BTreeMap<String, (i64, Micros)>,
    tokens: LeaseToken,
    /// Delayed messages whose sender has given up.
    pub(crate) late: Vec<Message>,
    /// True if a lease was closed for a dead node.
    pub(crate) closed_any: bool,
    /// Calls whose first record was corrected.
    pub(crate) corrected: BTreeSet<String>,
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
            Message::Post(settled) => Answer::Count(self.post(settled)),
            Message::CloseGone(now) => Answer::ClosedCounts(self.close_gone(*now)),
        })
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
        let key = self.keys.get_mut(&ask.key_id).unwrap();
        let Some(cap) = key.cap else { return Ok(LeaseGrant::Unlimited) };
        let left = cap.saturating_sub(key.spent).saturating_sub(key.leased);
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
            return Ok(LeaseGrant::Short { left: left.max(Money::ZERO), elsewhere });
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
            self.holds.insert(call.held.request_id.clone(), (id.clone(), call.clone()));
        }
        let mut leases = Vec::new();
        for (token, row) in self.leases.iter_mut().filter(|(_, row)| row.node_id == *id) {
            if !row.closed {
                row.expires = self.now + LEASE_DURATION;
                let unreported = report.unreported.iter().find(|spend| spend.token == *token);
                if let Some(spend) = unreported.filter(|_| row.seq < report.seq) {
                    (row.seq, row.unreported) = (report.seq, spend.amount);
                }
            }
            let key = &self.keys[&row.key_id];
            let above = key.cap.is_none_or(|cap| key.spent.saturating_add(key.leased) > cap);
            leases.push(LeaseState {
                token: *token,
                version: row.version,
                key_id: row.key_id.clone(),
                amount: row.amount,
                wanted: key.wanted > self.now || above,
                closed: row.closed,
            });
        }
        Ok(HeartbeatReply { nodes: self.alive(), leases })
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
            self.holds.remove(&entry.request_id);
            let before = self.entries.get(&entry.request_id).cloned();
            if before.as_ref().is_some_and(|before| before.knowledge >= entry.knowledge) {
                continue;
            }
            let paid = before.as_ref().map_or(Money::ZERO, |before| before.cost);
            new += usize::from(before.is_none());
            let mut entry = (**entry).clone();
            let key = self.keys.get_mut(&entry.key_id).unwrap();
            let due = entry.cost.saturating_sub(paid);
            // The rest of a closed lease is for calls that were not reported.
            let lease = lease.filter(|_| before.is_none());
            if before.is_some() {
                self.corrected.insert(entry.request_id.clone());
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
                    if let Some(cap) = key.cap {
                        let room = cap.saturating_sub(key.spent).saturating_sub(key.leased);
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
            self.entries.insert(entry.request_id.clone(), entry);
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
        let key = self.keys.get_mut(key_id).unwrap();
        key.cap = cap;
        key.ceiling = cap.unwrap_or(Money::ZERO).max(key.spent.saturating_add(key.leased));
    }

    /// Checks the invariants of the store.
    pub(crate) fn check(&self) {
        for (id, key) in &self.keys {
            let leases = self.leases.values().filter(|row| row.key_id == *id);
            assert_eq!(key.leased, leases.map(|row| row.amount).sum(), "leases of {id}");
            let rows = self.entries.values().filter(|entry| entry.key_id == *id);
            assert_eq!(key.spent, rows.map(|entry| entry.cost).sum(), "calls of {id}");
            let used = key.spent.saturating_add(key.leased);
            assert!(used <= key.ceiling, "{id} is above its cap: {key:?}");
        }
        assert!(self.leases.values().all(|row| row.amount >= Money::ZERO));
    }
}

/// The faults of one message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MessageFate {
    /// Number of times the sender is polled before and after the store acts.
    pub(crate) waits: [usize; 2],
    pub(crate) lost: bool,
    pub(crate) late: bool,
    pub(crate) twice: bool,
    pub(crate) answer_lost: bool,
}

/// Chooses the faults of every message of a node.
#[derive(Debug)]
pub(crate) enum LineFaults {
    Fine,
    /// Nothing arrives.
    Cut,
    /// Faults are random.
    Rough(SeededRandom),
    /// The message with that number has these faults.
    Nth {
        number: usize,
        count: usize,
        fate: MessageFate,
    },
}

impl LineFaults {
    fn fate(&mut self) -> MessageFate {
        match self {
            Self::Fine => MessageFate::default(),
            Self::Cut => MessageFate { lost: true, ..MessageFate::default() },
            Self::Rough(random) => MessageFate {
                waits: [random.below(3), random.below(3)],
                lost: random.percent(8),
                late: random.percent(30),
                twice: random.percent(5),
                answer_lost: random.percent(8),
            },
            Self::Nth { number, count, fate } => {
                *count += 1;
                if count == number { *fate } else { MessageFate::default() }
            }
        }
    }
}

/// A node's connection to the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreLine {
    pub(crate) store: Arc<Mutex<MemoryStore>>,
    pub(crate) faults: Arc<Mutex<LineFaults>>,
}

async fn wait(times: usize) {
    let mut left = times;
    poll_fn(|_| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

impl StoreLine {
    async fn say(&self, message: Message) -> Result<Answer, LeaseStoreError> {
        let away = || LeaseStoreError::Unreachable("lost".to_owned());
        let fate = self.faults.lock().fate();
        wait(fate.waits[0]).await;
        if fate.lost {
            // A node always waits for the answers to these two.
            let awaited = matches!(message, Message::Enter(_) | Message::Leave(_));
            if fate.late && !awaited {
                self.store.lock().late.push(message);
            }
            return Err(away());
        }
        let answer = self.store.lock().apply(&message);
        if fate.twice {
            drop(self.store.lock().apply(&message));
        }
        wait(fate.waits[1]).await;
        if fate.answer_lost {
            return Err(away());
        }
        answer
    }
}

fn odd<T>(answer: &Answer) -> Result<T, LeaseStoreError> {
    panic!("no answer to that: {answer:?}")
}

impl LeaseStore for StoreLine {
    async fn enter(&self, id: &str) -> Result<Node, LeaseStoreError> {
        match self.say(Message::Enter(id.to_owned())).await? {
            Answer::Node(node) => Ok(node),
            other => odd(&other),
        }
    }

    async fn leave(&self, node: &Node) -> Result<(), LeaseStoreError> {
        self.say(Message::Leave(node.clone())).await.map(drop)
    }

    async fn grant(&self, ask: &LeaseRequest) -> Result<LeaseGrant, LeaseStoreError> {
        match self.say(Message::Grant(ask.clone())).await? {
            Answer::LeaseGrant(granted) => Ok(granted),
            other => odd(&other),
        }
    }

    async fn heartbeat(&self, report: &HeartbeatReport) -> Result<HeartbeatReply, LeaseStoreError> {
        match self.say(Message::Heartbeat(report.clone())).await? {
            Answer::HeartbeatReply(tidings) => Ok(tidings),
            other => odd(&other),
        }
    }

    async fn take_back(&self, back: &LeaseReturn) -> Result<(), LeaseStoreError> {
        self.say(Message::TakeBack(*back)).await.map(drop)
    }

    async fn post(&self, settled: &[SettledCall]) -> Result<usize, LeaseStoreError> {
        match self.say(Message::Post(settled.to_vec())).await? {
            Answer::Count(count) => Ok(count),
            other => odd(&other),
        }
    }

    async fn key_status(
        &self,
        key_id: &str,
        node: &Node,
    ) -> Result<Option<KeyStatus>, LeaseStoreError> {
        let store = self.store.lock();
        let held =
            store.holds.values().filter(|(id, call)| *id != node.id && call.held.key_id == key_id);
        let held_elsewhere = held.map(|(_, call)| call.held.amount).sum();
        Ok(store.keys.get(key_id).map(|key| KeyStatus {
            cap: key.cap,
            spent: key.spent,
            held_elsewhere,
        }))
    }

    async fn close_gone(&self, now: Micros) -> Result<ClosedCounts, LeaseStoreError> {
        match self.say(Message::CloseGone(now)).await? {
            Answer::ClosedCounts(closed) => Ok(closed),
            other => odd(&other),
        }
    }
}
