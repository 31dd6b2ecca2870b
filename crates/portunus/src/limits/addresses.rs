//! From where a key may be used: single addresses and whole networks, of both kinds.

use canon::{Fault, Trouble};
use http::HeaderMap;
use ipnet::IpNet;
use std::net::{IpAddr, SocketAddr};

use crate::app::App;
use crate::keys::Key;

/// An address, or a network of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Net(IpNet);

impl Net {
    /// Reads `192.0.2.7`, `10.0.0.0/8`, `2001:db8::/32`.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is no address or network; write for instance 192.0.2.7 or 10.0.0.0/8")
        };
        let text = text.trim();
        let alone = || text.parse::<IpAddr>().map(IpNet::from);
        let net: IpNet = text.parse().or_else(|_| alone()).map_err(|_| wrong())?;
        // An IPv4 address in the clothes of IPv6 is the same address, and so is its network.
        match net.addr().to_canonical() {
            address @ IpAddr::V4(_) if net.addr().is_ipv6() => {
                let prefix = net.prefix_len().checked_sub(96).ok_or_else(wrong)?;
                IpNet::new(address, prefix).map(Self).map_err(|_| wrong())
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(Self(net)),
        }
    }

    /// Whether the address is in it.
    pub(crate) fn holds(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

/// Refuses a request that comes from where its key may not be used.
pub(crate) fn check(
    app: &App,
    key: &Key,
    peer: SocketAddr,
    headers: &HeaderMap,
) -> Result<(), Fault> {
    if key.record.ips.is_empty() {
        return Ok(());
    }
    let refused = || {
        Fault::new(Trouble::Forbidden, "this API key may not be used from this address")
            .code("address_not_allowed")
    };
    let forwarded = headers.get_all("x-forwarded-for");
    let texts: Vec<&str> = forwarded.iter().map(|value| value.to_str().unwrap_or("?")).collect();
    match caller(peer.ip(), &texts.join(","), &app.config().trusted_proxies) {
        Some(caller) if key.places.iter().any(|net| net.holds(caller)) => Ok(()),
        Some(_) | None => Err(refused()),
    }
}

/// Who calls: the peer, or where the peer is a trusted proxy the nearest one to it that is none.
/// `None` where a trusted proxy says what cannot be read.
fn caller(peer: IpAddr, forwarded: &str, trusted: &[Net]) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.holds(address));
    let mut caller = peer;
    // Whatever stands left of the first stranger is that stranger's own claim.
    for text in forwarded.rsplit(',').map(str::trim).filter(|text| !text.is_empty()) {
        if !is_trusted(caller) {
            break;
        }
        caller = address(text)?;
    }
    Some(caller)
}

/// An address as proxies write it: bare, in brackets, or with a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Net {
        Net::read(text).unwrap()
    }

    #[test]
    fn networks_hold_what_they_say_and_nothing_else() {
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
            assert!(net(text).holds(inside.parse().unwrap()), "{inside} in {text}");
            assert!(!net(text).holds(outside.parse().unwrap()), "{outside} not in {text}");
        }
        assert!(net("0.0.0.0/0").holds("203.0.113.1".parse().unwrap()));
        assert!(!net("0.0.0.0/0").holds("2001:db8::1".parse().unwrap()));
        for wrong in
            ["", "10", "10.0.0.0/33", "::/129", "a.b.c.d", "10.0.0.0/-1", "::ffff:1.2.3.4/8"]
        {
            assert!(Net::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_trusted_proxies_are_believed_and_from_the_right() {
        let trusted = [net("10.0.0.0/8"), net("fd00::/8")];
        let told = |peer: &str, forwarded: &str| {
            caller(peer.parse().unwrap(), forwarded, &trusted).map(|address| address.to_string())
        };
        let is = |address: &str| Some(address.to_owned());
        assert_eq!(told("192.0.2.1", "198.51.100.9"), is("192.0.2.1"), "a stranger says nothing");
        assert_eq!(told("10.0.0.1", ""), is("10.0.0.1"));
        assert_eq!(told("10.0.0.1", "198.51.100.9"), is("198.51.100.9"));
        assert_eq!(told("10.0.0.1", "1.1.1.1, 198.51.100.9"), is("198.51.100.9"), "a forged head");
        assert_eq!(told("10.0.0.1", "198.51.100.9, 10.0.0.2"), is("198.51.100.9"));
        assert_eq!(told("10.0.0.1", "10.0.0.3, 10.0.0.2"), is("10.0.0.3"), "all of them ours");
        assert_eq!(told("fd00::1", "[2001:db8::5]:4711, fd00::2"), is("2001:db8::5"));
        assert_eq!(told("10.0.0.1", "198.51.100.9:80"), is("198.51.100.9"));
        assert_eq!(told("10.0.0.1", "198.51.100.9, unknown"), None, "what cannot be read");
    }
}
