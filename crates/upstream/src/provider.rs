//! One provider: address, credentials and timeouts.

use bytes::Bytes;
use canon::{ApiError, Blame, ErrorKind, UpstreamProgress, WireFormat};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{self, Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use parking_lot::RwLock;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::credential::Credential;
use crate::error_chain::error_chain;
use crate::sent_secrets::SentSecrets;
use transport::Outbound;
use transport::{ClientResponse, HttpClient, SendError, SentMark, TimerPool};
use transport::{HeaderFields, RequestBody, RequestTemplate};

/// Timeouts of the steps of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Time to open a connection.
    pub connect: Duration,
    /// Time to the head of the response.
    pub first_byte: Duration,
    /// Time between two pieces of the response.
    pub gap: Duration,
    /// Time from admission to the end of the response.
    pub total: Duration,
}

/// Invalid configuration of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError(pub String);

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProviderError {}

/// A provider of models.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Name in the configuration.
    pub name: String,
    /// Wire formats it accepts, the preferred one first.
    pub formats: Vec<WireFormat>,
    /// Timeouts of its calls.
    pub timeouts: Timeouts,
    /// Calls that may run at once.
    pub max_in_flight: usize,
    /// True if callers may name any object in the operator's account at the provider.
    pub shares_objects: bool,
    base_url: BaseUrl,
    /// Further hosts of the provider. A leading dot matches all subdomains.
    hosts: Vec<String>,
    credential: Credential,
    /// Further credentials of equal rank.
    more_credentials: Vec<Credential>,
    client: HttpClient,
    /// Timers of the waits for answers.
    timers: Arc<TimerPool>,
    /// Heads of requests to the paths of calls.
    templates: Arc<TemplateCache>,
}

/// Templates by credential and path. Their number is limited, because paths can name models.
#[derive(Debug, Default)]
struct TemplateCache(RwLock<Vec<(usize, String, Arc<RequestTemplate>)>>);

/// Paths and credentials whose requests have a template.
const MAX_TEMPLATES: usize = 64;

impl TemplateCache {
    fn get(&self, credential: usize, path: &str) -> Option<Arc<RequestTemplate>> {
        let known = self.0.read();
        let found = known.iter().find(|(own, at, _)| *own == credential && at == path)?;
        Some(Arc::clone(&found.2))
    }

    fn keep(&self, credential: usize, path: &str, template: &Arc<RequestTemplate>) {
        let mut known = self.0.write();
        if known.len() < MAX_TEMPLATES {
            known.push((credential, path.to_owned(), Arc::clone(template)));
        }
    }
}

/// Options of one request.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions<'a> {
    /// Index of the credential.
    pub credential: usize,
    /// True to open a new connection.
    pub new_connection: bool,
    /// Connect timeout, if shorter than that of the provider.
    pub connect: Duration,
    /// Time to the head of the response.
    pub first_byte: Duration,
    /// Set once a connection to the provider has the request.
    pub sent: &'a SentMark,
    /// Gets the fetched secrets of the request.
    pub secrets: &'a SentSecrets,
}

/// A parsed URL, so that a call need not parse it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct BaseUrl {
    scheme: Scheme,
    authority: Authority,
    /// Path prefix, usually empty.
    prefix: String,
}

impl BaseUrl {
    fn join(&self, path: &str) -> Result<Uri, http::Error> {
        let mut whole = String::with_capacity(self.prefix.len() + path.len());
        whole.push_str(&self.prefix);
        whole.push_str(path);
        let mut parts = uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(PathAndQuery::try_from(whole)?);
        Ok(Uri::from_parts(parts)?)
    }
}

/// Returns an address without its user, password, query and fragment: they may be secrets.
pub fn shown_address(address: &str) -> String {
    let front = address.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = front.split_once("://").unwrap_or(("", front));
    let mark = if scheme.is_empty() { "" } else { "://" };
    // A password may have any mark.
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}{mark}{host}")
}

