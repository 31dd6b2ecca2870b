//! Throttling of sign-in attempts, codes, mails and lookups. Counters are in the store, so
//! spreading attempts over several nodes gains nothing.
//!
//! There are three counters: name and network, network, name. Each has some free attempts; after
//! these, every further attempt doubles the wait, up to a limit, so that no account is locked out
//! for good. An attempt is counted before the password is checked, so concurrent attempts cannot
//! pass together. A correct password clears the counters of its name.
//!
//! A browser in which the person has signed in before has a counter of its own in place of these
//! three, so that strangers who guess do not keep the person out.

use canon::Micros;
use std::net::IpAddr;
use store::{AttemptCounter, Store};
use transport::network_of;

use crate::page_error::PageError;
use admin::random;

/// Age at which counters are deleted.
const COUNTER_RETENTION: Micros = Micros::from_secs(3_600);

/// Free attempts, and the waits after them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThrottleLimits {
    /// Namespace of the counters.
    label: &'static str,
    per_name_and_network: i64,
    per_network: i64,
    per_name: i64,
    /// Time without attempts after which a counter starts at zero.
    reset_after: Micros,
    first_wait: Micros,
    max_wait: Micros,
}

/// Limits sign-in attempts.
pub(crate) const SIGN_IN_LIMITS: ThrottleLimits = ThrottleLimits {
    label: "sign-in",
    per_name_and_network: 10,
    per_network: 50,
    per_name: 100,
    reset_after: Micros::from_secs(600),
    first_wait: Micros::from_secs(15),
    max_wait: Micros::from_secs(300),
};

/// Limits mails to one address to three an hour, regardless of the requester.
pub(crate) const MAIL_LIMITS: ThrottleLimits = ThrottleLimits {
    label: "mails",
    per_name_and_network: 3,
    per_network: 20,
    per_name: 3,
    reset_after: Micros::from_secs(3_599),
    first_wait: Micros::from_secs(3_600),
    max_wait: Micros::from_secs(3_600),
};

/// Limits guesses of second-factor codes; there are only a million codes.
pub(crate) const CODE_LIMITS: ThrottleLimits = ThrottleLimits {
    label: "codes",
    per_name_and_network: 5,
    per_network: 50,
    per_name: 5,
    reset_after: Micros::from_secs(3_600),
    first_wait: Micros::from_secs(30),
    max_wait: Micros::from_secs(900),
};

/// Limits proofs of people who are signed in. A stolen session that uses them up must not keep the
/// person from the second step of a sign-in.
pub(crate) const PROOF_LIMITS: ThrottleLimits = ThrottleLimits { label: "proofs", ..CODE_LIMITS };

/// Limits guesses of the codes that agents show. There are 25 billion codes, which live for ten
/// minutes.
pub(crate) const DEVICE_LIMITS: ThrottleLimits = ThrottleLimits {
    label: "device codes",
    per_name_and_network: 10,
    per_network: 100,
    per_name: 20,
    reset_after: Micros::from_secs(600),
    first_wait: Micros::from_secs(15),
    max_wait: Micros::from_secs(600),
};

/// Limits lines in the audit log about refused passkeys and identities, by network.
pub(crate) const REFUSAL_LIMITS: ThrottleLimits = ThrottleLimits {
    label: "refusals",
    per_name_and_network: 20,
    per_network: 20,
    per_name: 20,
    reset_after: Micros::from_secs(600),
    first_wait: Micros::from_secs(60),
    max_wait: Micros::from_secs(600),
};

/// Limits lookups of account names by team managers.
pub(crate) const LOOKUP_LIMITS: ThrottleLimits = ThrottleLimits {
    label: "lookup",
    per_name_and_network: 20,
    per_network: 50,
    per_name: 20,
    reset_after: Micros::from_secs(3_600),
    first_wait: Micros::from_secs(60),
    max_wait: Micros::from_secs(3_600),
};

