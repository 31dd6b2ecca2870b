//! Google access tokens for workloads outside of Google Cloud (`external_account`): a token of the
//! workload's own platform is exchanged at Google's STS, <https://google.aip.dev/auth/4117>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Micros;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{Method, Uri};
use serde_json::{Value, json};
use std::path::PathBuf;

use crate::aws_credentials::{AwsCredentials, instance_endpoint};
use crate::aws_metadata::{instance_session, instance_value};
use crate::clock::ClockFn;
use crate::google_auth::{GOOGLE_SCOPE, GoogleAuthError};
use crate::host_identity::HostIdentity;
use crate::renewed_secret::FetchedSecret;
use crate::sigv4::SigningScope;
use crate::token_endpoint::{
    add_secret_header, bearer_header, bearer_token, encode_form, escape, exchange, exchange_json,
    form_request, json_request, parse_endpoint, parse_time, plain_request, read_token_file,
};
use transport::HttpClient;

const TOKEN_URL: &str = "https://sts.googleapis.com/v1/token";
const EXCHANGE_GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN_TYPE: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Usual lifetime of tokens of an impersonated service account.
const IMPERSONATION_SECONDS: i64 = 3600;

/// A workload whose tokens Google trusts.
pub(crate) struct FederatedAccount {
    audience: String,
    subject_token_type: String,
    token_url: Uri,
    /// Address that gives tokens of a service account, and their lifetime.
    impersonation: Option<(Uri, i64)>,
    /// Id and secret of a client, for the token exchange.
    client_auth: Option<(String, String)>,
    /// Project that is charged for a workforce pool.
    user_project: Option<String>,
    subject: SubjectSource,
}

/// Place that the workload's own token comes from.
enum SubjectSource {
    File {
        path: PathBuf,
        field: Option<String>,
    },
    Url {
        uri: Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
        field: Option<String>,
        near: HttpClient,
    },
    Aws {
        credentials: AwsCredentials,
        region: AwsRegion,
        verification_url: String,
    },
}

/// Region of an AWS workload.
enum AwsRegion {
    Known(String),
    Instance { endpoint: String, client: HttpClient },
}

impl FederatedAccount {
    /// Reads the JSON of the account.
    pub(crate) fn from_json(
        json: &Value,
        host: &HostIdentity,
        now: &ClockFn,
    ) -> Result<Self, GoogleAuthError> {
        let field = |name: &'static str| {
            json.get(name).and_then(Value::as_str).filter(|value| !value.is_empty())
        };
        let needed = |name| field(name).ok_or(GoogleAuthError::MissingField(name));
        let url = |name: &'static str, text: &str| {
            parse_endpoint(text).ok_or(GoogleAuthError::NotUrl(name))
        };
        let impersonation = match field("service_account_impersonation_url") {
            None => None,
            Some(address) => {
                let seconds = json.pointer("/service_account_impersonation/token_lifetime_seconds");
                let seconds = seconds.and_then(Value::as_i64).unwrap_or(IMPERSONATION_SECONDS);
                Some((url("service_account_impersonation_url", address)?, seconds))
            }
        };
        let source = json.get("credential_source").filter(|source| source.is_object());
        let source = source.ok_or(GoogleAuthError::MissingField("credential_source"))?;
        Ok(Self {
            audience: needed("audience")?.to_owned(),
            subject_token_type: needed("subject_token_type")?.to_owned(),
            token_url: url("token_url", field("token_url").unwrap_or(TOKEN_URL))?,
            impersonation,
            client_auth: field("client_id")
                .map(|id| (id.to_owned(), field("client_secret").unwrap_or_default().to_owned())),
            user_project: field("workforce_pool_user_project").map(str::to_owned),
            subject: SubjectSource::from_json(source, host, now)?,
        })
    }

    /// Exchanges the token of the workload, and impersonates the service account if one is named.
    pub(crate) async fn fetch_token(
        &self,
        client: &HttpClient,
        now: Micros,
    ) -> Result<FetchedSecret<HeaderValue>, String> {
        let subject = self.subject.token(&self.audience, client, now).await?;
        let options = self.user_project.as_ref().filter(|_| self.client_auth.is_none());
        let options = options.map(|project| escape(&json!({ "userProject": project }).to_string()));
        let mut fields = vec![
            ("grant_type", EXCHANGE_GRANT_TYPE),
            ("audience", self.audience.as_str()),
            ("scope", GOOGLE_SCOPE),
            ("requested_token_type", ACCESS_TOKEN_TYPE),
            ("subject_token", subject.as_str()),
            ("subject_token_type", self.subject_token_type.as_str()),
        ];
        fields.extend(options.iter().map(|options| ("options", options.as_str())));
        let mut request = form_request(&self.token_url, encode_form(&fields));
        let mut secrets = vec![subject.as_str()];
        if let Some((id, secret)) = &self.client_auth {
            let basic = format!("Basic {}", STANDARD.encode(format!("{id}:{secret}")));
            add_secret_header(&mut request, AUTHORIZATION, &basic)?;
            secrets.push(secret);
        }
        let json = exchange_json(client, request, &secrets).await?;
        match &self.impersonation {
            None => bearer_token(&json, now),
            Some((address, seconds)) => {
                let token = json.get("access_token").and_then(Value::as_str);
                let token = token.ok_or("the answer holds no `access_token`")?;
                impersonate(client, address, *seconds, token).await
            }
        }
    }
}

