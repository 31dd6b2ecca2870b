//! URLs that callers may name: public ones in plain spelling, and those the operator allows. This
//! is the defence against server-side request forgery:
//! <https://owasp.org/Top10/A10_2021-Server-Side_Request_Forgery_%28SSRF%29/>.
//!
//! One parser reads the URL, and the host it finds must appear literally in the text. A spelling
//! that another parser could read differently is refused.

use ipnet::IpNet;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use url::{Host, Url};

use crate::client::public_address;
use crate::client::resolver::{LookupFuture, NameResolver};

/// Longest accepted URL.
const MAX_URL_BYTES: usize = 8_192;
/// Ports of public HTTPS servers.
const DEFAULT_PORTS: [u16; 2] = [443, 8443];

/// Rules for URLs that callers name.
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

/// A URL that may be fetched, provided that its resolved addresses may be dialled.
#[derive(Clone, Debug)]
pub struct FetchTarget {
    /// The URL.
    pub url: Url,
    /// Its host.
    pub host: Host<String>,
    /// Its port.
    pub port: u16,
    /// True if the operator allows this host by name.
    is_allowed_by_name: bool,
    /// True if the URL is allowed without the operator's list.
    is_public: bool,
}

impl FetchTarget {
    /// Returns true if the URL is fetched over TLS.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns true if a provider may fetch the URL itself. A URL that only the operator's list
    /// allows is fetched by the gateway.
    pub const fn is_public(&self) -> bool {
        self.is_public
    }

    /// Returns the host in lower case, without the brackets of an IPv6 address.
    pub fn host(&self) -> String {
        match &self.host {
            Host::Domain(name) => name.clone(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        }
    }
}

/// The URL must not be named. The broken rule is not disclosed to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be a public HTTPS address")
    }
}

impl std::error::Error for NotPublic {}

/// Entry of an allow list that is neither a host nor a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is neither a host nor a range; write for instance \"cdn.example.com\", \
     \"10.0.0.5:9000\" or \"10.0.0.0/8\""
)]
pub struct AllowListError(String);

impl AddressGuard {
    /// Creates a guard that allows public addresses, and in addition hosts (`cdn.example.com`),
    /// hosts with a port (`10.0.0.5:9000`) and ranges (`10.0.0.0/8`). The error names the invalid
    /// entry.
    pub fn new<'a>(allow: impl IntoIterator<Item = &'a str>) -> Result<Self, AllowListError> {
        let mut guard = Self::default();
        for entry in allow {
            if let Ok(range) = entry.parse::<IpNet>() {
                guard.allowed_ranges.push(range);
            } else {
                let host =
                    parse_allowed_host(entry).ok_or_else(|| AllowListError(entry.to_owned()))?;
                guard.allowed_hosts.push(host);
            }
        }
        Ok(guard)
    }

    /// Refuses the gateway's own host.
    #[must_use]
    pub fn refusing_own_host(mut self, public_url: &str) -> Self {
        self.own_host =
            Url::parse(public_url).ok().and_then(|url| Some(url.host_str()?.to_owned()));
        self
    }

    /// Allows another host, on one port or on all.
    pub fn allowing_host(mut self, entry: &str) -> Result<Self, AllowListError> {
        let host = parse_allowed_host(entry).ok_or_else(|| AllowListError(entry.to_owned()))?;
        self.allowed_hosts.push(host);
        Ok(self)
    }

    /// Replaces the ports of public URLs.
    #[must_use]
    pub fn with_ports(self, ports: Vec<u16>) -> Self {
        Self { ports, ..self }
    }

    /// Checks a URL as a caller wrote it.
    pub fn check(&self, text: &str) -> Result<FetchTarget, NotPublic> {
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\';
        if text.len() > MAX_URL_BYTES || text.chars().any(odd) {
            return Err(NotPublic);
        }
        let url = Url::parse(text).map_err(|_| NotPublic)?;
        let target = self.check_url(url)?;
        let is_plain =
            target.url.host_str().is_some_and(|host| is_spelled_plainly(text, &target.url, host));
        if is_plain { Ok(target) } else { Err(NotPublic) }
    }

    /// Wraps a resolver and removes the addresses that must not be dialled.
    pub fn guard_resolver(&self, resolver: Arc<dyn NameResolver>) -> Arc<dyn NameResolver> {
        Arc::new(GuardedResolver { guard: self.clone(), resolver })
    }

    /// Checks a redirect. It must lead to an allowed URL and never from TLS to plain HTTP.
    pub fn check_redirect(
        &self,
        from: &FetchTarget,
        location: &str,
    ) -> Result<FetchTarget, NotPublic> {
        let url = from.url.join(location).map_err(|_| NotPublic)?;
        let to = self.check_url(url)?;
        if from.is_tls() && !to.is_tls() { Err(NotPublic) } else { Ok(to) }
    }

    /// Returns true if a connection to this address may be opened for the target.
    pub fn may_dial(&self, target: &FetchTarget, to: IpAddr) -> bool {
        self.may_resolve_to(target.is_allowed_by_name, to)
    }

    fn may_resolve_to(&self, is_allowed_by_name: bool, to: IpAddr) -> bool {
        let in_range = self.allowed_ranges.iter().any(|range| range.contains(&to));
        // An allowed name may resolve to a private network, but not to the metadata server of this
        // machine, because its owner controls the DNS records.
        let is_allowed_by_name = is_allowed_by_name && !public_address::is_link_local(to);
        public_address::is_public(to) || in_range || is_allowed_by_name
    }

    fn check_url(&self, url: Url) -> Result<FetchTarget, NotPublic> {
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NotPublic);
        }
        let host = url.host().ok_or(NotPublic)?.to_owned();
        let port = url.port_or_known_default().filter(|port| *port != 0).ok_or(NotPublic)?;
        let (is_public, in_range) = match &host {
            Host::Domain(name) => (public_address::is_public_name(name), false),
            Host::Ipv4(address) => self.classify_address((*address).into()),
            Host::Ipv6(address) => self.classify_address((*address).into()),
        };
        let text = url.host_str().unwrap_or_default();
        let is_allowed_by_name = self.allowed_hosts.iter().any(|allowed| {
            allowed.host == text && allowed.port.is_none_or(|allowed| allowed == port)
        });
        let is_own = self.own_host.as_deref() == Some(text);
        let web = matches!(url.scheme(), "https" | "http");
        let is_public =
            is_public && !is_own && url.scheme() == "https" && self.ports.contains(&port);
        if is_public || (web && (is_allowed_by_name || in_range)) {
            Ok(FetchTarget { url, host, port, is_allowed_by_name, is_public })
        } else {
            Err(NotPublic)
        }
    }

    fn classify_address(&self, address: IpAddr) -> (bool, bool) {
        let in_range = self.allowed_ranges.iter().any(|range| range.contains(&address));
        (public_address::is_public(address), in_range)
    }
}

