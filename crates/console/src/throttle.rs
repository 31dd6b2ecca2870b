//! How often sign-in may be tried and mails may be asked for, counted in memory.
//!
//! Three tallies: of one name from one address, of one address, of one name from anywhere. Each
//! grants some tries for free; behind these every further one doubles the wait. A try is counted
//! before the password is looked at, so that many at once cannot slip through together, and a
//! right password clears its name. Nobody is locked out for good: the wait has an upper end.

use std::collections::HashMap;
use std::net::IpAddr;

use ledger::Micros;
use parking_lot::Mutex;

const SECOND: Micros = 1_000_000;
/// How many tallies are kept; beyond that the one longest untouched is forgotten.
const ROOM: usize = 10_000;

/// How many tries are free, and how long the wait is behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    per_name_and_place: u32,
    per_place: u32,
    per_name: u32,
    /// How long a tally is remembered after the last try.
    memory: Micros,
    first_wait: Micros,
    longest_wait: Micros,
}

/// Tries to sign in.
pub(crate) const SIGN_IN: Rates = Rates {
    per_name_and_place: 10,
    per_place: 50,
    per_name: 100,
    memory: 600 * SECOND,
    first_wait: 15 * SECOND,
    longest_wait: 300 * SECOND,
};

/// Mails to one address: three in an hour, whoever asks for them.
pub(crate) const MAILS: Rates = Rates {
    per_name_and_place: 3,
    per_place: 20,
    per_name: 3,
    memory: 3_599 * SECOND,
    first_wait: 3_600 * SECOND,
    longest_wait: 3_600 * SECOND,
};

/// Codes of a second factor. There are only a million of them.
pub(crate) const CODES: Rates = Rates {
    per_name_and_place: 5,
    per_place: 50,
    per_name: 5,
    memory: 3_600 * SECOND,
    first_wait: 30 * SECOND,
    longest_wait: 900 * SECOND,
};

/// Names that somebody who manages a team looks up to add them to it.
pub(crate) const LOOKUPS: Rates = Rates {
    per_name_and_place: 20,
    per_place: 50,
    per_name: 20,
    memory: 3_600 * SECOND,
    first_wait: 60 * SECOND,
    longest_wait: 3_600 * SECOND,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Tallied {
    NameAndPlace(String, Place),
    Place(Place),
    Name(String),
}

impl Tallied {
    const fn free(&self, rates: &Rates) -> u32 {
        match self {
            Self::NameAndPlace(..) => rates.per_name_and_place,
            Self::Place(_) => rates.per_place,
            Self::Name(_) => rates.per_name,
        }
    }
}

/// Where a try comes from. Who holds one IPv6 address holds the network around it, so that these
/// count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    V4([u8; 4]),
    V6([u16; 4]),
    /// No address is known; all such tries share one tally.
    Unknown,
}

impl Place {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Self::V4(address.octets()),
            Some(IpAddr::V6(address)) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
            None => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Tally {
    tries: u32,
    last: Micros,
    closed_until: Micros,
}

/// The tallies.
pub(crate) struct Throttle {
    rates: Rates,
    tallies: Mutex<HashMap<Tallied, Tally>>,
}

impl Throttle {
    pub(crate) fn new(rates: Rates) -> Self {
        Self { rates, tallies: Mutex::default() }
    }

    /// Counts a try. The error is how many seconds to wait; then it was not counted.
    pub(crate) fn admit(&self, name: &str, place: Place, now: Micros) -> Result<(), u64> {
        let name = name.to_lowercase();
        self.count(
            &[
                Tallied::NameAndPlace(name.clone(), place),
                Tallied::Place(place),
                Tallied::Name(name),
            ],
            now,
        )
    }

    /// Counts a try for a name, wherever it comes from.
    pub(crate) fn admit_name(&self, name: &str, now: Micros) -> Result<(), u64> {
        self.count(&[Tallied::Name(name.to_lowercase())], now)
    }

    /// Counts a try from a place, for no name in particular.
    pub(crate) fn admit_place(&self, place: Place, now: Micros) -> Result<(), u64> {
        self.count(&[Tallied::Place(place)], now)
    }

    /// Takes a try from a place back: it ended well.
    pub(crate) fn forgive_place(&self, place: Place) {
        if let Some(tally) = self.tallies.lock().get_mut(&Tallied::Place(place)) {
            tally.tries = tally.tries.saturating_sub(1);
        }
    }