/// Asks for a token of a service account:
/// <https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken>.
async fn impersonate(
    client: &HttpClient,
    address: &Uri,
    seconds: i64,
    token: &str,
) -> Result<FetchedSecret<HeaderValue>, String> {
    let body =
        json!({ "delegates": [], "scope": [GOOGLE_SCOPE], "lifetime": format!("{seconds}s") });
    let mut request = json_request(address, &body);
    request.headers_mut().insert(AUTHORIZATION, bearer_header(token)?);
    let json = exchange_json(client, request, &[]).await?;
    let text = |name: &'static str| {
        let text = json.get(name).and_then(Value::as_str);
        text.ok_or_else(|| format!("the answer holds no `{name}`"))
    };
    let expires_at = parse_time(text("expireTime")?);
    let expires_at = expires_at.ok_or("the answer has an `expireTime` that is no time")?;
    Ok(FetchedSecret { value: bearer_header(text("accessToken")?)?, expires_at })
}

impl SubjectSource {
    fn from_json(
        source: &Value,
        host: &HostIdentity,
        now: &ClockFn,
    ) -> Result<Self, GoogleAuthError> {
        let unsupported = |why| Err(GoogleAuthError::CredentialSource(why));
        let text = |name: &str| source.get(name).and_then(Value::as_str);
        if let Some(environment) = text("environment_id") {
            return match environment {
                "aws1" => Self::aws(source, host, now),
                _ => unsupported("its `environment_id` is not `aws1`"),
            };
        }
        let kind = source.pointer("/format/type").and_then(Value::as_str).unwrap_or("text");
        let field = match kind {
            "text" => None,
            "json" => {
                let name = source.pointer("/format/subject_token_field_name");
                let name = name.and_then(Value::as_str).map(str::to_owned);
                Some(name.ok_or(GoogleAuthError::MissingField("subject_token_field_name"))?)
            }
            _ => return unsupported("its format is neither `text` nor `json`"),
        };
        match (text("file"), text("url")) {
            (Some(file), None) => Ok(Self::File { path: PathBuf::from(file), field }),
            (None, Some(url)) => {
                let uri = parse_endpoint(url).ok_or(GoogleAuthError::NotUrl("url"))?;
                let headers = source.get("headers").and_then(Value::as_object);
                let headers = headers.into_iter().flatten().map(|(name, value)| {
                    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                    let mut value = HeaderValue::from_str(value.as_str()?).ok()?;
                    value.set_sensitive(true);
                    Some((name, value))
                });
                let headers: Option<Vec<_>> = headers.collect();
                let headers = headers.ok_or(GoogleAuthError::CredentialSource(
                    "a header of its `headers` is not valid",
                ))?;
                Ok(Self::Url { uri, headers, field, near: host.metadata_client() })
            }
            (Some(_), Some(_)) => unsupported("it has a `file` and a `url`"),
            (None, None) => unsupported("it has no `file`, `url` or `environment_id`"),
        }
    }