/// Checks every lookup again, because a name may resolve to another address than when it was
/// configured.
struct GuardedResolver {
    guard: AddressGuard,
    resolver: Arc<dyn NameResolver>,
}

impl NameResolver for GuardedResolver {
    fn resolve(&self, name: &str) -> LookupFuture {
        let guard = self.guard.clone();
        let is_allowed_by_name =
            guard.allowed_hosts.iter().any(|allowed| allowed.host.eq_ignore_ascii_case(name));
        let lookup = self.resolver.resolve(name);
        Box::pin(async move {
            let mut found = lookup.await?;
            found.retain(|to| guard.may_resolve_to(is_allowed_by_name, *to));
            if found.is_empty() {
                let why = "the name resolves to no public or allowed address";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            Ok(found)
        })
    }
}

/// Parses an entry of the operator's list with the parser that reads the URLs.
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

/// Returns true if the text begins with the parsed scheme and host, letter by letter.
fn is_spelled_plainly(text: &str, url: &Url, host: &str) -> bool {
    let begin = format!("{}://{host}", url.scheme());
    let Some((head, rest)) = text.split_at_checked(begin.len()) else { return false };
    head.eq_ignore_ascii_case(&begin) && (rest.is_empty() || rest.starts_with(['/', '?', '#', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_plain_public_urls() {
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
    fn refuses_public_urls_in_odd_spellings() {
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
    fn allows_exactly_the_hosts_of_the_operator() {
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
    fn allowed_name_may_be_private_but_not_link_local() {
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
    fn refuses_the_own_host() {
        let guard = AddressGuard::default().refusing_own_host("https://gateway.example.com/x");
        assert!(guard.check("https://gateway.example.com/files/a.png").is_err());
        assert!(guard.check("https://other.example.com/files/a.png").is_ok());
    }

    #[test]
    fn redirect_is_checked_like_a_first_url() {
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
    async fn guarded_resolver_removes_forbidden_addresses() {
        let (inside, outside, own) = ("10.0.0.1", "8.8.8.8", "169.254.169.254");
        let addresses = |list: &[&str]| list.iter().map(|a| a.parse().unwrap()).collect::<Vec<_>>();
        let guard = AddressGuard::new(["gpu.lan"]).unwrap();
        let resolver =
            guard.guard_resolver(Arc::new(FixedAddresses(addresses(&[inside, outside, own]))));
        assert_eq!(resolver.resolve("example.com").await.unwrap(), addresses(&[outside]));
        assert_eq!(resolver.resolve("gpu.lan").await.unwrap(), addresses(&[inside, outside]));
        let resolver = guard.guard_resolver(Arc::new(FixedAddresses(addresses(&[inside]))));
        let refused = resolver.resolve("example.com").await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    }
}
