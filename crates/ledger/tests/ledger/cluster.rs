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
use std::task::{Context, Poll, Waker};

use crate::memory_store::{LineFaults, MemoryStore, StoreLine};

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
    /// True if its disk was full at some time, so that its journal may lack settlements.
    pub(crate) was_full: bool,
    pub(crate) paused: usize,
}

pub(crate) struct Cluster {
    pub(crate) store: Arc<Mutex<MemoryStore>>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) admitted: BTreeMap<String, AdmittedCall>,
    /// Entries as they were last seen in the store. Only better knowledge changes them.
    recorded: BTreeMap<String, LedgerEntry>,
    pub(crate) caps_changed: bool,
    pub(crate) refused: usize,
    calls: usize,
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
        let machine = |number| Machine {
            name: format!("node{number}"),
            clock: Arc::new(TestClock::at(Micros::from_secs(1_000))),
            memory: Arc::new(MemoryDisk::default()),
            faults: Arc::new(Mutex::new(LineFaults::Fine)),
            process: None,
            lost: false,
            was_full: false,
            paused: 0,
        };
        Self {
            store: MemoryStore::new(caps),
            machines: (0..machines).map(machine).collect(),
            admitted: BTreeMap::new(),
            recorded: BTreeMap::new(),
            caps_changed: false,
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
        let balances = self
            .store
            .lock()
            .keys
            .iter()
            .map(|(id, key)| KeyBalance::new(id, key.cap, key.spent))
            .collect();
        machine.process = Some(Process {
            book,
            client: Arc::new(client),
            balances,
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
        let (client, balance) = (process.client.clone(), process.balances[key].clone());
        let held = Arc::new(held(&id, balance.key_id()));
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
        self.other(which, |client| async move { drop(client.heartbeat().await) });
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
                if let Some(token) = ticket.lease() {
                    let store = self.store.lock();
                    let row = store.leases.get(&token);
                    assert!(row.is_some_and(|row| !row.closed), "{id} uses a closed lease {token}");
                }
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
        let caps: Vec<Option<Money>> = self.store.lock().keys.values().map(|key| key.cap).collect();
        if let Some(process) = self.process(which) {
            for (balance, cap) in process.balances.iter().zip(caps) {
                balance.set_cap(cap);
            }
        }
    }

    /// Checks the invariants that hold after every step.
    pub(crate) fn check(&mut self) {
        let store = self.store.lock();
        store.check();
        for machine in &self.machines {
            let Some(process) = &machine.process else { continue };
            for balance in &process.balances {
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
        let lost = |node: usize| self.machines[node].lost;
        for (id, admitted) in &self.admitted {
            match store.entries.get(id) {
                None => assert!(lost(admitted.node), "call {id} is not recorded"),
                Some(entry) if entry.outcome == CallOutcome::Recovered => {
                    // A node that settled the call and kept its disk corrects every guess.
                    let machine = &self.machines[admitted.node];
                    let knows = admitted.charged.is_some() && !machine.lost && !machine.was_full;
                    assert!(!knows, "the settlement of {id} is lost: {entry:?}");
                }
                Some(entry) if self.caps_changed || store.corrected.contains(id) => {
                    let total = entry.cost.saturating_add(entry.absorbed);
                    let told =
                        admitted.charged.unwrap_or_default().saturating_add(admitted.absorbed);
                    assert_eq!(
                        (total, entry.knowledge),
                        (told, SettlementKnowledge::Settled),
                        "{id}"
                    );
                    assert!(entry.absorbed >= admitted.absorbed, "{id}");
                }
                Some(entry) => {
                    assert_eq!(entry.absorbed, admitted.absorbed, "{id} was cut without need")
                }
            }
        }
        if !self.machines.iter().any(|machine| machine.lost) {
            assert_eq!(store.leases.len(), 0, "{:?}", store.leases);
            assert_eq!(store.holds.len(), 0, "{:?}", store.holds);
        }
    }
}

pub(crate) fn held(id: &str, key_id: &str) -> HoldRecord {
    HoldRecord {
        request_id: id.to_owned(),
        key_id: key_id.to_owned(),
        account_id: "a".to_owned(),
        at: Micros::ZERO,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: true,
        price_version: format!("p{id}"),
        lease: None,
        ..HoldRecord::default()
    }
}

pub(crate) fn entry(id: &str, key_id: &str, cost: i64) -> LedgerEntry {
    LedgerEntry {
        request_id: id.to_owned(),
        key_id: key_id.to_owned(),
        account_id: "a".to_owned(),
        lane: "l".to_owned(),
        attempts: 1,
        stream: true,
        status: 200,
        outcome: CallOutcome::Done,
        cost: Money::from_nanos(cost),
        price_version: format!("p{id}"),
        ..LedgerEntry::default()
    }
}
