//! Simulation of administrators at work while nodes run, crash and lose messages: terms of keys and of
//! their account are lowered and raised, keys are rotated and revoked, prices change, nodes join and
//! leave, the database is restored from a backup, its clock is stepped, and records of journals are
//! damaged. `ADMIN_SEED=123 cargo test -p ledger one_administrated_seed` reproduces a run.

use canon::{Micros, Money};
use ledger::{BudgetPeriod, BudgetTerms, Disk as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cluster::Cluster;
use crate::memory_store::{MAX_CLOCK_ERROR, MemoryStore};
use crate::seeded_random::SeededRandom;
use crate::store_line::LineFaults;

const SEEDS: u64 = 400;
const STEPS: usize = 220;
const MAX_KEYS: usize = 8;
const MAX_MACHINES: usize = 5;

#[test]
fn the_books_are_right_whatever_administrators_do() {
    let first: u64 = std::env::var("FIRST_SEED").map_or(0, |text| text.parse().unwrap());
    let seeds: u64 = std::env::var("ADMIN_SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let mut admitted = 0;
    for seed in first..first + seeds {
        match catch_unwind(AssertUnwindSafe(|| AdminRun::new(seed).finish())) {
            Ok(calls) => admitted += calls,
            Err(why) => {
                let said = why.downcast_ref::<String>().cloned().unwrap_or_default();
                panic!("seed {seed}: {said}");
            }
        }
    }
    assert!(admitted > 4 * seeds as usize, "{admitted}");
}

#[test]
fn one_administrated_seed() {
    AdminRun::new(std::env::var("ADMIN_SEED").map_or(1, |text| text.parse().unwrap())).finish();
}

/// One run.
struct AdminRun {
    random: SeededRandom,
    cluster: Cluster,
    /// The backup.
    backup: Option<MemoryStore>,
    /// Keys that were revoked.
    revoked: Vec<usize>,
    /// True if there are budgets. They hold as far as clocks agree, so nothing steps a clock then.
    has_budgets: bool,
}

impl AdminRun {
    fn new(seed: u64) -> Self {
        let mut random = SeededRandom::new(seed ^ 0xad31);
        let caps = [Some(random.between(500, 9_000)), Some(random.between(0, 3_000)), None];
        let mut cluster = Cluster::new(1 + random.below(3), &caps);
        cluster.caps_changed = true;
        let has_budgets = random.percent(60);
        let evening = Micros::from_days(20_000) - Micros::from_secs(random.between(20, 2_000));
        let earlier = std::mem::replace(&mut cluster.store.lock().now, evening);
        for which in 0..cluster.machines.len() {
            cluster.machines[which].clock.jump(evening - earlier);
            if random.percent(40) {
                let rough = LineFaults::Rough(SeededRandom::new(seed * 16 + which as u64));
                *cluster.machines[which].faults.lock() = rough;
            }
            cluster.start(which);
        }
        Self { random, cluster, backup: None, revoked: Vec::new(), has_budgets }
    }

    fn finish(mut self) -> usize {
        for _ in 0..STEPS {
            self.cluster.store.lock().note_day();
            self.step();
            self.cluster.check();
            if self.has_budgets {
                self.cluster.store.lock().check_budgets();
            }
        }
        self.cluster.shut_down();
        if self.has_budgets {
            self.cluster.store.lock().check_budgets();
        }
        self.cluster.admitted.len()
    }

    fn step(&mut self) {
        let which = self.random.below(self.cluster.machines.len());
        let process = self.cluster.machines[which].process.as_ref();
        let (tasks, running) =
            process.map_or((0, 0), |process| (process.tasks.len(), process.running.len()));
        let (cluster, random) = (&mut self.cluster, &mut self.random);
        match random.below(100) {
            0..26 => {
                let full = random.between(1, 400);
                let key = random.below(cluster.store.lock().keys.len());
                if !self.revoked.contains(&key) {
                    cluster.call(which, key, full, random.between(0, full.min(40)));
                }
            }
            26..38 => cluster.poll(which, random.below(tasks)),
            38..52 => cluster.settle(which, random.below(running), random.between(0, 500)),
            52..56 => cluster.progress(which, random.below(running), random.between(0, 450)),
            56..64 => cluster.post(which),
            64..75 => cluster.tend(which),
            75..77 => cluster.close_gone(which),
            77..82 => cluster.pass(Micros::new(random.between(0, 2_000_000))),
            82 => cluster.pass(Micros::new(random.between(10_000_000, 90_000_000))),
            83 => cluster.kill(which),
            84..86 => {
                if cluster.machines[which].process.is_none() {
                    cluster.start(which);
                }
            }
            86 => {
                let faults = if random.percent(50) { LineFaults::Fine } else { LineFaults::Cut };
                *cluster.machines[which].faults.lock() = faults;
            }
            87..90 => cluster.apply_caps(which),
            _ => self.administrate(which),
        }
    }

    /// Does what an administrator or an operator does.
    fn administrate(&mut self, which: usize) {
        let (cluster, random) = (&mut self.cluster, &mut self.random);
        let key = format!("k{}", random.below(cluster.store.lock().keys.len()));
        match random.below(14) {
            0 | 1 => {
                let cap = random.percent(85).then(|| Money::from_nanos(random.between(0, 6_000)));
                cluster.store.lock().set_terms(&key, |key| key.cap = cap);
            }
            2 | 3 => {
                let cap = random.percent(70).then(|| Money::from_nanos(random.between(0, 9_000)));
                cluster.store.lock().set_account(|account| account.cap = cap);
            }
            4 | 5 if self.has_budgets => {
                let budget = budget(random, 3_000);
                cluster.store.lock().set_terms(&key, |key| key.budget = budget);
            }
            6 if self.has_budgets => {
                let budget = budget(random, 5_000);
                cluster.store.lock().set_account(|account| account.budget = budget);
            }
            7 => self.rotate(which),
            8 => cluster.prices += 1,
            9 => {
                if cluster.machines.len() < MAX_MACHINES {
                    let new = cluster.add_machine();
                    cluster.start(new);
                }
            }
            10 => cluster.leave(which),
            11 => match self.backup.take().filter(|_| random.percent(40)) {
                Some(backup) => cluster.restore(&backup),
                None => self.backup = Some(cluster.store.lock().clone()),
            },
            12 => {
                let longest = if self.has_budgets { MAX_CLOCK_ERROR.get() / 8 } else { 40_000_000 };
                let step = Micros::new(random.between(-longest, longest));
                let mut store = cluster.store.lock();
                store.now += step;
                store.is_stepped = true;
            }
            _ => self.damage(which),
        }
    }

    /// Gives the caller another key and revokes the one before. Its running calls go on.
    fn rotate(&mut self, which: usize) {
        let mut store = self.cluster.store.lock();
        let number = store.keys.len();
        if number >= MAX_KEYS {
            return;
        }
        let before = self.random.below(number);
        let cap = store.keys[&format!("k{before}")].cap;
        store.keys.insert(format!("k{number}"), Default::default());
        store.set_cap(&format!("k{number}"), cap);
        drop(store);
        self.revoked.push(before);
        self.cluster.apply_caps(which);
    }

    /// Flips a bit in the journal of a machine whose process died.
    fn damage(&mut self, which: usize) {
        self.cluster.kill(which);
        let machine = &mut self.cluster.machines[which];
        let segments = machine.memory.segments().unwrap();
        if let Some(segment) = segments.get(self.random.below(segments.len())) {
            let bits = machine.memory.read(*segment).unwrap().len() * 8;
            if bits > 0 {
                machine.memory.flip_bit(*segment, self.random.below(bits));
                machine.damages += 1;
            }
        }
    }
}

fn budget(random: &mut SeededRandom, most: i64) -> Option<BudgetTerms> {
    let limit = Money::from_nanos(random.between(0, most));
    random.percent(80).then_some(BudgetTerms { limit, period: BudgetPeriod::Day })
}
