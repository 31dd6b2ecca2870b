//! One provider: where it is, how it is addressed, how long it may take.

use bytes::Bytes;
use canon::{ApiError, Blame, ErrorKind, UpstreamProgress, WireFormat};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use std::fmt;
use std::time::Duration;

use crate::credential::Credential;
use transport::Outbound;
use transport::RequestBody;
use transport::{ClientResponse, HttpClient, SendError};

/// How long each step of a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To open a connection.
    pub connect: Duration,
    /// Until the head of the answer.
    pub first_byte: Duration,
    /// Between two pieces of the answer.
    pub gap: Duration,
    /// From admission to the end of the answer.
    pub total: Duration,
}

/// Why a provider cannot be made from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError(pub String);

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProviderError {}

/// A place that serves models.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name in the configuration.
    pub name: String,
    /// The formats it speaks, the preferred one first.
    pub formats: Vec<WireFormat>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// How many calls may run there at once.
    pub max_in_flight: usize,
    base_url: BaseUrl,
    /// Hosts that are its own as well; one that begins with a dot is whatever ends with it.
    hosts: Vec<String>,
    credential: Credential,
    /// Further credentials, each as good as the first.
    more_credentials: Vec<Credential>,
    client: HttpClient,
}

/// How one request is sent.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// The place of the credential to use.
    pub credential: usize,
    /// Whether to open a connection of its own for it.
    pub new_connection: bool,
    /// How long to wait for a connection, where that is less than the provider's own time.
    pub connect: Duration,
    /// How long to wait for the head of the answer.
    pub first_byte: Duration,
}

/// An address in its parts, so that it is not read again for every call.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    /// What comes before the path; empty for most.
    prefix: String,
}

impl BaseUrl {
    fn join(&self, path: &str) -> Result<Uri, http::Error> {
        let path = format!("{}{path}", self.prefix);
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        uri.path_and_query(PathAndQuery::try_from(path)?).build()
    }
}

