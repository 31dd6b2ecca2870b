//! What proves us to a provider: nothing, a header, a Google access token or an AWS signature.

use canon::ApiError;
use http::Request;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::fmt;
use std::sync::Arc;

use crate::google::Google;
use crate::sigv4::SigV4;
use transport::Client;
use transport::Pieces;

/// The time, as microseconds since 1970. Passed in, so that a test can set it.
pub type Now = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What proves us to a provider. Never printed.
#[derive(Clone)]
pub struct Credential(Kind);

#[derive(Clone)]
enum Kind {
    None,
    Header(HeaderName, HeaderValue),
    Google(Arc<Google>),
    SigV4(Arc<SigV4>),
}

impl Credential {
    /// Nothing is proved.
    pub const fn none() -> Self {
        Self(Kind::None)
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
        Some(Self(Kind::Header(name, value)))
    }

    /// An access token of Google's, fetched when it is needed and renewed before it ends.
    pub fn google(google: Google) -> Self {
        Self(Kind::Google(Arc::new(google)))
    }

    /// A signature of AWS's kind over every request.
    pub fn sigv4(keys: SigV4) -> Self {
        Self(Kind::SigV4(Arc::new(keys)))
    }

    /// Whether it proves nothing.
    pub(crate) const fn is_none(&self) -> bool {
        match self.0 {
            Kind::None => true,
            Kind::Header(..) | Kind::Google(_) | Kind::SigV4(_) => false,
        }
    }

    /// Whether the other one proves the same.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Kind::None, Kind::None) => true,
            (Kind::Header(name, value), Kind::Header(other, known)) => {
                name == other && value == known
            }
            (Kind::Google(own), Kind::Google(other)) => own.is_same(other),
            (Kind::SigV4(own), Kind::SigV4(other)) => own.is_same(other),
            (Kind::None | Kind::Header(..) | Kind::Google(_) | Kind::SigV4(_), _) => false,
        }
    }

    /// The project it belongs to, where it says so.
    pub fn project(&self) -> Option<&str> {
        match &self.0 {
            Kind::Google(google) => google.project(),
            Kind::None | Kind::Header(..) | Kind::SigV4(_) => None,
        }
    }

    /// Puts the proof into a request that is otherwise ready to leave.
    pub(crate) async fn prove(
        &self,
        request: &mut Request<Pieces>,
        client: &Client,
    ) -> Result<(), ApiError> {
        match &self.0 {
            Kind::None => {}
            Kind::Header(name, value) => {
                request.headers_mut().insert(name.clone(), value.clone());
            }
            Kind::Google(google) => {
                let token = google.token(client).await?;
                request.headers_mut().insert(AUTHORIZATION, token);
            }
            Kind::SigV4(keys) => keys.sign(request)?,
        }
        Ok(())
    }

    /// The provider did not accept the proof: what was only borrowed is fetched anew next time.
    pub(crate) fn refused(&self) {
        match &self.0 {
            Kind::Google(google) => google.forget(),
            Kind::None | Kind::Header(..) | Kind::SigV4(_) => {}
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::None => "Credential(none)",
            Kind::Header(..) => "Credential(header …)",
            Kind::Google(_) => "Credential(google …)",
            Kind::SigV4(_) => "Credential(sigv4 …)",
        })
    }
}
