//! Access tokens of Microsoft Entra ID, for an application with a secret, a certificate or a token of
//! its platform, and for the managed identity of this machine:
//! <https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow>.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::signature::{RSA_PSS_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canon::Micros;
use http::header::{HeaderName, HeaderValue};
use http::{Method, Uri};
use serde_json::{Value, json};
use std::fmt;
use std::path::PathBuf;

use crate::clock::ClockFn;
use crate::host_identity::HostIdentity;
use crate::private_key::{certificate_thumbprint, read_rsa_key};
use crate::renewed_secret::{
    FetchFuture, FetchedSecret, RenewedSecret, SecretSource, SourceIdentity, source_identity,
};
use crate::token_endpoint::{
    add_secret_header, bearer_token, encode_form, exchange_json, form_request, parse_endpoint,
    plain_request, read_token_file,
};
use transport::HttpClient;

/// Scope of Azure OpenAI and the other AI services.
const DEFAULT_SCOPE: &str = "https://cognitiveservices.azure.com/.default";
/// Sign-in service of the public cloud.
const DEFAULT_AUTHORITY: &str = "https://login.microsoftonline.com";
/// Sign-in services of Microsoft:
/// <https://learn.microsoft.com/entra/identity-platform/authentication-national-cloud>.
const AUTHORITIES: [&str; 3] = [
    DEFAULT_AUTHORITY,
    "https://login.microsoftonline.us",
    "https://login.partner.microsoftonline.cn",
];
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Lifetime of an assertion. Microsoft asks for five to ten minutes.
const ASSERTION_SECONDS: i64 = 300;
/// Address of the metadata service of virtual machines:
/// <https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token>.
const METADATA_ADDRESS: &str = "http://169.254.169.254";
const METADATA_VERSION: &str = "2018-02-01";
/// Version of the identity endpoint of App Service:
/// <https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference>.
const APP_SERVICE_VERSION: &str = "2019-08-01";

/// Source of tokens of Entra ID, never printed.
pub struct EntraAuth {
    source: EntraSource,
    identity: SourceIdentity,
    now: ClockFn,
}

/// An application that is registered in a tenant.
#[derive(Clone, Copy, Debug)]
pub struct EntraApplication<'a> {
    /// Id or domain of the tenant.
    pub tenant: &'a str,
    /// Id of the application.
    pub client_id: &'a str,
    /// Sign-in service; `None` is that of the public cloud.
    pub authority: Option<&'a str>,
    /// Scope of the tokens; `None` is that of Azure OpenAI.
    pub scope: Option<&'a str>,
}

/// Reason why an identity of Entra ID cannot be used. Repeats nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct EntraAuthError {
    /// Field or variable.
    pub field: &'static str,
    /// Reason, in plain English.
    pub reason: &'static str,
}

enum EntraSource {
    Application { endpoint: Uri, client_id: String, scope: String, proof: ApplicationProof },
    Managed { uri: Uri, header: (HeaderName, String), client: HttpClient },
}

enum ApplicationProof {
    Secret(String),
    Certificate { key: Box<RsaKeyPair>, thumbprint: String },
    TokenFile(PathBuf),
}

fn error(field: &'static str, reason: &'static str) -> EntraAuthError {
    EntraAuthError { field, reason }
}

impl EntraAuth {
    /// Creates the source of an application with a client secret.
    pub fn from_secret(
        application: &EntraApplication<'_>,
        secret: &str,
        now: ClockFn,
    ) -> Result<Self, EntraAuthError> {
        Self::application(application, ApplicationProof::Secret(secret.to_owned()), secret, now)
    }

    /// Creates the source of an application with a certificate and its RSA key, both in one PEM text:
    /// <https://learn.microsoft.com/entra/identity-platform/certificate-credentials>.
    pub fn from_certificate(
        application: &EntraApplication<'_>,
        pem: &str,
        now: ClockFn,
    ) -> Result<Self, EntraAuthError> {
        let invalid = |reason| error("certificate", reason);
        let key = read_rsa_key(pem).ok_or(invalid("holds no RSA key in PEM"))?;
        let thumbprint =
            certificate_thumbprint(pem).ok_or(invalid("holds no certificate in PEM"))?;
        let proof = ApplicationProof::Certificate { key: Box::new(key), thumbprint };
        Self::application(application, proof, pem, now)
    }

    /// Creates the source of an application that trusts the tokens in a file of this machine (workload
    /// identity federation).
    pub fn from_token_file(
        application: &EntraApplication<'_>,
        file: &str,
        _host: &HostIdentity,
        now: ClockFn,
    ) -> Result<Self, EntraAuthError> {
        Self::application(application, ApplicationProof::TokenFile(PathBuf::from(file)), file, now)
    }

