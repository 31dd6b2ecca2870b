//! A few nodes, a bank, and the lines between them; what is checked after every step.

use canon::{Money, Usage};
use ledger::{
    Book, Disk, Entry, Held, MemoryDisk, Micros, Outcome, Progress, Purse, Refused, Teller,
    TestClock, Ticket, Token,
};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::vault::{Line, Vault, Weather};

/// What a step of a node may lead to.
pub(crate) enum Done {
    Hold { id: String, outcome: Result<Ticket, Refused> },
    Other,
}

type Task = Pin<Box<dyn Future<Output = Done>>>;

/// An admitted call.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) amount: Money,
    price_version: String,
    node: usize,
    /// What is beyond the hold, once it is settled.
    borne: Money,
}

/// A process.
pub(crate) struct Life {
    pub(crate) book: Arc<Book>,
    pub(crate) teller: Arc<Teller<Line>>,
    pub(crate) purses: Vec<Arc<Purse>>,
    pub(crate) running: Vec<(String, Ticket)>,
    pub(crate) tasks: Vec<Task>,
    settled: Vec<(String, Option<Token>, Money)>,
}

/// A machine.
pub(crate) struct Machine {
    name: String,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) memory: Arc<MemoryDisk>,
    pub(crate) weather: Arc<Mutex<Weather>>,
    pub(crate) life: Option<Life>,
    /// Its disk is gone: what only it knew is lost.
    pub(crate) lost: bool,
    pub(crate) paused: usize,
}

pub(crate) struct World {
    pub(crate) vault: Arc<Mutex<Vault>>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) admitted: BTreeMap<String, Admitted>,
    /// What each call was recorded as when it was first seen there: that never changes.
    recorded: BTreeMap<String, Entry>,
    pub(crate) caps_changed: bool,
    pub(crate) refused: usize,
    calls: usize,
}

/// Polls without anyone to wake.
fn poll(task: &mut Task) -> Poll<Done> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs to the end something that only waits to be polled again.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return out;
        }
    }
}

impl World {
    /// That many machines, all off, and keys with these caps.
    pub(crate) fn new(machines: usize, caps: &[Option<i64>]) -> Self {
        let machine = |number| Machine {
            name: format!("node{number}"),
            clock: Arc::new(TestClock::at(1_000_000_000)),
            memory: Arc::new(MemoryDisk::default()),
            weather: Arc::new(Mutex::new(Weather::Fine)),
            life: None,
            lost: false,
            paused: 0,
        };
        Self {
            vault: Vault::new(caps),
            machines: (0..machines).map(machine).collect(),
            admitted: BTreeMap::new(),
            recorded: BTreeMap::new(),
            caps_changed: false,
            refused: 0,
            calls: 0,
        }
    }

    /// Starts a process on a machine; it may fail to, if the bank or the disk do.
    pub(crate) fn start(&mut self, which: usize) -> bool {
        let disk: Arc<dyn Disk> = self.machines[which].memory.clone();
        self.start_on(which, disk)
    }

    pub(crate) fn start_on(&mut self, which: usize, disk: Arc<dyn Disk>) -> bool {
        let machine = &mut self.machines[which];
        let line = Line { vault: self.vault.clone(), weather: machine.weather.clone() };
        let Ok(opened) = Book::open(machine.clock.clone(), disk) else { return false };
        let book = opened.book.clone();
        let name = machine.name.clone();
        let opening = Teller::open(opened, line, machine.clock.clone(), &name);
        let Ok(teller) = run(opening) else { return false };
        let purses = self
            .vault
            .lock()
            .keys
            .iter()
            .map(|(id, key)| Purse::new(id, key.cap, key.spent))
            .collect();
        machine.life = Some(Life {
            book,
            teller: Arc::new(teller),
            purses,
            running: Vec::new(),
            tasks: Vec::new(),
            settled: Vec::new(),
        });
        true
    }

    /// The process ends without a word. What its disk has is all there is.
    pub(crate) fn kill(&mut self, which: usize) {
        let machine = &mut self.machines[which];
        if let Some(life) = machine.life.take() {
            let survivor = Arc::new(machine.memory.after_crash());
            // Dropped tickets would settle themselves; dead processes do not.
            std::mem::forget(life.running);
            drop(life.tasks);
            machine.name = life.teller.name();
            machine.memory = survivor;
        }
    }

    pub(crate) fn life(&mut self, which: usize) -> Option<&mut Life> {
        self.machines[which].life.as_mut()
    }

