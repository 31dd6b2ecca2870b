//! Settings of ACME (RFC 8555), by which the gateway gets its certificate from an authority.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use transport::Outbound;

use crate::error::FieldError;
use crate::raw::{RawAcme, StringOrList};
use crate::tls_files::{self, CertificateError};

/// Directory of Let's Encrypt (<https://letsencrypt.org/docs/acme-protocol-updates/>).
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Name of the challenge of TLS, and of its protocol (RFC 8737).
const TLS_ALPN: &str = "tls-alpn-01";
const HTTP: &str = "http-01";
/// Protocol by which an authority asks for the answer within TLS.
const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";
/// Most names of one certificate of Let's Encrypt.
const MAX_DOMAINS: usize = 100;

/// Way in which the authority checks that a name leads to this gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// By a file over plain HTTP, on port 80.
    Http01,
    /// By a certificate within TLS, on port 443.
    TlsAlpn01,
}

impl AcmeChallenge {
    /// Returns the name of the challenge in the protocol.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Http01 => HTTP,
            Self::TlsAlpn01 => TLS_ALPN,
        }
    }
}

/// Key that binds the account to one that the operator has with the authority (RFC 8555, section 7.3.4).
#[derive(Clone)]
pub struct AcmeAccountKey {
    /// Its id.
    pub id: String,
    /// The key.
    pub secret: Vec<u8>,
}

/// Prints no key.
impl std::fmt::Debug for AcmeAccountKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AcmeAccountKey({})", self.id)
    }
}

/// Checked `[server.acme]`.
#[derive(Clone, Debug)]
pub struct AcmeSettings {
    /// Names of the certificate, in the order of the file.
    pub domains: Vec<String>,
    /// Contacts of the account, as URLs.
    pub contacts: Vec<String>,
    /// Address of the authority's directory.
    pub directory: String,
    /// Way in which names are checked.
    pub challenge: AcmeChallenge,
    /// Key of an account that the operator has.
    pub account_key: Option<AcmeAccountKey>,
    /// Route to the authority.
    pub outbound: Outbound,
}

impl AcmeSettings {
    /// Returns the address of the gateway for callers.
    pub(crate) fn public_url(&self, port: u16) -> String {
        let name = self.domains.first().map(String::as_str).unwrap_or_default();
        if port == 443 { format!("https://{name}") } else { format!("https://{name}:{port}") }
    }

    /// Returns the settings that answer a challenge within TLS by a certificate.
    pub fn challenge_config(
        certificate: CertificateDer<'static>,
        key: Vec<u8>,
    ) -> Result<ServerConfig, CertificateError> {
        tls_files::challenge_config(certificate, key, CHALLENGE_PROTOCOL)
    }

    /// Returns a name for the certificate: nodes with these settings share it.
    pub fn certificate_id(&self) -> String {
        let names: BTreeSet<&str> = self.domains.iter().map(String::as_str).collect();
        let names: Vec<&str> = names.into_iter().collect();
        format!("{} {}", self.directory, names.join(","))
    }

    /// Returns a name for the account at the authority.
    pub fn account_id(&self) -> String {
        let bound = self.account_key.as_ref().map(|key| key.id.as_str()).unwrap_or_default();
        format!("{} {bound}", self.directory)
    }
}

/// Checks `[server.acme]`.
pub(super) fn check(
    raw: RawAcme,
    outbound: &Outbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<AcmeSettings, FieldError> {
    let RawAcme { domains, terms_agreed, contact, directory, challenge, ca, eab_key_id, eab_key } =
        raw;
    if domains.is_empty() {
        let why = "names no domain; write for instance [\"gateway.example.com\"]";
        return Err(FieldError::new("server.acme.domains", why));
    }
    if domains.len() > MAX_DOMAINS {
        let why = format_args!("{} are more than {MAX_DOMAINS}", domains.len());
        return Err(FieldError::new("server.acme.domains", why));
    }
    let mut names: Vec<String> = Vec::new();
    for name in domains {
        let name = check_domain(&name)?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if terms_agreed != Some(true) {
        let why = "read the terms of service of the authority, and write `terms_agreed = true`";
        return Err(FieldError::new("server.acme.terms_agreed", why));
    }
    let contacts = contact.map(StringOrList::into_vec).unwrap_or_default();
    let contacts = contacts.iter().map(|text| check_contact(text)).collect::<Result<_, _>>()?;
    let directory = directory.unwrap_or_else(|| LETS_ENCRYPT.to_owned());
    let is_url = directory.parse::<http::Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty())
    });
    if !is_url {
        let why = format_args!("`{directory}` is not an https address");
        return Err(FieldError::new("server.acme.directory", why));
    }
    let challenge = match challenge.as_deref() {
        None | Some(TLS_ALPN) => AcmeChallenge::TlsAlpn01,
        Some(HTTP) => AcmeChallenge::Http01,
        Some(other) => {
            return Err(FieldError::new(
                "server.acme.challenge",
                format_args!("`{other}` is not known; write \"{TLS_ALPN}\" or \"{HTTP}\""),
            ));
        }
    };
    let outbound = match ca {
        None => outbound.clone(),
        Some(file) => {
            let wrong = |why: &dyn std::fmt::Display| {
                FieldError::new("server.acme.ca", format_args!("{}: {why}", file.display()))
            };
            let pem = tls_files::read("server.acme.ca", &file)?;
            outbound.trusting(&pem).map_err(|e| wrong(&e))?
        }
    };
    let account_key = match (eab_key_id, eab_key) {
        (None, None) => None,
        (Some(_), None) => return Err(FieldError::new("server.acme.eab_key", "is missing")),
        (None, Some(_)) => return Err(FieldError::new("server.acme.eab_key_id", "is missing")),
        (Some(id), Some(key)) => {
            let wrong = |why: &dyn std::fmt::Display| FieldError::new("server.acme.eab_key", why);
            let text = key.resolve(env).map_err(|why| wrong(&why))?;
            let secret = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
            let secret = secret.map_err(|_| wrong(&"is not base64url"))?;
            Some(AcmeAccountKey { id, secret })
        }
    };
    Ok(AcmeSettings { domains: names, contacts, directory, challenge, account_key, outbound })
}

