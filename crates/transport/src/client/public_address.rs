//! Public IP addresses and host names, which anyone on the internet could reach.
//!
//! A reserved block is not public, even if a machine answers there. The blocks are those of
//! <https://www.iana.org/assignments/iana-ipv4-special-registry/> and
//! <https://www.iana.org/assignments/iana-ipv6-special-registry/>, and addresses that clouds use
//! for metadata.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Reserved IPv4 blocks, as first address and prefix length.
const RESERVED_V4: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),        // this network
    (Ipv4Addr::new(10, 0, 0, 0), 8),       // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),    // carriers, and the metadata of one cloud
    (Ipv4Addr::new(127, 0, 0, 0), 8),      // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // the host of every machine of one cloud
    (Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, and the metadata of most clouds
    (Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),     // protocols, and the metadata of one cloud
    (Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24),  // AS112
    (Ipv4Addr::new(192, 52, 193, 0), 24),  // AMT
    (Ipv4Addr::new(192, 88, 99, 0), 24),   // relays of 6to4
    (Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 3),      // multicast, reserved, broadcast
];

/// Reserved blocks within the routed part of IPv6, 2000::/3.
const RESERVED_V6: [(Ipv6Addr, u32); 6] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocols: Teredo, benchmarks, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3ffe, 0, 0, 0, 0, 0, 0, 0), 16), // 6bone, given back
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Top-level names that never belong to a machine on the internet: special-use names (RFC 6761) and
/// names common in private networks.
const INNER_NAMES: [&str; 18] = [
    "alt",
    "arpa",
    "consul",
    "corp",
    "home",
    "internal",
    "intra",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "pod",
    "private",
    "svc",
    "test",
];

/// Returns true if anyone on the internet could reach this address.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Returns true if a host, a name or an address, could be on the internet. A name is not resolved.
pub fn is_public_host(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse() {
        Ok(address) => is_public(address),
        Err(_) => is_public_name(host.trim_end_matches('.')),
    }
}

/// Returns true for link-local addresses, which most clouds use for metadata.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(inner) => inner.is_link_local(),
            None => address.is_unicast_link_local(),
        },
    }
}

/// Returns true if a name may belong to a machine on the internet. It has a dot, its last label
/// does not begin with a digit (it could be an IP address in an odd spelling), and the last label
/// is not in [`INNER_NAMES`].
pub(crate) fn is_public_name(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let Some((front, last)) = name.rsplit_once('.') else { return false };
    plain
        && name.len() <= 253
        && !name.split('.').any(str::is_empty)
        && !front.is_empty()
        && !last.starts_with(|c: char| c.is_ascii_digit())
        && !INNER_NAMES.iter().any(|inner| last.eq_ignore_ascii_case(inner))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    !RESERVED_V4.iter().any(|(first, length)| (bits ^ first.to_bits()) >> (32 - length) == 0)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    // NAT64 (RFC 6052, section 2.1) embeds the IPv4 address.
    if bits >> 32 == 0x0064_ff9b_u128 << 64 {
        return is_public_v4(last_v4(address));
    }
    let routed = bits >> 125 == 0b001;
    let reserved =
        RESERVED_V6.iter().any(|(first, length)| (bits ^ first.to_bits()) >> (128 - length) == 0);
    // ISATAP (RFC 5214, section 6.1) embeds an IPv4 address behind any prefix.
    let [.., mark, embeds, _, _] = address.segments();
    let isatap = embeds == 0x5efe && matches!(mark, 0 | 0x200);
    routed && !reserved && (!isatap || is_public_v4(last_v4(address)))
}

