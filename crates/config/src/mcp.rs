//! Servers of the Model Context Protocol: those that the operator offers, and rules for those that callers
//! name.

use canon::Price;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use transport::{AddressGuard, Outbound};
use upstream::{FetchLimits, MediaFetcher};

use crate::error::FieldError;
use crate::outbound::MediaSettings;
use crate::raw::{RawMcp, RawMcpOAuth, RawMcpServer, SecretRef};
use crate::units::parse_duration;

/// Time for one request to a server.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Concurrent requests to one offered server, and to all servers that callers name.
const MAX_CONCURRENT_REQUESTS: usize = 1_024;
/// Longest name of a server. It is a part of the names of its tools.
const MAX_NAME_BYTES: usize = 32;

/// Settings of `[mcp]`.
#[derive(Clone, Debug)]
pub struct McpSettings {
    /// Fetcher for servers that callers name, with the rules of `[media]`; `None` if callers may name none.
    pub remote: Option<MediaFetcher>,
    /// Time for one request to a server.
    pub timeout: Duration,
    /// Servers that the operator offers, by name.
    pub servers: BTreeMap<String, Arc<McpServerSettings>>,
}

/// Server that the operator offers to callers.
#[derive(Clone)]
pub struct McpServerSettings {
    /// Name.
    pub name: String,
    /// Address.
    pub url: String,
    /// Headers of every request, credentials among them.
    pub headers: HeaderMap,
    /// Fetcher that reaches the address.
    pub fetcher: MediaFetcher,
    /// Teams and accounts that may use it; with `keys` empty too, all may.
    teams: Vec<String>,
    /// Keys that may use it.
    keys: Vec<String>,
    /// Tools that are offered; empty offers all.
    tools: Vec<String>,
    /// Terms on which people connect the server in the console.
    pub oauth: Option<McpOAuthSettings>,
    /// Price of one call of a tool.
    pub price: Price,
}

/// Holder of the tokens of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantHolder {
    /// The gateway: an administrator connects the server for all callers.
    Gateway,
    /// Each team, and each account for keys of its own.
    Team,
    /// Each person.
    Person,
}

impl GrantHolder {
    /// Every holder.
    pub const ALL: [Self; 3] = [Self::Gateway, Self::Team, Self::Person];

    /// Returns the word in the configuration and in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Team => "team",
            Self::Person => "person",
        }
    }
}

/// `oauth` of a server.
#[derive(Clone)]
pub struct McpOAuthSettings {
    /// Scopes that are asked for; empty asks for those that the server names.
    pub scopes: Vec<String>,
    /// Holder of the tokens.
    pub per: GrantHolder,
    /// Id of the gateway at the authorization server; `None` registers one.
    pub client_id: Option<String>,
    /// Secret of that client.
    pub client_secret: Option<String>,
    /// Fetcher for addresses that the server and its authorization server name. It follows the rules of
    /// `[media]`, and reaches the host of the server too.
    pub fetcher: MediaFetcher,
}

/// Omits the headers, which hold credentials.
impl fmt::Debug for McpServerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServerSettings").field("name", &self.name).finish_non_exhaustive()
    }
}

impl McpServerSettings {
    /// Returns true if the key of the account may use the server.
    pub fn admits(&self, account: &str, key: &str) -> bool {
        let lists = |list: &[String], id: &str| list.iter().any(|own| own == id);
        (self.teams.is_empty() && self.keys.is_empty())
            || lists(&self.teams, account)
            || lists(&self.keys, key)
    }

    /// Returns true if the tool is offered.
    pub fn offers(&self, tool: &str) -> bool {
        self.tools.is_empty() || self.tools.iter().any(|own| own == tool)
    }

    /// Returns true if only certain keys may use the server, beside its teams.
    pub fn lists_keys(&self) -> bool {
        !self.keys.is_empty()
    }
}

