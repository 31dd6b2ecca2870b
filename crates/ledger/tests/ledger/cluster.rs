//! A simulated cluster: nodes, a lease store, the connections between them, and the invariants.

use canon::{Micros, Money, Usage};
use ledger::{
    CallOutcome, CallProgress, Disk, HoldRecord, HoldRefusal, HoldTicket, KeyBalance, LeaseClient,
    LeaseToken, LeaseUse, LedgerEntry, MemoryDisk, OpenCalls, SettlementKnowledge, TestClock,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use crate::memory_store::MemoryStore;
use crate::store_line::{LineFaults, StoreLine};

/// The result of a task of a node.
pub(crate) enum TaskResult {
    Hold { id: String, outcome: Result<HoldTicket, HoldRefusal> },
    Other,
}

type Task = Pin<Box<dyn Future<Output = TaskResult>>>;

/// An admitted call.
#[derive(Clone, Debug)]
pub(crate) struct AdmittedCall {
    pub(crate) amount: Money,
    price_version: String,
    node: usize,
    /// Cost beyond the hold, once the call is settled.
    absorbed: Money,
    /// The amount it was settled at.
    charged: Option<Money>,
}

/// A running process with its calls.
pub(crate) struct Process {
    pub(crate) book: Arc<OpenCalls>,
    pub(crate) client: Arc<LeaseClient<StoreLine>>,
    pub(crate) balances: Vec<Arc<KeyBalance>>,
    /// Number of the last change of terms that the process has applied, and of the last one before a
    /// heartbeat of it was answered.
    applied: usize,
    heard: Arc<AtomicUsize>,
    pub(crate) running: Vec<(String, HoldTicket)>,
    pub(crate) tasks: Vec<Task>,
    settled: Vec<(String, Option<LeaseToken>, Money)>,
}

/// A machine that can run a process.
pub(crate) struct Machine {
    name: String,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) memory: Arc<MemoryDisk>,
    pub(crate) faults: Arc<Mutex<LineFaults>>,
    pub(crate) process: Option<Process>,
    /// True if its disk is lost, with everything that was only in its journal.
    pub(crate) lost: bool,
    /// True if its disk failed at some time, so that its journal may lack settlements.
    pub(crate) has_failed: bool,
    /// Number of damaged records. Each may cost a settlement.
    pub(crate) damages: usize,
    pub(crate) paused: usize,
}

pub(crate) struct Cluster {
    pub(crate) store: Arc<Mutex<MemoryStore>>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) admitted: BTreeMap<String, AdmittedCall>,
    /// Entries as they were last seen in the store. Only better knowledge changes them.
    recorded: BTreeMap<String, LedgerEntry>,
    pub(crate) caps_changed: bool,
    /// Number of the price list. Calls are settled by that of their admission.
    pub(crate) prices: i64,
    pub(crate) refused: usize,
    calls: usize,
}

/// Creates a machine without a process.
fn machine(number: usize, now: Micros) -> Machine {
    Machine {
        name: format!("node{number}"),
        clock: Arc::new(TestClock::at(now)),
        memory: Arc::new(MemoryDisk::default()),
        faults: Arc::new(Mutex::new(LineFaults::Fine)),
        process: None,
        lost: false,
        has_failed: false,
        damages: 0,
        paused: 0,
    }
}

/// Polls a task without a waker.
fn poll(task: &mut Task) -> Poll<TaskResult> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs a future to its end by polling it again and again.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return out;
        }
    }
}

impl Cluster {
    /// Creates machines without processes, and keys with these caps.
    pub(crate) fn new(machines: usize, caps: &[Option<i64>]) -> Self {
        Self {
            store: MemoryStore::new(caps),
            machines: (0..machines).map(|one| machine(one, Micros::from_secs(1_000))).collect(),
            admitted: BTreeMap::new(),
            recorded: BTreeMap::new(),
            caps_changed: false,
            prices: 1,
            refused: 0,
            calls: 0,
        }
    }

