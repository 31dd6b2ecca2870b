//! How often sign-in may be tried and mails may be asked for, counted in the store, so that whoever
//! asks several nodes in turn gains nothing.
//!
//! Three tallies: of one name from one address, of one address, of one name from anywhere. Each
//! grants some tries for free; behind these every further one doubles the wait. A try is counted
//! before the password is looked at, so that many at once cannot slip through together, and a
//! right password clears its name. Nobody is locked out for good: the wait has an upper end.

use std::net::IpAddr;

use ledger::Micros;
use store::{Store, AttemptCounter};

use crate::trouble::Trouble;
use admin::random;

const SECOND: Micros = 1_000_000;
/// Nothing is remembered for longer than this.
const FORGOTTEN: Micros = 3_600 * SECOND;

/// How many tries are free, and how long the wait is behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// What is counted, in a word.
    what: &'static str,
    per_name_and_place: i64,
    per_place: i64,
    per_name: i64,
    /// How long a tally is remembered after the last try.
    memory: Micros,
    first_wait: Micros,
    longest_wait: Micros,
}

/// Tries to sign in.
pub(crate) const SIGN_IN: Rates = Rates {
    what: "sign-in",
    per_name_and_place: 10,
    per_place: 50,
    per_name: 100,
    memory: 600 * SECOND,
    first_wait: 15 * SECOND,
    longest_wait: 300 * SECOND,
};

/// Mails to one address: three in an hour, whoever asks for them.
pub(crate) const MAILS: Rates = Rates {
    what: "mails",
    per_name_and_place: 3,
    per_place: 20,
    per_name: 3,
    memory: 3_599 * SECOND,
    first_wait: 3_600 * SECOND,
    longest_wait: 3_600 * SECOND,
};

/// Codes of a second factor. There are only a million of them.
pub(crate) const CODES: Rates = Rates {
    what: "codes",
    per_name_and_place: 5,
    per_place: 50,
    per_name: 5,
    memory: 3_600 * SECOND,
    first_wait: 30 * SECOND,
    longest_wait: 900 * SECOND,
};

/// Names that somebody who manages a team looks up to add them to it.
pub(crate) const LOOKUPS: Rates = Rates {
    what: "lookup",
    per_name_and_place: 20,
    per_place: 50,
    per_name: 20,
    memory: 3_600 * SECOND,
    first_wait: 60 * SECOND,
    longest_wait: 3_600 * SECOND,
};

enum Tallied<'a> {
    NameAndPlace(&'a str, Place),
    Place(Place),
    Name(&'a str),
}

impl Tallied<'_> {
    const fn free(&self, rates: &Rates) -> i64 {
        match self {
            Self::NameAndPlace(..) => rates.per_name_and_place,
            Self::Place(_) => rates.per_place,
            Self::Name(_) => rates.per_name,
        }
    }

    /// What the store knows it by.
    fn hash(&self, rates: &Rates) -> Vec<u8> {
        let what = rates.what;
        // Names come last: they may hold anything.
        random::digest(&match self {
            Self::NameAndPlace(name, place) => format!("{what} both {place:?} {name}"),
            Self::Place(place) => format!("{what} place {place:?}"),
            Self::Name(name) => format!("{what} name {name}"),
        })
    }
}

/// Where a try comes from. Who holds one IPv6 address holds the network around it, so that these
/// count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What is counted, and how.
pub(crate) struct Throttle(pub(crate) Rates);

impl Throttle {
    /// Counts a try. Who has to wait is told so, and was not counted.
    pub(crate) async fn admit(
        &self,
        store: &Store,
        name: &str,
        place: Place,
        now: Micros,
    ) -> Result<(), Trouble> {
        let name = &*name.to_lowercase();
        let all = [Tallied::NameAndPlace(name, place), Tallied::Place(place), Tallied::Name(name)];
        self.count(store, &all, now).await
    }

    /// Counts a try for a name, wherever it comes from.
    pub(crate) async fn admit_name(
        &self,
        store: &Store,
        name: &str,
        now: Micros,
    ) -> Result<(), Trouble> {
        self.count(store, &[Tallied::Name(&name.to_lowercase())], now).await
    }

    /// Counts a try from a place, for no name in particular.
    pub(crate) async fn admit_place(
        &self,
        store: &Store,
        place: Place,
        now: Micros,
    ) -> Result<(), Trouble> {
        self.count(store, &[Tallied::Place(place)], now).await
    }

    /// Takes a try from a place back: it ended well.
    pub(crate) async fn forgive_place(
        &self,
        store: &Store,
        place: Place,
        now: Micros,
    ) -> Result<(), Trouble> {
        let hash = Tallied::Place(place).hash(&self.0);
        let less = |tallies: &mut [AttemptCounter]| {
            for tally in tallies {
                tally.tries = tally.tries.saturating_sub(1).max(0);
            }
            Ok::<(), Trouble>(())
        };
        store.change_attempts(&[hash], now, less).await
    }