    /// Reads the source of a workload on AWS. Its keys come from the default chain of AWS.
    fn aws(source: &Value, host: &HostIdentity, now: &ClockFn) -> Result<Self, GoogleAuthError> {
        const FIELD: &str = "regional_cred_verification_url";
        let verification_url = source.get(FIELD).and_then(Value::as_str);
        let verification_url = verification_url.ok_or(GoogleAuthError::MissingField(FIELD))?;
        let known = host.variable("AWS_REGION").or_else(|| host.variable("AWS_DEFAULT_REGION"));
        let region = match known {
            Some(region) => AwsRegion::Known(region.to_owned()),
            None => AwsRegion::Instance {
                endpoint: instance_endpoint(host)?,
                client: host.metadata_client(),
            },
        };
        let credentials = AwsCredentials::from_default_chain(
            host,
            known.unwrap_or("us-east-1"),
            ClockFn::clone(now),
        )?;
        Ok(Self::Aws { credentials, region, verification_url: verification_url.to_owned() })
    }

    /// Returns the token of the workload.
    async fn token(
        &self,
        audience: &str,
        client: &HttpClient,
        now: Micros,
    ) -> Result<String, String> {
        match self {
            Self::File { path, field } => {
                pick_token(&read_token_file(path).await?, field.as_deref())
            }
            Self::Url { uri, headers, field, near } => {
                let mut request = plain_request(Method::GET, uri);
                request.headers_mut().extend(headers.iter().cloned());
                // A service of this machine is not reached through a proxy.
                let is_public = uri.host().is_some_and(transport::is_public_host);
                let client = if is_public { client } else { near };
                let answer = exchange(client, request, &[]).await?;
                match answer.status {
                    200 => pick_token(answer.text()?.trim(), field.as_deref()),
                    _ => Err(answer.refusal("no subject token")),
                }
            }
            Self::Aws { credentials, region, verification_url } => {
                let region = region.name().await?;
                let url = verification_url.replace("{region}", &region);
                let keys = credentials.keys_for_source(client).await?;
                caller_identity(&SigningScope::new(&region, "sts"), &keys, &url, audience, now)
            }
        }
    }
}

/// Picks the token out of a text: the whole text, or a field of its JSON.
fn pick_token(text: &str, field: Option<&str>) -> Result<String, String> {
    let Some(field) = field else {
        return if text.is_empty() {
            Err("the subject token is empty".to_owned())
        } else {
            Ok(text.to_owned())
        };
    };
    let json = canon::read_value(text.as_bytes()).ok_or("the subject token is not in JSON")?;
    let token = json.get(field).and_then(Value::as_str).filter(|token| !token.is_empty());
    token
        .map(str::to_owned)
        .ok_or_else(|| format!("the JSON of the subject token has no `{field}`"))
}

/// Returns the signed request for `GetCallerIdentity` that Google sends to AWS, as text.
fn caller_identity(
    scope: &SigningScope,
    keys: &crate::sigv4::AwsKeys,
    url: &str,
    audience: &str,
    now: Micros,
) -> Result<String, String> {
    let uri = parse_endpoint(url).ok_or("`regional_cred_verification_url` is not a URL")?;
    let target = ("x-goog-cloud-target-resource", audience);
    let headers = scope.signed_headers(keys, &uri, target, now);
    let headers = headers.ok_or("the request to AWS cannot be signed")?;
    let headers: Vec<Value> =
        headers.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect();
    Ok(escape(&json!({ "url": url, "method": "POST", "headers": headers }).to_string()))
}

impl AwsRegion {
    async fn name(&self) -> Result<String, String> {
        match self {
            Self::Known(region) => Ok(region.clone()),
            Self::Instance { endpoint, client } => {
                let session = instance_session(client, endpoint).await?;
                let path = "/latest/meta-data/placement/region";
                Ok(instance_value(client, endpoint, path, &session).await?.trim().to_owned())
            }
        }
    }
}