    /// Starts a process on a machine. Returns false if the store or the disk failed.
    pub(crate) fn start(&mut self, which: usize) -> bool {
        let disk: Arc<dyn Disk> = self.machines[which].memory.clone();
        self.start_with_disk(which, disk)
    }

    pub(crate) fn start_with_disk(&mut self, which: usize, disk: Arc<dyn Disk>) -> bool {
        let machine = &mut self.machines[which];
        let line = StoreLine { store: self.store.clone(), faults: machine.faults.clone() };
        let Ok(opened) = OpenCalls::open(machine.clock.clone(), disk) else { return false };
        let book = opened.book.clone();
        let name = machine.name.clone();
        let opening = LeaseClient::open(opened, line, machine.clock.clone(), &name);
        let Ok(client) = run(opening) else { return false };
        let store = self.store.lock();
        let keys = store.keys.iter();
        let balances = keys.map(|(id, key)| KeyBalance::new(id, store.terms(id), key.spent));
        let (balances, applied) = (balances.collect(), store.changes);
        drop(store);
        machine.process = Some(Process {
            book,
            client: Arc::new(client),
            balances,
            applied,
            heard: Arc::default(),
            running: Vec::new(),
            tasks: Vec::new(),
            settled: Vec::new(),
        });
        true
    }

    /// Kills a process. Only the bytes on its disk survive.
    pub(crate) fn kill(&mut self, which: usize) {
        let machine = &mut self.machines[which];
        if let Some(process) = machine.process.take() {
            // It is saved several times a second. A rollback of less than that is not noticed.
            process.client.save_mark().unwrap();
            let survivor = Arc::new(machine.memory.after_crash());
            // A dropped ticket settles its call, which a killed process cannot do.
            std::mem::forget(process.running);
            drop(process.tasks);
            machine.name = process.client.node_name();
            machine.memory = survivor;
        }
    }

    pub(crate) fn process(&mut self, which: usize) -> Option<&mut Process> {
        self.machines[which].process.as_mut()
    }

    /// Starts a call.
    pub(crate) fn call(&mut self, which: usize, key: usize, full: i64, least: i64) {
        self.calls += 1;
        let id = format!("r{}", self.calls);
        let Some(process) = self.machines[which].process.as_mut() else { return };
        let Some(balance) = process.balances.get(key).cloned() else { return };
        let client = process.client.clone();
        let price = Money::from_nanos(self.prices);
        let held = Arc::new(HoldRecord {
            lane: "l".into(),
            start_cost: price,
            cost_per_second: price,
            ..held(&id, balance.key_id())
        });
        process.tasks.push(Box::pin(async move {
            let full = Money::from_nanos(full);
            let outcome = client.hold(&balance, held, full, Money::from_nanos(least)).await;
            TaskResult::Hold { id, outcome }
        }));
        let newest = process.tasks.len() - 1;
        self.poll(which, newest);
    }

    pub(crate) fn post(&mut self, which: usize) {
        self.other(which, |client| async move { drop(client.post().await) });
    }

    pub(crate) fn tend(&mut self, which: usize) {
        if let Some(process) = self.process(which) {
            // The writer counts a failure.
            let _ = process.book.maintain_journal();
        }
        let changes = self.store.lock().changes;
        let Some(heard) = self.process(which).map(|process| process.heard.clone()) else { return };
        self.other(which, |client| async move {
            if client.heartbeat().await.is_ok() {
                heard.fetch_max(changes, Ordering::Relaxed);
            }
            // Done several times a second.
            client.save_mark().unwrap();
        });
    }

    pub(crate) fn close_gone(&mut self, which: usize) {
        self.other(which, |client| async move { drop(client.close_dead_nodes().await) });
    }

