//! One provider: where it is, how it is addressed, how long it may take.

use bytes::Bytes;
use canon::{Fault, Origin, Trouble};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use std::fmt;
use std::time::Duration;

use crate::body::Pieces;
use crate::client::{Answer, Client};

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

/// What proves us to a provider. Never printed.
#[derive(Clone)]
pub struct Credential(Option<(HeaderName, HeaderValue)>);

impl Credential {
    /// Nothing is proved.
    pub const fn none() -> Self {
        Self(None)
    }

    /// `Authorization: Bearer …`. `None` when the secret cannot stand in a header.
    pub fn bearer(secret: &str) -> Option<Self> {
        Self::header("authorization", &format!("Bearer {secret}"))
    }

    /// A header of the provider's own. `None` when name or secret cannot stand in a header.
    pub fn header(name: &str, secret: &str) -> Option<Self> {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(secret).ok()?;
        value.set_sensitive(true);
        Some(Self(Some((name, value))))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Credential(…)" } else { "Credential(none)" })
    }
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
    pub speaks: Vec<Origin>,
    /// How long it may take.
    pub timeouts: Timeouts,
    base: Base,
    credential: Credential,
    client: Client,
}

/// An address in its parts, so that it is not read again for every call.
#[derive(Clone, Debug)]
struct Base {
    scheme: Scheme,
    authority: Authority,
    /// What comes before the path; empty for most.
    prefix: String,
}

impl Base {
    fn at(&self, path: &str) -> Result<Uri, http::Error> {
        let path = format!("{}{path}", self.prefix);
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        uri.path_and_query(PathAndQuery::try_from(path)?).build()
    }
}

impl Provider {
    /// A provider at that address: what comes before `/v1/…` or `/v1beta/…`.
    pub fn new(
        name: &str,
        speaks: Vec<Origin>,
        base: &str,
        credential: Credential,
        timeouts: Timeouts,
        client: Client,
    ) -> Result<Self, ProviderError> {
        let base = base.trim_end_matches('/').to_owned();
        let uri: Uri =
            base.parse().map_err(|e| ProviderError(format!("`{base}` is not an address: {e}")))?;
        if uri.query().is_some() {
            return Err(ProviderError(format!("`{base}` must not have a query")));
        }
        let prefix = uri.path().trim_end_matches('/').to_owned();
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(ProviderError(format!("`{base}` is not an http or https address")));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(ProviderError(format!("`{base}` is not an http or https address")));
        }
        let base = Base { scheme, authority, prefix };
        Ok(Self { name: name.to_owned(), speaks, timeouts, base, credential, client })
    }

    /// Sends a body to a path and waits for the head of the answer.
    pub async fn send(
        &self,
        path: &str,
        headers: HeaderMap,
        pieces: Vec<Bytes>,
        timeouts: &Timeouts,
    ) -> Result<Answer, Fault> {
        let uri = self
            .base
            .at(path)
            .map_err(|e| Fault::internal(format!("{}: {path} is not a path: {e}", self.name)))?;
        let mut request = Request::new(Pieces::new(pieces));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let agent = concat!("portunus/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, HeaderValue::from_static(agent));
        if let Some((name, value)) = &self.credential.0 {
            headers.insert(name.clone(), value.clone());
        }
        match tokio::time::timeout(timeouts.first_byte, self.client.send(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => {
                let fault = Fault::new(
                    Trouble::Unavailable,
                    "the provider could not be reached, retry later",
                );
                Err(fault.note(format!("{}: {}", self.name, chain(&e))))
            }
            Err(_) => Err(Fault::new(Trouble::Timeout, "the provider took too long to answer")
                .note(format!("{}: no answer within {:?}", self.name, timeouts.first_byte))),
        }
    }
}

/// An error with everything behind it; the outermost one alone says little.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(error) = inner {
        text = format!("{text}: {error}");
        inner = error.source();
    }
    text
}
