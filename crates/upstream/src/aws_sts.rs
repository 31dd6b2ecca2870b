//! Roles of AWS from its Security Token Service:
//! <https://docs.aws.amazon.com/STS/latest/APIReference/welcome.html>.

use canon::Micros;
use http::Uri;
use std::path::PathBuf;

use crate::aws_credentials::AwsCredentials;
use crate::aws_metadata::{AWS_TITLE, fetched_keys};
use crate::renewed_secret::{FetchFuture, FetchedSecret, SecretSource};
use crate::sigv4::{AwsKeys, SigningScope};
use crate::token_endpoint::{EndpointAnswer, encode_form, exchange, form_request, read_token_file};
use transport::HttpClient;

const API_VERSION: &str = "2011-06-15";
const STS_SERVICE: &str = "sts";

/// A role, and the service that is asked for it.
pub(crate) struct RoleRequest {
    pub(crate) endpoint: Uri,
    pub(crate) region: String,
    pub(crate) role_arn: String,
    pub(crate) session_name: String,
    pub(crate) external_id: Option<String>,
}

impl RoleRequest {
    /// Returns the texts that tell requests apart.
    pub(crate) fn texts(&self) -> [&str; 5] {
        let Self { endpoint, region, role_arn, session_name, external_id } = self;
        let host = endpoint.authority().map(|authority| authority.as_str()).unwrap_or_default();
        [host, region, role_arn, session_name, external_id.as_deref().unwrap_or_default()]
    }
}

/// A role for a token that the platform signs (`AssumeRoleWithWebIdentity`). The request itself needs
/// no signature.
pub(crate) struct WebIdentity {
    pub(crate) request: RoleRequest,
    pub(crate) token_file: PathBuf,
}

impl WebIdentity {
    async fn fetch_keys(
        &self,
        client: &HttpClient,
        now: Micros,
    ) -> Result<FetchedSecret<AwsKeys>, String> {
        let RoleRequest { endpoint, role_arn, session_name, .. } = &self.request;
        let token = read_token_file(&self.token_file).await?;
        let form = encode_form(&[
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", API_VERSION),
            ("RoleArn", role_arn),
            ("RoleSessionName", session_name),
            ("WebIdentityToken", &token),
        ]);
        let answer = exchange(client, form_request(endpoint, form), &[&token]).await?;
        read_role(&answer, now)
    }
}

impl SecretSource<AwsKeys> for WebIdentity {
    fn title(&self) -> &'static str {
        AWS_TITLE
    }

    fn fetch<'a>(&'a self, client: &'a HttpClient, now: Micros) -> FetchFuture<'a, AwsKeys> {
        Box::pin(self.fetch_keys(client, now))
    }
}

/// A role for other credentials (`AssumeRole`).
pub(crate) struct AssumedRole {
    pub(crate) request: RoleRequest,
    pub(crate) base: AwsCredentials,
}

impl AssumedRole {
    async fn fetch_keys(
        &self,
        client: &HttpClient,
        now: Micros,
    ) -> Result<FetchedSecret<AwsKeys>, String> {
        let keys = self.base.keys_for_source(client).await?;
        let RoleRequest { endpoint, region, role_arn, session_name, external_id } = &self.request;
        let mut fields = vec![
            ("Action", "AssumeRole"),
            ("Version", API_VERSION),
            ("RoleArn", role_arn.as_str()),
            ("RoleSessionName", session_name.as_str()),
        ];
        fields.extend(external_id.iter().map(|id| ("ExternalId", id.as_str())));
        let mut request = form_request(endpoint, encode_form(&fields));
        SigningScope::new(region, STS_SERVICE)
            .sign(&mut request, &keys, now)
            .map_err(|what| format!("the request cannot be signed: {what}"))?;
        let keys = keys.texts();
        let secrets: Vec<&str> = keys.into_iter().chain(external_id.as_deref()).collect();
        let answer = exchange(client, request, &secrets).await?;
        read_role(&answer, now)
    }
}

impl SecretSource<AwsKeys> for AssumedRole {
    fn title(&self) -> &'static str {
        AWS_TITLE
    }

    fn fetch<'a>(&'a self, client: &'a HttpClient, now: Micros) -> FetchFuture<'a, AwsKeys> {
        Box::pin(self.fetch_keys(client, now))
    }
}

/// Reads the XML of an answer. Both actions have the same element `Credentials`.
fn read_role(answer: &EndpointAnswer, now: Micros) -> Result<FetchedSecret<AwsKeys>, String> {
    let text = answer.text()?;
    if answer.status != 200 {
        let word = |name| element(text, name).unwrap_or_default();
        return Err(answer.refusal(&format!("{} {}", word("Code"), word("Message"))));
    }
    let credentials = inner_text(text, "Credentials").ok_or("the answer holds no `Credentials`")?;
    let field =
        |name| element(credentials, name).ok_or_else(|| format!("the answer holds no `{name}`"));
    let session = field("SessionToken")?;
    let (access, secret) = (field("AccessKeyId")?, field("SecretAccessKey")?);
    fetched_keys((&access, &secret, Some(&session)), &field("Expiration")?, now)
}

/// Returns the text between the tags of the first element of this name.
fn inner_text<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Returns the value of the first element of this name, which has no elements inside.
fn element(xml: &str, name: &str) -> Option<String> {
    let text = inner_text(xml, name)?.trim();
    let entities =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let value = entities.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    Some(value).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_answer_are_found_and_unescaped() {
        let xml = "<R><Credentials>\n <SessionToken>a&amp;lt;b</SessionToken><Empty></Empty>\
                   </Credentials></R>";
        let inner = inner_text(xml, "Credentials").unwrap();
        assert_eq!(element(inner, "SessionToken").as_deref(), Some("a&lt;b"));
        assert_eq!(element(inner, "Empty"), None);
        assert_eq!(element(inner, "Expiration"), None);
        assert_eq!(inner_text("<Credentials>", "Credentials"), None);
    }
}