enum ThrottleKey<'a> {
    NameAndNetwork(&'a str, ClientNetwork),
    Network(ClientNetwork),
    Name(&'a str),
    /// A name in a browser that its account knows.
    Device(&'a str, &'a [u8]),
}

/// Source of an attempt. It decides the counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptSource {
    /// A browser that the account knows, by the digest of its token.
    Device(Vec<u8>),
    /// Any other browser.
    Network(ClientNetwork),
}

impl ThrottleKey<'_> {
    const fn free_attempts(&self, limits: &ThrottleLimits) -> i64 {
        match self {
            Self::NameAndNetwork(..) | Self::Device(..) => limits.per_name_and_network,
            Self::Network(_) => limits.per_network,
            Self::Name(_) => limits.per_name,
        }
    }

    /// Digest under which the counter is stored.
    fn hash(&self, limits: &ThrottleLimits) -> Vec<u8> {
        let what = limits.label;
        // The name comes last, because it can contain any text.
        random::digest(&match self {
            Self::NameAndNetwork(name, network) => format!("{what} both {network:?} {name}"),
            Self::Network(network) => format!("{what} place {network:?}"),
            Self::Name(name) => format!("{what} name {name}"),
            Self::Device(name, token) => format!("{what} device {} {name}", random::hex(token)),
        })
    }
}

/// Network of a client, as connections are counted. All attempts from unknown addresses share one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientNetwork(Option<IpAddr>);

impl ClientNetwork {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        Self(address.map(network_of))
    }
}

/// Counts attempts against limits.
pub(crate) struct Throttle(pub(crate) ThrottleLimits);

impl Throttle {
    /// Counts an attempt. Returns an error, and does not count, while a wait is running.
    pub(crate) async fn admit(
        &self,
        store: &Store,
        name: &str,
        network: ClientNetwork,
        now: Micros,
    ) -> Result<(), PageError> {
        let name = &*name.to_lowercase();
        let all = [
            ThrottleKey::NameAndNetwork(name, network),
            ThrottleKey::Network(network),
            ThrottleKey::Name(name),
        ];
        self.count(store, &all, now).await
    }

    /// Counts an attempt for a name from any network.
    pub(crate) async fn admit_name(
        &self,
        store: &Store,
        name: &str,
        now: Micros,
    ) -> Result<(), PageError> {
        self.count(store, &[ThrottleKey::Name(&name.to_lowercase())], now).await
    }

    /// Counts an attempt in the counters of its source.
    pub(crate) async fn admit_source(
        &self,
        store: &Store,
        name: &str,
        source: &AttemptSource,
        now: Micros,
    ) -> Result<(), PageError> {
        match source {
            AttemptSource::Device(token) => {
                let name = name.to_lowercase();
                self.count(store, &[ThrottleKey::Device(&name, token)], now).await
            }
            AttemptSource::Network(network) => self.admit(store, name, *network, now).await,
        }
    }

    /// Clears the counters of a source after a success. That of a known browser says nothing about
    /// attempts elsewhere, so their counters stay.
    pub(crate) async fn clear_source(
        &self,
        store: &Store,
        name: &str,
        source: &AttemptSource,
        now: Micros,
    ) -> Result<(), PageError> {
        match source {
            AttemptSource::Device(token) => {
                let name = name.to_lowercase();
                let key = ThrottleKey::Device(&name, token);
                Ok(store.drop_attempts(&[key.hash(&self.0)]).await?)
            }
            AttemptSource::Network(network) => self.clear_name(store, name, *network, now).await,
        }
    }

    /// Takes back one attempt after a success that says nothing about those before it.
    pub(crate) async fn uncount(
        &self,
        store: &Store,
        name: &str,
        network: ClientNetwork,
        now: Micros,
    ) -> Result<(), PageError> {
        let name = &*name.to_lowercase();
        let all = [
            ThrottleKey::NameAndNetwork(name, network),
            ThrottleKey::Network(network),
            ThrottleKey::Name(name),
        ];
        self.take_back(store, &all, now).await
    }

