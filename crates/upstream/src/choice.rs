//! In which order lanes are tried: by preference, among equals by weight, load and speed.

use crate::health::Standing;

/// How much busier a lane may be than the next one before a conversation leaves it, though its
/// prompt is likely cached there.
const BUSIER: f64 = 4.0;
/// How much slower a lane may be than its equal before that one is preferred, as a factor and in
/// microseconds: what is less is chance.
const SLOWER: i64 = 5;
const NOTICED: i64 = 40_000;
/// One call in so many goes to the slow lane all the same, to see whether it still is.
const LOOKS: u64 = 8;

/// A lane with one credential that could be tried.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its place in the order of preference; those of the same place are equals.
    pub run: u32,
    /// Its share among equals.
    pub weight: f64,
    /// A number of its own, the same in every process.
    pub print: u64,
    /// How it stands.
    pub standing: Standing,
    /// Calls that run on it.
    pub pending: u32,
    /// Microseconds it usually takes, if known.
    pub latency: Option<i64>,
}

/// The places of the contenders in the order in which to try them: those expected to answer by
/// preference, then the resting by the end of their rest, then those that asked to be left alone.
/// None is ever left out.
///
/// Among equals a number draws by weight: the same number draws the same lane as long as that is
/// in the race, so a conversation's print keeps it where its prompt is cached (`sticky`), and a
/// random one spreads.
pub fn order(contenders: &[Contender], draw: u64, sticky: bool) -> Vec<usize> {
    let mut ranked: Vec<(u8, f64, f64, usize)> =
        contenders.iter().enumerate().map(|(place, one)| rank(place, one, draw)).collect();
    ranked.sort_by(|a, b| {
        (a.0.cmp(&b.0)).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3))
    });
    let mut order: Vec<usize> = ranked.into_iter().map(|(_, _, _, place)| place).collect();
    if let [first, second, ..] = order.as_mut_slice()
        && let (Some(one), Some(other)) = (contenders.get(*first), contenders.get(*second))
        && yields(one, other, draw, sticky)
    {
        std::mem::swap(first, second);
    }
    order
}

