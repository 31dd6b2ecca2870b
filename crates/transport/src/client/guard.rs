//! Which addresses callers may name: public ones, spelt plainly, and those the operator allows.
//!
//! There is one parser of addresses here, and what it understands must stand in the text letter by
//! letter: a spelling that another program could read in another way is refused.

use ipnet::IpNet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use url::{Host, Url};

use crate::client::public_address;
use crate::client::resolver::{LookupFuture, NameResolver};

/// The longest address.
const MAX_URL_BYTES: usize = 8_192;
/// The ports on which the public web serves over TLS.
const DEFAULT_PORTS: [u16; 2] = [443, 8443];

/// Who may be asked for what callers name.
#[derive(Clone, Debug)]
pub struct AddressGuard {
    allowed_hosts: Vec<AllowedHost>,
    allowed_ranges: Vec<IpNet>,
    ports: Vec<u16>,
    own_host: Option<String>,
}

impl Default for AddressGuard {
    fn default() -> Self {
        Self {
            allowed_hosts: Vec::new(),
            allowed_ranges: Vec::new(),
            ports: DEFAULT_PORTS.to_vec(),
            own_host: None,
        }
    }
}

/// A host the operator allows, on one port or on all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AllowedHost {
    host: String,
    port: Option<u16>,
}

/// An address that may be asked, if what its name resolves to may be dialled.
#[derive(Clone, Debug)]
pub struct FetchTarget {
    pub url: Url,
    pub host: Host<String>,
    pub port: u16,
    /// Whether the operator allows this very host.
    is_allowed_by_name: bool,
    /// Whether it could be named without the operator.
    is_public: bool,
}

impl FetchTarget {
    /// Whether it is asked over TLS.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether others can be sent there too: what only the operator's word lets in is ours alone.
    pub const fn is_public(&self) -> bool {
        self.is_public
    }

    /// The host in small letters, without the brackets of an address.
    pub fn host(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        }
    }
}

/// The address is none that may be named. It is not told which rule it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a public HTTPS address")
    }
}

impl std::error::Error for NotPublic {}

impl AddressGuard {
    /// A guard that lets public addresses pass, and besides: hosts (`cdn.example.com`), hosts with
    /// a port (`10.0.0.5:9000`) and ranges (`10.0.0.0/8`). `Err` names the entry that is none.
    pub fn new<'a>(allow: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut guard = Self::default();
        for entry in allow {
            if let Ok(range) = entry.parse::<IpNet>() {
                guard.allowed_ranges.push(range);
            } else {
                guard.allowed_hosts.push(parse_allowed_host(entry).ok_or_else(|| {
                    format!(
                        "`{entry}` is neither a host nor a range; write for instance \
                         \"cdn.example.com\", \"10.0.0.5:9000\" or \"10.0.0.0/8\""
                    )
                })?);
            }
        }
        Ok(guard)
    }

    /// The same guard, refusing the gateway's own address.
    #[must_use]
    pub fn refusing_own_host(mut self, public_url: &str) -> Self {
        self.own_host =
            Url::parse(public_url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
        self
    }

    /// The same guard, with other ports for public addresses.
    #[must_use]
    pub fn with_ports(self, ports: Vec<u16>) -> Self {
        Self { ports, ..self }
    }

    /// Looks at an address as a caller wrote it.
    pub fn check(&self, text: &str) -> Result<FetchTarget, NotPublic> {
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
        if text.len() > MAX_URL_BYTES || text.chars().any(odd) {
            return Err(NotPublic);
        }
        let url = Url::parse(text).map_err(|_| NotPublic)?;
        let target = self.check_url(url)?;
        let spelt =
            target.url.host_str().is_some_and(|host| is_spelled_plainly(text, &target.url, host));
        if spelt { Ok(target) } else { Err(NotPublic) }
    }

    /// The same names, without the addresses that none of ours may lead to.
    pub fn guard_resolver(&self, names: Arc<dyn NameResolver>) -> Arc<dyn NameResolver> {
        Arc::new(GuardedResolver { guard: self.clone(), resolver: names })
    }

    /// Where a target sends us on to: never to a place it could not be asked for itself, and never
    /// from TLS to plain text.
    pub fn check_redirect(
        &self,
        from: &FetchTarget,
        location: &str,
    ) -> Result<FetchTarget, NotPublic> {
        let url = from.url.join(location).map_err(|_| NotPublic)?;
        let to = self.check_url(url)?;
        if from.is_tls() && !to.is_tls() { Err(NotPublic) } else { Ok(to) }
    }

    /// Whether a connection to that address may be opened for the target.
    pub fn may_dial(&self, target: &FetchTarget, to: IpAddr) -> bool {
        self.may_resolve_to(target.is_allowed_by_name, to)
    }

    fn may_resolve_to(&self, named: bool, to: IpAddr) -> bool {
        let in_range = self.allowed_ranges.iter().any(|range| range.contains(&to));
        // A name that is allowed may lead into a private network, but not to the metadata of the
        // machine we run on: a name is only as good as whoever answers for it.
        let named = named && !public_address::is_link_local(to);
        public_address::is_public(to) || in_range || named
    }

    fn check_url(&self, url: Url) -> Result<FetchTarget, NotPublic> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotPublic);
        }
        let host = url.host().ok_or(NotPublic)?.to_owned();
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(NotPublic)?;
        let (public, in_range) = match &host {
            Host::Domain(name) => (public_address::is_public_name(name), false),
            Host::Ipv4(address) => self.classify_address((*address).into()),
            Host::Ipv6(address) => self.classify_address((*address).into()),
        };
        let text = url.host_str().unwrap_or_default();
        let named = self.allowed_hosts.iter().any(|allowed| {
            allowed.host == text && allowed.port.is_none_or(|allowed| allowed == port)
        });
        let ours = self.own_host.as_deref() == Some(text);
        let web = matches!(url.scheme(), "https" | "http");
        let public = public && !ours && url.scheme() == "https" && self.ports.contains(&port);
        if public || (web && (named || in_range)) {
            Ok(FetchTarget { url, host, port, is_allowed_by_name: named, is_public: public })
        } else {
            Err(NotPublic)
        }
    }

    fn classify_address(&self, address: IpAddr) -> (bool, bool) {
        let in_range = self.allowed_ranges.iter().any(|range| range.contains(&address));
        (public_address::is_public(address), in_range)
    }
}