    /// Takes back one attempt in each of these counters.
    async fn take_back(
        &self,
        store: &Store,
        all: &[ThrottleKey<'_>],
        now: Micros,
    ) -> Result<(), PageError> {
        let mut hashes: Vec<Vec<u8>> = all.iter().map(|tallied| tallied.hash(&self.0)).collect();
        hashes.sort_unstable();
        let less = |tallies: &mut [AttemptCounter]| {
            for tally in tallies {
                tally.tries = tally.tries.saturating_sub(1).max(0);
            }
            Ok::<(), PageError>(())
        };
        store.change_attempts(&hashes, now, less).await
    }

    async fn count(
        &self,
        store: &Store,
        all: &[ThrottleKey<'_>],
        now: Micros,
    ) -> Result<(), PageError> {
        let Self(limits) = self;
        let mut counted: Vec<(Vec<u8>, i64)> = all
            .iter()
            .map(|tallied| (tallied.hash(limits), tallied.free_attempts(limits)))
            .collect();
        // The store returns counters in this order.
        counted.sort_unstable();
        let (hashes, free): (Vec<Vec<u8>>, Vec<i64>) = counted.into_iter().unzip();
        let count = |tallies: &mut [AttemptCounter]| {
            limits.record(tallies, &free, now).map_err(PageError::RateLimited)
        };
        store.change_attempts(&hashes, now, count).await?;
        store.drop_old_attempts(now - COUNTER_RETENTION).await?;
        Ok(())
    }

    /// Clears the counters of a name after a success. The network's counter is only reduced by one;
    /// otherwise one valid account would allow guessing all others.
    pub(crate) async fn clear_name(
        &self,
        store: &Store,
        name: &str,
        network: ClientNetwork,
        now: Micros,
    ) -> Result<(), PageError> {
        let name = &*name.to_lowercase();
        let both = [ThrottleKey::NameAndNetwork(name, network), ThrottleKey::Name(name)];
        store.drop_attempts(&both.map(|tallied| tallied.hash(&self.0))).await?;
        self.take_back(store, &[ThrottleKey::Network(network)], now).await
    }
}

impl ThrottleLimits {
    /// Counts an attempt in each counter. The error is the wait in seconds.
    fn record(&self, tallies: &mut [AttemptCounter], free: &[i64], now: Micros) -> Result<(), u64> {
        let waits = tallies.iter().map(|tally| tally.closed_until - now);
        let wait = waits.max().unwrap_or(Micros::ZERO);
        if wait > Micros::ZERO {
            return Err(u64::try_from(wait.as_secs() + 1).unwrap_or(1));
        }
        for (tally, free) in tallies.iter_mut().zip(free) {
            if now - tally.last > self.reset_after {
                tally.tries = 0;
            }
            tally.tries = tally.tries.saturating_add(1);
            tally.last = now;
            if tally.tries >= *free {
                let doublings = (tally.tries - free).min(10);
                let wait = (self.first_wait * (1 << doublings)).min(self.max_wait);
                tally.closed_until = now + wait;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const HOME: ClientNetwork = ClientNetwork(Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))));
    const AWAY: ClientNetwork = ClientNetwork(Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))));

    /// A throttle with its store.
    struct TestThrottle(Throttle, Store);

    impl TestThrottle {
        async fn of(limits: ThrottleLimits) -> Self {
            Self(Throttle(limits), Store::open("sqlite::memory:").await.unwrap())
        }

        /// Counts an attempt; the error is the wait in seconds.
        async fn admit(&self, name: &str, network: ClientNetwork, now: Micros) -> Result<(), u64> {
            match self.0.admit(&self.1, name, network, now).await {
                Ok(()) => Ok(()),
                Err(PageError::RateLimited(wait)) => Err(wait),
                Err(other) => panic!("{other:?}"),
            }
        }

        async fn forgive(&self, name: &str, network: ClientNetwork) {
            self.0.clear_name(&self.1, name, network, Micros::ZERO).await.unwrap();
        }
    }

    #[tokio::test]
    async fn eleventh_attempt_waits_and_waits_grow() {
        let nodes = TestThrottle::of(SIGN_IN_LIMITS).await;
        for _ in 0..10 {
            assert_eq!(nodes.admit("anna", HOME, Micros::ZERO).await, Ok(()));
        }
        let first = nodes.admit("Anna", HOME, Micros::ZERO).await.unwrap_err();
        assert!(
            nodes.admit("bert", HOME, Micros::ZERO).await.is_ok(),
            "another name is not held up"
        );
        assert!(
            nodes.admit("anna", AWAY, Micros::ZERO).await.is_ok(),
            "nor the same one elsewhere"
        );
        let later = SIGN_IN_LIMITS.first_wait + Micros::new(1);
        assert_eq!(nodes.admit("anna", HOME, later).await, Ok(()));
        let second = nodes.admit("anna", HOME, later).await.unwrap_err();
        assert!(second > first, "{second} {first}");
        let mut now = later;
        for _ in 0..40 {
            now += SIGN_IN_LIMITS.max_wait + Micros::new(1);
            assert_eq!(nodes.admit("anna", HOME, now).await, Ok(()), "the wait has an end");
        }
    }

    #[tokio::test]
    async fn network_limit_covers_many_names() {
        let nodes = TestThrottle::of(SIGN_IN_LIMITS).await;
        let mut tries = 0;
        for n in 0..200 {
            tries += usize::from(nodes.admit(&format!("n{n}"), HOME, Micros::ZERO).await.is_ok());
        }
        assert_eq!(tries, 50);
    }

    #[tokio::test]
    async fn success_clears_the_name_and_time_clears_all() {
        let nodes = TestThrottle::of(SIGN_IN_LIMITS).await;
        for _ in 0..30 {
            assert_eq!(nodes.admit("anna", HOME, Micros::ZERO).await, Ok(()));
            nodes.forgive("anna", HOME).await;
        }
        for _ in 0..10 {
            nodes.admit("anna", HOME, Micros::ZERO).await.unwrap();
        }
        let later = SIGN_IN_LIMITS.reset_after + SIGN_IN_LIMITS.max_wait;
        for _ in 0..10 {
            assert_eq!(nodes.admit("anna", HOME, later).await, Ok(()));
        }
    }

    #[tokio::test]
    async fn a_success_that_is_taken_back_pays_for_no_guess() {
        let nodes = TestThrottle::of(DEVICE_LIMITS).await;
        for _ in 0..8 {
            nodes.admit("anna", HOME, Micros::ZERO).await.unwrap();
            nodes.admit("anna", HOME, Micros::ZERO).await.unwrap();
            nodes.0.uncount(&nodes.1, "anna", HOME, Micros::ZERO).await.unwrap();
        }
        for _ in 8..10 {
            nodes.admit("anna", HOME, Micros::ZERO).await.unwrap();
        }
        assert!(nodes.admit("anna", HOME, Micros::ZERO).await.is_err());
    }

    #[tokio::test]
    async fn at_most_three_mails_an_hour() {
        let nodes = TestThrottle::of(MAIL_LIMITS).await;
        let (minute, mut sent) = (Micros::from_secs(60), 0);
        for n in 0..240 {
            let network = ClientNetwork::of(Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, n as u8))));
            let tried = nodes.admit("anna@example.com", network, n * minute).await;
            sent += usize::from(tried.is_ok());
        }
        assert!(sent <= 12, "{sent} mails in four hours");
        assert!(sent >= 4, "{sent}");
    }

    #[test]
    fn counters_have_distinct_digests() {
        let all = [
            ThrottleKey::NameAndNetwork("anna", HOME),
            ThrottleKey::NameAndNetwork("anna", AWAY),
            ThrottleKey::Name("anna"),
            ThrottleKey::Network(HOME),
            ThrottleKey::Device("anna", &[1]),
        ];
        let mut hashes: Vec<Vec<u8>> = [SIGN_IN_LIMITS, MAIL_LIMITS, CODE_LIMITS]
            .iter()
            .flat_map(|r| all.iter().map(|t| t.hash(r)))
            .collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 15);
    }
}