impl Provider {
    /// Creates a provider at a base URL: everything before `/v1/…` or `/v1beta/…`.
    pub fn new(
        name: &str,
        formats: Vec<WireFormat>,
        base_url: &str,
        credential: Credential,
        timeouts: Timeouts,
        client: HttpClient,
    ) -> Result<Self, ProviderError> {
        let base_url = base_url.trim_end_matches('/').to_owned();
        let shown = shown_address(&base_url);
        let uri: Uri = base_url
            .parse()
            .map_err(|e| ProviderError(format!("`{shown}` is not an address: {e}")))?;
        // URL parsers drop a fragment silently, so it is refused here.
        if uri.query().is_some() || base_url.contains('#') {
            return Err(ProviderError(format!("`{shown}` must not have a query or a fragment")));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ProviderError(format!("`{shown}` is not an http or https address")));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(ProviderError(format!("`{shown}` is not an http or https address")));
        }
        let base_url = BaseUrl { scheme, authority, prefix };
        Ok(Self {
            name: name.to_owned(),
            formats,
            timeouts,
            max_in_flight: usize::MAX,
            shares_objects: false,
            base_url,
            hosts: Vec::new(),
            credential,
            more_credentials: Vec::new(),
            client,
            timers: Arc::default(),
            templates: Arc::default(),
        })
    }

    /// Adds credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl IntoIterator<Item = Credential>) -> Self {
        self.more_credentials.extend(credentials);
        self.templates = Arc::default();
        self
    }

    /// Replaces the settings of outgoing connections.
    #[must_use]
    pub fn with_outbound(self, outbound: &Outbound) -> Self {
        let client = HttpClient::network(self.timeouts.connect, outbound);
        Self { client, templates: Arc::default(), ..self }
    }

    /// Limits the calls that run at once.
    #[must_use]
    pub fn with_max_in_flight(mut self, calls: usize) -> Self {
        self.max_in_flight = calls;
        self
    }

    /// Sets if callers may name any object in the operator's account at the provider.
    #[must_use]
    pub fn with_shared_objects(mut self, is_shared: bool) -> Self {
        self.shares_objects = is_shared;
        self
    }

    /// Adds hosts of the provider, to which some redirect status requests of tasks: a name, or `*.`
    /// and a domain for all of its subdomains.
    pub fn with_hosts(mut self, hosts: &[String]) -> Result<Self, ProviderError> {
        for host in hosts {
            let (plain, own) = match host.strip_prefix("*.") {
                Some(domain) => (domain, format!(".{domain}")),
                None => (host.as_str(), host.clone()),
            };
            let is_host_char =
                |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
            let parts = plain.split('.').filter(|part| !part.is_empty()).count();
            if parts < 2 || plain.starts_with('.') || !plain.chars().all(is_host_char) {
                let message = "is not a host; write \"api.example.com\" or \"*.example.com\"";
                return Err(ProviderError(format!("`{host}` {message}")));
            }
            self.hosts.push(own);
        }
        Ok(self)
    }

    /// Returns the base URL.
    pub fn address(&self) -> String {
        let BaseUrl { scheme, authority, prefix } = &self.base_url;
        format!("{scheme}://{authority}{prefix}")
    }

    /// Returns true if both providers have the same base URL.
    pub fn has_same_address(&self, other: &Self) -> bool {
        self.base_url == other.base_url
    }

    /// Returns the index of one of our credentials in another provider with the same base URL.
    pub fn index_in(&self, other: &Self, credential: usize) -> Option<usize> {
        if !self.has_same_address(other) {
            return None;
        }
        let own = self.credential(credential);
        (0..other.credential_count()).find(|index| other.credential(*index).matches(own))
    }

    /// Returns true if the credential at this index is not empty.
    pub fn has_credential(&self, index: usize) -> bool {
        !self.credential(index).is_none()
    }

    /// Returns the number of credentials, at least one.
    pub fn credential_count(&self) -> usize {
        self.more_credentials.len() + 1
    }

    /// Returns true if the base URL of the provider has this host.
    pub fn has_host(&self, host: &str) -> bool {
        self.base_url.authority.host().eq_ignore_ascii_case(host)
    }

    /// Returns true if the host of the provider may be one on the internet, by its text.
    pub fn is_public(&self) -> bool {
        transport::is_public_host(self.base_url.authority.host())
    }

    /// Returns the client of its requests.
    pub(crate) const fn client(&self) -> &HttpClient {
        &self.client
    }

    pub(crate) fn credential(&self, index: usize) -> &Credential {
        index
            .checked_sub(1)
            .and_then(|index| self.more_credentials.get(index))
            .unwrap_or(&self.credential)
    }

    /// Posts a body to a path and waits for the head of the response.
    pub async fn send(
        &self,
        path: &str,
        headers: HeaderFields,
        pieces: Vec<Bytes>,
        options: &SendOptions<'_>,
    ) -> Result<ClientResponse, ApiError> {
        let template = match self.templates.get(options.credential, path) {
            Some(template) => template,
            None => self.make_template(path, options.credential)?,
        };
        let body = RequestBody::new(pieces);
        if !self.credential(options.credential).is_fixed() {
            // Boxed, because it would enlarge the future of every call.
            return Box::pin(self.exchange(template.to_request(&headers, body), options)).await;
        }
        let SendOptions { new_connection, connect, sent, .. } = *options;
        let content = (headers, body);
        let sending = pin!(async {
            let sending =
                self.client.send_templated(&template, content, new_connection, connect, sent);
            Ok(sending.await)
        });
        self.wait_for_head(sending, options).await
    }

    /// Makes the template of requests that post to a path with a credential, as far as it is fixed.
    fn make_template(
        &self,
        path: &str,
        credential: usize,
    ) -> Result<Arc<RequestTemplate>, ApiError> {
        let uri = self
            .base_url
            .join(path)
            .map_err(|e| ApiError::internal(format!("{}: {path} is not a path: {e}", self.name)))?;
        let mut headers = HeaderFields::default();
        headers.append(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        usual_headers().into_iter().for_each(|(name, value)| headers.append(name, value));
        if let Some((name, value)) = self.credential(credential).fixed_header() {
            headers.insert(name.clone(), value.clone());
        }
        let template = Arc::new(self.client.template(Method::POST, uri, headers));
        self.templates.keep(credential, path, &template);
        Ok(template)
    }

    /// Sends a GET request to a path or to a URL of the provider.
    pub async fn get(
        &self,
        at: &str,
        headers: HeaderMap,
        options: &SendOptions<'_>,
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
        self.exchange(request, options).await
    }

    /// Deletes an object at a path, and returns the status of the answer.
    pub async fn delete(
        &self,
        path: &str,
        credential: usize,
        connect: Duration,
    ) -> Result<u16, ApiError> {
        let uri = self
            .base_url
            .join(path)
            .map_err(|e| ApiError::internal(format!("{}: {path} is not a path: {e}", self.name)))?;
        let mut request = Request::new(RequestBody::new(Vec::new()));
        *request.method_mut() = Method::DELETE;
        *request.uri_mut() = uri;
        let sent = SentMark::default();
        let first_byte = self.timeouts.first_byte;
        let options = SendOptions {
            credential,
            new_connection: false,
            connect,
            first_byte,
            sent: &sent,
            secrets: &SentSecrets::default(),
        };
        Ok(self.exchange(request, &options).await?.status)
    }

    /// Returns true if a URL belongs to the provider. Then it may receive the credential, and need
    /// not be public.
    pub fn owns(&self, address: &str) -> bool {
        self.own_uri(address).is_some()
    }

    /// Parses a URL with the same scheme, host and port, or over TLS with one of the further hosts.
    fn own_uri(&self, address: &str) -> Option<Uri> {
        let uri: Uri = address.parse().ok()?;
        let BaseUrl { scheme, authority, .. } = &self.base_url;
        let target = uri.authority()?;
        if uri.scheme()? != scheme || target.as_str().contains('@') {
            return None;
        }
        let host = target.host().to_ascii_lowercase();
        let is_host = |own: &String| host == *own || (own.starts_with('.') && host.ends_with(own));
        let is_further_host = *scheme == Scheme::HTTPS
            && target.port().is_none_or(|port| port.as_u16() == 443)
            && self.hosts.iter().any(is_host);
        (target == authority || is_further_host).then_some(uri)
    }

    /// Sends a request and waits for the head of the response.
    async fn exchange(
        &self,
        mut request: Request<RequestBody>,
        options: &SendOptions<'_>,
    ) -> Result<ClientResponse, ApiError> {
        for (name, value) in usual_headers() {
            request.headers_mut().insert(name, value);
        }
        let credential = self.credential(options.credential);
        let sending = async {
            // The token may have to be fetched first. Nothing was sent to the provider then.
            let authenticated = credential.authenticate(&mut request, &self.client).await;
            let secret =
                authenticated.map_err(|error| error.with_progress(UpstreamProgress::NotSent))?;
            secret.into_iter().for_each(|secret| options.secrets.add(secret));
            let SendOptions { new_connection, connect, sent, .. } = *options;
            Ok(self.client.send_within(request, new_connection, connect, sent).await)
        };
        self.wait_for_head(pin!(sending), options).await
    }

    /// Waits for the head of a response. The future is pinned, because the timer would move it as a
    /// whole.
    async fn wait_for_head(
        &self,
        sending: Pin<
            &mut impl Future<Output = Result<Result<ClientResponse, SendError>, ApiError>>,
        >,
        options: &SendOptions<'_>,
    ) -> Result<ClientResponse, ApiError> {
        let error = match self.timers.timeout(options.first_byte, sending).await {
            Some(Ok(Ok(response))) => {
                if matches!(response.status, 401 | 403) {
                    self.credential(options.credential).mark_refused(response.status);
                }
                // Asked first: the decoding moves the response.
                return match response.is_event_stream() {
                    true => Ok(response.decode_event_stream()),
                    false => Ok(response),
                };
            }
            Some(Ok(Err(send_error))) => {
                let is_overload = send_error
                    .http2_error()
                    .is_some_and(|frame| frame.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM));
                let SendError { progress, cause } = send_error;
                let error = if is_overload {
                    ApiError::new(ErrorKind::Overloaded, "the model is overloaded, retry later")
                        .with_blame(Blame::Upstream)
                } else if is_timeout(&*cause) {
                    ApiError::new(ErrorKind::Timeout, "the provider took too long to answer")
                } else {
                    let message = "the provider could not be reached, retry later";
                    ApiError::new(ErrorKind::Unavailable, message)
                };
                error.with_progress(progress).with_log_note(error_chain(&*cause))
            }
            Some(Err(error)) => error,
            None => {
                let progress = match options.sent.is_set() {
                    true => UpstreamProgress::Sent,
                    false => UpstreamProgress::NotSent,
                };
                timeout_error("answer", options.first_byte).with_progress(progress)
            }
        };
        let note = format!("{}: {}", self.name, error.log_note().unwrap_or_default());
        Err(error.with_log_note(note))
    }
}

