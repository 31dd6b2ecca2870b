//! Simulation of nodes that crash, pause and lose their disks, with messages that are lost,
//! duplicated and delayed, and clocks that jump. Each of thousands of runs has its seed. A failing
//! seed is printed and reproduces: `SEED=123 cargo test -p ledger one_seed`.

use canon::{Micros, Money};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cluster::Cluster;
use crate::seeded_random::SeededRandom;
use crate::store_line::LineFaults;

const SEEDS: u64 = 3_000;
const STEPS: usize = 160;

#[test]
fn the_cap_holds_and_no_call_is_lost_or_doubled_under_faults() {
    let first: u64 = std::env::var("FIRST_SEED").map_or(0, |text| text.parse().unwrap());
    let seeds: u64 = std::env::var("SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let (mut admitted, mut refused) = (0, 0);
    for seed in first..first + seeds {
        match catch_unwind(AssertUnwindSafe(|| simulate(seed))) {
            Ok(counts) => {
                admitted += counts.0;
                refused += counts.1;
            }
            Err(why) => {
                let said = why.downcast_ref::<String>().cloned().unwrap_or_default();
                panic!("seed {seed}: {said}");
            }
        }
    }
    // The runs must exercise both admission and refusal.
    assert!(admitted > seeds as usize && refused > seeds as usize / 4, "{admitted} {refused}");
}

#[test]
fn one_seed() {
    simulate(std::env::var("SEED").map_or(1, |text| text.parse().unwrap()));
}

/// Makes one run and returns the numbers of admitted and refused calls.
fn simulate(seed: u64) -> (usize, usize) {
    let mut random = SeededRandom::new(seed);
    let machines = 2 + random.below(3);
    let caps = [Some(random.between(0, 3_000)), Some(random.between(500, 50_000)), None];
    let mut cluster = Cluster::new(machines, &caps);
    for which in 0..machines {
        let rough = LineFaults::Rough(SeededRandom::new(seed * 16 + which as u64));
        if random.percent(70) {
            *cluster.machines[which].faults.lock() = rough;
        }
        cluster.start(which);
    }
    for _ in 0..STEPS {
        step(&mut cluster, &mut random, seed);
        cluster.check();
    }
    cluster.shut_down();
    (cluster.admitted.len(), cluster.refused)
}

fn step(cluster: &mut Cluster, random: &mut SeededRandom, seed: u64) {
    let which = random.below(cluster.machines.len());
    let machine = &mut cluster.machines[which];
    if machine.paused > 0 {
        machine.paused -= 1;
        return cluster.pass(Micros::new(random.between(0, 5_000_000)));
    }
    let (tasks, running) = machine
        .process
        .as_ref()
        .map_or((0, 0), |process| (process.tasks.len(), process.running.len()));
    match random.below(100) {
        0..26 => {
            let full = random.between(0, 400);
            cluster.call(which, random.below(3), full, random.between(0, full.min(40)));
        }
        26..40 => cluster.poll(which, random.below(tasks)),
        40..55 => cluster.settle(which, random.below(running), random.between(-20, 500)),
        55..60 => cluster.progress(which, random.below(running), random.between(0, 450)),
        60..68 => cluster.post(which),
        68..80 => cluster.tend(which),
        80..83 => cluster.close_gone(which),
        83..88 => cluster.pass(Micros::new(random.between(0, 2_000_000))),
        88 | 89 => change_cap(cluster, random, which),
        90 => cluster.pass(Micros::new(random.between(10_000_000, 90_000_000))),
        91 => cluster.machines[which]
            .clock
            .jump(Micros::new(random.between(-7_200_000_000, 7_200_000_000))),
        92 => cluster.machines[which].paused = 1 + random.below(12),
        93 => {
            let faults = match random.below(3) {
                0 => LineFaults::Fine,
                1 => LineFaults::Cut,
                _ => LineFaults::Rough(SeededRandom::new(seed ^ 0xabcd)),
            };
            *cluster.machines[which].faults.lock() = faults;
        }
        94 => {
            // The caller disconnects or the request times out, so the future is dropped.
            if let Some(process) =
                cluster.process(which).filter(|process| !process.tasks.is_empty())
            {
                drop(process.tasks.swap_remove(random.below(tasks)));
            }
        }
        95 | 96 => {
            if cluster.machines[which].process.is_some() {
                cluster.kill(which);
            }
        }
        97 => {
            if cluster.machines[which].process.is_none() && !cluster.machines[which].lost {
                cluster.start(which);
            }
        }
        98 => {
            let mut store = cluster.store.lock();
            if !store.late.is_empty() {
                let next = random.below(store.late.len());
                let message = store.late.swap_remove(next);
                drop(store.apply(&message));
            }
        }
        _ => rare(cluster, random, which),
    }
    if cluster.machines[which].process.is_none()
        && !cluster.machines[which].lost
        && random.percent(30)
    {
        cluster.start(which);
    }
}

/// Changes a cap, often to less than is spent and leased. Often a node hears of it at once.
fn change_cap(cluster: &mut Cluster, random: &mut SeededRandom, which: usize) {
    if random.percent(60) {
        let number = random.below(3);
        let mut store = cluster.store.lock();
        let used = store
            .keys
            .values()
            .nth(number)
            .map_or(0, |key| key.spent.saturating_add(key.leased).as_nanos());
        let highest = if random.percent(60) { used.max(1) } else { 60_000 };
        let cap = random.percent(90).then(|| Money::from_nanos(random.between(0, highest)));
        store.set_cap(&format!("k{number}"), cap);
        drop(store);
        cluster.caps_changed = true;
    }
    if random.percent(60) {
        cluster.apply_caps(which);
    }
}

/// Makes one of the rare steps.
fn rare(cluster: &mut Cluster, random: &mut SeededRandom, which: usize) {
    match random.below(4) {
        0 => cluster.apply_caps(which),
        1 => {
            cluster.machines[which].memory.set_free_space(Some(random.below(2_000)));
        }
        2 => cluster.machines[which].memory.set_free_space(None),
        _ => {
            let others = cluster.machines.iter().filter(|machine| !machine.lost).count();
            if others > 1 && random.percent(50) {
                cluster.kill(which);
                cluster.machines[which].lost = true;
            }
        }
    }
}