/// Checks a name that is to be in the certificate, and returns it in lower case.
fn check_domain(text: &str) -> Result<String, FieldError> {
    let wrong = |why: &str| FieldError::new("server.acme.domains", format_args!("`{text}` {why}"));
    if text.starts_with("*.") {
        return Err(wrong(
            "needs a challenge of DNS, which the gateway does not do; name each host",
        ));
    }
    if text.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok() {
        return Err(wrong("is an address; write a name that leads to it"));
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !text.is_ascii() {
        return Err(wrong("has letters beyond ASCII; write the form that begins with xn--"));
    }
    if text.len() > 253 || !text.contains('.') || !text.split('.').all(is_label) {
        return Err(wrong("is not a full domain name such as gateway.example.com"));
    }
    Ok(text.to_ascii_lowercase())
}

/// Checks a contact. A mail address becomes a URL.
fn check_contact(text: &str) -> Result<String, FieldError> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let is_address = address.split_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && host.contains('.') && !address.contains(char::is_whitespace)
    });
    if is_address {
        return Ok(format!("mailto:{address}"));
    }
    let why = format_args!("`{text}` is not a mail address");
    Err(FieldError::new("server.acme.contact", why))
}

/// Returns the address of the listener without TLS: the configured one, or port 80 for challenges.
pub(super) fn http_address(
    configured: Option<SocketAddr>,
    acme: Option<&AcmeSettings>,
    listen: SocketAddr,
    has_files: bool,
) -> Result<Option<SocketAddr>, FieldError> {
    const FIELD: &str = "server.http_listen";
    let Some(address) = configured else {
        let is_needed = acme.is_some_and(|acme| acme.challenge == AcmeChallenge::Http01);
        return Ok(is_needed.then(|| SocketAddr::new(listen.ip(), 80)));
    };
    if acme.is_none() && !has_files {
        let why = "sends callers to https, which needs `[server.tls]` or `[server.acme]`";
        return Err(FieldError::new(FIELD, why));
    }
    if address == listen && address.port() != 0 {
        return Err(FieldError::new(FIELD, "is the address of `server.listen`"));
    }
    Ok(Some(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::ProxySettings;

    fn check_raw(change: impl FnOnce(&mut RawAcme)) -> Result<AcmeSettings, FieldError> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut raw = RawAcme {
            domains: vec!["a.example.com".to_owned()],
            terms_agreed: Some(true),
            ..RawAcme::default()
        };
        change(&mut raw);
        let outbound = Outbound::new(&ProxySettings::default(), &[]).unwrap();
        check(raw, &outbound, &|_| None)
    }

    #[test]
    fn only_names_that_a_challenge_can_reach_are_taken() {
        for name in ["*.example.com", "10.0.0.1", "[::1]", "localhost", "a..b", "-a.b", "ä.de", ""]
        {
            let refused = check_raw(|raw| raw.domains = vec![name.to_owned()]).unwrap_err();
            assert_eq!(refused.field, "server.acme.domains", "{name}");
        }
        let refused = check_raw(|raw| raw.domains.clear()).unwrap_err();
        assert!(refused.reason.contains("names no domain"), "{refused}");
        let good = check_raw(|raw| raw.domains.push("A.Example.com".to_owned())).unwrap();
        assert_eq!(good.domains, ["a.example.com"]);
        assert_eq!(good.public_url(443), "https://a.example.com");
        assert_eq!(good.public_url(8443), "https://a.example.com:8443");
    }

    #[test]
    fn terms_directory_and_contact_are_checked() {
        let field = |change: fn(&mut RawAcme)| check_raw(change).unwrap_err().field;
        assert_eq!(field(|raw| raw.terms_agreed = None), "server.acme.terms_agreed");
        let plain = |raw: &mut RawAcme| raw.directory = Some("http://ca.example.com".to_owned());
        assert_eq!(field(plain), "server.acme.directory");
        assert_eq!(field(|raw| raw.eab_key_id = Some("a".to_owned())), "server.acme.eab_key");
        let contact = |text: &str| StringOrList::One(text.to_owned());
        let wrong = check_raw(|raw| raw.contact = Some(contact("nobody"))).unwrap_err();
        assert_eq!(wrong.field, "server.acme.contact");
        let good = check_raw(|raw| raw.contact = Some(contact("ops@example.com"))).unwrap();
        assert_eq!(good.contacts, ["mailto:ops@example.com"]);
        assert_eq!(
            (good.directory.as_str(), good.challenge),
            (LETS_ENCRYPT, AcmeChallenge::TlsAlpn01)
        );
    }

    #[test]
    fn the_order_of_names_does_not_matter_to_nodes() {
        let names = |list: [&str; 2]| {
            check_raw(|raw| raw.domains = list.map(str::to_owned).to_vec())
                .unwrap()
                .certificate_id()
        };
        let (one, other) = (["a.example.com", "b.example.com"], ["b.example.com", "a.example.com"]);
        assert_eq!(names(one), names(other));
    }
}
