//! A bank in memory with the rules of the real one, and lines to it on which anything may happen:
//! a message is lost, its answer is lost, it comes twice, it comes late.

use canon::Money;
use ledger::{
    ALIVE, Ask, Bank, BankError, Closed, Entry, GRACE, GiveBack, Granted, KeyStanding, LEASE,
    LeaseNow, Micros, Node, OpenCall, Report, Settled, Tidings, Token, WANTED, slice,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use crate::dice::Dice;

#[derive(Clone, Debug)]
pub(crate) enum Message {
    Enter(String),
    Leave(Node),
    Grant(Ask),
    Tend(Report),
    TakeBack(GiveBack),
    Post(Vec<Settled>),
    CloseGone(Micros),
}

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Node(Node),
    Granted(Granted),
    Tidings(Tidings),
    Count(usize),
    Closed(Closed),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyRow {
    pub(crate) cap: Option<Money>,
    /// The highest the cap and what was below it may have been.
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
    pub(crate) exposed: Money,
    told: i64,
    pub(crate) closed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Vault {
    pub(crate) now: Micros,
    pub(crate) keys: BTreeMap<String, KeyRow>,
    pub(crate) leases: BTreeMap<Token, LeaseRow>,
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) holds: BTreeMap<String, (String, OpenCall)>,
    nodes: BTreeMap<String, (Micros, Micros)>,
    tokens: Token,
    /// Messages that are still under way though nobody waits for them.
    pub(crate) late: Vec<Message>,
    /// Whether a lease was ever closed by others than its node.
    pub(crate) closed_any: bool,
}

impl Vault {
    /// A bank with keys `k0`, `k1`, … of these caps.
    pub(crate) fn new(caps: &[Option<i64>]) -> Arc<Mutex<Self>> {
        let mut vault = Self { now: 1_000_000_000, ..Self::default() };
        for (number, cap) in caps.iter().enumerate() {
            let cap = cap.map(Money::nanos);
            let ceiling = cap.unwrap_or(Money::ZERO);
            vault.keys.insert(format!("k{number}"), KeyRow { cap, ceiling, ..KeyRow::default() });
        }
        Arc::new(Mutex::new(vault))
    }

    pub(crate) fn apply(&mut self, message: &Message) -> Result<Answer, BankError> {
        Ok(match message {
            Message::Enter(id) => {
                self.close_node(id);
                let before = self.nodes.get(id).map_or(0, |(epoch, _)| *epoch);
                let epoch = self.now.max(before + 1);
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
            Message::Grant(ask) => Answer::Granted(self.grant(ask)?),
            Message::Tend(report) => Answer::Tidings(self.tend(report)?),
            Message::TakeBack(back) => {
                self.take_back(*back);
                Answer::Done
            }
            Message::Post(settled) => Answer::Count(self.post(settled)),
            Message::CloseGone(now) => Answer::Closed(self.close_gone(*now)),
        })
    }

    fn is(&self, node: &Node) -> bool {
        self.nodes.get(&node.id).is_some_and(|(epoch, _)| *epoch == node.epoch)
    }

    fn alive(&self) -> u32 {
        self.nodes.values().filter(|(_, seen)| *seen > self.now - ALIVE).count() as u32
    }

    fn grant(&mut self, ask: &Ask) -> Result<Granted, BankError> {
        if !self.is(&ask.node) {
            return Err(BankError::Fenced);
        }
        let (now, nodes) = (self.now, self.alive());
        let key = self.keys.get_mut(&ask.key_id).unwrap();
        let Some(cap) = key.cap else { return Ok(Granted::Unlimited) };
        let left = cap.saturating_sub(key.spent).saturating_sub(key.leased);
        let mine = self
            .leases
            .iter_mut()
            .find(|(_, row)| row.key_id == ask.key_id && row.node_id == ask.node.id && !row.closed);
        let Some(amount) = slice(ask, left, nodes, key.wanted > now) else {
            let mine = mine.map_or(Money::ZERO, |(_, row)| row.amount);
            let elsewhere = key.leased.saturating_sub(mine);
            if elsewhere > Money::ZERO && !ask.ahead {
                key.wanted = now + WANTED;
            }
            return Ok(Granted::Short { left: left.max(Money::ZERO), elsewhere });
        };
        assert!(amount <= left.max(Money::ZERO), "{ask:?}: {amount} of {left}");
        key.leased = key.leased.saturating_add(amount);
        let (token, version) = match mine {
            Some((token, row)) => {
                row.amount = row.amount.saturating_add(amount);
                row.version += 1;
                row.expires = now + LEASE;
                if row.told < ask.seq {
                    (row.told, row.exposed) = (ask.seq, ask.exposed);
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
                    expires: now + LEASE,
                    exposed: ask.exposed,
                    told: ask.seq,
                    closed: false,
                };
                self.leases.insert(self.tokens, row);
                (self.tokens, 1)
            }
        };
        Ok(Granted::Lease { token, version, amount })
    }

    fn tend(&mut self, report: &Report) -> Result<Tidings, BankError> {
        if !self.is(&report.node) {
            return Err(BankError::Fenced);
        }
        let id = &report.node.id;
        self.nodes.insert(id.clone(), (report.node.epoch, self.now));
        for call in &report.calls {
            self.holds.insert(call.held.request_id.clone(), (id.clone(), call.clone()));
        }
        let mut leases = Vec::new();
        for (token, row) in self.leases.iter_mut().filter(|(_, row)| row.node_id == *id) {
            if !row.closed {
                row.expires = self.now + LEASE;
                let exposed = report.exposed.iter().find(|exposed| exposed.token == *token);
                if let Some(exposed) = exposed.filter(|_| row.told < report.seq) {
                    (row.told, row.exposed) = (report.seq, exposed.amount);
                }
            }
            let key = &self.keys[&row.key_id];
            let above = key.cap.is_none_or(|cap| key.spent.saturating_add(key.leased) > cap);
            leases.push(LeaseNow {
                token: *token,
                version: row.version,
                key_id: row.key_id.clone(),
                amount: row.amount,
                wanted: key.wanted > self.now || above,
                closed: row.closed,
            });
        }
        Ok(Tidings { nodes: self.alive(), leases })
    }

    fn take_back(&mut self, back: GiveBack) {
        let GiveBack { token, version, keep } = back;
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

    fn post(&mut self, settled: &[Settled]) -> usize {
        let mut new = 0;
        for Settled { entry, lease, .. } in settled {
            self.holds.remove(&entry.request_id);
            if self.entries.contains_key(&entry.request_id) {
                continue;
            }
            let mut entry = (**entry).clone();
            let key = self.keys.get_mut(&entry.key_id).unwrap();
            let row = lease.and_then(|token| self.leases.get_mut(&token));
            match row.filter(|row| row.amount >= entry.cost) {
                Some(row) => {
                    row.amount = row.amount.saturating_sub(entry.cost);
                    key.leased = key.leased.saturating_sub(entry.cost);
                }
                None => {
                    if let Some(cap) = key.cap {
                        let room = cap.saturating_sub(key.spent).saturating_sub(key.leased);
                        let pays = entry.cost.min(room.max(Money::ZERO));
                        let rest = entry.cost.saturating_sub(pays);
                        entry.borne = entry.borne.saturating_add(rest);
                        entry.cost = pays;
                    } else {
                        key.ceiling = key.ceiling.saturating_add(entry.cost);
                    }
                }
            }
            key.spent = key.spent.saturating_add(entry.cost);
            self.entries.insert(entry.request_id.clone(), entry);
            new += 1;
        }
        new
    }

    fn settle_open(&mut self, calls: Vec<OpenCall>, now: Micros) -> usize {
        let settled: Vec<Settled> = calls
            .into_iter()
            .map(|call| {
                let lease = call.held.lease;
                Settled { entry: Arc::new(call.settle(now)), lease, shown: true }
            })
            .collect();
        self.post(&settled)
    }

    fn close(&mut self, token: Token) {
        if let Some(row) = self.leases.remove(&token) {
            let key = self.keys.get_mut(&row.key_id).unwrap();
            key.leased = key.leased.saturating_sub(row.amount);
        }
    }

    fn close_node(&mut self, id: &str) {
        let of_node = |(node, call): &(String, OpenCall)| (node == id).then(|| call.clone());
        let calls = self.holds.values().filter_map(of_node).collect();
        self.settle_open(calls, self.now);
        let tokens: Vec<Token> =
            self.leases.iter().filter(|(_, row)| row.node_id == id).map(|(t, _)| *t).collect();
        for token in tokens {
            self.close(token);
        }
    }

    fn close_gone(&mut self, now: Micros) -> Closed {
        let mut closed = Closed::default();
        let limit = self.now - GRACE;
        let expired = self.leases.iter().filter(|(_, row)| row.expires < limit && !row.closed);
        let tokens: Vec<Token> = expired.map(|(token, _)| *token).collect();
        for token in tokens {
            let of_lease = |(_, call): &(String, OpenCall)| {
                (call.held.lease == Some(token)).then(|| call.clone())
            };
            let calls = self.holds.values().filter_map(of_lease).collect();
            closed.calls += self.settle_open(calls, now);
            closed.leases += 1;
            self.closed_any = true;
            let row = self.leases.get_mut(&token).unwrap();
            let back = row.amount.saturating_sub(row.exposed).max(Money::ZERO);
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
                self.nodes.get(node).is_none_or(|(_, seen)| *seen < self.now - LEASE - GRACE)
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

    /// What holds at every instant.
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

/// What becomes of a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    /// How often the sender is made to wait, before and after the bank does it.
    pub(crate) waits: [usize; 2],
    pub(crate) lost: bool,
    pub(crate) late: bool,
    pub(crate) twice: bool,
    pub(crate) answer_lost: bool,
}

/// Decides on the fate of every message of a node.
#[derive(Debug)]
pub(crate) enum Weather {
    Fine,
    /// Nothing arrives.
    Cut,
    /// Anything may happen.
    Rough(Dice),
    /// The message with that number has that fate; the count goes on.
    Nth {
        number: usize,
        count: usize,
        fate: Fate,
    },
}

impl Weather {
    fn fate(&mut self) -> Fate {
        match self {
            Self::Fine => Fate::default(),
            Self::Cut => Fate { lost: true, ..Fate::default() },
            Self::Rough(dice) => Fate {
                waits: [dice.below(3), dice.below(3)],
                lost: dice.percent(8),
                late: dice.percent(30),
                twice: dice.percent(5),
                answer_lost: dice.percent(8),
            },
            Self::Nth { number, count, fate } => {
                *count += 1;
                if count == number { *fate } else { Fate::default() }
            }
        }
    }
}

/// A node's line to the bank.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) vault: Arc<Mutex<Vault>>,
    pub(crate) weather: Arc<Mutex<Weather>>,
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

impl Line {
    async fn say(&self, message: Message) -> Result<Answer, BankError> {
        let away = || BankError::Away("lost".to_owned());
        let fate = self.weather.lock().fate();
        wait(fate.waits[0]).await;
        if fate.lost {
            // Nobody sends these two without waiting for them.
            let awaited = matches!(message, Message::Enter(_) | Message::Leave(_));
            if fate.late && !awaited {
                self.vault.lock().late.push(message);
            }
            return Err(away());
        }
        let answer = self.vault.lock().apply(&message);
        if fate.twice {
            drop(self.vault.lock().apply(&message));
        }
        wait(fate.waits[1]).await;
        if fate.answer_lost {
            return Err(away());
        }
        answer
    }
}

fn odd<T>(answer: &Answer) -> Result<T, BankError> {
    panic!("no answer to that: {answer:?}")
}

impl Bank for Line {
    async fn enter(&self, id: &str) -> Result<Node, BankError> {
        match self.say(Message::Enter(id.to_owned())).await? {
            Answer::Node(node) => Ok(node),
            other => odd(&other),
        }
    }

    async fn leave(&self, node: &Node) -> Result<(), BankError> {
        self.say(Message::Leave(node.clone())).await.map(drop)
    }

    async fn grant(&self, ask: &Ask) -> Result<Granted, BankError> {
        match self.say(Message::Grant(ask.clone())).await? {
            Answer::Granted(granted) => Ok(granted),
            other => odd(&other),
        }
    }

    async fn tend(&self, report: &Report) -> Result<Tidings, BankError> {
        match self.say(Message::Tend(report.clone())).await? {
            Answer::Tidings(tidings) => Ok(tidings),
            other => odd(&other),
        }
    }

    async fn take_back(&self, back: &GiveBack) -> Result<(), BankError> {
        self.say(Message::TakeBack(*back)).await.map(drop)
    }

    async fn post(&self, settled: &[Settled]) -> Result<usize, BankError> {
        match self.say(Message::Post(settled.to_vec())).await? {
            Answer::Count(count) => Ok(count),
            other => odd(&other),
        }
    }

    async fn standing(&self, key_id: &str, node: &Node) -> Result<Option<KeyStanding>, BankError> {
        let vault = self.vault.lock();
        let held =
            vault.holds.values().filter(|(id, call)| *id != node.id && call.held.key_id == key_id);
        let held_elsewhere = held.map(|(_, call)| call.held.amount).sum();
        Ok(vault.keys.get(key_id).map(|key| KeyStanding {
            cap: key.cap,
            spent: key.spent,
            held_elsewhere,
        }))
    }

    async fn close_gone(&self, now: Micros) -> Result<Closed, BankError> {
        match self.say(Message::CloseGone(now)).await? {
            Answer::Closed(closed) => Ok(closed),
            other => odd(&other),
        }
    }
}