/// Checks `[mcp]`.
pub(super) fn check(
    raw: RawMcp,
    media: &MediaSettings,
    outbound: &Outbound,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<McpSettings, FieldError> {
    let RawMcp { remote, time, servers } = raw;
    let timeout = time.as_deref().map_or(Ok(DEFAULT_TIMEOUT), parse_duration);
    let timeout = timeout.map_err(|why| FieldError::new("mcp.time", why))?;
    let limits = FetchLimits { timeout, ..*media.fetcher.limits() };
    let fetcher =
        |guard| MediaFetcher::new(guard, outbound, limits).with_places(MAX_CONCURRENT_REQUESTS);
    let remote = remote.unwrap_or(true).then(|| fetcher(media.fetcher.guard().clone()));
    let mut checked = BTreeMap::new();
    for (name, raw) in servers {
        let place = format!("mcp.servers.{name}");
        let server = check_server(&name, raw, (&fetcher, media.fetcher.guard()), env)
            .map_err(|(field, why)| FieldError::new(format!("{place}.{field}"), why))?;
        checked.insert(name, Arc::new(server));
    }
    Ok(McpSettings { remote, timeout, servers: checked })
}

/// Checks one server. An error has the name of the field.
fn check_server(
    name: &str,
    raw: RawMcpServer,
    (fetcher, public): (&dyn Fn(AddressGuard) -> MediaFetcher, &AddressGuard),
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<McpServerSettings, (String, String)> {
    let RawMcpServer { url, headers, bearer, teams, keys, tools, oauth, price } = raw;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.chars().all(is_plain) {
        let why = format!(
            "the name of a server has 1 to {MAX_NAME_BYTES} letters, digits and hyphens, because it is \
             a part of the names of its tools"
        );
        return Err(("url".to_owned(), why));
    }
    let wrong_url =
        || ("url".to_owned(), format!("`{url}` is not an address; write \"https://…\""));
    let parsed: Uri = url.parse().map_err(|_| wrong_url())?;
    let host = parsed.host().ok_or_else(wrong_url)?;
    let default_port = if parsed.scheme_str() == Some("http") { 80 } else { 443 };
    let port = parsed.port_u16().unwrap_or(default_port);
    // The address is the operator's word, like that of a provider in the file.
    let allowed = [format!("{host}:{port}"), "0.0.0.0/0".to_owned(), "::/0".to_owned()];
    let guard = AddressGuard::new(allowed.iter().map(String::as_str)).map_err(|_| wrong_url())?;
    guard.check(&url).map_err(|_| wrong_url())?;
    let mut map = HeaderMap::new();
    let bearer = bearer.map(|secret| ("authorization".to_owned(), secret, "Bearer "));
    let headers = headers.into_iter().map(|(name, secret)| (name, secret, ""));
    for (header, secret, prefix) in bearer.into_iter().chain(headers) {
        let (header, value) = read_header(&header, &secret, prefix, env)
            .map_err(|why| (format!("headers.{header}"), why))?;
        map.insert(header, value);
    }
    let price = price.as_deref().map_or(Ok(Price::FREE), Price::parse_per_unit);
    let price = price.map_err(|why| ("price".to_owned(), why.to_string()))?;
    let oauth = match oauth {
        Some(_) if map.contains_key(http::header::AUTHORIZATION) => {
            let why = "the server has a token already: write either `oauth` or `bearer`";
            return Err(("oauth".to_owned(), why.to_owned()));
        }
        Some(raw) => {
            // The host of the server is the operator's word, and what it names is not.
            let guard = public.clone().allowing_host(&format!("{host}:{port}"));
            let guard = guard.map_err(|_| wrong_url())?;
            let checked = check_oauth(raw, fetcher(guard), env);
            Some(checked.map_err(|(field, why)| (format!("oauth.{field}"), why))?)
        }
        None => None,
    };
    Ok(McpServerSettings {
        name: name.to_owned(),
        headers: map,
        fetcher: fetcher(guard),
        teams,
        keys,
        tools,
        oauth,
        price,
        url,
    })
}

/// Checks `oauth` of a server. An error has the name of the field.
fn check_oauth(
    raw: RawMcpOAuth,
    fetcher: MediaFetcher,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<McpOAuthSettings, (&'static str, String)> {
    let RawMcpOAuth { scopes, per, client_id, client_secret } = raw;
    // RFC 6749, section 3.3.
    let is_scope = |text: &String| {
        let is_letter = |byte: u8| matches!(byte, 0x21 | 0x23..=0x5b | 0x5d..=0x7e);
        !text.is_empty() && text.bytes().all(is_letter)
    };
    if let Some(wrong) = scopes.iter().find(|scope| !is_scope(scope)) {
        return Err(("scopes", format!("`{wrong}` is not a scope")));
    }
    let per = per.as_deref().unwrap_or(GrantHolder::Person.word());
    let known = GrantHolder::ALL.into_iter().find(|holder| holder.word() == per);
    let per = known.ok_or_else(|| {
        ("per", format!("`{per}` is not known; write \"gateway\", \"team\" or \"person\""))
    })?;
    let client_secret = client_secret.map(|secret| secret.resolve(env)).transpose();
    let client_secret = client_secret.map_err(|why| ("client_secret", why.to_string()))?;
    if client_secret.is_some() && client_id.is_none() {
        return Err(("client_id", "is missing: `client_secret` belongs to one".to_owned()));
    }
    Ok(McpOAuthSettings { scopes, per, client_id, client_secret, fetcher })
}

fn read_header(
    name: &str,
    secret: &SecretRef,
    prefix: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<(HeaderName, HeaderValue), String> {
    let secret = secret.resolve(env).map_err(|why| why.to_string())?;
    let header =
        HeaderName::try_from(name).map_err(|_| "is not the name of a header".to_owned())?;
    let mut value = HeaderValue::try_from(format!("{prefix}{secret}"))
        .map_err(|_| "has a value that no header can have".to_owned())?;
    value.set_sensitive(true);
    Ok((header, value))
}
