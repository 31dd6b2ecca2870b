//! Which addresses a caller may name for media: public HTTPS, and nothing that could mean a
//! machine of ours. The connection itself is guarded where it is made; this is the early no.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const LONGEST: usize = 8_192;
const RULE: &str = "must be a public HTTPS address";

/// What is wrong with an address.
pub(super) fn broken(uri: &str) -> Option<&'static str> {
    let plain = uri.len() <= LONGEST
        && !uri.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\');
    let rest = uri.get(..8).filter(|scheme| scheme.eq_ignore_ascii_case("https://"));
    let Some(rest) = rest.and_then(|_| uri.get(8..)).filter(|_| plain) else { return Some(RULE) };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Some("must not hold a user name");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => match inner.split_once(']') {
            Some((host, after)) => (host, after.strip_prefix(':')),
            None => return Some(RULE),
        },
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if !port.is_none_or(|port| matches!(port, "443" | "8443")) {
        return Some("must use the usual HTTPS port");
    }
    let public = if authority.starts_with('[') { public_v6(host) } else { public_name(host) };
    (!public).then_some(RULE)
}

fn public_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return public_v4(address);
    }
    let letters =
        host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let Some((front, last)) = host.rsplit_once('.') else { return false };
    // A last label that is a number makes the whole host an address in some odd spelling.
    let odd = last.starts_with(|c: char| c.is_ascii_digit());
    let inner = ["local", "localhost", "localdomain", "internal", "home", "lan", "test", "invalid"];
    letters && !odd && !front.is_empty() && !last.is_empty() && !inner.contains(&last)
}

const fn public_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || (a == 100 && b >= 64 && b < 128)
        || (a == 192 && b == 0)
        || (a == 198 && (b == 18 || b == 19)))
}

/// Only addresses in the block that is routed, and none that hides one of the old kind.
fn public_v6(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => routed(address),
        Ok(IpAddr::V4(_)) | Err(_) => false,
    }
}

const fn routed(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    first & 0xe000 == 0x2000
        && first != 0x2002
        && !(first == 0x2001 && (second == 0 || second == 0xdb8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_pass() {
        for uri in [
            "https://example.com/film.mp4",
            "HTTPS://youtu.be/x?y=z#w",
            "https://cdn.example.co.uk:443/a%20b",
            "https://8.8.8.8/x",
            "https://[2606:4700::1111]/x",
        ] {
            assert_eq!(broken(uri), None, "{uri}");
        }
    }

    #[test]
    fn everything_else_does_not() {
        for uri in [
            "",
            " ",
            "http://example.com/x",
            "gs://bucket/x",
            "https://127.0.0.1",
            "https://127.1",
            "https://2130706433",
            "https://0x7f000001",
            "https://0177.0.0.1",
            "https://127.0.0.1.",
            "https://0.0.0.0",
            "https://0",
            "https://[::]",
            "https://[::1]",
            "https://[::ffff:127.0.0.1]",
            "https://[64:ff9b::7f00:1]",
            "https://[2002:7f00:1::]",
            "https://[fe80::1%25eth0]",
            "https://[fd00:ec2::254]",
            "https://169.254.169.254",
            "https://metadata.google.internal",
            "https://100.100.100.200",
            "https://10.0.0.1",
            "https://192.168.0.1",
            "https://100.64.0.1",
            "https://198.18.0.1",
            "https://240.0.0.1",
            "https://localhost",
            "https://LOCALHOST.",
            "https://foo.local",
            "https://u:p@example.com",
            "https://example.com@127.0.0.1",
            "https://127.0.0.1\\@example.com",
            "https://example.com:22",
            "https://example.com:65536",
            "https://①②⑦.⓪.⓪.①",
            "https://127。0。0。1",
            "file:///etc/passwd",
            "data:image/png;base64,AA",
            "https:host",
            "//host",
            "HTTPS:/\\host",
            "https:///x",
            "https://a b.com",
            "https://[::1",
        ] {
            assert!(broken(uri).is_some(), "{uri}");
        }
    }
}
