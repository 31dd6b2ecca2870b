//! How a cap is shared out: nearly all of it can be spent, wherever the calls come in.

use canon::Money;
use ledger::{Ask, Node, Refused, slice};
use std::sync::Arc;

use crate::dice::Dice;
use crate::world::{World, entry, held, run};

fn ask(full: i64, wish: i64) -> Ask {
    let full = Money::nanos(full);
    let node = Node { id: "n".to_owned(), epoch: 1 };
    let (hold, wish) = (full, Money::nanos(wish));
    let (least, exposed) = (Money::nanos(1), Money::ZERO);
    Ask { node, key_id: "k".to_owned(), least, full, hold, wish, exposed, seq: 1, ahead: false }
}

#[test]
fn slices_shrink_with_what_is_left() {
    let cut = |left, nodes, wanted| {
        slice(&ask(10, 400), Money::nanos(left), nodes, wanted).map(Money::as_nanos)
    };
    assert_eq!(cut(1_000, 1, false), Some(1_000), "one alone gets everything");
    assert_eq!(cut(1_000, 2, false), Some(250), "two leave the other its share, and a reserve");
    assert_eq!(cut(10_000, 2, false), Some(400), "no more than is wished for");
    assert_eq!(cut(99, 2, false), Some(10), "the last money is given call by call");
    assert_eq!(cut(1_000, 1, true), Some(10), "so is money that others go short of");
    assert_eq!(cut(7, 2, false), Some(7));
    assert_eq!(cut(0, 1, false), None);
    let ahead = Ask { ahead: true, ..ask(10, 400) };
    let cut = |left, wanted| slice(&ahead, Money::nanos(left), 2, wanted).map(Money::as_nanos);
    assert_eq!([cut(1_000, false), cut(1_000, true), cut(99, false)], [Some(250), None, None]);
    assert_eq!(slice(&ask(10, 0), Money::nanos(1_000), 3, false), Some(Money::nanos(10)));
}

/// Calls come in at random nodes until one is refused: how many thousandths of the cap were used?
fn used(seed: u64, machines: usize, calls: i64, each: i64) -> i64 {
    let mut dice = Dice::new(seed);
    let mut world = World::new(machines, &[Some(calls * each)]);
    for which in 0..machines {
        assert!(world.start(which));
        world.tend(which);
    }
    let price = Money::nanos(each);
    let mut admitted = 0;
    'calls: for number in 0.. {
        // Some nodes get more calls than others.
        let which = dice.below(machines).min(dice.below(machines));
        // A call waits for others to hand money back, but not for ever.
        for tries in 0.. {
            let life = world.life(which).unwrap();
            let (purse, id) = (&life.purses[0], format!("r{number}-{tries}"));
            let held = Arc::new(held(&id, "k0"));
            match run(life.teller.hold(purse, held, price, price)) {
                Ok(ticket) => {
                    ticket.settle(entry(&id, "k0", each));
                    admitted += 1;
                    assert!(admitted <= calls, "{admitted} of {calls}");
                    break;
                }
                Err(Refused::Elsewhere { .. }) if tries < 25 => {}
                Err(Refused::Cap { .. } | Refused::Elsewhere { .. }) => break 'calls,
                Err(other) => panic!("{other:?}"),
            }
            world.pass(100_000);
            if tries % 10 == 9 {
                for which in 0..machines {
                    world.tend(which);
                    world.post(which);
                }
            }
        }
        world.pass(dice.between(0, 20_000));
        if number % 50 == 49 {
            for which in 0..machines {
                world.tend(which);
                world.post(which);
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