    fn count(&self, all: &[Tallied], now: Micros) -> Result<(), u64> {
        let rates = &self.rates;
        let mut tallies = self.tallies.lock();
        let wait = all
            .iter()
            .filter_map(|tallied| tallies.get(tallied))
            .map(|tally| tally.closed_until.saturating_sub(now))
            .max()
            .unwrap_or(0);
        if wait > 0 {
            return Err(u64::try_from(wait.div_euclid(SECOND) + 1).unwrap_or(1));
        }
        for tallied in all {
            if tallies.len() >= ROOM && !tallies.contains_key(tallied) {
                make_room(&mut tallies, now, rates.memory);
            }
            let free = tallied.free(rates);
            let fresh = Tally { tries: 0, last: now, closed_until: 0 };
            let tally = tallies.entry(tallied.clone()).or_insert(fresh);
            if now.saturating_sub(tally.last) > rates.memory {
                tally.tries = 0;
            }
            tally.tries = tally.tries.saturating_add(1);
            tally.last = now;
            if tally.tries >= free {
                let doublings = (tally.tries - free).min(10);
                let wait = rates.first_wait.saturating_mul(1 << doublings).min(rates.longest_wait);
                tally.closed_until = now.saturating_add(wait);
            }
        }
        Ok(())
    }

    /// Forgets what was counted for a name from a place: the password was right. The tally of the
    /// address stays, or one good account would pay for guessing all others.
    pub(crate) fn forgive(&self, name: &str, place: Place) {
        let name = name.to_lowercase();
        let mut tallies = self.tallies.lock();
        tallies.remove(&Tallied::NameAndPlace(name.clone(), place));
        tallies.remove(&Tallied::Name(name));
        drop(tallies);
        self.forgive_place(place);
    }
}

fn make_room(tallies: &mut HashMap<Tallied, Tally>, now: Micros, memory: Micros) {
    tallies.retain(|_, tally| now.saturating_sub(tally.last) <= memory);
    if tallies.len() >= ROOM {
        let oldest = tallies.iter().min_by_key(|(_, tally)| tally.last);
        if let Some(oldest) = oldest.map(|(tallied, _)| tallied.clone()) {
            tallies.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Place = Place::V4([192, 0, 2, 1]);
    const AWAY: Place = Place::V4([192, 0, 2, 2]);

    #[test]
    fn the_eleventh_try_for_a_name_waits_and_each_further_one_longer() {
        let throttle = Throttle::new(SIGN_IN);
        for _ in 0..10 {
            assert_eq!(throttle.admit("anna", HOME, 0), Ok(()));
        }
        let first = throttle.admit("Anna", HOME, 0).unwrap_err();
        assert!(throttle.admit("bert", HOME, 0).is_ok(), "another name is not held up");
        assert!(throttle.admit("anna", AWAY, 0).is_ok(), "nor the same one elsewhere");
        let later = SIGN_IN.first_wait + 1;
        assert_eq!(throttle.admit("anna", HOME, later), Ok(()));
        let second = throttle.admit("anna", HOME, later).unwrap_err();
        assert!(second > first, "{second} {first}");
        let mut now = later;
        for _ in 0..40 {
            now += SIGN_IN.longest_wait + 1;
            assert_eq!(throttle.admit("anna", HOME, now), Ok(()), "the wait has an end");
        }
    }

    #[test]
    fn an_address_cannot_guess_at_many_names() {
        let throttle = Throttle::new(SIGN_IN);
        let tries = (0..200).filter(|n| throttle.admit(&format!("n{n}"), HOME, 0).is_ok()).count();
        assert_eq!(tries, 50);
    }

    #[test]
    fn a_right_password_clears_its_name_and_time_clears_everything() {
        let throttle = Throttle::new(SIGN_IN);
        for _ in 0..30 {
            assert_eq!(throttle.admit("anna", HOME, 0), Ok(()));
            throttle.forgive("anna", HOME);
        }
        for _ in 0..10 {
            throttle.admit("anna", HOME, 0).unwrap();
        }
        let later = SIGN_IN.memory + SIGN_IN.longest_wait;
        for _ in 0..10 {
            assert_eq!(throttle.admit("anna", HOME, later), Ok(()));
        }
    }

    #[test]
    fn three_mails_an_hour_and_no_more() {
        let throttle = Throttle::new(MAILS);
        let (minute, mut sent) = (60 * SECOND, 0);
        for n in 0..240 {
            let place = Place::V4([192, 0, 2, n as u8]);
            sent += usize::from(throttle.admit("anna@example.com", place, n * minute).is_ok());
        }
        assert!(sent <= 12, "{sent} mails in four hours");
        assert!(sent >= 4, "{sent}");
    }

    #[test]
    fn neighbours_in_an_ipv6_network_count_together() {
        let place = |text: &str| Place::of(Some(text.parse().unwrap()));
        assert_eq!(place("2001:db8::1"), place("2001:db8::ffff:2"));
        assert_ne!(place("2001:db8::1"), place("2001:db8:0:1::1"));
        assert_eq!(place("::ffff:192.0.2.1"), HOME);
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::new(SIGN_IN);
        for n in 0..ROOM {
            let _ =
                throttle.admit(&format!("n{n}"), Place::of(None), n as i64 * SIGN_IN.longest_wait);
        }
        assert!(throttle.tallies.lock().len() <= ROOM);
    }
}
