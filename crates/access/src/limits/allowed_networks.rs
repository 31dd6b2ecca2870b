//! Networks a key may be used from, IPv4 and IPv6.

use canon::{ApiError, ErrorKind};
use std::net::{IpAddr, SocketAddr};

use config::IpRange;
use transport::{HeaderBlock, visible_text};

use crate::keys::ApiKey;

/// Refuses a request from an address outside the networks of its key.
pub fn check(
    trusted_proxies: &[IpRange],
    key: &ApiKey,
    peer: SocketAddr,
    headers: &HeaderBlock,
) -> Result<(), ApiError> {
    if key.record.ips.is_empty() {
        return Ok(());
    }
    let refused = || {
        ApiError::new(ErrorKind::Forbidden, "this API key may not be used from this address")
            .with_code("address_not_allowed")
    };
    match caller_address(peer.ip(), &forwarded_for(headers), trusted_proxies) {
        Some(caller) if key.allowed_networks.iter().any(|net| net.contains(caller)) => Ok(()),
        Some(_) | None => Err(refused()),
    }
}

/// Returns the address a request came from, seen through trusted proxies. An address the proxy
/// wrote unreadably is replaced by the proxy's own.
pub fn client_address(
    trusted_proxies: &[IpRange],
    peer: SocketAddr,
    headers: &HeaderBlock,
) -> SocketAddr {
    match caller_address(peer.ip(), &forwarded_for(headers), trusted_proxies) {
        Some(caller) if caller != peer.ip() => SocketAddr::new(caller, 0),
        Some(_) | None => peer,
    }
}

/// All `X-Forwarded-For` headers as one list.
fn forwarded_for(headers: &HeaderBlock) -> String {
    let forwarded = headers.get_all("x-forwarded-for");
    let texts: Vec<&str> = forwarded.map(|value| visible_text(value).unwrap_or("?")).collect();
    texts.join(",")
}

/// Returns the caller's address: the peer, or behind trusted proxies the last address in
/// `X-Forwarded-For` that is not a trusted proxy
/// (<https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/X-Forwarded-For>).
///
/// Returns `None` if a trusted proxy sent an unreadable address.
fn caller_address(peer: IpAddr, forwarded: &str, trusted: &[IpRange]) -> Option<IpAddr> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|net| net.contains(address));
    let mut caller = peer;
    // Addresses left of the first untrusted one can be forged by it.
    for text in forwarded.rsplit(',').map(str::trim).filter(|text| !text.is_empty()) {
        if !is_trusted(caller) {
            break;
        }
        caller = parse_address(text)?;
    }
    Some(caller)
}

/// Parses an address as proxies write it: bare, in brackets, or with a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpRange {
        IpRange::parse(text).unwrap()
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        let trusted = [net("10.0.0.0/8"), net("fd00::/8")];
        let resolve = |peer: &str, forwarded: &str| {
            caller_address(peer.parse().unwrap(), forwarded, &trusted)
                .map(|address| address.to_string())
        };
        let is = |address: &str| Some(address.to_owned());
        assert_eq!(
            resolve("192.0.2.1", "198.51.100.9"),
            is("192.0.2.1"),
            "an untrusted peer is not believed"
        );
        assert_eq!(resolve("10.0.0.1", ""), is("10.0.0.1"));
        assert_eq!(resolve("10.0.0.1", "198.51.100.9"), is("198.51.100.9"));
        assert_eq!(
            resolve("10.0.0.1", "1.1.1.1, 198.51.100.9"),
            is("198.51.100.9"),
            "forged addresses are ignored"
        );
        assert_eq!(resolve("10.0.0.1", "198.51.100.9, 10.0.0.2"), is("198.51.100.9"));
        assert_eq!(resolve("10.0.0.1", "10.0.0.3, 10.0.0.2"), is("10.0.0.3"), "all are trusted");
        assert_eq!(resolve("fd00::1", "[2001:db8::5]:4711, fd00::2"), is("2001:db8::5"));
        assert_eq!(resolve("10.0.0.1", "198.51.100.9:80"), is("198.51.100.9"));
        assert_eq!(resolve("10.0.0.1", "198.51.100.9, unknown"), None, "unreadable");
    }
}
