//! Order of attempts: by priority, and among equals by weight, load and latency.

use crate::health::LaneState;
use crate::session_lanes::LaneMark;
use canon::Micros;

/// A new session leaves the lane of its hash if that has this many times the load of the next one. Other
/// nodes may know it there. A session that this node knows stays, because its prompt is cached: a lane that
/// cannot take more calls is busy.
const MAX_STICKY_LOAD_RATIO: f64 = 4.0;
/// A lane is slow if its latency exceeds that of its equal by this factor and by this margin; a
/// smaller difference is noise.
const SLOW_FACTOR: i64 = 5;
const SLOW_MARGIN: Micros = Micros::from_millis(40);
/// A new session passes over a lane that has this many times its share of the sessions, and some more.
const MAX_SESSION_SHARE: f64 = 1.1;
const EXTRA_SESSIONS: f64 = 3.0;
/// Chance alone spreads more sessions than this well enough.
const MAX_COUNTED_SESSIONS: f64 = 500.0;
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
    /// Sessions that began here.
    pub sessions: u32,
}

/// Number that selects among equal lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneDraw {
    /// A random number, which spreads the load.
    Random(u64),
    /// The hash of a session. Its calls select the same lane, where its prompt is cached.
    Session {
        /// The hash.
        hash: u64,
        /// The lane that answered it last; `None` for a new session.
        lane: Option<LaneMark>,
    },
}

impl LaneDraw {
    const fn number(self) -> u64 {
        match self {
            Self::Random(number) | Self::Session { hash: number, .. } => number,
        }
    }

    const fn is_session(self) -> bool {
        matches!(self, Self::Session { .. })
    }

    fn was_at(self, lane: &LaneCandidate) -> bool {
        match self {
            Self::Random(_) | Self::Session { lane: None, .. } => false,
            Self::Session { lane: Some(mark), .. } => LaneMark::of(lane.hash_key) == mark,
        }
    }

    const fn is_new_session(self) -> bool {
        matches!(self, Self::Session { lane: None, .. })
    }
}

/// Returns the indices of the lanes in the order of attempts: available lanes by priority, then
/// cooling lanes by the end of their cooldown, then busy lanes. Every lane is included.
///
/// Among equals `draw` selects by weight: a lane that is added takes sessions from the others only for
/// itself, and those of a removed one are all that move.
pub fn order_lanes(candidates: &[LaneCandidate], draw: LaneDraw) -> Vec<usize> {
    let mut ranked: Vec<(u8, f64, f64, usize)> =
        candidates.iter().enumerate().map(|(index, one)| rank(index, one, draw)).collect();
    ranked.sort_by(|a, b| {
        (a.0.cmp(&b.0)).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3))
    });
    let mut order: Vec<usize> = ranked.into_iter().map(|(_, _, _, index)| index).collect();
    if draw.is_new_session() {
        spread_sessions(candidates, &mut order);
    }
    if let [first, second, ..] = order.as_mut_slice()
        && let (Some(one), Some(other)) = (candidates.get(*first), candidates.get(*second))
        && should_yield(one, other, draw)
    {
        std::mem::swap(first, second);
    }
    order
}

/// Passes over lanes with more sessions than their share. Few sessions among few lanes would otherwise be
/// as uneven as coin tosses are. See "Consistent Hashing with Bounded Loads",
/// <https://arxiv.org/abs/1608.01350>.
fn spread_sessions(candidates: &[LaneCandidate], order: &mut [usize]) {
    let Some(first) = order.first().and_then(|index| candidates.get(*index)) else { return };
    // A lane that has to be probed is among them. If new sessions passed it over, it would get no call at all
    // where every call belongs to a session.
    let is_equal = |one: &LaneCandidate| {
        one.priority == first.priority && matches!(one.state, LaneState::Good | LaneState::Probing)
    };
    let equals = candidates.iter().filter(|one| is_equal(one));
    let (weight, sessions) = equals.fold((0.0, 1.0), |(weight, sessions), one| {
        (weight + one.weight, sessions + f64::from(one.sessions))
    });
    if sessions > MAX_COUNTED_SESSIONS {
        return;
    }
    let has_room = |one: &LaneCandidate| {
        let share = one.weight / weight;
        f64::from(one.sessions) + 1.0 <= MAX_SESSION_SHARE * share * sessions + EXTRA_SESSIONS
    };
    let chosen = order
        .iter()
        .position(|index| candidates.get(*index).is_some_and(|one| is_equal(one) && has_room(one)));
    if let Some(before) = chosen.and_then(|at| order.get_mut(..=at)) {
        before.rotate_right(1);
    }
}

