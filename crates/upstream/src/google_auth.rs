//! Google access tokens, from the key of a service account, a user's refresh token or the metadata
//! server. A token is cached and renewed before it expires:
//! <https://developers.google.com/identity/protocols/oauth2/service-account>.

use arc_swap::ArcSwapOption;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use canon::{ApiError, AtomicMicros, ErrorKind, Micros};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

use crate::credential::ClockFn;
use transport::HttpClient;
use transport::RequestBody;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const JWT_GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Lifetime of an assertion, the longest Google accepts.
const ASSERTION_SECONDS: i64 = 3600;
/// Time a token request may take.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest response of a token endpoint.
const MAX_RESPONSE_BYTES: usize = 64 << 10;
/// Time before expiry at which a token is renewed, if its lifetime is long enough.
const RENEW_AHEAD: Micros = Micros::from_secs(300);
/// Time before expiry at which a token is no longer used, for clock differences and the duration of
/// a request.
const CLOCK_SKEW: Micros = Micros::from_secs(10);
/// Pause after a failed renewal while the old token is valid.
const RENEW_RETRY: Micros = Micros::from_secs(10);
/// Longest lifetime that is believed.
const MAX_TOKEN_SECONDS: i64 = 12 * 3600;

/// Source and cache of access tokens, never printed.
pub struct GoogleAuth {
    source: TokenSource,
    project: Option<String>,
    now: ClockFn,
    token: ArcSwapOption<AccessToken>,
    /// Held during a fetch; holds the error of the last one.
    fetching: Mutex<Option<ApiError>>,
    /// Number of completed fetches.
    rounds: AtomicU64,
    renewing: AtomicBool,
    renew_not_before: AtomicMicros,
}

enum TokenSource {
    ServiceAccount { email: String, key_id: Option<String>, key: Box<RsaKeyPair>, endpoint: Uri },
    User { form: Bytes, endpoint: Uri },
    Metadata { endpoint: Uri },
}

struct AccessToken {
    value: HeaderValue,
    renew_at: Micros,
    expires_at: Micros,
}

