//! Order of attempts: by priority, and among equals by weight, load and latency.

use crate::health::LaneState;
use canon::Micros;

/// A conversation leaves its lane, where its prompt is likely cached, if the lane has this many
/// times the load of the next one.
const MAX_STICKY_LOAD_RATIO: f64 = 4.0;
/// A lane is slow if its latency exceeds that of its equal by this factor and by this margin; a
/// smaller difference is noise.
const SLOW_FACTOR: i64 = 5;
const SLOW_MARGIN: Micros = Micros::from_millis(40);
/// One call of this many goes to the slow lane, to measure it again.
const SLOW_SAMPLE_INTERVAL: u64 = 8;

/// A lane with one credential that could be tried.
#[derive(Clone, Copy, Debug)]
pub struct LaneCandidate {
    /// Position in the order of preference. Lanes of equal priority are equals.
    pub priority: u32,
    /// Share among equals.
    pub weight: f64,
    /// Hash of lane and credential, equal on every node.
    pub hash_key: u64,
    /// State of the lane.
    pub state: LaneState,
    /// Running calls.
    pub pending: u32,
    /// Usual latency, if known.
    pub latency: Option<Micros>,
}

/// Returns the indices of the lanes in the order of attempts: available lanes by priority, then
/// cooling lanes by the end of their cooldown, then busy lanes. Every lane is included.
///
/// Among equals `draw` selects by weight. Equal numbers select the same lane while it is available,
/// so the hash of a conversation keeps it where its prompt is cached (`sticky`), and a random
/// number spreads the load.
pub fn order_lanes(candidates: &[LaneCandidate], draw: u64, sticky: bool) -> Vec<usize> {
    let mut ranked: Vec<(u8, f64, f64, usize)> =
        candidates.iter().enumerate().map(|(index, one)| rank(index, one, draw)).collect();
    ranked.sort_by(|a, b| {
        (a.0.cmp(&b.0)).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3))
    });
    let mut order: Vec<usize> = ranked.into_iter().map(|(_, _, _, index)| index).collect();
    if let [first, second, ..] = order.as_mut_slice()
        && let (Some(one), Some(other)) = (candidates.get(*first), candidates.get(*second))
        && should_yield(one, other, draw, sticky)
    {
        std::mem::swap(first, second);
    }
    order
}