#[expect(clippy::cast_precision_loss, reason = "an order needs no exact figures")]
fn rank(place: usize, one: &Contender, draw: u64) -> (u8, f64, f64, usize) {
    match one.standing {
        // Rendezvous hashing with weights: the smallest -ln(u)/w wins with probability w/Σw.
        Standing::Good | Standing::Trial => {
            let unit = ((mix(draw ^ one.print) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            (0, f64::from(one.run), -unit.ln() / one.weight.max(f64::MIN_POSITIVE), place)
        }
        Standing::Resting(left) => (1, left as f64, f64::from(one.run), place),
        Standing::Pressed(left) => (2, left as f64, f64::from(one.run), place),
    }
}

/// Whether the first of two lets the second go before: it is much slower, or has more to do.
#[expect(clippy::cast_precision_loss, reason = "a comparison needs no exact figures")]
fn yields(one: &Contender, other: &Contender, draw: u64, sticky: bool) -> bool {
    if one.run != other.run || one.standing != Standing::Good || other.standing != Standing::Good {
        return false;
    }
    let load = |one: &Contender, base: f64| (f64::from(one.pending) + base) / one.weight;
    if let (Some(mine), Some(theirs)) = (one.latency, other.latency)
        && (is_slower(mine, theirs) || is_slower(theirs, mine))
    {
        // What is waiting takes as long as the lane is slow.
        let work = |one: &Contender, latency: i64| load(one, 1.0) * latency as f64;
        let looks = mine > theirs && mix(!draw).is_multiple_of(LOOKS);
        return !looks && work(one, mine) > work(other, theirs);
    }
    if sticky {
        load(one, 1.0) > BUSIER * load(other, 1.0)
    } else {
        load(one, 0.0) > load(other, 0.0)
    }
}

const fn is_slower(mine: i64, theirs: i64) -> bool {
    mine > theirs.saturating_mul(SLOWER) && mine > theirs.saturating_add(NOTICED)
}

/// Spreads a number over all bits.
const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn good(run: u32, weight: f64, print: u64) -> Contender {
        let standing = Standing::Good;
        Contender { run, weight, print, standing, pending: 0, latency: None }
    }

    fn share(lanes: &[Contender], sticky: bool) -> Vec<f64> {
        let mut counts = vec![0.0; lanes.len()];
        for seed in 0..20_000_u64 {
            counts[order(lanes, mix(seed), sticky)[0]] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn weights_are_shares_and_runs_are_an_order() {
        let lanes = [good(0, 3.0, 7), good(0, 1.0, 8), good(1, 100.0, 9)];
        for sticky in [false, true] {
            let share = share(&lanes, sticky);
            assert!((share[0] - 0.75).abs() < 0.02, "{share:?}");
            assert!((share[1] - 0.25).abs() < 0.02 && share[2] == 0.0, "{share:?}");
        }
        for draw in 0..100 {
            assert_eq!(order(&lanes, draw, false)[2], 2, "the next run comes last");
        }
    }

    #[test]
    fn a_conversation_stays_unless_its_lane_leaves_or_drowns() {
        let lanes = [good(0, 1.0, 1), good(0, 1.0, 2), good(0, 1.0, 3)];
        for print in 0..200 {
            let home = order(&lanes, print, true)[0];
            let mut without = lanes;
            let other = (home + 1) % 3;
            without[other].standing = Standing::Resting(5);
            assert_eq!(order(&without, print, true)[0], home, "others' trouble moves nobody");
            without[home].pending = 3;
            assert_eq!(order(&without, print, true)[0], home, "a little load neither");
            without[home].pending = 50;
            assert_ne!(order(&without, print, true)[0], home);
        }
    }

    #[test]
    fn the_less_busy_and_the_much_faster_are_preferred() {
        let mut lanes = [good(0, 1.0, 1), good(0, 1.0, 2)];
        lanes[0].pending = 1;
        assert_eq!(share(&lanes, false)[0], 0.0);
        lanes[0].pending = 0;
        (lanes[0].latency, lanes[1].latency) = (Some(1_000_000), Some(100_000));
        for sticky in [false, true] {
            let slow = share(&lanes, sticky)[0];
            assert!((0.04..0.09).contains(&slow), "a look now and then: {slow}");
        }
        lanes[1].pending = 5;
        assert!(share(&lanes, false)[0] < 0.09, "six fast ones are done before a slow one");
        lanes[1].pending = 50;
        assert!(share(&lanes, false)[0] > 0.99, "fifty are not");
        lanes[1].pending = 0;
        (lanes[0].latency, lanes[1].latency) = (Some(10_000), Some(1_000));
        assert!(share(&lanes, false)[0] > 0.4, "nobody notices milliseconds");
        lanes[1].latency = None;
        assert!(share(&lanes, false)[0] > 0.4, "what is not known is not held against anyone");
    }

    fn standing() -> impl Strategy<Value = Standing> {
        prop_oneof![
            Just(Standing::Good),
            Just(Standing::Trial),
            (0..9i64).prop_map(Standing::Pressed),
            (0..9i64).prop_map(Standing::Resting),
        ]
    }

    proptest! {
        /// Every lane is in the order exactly once, whatever its state: the last one too.
        #[test]
        fn none_is_left_out(
            standings in prop::collection::vec((standing(), 0..3u32, 0..9u32), 1..8),
            draw: u64,
            sticky: bool,
        ) {
            let lanes: Vec<Contender> = standings
                .iter()
                .zip(0..)
                .map(|((standing, run, pending), print)| Contender {
                    standing: *standing, pending: *pending, ..good(*run, 1.0, print)
                })
                .collect();
            let found = order(&lanes, draw, sticky);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..lanes.len()).collect::<Vec<_>>());
            let class = |place: &usize| match lanes[*place].standing {
                Standing::Good | Standing::Trial => 0,
                Standing::Resting(_) => 1,
                Standing::Pressed(_) => 2,
            };
            prop_assert!(found.iter().map(class).is_sorted());
        }
    }
}