    /// A call comes in.
    pub(crate) fn call(&mut self, which: usize, key: usize, full: i64, least: i64) {
        self.calls += 1;
        let id = format!("r{}", self.calls);
        let Some(life) = self.machines[which].life.as_mut() else { return };
        let (teller, purse) = (life.teller.clone(), life.purses[key].clone());
        let held = Arc::new(held(&id, purse.key_id()));
        life.tasks.push(Box::pin(async move {
            let full = Money::nanos(full);
            let outcome = teller.hold(&purse, held, full, Money::nanos(least)).await;
            Done::Hold { id, outcome }
        }));
        let newest = life.tasks.len() - 1;
        self.poll(which, newest);
    }

    pub(crate) fn post(&mut self, which: usize) {
        self.other(which, |teller| async move { drop(teller.post().await) });
    }

    pub(crate) fn tend(&mut self, which: usize) {
        self.other(which, |teller| async move { drop(teller.tend().await) });
    }

    pub(crate) fn close_gone(&mut self, which: usize) {
        self.other(which, |teller| async move { drop(teller.close_gone().await) });
    }

    fn other<F: Future<Output = ()> + 'static>(
        &mut self,
        which: usize,
        work: impl FnOnce(Arc<Teller<Line>>) -> F,
    ) {
        let Some(life) = self.machines[which].life.as_mut() else { return };
        let work = work(life.teller.clone());
        life.tasks.push(Box::pin(async move {
            work.await;
            Done::Other
        }));
        let newest = life.tasks.len() - 1;
        self.poll(which, newest);
    }

    /// Lets a task of a machine go on.
    pub(crate) fn poll(&mut self, which: usize, task: usize) {
        let Some(life) = self.machines[which].life.as_mut() else { return };
        let Some(waiting) = life.tasks.get_mut(task) else { return };
        let Poll::Ready(done) = poll(waiting) else { return };
        drop(life.tasks.swap_remove(task));
        match done {
            Done::Other => {}
            Done::Hold { outcome: Err(_), .. } => self.refused += 1,
            Done::Hold { id, outcome: Ok(ticket) } => {
                if let Some(token) = ticket.lease() {
                    let vault = self.vault.lock();
                    let row = vault.leases.get(&token);
                    assert!(row.is_some_and(|row| !row.closed), "{id} uses a closed lease {token}");
                }
                let admitted = Admitted {
                    amount: ticket.amount(),
                    price_version: format!("p{id}"),
                    node: which,
                    borne: Money::ZERO,
                };
                self.admitted.insert(id.clone(), admitted);
                life.running.push((id, ticket));
            }
        }
    }

    /// Lets all tasks of a machine come to their end.
    pub(crate) fn finish(&mut self, which: usize) {
        for _ in 0..10_000 {
            let Some(count) = self.life(which).map(|life| life.tasks.len()) else { return };
            if count == 0 {
                return;
            }
            for task in (0..count).rev() {
                self.poll(which, task);
            }
        }
        panic!("a task never ends");
    }

    pub(crate) fn progress(&mut self, which: usize, call: usize, cost: i64) {
        let Some(life) = self.life(which) else { return };
        if let Some((_, ticket)) = life.running.get(call) {
            let (lane, usage) = ("l".to_owned(), Usage::default());
            ticket.progress(Progress { lane, usage, cost: Money::nanos(cost) });
        }
    }

    /// A call ends. Negative is no answer at all: the ticket is only dropped.
    pub(crate) fn settle(&mut self, which: usize, call: usize, cost: i64) {
        let Some(life) = self.machines[which].life.as_mut() else { return };
        if call >= life.running.len() {
            return;
        }
        let (id, ticket) = life.running.swap_remove(call);
        let charged = Money::nanos(cost.max(0)).min(ticket.amount());
        let key = ticket.key_id().to_owned();
        life.settled.push((id.clone(), ticket.lease(), charged));
        if let Some(admitted) = self.admitted.get_mut(&id) {
            admitted.borne = Money::nanos(cost.max(0)).saturating_sub(charged);
        }
        if cost < 0 {
            drop(ticket);
        } else {
            ticket.settle(entry(&id, &key, cost));
        }
    }

    /// Time passes for everyone; no two clocks run quite alike.
    pub(crate) fn pass(&mut self, micros: Micros) {
        self.vault.lock().now += micros;
        for (which, machine) in self.machines.iter().enumerate() {
            let drift = micros / 1_000 * (which as i64 % 3 - 1);
            machine.clock.pass(micros + drift);
        }
    }

    /// A node hears of changed caps.
    pub(crate) fn hear_of_caps(&mut self, which: usize) {
        let caps: Vec<Option<Money>> = self.vault.lock().keys.values().map(|key| key.cap).collect();
        if let Some(life) = self.life(which) {
            for (purse, cap) in life.purses.iter().zip(caps) {
                purse.set_cap(cap);
            }
        }
    }

    /// What holds after every step.
    pub(crate) fn check(&mut self) {
        let vault = self.vault.lock();
        vault.check();
        for machine in &self.machines {
            let Some(life) = &machine.life else { continue };
            for purse in &life.purses {
                let Some((token, [free, held, _], _)) = purse.lease() else { continue };
                let Some(row) = vault.leases.get(&token) else { continue };
                let unposted = life.settled.iter().filter(|(id, lease, _)| {
                    *lease == Some(token) && !vault.entries.contains_key(id)
                });
                let unposted: Money = unposted.map(|(_, _, cost)| *cost).sum();
                let total = free.saturating_add(held).saturating_add(unposted);
                // What nobody but this node knows of is set aside should it die.
                let untold = life.running.iter().filter(|(id, ticket)| {
                    ticket.lease() == Some(token) && !vault.holds.contains_key(id)
                });
                let untold: Money = untold.map(|(_, ticket)| ticket.amount()).sum();
                let ended = life.settled.iter().filter(|(id, lease, _)| {
                    *lease == Some(token)
                        && !vault.entries.contains_key(id)
                        && !vault.holds.contains_key(id)
                });
                let ended: Money = ended.map(|(_, _, cost)| *cost).sum();
                let unknown = untold.saturating_add(ended);
                assert!(
                    row.closed || unknown <= row.exposed,
                    "{unknown} may be lost, {} are said to",
                    row.exposed
                );
                assert!(row.closed || total <= row.amount, "{total} of a lease of {}", row.amount);
            }
        }
        for (id, entry) in &vault.entries {
            match self.recorded.get(id) {
                Some(before) => assert_eq!(before, entry, "{id} was changed"),
                None => {
                    let admitted = self.admitted.get(id);
                    let admitted = admitted.unwrap_or_else(|| panic!("{id} was never admitted"));
                    assert!(entry.cost <= admitted.amount, "{id} pays more than was set aside");
                    assert_eq!(entry.price_version, admitted.price_version, "{id}");
                    self.recorded.insert(id.clone(), entry.clone());
                }
            }
        }
    }

    /// Everything works again, every call ends, everyone goes home: the books are closed.
    pub(crate) fn wind_up(&mut self) {
        for which in 0..self.machines.len() {
            self.machines[which].paused = 0;
            *self.machines[which].weather.lock() = Weather::Fine;
            if self.machines[which].life.is_none() && !self.machines[which].lost {
                assert!(self.start(which), "nothing keeps it from starting");
            }
            self.finish(which);
            while self.life(which).is_some_and(|life| !life.running.is_empty()) {
                self.settle(which, 0, 3);
            }
        }
        let late = std::mem::take(&mut self.vault.lock().late);
        for message in late {
            drop(self.vault.lock().apply(&message));
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
            self.pass(30_000_000);
        }
        for which in 0..self.machines.len() {
            let Some(life) = self.life(which) else { continue };
            assert_eq!((life.book.running(), life.book.waiting()), (0, 0));
            let teller = life.teller.clone();
            run(teller.leave()).unwrap();
            run(teller.close_gone()).unwrap();
        }
        self.check();
        let vault = self.vault.lock();
        let lost = |node: usize| self.machines[node].lost;
        for (id, admitted) in &self.admitted {
            match vault.entries.get(id) {
                None => assert!(lost(admitted.node), "call {id} is on no book"),
                Some(entry) if entry.outcome == Outcome::Recovered => {}
                Some(entry) if self.caps_changed => {
                    assert!(entry.borne >= admitted.borne, "{id}");
                }
                Some(entry) => assert_eq!(entry.borne, admitted.borne, "{id} was cut for nothing"),
            }
        }
        if !self.machines.iter().any(|machine| machine.lost) {
            assert_eq!(vault.leases.len(), 0, "{:?}", vault.leases);
            assert_eq!(vault.holds.len(), 0, "{:?}", vault.holds);
        }
    }
}

pub(crate) fn held(id: &str, key_id: &str) -> Held {
    Held {
        request_id: id.to_owned(),
        key_id: key_id.to_owned(),
        account_id: "a".to_owned(),
        at: 0,
        amount: Money::ZERO,
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: true,
        price_version: format!("p{id}"),
        lease: None,
    }
}

pub(crate) fn entry(id: &str, key_id: &str, cost: i64) -> Entry {
    Entry {
        request_id: id.to_owned(),
        key_id: key_id.to_owned(),
        account_id: "a".to_owned(),
        lane: "l".to_owned(),
        attempts: 1,
        stream: true,
        status: 200,
        outcome: Outcome::Done,
        cost: Money::nanos(cost),
        price_version: format!("p{id}"),
        ..Entry::default()
    }
}