/// Returns the IPv4 address in the last four bytes.
const fn last_v4(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The blocks as independent conditions, to catch an error in the table.
    fn forbidden(address: Ipv4Addr) -> bool {
        let [a, b, c, d] = address.octets();
        address.is_private()
            || address.is_loopback()
            || address.is_link_local()
            || address.is_broadcast()
            || address.is_documentation()
            || address.is_multicast()
            || a == 0
            || a >= 240
            || (a == 100 && (64..128).contains(&b))
            || (a == 198 && (b == 18 || b == 19))
            || ([a, b] == [192, 0] && (c == 0 || c == 2))
            || matches!([a, b, c], [192, 88, 99] | [192, 31, 196] | [192, 52, 193])
            || [a, b, c, d] == [168, 63, 129, 16]
    }

    /// Returns every IPv6 address that embeds this IPv4 address.
    fn embeddings(address: Ipv4Addr, prefix: u128) -> Vec<Ipv6Addr> {
        let v4 = u128::from(address.to_bits());
        let global = (0b001 << 125) | ((prefix >> 3) & !0u128 << 64);
        vec![
            Ipv6Addr::from_bits(0xffff << 32 | v4),            // mapped
            Ipv6Addr::from_bits(v4),                           // compatible
            Ipv6Addr::from_bits(0xffff << 48 | v4),            // translated
            Ipv6Addr::from_bits(0x0064_ff9b << 96 | v4),       // NAT64
            Ipv6Addr::from_bits(0x0064_ff9b_0001 << 80 | v4),  // NAT64 of one's own
            Ipv6Addr::from_bits(0x2002 << 112 | v4 << 80),     // 6to4
            Ipv6Addr::from_bits(0x2001_0000 << 96 | v4 << 64), // Teredo server
            Ipv6Addr::from_bits(0x2001_0000 << 96 | (v4 ^ 0xffff_ffff)), // Teredo client
            Ipv6Addr::from_bits(global | 0x5efe << 32 | v4),   // ISATAP
            Ipv6Addr::from_bits(global | 0x0200_5efe << 32 | v4), // ISATAP
            Ipv6Addr::from_bits(0xfe80 << 112 | v4),           // link-local
            Ipv6Addr::from_bits(0xfd00 << 112 | v4),           // unique-local
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn ipv4_is_public_outside_reserved_blocks(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(is_public(address.into()), !forbidden(address), "{}", address);
        }

        #[test]
        fn reserved_ipv4_stays_private_when_embedded_in_ipv6(
            block in 0..RESERVED_V4.len(), host: u32, prefix: u128,
        ) {
            let (first, length) = RESERVED_V4[block];
            let address = Ipv4Addr::from_bits(first.to_bits() | (u64::from(host) % (1 << (32 - length))) as u32);
            prop_assert!(forbidden(address), "{}", address);
            prop_assert!(!is_public(address.into()), "{}", address);
            for dressed in embeddings(address, prefix) {
                prop_assert!(!is_public(dressed.into()), "{} as {}", address, dressed);
            }
        }

        #[test]
        fn only_routed_ipv6_and_nat64_are_public(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            if is_public(address.into()) {
                prop_assert!(bits >> 125 == 1 || bits >> 32 == 0x0064_ff9b << 64, "{}", address);
            }
        }
    }

    #[test]
    fn edges_of_reserved_blocks_are_exact() {
        for (first, length) in RESERVED_V4 {
            let (low, size) = (first.to_bits(), 1u64 << (32 - length));
            let high = u32::try_from(u64::from(low) + size - 1).unwrap();
            assert!(!is_public(first.into()) && !is_public(Ipv4Addr::from_bits(high).into()));
            for outside in [low.checked_sub(1), high.checked_add(1)].into_iter().flatten() {
                let outside = Ipv4Addr::from_bits(outside);
                assert_eq!(is_public(outside.into()), !forbidden(outside), "{outside}");
            }
        }
        for text in ["8.8.8.8", "1.1.1.1", "168.63.129.17", "2606:4700::1111", "64:ff9b::8.8.8.8"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
        for text in [
            "::",
            "::1",
            "::ffff:8.8.8.8",
            "fe80::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001::1",
            "2001:2::1",
            "2001:db8::1",
            "2002:808:808::",
            "3fff::1",
            "5f00::1",
            "100::1",
            "fec0::1",
            "64:ff9b:1::8.8.8.8",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn recognises_names_of_private_networks() {
        for name in ["example.com", "cdn.example.co.uk", "a_b.example.org", "xn--mnchen-3ya.de"] {
            assert!(is_public_name(name), "{name}");
        }
        for name in [
            "",
            "localhost",
            "com",
            "metadata.google.internal",
            "foo.local",
            "a.localhost",
            "localhost.localdomain",
            "x.home.arpa",
            "1.2.3",
            "a..b.com",
            ".com",
            "example.com.",
            "a b.com",
            "münchen.de",
            "0x7f.1",
            "kubernetes.default.svc",
            "10-1-2-3.ns.pod",
            "db.service.consul",
        ] {
            assert!(!is_public_name(name), "{name}");
        }
    }
}
