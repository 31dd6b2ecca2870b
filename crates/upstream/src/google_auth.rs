//! Google access tokens, from the key of a service account, a user's refresh token, a federated
//! workload or the metadata server:
//! <https://developers.google.com/identity/protocols/oauth2/service-account>.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canon::Micros;
use http::header::HeaderValue;
use http::{Method, Request, Uri};
use serde_json::{Value, json};
use std::fmt;

use crate::aws_credentials::AwsIdentityError;
use crate::clock::ClockFn;
use crate::google_federation::FederatedAccount;
use crate::host_identity::HostIdentity;
use crate::private_key::read_rsa_key;
use crate::renewed_secret::{
    FetchFuture, FetchedSecret, RenewedSecret, SecretSource, SourceIdentity, source_identity,
};
use crate::token_endpoint::{
    bearer_token, encode_form, exchange_json, form_request, parse_endpoint, plain_request,
};
use transport::HttpClient;
use transport::RequestBody;

/// Scope of all tokens.
pub(crate) const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const JWT_GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Lifetime of an assertion, the longest Google accepts.
const ASSERTION_SECONDS: i64 = 3600;

/// Source of access tokens, never printed.
pub struct GoogleAuth {
    source: TokenSource,
    project: Option<String>,
    identity: SourceIdentity,
    now: ClockFn,
}

enum TokenSource {
    ServiceAccount { email: String, key_id: Option<String>, key: Box<RsaKeyPair>, endpoint: Uri },
    User { form: String, secrets: Vec<String>, endpoint: Uri },
    Federated(Box<FederatedAccount>),
    Metadata { endpoint: Uri, client: HttpClient },
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
    /// An address is not a URL.
    #[error("has a `{0}` that is not a URL")]
    NotUrl(&'static str),
    /// The type of the account is not supported.
    #[error(
        "is of the type `{0}`; a `service_account`, an `authorized_user` or an `external_account` is \
         needed"
    )]
    Type(String),
    /// The private key cannot be read.
    #[error("has a `private_key` that is not an RSA key in PEM")]
    PrivateKey,
    /// The metadata server is not a host.
    #[error("`{0}` is not a host")]
    MetadataHost(String),
    /// The source of subject tokens is not supported.
    #[error("has a `credential_source` that is not supported: {0}")]
    CredentialSource(&'static str),
    /// The account uses the identity of this machine.
    #[error(
        "is an `external_account`, which uses the identity of this machine; it belongs into the \
         configuration file"
    )]
    NeedsHost,
    /// The AWS credentials of a workload cannot be used.
    #[error("is an account of an AWS workload, but {0}")]
    Aws(#[from] AwsIdentityError),
}

impl GoogleAuth {
    /// Creates a source from the JSON of a service account key or of a user's credentials. The
    /// error describes the problem and repeats nothing of the content.
    pub fn from_json(text: &str, now: ClockFn) -> Result<Self, GoogleAuthError> {
        Self::from_account(text, None, now)
    }

