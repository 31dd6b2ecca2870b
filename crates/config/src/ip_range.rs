//! IP addresses and networks in the configuration and on keys.

use ipnet::IpNet;
use std::net::IpAddr;

/// An IP address or a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange(IpNet);

/// Text that is not an IP address or network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an IP address or network; write for instance 192.0.2.7 or 10.0.0.0/8")]
pub struct IpRangeError(String);

impl From<IpRangeError> for String {
    fn from(error: IpRangeError) -> Self {
        error.to_string()
    }
}

impl IpRange {
    /// Parses `192.0.2.7`, `10.0.0.0/8` or `2001:db8::/32`.
    pub fn parse(text: &str) -> Result<Self, IpRangeError> {
        let invalid = || IpRangeError(text.to_owned());
        let text = text.trim();
        let alone = || text.parse::<IpAddr>().map(IpNet::from);
        let net: IpNet = text.parse().or_else(|_| alone()).map_err(|_| invalid())?;
        // An IPv4-mapped IPv6 address (RFC 4291, section 2.5.5.2) means the IPv4 address.
        match net.addr().to_canonical() {
            address @ IpAddr::V4(_) if net.addr().is_ipv6() => {
                let prefix = net.prefix_len().checked_sub(96).ok_or_else(invalid)?;
                IpNet::new(address, prefix).map(Self).map_err(|_| invalid())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(Self(net)),
        }
    }

    /// Returns true if the address is in this range.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns true if every address of the other range is in this one.
    pub fn covers(self, other: Self) -> bool {
        self.0.contains(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpRange {
        IpRange::parse(text).unwrap()
    }

    #[test]
    fn range_contains_only_its_addresses() {
        let cases = [
            ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("10.1.2.3/8", "10.9.9.9", "::1"),
            ("192.168.1.128/25", "192.168.1.200", "192.168.1.127"),
            ("2001:db8::/32", "2001:db8:1::1", "2001:db9::1"),
            ("::1", "::1", "127.0.0.1"),
            ("192.0.2.7", "::ffff:192.0.2.7", "::192.0.2.7"),
            ("::ffff:10.0.0.0/104", "10.1.1.1", "11.1.1.1"),
        ];
        for (text, inside, outside) in cases {
            assert!(net(text).contains(inside.parse().unwrap()), "{inside} in {text}");
            assert!(!net(text).contains(outside.parse().unwrap()), "{outside} not in {text}");
        }
        assert!(net("0.0.0.0/0").contains("203.0.113.1".parse().unwrap()));
        assert!(!net("0.0.0.0/0").contains("2001:db8::1".parse().unwrap()));
        for invalid in
            ["", "10", "10.0.0.0/33", "::/129", "a.b.c.d", "10.0.0.0/-1", "::ffff:1.2.3.4/8"]
        {
            assert!(IpRange::parse(invalid).is_err(), "{invalid}");
        }
    }
}