/// Returns the headers of all requests, which are those of the vendors' own clients, for streams as
/// well.
fn usual_headers() -> [(HeaderName, HeaderValue); 3] {
    let agent = concat!("portunus/", env!("CARGO_PKG_VERSION"));
    [
        (ACCEPT, HeaderValue::from_static("application/json")),
        (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (USER_AGENT, HeaderValue::from_static(agent)),
    ]
}

fn timeout_error(what: &str, within: Duration) -> ApiError {
    ApiError::new(ErrorKind::Timeout, "the provider took too long to answer")
        .with_log_note(format!("no {what} within {within:?}"))
}

/// Returns true if a timeout caused the error.
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

#[cfg(test)]
mod tests {
    use super::*;
    use transport::{Outbound, ProxySettings};

    fn provider(base_url: &str, hosts: &[&str]) -> Result<Provider, ProviderError> {
        let time = Duration::from_secs(1);
        let times = Timeouts { connect: time, first_byte: time, gap: time, total: time };
        let outbound = Outbound::new(&ProxySettings::default(), &[])
            .map_err(|e| ProviderError(e.to_string()))?;
        let client = HttpClient::network(time, &outbound);
        let formats = vec![WireFormat::Images];
        let provider = Provider::new("p", formats, base_url, Credential::none(), times, client)?;
        provider.with_hosts(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_shown_address_has_no_secret() {
        for (address, shown) in [
            ("https://u:hush@api.test/v1", "https://api.test/v1"),
            ("https://u:hu/sh@x@api.test/v1?key=hush#hush", "https://api.test/v1"),
            ("u:hush@api.test", "api.test"),
            ("https://api.test", "https://api.test"),
        ] {
            assert_eq!(shown_address(address), shown);
            let refused = provider(&format!("{address}?key=hush"), &[]).unwrap_err();
            assert!(!refused.to_string().contains("hush"), "{refused}");
        }
    }

    #[test]
    fn owns_only_urls_of_configured_hosts() {
        let own = |base_url, hosts: &[&str], address| {
            provider(base_url, hosts).is_ok_and(|provider| provider.owns(address))
        };
        let base_url = "https://api.example.com/v1";
        assert!(own(base_url, &[], "https://api.example.com/task/1?x=y"));
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
            assert!(!own(base_url, &[], other), "{other}");
        }
        let hosts = ["*.example.com", "tasks.example.org"];
        for address in [
            "https://eu.example.com/task/1",
            "https://EU4.api.Example.com:443/task/1",
            "https://tasks.example.org/1",
        ] {
            assert!(own(base_url, &hosts, address), "{address}");
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
            assert!(!own(base_url, &hosts, address), "{address}");
        }
        // Further hosts are public ones, so plain HTTP is not allowed for them.
        assert!(!own("http://api.example.com", &hosts, "http://eu.example.com/task/1"));
    }

    #[test]
    fn error_names_the_invalid_host() {
        for wrong in ["", "*", "com", "*.com", ".example.com", "https://a.example", "a.b:1", "*a.b"]
        {
            let result = provider("https://a.example", &[wrong]);
            assert!(result.is_err_and(|e| e.0.contains(&format!("`{wrong}`"))), "{wrong}");
        }
    }
}