    /// Creates a source from the JSON of any account. An `external_account` needs the identity of the
    /// machine.
    pub fn from_account(
        text: &str,
        host: Option<&HostIdentity>,
        now: ClockFn,
    ) -> Result<Self, GoogleAuthError> {
        let json: Value = serde_json::from_str(text)
            .map_err(|e| GoogleAuthError::NotJson { line: e.line(), column: e.column() })?;
        let field = |name: &'static str| {
            let value = json.get(name).and_then(Value::as_str).filter(|value| !value.is_empty());
            value.ok_or(GoogleAuthError::MissingField(name))
        };
        let endpoint = json.get("token_uri").and_then(Value::as_str).unwrap_or(TOKEN_URI);
        let endpoint = parse_endpoint(endpoint).ok_or(GoogleAuthError::NotUrl("token_uri"))?;
        let source = match field("type")? {
            "service_account" => TokenSource::ServiceAccount {
                email: field("client_email")?.to_owned(),
                key_id: field("private_key_id").ok().map(str::to_owned),
                key: Box::new(
                    read_rsa_key(field("private_key")?).ok_or(GoogleAuthError::PrivateKey)?,
                ),
                endpoint,
            },
            "authorized_user" => {
                let names = ["client_id", "client_secret", "refresh_token"];
                let mut fields = vec![("grant_type", "refresh_token")];
                for name in names {
                    fields.push((name, field(name)?));
                }
                let secrets = [field("client_secret")?, field("refresh_token")?];
                let secrets = secrets.map(str::to_owned).to_vec();
                TokenSource::User { form: encode_form(&fields), secrets, endpoint }
            }
            "external_account" => {
                let host = host.ok_or(GoogleAuthError::NeedsHost)?;
                let account = FederatedAccount::from_json(&json, host, &now)?;
                TokenSource::Federated(Box::new(account))
            }
            other => return Err(GoogleAuthError::Type(other.chars().take(40).collect())),
        };
        let project = ["project_id", "quota_project_id"].iter().find_map(|name| field(name).ok());
        let project = project.map(str::to_owned);
        Ok(Self { source, project, identity: source_identity(["google", text]), now })
    }

    /// Creates a source for the account of this machine, from the metadata server at this address.
    pub fn from_metadata_server(
        address: &str,
        host: &HostIdentity,
        now: ClockFn,
    ) -> Result<Self, GoogleAuthError> {
        const PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";
        let endpoint = parse_endpoint(&format!("http://{address}{PATH}"));
        let endpoint = endpoint.ok_or_else(|| GoogleAuthError::MetadataHost(address.to_owned()))?;
        let identity = source_identity(["google metadata", address]);
        let source = TokenSource::Metadata { endpoint, client: host.metadata_client() };
        Ok(Self { source, project: None, identity, now })
    }

    /// Returns the tokens of the account and its project, if it names one.
    pub(crate) fn into_secret(self) -> (RenewedSecret<HeaderValue>, Option<String>) {
        let Self { source, project, identity, now } = self;
        (RenewedSecret::new(source, identity, now), project)
    }
}

impl TokenSource {
    async fn fetch_token(
        &self,
        client: &HttpClient,
        now: Micros,
    ) -> Result<FetchedSecret<HeaderValue>, String> {
        let (request, secrets, client) = match self {
            Self::ServiceAccount { email, key_id, key, endpoint } => {
                let assertion =
                    sign_assertion(email, key_id.as_deref(), key, endpoint, now.as_secs())?;
                let form =
                    encode_form(&[("grant_type", JWT_GRANT_TYPE), ("assertion", &assertion)]);
                (form_request(endpoint, form), vec![assertion], client)
            }
            Self::User { form, secrets, endpoint } => {
                (form_request(endpoint, form.clone()), secrets.clone(), client)
            }
            Self::Federated(account) => return account.fetch_token(client, now).await,
            Self::Metadata { endpoint, client } => (metadata_request(endpoint), Vec::new(), client),
        };
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        bearer_token(&exchange_json(client, request, &secrets).await?, now)
    }
}

impl SecretSource<HeaderValue> for TokenSource {
    fn title(&self) -> &'static str {
        "Google access token"
    }

    fn fetch<'a>(&'a self, client: &'a HttpClient, now: Micros) -> FetchFuture<'a, HeaderValue> {
        Box::pin(self.fetch_token(client, now))
    }
}

/// Builds the request to the metadata server. It refuses requests without the header:
/// <https://cloud.google.com/compute/docs/metadata/querying-metadata>.
fn metadata_request(endpoint: &Uri) -> Request<RequestBody> {
    let mut request = plain_request(Method::GET, endpoint);
    request.headers_mut().insert("metadata-flavor", HeaderValue::from_static("Google"));
    request
}

/// Signs a JWT assertion for the account (RFC 7523).
fn sign_assertion(
    email: &str,
    key_id: Option<&str>,
    key: &RsaKeyPair,
    audience: &Uri,
    now: i64,
) -> Result<String, String> {
    let mut head = json!({ "alg": "RS256", "typ": "JWT" });
    if let (Some(id), Some(head)) = (key_id, head.as_object_mut()) {
        head.insert("kid".to_owned(), id.into());
    }
    let claims = json!({
        "iss": email,
        "scope": GOOGLE_SCOPE,
        "aud": audience.to_string(),
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
        .map_err(|_| "the private key cannot sign")?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

impl fmt::Debug for GoogleAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            TokenSource::ServiceAccount { .. } => "GoogleAuth(service account …)",
            TokenSource::User { .. } => "GoogleAuth(user …)",
            TokenSource::Federated(_) => "GoogleAuth(external account …)",
            TokenSource::Metadata { .. } => "GoogleAuth(metadata server)",
        })
    }
}
