//! Limits of requests without a key: pages, public addresses and wrong keys, by the network they come
//! from.

use canon::ApiError;
use config::GateLimits;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use store::RateLimits;
use transport::network_of;

use super::rate_window::RateWindow;
use super::{RateLimiter, limit_error};

/// Networks that are counted. A caller with more of them than this starts anew with each.
const MAX_NETWORKS: usize = 50_000;

/// Kind of request without a key. Each has its own count, so that a program with a wrong key does not
/// keep people out of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkUse {
    /// Pages, and addresses that take no key.
    Public,
    /// Requests whose key is missing or wrong.
    WrongKey,
    /// Requests of identity providers that manage people.
    Provisioning,
}

/// Use by networks, in two generations: if the younger one is full, it replaces the older one. So the
/// table has a limit, a lookup is constant work, and what was used lately stays.
#[derive(Debug, Default)]
pub(super) struct NetworkTable {
    young: HashMap<(IpAddr, NetworkUse), Arc<RateWindow>>,
    old: HashMap<(IpAddr, NetworkUse), Arc<RateWindow>>,
}

impl NetworkTable {
    fn window(&mut self, network: (IpAddr, NetworkUse)) -> Arc<RateWindow> {
        if let Some(window) = self.young.get(&network) {
            return Arc::clone(window);
        }
        let window = self.old.remove(&network).unwrap_or_default();
        if self.young.len() >= MAX_NETWORKS / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(network, Arc::clone(&window));
        window
    }
}

impl RateLimiter {
    /// Admits a request without a key, or returns an error with the time to retry after.
    pub fn admit_network(
        &self,
        client: SocketAddr,
        kind: NetworkUse,
        gate: &GateLimits,
    ) -> Result<NetworkPermit, ApiError> {
        let window = self.networks.lock().window((network_of(client.ip()), kind));
        let limits = RateLimits {
            rpm: Some(gate.public_rpm),
            tpm: None,
            concurrency: Some(gate.public_running),
        };
        if window.limits() != Some(limits) {
            window.set_limits(limits);
        }
        let admitted = window.admit(self.clock.now(), 1, false);
        admitted.map_err(|exceeded| limit_error(exceeded, "network"))?;
        Ok(NetworkPermit(window))
    }
}

/// Place of a request without a key. Dropping it frees the place.
#[derive(Debug)]
pub struct NetworkPermit(Arc<RateWindow>);

impl Drop for NetworkPermit {
    fn drop(&mut self) {
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::ErrorKind;
    use ledger::SystemClock;
    use std::net::Ipv6Addr;

    const GATE: GateLimits = GateLimits {
        body: 1,
        buffered: 1,
        buffered_per_key: 1,
        free_rpm: 1,
        free_running: 1,
        public_rpm: 3,
        public_running: 2,
    };

    fn admit(
        limiter: &RateLimiter,
        address: &str,
        kind: NetworkUse,
    ) -> Result<NetworkPermit, ApiError> {
        limiter.admit_network(SocketAddr::new(address.parse().unwrap(), 1), kind, &GATE)
    }

    #[test]
    fn networks_have_a_rate_and_a_number_at_once() {
        let limiter = RateLimiter::new(Arc::new(SystemClock), None);
        for [first, same, other] in [
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"],
            ["2001:db8::1", "2001:db8::ffff:1:2:3", "2001:db8:0:1::1"],
        ] {
            let public = |address| admit(&limiter, address, NetworkUse::Public);
            let running = [public(first).unwrap(), public(same).unwrap()];
            assert!(public(first).is_err(), "two run already");
            drop(running);
            assert!(public(same).is_ok());
            let error = public(first).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::RateLimited);
            assert!(error.retry_after().is_some());
            assert!(public(other).is_ok());
            assert!(admit(&limiter, first, NetworkUse::WrongKey).is_ok());
        }
    }

    #[test]
    fn the_table_of_networks_has_a_limit_and_keeps_what_is_used() {
        let limiter = RateLimiter::new(Arc::new(SystemClock), None);
        let mut refused = 0;
        for number in 0..3 * MAX_NETWORKS {
            let address = IpAddr::V6(Ipv6Addr::from_bits((number as u128) << 64));
            let address = SocketAddr::new(address, 1);
            drop(limiter.admit_network(address, NetworkUse::Public, &GATE));
            if number % 1_000 == 0 {
                refused += u32::from(admit(&limiter, "192.0.2.1", NetworkUse::Public).is_err());
            }
            let table = limiter.networks.lock();
            assert!(table.young.len() + table.old.len() <= MAX_NETWORKS);
        }
        assert_eq!(refused, 147, "all but the first three");
    }
}