    fn other<F: Future<Output = ()> + 'static>(
        &mut self,
        which: usize,
        work: impl FnOnce(Arc<LeaseClient<StoreLine>>) -> F,
    ) {
        let Some(process) = self.machines[which].process.as_mut() else { return };
        let work = work(process.client.clone());
        process.tasks.push(Box::pin(async move {
            work.await;
            TaskResult::Other
        }));
        let newest = process.tasks.len() - 1;
        self.poll(which, newest);
    }

    /// Polls a task of a machine.
    pub(crate) fn poll(&mut self, which: usize, task: usize) {
        let Some(process) = self.machines[which].process.as_mut() else { return };
        let Some(waiting) = process.tasks.get_mut(task) else { return };
        let Poll::Ready(done) = poll(waiting) else { return };
        drop(process.tasks.swap_remove(task));
        match done {
            TaskResult::Other => {}
            TaskResult::Hold { outcome: Err(_), .. } => self.refused += 1,
            TaskResult::Hold { id, outcome: Ok(ticket) } => {
                let store = self.store.lock();
                let is_current = store.is_known_to(&process.client.node_name());
                if let Some(token) = ticket.lease().filter(|_| is_current && !store.is_stepped) {
                    let row = store.leases.get(&token);
                    assert!(row.is_some_and(|row| !row.closed), "{id} uses a closed lease {token}");
                }
                let key = &store.keys[ticket.key_id()];
                let has_heard = key.changed <= process.heard.load(Ordering::Relaxed);
                let knows = key.changed <= process.applied || ticket.lease().is_some() && has_heard;
                let above = store.is_above_cap(ticket.key_id()) && ticket.amount() > Money::ZERO;
                let is_wrong = is_current && knows && above;
                assert!(!is_wrong, "{id} was admitted above a lowered cap: {key:?}");
                drop(store);
                let admitted = AdmittedCall {
                    amount: ticket.amount(),
                    price_version: format!("p{id}"),
                    node: which,
                    absorbed: Money::ZERO,
                    charged: None,
                };
                self.admitted.insert(id.clone(), admitted);
                process.running.push((id, ticket));
            }
        }
    }

    /// Runs all tasks of a machine to their end.
    pub(crate) fn finish(&mut self, which: usize) {
        for _ in 0..10_000 {
            let Some(count) = self.process(which).map(|process| process.tasks.len()) else {
                return;
            };
            if count == 0 {
                return;
            }
            for task in (0..count).rev() {
                self.poll(which, task);
            }
        }
        panic!("a task does not end");
    }

    pub(crate) fn progress(&mut self, which: usize, call: usize, cost: i64) {
        let Some(process) = self.process(which) else { return };
        if let Some((_, ticket)) = process.running.get(call) {
            let (lane, usage) = ("l".to_owned(), Usage::default());
            ticket.progress(CallProgress { lane, usage, cost: Money::from_nanos(cost) });
        }
    }

    /// Settles a call. A negative cost drops the ticket instead.
    pub(crate) fn settle(&mut self, which: usize, call: usize, cost: i64) {
        let Some(process) = self.machines[which].process.as_mut() else { return };
        if call >= process.running.len() {
            return;
        }
        let (id, ticket) = process.running.swap_remove(call);
        let charged = Money::from_nanos(cost.max(0)).min(ticket.amount());
        let key = ticket.key_id().to_owned();
        process.settled.push((id.clone(), ticket.lease(), charged));
        if let Some(admitted) = self.admitted.get_mut(&id) {
            admitted.absorbed = Money::from_nanos(cost.max(0)).saturating_sub(charged);
            admitted.charged = Some(charged);
        }
        if cost < 0 {
            drop(ticket);
        } else {
            ticket.settle(entry(&id, &key, cost));
        }
    }

    /// Advances all clocks, each with a small drift.
    pub(crate) fn pass(&mut self, time: Micros) {
        self.store.lock().now += time;
        for (which, machine) in self.machines.iter().enumerate() {
            let drift = time / 1_000 * (which as i64 % 3 - 1);
            machine.clock.pass(time + drift);
        }
    }

    /// Applies changed caps on a node.
    pub(crate) fn apply_caps(&mut self, which: usize) {
        let store = self.store.lock();
        let Some(process) = self.machines[which].process.as_mut() else { return };
        for balance in &process.balances {
            balance.set_terms(store.terms(balance.key_id()));
        }
        // A new key.
        for (id, key) in store.keys.iter().skip(process.balances.len()) {
            process.balances.push(KeyBalance::new(id, store.terms(id), key.spent));
        }
        process.applied = store.changes;
    }

    /// Sets the store back to an earlier state.
    pub(crate) fn restore(&mut self, earlier: &MemoryStore) {
        let mut store = self.store.lock();
        store.restore(earlier);
        self.recorded = store.entries.clone();
        self.caps_changed = true;
    }

    /// Adds a machine without a process.
    pub(crate) fn add_machine(&mut self) -> usize {
        let now = self.store.lock().now;
        self.machines.push(machine(self.machines.len(), now));
        self.machines.len() - 1
    }

    /// Ends a process as a signal does: its calls end, are posted, and it leaves the cluster.
    pub(crate) fn leave(&mut self, which: usize) {
        self.finish(which);
        while self.process(which).is_some_and(|process| !process.running.is_empty()) {
            self.settle(which, 0, 3);
        }
        self.post(which);
        self.finish(which);
        if let Some(process) = self.process(which) {
            // Without an answer of the store it ends all the same.
            drop(run(process.client.leave()));
            process.client.save_mark().unwrap();
        }
        self.kill(which);
    }

    /// Checks the invariants that hold after every step.
    pub(crate) fn check(&mut self) {
        let store = self.store.lock();
        store.check();
        for machine in &self.machines {
            let Some(process) = &machine.process else { continue };
            let is_current = store.is_known_to(&process.client.node_name());
            for balance in process.balances.iter().filter(|_| is_current) {
                let Some(LeaseUse { token, free, held, .. }) = balance.lease() else { continue };
                let Some(row) = store.leases.get(&token) else { continue };
                let unposted = process.settled.iter().filter(|(id, lease, _)| {
                    *lease == Some(token) && !store.entries.contains_key(id)
                });
                let unposted: Money = unposted.map(|(_, _, cost)| *cost).sum();
                let total = free.saturating_add(held).saturating_add(unposted);
                // Spending that only this node knows is covered by the announced amount.
                let untold = process.running.iter().filter(|(id, ticket)| {
                    ticket.lease() == Some(token) && !store.holds.contains_key(id)
                });
                let untold: Money = untold.map(|(_, ticket)| ticket.amount()).sum();
                let ended = process.settled.iter().filter(|(id, lease, _)| {
                    *lease == Some(token)
                        && !store.entries.contains_key(id)
                        && !store.holds.contains_key(id)
                });
                let ended: Money = ended.map(|(_, _, cost)| *cost).sum();
                let unknown = untold.saturating_add(ended);
                assert!(
                    row.closed || unknown <= row.unreported,
                    "{unknown} are unreported, {} are announced",
                    row.unreported
                );
                assert!(row.closed || total <= row.amount, "{total} of a lease of {}", row.amount);
            }
        }
        for (id, entry) in &store.entries {
            match self.recorded.get(id) {
                Some(before) if before.knowledge >= entry.knowledge => {
                    assert_eq!(before, entry, "{id} was changed");
                }
                Some(_) | None => {
                    let admitted = self.admitted.get(id);
                    let admitted = admitted.unwrap_or_else(|| panic!("{id} was never admitted"));
                    assert!(entry.cost <= admitted.amount, "{id} pays more than was set aside");
                    assert_eq!(entry.price_version, admitted.price_version, "{id}");
                    self.recorded.insert(id.clone(), entry.clone());
                }
            }
        }
    }

    /// Ends all faults, calls and processes, and checks the final state of the store.
    pub(crate) fn shut_down(&mut self) {
        for which in 0..self.machines.len() {
            self.machines[which].paused = 0;
            *self.machines[which].faults.lock() = LineFaults::Fine;
            if self.machines[which].process.is_none() && !self.machines[which].lost {
                assert!(self.start(which), "a start without faults failed");
            }
            self.finish(which);
            while self.process(which).is_some_and(|process| !process.running.is_empty()) {
                self.settle(which, 0, 3);
            }
        }
        let late = std::mem::take(&mut self.store.lock().late);
        for message in late {
            drop(self.store.lock().apply(&message));
        }
        self.check();
        for _ in 0..4 {
            for which in 0..self.machines.len() {
                self.post(which);
                self.tend(which);
                self.close_gone(which);
                self.finish(which);
            }
            self.check();
            self.pass(Micros::from_secs(30));
        }
        for which in 0..self.machines.len() {
            let Some(process) = self.process(which) else { continue };
            assert_eq!((process.book.running_count(), process.book.unposted_count()), (0, 0));
            let client = process.client.clone();
            run(client.leave()).unwrap();
            run(client.close_dead_nodes()).unwrap();
        }
        self.check();
        let store = self.store.lock();
        let mut unknown: BTreeMap<usize, usize> = BTreeMap::new();
        for (id, admitted) in &self.admitted {
            let machine = &self.machines[admitted.node];
            let told = admitted.charged.unwrap_or_default().saturating_add(admitted.absorbed);
            let is_settled = admitted.charged.is_some();
            match store.entries.get(id) {
                None if machine.lost => {}
                Some(entry) if entry.outcome == CallOutcome::Recovered => {
                    let bill = entry.cost.saturating_add(entry.absorbed);
                    assert!(bill <= admitted.amount, "{id} is beyond its hold: {entry:?}");
                    // A node that settled the call and kept its disk corrects every guess.
                    if is_settled && !machine.lost && !machine.has_failed {
                        *unknown.entry(admitted.node).or_default() += 1;
                    }
                }
                None => *unknown.entry(admitted.node).or_default() += 1,
                Some(entry) => {
                    // The best knowledge is on the books: what the provider billed is charged or
                    // absorbed.
                    let total = entry.cost.saturating_add(entry.absorbed);
                    let found = (total, entry.knowledge);
                    assert_eq!(found, (told, SettlementKnowledge::Settled), "{id}");
                    if self.caps_changed || store.corrected.contains(id) {
                        assert!(entry.absorbed >= admitted.absorbed, "{id}");
                    } else {
                        assert_eq!(entry.absorbed, admitted.absorbed, "{id} was cut without need");
                    }
                }
            }
        }
        for (which, calls) in unknown {
            let damages = self.machines[which].damages;
            assert!(calls <= damages, "{calls} settlements of node {which} are lost: {damages}");
        }
        let is_restored = store.restores > 0;
        if !is_restored && !self.machines.iter().any(|machine| machine.lost) {
            assert_eq!(store.leases.len(), 0, "{:?}", store.leases);
            assert_eq!(store.holds.len(), 0, "{:?}", store.holds);
        }
    }
}

pub(crate) fn held(id: &str, key_id: &str) -> HoldRecord {
    HoldRecord {
        request_id: id.into(),
        key_id: key_id.into(),
        account_id: "a".into(),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: "chat".into(),
        model: "m".into(),
        stream: true,
        price_version: format!("p{id}").into(),
        lease: None,
        ..HoldRecord::default()
    }
}

pub(crate) fn entry(id: &str, key_id: &str, cost: i64) -> LedgerEntry {
    LedgerEntry {
        request_id: id.into(),
        key_id: key_id.into(),
        account_id: "a".into(),
        lane: "l".into(),
        attempts: 1,
        stream: true,
        status: 200,
        outcome: CallOutcome::Done,
        cost: Money::from_nanos(cost),
        price_version: format!("p{id}").into(),
        ..LedgerEntry::default()
    }
}