/// Reason why a Google account cannot be used. Repeats nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GoogleAuthError {
    /// The text is not JSON.
    #[error("is not JSON (line {line}, column {column})")]
    NotJson {
        /// Line of the error.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// A field is missing or empty.
    #[error("has no `{0}`")]
    MissingField(&'static str),
    /// The token endpoint is not a URL.
    #[error("has a `token_uri` that is not a URL")]
    TokenUri,
    /// The type of the account is not supported.
    #[error("is of the type `{0}`; a `service_account` or an `authorized_user` is needed")]
    Type(String),
    /// The private key cannot be read.
    #[error("has a `private_key` that is not an RSA key in PEM")]
    PrivateKey,
    /// The metadata server is not a host.
    #[error("`{0}` is not a host")]
    MetadataHost(String),
}

impl GoogleAuth {
    /// Creates a source from the JSON of a service account key or of a user's credentials. The
    /// error describes the problem and repeats nothing of the content.
    pub fn from_json(text: &str, now: ClockFn) -> Result<Self, GoogleAuthError> {
        let json: Value = serde_json::from_str(text)
            .map_err(|e| GoogleAuthError::NotJson { line: e.line(), column: e.column() })?;
        let field = |name: &'static str| {
            let value = json.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
            value.ok_or(GoogleAuthError::MissingField(name))
        };
        let endpoint = match json.get("token_uri").and_then(Value::as_str).unwrap_or(TOKEN_URI) {
            uri if uri.starts_with("https://") || uri.starts_with("http://") => {
                uri.parse().map_err(|_| GoogleAuthError::TokenUri)?
            }
            _ => return Err(GoogleAuthError::TokenUri),
        };
        let source = match field("type")? {
            "service_account" => TokenSource::ServiceAccount {
                email: field("client_email")?.to_owned(),
                key_id: field("private_key_id").ok().map(str::to_owned),
                key: Box::new(parse_private_key(field("private_key")?)?),
                endpoint,
            },
            "authorized_user" => {
                let mut form = "grant_type=refresh_token".to_owned();
                for name in ["client_id", "client_secret", "refresh_token"] {
                    let value = utf8_percent_encode(field(name)?, NON_ALPHANUMERIC);
                    form.push_str(&format!("&{name}={value}"));
                }
                TokenSource::User { form: Bytes::from(form), endpoint }
            }
            other => return Err(GoogleAuthError::Type(other.chars().take(40).collect())),
        };
        let project = ["project_id", "quota_project_id"].iter().find_map(|name| field(name).ok());
        Ok(Self::new(source, project.map(str::to_owned), now))
    }

    /// Creates a source for the account of this machine, from the metadata server at this host.
    pub fn from_metadata_server(host: &str, now: ClockFn) -> Result<Self, GoogleAuthError> {
        const PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
        let endpoint = format!("http://{host}{PATH}");
        let endpoint =
            endpoint.parse().map_err(|_| GoogleAuthError::MetadataHost(host.to_owned()))?;
        Ok(Self::new(TokenSource::Metadata { endpoint }, None, now))
    }

    fn new(source: TokenSource, project: Option<String>, now: ClockFn) -> Self {
        Self {
            source,
            project,
            now,
            token: ArcSwapOption::empty(),
            fetching: Mutex::new(None),
            rounds: AtomicU64::new(0),
            renewing: AtomicBool::new(false),
            renew_not_before: AtomicMicros::default(),
        }
    }

    /// Returns true if both are the same account.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        match (&self.source, &other.source) {
            (
                TokenSource::ServiceAccount { email, key_id, key: _, endpoint },
                TokenSource::ServiceAccount { email: other, key_id: known, key: _, endpoint: at },
            ) => email == other && key_id == known && endpoint == at,
            (
                TokenSource::User { form, endpoint },
                TokenSource::User { form: other, endpoint: at },
            ) => form == other && endpoint == at,
            (TokenSource::Metadata { endpoint }, TokenSource::Metadata { endpoint: at }) => {
                endpoint == at
            }
            (
                TokenSource::ServiceAccount { .. }
                | TokenSource::User { .. }
                | TokenSource::Metadata { .. },
                _,
            ) => false,
        }
    }

    /// Returns the project of the account, if it names one.
    pub(crate) fn project(&self) -> Option<&str> {
        self.project.as_deref()
    }

    /// Returns the value of the `Authorization` header.
    pub(crate) async fn token(
        self: &Arc<Self>,
        client: &HttpClient,
    ) -> Result<HeaderValue, ApiError> {
        let now = (self.now)();
        let Some(token) = self.token.load_full().filter(|token| now < token.expires_at) else {
            // Boxed, because it is rare and would enlarge the future of every call.
            return Box::pin(self.fetch(client)).await;
        };
        if now >= token.renew_at {
            self.renew_in_background(client, now);
        }
        Ok(token.value.clone())
    }

    /// Returns the token in use, if there is one.
    pub(crate) fn current_token(&self) -> Option<HeaderValue> {
        self.token.load().as_ref().map(|token| token.value.clone())
    }

    /// Drops a token that the provider refused.
    pub(crate) fn forget(&self) {
        self.token.store(None);
    }

    /// Renews the token while calls continue with the old one.
    fn renew_in_background(self: &Arc<Self>, client: &HttpClient, now: Micros) {
        if now < self.renew_not_before.load() || self.renewing.swap(true, Ordering::Relaxed) {
            return;
        }
        let (own, client) = (Arc::clone(self), client.clone());
        tokio::spawn(async move {
            let mut failed = own.fetching.lock().await;
            let outcome = own.request_token(&client).await;
            *failed = outcome.err();
            if let Some(error) = &*failed {
                own.renew_not_before.store((own.now)() + RENEW_RETRY);
                tracing::warn!(
                    "a Google access token could not be renewed before its end: {}",
                    error.log_note().unwrap_or_default()
                );
            }
            own.rounds.fetch_add(1, Ordering::Relaxed);
            own.renewing.store(false, Ordering::Relaxed);
        });
    }

    /// Fetches a token, or waits for a running fetch and shares its outcome.
    async fn fetch(&self, client: &HttpClient) -> Result<HeaderValue, ApiError> {
        let before = self.rounds.load(Ordering::Relaxed);
        let mut failed = self.fetching.lock().await;
        let now = (self.now)();
        if let Some(token) = self.token.load_full().filter(|token| now < token.expires_at) {
            return Ok(token.value.clone());
        }
        if let Some(error) = &*failed
            && self.rounds.load(Ordering::Relaxed) != before
        {
            return Err(error.clone());
        }
        let outcome = self.request_token(client).await;
        *failed = outcome.as_ref().err().cloned();
        self.rounds.fetch_add(1, Ordering::Relaxed);
        outcome
    }

    /// Sends one request to the token endpoint and caches the token.
    async fn request_token(&self, client: &HttpClient) -> Result<HeaderValue, ApiError> {
        let began = (self.now)();
        let response = match tokio::time::timeout(
            TOKEN_TIMEOUT,
            self.call_token_endpoint(client, began),
        )
        .await
        {
            Ok(response) => response?,
            Err(_) => return Err(token_error(format!("no answer within {TOKEN_TIMEOUT:?}"))),
        };
        let token = response.get("access_token").and_then(Value::as_str);
        let token = token.ok_or_else(|| token_error("the answer holds no `access_token`"))?;
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| token_error("the token is not valid in a header"))?;
        value.set_sensitive(true);
        let lifetime = response.get("expires_in").and_then(Value::as_i64).unwrap_or(0);
        let lifetime = Micros::from_secs(lifetime.clamp(0, MAX_TOKEN_SECONDS));
        let expires_at = began + lifetime - CLOCK_SKEW;
        let token = AccessToken {
            value: value.clone(),
            renew_at: expires_at - RENEW_AHEAD.min(lifetime / 4),
            expires_at,
        };
        self.token.store(Some(Arc::new(token)));
        Ok(value)
    }

    async fn call_token_endpoint(
        &self,
        client: &HttpClient,
        now: Micros,
    ) -> Result<Value, ApiError> {
        let request = self.source.request(now)?;
        let host = request.uri().host().unwrap_or_default().to_owned();
        let response = client.send(request, false).await.map_err(|failure| {
            token_error(format!("{host}: {}", crate::provider::error_chain(&*failure.cause)))
        })?;
        let body = Limited::new(response.body, MAX_RESPONSE_BYTES).collect().await;
        let body = body.map_err(|e| token_error(format!("{host}: the answer broke off: {e}")))?;
        let json = canon::read_value(&body.to_bytes());
        match json {
            Some(json) if response.status == 200 => Ok(json),
            Some(json) => {
                let word = |name: &str| {
                    let text = json.get(name).and_then(Value::as_str).unwrap_or_default();
                    text.chars().take(200).collect::<String>()
                };
                let (error, why) = (word("error"), word("error_description"));
                Err(token_error(format!("{host} answered {}: {error} {why}", response.status)))
            }
            None => Err(token_error(format!("{host} answered {} without JSON", response.status))),
        }
    }
}

