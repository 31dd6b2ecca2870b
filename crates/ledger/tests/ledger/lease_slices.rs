//! Division of a cap into leases: nearly all of it can be spent, on any nodes.

use canon::{Micros, Money};
use ledger::{HoldRefusal, LeaseRequest, Node, UnleasedCost, lease_slice};
use std::sync::Arc;

use crate::cluster::{Cluster, entry, held, run};
use crate::seeded_random::SeededRandom;

fn ask(full: i64, wish: i64) -> LeaseRequest {
    let full = Money::from_nanos(full);
    let node = Node { id: "n".to_owned(), epoch: 1 };
    let (hold, wish) = (full, Money::from_nanos(wish));
    let (least, unreported) = (Money::from_nanos(1), Money::ZERO);
    LeaseRequest {
        node,
        key_id: "k".to_owned(),
        least,
        full,
        hold,
        wish,
        unleased: UnleasedCost::default(),
        unreported,
        seq: 1,
        ahead: false,
    }
}

#[test]
fn slices_shrink_with_the_money_left() {
    let cut = |left, nodes, wanted| {
        lease_slice(&ask(10, 400), Money::from_nanos(left), nodes, wanted).map(Money::as_nanos)
    };
    assert_eq!(cut(1_000, 1, false), Some(1_000), "a single node gets everything");
    assert_eq!(cut(1_000, 2, false), Some(250), "with two nodes, a share and a reserve stay");
    assert_eq!(cut(10_000, 2, false), Some(400), "no more than the wish");
    assert_eq!(cut(99, 2, false), Some(10), "the last money is granted call by call");
    assert_eq!(cut(1_000, 1, true), Some(10), "so is money that other nodes lack");
    assert_eq!(cut(7, 2, false), Some(7));
    assert_eq!(cut(0, 1, false), None);
    let ahead = LeaseRequest { ahead: true, ..ask(10, 400) };
    let cut =
        |left, wanted| lease_slice(&ahead, Money::from_nanos(left), 2, wanted).map(Money::as_nanos);
    assert_eq!([cut(1_000, false), cut(1_000, true), cut(99, false)], [Some(250), None, None]);
    assert_eq!(
        lease_slice(&ask(10, 0), Money::from_nanos(1_000), 3, false),
        Some(Money::from_nanos(10))
    );
}

/// Sends calls to random nodes until one is refused. Returns the used part of the cap in
/// thousandths.
fn used(seed: u64, machines: usize, calls: i64, each: i64) -> i64 {
    let mut random = SeededRandom::new(seed);
    let mut cluster = Cluster::new(machines, &[Some(calls * each)]);
    for which in 0..machines {
        assert!(cluster.start(which));
        cluster.tend(which);
    }
    let price = Money::from_nanos(each);
    let mut admitted = 0;
    'calls: for number in 0.. {
        // Some nodes get more calls than others.
        let which = random.below(machines).min(random.below(machines));
        // A call waits for other nodes to return money, up to a limit.
        for tries in 0.. {
            let process = cluster.process(which).unwrap();
            let (balance, id) = (&process.balances[0], format!("r{number}-{tries}"));
            let held = Arc::new(held(&id, "k0"));
            match run(process.client.hold(balance, held, price, price)) {
                Ok(ticket) => {
                    ticket.settle(entry(&id, "k0", each));
                    admitted += 1;
                    assert!(admitted <= calls, "{admitted} of {calls}");
                    break;
                }
                Err(HoldRefusal::Held(_)) if tries < 25 => {}
                Err(HoldRefusal::Spent(_) | HoldRefusal::Held(_)) => break 'calls,
                Err(other) => panic!("{other:?}"),
            }
            cluster.pass(Micros::from_millis(100));
            if tries % 10 == 9 {
                for which in 0..machines {
                    cluster.tend(which);
                    cluster.post(which);
                }
            }
        }
        cluster.pass(Micros::new(random.between(0, 20_000)));
        if number % 50 == 49 {
            for which in 0..machines {
                cluster.tend(which);
                cluster.post(which);
            }
        }
    }
    admitted * 1_000 / calls
}

#[test]
fn at_least_95_percent_of_a_cap_is_spent_before_the_first_refusal() {
    for seed in 0..60 {
        for machines in 1..=4 {
            let calls = 20 + 37 * (seed as i64 % 7);
            let used = used(seed, machines, calls, 1_000 + seed as i64);
            assert!(used >= 950, "seed {seed}: {machines} nodes used {used} of 1000");
        }
    }
}