impl Provider {
    /// A provider at that address: what comes before `/v1/…` or `/v1beta/…`.
    pub fn new(
        name: &str,
        speaks: Vec<WireFormat>,
        base: &str,
        credential: Credential,
        timeouts: Timeouts,
        client: HttpClient,
    ) -> Result<Self, ProviderError> {
        let base = base.trim_end_matches('/').to_owned();
        let uri: Uri =
            base.parse().map_err(|e| ProviderError(format!("`{base}` is not an address: {e}")))?;
        // A fragment is dropped by whoever reads addresses, so it must not be there to begin with.
        if uri.query().is_some() || base.contains('#') {
            return Err(ProviderError(format!("`{base}` must not have a query or a fragment")));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ProviderError(format!("`{base}` is not an http or https address")));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(ProviderError(format!("`{base}` is not an http or https address")));
        }
        let base = BaseUrl { scheme, authority, prefix };
        Ok(Self {
            name: name.to_owned(),
            formats: speaks,
            timeouts,
            max_in_flight: usize::MAX,
            base_url: base,
            hosts: Vec::new(),
            credential,
            more_credentials: Vec::new(),
            client,
        })
    }

    /// The same provider with more credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl IntoIterator<Item = Credential>) -> Self {
        self.more_credentials.extend(credentials);
        self
    }

    /// The same provider, reached on another way.
    #[must_use]
    pub fn with_outbound(self, way: &Outbound) -> Self {
        Self { client: HttpClient::network(self.timeouts.connect, way), ..self }
    }

    /// The same provider with at most that many calls at once.
    #[must_use]
    pub fn with_max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// The same provider with further hosts of its own, where some send whoever asks after a task:
    /// names, or `*.` and a domain for all that is under it.
    pub fn with_hosts(mut self, hosts: &[String]) -> Result<Self, ProviderError> {
        for host in hosts {
            let (plain, own) = match host.strip_prefix("*.") {
                Some(domain) => (domain, format!(".{domain}")),
                None => (host.as_str(), host.clone()),
            };
            let letters =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
            let parts = plain.split('.').filter(|part| !part.is_empty()).count();
            if parts < 2 || plain.starts_with('.') || !plain.chars().all(letters) {
                let say = "is no host; write \"api.example.com\" or \"*.example.com\"";
                return Err(ProviderError(format!("`{host}` {say}")));
            }
            self.hosts.push(own);
        }
        Ok(self)
    }

    /// Its address.
    pub fn address(&self) -> String {
        let BaseUrl { scheme, authority, prefix } = &self.base_url;
        format!("{scheme}://{authority}{prefix}")
    }

    /// Whether the other one has its address.
    pub fn has_same_address(&self, other: &Self) -> bool {
        self.base_url == other.base_url
    }

    /// The place one of our credentials has in the other provider, if that has the same address.
    pub fn index_in(&self, other: &Self, credential: usize) -> Option<usize> {
        if !self.has_same_address(other) {
            return None;
        }
        let own = self.credential(credential);
        (0..other.credential_count()).find(|place| other.credential(*place).matches(own))
    }

    /// Whether there is anything to prove ourselves with in that place.
    pub fn has_credential(&self, place: usize) -> bool {
        !self.credential(place).is_none()
    }

    /// How many credentials there are; at least one.
    pub fn credential_count(&self) -> usize {
        self.more_credentials.len() + 1
    }

    fn credential(&self, place: usize) -> &Credential {
        place
            .checked_sub(1)
            .and_then(|place| self.more_credentials.get(place))
            .unwrap_or(&self.credential)
    }

    /// Sends a body to a path and waits for the head of the answer.
    pub async fn send(
        &self,
        path: &str,
        headers: HeaderMap,
        pieces: Vec<Bytes>,
        how: &SendOptions,
    ) -> Result<ClientResponse, ApiError> {
        let uri = self
            .base_url
            .join(path)
            .map_err(|e| ApiError::internal(format!("{}: {path} is not a path: {e}", self.name)))?;
        let mut request = Request::new(RequestBody::new(pieces));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().entry(CONTENT_TYPE).or_insert(json);
        self.exchange(request, how).await
    }

    /// Asks at a path, or at an address of the provider's own.
    pub async fn get(
        &self,
        at: &str,
        headers: HeaderMap,
        how: &SendOptions,
    ) -> Result<ClientResponse, ApiError> {
        let uri = if at.starts_with('/') { self.base_url.join(at).ok() } else { self.own_uri(at) };
        let uri = uri.ok_or_else(|| {
            ApiError::new(ErrorKind::Unavailable, "the provider's answer could not be read")
                .with_log_note(format!(
                    "{}: it names an address that is not its own; if it is, name its host under \
                     providers.{}.hosts",
                    self.name, self.name
                ))
        })?;
        let mut request = Request::new(RequestBody::new(Vec::new()));
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        self.exchange(request, how).await
    }

    /// Whether an address is the provider's own: it may be shown our credential, and need not be
    /// public if the provider is not.
    pub fn owns(&self, address: &str) -> bool {
        self.own_uri(address).is_some()
    }

    /// The same scheme, host and port, or over TLS one of the further hosts.
    fn own_uri(&self, address: &str) -> Option<Uri> {
        let uri: Uri = address.parse().ok()?;
        let BaseUrl { scheme, authority, .. } = &self.base_url;
        let theirs = uri.authority()?;
        if uri.scheme()? != scheme || theirs.as_str().contains('@') {
            return None;
        }
        let host = theirs.host().to_ascii_lowercase();
        let is_host = |own: &String| host == *own || (own.starts_with('.') && host.ends_with(own));
        let further = *scheme == Scheme::HTTPS
            && theirs.port().is_none_or(|port| port.as_u16() == 443)
            && self.hosts.iter().any(is_host);
        (theirs == authority || further).then_some(uri)
    }

    /// Sends a request and waits for the head of the answer.
    async fn exchange(
        &self,
        mut request: Request<RequestBody>,
        how: &SendOptions,
    ) -> Result<ClientResponse, ApiError> {
        let headers = request.headers_mut();
        // What the makers' own clients send, for streams as well.
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let agent = concat!("portunus/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        let credential = self.credential(how.credential);
        let sending = async {
            // What proves us may have to be fetched first, and then nothing was sent yet.
            let proved = credential.authenticate(&mut request, &self.client).await;
            proved.map_err(|fault| fault.with_progress(UpstreamProgress::NotSent))?;
            Ok(self.client.send_within(request, how.new_connection, how.connect).await)
        };
        let fault = match tokio::time::timeout(how.first_byte, sending).await {
            Ok(Ok(Ok(answer))) => {
                if answer.status == 401 {
                    credential.mark_refused();
                }
                return Ok(answer.decode_event_stream());
            }
            Ok(Ok(Err(lost))) => {
                let calm = lost
                    .http2_error()
                    .is_some_and(|said| said.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM));
                let SendError { progress: reach, cause: why } = lost;
                let fault = if calm {
                    ApiError::new(ErrorKind::Overloaded, "the model is overloaded, retry later")
                        .with_blame(Blame::Upstream)
                } else if is_timeout(&*why) {
                    ApiError::new(ErrorKind::Timeout, "the provider took too long to answer")
                } else {
                    let say = "the provider could not be reached, retry later";
                    ApiError::new(ErrorKind::Unavailable, say)
                };
                fault.with_progress(reach).with_log_note(error_chain(&*why))
            }
            Ok(Err(fault)) => fault,
            Err(_) => timeout_error("answer", how.first_byte).with_progress(UpstreamProgress::Sent),
        };
        let note = format!("{}: {}", self.name, fault.log_note().unwrap_or_default());
        Err(fault.with_log_note(note))
    }
}