/// Weighted rendezvous hashing: the smallest -ln(u)/w wins with probability w/Σw.
#[expect(clippy::cast_precision_loss, reason = "an order needs no exact figures")]
fn distance(one: &LaneCandidate, draw: u64) -> f64 {
    let unit = ((mix(draw ^ one.hash_key) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -unit.ln() / one.weight.max(f64::MIN_POSITIVE)
}

fn rank(index: usize, one: &LaneCandidate, draw: LaneDraw) -> (u8, f64, f64, usize) {
    match one.state {
        LaneState::Good | LaneState::Probing => {
            let is_kept = one.state == LaneState::Good && draw.was_at(one);
            let distance = if is_kept { 0.0 } else { distance(one, draw.number()) };
            (0, f64::from(one.priority), distance, index)
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
fn should_yield(one: &LaneCandidate, other: &LaneCandidate, draw: LaneDraw) -> bool {
    if one.priority != other.priority
        || one.state != LaneState::Good
        || other.state != LaneState::Good
    {
        return false;
    }
    let load = |one: &LaneCandidate, base: f64| (f64::from(one.pending) + base) / one.weight;
    let is_known = draw.was_at(one);
    if let (Some(mine), Some(theirs)) = (one.latency, other.latency)
        && (is_slower(mine, theirs) || (!is_known && is_slower(theirs, mine)))
    {
        // Waiting calls take as long as the lane is slow.
        let work = |one: &LaneCandidate, latency: Micros| {
            load(one, 1.0) * latency.to_duration().as_secs_f64()
        };
        let samples = mine > theirs && mix(!draw.number()).is_multiple_of(SLOW_SAMPLE_INTERVAL);
        return !samples && work(one, mine) > work(other, theirs);
    }
    if is_known {
        false
    } else if draw.is_session() {
        load(one, 1.0) > MAX_STICKY_LOAD_RATIO * load(other, 1.0)
    } else {
        load(one, 0.0) > load(other, 0.0)
    }
}

fn is_slower(mine: Micros, theirs: Micros) -> bool {
    mine > theirs * SLOW_FACTOR && mine > theirs + SLOW_MARGIN
}

/// Spreads a number over all bits (SplitMix64).
pub(crate) const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{AttemptFailure, HealthTracker};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn good(priority: u32, weight: f64, hash_key: u64) -> LaneCandidate {
        let state = LaneState::Good;
        LaneCandidate { priority, weight, hash_key, state, pending: 0, latency: None, sessions: 0 }
    }

    fn draw(number: u64, sticky: bool) -> LaneDraw {
        match sticky {
            true => LaneDraw::Session { hash: number, lane: None },
            false => LaneDraw::Random(number),
        }
    }

    fn share(lanes: &[LaneCandidate], sticky: bool) -> Vec<f64> {
        let mut counts = vec![0.0; lanes.len()];
        for seed in 0..20_000_u64 {
            counts[order_lanes(lanes, draw(mix(seed), sticky))[0]] += 1.0 / 20_000.0;
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
        for seed in 0..100 {
            assert_eq!(
                order_lanes(&lanes, draw(seed, false))[2],
                2,
                "the next priority comes last"
            );
        }
    }

    #[test]
    fn conversation_stays_unless_its_lane_is_gone_or_overloaded() {
        let lanes = [good(0, 1.0, 1), good(0, 1.0, 2), good(0, 1.0, 3)];
        for hash_key in 0..200 {
            let home = order_lanes(&lanes, draw(hash_key, true))[0];
            let mut without = lanes;
            let other = (home + 1) % 3;
            without[other].state = LaneState::CoolingDown(Micros::new(5));
            assert_eq!(
                order_lanes(&without, draw(hash_key, true))[0],
                home,
                "the state of other lanes does not move it"
            );
            without[home].pending = 3;
            assert_eq!(
                order_lanes(&without, draw(hash_key, true))[0],
                home,
                "nor does a little load"
            );
            without[home].pending = 50;
            assert_ne!(order_lanes(&without, draw(hash_key, true))[0], home);
        }
    }

    #[test]
    fn a_known_session_stays_at_any_load() {
        let mut lanes = [good(0, 1.0, 1), good(0, 1.0, 2)];
        for (home, pending) in [0, 1].into_iter().flat_map(|home| [0, 6, 500].map(|n| (home, n))) {
            lanes[home].pending = pending;
            lanes[1 - home].pending = 0;
            for hash in 0..50 {
                let lane = Some(LaneMark::of(lanes[home].hash_key));
                let draw = LaneDraw::Session { hash, lane };
                assert_eq!(order_lanes(&lanes, draw)[0], home, "{pending}");
                for state in
                    [LaneState::Busy(Micros::new(5)), LaneState::CoolingDown(Micros::new(5))]
                {
                    let mut full = lanes;
                    full[home].state = state;
                    assert_ne!(order_lanes(&full, draw)[0], home, "it is full, limited or down");
                }
            }
        }
    }

    /// Sends calls of new sessions, one in each step of the clock, of which the first lane fails until
    /// `recovers_at`. Returns the calls at the first lane afterwards.
    fn calls_after_recovery(recovers_at: Micros, step: Micros, calls: i64) -> (usize, usize) {
        let healths = [(); 2].map(|()| Arc::new(HealthTracker::new(Arc::default())));
        let (mut tried, mut answered) = (0, 0);
        for number in 0..calls {
            let now = Micros::from_secs(1) + step * number;
            let lanes = [0, 1].map(|at| LaneCandidate {
                state: healths[at].state(now),
                sessions: healths[at].sessions(),
                ..good(0, 1.0, mix(at as u64))
            });
            let hash = mix(mix(number.unsigned_abs()));
            for at in order_lanes(&lanes, LaneDraw::Session { hash, lane: None }) {
                let mut attempt = healths[at].begin_attempt(now);
                if at == 0 && now < recovers_at {
                    attempt.failed(AttemptFailure::Down, now);
                    continue;
                }
                tried += usize::from(now >= recovers_at);
                answered += usize::from(at == 0);
                attempt.succeeded(now);
                healths[at].add_session();
                break;
            }
        }
        (answered, tried)
    }

    #[test]
    fn a_recovered_lane_gets_its_share_of_new_sessions() {
        // One new session in three seconds, for a minute after the failure.
        let (answered, all) = calls_after_recovery(Micros::from_secs(60), Micros::from_secs(3), 40);
        assert!(answered >= 7, "{answered} of {all}");
        for (recovers_at, step) in [(5, 200), (30, 500), (90, 1_000)] {
            let (answered, all) = calls_after_recovery(
                Micros::from_secs(recovers_at),
                Micros::from_millis(step),
                recovers_at * 2_000 / step,
            );
            assert!(answered * 3 >= all, "{answered} of {all} after {recovers_at} s");
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
            seed: u64,
            sticky: bool,
        ) {
            let lanes: Vec<LaneCandidate> = states
                .iter()
                .zip(0..)
                .map(|((state, priority, pending), hash_key)| LaneCandidate {
                    state: *state, pending: *pending, ..good(*priority, 1.0, hash_key)
                })
                .collect();
            let found = order_lanes(&lanes, draw(seed, sticky));
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

    /// Standard deviations that a count of random choices may differ from its mean in these tests.
    const DEVIATIONS: f64 = 5.0;

    fn home(lanes: &[LaneCandidate], session: u64) -> usize {
        order_lanes(lanes, draw(session, true))[0]
    }

    fn counts(lanes: &[LaneCandidate], seed: u64, sessions: u64) -> Vec<u64> {
        let mut counts = vec![0; lanes.len()];
        for session in 0..sessions {
            counts[home(lanes, mix(mix(seed) ^ session))] += 1;
        }
        counts
    }

    proptest! {
        /// Sessions are spread by weight, as random choices are.
        #[test]
        fn sessions_are_spread_by_weight(
            weights in prop::collection::vec(1..5u32, 2..6),
            keys: u64,
            seed: u64,
        ) {
            let lanes: Vec<LaneCandidate> = (0..)
                .zip(&weights)
                .map(|(number, weight)| good(0, f64::from(*weight), mix(keys ^ number)))
                .collect();
            let all: f64 = weights.iter().copied().map(f64::from).sum();
            for (count, weight) in counts(&lanes, seed, 4_000).into_iter().zip(&weights) {
                let share = f64::from(*weight) / all;
                let (mean, deviation) = (4_000.0 * share, (4_000.0 * share * (1.0 - share)).sqrt());
                prop_assert!((count as f64 - mean).abs() < DEVIATIONS * deviation, "{count} {mean}");
            }
        }

        /// A lane that is added takes its share from all others, and nothing else moves. The same holds for
        /// one that is removed, read backwards.
        #[test]
        fn only_the_share_of_a_new_lane_moves(lanes in 1..6_u64, keys: u64, seed: u64) {
            let all: Vec<LaneCandidate> =
                (0..=lanes).map(|number| good(0, 1.0, mix(keys ^ number))).collect();
            let (added, before) = all.split_last().unwrap();
            let mut moved = 0.0;
            for session in (0..2_000).map(|session| mix(mix(seed) ^ session)) {
                let (old, new) = (home(before, session), home(&all, session));
                if old != new {
                    prop_assert_eq!(all[new].hash_key, added.hash_key);
                    moved += 1.0;
                }
            }
            let share = 1.0 / all.len() as f64;
            let deviation = (2_000.0 * share * (1.0 - share)).sqrt();
            prop_assert!((moved - 2_000.0 * share).abs() < DEVIATIONS * deviation, "{moved}");
        }

        /// A session whose lane fails goes to the same other lane each time, stays there when its own is
        /// good again, and goes back only if that one fails.
        #[test]
        fn a_moved_session_stays(lanes in 2..6_u64, keys: u64, hash: u64) {
            let mut lanes: Vec<LaneCandidate> =
                (0..lanes).map(|number| good(0, 1.0, mix(keys ^ number))).collect();
            let home = home(&lanes, hash);
            prop_assert_eq!(order_lanes(&lanes, draw(hash, true))[0], home);
            lanes[home].state = LaneState::CoolingDown(Micros::from_secs(1));
            let next = order_lanes(&lanes, draw(hash, true))[0];
            prop_assert_ne!(next, home);
            lanes[home].state = LaneState::Good;
            let moved =
                LaneDraw::Session { hash, lane: Some(LaneMark::of(lanes[next].hash_key)) };
            prop_assert_eq!(order_lanes(&lanes, moved)[0], next);
            lanes[next].state = LaneState::Busy(Micros::from_secs(1));
            prop_assert_eq!(order_lanes(&lanes, moved)[0], home);
            lanes[next].state = LaneState::Good;
            lanes[next].priority = 1;
            prop_assert_eq!(order_lanes(&lanes, moved)[0], home, "the order of the file counts more");
        }
    }

    proptest! {
        /// However sessions come, no lane has many more than its share.
        #[test]
        fn few_sessions_are_spread_evenly(keys: u64, seed: u64, lanes in 2..5_usize, sessions in 1..200_u32) {
            let mut all: Vec<LaneCandidate> =
                (0..lanes).map(|number| good(0, 1.0, mix(keys ^ number as u64))).collect();
            for session in 0..sessions {
                let first = home(&all, mix(mix(seed) ^ u64::from(session)));
                all[first].sessions += 1;
            }
            let most = all.iter().map(|lane| lane.sessions).max().unwrap();
            let bound = MAX_SESSION_SHARE * f64::from(sessions) / lanes as f64 + EXTRA_SESSIONS;
            prop_assert!(f64::from(most) <= bound, "{most} of {sessions}");
            if (lanes, sessions) == (2, 60) {
                prop_assert!(most <= 36);
            }
        }
    }
}