/// Names that are looked up under a guard's eyes, each time anew: what a name led to when it was
/// configured says nothing of where it leads now.
struct GuardedResolver {
    guard: AddressGuard,
    resolver: Arc<dyn NameResolver>,
}

impl NameResolver for GuardedResolver {
    fn resolve(&self, name: &str) -> LookupFuture {
        let guard = self.guard.clone();
        let named =
            guard.allowed_hosts.iter().any(|allowed| allowed.host.eq_ignore_ascii_case(name));
        let finding = self.resolver.resolve(name);
        Box::pin(async move {
            let mut found = finding.await?;
            found.retain(|to| guard.may_resolve_to(named, *to));
            if found.is_empty() {
                let why = "the name leads to no public address, and to none that is allowed";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(found)
        })
    }
}

/// Reads an entry of the operator's list with the same parser as the addresses it is held against.
fn parse_allowed_host(entry: &str) -> Option<AllowedHost> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if entry.is_empty() || !entry.chars().all(plain) {
        return None;
    }
    let bare = entry.parse::<Ipv6Addr>();
    let entry = bare.map_or_else(|_| entry.to_ascii_lowercase(), |address| format!("[{address}]"));
    let url = Url::parse(&format!("http://{entry}/")).ok()?;
    let host = url.host_str()?;
    let port = match entry.strip_prefix(host)? {
        "" => None,
        rest => Some(rest.strip_prefix(':')?.parse().ok().filter(|port| *port != 0)?),
    };
    Some(AllowedHost { host: host.to_owned(), port })
}