    fn application(
        application: &EntraApplication<'_>,
        proof: ApplicationProof,
        proof_text: &str,
        now: ClockFn,
    ) -> Result<Self, EntraAuthError> {
        let EntraApplication { tenant, client_id, authority, scope } = *application;
        // The tenant is part of the path that gets the secret.
        let is_plain = |text: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'.';
            !text.is_empty() && !text.contains("..") && text.bytes().all(plain)
        };
        if !is_plain(tenant) {
            return Err(error("tenant", "must be the id or the domain of a tenant"));
        }
        if !is_plain(client_id) {
            return Err(error("client_id", "must be the id of an application"));
        }
        let authority = authority.unwrap_or(DEFAULT_AUTHORITY).trim_end_matches('/');
        let endpoint = parse_endpoint(&format!("{authority}/{tenant}/oauth2/v2.0/token"))
            .ok_or(error("authority", "is not an http or https address"))?;
        let scope = scope.unwrap_or(DEFAULT_SCOPE).to_owned();
        let identity =
            source_identity(["entra", &endpoint.to_string(), client_id, &scope, proof_text]);
        let client_id = client_id.to_owned();
        let source = EntraSource::Application { endpoint, client_id, scope, proof };
        Ok(Self { source, identity, now })
    }

    /// Creates the source for the managed identity of this machine: that of App Service if it is in the
    /// environment, else that of the virtual machine. `client_id` names one of several identities.
    pub fn from_managed_identity(
        client_id: Option<&str>,
        scope: Option<&str>,
        host: &HostIdentity,
        now: ClockFn,
    ) -> Result<Self, EntraAuthError> {
        let scope = scope.unwrap_or(DEFAULT_SCOPE);
        let resource = scope.strip_suffix("/.default").unwrap_or(scope);
        let service = host.variable("IDENTITY_ENDPOINT").zip(host.variable("IDENTITY_HEADER"));
        let (base, version, header) = match service {
            Some((endpoint, secret)) => {
                let name = HeaderName::from_static("x-identity-header");
                (endpoint.to_owned(), APP_SERVICE_VERSION, (name, secret.to_owned()))
            }
            None => {
                let address = host.variable("AZURE_POD_IDENTITY_AUTHORITY_HOST");
                let address = address.unwrap_or(METADATA_ADDRESS).trim_end_matches('/');
                let name = HeaderName::from_static("metadata");
                let base = format!("{address}/metadata/identity/oauth2/token");
                (base, METADATA_VERSION, (name, "true".to_owned()))
            }
        };
        let mut query = vec![("api-version", version), ("resource", resource)];
        query.extend(client_id.map(|id| ("client_id", id)));
        let separator = if base.contains('?') { '&' } else { '?' };
        let uri = parse_endpoint(&format!("{base}{separator}{}", encode_form(&query)))
            .ok_or(error("IDENTITY_ENDPOINT", "is not an http or https address"))?;
        let identity = source_identity(["entra managed", &uri.to_string(), &header.1]);
        let source = EntraSource::Managed { uri, header, client: host.metadata_client() };
        Ok(Self { source, identity, now })
    }

    /// Returns true for a sign-in service of Microsoft. A stored credential may name no other.
    pub fn is_known_authority(authority: &str) -> bool {
        AUTHORITIES.contains(&authority.trim_end_matches('/'))
    }

    /// Returns the tokens of the identity.
    pub(crate) fn into_secret(self) -> RenewedSecret<HeaderValue> {
        let Self { source, identity, now } = self;
        RenewedSecret::new(source, identity, now)
    }
}

impl EntraSource {
    async fn fetch_token(
        &self,
        client: &HttpClient,
        now: Micros,
    ) -> Result<FetchedSecret<HeaderValue>, String> {
        let json = match self {
            Self::Application { endpoint, client_id, scope, proof } => {
                let (field, secret) = match proof {
                    ApplicationProof::Secret(secret) => ("client_secret", secret.clone()),
                    ApplicationProof::Certificate { key, thumbprint } => (
                        "client_assertion",
                        sign_assertion(client_id, thumbprint, key, endpoint, now.as_secs())?,
                    ),
                    ApplicationProof::TokenFile(file) => {
                        ("client_assertion", read_token_file(file).await?)
                    }
                };
                let mut fields = vec![
                    ("grant_type", "client_credentials"),
                    ("client_id", client_id.as_str()),
                    ("scope", scope.as_str()),
                    (field, secret.as_str()),
                ];
                if field == "client_assertion" {
                    fields.push(("client_assertion_type", ASSERTION_TYPE));
                }
                let request = form_request(endpoint, encode_form(&fields));
                exchange_json(client, request, &[&secret]).await?
            }
            Self::Managed { uri, header: (name, value), client } => {
                let mut request = plain_request(Method::GET, uri);
                add_secret_header(&mut request, name.clone(), value)?;
                exchange_json(client, request, &[]).await?
            }
        };
        bearer_token(&json, now)
    }
}

impl SecretSource<HeaderValue> for EntraSource {
    fn title(&self) -> &'static str {
        "Entra ID access token"
    }

    fn fetch<'a>(&'a self, client: &'a HttpClient, now: Micros) -> FetchFuture<'a, HeaderValue> {
        Box::pin(self.fetch_token(client, now))
    }
}

/// Signs an assertion with the key of a certificate.
fn sign_assertion(
    client_id: &str,
    thumbprint: &str,
    key: &RsaKeyPair,
    audience: &Uri,
    now: i64,
) -> Result<String, String> {
    let random = SystemRandom::new();
    let mut id = [0; 16];
    random.fill(&mut id).map_err(|_| "there are no random numbers")?;
    let head = json!({ "alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint });
    let claims = json!({
        "aud": audience.to_string(),
        "iss": client_id,
        "sub": client_id,
        "jti": URL_SAFE_NO_PAD.encode(id),
        "iat": now,
        "nbf": now,
        "exp": now + ASSERTION_SECONDS,
    });
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&head), part(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(&RSA_PSS_SHA256, &random, text.as_bytes(), &mut signature)
        .map_err(|_| "the private key cannot sign")?;
    Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

impl fmt::Debug for EntraAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            EntraSource::Application { .. } => "EntraAuth(application …)",
            EntraSource::Managed { .. } => "EntraAuth(managed identity)",
        })
    }
}
