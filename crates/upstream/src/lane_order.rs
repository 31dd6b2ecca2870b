//! In which order lanes are tried: by preference, among equals by weight, load and speed.

use crate::health::LaneState;

/// How much busier a lane may be than the next one before a conversation leaves it, though its
/// prompt is likely cached there.
const MAX_STICKY_LOAD_RATIO: f64 = 4.0;
/// How much slower a lane may be than its equal before that one is preferred, as a factor and in
/// microseconds: what is less is chance.
const SLOW_FACTOR: i64 = 5;
const SLOW_MARGIN_MICROS: i64 = 40_000;
/// One call in so many goes to the slow lane all the same, to see whether it still is.
const SLOW_SAMPLE_INTERVAL: u64 = 8;

/// A lane with one credential that could be tried.
#[derive(Clone, Copy, Debug)]
pub struct LaneCandidate {
    /// Its place in the order of preference; those of the same place are equals.
    pub priority: u32,
    /// Its share among equals.
    pub weight: f64,
    /// A number of its own, the same in every process.
    pub hash_key: u64,
    /// How it stands.
    pub state: LaneState,
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
pub fn order_lanes(contenders: &[LaneCandidate], draw: u64, sticky: bool) -> Vec<usize> {
    let mut ranked: Vec<(u8, f64, f64, usize)> =
        contenders.iter().enumerate().map(|(place, one)| rank(place, one, draw)).collect();
    ranked.sort_by(|a, b| {
        (a.0.cmp(&b.0)).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3))
    });
    let mut order: Vec<usize> = ranked.into_iter().map(|(_, _, _, place)| place).collect();
    if let [first, second, ..] = order.as_mut_slice()
        && let (Some(one), Some(other)) = (contenders.get(*first), contenders.get(*second))
        && should_yield(one, other, draw, sticky)
    {
        std::mem::swap(first, second);
    }
    order
}

#[expect(clippy::cast_precision_loss, reason = "an order needs no exact figures")]
fn rank(place: usize, one: &LaneCandidate, draw: u64) -> (u8, f64, f64, usize) {
    match one.state {
        // Rendezvous hashing with weights: the smallest -ln(u)/w wins with probability w/Σw.
        LaneState::Good | LaneState::Probing => {
            let unit = ((mix(draw ^ one.hash_key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            (0, f64::from(one.priority), -unit.ln() / one.weight.max(f64::MIN_POSITIVE), place)
        }
        LaneState::CoolingDown(left) => (1, left as f64, f64::from(one.priority), place),
        LaneState::Busy(left) => (2, left as f64, f64::from(one.priority), place),
    }
}

/// Whether the first of two lets the second go before: it is much slower, or has more to do.
#[expect(clippy::cast_precision_loss, reason = "a comparison needs no exact figures")]
fn should_yield(one: &LaneCandidate, other: &LaneCandidate, draw: u64, sticky: bool) -> bool {
    if one.priority != other.priority
        || one.state != LaneState::Good
        || other.state != LaneState::Good
    {
        return false;
    }
    let load = |one: &LaneCandidate, base: f64| (f64::from(one.pending) + base) / one.weight;
    if let (Some(mine), Some(theirs)) = (one.latency, other.latency)
        && (is_slower(mine, theirs) || is_slower(theirs, mine))
    {
        // What is waiting takes as long as the lane is slow.
        let work = |one: &LaneCandidate, latency: i64| load(one, 1.0) * latency as f64;
        let looks = mine > theirs && mix(!draw).is_multiple_of(SLOW_SAMPLE_INTERVAL);
        return !looks && work(one, mine) > work(other, theirs);
    }
    if sticky {
        load(one, 1.0) > MAX_STICKY_LOAD_RATIO * load(other, 1.0)
    } else {
        load(one, 0.0) > load(other, 0.0)
    }
}

const fn is_slower(mine: i64, theirs: i64) -> bool {
    mine > theirs.saturating_mul(SLOW_FACTOR) && mine > theirs.saturating_add(SLOW_MARGIN_MICROS)
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

    fn good(run: u32, weight: f64, print: u64) -> LaneCandidate {
        let standing = LaneState::Good;
        LaneCandidate {
            priority: run,
            weight,
            hash_key: print,
            state: standing,
            pending: 0,
            latency: None,
        }
    }

    fn share(lanes: &[LaneCandidate], sticky: bool) -> Vec<f64> {
        let mut counts = vec![0.0; lanes.len()];
        for seed in 0..20_000_u64 {
            counts[order_lanes(lanes, mix(seed), sticky)[0]] += 1.0 / 20_000.0;
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
            assert_eq!(order_lanes(&lanes, draw, false)[2], 2, "the next run comes last");
        }
    }

    #[test]
    fn a_conversation_stays_unless_its_lane_leaves_or_drowns() {
        let lanes = [good(0, 1.0, 1), good(0, 1.0, 2), good(0, 1.0, 3)];
        for print in 0..200 {
            let home = order_lanes(&lanes, print, true)[0];
            let mut without = lanes;
            let other = (home + 1) % 3;
            without[other].state = LaneState::CoolingDown(5);
            assert_eq!(order_lanes(&without, print, true)[0], home, "others' trouble moves nobody");
            without[home].pending = 3;
            assert_eq!(order_lanes(&without, print, true)[0], home, "a little load neither");
            without[home].pending = 50;
            assert_ne!(order_lanes(&without, print, true)[0], home);
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

    fn standing() -> impl Strategy<Value = LaneState> {
        prop_oneof![
            Just(LaneState::Good),
            Just(LaneState::Probing),
            (0..9i64).prop_map(LaneState::Busy),
            (0..9i64).prop_map(LaneState::CoolingDown),
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
            let lanes: Vec<LaneCandidate> = standings
                .iter()
                .zip(0..)
                .map(|((standing, run, pending), print)| LaneCandidate {
                    state: *standing, pending: *pending, ..good(*run, 1.0, print)
                })
                .collect();
            let found = order_lanes(&lanes, draw, sticky);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..lanes.len()).collect::<Vec<_>>());
            let class = |place: &usize| match lanes[*place].state {
                LaneState::Good | LaneState::Probing => 0,
                LaneState::CoolingDown(_) => 1,
                LaneState::Busy(_) => 2,
            };
            prop_assert!(found.iter().map(class).is_sorted());
        }
    }
}