fn timeout_error(what: &str, within: Duration) -> ApiError {
    ApiError::new(ErrorKind::Timeout, "the provider took too long to answer")
        .with_log_note(format!("no {what} within {within:?}"))
}

/// Whether a connection was waited for in vain.
fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut inner = Some(error);
    while let Some(error) = inner {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut) {
            return true;
        }
        inner = error.source();
    }
    false
}

/// An error with everything behind it; the outermost one alone says little.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text = format!("{text}: {error}");
        inner = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::{Outbound, ProxySettings};

    fn provider(base: &str, hosts: &[&str]) -> Result<Provider, ProviderError> {
        let time = Duration::from_secs(1);
        let times = Timeouts { connect: time, first_byte: time, gap: time, total: time };
        let way = Outbound::new(&ProxySettings::default(), &[])
            .map_err(|e| ProviderError(e.to_string()))?;
        let client = HttpClient::network(time, &way);
        let speaks = vec![WireFormat::Images];
        let made = Provider::new("p", speaks, base, Credential::none(), times, client)?;
        made.with_hosts(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn an_address_is_a_providers_own_only_where_the_operator_said_so() {
        let own = |base, hosts: &[&str], address| {
            provider(base, hosts).is_ok_and(|provider| provider.owns(address))
        };
        let base = "https://api.example.com/v1";
        assert!(own(base, &[], "https://api.example.com/task/1?x=y"));
        for other in [
            "https://eu.example.com/task/1",
            "https://example.com/task/1",
            "https://api.example.com:8443/task/1",
            "http://api.example.com/task/1",
            "https://api.example.com@evil.test/task/1",
            "https://api.example.com.evil.test/task/1",
            "/task/1",
            "",
        ] {
            assert!(!own(base, &[], other), "{other}");
        }
        let hosts = ["*.example.com", "tasks.example.org"];
        for address in [
            "https://eu.example.com/task/1",
            "https://EU4.api.Example.com:443/task/1",
            "https://tasks.example.org/1",
        ] {
            assert!(own(base, &hosts, address), "{address}");
        }
        for address in [
            "https://example.com/task/1",
            "https://evilexample.com/task/1",
            "https://example.com.evil.test/1",
            "https://a.tasks.example.org/1",
            "https://eu.example.com:8443/task/1",
            "http://eu.example.com/task/1",
            "https://eu.example.com@evil.test/",
        ] {
            assert!(!own(base, &hosts, address), "{address}");
        }
        // Further hosts are those of the public net: plain text goes to nobody else.
        assert!(!own("http://api.example.com", &hosts, "http://eu.example.com/task/1"));
    }

    #[test]
    fn what_is_no_host_is_refused_by_name() {
        for wrong in ["", "*", "com", "*.com", ".example.com", "https://a.example", "a.b:1", "*a.b"]
        {
            let told = provider("https://a.example", &[wrong]);
            assert!(told.is_err_and(|e| e.0.contains(&format!("`{wrong}`"))), "{wrong}");
        }
    }
}
