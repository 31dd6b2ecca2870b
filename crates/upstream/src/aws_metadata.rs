//! AWS keys from the metadata service of an instance and from the agent of a container.

use canon::Micros;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use http::{Method, Uri};
use serde_json::Value;
use std::path::PathBuf;

use crate::renewed_secret::{FetchFuture, FetchedSecret, SecretSource};
use crate::secret_filter::hide_sent;
use crate::sigv4::AwsKeys;
use crate::token_endpoint::{
    add_secret_header, escape, exchange, exchange_json, parse_endpoint, parse_time, plain_request,
    read_token_file,
};
use transport::HttpClient;

/// Name of the keys in messages.
pub(crate) const AWS_TITLE: &str = "AWS credentials";

const TOKEN_HEADER: &str = "x-aws-ec2-metadata-token";
const TOKEN_TTL_HEADER: &str = "x-aws-ec2-metadata-token-ttl-seconds";
/// Lifetime of a session of the metadata service. One fetch needs seconds.
const SESSION_SECONDS: &str = "300";

/// Keys of the role of an instance, by version 2 of its metadata service:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html>.
pub(crate) struct InstanceKeys {
    /// Address of the service, without a slash at its end.
    pub(crate) endpoint: String,
    /// Client without proxies.
    pub(crate) client: HttpClient,
}

impl InstanceKeys {
    async fn fetch_keys(&self, now: Micros) -> Result<FetchedSecret<AwsKeys>, String> {
        const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
        let session = instance_session(&self.client, &self.endpoint).await?;
        let role = instance_value(&self.client, &self.endpoint, ROLES, &session).await?;
        let role = role.lines().next().map(str::trim).filter(|role| !role.is_empty());
        let role = role.ok_or("this instance has no role; attach an instance profile")?;
        let path = format!("{ROLES}{}", escape(role));
        let text = instance_value(&self.client, &self.endpoint, &path, &session).await?;
        let json = canon::read_value(text.as_bytes());
        let json = json.ok_or("the metadata service answered without JSON")?;
        match json.get("Code").and_then(Value::as_str) {
            None | Some("Success") => read_keys(&json, now),
            Some(code) => {
                let message = json.get("Message").and_then(Value::as_str).unwrap_or_default();
                let text: String = format!("{code} {message}").chars().take(200).collect();
                let note = format!("the metadata service has no keys of the role `{role}`: {text}");
                Err(hide_sent(&note, &[&session]))
            }
        }
    }
}

impl SecretSource<AwsKeys> for InstanceKeys {
    fn title(&self) -> &'static str {
        AWS_TITLE
    }

    fn fetch<'a>(&'a self, _client: &'a HttpClient, now: Micros) -> FetchFuture<'a, AwsKeys> {
        Box::pin(self.fetch_keys(now))
    }
}

/// Opens a session of the metadata service. Version 1, which needs none, is not used: a request that
/// somebody makes the gateway send could read it.
pub(crate) async fn instance_session(
    client: &HttpClient,
    endpoint: &str,
) -> Result<String, String> {
    let uri = instance_uri(endpoint, "/latest/api/token")?;
    let mut request = plain_request(Method::PUT, &uri);
    request.headers_mut().insert(TOKEN_TTL_HEADER, HeaderValue::from_static(SESSION_SECONDS));
    let answer = exchange(client, request, &[]).await?;
    match answer.status {
        200 => Ok(answer.text()?.trim().to_owned()),
        _ => Err(answer.refusal("no session of the metadata service (IMDSv2)")),
    }
}

/// Reads a value of the metadata service.
pub(crate) async fn instance_value(
    client: &HttpClient,
    endpoint: &str,
    path: &str,
    session: &str,
) -> Result<String, String> {
    let mut request = plain_request(Method::GET, &instance_uri(endpoint, path)?);
    add_secret_header(&mut request, HeaderName::from_static(TOKEN_HEADER), session)?;
    let answer = exchange(client, request, &[]).await?;
    match answer.status {
        200 => Ok(answer.text()?.to_owned()),
        404 if path.ends_with('/') => {
            Err(answer.refusal("this instance has no role; attach an instance profile"))
        }
        _ => Err(answer.refusal(path)),
    }
}

fn instance_uri(endpoint: &str, path: &str) -> Result<Uri, String> {
    parse_endpoint(&format!("{endpoint}{path}")).ok_or_else(|| format!("`{path}` is not a path"))
}

/// Authorization token for the agent of a container.
pub(crate) enum ContainerToken {
    /// None, as on ECS.
    None,
    /// The token itself.
    Text(String),
    /// A file whose content changes, as on EKS.
    File(PathBuf),
}

impl ContainerToken {
    /// Returns a text that tells tokens apart.
    pub(crate) fn identity_text(&self) -> &str {
        match self {
            Self::None => "",
            Self::Text(token) => token,
            Self::File(file) => file.to_str().unwrap_or_default(),
        }
    }
}

/// Keys of the role of a container:
/// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>.
pub(crate) struct ContainerKeys {
    pub(crate) endpoint: Uri,
    pub(crate) token: ContainerToken,
    /// Client without proxies.
    pub(crate) client: HttpClient,
}

impl ContainerKeys {
    async fn fetch_keys(&self, now: Micros) -> Result<FetchedSecret<AwsKeys>, String> {
        let token = match &self.token {
            ContainerToken::None => None,
            ContainerToken::Text(token) => Some(token.clone()),
            ContainerToken::File(file) => Some(read_token_file(file).await?),
        };
        let mut request = plain_request(Method::GET, &self.endpoint);
        if let Some(token) = &token {
            add_secret_header(&mut request, AUTHORIZATION, token)?;
        }
        read_keys(&exchange_json(&self.client, request, &[]).await?, now)
    }
}

impl SecretSource<AwsKeys> for ContainerKeys {
    fn title(&self) -> &'static str {
        AWS_TITLE
    }

    fn fetch<'a>(&'a self, _client: &'a HttpClient, now: Micros) -> FetchFuture<'a, AwsKeys> {
        Box::pin(self.fetch_keys(now))
    }
}

/// Reads the keys that both services answer with.
fn read_keys(json: &Value, now: Micros) -> Result<FetchedSecret<AwsKeys>, String> {
    let field = |name: &'static str| {
        let text = json.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or_else(|| format!("the answer holds no `{name}`"))
    };
    let keys = (field("AccessKeyId")?, field("SecretAccessKey")?, field("Token").ok());
    fetched_keys(keys, field("Expiration")?, now)
}

/// Checks fetched keys and their end.
pub(crate) fn fetched_keys(
    (access_key, secret_key, session): (&str, &str, Option<&str>),
    end: &str,
    now: Micros,
) -> Result<FetchedSecret<AwsKeys>, String> {
    let value = AwsKeys::new(access_key, secret_key, session)
        .map_err(|wrong| format!("the answer has unusable keys: {wrong}"))?;
    let expires_at = parse_time(end).ok_or("the answer has an `Expiration` that is no time")?;
    if expires_at <= now {
        return Err(format!("the answer has keys that expired at {end}; compare the clock"));
    }
    Ok(FetchedSecret { value, expires_at })
}