impl TokenSource {
    /// Builds the request to the token endpoint.
    fn request(&self, now: Micros) -> Result<Request<RequestBody>, ApiError> {
        let form = |body: Bytes, endpoint: &Uri| {
            let mut request = Request::new(RequestBody::new(vec![body]));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = endpoint.clone();
            let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
            request.headers_mut().insert(CONTENT_TYPE, kind);
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
            request
        };
        Ok(match self {
            Self::ServiceAccount { email, key_id, key, endpoint } => {
                let assertion =
                    sign_assertion(email, key_id.as_deref(), key, endpoint, now.as_secs())?;
                let grant = utf8_percent_encode(JWT_GRANT_TYPE, NON_ALPHANUMERIC);
                form(Bytes::from(format!("grant_type={grant}&assertion={assertion}")), endpoint)
            }
            Self::User { form: body, endpoint } => form(body.clone(), endpoint),
            Self::Metadata { endpoint } => {
                let mut request = Request::new(RequestBody::default());
                *request.uri_mut() = endpoint.clone();
                let flavor = HeaderValue::from_static("Google");
                request.headers_mut().insert("metadata-flavor", flavor);
                request
            }
        })
    }
}

/// Signs a JWT assertion for the account (RFC 7523).
fn sign_assertion(
    email: &str,
    key_id: Option<&str>,
    key: &RsaKeyPair,
    audience: &Uri,
    now: i64,
) -> Result<String, ApiError> {
    let mut head = json!({ "alg": "RS256", "typ": "JWT" });
    if let (Some(id), Some(head)) = (key_id, head.as_object_mut()) {
        head.insert("kid".to_owned(), id.into());
    }
    let claims = json!({
        "iss": email,
        "scope": SCOPE,
        "aud": audience.to_string(),
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(|_| token_error("the private key cannot sign"))?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn parse_private_key(pem: &str) -> Result<RsaKeyPair, GoogleAuthError> {
    let key = match PrivateKeyDer::from_pem_slice(pem.as_bytes()) {
        Ok(PrivateKeyDer::Pkcs8(key)) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()),
        Ok(PrivateKeyDer::Pkcs1(key)) => RsaKeyPair::from_der(key.secret_pkcs1_der()),
        Ok(_) | Err(_) => return Err(GoogleAuthError::PrivateKey),
    };
    key.map_err(|_| GoogleAuthError::PrivateKey)
}

/// The caller sees a neutral message, because the credential is the operator's.
fn token_error(note: impl fmt::Display) -> ApiError {
    ApiError::new(ErrorKind::Unavailable, "the model is not available at the moment")
        .with_log_note(format!("no Google access token: {note}"))
}

impl fmt::Debug for GoogleAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            TokenSource::ServiceAccount { .. } => "GoogleAuth(service account …)",
            TokenSource::User { .. } => "GoogleAuth(user …)",
            TokenSource::Metadata { .. } => "GoogleAuth(metadata server)",
        })
    }
}
