//! Credentials of a provider: none, a header, an access token that is fetched, or an AWS signature.

use canon::ApiError;
use http::Request;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::fmt;
use std::sync::Arc;

use crate::aws_signer::SigV4Signer;
use crate::entra_auth::EntraAuth;
use crate::google_auth::GoogleAuth;
use crate::renewed_secret::RenewedSecret;
use crate::secret_filter::header_secrets;
use crate::sent_secrets::SentSecret;
use transport::HttpClient;
use transport::RequestBody;

/// A credential for a provider, never printed.
#[derive(Clone)]
pub struct Credential(CredentialKind);

#[derive(Clone)]
enum CredentialKind {
    None,
    Header(HeaderName, HeaderValue),
    Token(Arc<AccessToken>),
    SigV4(Arc<SigV4Signer>),
}

/// A bearer token that is fetched and renewed.
struct AccessToken {
    secret: Arc<RenewedSecret<HeaderValue>>,
    /// Google Cloud project of the account, if it names one.
    project: Option<String>,
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
        let (secret, project) = google.into_secret();
        Self(CredentialKind::Token(Arc::new(AccessToken { secret: Arc::new(secret), project })))
    }

    /// An access token of Microsoft Entra ID, fetched on demand and renewed before it expires.
    pub fn entra(entra: EntraAuth) -> Self {
        let secret = Arc::new(entra.into_secret());
        Self(CredentialKind::Token(Arc::new(AccessToken { secret, project: None })))
    }

    /// An AWS signature of every request.
    pub fn sigv4(keys: SigV4Signer) -> Self {
        Self(CredentialKind::SigV4(Arc::new(keys)))
    }

    /// Returns true if there is no credential.
    pub(crate) const fn is_none(&self) -> bool {
        match self.0 {
            CredentialKind::None => true,
            CredentialKind::Header(..) | CredentialKind::Token(_) | CredentialKind::SigV4(_) => {
                false
            }
        }
    }

    /// Returns the secret texts of the credential, as far as they are known now.
    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        match &self.0 {
            CredentialKind::None => Vec::new(),
            CredentialKind::Header(_, value) => header_secrets(value),
            CredentialKind::Token(token) => {
                token.secret.current().map(|value| header_secrets(&value)).unwrap_or_default()
            }
            CredentialKind::SigV4(signer) => signer.credentials().secrets(),
        }
    }

    /// Returns true if both credentials are the same.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (CredentialKind::None, CredentialKind::None) => true,
            (CredentialKind::Header(name, value), CredentialKind::Header(other, known)) => {
                name == other && value == known
            }
            (CredentialKind::Token(own), CredentialKind::Token(other)) => {
                own.secret.identity() == other.secret.identity()
            }
            (CredentialKind::SigV4(own), CredentialKind::SigV4(other)) => own.matches(other),
            (
                CredentialKind::None
                | CredentialKind::Header(..)
                | CredentialKind::Token(_)
                | CredentialKind::SigV4(_),
                _,
            ) => false,
        }
    }

    /// Returns the Google Cloud project of the credential, if it names one.
    pub fn project(&self) -> Option<&str> {
        match &self.0 {
            CredentialKind::Token(token) => token.project.as_deref(),
            CredentialKind::None | CredentialKind::Header(..) | CredentialKind::SigV4(_) => None,
        }
    }

    /// Returns true if the credential is the same for every request.
    pub(crate) const fn is_fixed(&self) -> bool {
        match self.0 {
            CredentialKind::None | CredentialKind::Header(..) => true,
            CredentialKind::Token(_) | CredentialKind::SigV4(_) => false,
        }
    }

    /// Returns the header of a credential that is the same for every request.
    pub(crate) const fn fixed_header(&self) -> Option<(&HeaderName, &HeaderValue)> {
        match &self.0 {
            CredentialKind::Header(name, value) => Some((name, value)),
            CredentialKind::None | CredentialKind::Token(_) | CredentialKind::SigV4(_) => None,
        }
    }

    /// Adds the credential to a request that is otherwise complete. Returns the secret if it was fetched.
    pub(crate) async fn authenticate(
        &self,
        request: &mut Request<RequestBody>,
        client: &HttpClient,
    ) -> Result<Option<SentSecret>, ApiError> {
        match &self.0 {
            CredentialKind::None => Ok(None),
            CredentialKind::Header(name, value) => {
                request.headers_mut().insert(name.clone(), value.clone());
                Ok(None)
            }
            CredentialKind::Token(token) => {
                let value = token.secret.get(client).await?;
                request.headers_mut().insert(AUTHORIZATION, HeaderValue::clone(&value));
                Ok(Some(SentSecret::Token(value)))
            }
            CredentialKind::SigV4(signer) => {
                let keys = signer.sign(request, client).await?;
                let is_fetched = signer.credentials().renewed_secret().is_some();
                Ok(is_fetched.then_some(SentSecret::Keys(keys)))
            }
        }
    }

    /// Replaces a fetched secret that the provider refused with this status. AWS answers 403 both to
    /// expired keys and to a missing permission, so its keys are used until they are renewed.
    pub(crate) fn mark_refused(&self, status: u16) {
        match &self.0 {
            CredentialKind::Token(token) if status == 401 => token.secret.end_refused(),
            CredentialKind::SigV4(signer) if matches!(status, 401 | 403) => {
                if let Some(secret) = signer.credentials().renewed_secret() {
                    secret.renew_soon();
                }
            }
            CredentialKind::None
            | CredentialKind::Header(..)
            | CredentialKind::Token(_)
            | CredentialKind::SigV4(_) => {}
        }
    }

    /// Returns true if the secret is fetched from a service.
    pub(crate) fn is_fetched(&self) -> bool {
        match &self.0 {
            CredentialKind::Token(_) => true,
            CredentialKind::SigV4(signer) => signer.credentials().renewed_secret().is_some(),
            CredentialKind::None | CredentialKind::Header(..) => false,
        }
    }

    /// Starts a fetch if the secret is missing, expired or due for renewal.
    pub(crate) fn keep_fresh(&self, client: &HttpClient) {
        match &self.0 {
            CredentialKind::Token(token) => token.secret.keep_fresh(client),
            CredentialKind::SigV4(signer) => {
                if let Some(secret) = signer.credentials().renewed_secret() {
                    secret.keep_fresh(client);
                }
            }
            CredentialKind::None | CredentialKind::Header(..) => {}
        }
    }

    /// Fetches the secret, unless there is a valid one.
    pub(crate) async fn prepare(&self, client: &HttpClient) -> Result<(), ApiError> {
        match &self.0 {
            CredentialKind::Token(token) => token.secret.get(client).await.map(|_| ()),
            CredentialKind::SigV4(signer) => signer.credentials().keys(client).await.map(|_| ()),
            CredentialKind::None | CredentialKind::Header(..) => Ok(()),
        }
    }

    /// Returns the reason why the secret cannot be fetched, for the operator.
    pub(crate) fn trouble(&self) -> Option<String> {
        match &self.0 {
            CredentialKind::Token(token) => token.secret.trouble(),
            CredentialKind::SigV4(signer) => signer.credentials().renewed_secret()?.trouble(),
            CredentialKind::None | CredentialKind::Header(..) => None,
        }
    }

    /// Takes over the secret that the same credential fetched under an earlier configuration.
    pub(crate) fn adopt(&self, earlier: &Self) {
        match (&self.0, &earlier.0) {
            (CredentialKind::Token(own), CredentialKind::Token(earlier)) => {
                own.secret.adopt(&earlier.secret);
            }
            (CredentialKind::SigV4(own), CredentialKind::SigV4(earlier)) => {
                let own = own.credentials().renewed_secret();
                if let Some((own, earlier)) = own.zip(earlier.credentials().renewed_secret()) {
                    own.adopt(earlier);
                }
            }
            (
                CredentialKind::None
                | CredentialKind::Header(..)
                | CredentialKind::Token(_)
                | CredentialKind::SigV4(_),
                _,
            ) => {}
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            CredentialKind::None => "Credential(none)",
            CredentialKind::Header(..) => "Credential(header …)",
            CredentialKind::Token(_) => "Credential(token …)",
            CredentialKind::SigV4(_) => "Credential(sigv4 …)",
        })
    }
}
