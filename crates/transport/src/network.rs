//! The network of a caller, by which its connections and requests are counted.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the network of one customer: an IPv4 address, or the /64 of an IPv6 address
/// (<https://www.rfc-editor.org/rfc/rfc6177>).
#[must_use]
pub fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_customer_are_one_network() {
        let network = |text: &str| network_of(text.parse().unwrap());
        for [first, same, other] in [
            ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"],
            ["2001:db8::1", "2001:db8::ffff:1:2:3", "2001:db8:0:1::1"],
        ] {
            assert_eq!(network(first), network(same));
            assert_ne!(network(first), network(other));
        }
    }
}