    async fn count(&self, store: &Store, all: &[Tallied<'_>], now: Micros) -> Result<(), Trouble> {
        let Self(rates) = self;
        let mut counted: Vec<(Vec<u8>, i64)> =
            all.iter().map(|tallied| (tallied.hash(rates), tallied.free(rates))).collect();
        // As the store hands them out.
        counted.sort_unstable();
        let (hashes, free): (Vec<Vec<u8>>, Vec<i64>) = counted.into_iter().unzip();
        let count =
            |tallies: &mut [AttemptCounter]| rates.count(tallies, &free, now).map_err(Trouble::TooOften);
        store.change_attempts(&hashes, now, count).await?;
        store.drop_old_attempts(now.saturating_sub(FORGOTTEN)).await?;
        Ok(())
    }

    /// Forgets what was counted for a name from a place: the password was right. The tally of the
    /// address stays, or one good account would pay for guessing all others.
    pub(crate) async fn forgive(
        &self,
        store: &Store,
        name: &str,
        place: Place,
        now: Micros,
    ) -> Result<(), Trouble> {
        let name = &*name.to_lowercase();
        let both = [Tallied::NameAndPlace(name, place), Tallied::Name(name)];
        store.drop_attempts(&both.map(|tallied| tallied.hash(&self.0))).await?;
        self.forgive_place(store, place, now).await
    }
}

impl Rates {
    /// Counts a try in each tally. The error is how many seconds to wait.
    fn count(&self, tallies: &mut [AttemptCounter], free: &[i64], now: Micros) -> Result<(), u64> {
        let waits = tallies.iter().map(|tally| tally.closed_until.saturating_sub(now));
        let wait = waits.max().unwrap_or(0);
        if wait > 0 {
            return Err(u64::try_from(wait.div_euclid(SECOND) + 1).unwrap_or(1));
        }
        for (tally, free) in tallies.iter_mut().zip(free) {
            if now.saturating_sub(tally.last) > self.memory {
                tally.tries = 0;
            }
            tally.tries = tally.tries.saturating_add(1);
            tally.last = now;
            if tally.tries >= *free {
                let doublings = (tally.tries - free).min(10);
                let wait = self.first_wait.saturating_mul(1 << doublings).min(self.longest_wait);
                tally.closed_until = now.saturating_add(wait);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Place = Place::V4([192, 0, 2, 1]);
    const AWAY: Place = Place::V4([192, 0, 2, 2]);

    /// A throttle, and the store that all nodes count in.
    struct Nodes(Throttle, Store);

    impl Nodes {
        async fn of(rates: Rates) -> Self {
            Self(Throttle(rates), Store::open("sqlite::memory:").await.unwrap())
        }

        /// A try; the error is how long to wait.
        async fn admit(&self, name: &str, place: Place, now: Micros) -> Result<(), u64> {
            match self.0.admit(&self.1, name, place, now).await {
                Ok(()) => Ok(()),
                Err(Trouble::TooOften(wait)) => Err(wait),
                Err(other) => panic!("{other:?}"),
            }
        }

        async fn forgive(&self, name: &str, place: Place) {
            self.0.forgive(&self.1, name, place, 0).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_eleventh_try_for_a_name_waits_and_each_further_one_longer() {
        let nodes = Nodes::of(SIGN_IN).await;
        for _ in 0..10 {
            assert_eq!(nodes.admit("anna", HOME, 0).await, Ok(()));
        }
        let first = nodes.admit("Anna", HOME, 0).await.unwrap_err();
        assert!(nodes.admit("bert", HOME, 0).await.is_ok(), "another name is not held up");
        assert!(nodes.admit("anna", AWAY, 0).await.is_ok(), "nor the same one elsewhere");
        let later = SIGN_IN.first_wait + 1;
        assert_eq!(nodes.admit("anna", HOME, later).await, Ok(()));
        let second = nodes.admit("anna", HOME, later).await.unwrap_err();
        assert!(second > first, "{second} {first}");
        let mut now = later;
        for _ in 0..40 {
            now += SIGN_IN.longest_wait + 1;
            assert_eq!(nodes.admit("anna", HOME, now).await, Ok(()), "the wait has an end");
        }
    }

    #[tokio::test]
    async fn an_address_cannot_guess_at_many_names() {
        let nodes = Nodes::of(SIGN_IN).await;
        let mut tries = 0;
        for n in 0..200 {
            tries += usize::from(nodes.admit(&format!("n{n}"), HOME, 0).await.is_ok());
        }
        assert_eq!(tries, 50);
    }

    #[tokio::test]
    async fn a_right_password_clears_its_name_and_time_clears_everything() {
        let nodes = Nodes::of(SIGN_IN).await;
        for _ in 0..30 {
            assert_eq!(nodes.admit("anna", HOME, 0).await, Ok(()));
            nodes.forgive("anna", HOME).await;
        }
        for _ in 0..10 {
            nodes.admit("anna", HOME, 0).await.unwrap();
        }
        let later = SIGN_IN.memory + SIGN_IN.longest_wait;
        for _ in 0..10 {
            assert_eq!(nodes.admit("anna", HOME, later).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn three_mails_an_hour_and_no_more() {
        let nodes = Nodes::of(MAILS).await;
        let (minute, mut sent) = (60 * SECOND, 0);
        for n in 0..240 {
            let place = Place::V4([192, 0, 2, n as u8]);
            let tried = nodes.admit("anna@example.com", place, n * minute).await;
            sent += usize::from(tried.is_ok());
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
    fn what_is_counted_is_told_apart() {
        let all = [
            Tallied::NameAndPlace("anna", HOME),
            Tallied::NameAndPlace("anna", AWAY),
            Tallied::Name("anna"),
            Tallied::Place(HOME),
        ];
        let mut hashes: Vec<Vec<u8>> =
            [SIGN_IN, MAILS, CODES].iter().flat_map(|r| all.iter().map(|t| t.hash(r))).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 12);
    }
}