#[expect(clippy::cast_precision_loss, reason = "an order needs no exact figures")]
fn rank(index: usize, one: &LaneCandidate, draw: u64) -> (u8, f64, f64, usize) {
    match one.state {
        // Weighted rendezvous hashing: the smallest -ln(u)/w wins with probability w/Σw.
        LaneState::Good | LaneState::Probing => {
            let unit = ((mix(draw ^ one.hash_key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            (0, f64::from(one.priority), -unit.ln() / one.weight.max(f64::MIN_POSITIVE), index)
        }
        LaneState::CoolingDown(left) => {
            (1, left.to_duration().as_secs_f64(), f64::from(one.priority), index)
        }
        LaneState::Busy(left) => {
            (2, left.to_duration().as_secs_f64(), f64::from(one.priority), index)
        }
    }
}

/// Returns true if the first of two equals should be tried second, because it is much slower or has
/// more load.
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
        // Waiting calls take as long as the lane is slow.
        let work = |one: &LaneCandidate, latency: Micros| {
            load(one, 1.0) * latency.to_duration().as_secs_f64()
        };
        let samples = mine > theirs && mix(!draw).is_multiple_of(SLOW_SAMPLE_INTERVAL);
        return !samples && work(one, mine) > work(other, theirs);
    }
    if sticky {
        load(one, 1.0) > MAX_STICKY_LOAD_RATIO * load(other, 1.0)
    } else {
        load(one, 0.0) > load(other, 0.0)
    }
}

fn is_slower(mine: Micros, theirs: Micros) -> bool {
    mine > theirs * SLOW_FACTOR && mine > theirs + SLOW_MARGIN
}

/// Spreads a number over all bits (SplitMix64).
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

    fn good(priority: u32, weight: f64, hash_key: u64) -> LaneCandidate {
        let state = LaneState::Good;
        LaneCandidate { priority, weight, hash_key, state, pending: 0, latency: None }
    }

    fn share(lanes: &[LaneCandidate], sticky: bool) -> Vec<f64> {
        let mut counts = vec![0.0; lanes.len()];
        for seed in 0..20_000_u64 {
            counts[order_lanes(lanes, mix(seed), sticky)[0]] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn weights_are_shares_and_priorities_an_order() {
        let lanes = [good(0, 3.0, 7), good(0, 1.0, 8), good(1, 100.0, 9)];
        for sticky in [false, true] {
            let share = share(&lanes, sticky);
            assert!((share[0] - 0.75).abs() < 0.02, "{share:?}");
            assert!((share[1] - 0.25).abs() < 0.02 && share[2] == 0.0, "{share:?}");
        }
        for draw in 0..100 {
            assert_eq!(order_lanes(&lanes, draw, false)[2], 2, "the next priority comes last");
        }
    }

    #[test]
    fn conversation_stays_unless_its_lane_is_gone_or_overloaded() {
        let lanes = [good(0, 1.0, 1), good(0, 1.0, 2), good(0, 1.0, 3)];
        for hash_key in 0..200 {
            let home = order_lanes(&lanes, hash_key, true)[0];
            let mut without = lanes;
            let other = (home + 1) % 3;
            without[other].state = LaneState::CoolingDown(Micros::new(5));
            assert_eq!(
                order_lanes(&without, hash_key, true)[0],
                home,
                "the state of other lanes does not move it"
            );
            without[home].pending = 3;
            assert_eq!(order_lanes(&without, hash_key, true)[0], home, "nor does a little load");
            without[home].pending = 50;
            assert_ne!(order_lanes(&without, hash_key, true)[0], home);
        }
    }

    #[test]
    fn prefers_less_loaded_and_much_faster_lanes() {
        let mut lanes = [good(0, 1.0, 1), good(0, 1.0, 2)];
        lanes[0].pending = 1;
        assert_eq!(share(&lanes, false)[0], 0.0);
        lanes[0].pending = 0;
        (lanes[0].latency, lanes[1].latency) =
            (Some(Micros::from_secs(1)), Some(Micros::from_millis(100)));
        for sticky in [false, true] {
            let slow = share(&lanes, sticky)[0];
            assert!((0.04..0.09).contains(&slow), "an occasional sample: {slow}");
        }
        lanes[1].pending = 5;
        assert!(share(&lanes, false)[0] < 0.09, "six fast ones are done before a slow one");
        lanes[1].pending = 50;
        assert!(share(&lanes, false)[0] > 0.99, "fifty are not");
        lanes[1].pending = 0;
        (lanes[0].latency, lanes[1].latency) =
            (Some(Micros::from_millis(10)), Some(Micros::from_millis(1)));
        assert!(share(&lanes, false)[0] > 0.4, "milliseconds do not count");
        lanes[1].latency = None;
        assert!(share(&lanes, false)[0] > 0.4, "an unknown latency is no disadvantage");
    }

    fn left() -> impl Strategy<Value = Micros> {
        (0..9_i64).prop_map(Micros::new)
    }

    fn state() -> impl Strategy<Value = LaneState> {
        prop_oneof![
            Just(LaneState::Good),
            Just(LaneState::Probing),
            left().prop_map(LaneState::Busy),
            left().prop_map(LaneState::CoolingDown),
        ]
    }

    proptest! {
        /// Every lane is in the order exactly once, whatever its state.
        #[test]
        fn every_lane_is_included(
            states in prop::collection::vec((state(), 0..3u32, 0..9u32), 1..8),
            draw: u64,
            sticky: bool,
        ) {
            let lanes: Vec<LaneCandidate> = states
                .iter()
                .zip(0..)
                .map(|((state, priority, pending), hash_key)| LaneCandidate {
                    state: *state, pending: *pending, ..good(*priority, 1.0, hash_key)
                })
                .collect();
            let found = order_lanes(&lanes, draw, sticky);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..lanes.len()).collect::<Vec<_>>());
            let class = |index: &usize| match lanes[*index].state {
                LaneState::Good | LaneState::Probing => 0,
                LaneState::CoolingDown(_) => 1,
                LaneState::Busy(_) => 2,
            };
            prop_assert!(found.iter().map(class).is_sorted());
        }
    }
}
