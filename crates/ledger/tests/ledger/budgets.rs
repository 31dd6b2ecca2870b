//! Budgets per period hold over all nodes, for concurrent calls and at the change of the period.

use canon::{Micros, Money};
use ledger::{BudgetPeriod, BudgetTerms};
use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::seeded_random::SeededRandom;

const DAY: Micros = Micros::from_days(1);
const LIMIT: i64 = 1_000;

/// A cluster whose only key may spend 1,000 a day, a minute before midnight.
fn cluster(machines: usize, seed: u64) -> Cluster {
    let mut cluster = Cluster::new(machines, &[None]);
    let limit = Money::from_nanos(LIMIT);
    let terms = BudgetTerms { limit, period: BudgetPeriod::Day };
    cluster.store.lock().keys.get_mut("k0").unwrap().budget = Some(terms);
    let evening = DAY * (20_000 + seed as i64) - Micros::from_secs(60);
    let earlier = std::mem::replace(&mut cluster.store.lock().now, evening);
    for which in 0..machines {
        cluster.machines[which].clock.jump(evening - earlier);
        assert!(cluster.start(which));
    }
    cluster
}

/// Costs of the recorded calls by day of admission.
fn by_day(cluster: &Cluster) -> BTreeMap<i64, i64> {
    let mut days: BTreeMap<i64, i64> = BTreeMap::new();
    for entry in cluster.store.lock().entries.values() {
        *days.entry(ledger::day_of(entry.started)).or_default() += entry.cost.as_nanos();
    }
    days
}

/// Lets all nodes post and send heartbeats.
fn tend_all(cluster: &mut Cluster) {
    for which in 0..cluster.machines.len() {
        cluster.post(which);
        cluster.tend(which);
        cluster.finish(which);
    }
}

#[test]
fn nodes_spend_a_budget_to_its_end_and_not_beyond_day_after_day() {
    for seed in 0..40 {
        let machines = 1 + seed as usize % 3;
        let mut random = SeededRandom::new(seed);
        let mut cluster = cluster(machines, seed);
        for step in 0..900 {
            let which = random.below(machines);
            cluster.call(which, 0, 40, 40);
            cluster.finish(which);
            if random.percent(80) {
                let running = cluster.process(which).map_or(0, |process| process.running.len());
                cluster.settle(which, random.below(running), random.between(0, 40));
            }
            cluster.pass(Micros::from_millis(200));
            if step % 5 == 0 {
                tend_all(&mut cluster);
            }
            if step == 700 {
                // The rest of the day passes, and with it all leases are renewed.
                for _ in 0..4 {
                    cluster.pass(Micros::from_secs(20));
                    tend_all(&mut cluster);
                }
            }
        }
        cluster.shut_down();
        let days = by_day(&cluster);
        assert!(days.len() >= 2, "{days:?}");
        for (day, spent) in &days {
            assert!(*spent <= LIMIT, "seed {seed}: {spent} of {LIMIT} on day {day}");
        }
        assert!(days.values().any(|spent| *spent > LIMIT * 8 / 10), "seed {seed}: {days:?}");
        assert!(cluster.refused > 0);
    }
}

#[test]
fn a_call_is_charged_to_the_day_of_its_admission() {
    let mut cluster = cluster(1, 0);
    cluster.call(0, 0, 900, 900);
    cluster.call(0, 0, 200, 200);
    cluster.finish(0);
    assert_eq!((cluster.admitted.len(), cluster.refused), (1, 1), "100 are left of the day");
    // Two minutes later it is the next day, and the call still runs.
    for _ in 0..6 {
        cluster.pass(Micros::from_secs(20));
        tend_all(&mut cluster);
    }
    cluster.call(0, 0, 200, 200);
    cluster.finish(0);
    assert_eq!(cluster.refused, 2, "a running call counts against the new day too");
    cluster.settle(0, 0, 900);
    tend_all(&mut cluster);
    cluster.call(0, 0, 950, 950);
    cluster.finish(0);
    assert_eq!(cluster.refused, 2, "its cost is that of the day before");
    cluster.settle(0, 0, 950);
    cluster.shut_down();
    assert_eq!(by_day(&cluster).into_values().collect::<Vec<_>>(), [900, 950]);
}

#[test]
fn a_lowered_budget_recalls_leases() {
    let mut cluster = cluster(1, 0);
    for _ in 0..5 {
        cluster.call(0, 0, 100, 100);
    }
    cluster.finish(0);
    let lowered = BudgetTerms { limit: Money::from_nanos(200), period: BudgetPeriod::Day };
    cluster.store.lock().keys.get_mut("k0").unwrap().budget = Some(lowered);
    cluster.apply_caps(0);
    while cluster.process(0).is_some_and(|process| !process.running.is_empty()) {
        cluster.settle(0, 0, 50);
        cluster.call(0, 0, 10, 10);
        tend_all(&mut cluster);
    }
    assert_eq!(cluster.admitted.len(), 5, "250 are spent of 200");
}
