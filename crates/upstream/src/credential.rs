//! Credentials of a provider: none, a header, a Google access token or an AWS signature.

use canon::{ApiError, Micros};
use http::Request;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::fmt;
use std::sync::Arc;

use crate::google_auth::GoogleAuth;
use crate::sigv4::SigV4Signer;
use transport::HttpClient;
use transport::RequestBody;

/// Time of day, a parameter so that a test can set it.
pub type ClockFn = Arc<dyn Fn() -> Micros + Send + Sync>;

/// A credential for a provider, never printed.
#[derive(Clone)]
pub struct Credential(CredentialKind);

#[derive(Clone)]
enum CredentialKind {
    None,
    Header(HeaderName, HeaderValue),
    Google(Arc<GoogleAuth>),
    SigV4(Arc<SigV4Signer>),
}

/// Returns the secret of a header, without the name of its scheme.
fn without_scheme(value: &HeaderValue) -> Vec<u8> {
    let value = value.as_bytes();
    value.strip_prefix(b"Bearer ").unwrap_or(value).to_vec()
}

impl Credential {
    /// No credential.
    pub const fn none() -> Self {
        Self(CredentialKind::None)
    }

    /// `Authorization: Bearer …` (RFC 6750). Returns `None` if the secret is not a valid header
    /// value.
    pub fn bearer(secret: &str) -> Option<Self> {
        Self::header("authorization", &format!("Bearer {secret}"))
    }

    /// A header with a secret. Returns `None` if name or secret are not valid in a header.
    pub fn header(name: &str, secret: &str) -> Option<Self> {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(secret).ok()?;
        value.set_sensitive(true);
        Some(Self(CredentialKind::Header(name, value)))
    }

    /// A Google access token, fetched on demand and renewed before it expires.
    pub fn google(google: GoogleAuth) -> Self {
        Self(CredentialKind::Google(Arc::new(google)))
    }

    /// An AWS signature of every request.
    pub fn sigv4(keys: SigV4Signer) -> Self {
        Self(CredentialKind::SigV4(Arc::new(keys)))
    }

    /// Returns true if there is no credential.
    pub(crate) const fn is_none(&self) -> bool {
        match self.0 {
            CredentialKind::None => true,
            CredentialKind::Header(..) | CredentialKind::Google(_) | CredentialKind::SigV4(_) => {
                false
            }
        }
    }

    /// Returns the secret texts of the credential, as far as they are known now.
    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        match &self.0 {
            CredentialKind::None => Vec::new(),
            CredentialKind::Header(_, value) => vec![without_scheme(value)],
            CredentialKind::Google(google) => {
                google.current_token().iter().map(without_scheme).collect()
            }
            CredentialKind::SigV4(keys) => keys.secrets(),
        }
    }

    /// Returns true if both credentials are the same.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (CredentialKind::None, CredentialKind::None) => true,
            (CredentialKind::Header(name, value), CredentialKind::Header(other, known)) => {
                name == other && value == known
            }
            (CredentialKind::Google(own), CredentialKind::Google(other)) => own.matches(other),
            (CredentialKind::SigV4(own), CredentialKind::SigV4(other)) => own.matches(other),
            (
                CredentialKind::None
                | CredentialKind::Header(..)
                | CredentialKind::Google(_)
                | CredentialKind::SigV4(_),
                _,
            ) => false,
        }
    }

    /// Returns the Google Cloud project of the credential, if it names one.
    pub fn project(&self) -> Option<&str> {
        match &self.0 {
            CredentialKind::Google(google) => google.project(),
            CredentialKind::None | CredentialKind::Header(..) | CredentialKind::SigV4(_) => None,
        }
    }

    /// Returns true if the credential is the same for every request.
    pub(crate) const fn is_fixed(&self) -> bool {
        match self.0 {
            CredentialKind::None | CredentialKind::Header(..) => true,
            CredentialKind::Google(_) | CredentialKind::SigV4(_) => false,
        }
    }

    /// Returns the header of a credential that is the same for every request.
    pub(crate) const fn fixed_header(&self) -> Option<(&HeaderName, &HeaderValue)> {
        match &self.0 {
            CredentialKind::Header(name, value) => Some((name, value)),
            CredentialKind::None | CredentialKind::Google(_) | CredentialKind::SigV4(_) => None,
        }
    }

    /// Adds the credential to a request that is otherwise complete.
    pub(crate) async fn authenticate(
        &self,
        request: &mut Request<RequestBody>,
        client: &HttpClient,
    ) -> Result<(), ApiError> {
        match &self.0 {
            CredentialKind::None => {}
            CredentialKind::Header(name, value) => {
                request.headers_mut().insert(name.clone(), value.clone());
            }
            CredentialKind::Google(google) => {
                let token = google.token(client).await?;
                request.headers_mut().insert(AUTHORIZATION, token);
            }
            CredentialKind::SigV4(keys) => keys.sign(request)?,
        }
        Ok(())
    }

    /// Drops a fetched token after the provider refused it, so that the next call fetches another.
    pub(crate) fn mark_refused(&self) {
        match &self.0 {
            CredentialKind::Google(google) => google.forget(),
            CredentialKind::None | CredentialKind::Header(..) | CredentialKind::SigV4(_) => {}
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CredentialKind::None => "Credential(none)",
            CredentialKind::Header(..) => "Credential(header …)",
            CredentialKind::Google(_) => "Credential(google …)",
            CredentialKind::SigV4(_) => "Credential(sigv4 …)",
        })
    }
}