/// Whether the text begins with the scheme and the host the parser found, in these very letters.
fn is_spelled_plainly(text: &str, url: &Url, host: &str) -> bool {
    let begin = format!("{}://{host}", url.scheme());
    let Some((head, rest)) = text.split_at_checked(begin.len()) else { return false };
    head.eq_ignore_ascii_case(&begin) && (rest.is_empty() || rest.starts_with(['/', '?', '#', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_public_addresses_pass() {
        let guard = AddressGuard::default();
        for text in [
            "https://example.com/film.mp4",
            "HTTPS://YouTu.be/x?y=z#w",
            "https://cdn.example.co.uk:443/a%20b",
            "https://example.com:8443/é",
            "https://8.8.8.8/x",
            "https://[2606:4700::1111]/x",
            "https://xn--mnchen-3ya.de/x",
        ] {
            assert!(guard.check(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_public_address_in_an_odd_spelling_does_not() {
        let guard = AddressGuard::default();
        for text in [
            "https://134744072/",
            "https://0x8.8.8.8/",
            "https://010.8.8.8/",
            "https://8.8.2056/",
            "https://8.8.8.8./",
            "https://⑧.⑧.⑧.⑧/",
            "https://8。8。8。8/",
            "https://[2606:4700:0:0:0:0:0:1111]/",
            "https://example.com./",
            "https://münchen.de/",
            "https://ｅxample.com/",
            "https://%65xample.com/",
            "https://exam\u{ad}ple.com/",
            "https:example.com/",
            "https:/example.com/",
            "https:///example.com/",
            "https://@example.com/",
            "https://:@example.com/",
            "https:\\\\example.com/",
            "https://example.com\\@example.org/",
            " https://example.com/",
            "https://example.com/a b",
            "https://exa\tmple.com/",
        ] {
            assert!(guard.check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_the_operator_allows_passes_and_nothing_beside_it() {
        let list = ["cdn.local", "10.0.0.5:9000", "[::1]:81", "192.168.7.0/24", "fd12::1"];
        let guard = AddressGuard::new(list).unwrap();
        for text in [
            "http://cdn.local/x",
            "https://CDN.local:1234/x",
            "http://10.0.0.5:9000/",
            "http://[::1]:81/",
            "http://192.168.7.9:8000/",
            "http://[fd12::1]/",
        ] {
            assert!(guard.check(text).is_ok(), "{text}");
        }
        for text in [
            "http://a.cdn.local/x",
            "http://10.0.0.5/",
            "http://10.0.0.5:9001/",
            "http://[::1]/",
            "http://192.168.8.9/",
            "http://example.com/",
            "ftp://cdn.local/",
            "http://u@cdn.local/",
            "http://cdn.local:0/",
        ] {
            assert!(guard.check(text).is_err(), "{text}");
        }
        for entry in ["", "a b", "http://x", "10.0.0.0/33", "x:99999", "x:0", "a/b", "*.x"] {
            assert!(AddressGuard::new([entry]).is_err(), "{entry}");
        }
    }

    #[test]
    fn an_allowed_name_leads_to_private_networks_but_not_to_metadata() {
        let guard = AddressGuard::new(["cdn.local"]).unwrap();
        let target = guard.check("http://cdn.local/x").unwrap();
        for (address, may) in [
            ("10.1.2.3", true),
            ("127.0.0.1", true),
            ("169.254.169.254", false),
            ("fe80::1", false),
        ] {
            assert_eq!(guard.may_dial(&target, address.parse().unwrap()), may, "{address}");
        }
        let other = guard.check("https://example.com/").unwrap();
        assert!(!guard.may_dial(&other, "10.1.2.3".parse().unwrap()));
        let guard = AddressGuard::new(["cdn.local", "169.254.0.0/16"]).unwrap();
        assert!(guard.may_dial(&target, "169.254.169.254".parse().unwrap()));
    }

    #[test]
    fn the_gateway_is_not_asked_for_itself() {
        let guard = AddressGuard::default().refusing_own_host("https://gateway.example.com/x");
        assert!(guard.check("https://gateway.example.com/files/a.png").is_err());
        assert!(guard.check("https://other.example.com/files/a.png").is_ok());
    }

    #[test]
    fn a_way_on_is_judged_like_a_beginning() {
        let guard = AddressGuard::new(["cdn.local"]).unwrap();
        let from = guard.check("https://example.com/a/b").unwrap();
        let to = guard.check_redirect(&from, "../c").unwrap();
        assert_eq!(to.url.as_str(), "https://example.com/c");
        assert_eq!(
            guard.check_redirect(&from, "//other.example.com/x").unwrap().host(),
            "other.example.com"
        );
        for location in [
            "http://example.com/",
            "http://cdn.local/",
            "//127.0.0.1/",
            "https://2130706433/",
            "https://u:p@example.com/",
            "file:///etc/passwd",
            "https://example.com:22/",
            "//",
        ] {
            assert!(guard.check_redirect(&from, location).is_err(), "{location}");
        }
    }

    struct FixedAddresses(Vec<IpAddr>);

    impl NameResolver for FixedAddresses {
        fn resolve(&self, _: &str) -> LookupFuture {
            let found = self.0.clone();
            Box::pin(async move { Ok(found) })
        }
    }

    #[tokio::test]
    async fn a_name_leads_only_where_it_may() {
        let (inside, outside, own) = ("10.0.0.1", "8.8.8.8", "169.254.169.254");
        let addresses = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>();
        let guard = AddressGuard::new(["gpu.lan"]).unwrap();
        let names =
            guard.guard_resolver(Arc::new(FixedAddresses(addresses(&[inside, outside, own]))));
        assert_eq!(names.resolve("example.com").await.unwrap(), addresses(&[outside]));
        assert_eq!(names.resolve("gpu.lan").await.unwrap(), addresses(&[inside, outside]));
        let names = guard.guard_resolver(Arc::new(FixedAddresses(addresses(&[inside]))));
        let refused = names.resolve("example.com").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
