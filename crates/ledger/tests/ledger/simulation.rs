//! Nodes that crash, pause and lose their disks, on lines that lose, double and delay, with clocks
//! that jump: thousands of runs, each from its seed. A failing seed is printed and reproduces:
//! `SEED=123 cargo test -p ledger one_seed`.

use canon::Money;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::dice::Dice;
use crate::vault::Weather;
use crate::world::World;

const SEEDS: u64 = 3_000;
const STEPS: usize = 160;

#[test]
fn whatever_happens_the_cap_holds_and_no_call_is_lost_or_doubled() {
    let first: u64 = std::env::var("FIRST_SEED").map_or(0, |text| text.parse().unwrap());
    let seeds: u64 = std::env::var("SEEDS").map_or(SEEDS, |text| text.parse().unwrap());
    let (mut admitted, mut refused) = (0, 0);
    for seed in first..first + seeds {
        match catch_unwind(AssertUnwindSafe(|| live(seed))) {
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
    // A simulation in which nothing happens proves nothing.
    assert!(admitted > seeds as usize && refused > seeds as usize / 4, "{admitted} {refused}");
}

#[test]
fn one_seed() {
    live(std::env::var("SEED").map_or(1, |text| text.parse().unwrap()));
}

/// One run; how many calls were admitted and refused.
fn live(seed: u64) -> (usize, usize) {
    let mut dice = Dice::new(seed);
    let machines = 2 + dice.below(3);
    let caps = [Some(dice.between(0, 3_000)), Some(dice.between(500, 50_000)), None];
    let mut world = World::new(machines, &caps);
    for which in 0..machines {
        let rough = Weather::Rough(Dice::new(seed * 16 + which as u64));
        if dice.percent(70) {
            *world.machines[which].weather.lock() = rough;
        }
        world.start(which);
    }
    for _ in 0..STEPS {
        step(&mut world, &mut dice, seed);
        world.check();
    }
    world.wind_up();
    (world.admitted.len(), world.refused)
}

fn step(world: &mut World, dice: &mut Dice, seed: u64) {
    let which = dice.below(world.machines.len());
    let machine = &mut world.machines[which];
    if machine.paused > 0 {
        machine.paused -= 1;
        return world.pass(dice.between(0, 5_000_000));
    }
    let (tasks, running) =
        machine.life.as_ref().map_or((0, 0), |life| (life.tasks.len(), life.running.len()));
    match dice.below(100) {
        0..26 => {
            let full = dice.between(0, 400);
            world.call(which, dice.below(3), full, dice.between(0, full.min(40)));
        }
        26..40 => world.poll(which, dice.below(tasks)),
        40..55 => world.settle(which, dice.below(running), dice.between(-20, 500)),
        55..60 => world.progress(which, dice.below(running), dice.between(0, 450)),
        60..68 => world.post(which),
        68..80 => world.tend(which),
        80..83 => world.close_gone(which),
        83..90 => world.pass(dice.between(0, 2_000_000)),
        90 => world.pass(dice.between(10_000_000, 90_000_000)),
        91 => world.machines[which].clock.jump(dice.between(-7_200_000_000, 7_200_000_000)),
        92 => world.machines[which].paused = 1 + dice.below(12),
        93 => {
            let weather = match dice.below(3) {
                0 => Weather::Fine,
                1 => Weather::Cut,
                _ => Weather::Rough(Dice::new(seed ^ 0xabcd)),
            };
            *world.machines[which].weather.lock() = weather;
        }
        94 => {
            // The caller leaves, or time is up: nobody waits for the answer any more.
            if let Some(life) = world.life(which).filter(|life| !life.tasks.is_empty()) {
                drop(life.tasks.swap_remove(dice.below(tasks)));
            }
        }
        95 | 96 => {
            if world.machines[which].life.is_some() {
                world.kill(which);
            }
        }
        97 => {
            if world.machines[which].life.is_none() && !world.machines[which].lost {
                world.start(which);
            }
        }
        98 => {
            let mut vault = world.vault.lock();
            if !vault.late.is_empty() {
                let next = dice.below(vault.late.len());
                let message = vault.late.swap_remove(next);
                drop(vault.apply(&message));
            }
        }
        _ => rare(world, dice, which),
    }
    if world.machines[which].life.is_none() && !world.machines[which].lost && dice.percent(30) {
        world.start(which);
    }
}

/// What seldom happens.
fn rare(world: &mut World, dice: &mut Dice, which: usize) {
    match dice.below(3) {
        0 => {
            let key = format!("k{}", dice.below(3));
            let cap = dice.percent(90).then(|| Money::nanos(dice.between(0, 60_000)));
            world.vault.lock().set_cap(&key, cap);
            world.caps_changed = true;
        }
        1 => world.hear_of_caps(which),
        _ => {
            let others = world.machines.iter().filter(|machine| !machine.lost).count();
            if others > 1 && dice.percent(50) {
                world.kill(which);
                world.machines[which].lost = true;
            }
        }
    }
}
