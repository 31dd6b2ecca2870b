//! AWS keys: given, or those of a role that the machine, the container or the STS service hands out.
//!
//! The order of the default chain and the names of the variables are those of AWS' own libraries:
//! <https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>.

use canon::ApiError;
use http::Uri;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::aws_metadata::{ContainerKeys, ContainerToken, InstanceKeys};
use crate::aws_sts::{AssumedRole, RoleRequest, WebIdentity};
use crate::clock::ClockFn;
use crate::host_identity::HostIdentity;
use crate::renewed_secret::{RenewedSecret, SecretSource, SourceIdentity, source_identity};
use crate::sigv4::{AwsKeys, SigV4Error};
use crate::token_endpoint::parse_endpoint;
use transport::HttpClient;

/// Address of the metadata service of instances:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html>.
const INSTANCE_ENDPOINT: &str = "http://169.254.169.254";
/// Host of a relative address of container credentials:
/// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// Hosts that may be asked for container credentials without TLS: this machine, the agents of ECS and
/// of EKS Pod Identity.
const CONTAINER_HOSTS: [&str; 6] =
    ["localhost", "127.0.0.1", "[::1]", "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];
/// Name of sessions of a role, if none is configured.
const SESSION_NAME: &str = "portunus";

/// Origin of AWS keys. Never printed.
#[derive(Clone)]
pub struct AwsCredentials(KeyOrigin);

#[derive(Clone)]
enum KeyOrigin {
    Given(Arc<AwsKeys>),
    Renewed(Arc<RenewedSecret<AwsKeys>>),
}

/// A role to assume, and the service that is asked for it.
pub struct AwsRole<'a> {
    /// ARN of the role.
    pub arn: &'a str,
    /// External id that the role demands.
    pub external_id: Option<&'a str>,
    /// Name of the session in the logs of AWS.
    pub session_name: Option<&'a str>,
    /// Region whose STS is asked.
    pub region: &'a str,
    /// Address of STS; `None` is that of AWS.
    pub sts_endpoint: Option<&'a str>,
}

/// Reason why AWS credentials cannot be used. Repeats nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AwsIdentityError {
    /// A variable is missing.
    #[error("the environment variable {0} is not set; the platform sets it, or export {0}=…")]
    Unset(&'static str),
    /// A variable or field has an unusable value.
    #[error("{0} {1}")]
    Invalid(&'static str, &'static str),
    /// Keys in the environment are invalid.
    #[error(transparent)]
    Keys(#[from] SigV4Error),
    /// Nothing of the default chain is there.
    #[error(
        "there are no AWS keys, token file or container credentials in the environment, and \
         AWS_EC2_METADATA_DISABLED is set"
    )]
    EmptyChain,
}

impl AwsCredentials {
    /// Takes given keys. The error names the invalid field.
    pub fn from_keys(
        access_key: &str,
        secret_key: &str,
        session_token: Option<&str>,
    ) -> Result<Self, SigV4Error> {
        let keys = AwsKeys::new(access_key, secret_key, session_token)?;
        Ok(Self(KeyOrigin::Given(Arc::new(keys))))
    }

    /// Takes the first of the default chain that the environment names: keys, web identity, container,
    /// instance.
    pub fn from_default_chain(
        host: &HostIdentity,
        region: &str,
        now: ClockFn,
    ) -> Result<Self, AwsIdentityError> {
        let is_set = |name: &str| host.variable(name).is_some();
        if is_set("AWS_ACCESS_KEY_ID") && is_set("AWS_SECRET_ACCESS_KEY") {
            return Self::from_environment(host);
        }
        if is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ROLE_ARN") {
            return Self::from_web_identity(host, region, now);
        }
        if is_set("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
            || is_set("AWS_CONTAINER_CREDENTIALS_FULL_URI")
        {
            return Self::from_container(host, now);
        }
        let disabled = host.variable("AWS_EC2_METADATA_DISABLED").unwrap_or_default();
        match disabled.eq_ignore_ascii_case("true") {
            true => Err(AwsIdentityError::EmptyChain),
            false => Self::from_instance(host, now),
        }
    }

    /// Takes the keys in the environment.
    fn from_environment(host: &HostIdentity) -> Result<Self, AwsIdentityError> {
        let needed = |name| host.variable(name).ok_or(AwsIdentityError::Unset(name));
        let (access, secret) = (needed("AWS_ACCESS_KEY_ID")?, needed("AWS_SECRET_ACCESS_KEY")?);
        Ok(Self::from_keys(access, secret, host.variable("AWS_SESSION_TOKEN"))?)
    }

    /// Takes the role of this instance, from its metadata service (IMDSv2).
    pub fn from_instance(host: &HostIdentity, now: ClockFn) -> Result<Self, AwsIdentityError> {
        let endpoint = instance_endpoint(host)?;
        let identity = source_identity(["aws instance", &endpoint]);
        let source = InstanceKeys { endpoint, client: host.metadata_client() };
        Ok(Self::renewed(source, identity, now))
    }

    /// Takes the role of this container, from the agent of ECS or EKS.
    pub fn from_container(host: &HostIdentity, now: ClockFn) -> Result<Self, AwsIdentityError> {
        let endpoint = container_address(host)?;
        let file = host.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        let token = match (file, host.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")) {
            (Some(file), _) => ContainerToken::File(PathBuf::from(file)),
            (None, Some(token)) => ContainerToken::Text(token.to_owned()),
            (None, None) => ContainerToken::None,
        };
        let identity =
            source_identity(["aws container", &endpoint.to_string(), token.identity_text()]);
        let source = ContainerKeys { endpoint, token, client: host.metadata_client() };
        Ok(Self::renewed(source, identity, now))
    }

    /// Takes the role that the token file of this workload is exchanged for (IRSA).
    pub fn from_web_identity(
        host: &HostIdentity,
        region: &str,
        now: ClockFn,
    ) -> Result<Self, AwsIdentityError> {
        let needed = |name| host.variable(name).ok_or(AwsIdentityError::Unset(name));
        let file = needed("AWS_WEB_IDENTITY_TOKEN_FILE")?;
        let role = AwsRole {
            arn: needed("AWS_ROLE_ARN")?,
            external_id: None,
            session_name: host.variable("AWS_ROLE_SESSION_NAME"),
            region,
            sts_endpoint: host.variable("AWS_ENDPOINT_URL_STS"),
        };
        let request = role_request(&role)?;
        let identity =
            source_identity(["aws web identity", file].into_iter().chain(request.texts()));
        let source = WebIdentity { request, token_file: PathBuf::from(file) };
        Ok(Self::renewed(source, identity, now))
    }

    /// Assumes a role with these credentials.
    pub fn assume_role(self, role: &AwsRole<'_>, now: ClockFn) -> Result<Self, AwsIdentityError> {
        let request = role_request(role)?;
        let own = match &self.0 {
            KeyOrigin::Given(keys) => source_identity(keys.texts()),
            KeyOrigin::Renewed(secret) => *secret.identity(),
        };
        let own: String = own.iter().map(|byte| format!("{byte:02x}")).collect();
        let identity = source_identity(["aws role", &own].into_iter().chain(request.texts()));
        let source = AssumedRole { request, base: self };
        Ok(Self::renewed(source, identity, now))
    }

    fn renewed(
        source: impl SecretSource<AwsKeys> + 'static,
        identity: SourceIdentity,
        now: ClockFn,
    ) -> Self {
        Self(KeyOrigin::Renewed(Arc::new(RenewedSecret::new(source, identity, now))))
    }

    /// Returns valid keys for a call.
    pub(crate) async fn keys(&self, client: &HttpClient) -> Result<Arc<AwsKeys>, ApiError> {
        match &self.0 {
            KeyOrigin::Given(keys) => Ok(Arc::clone(keys)),
            KeyOrigin::Renewed(secret) => secret.get(client).await,
        }
    }

    /// Returns valid keys for another source. The error is a note for the operator.
    pub(crate) async fn keys_for_source(
        &self,
        client: &HttpClient,
    ) -> Result<Arc<AwsKeys>, String> {
        match &self.0 {
            KeyOrigin::Given(keys) => Ok(Arc::clone(keys)),
            KeyOrigin::Renewed(secret) => secret.get_for_source(client).await,
        }
    }

    /// Returns the keys as a secret that is renewed, if they are.
    pub(crate) const fn renewed_secret(&self) -> Option<&Arc<RenewedSecret<AwsKeys>>> {
        match &self.0 {
            KeyOrigin::Given(_) => None,
            KeyOrigin::Renewed(secret) => Some(secret),
        }
    }

    /// Returns the secret texts, as far as they are known now.
    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        match &self.0 {
            KeyOrigin::Given(keys) => keys.secrets(),
            KeyOrigin::Renewed(secret) => {
                secret.current().map(|keys| keys.secrets()).unwrap_or_default()
            }
        }
    }

    /// Returns true if both are the same.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (KeyOrigin::Given(own), KeyOrigin::Given(other)) => own.matches(other),
            (KeyOrigin::Renewed(own), KeyOrigin::Renewed(other)) => {
                own.identity() == other.identity()
            }
            (KeyOrigin::Given(_), KeyOrigin::Renewed(_))
            | (KeyOrigin::Renewed(_), KeyOrigin::Given(_)) => false,
        }
    }
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            KeyOrigin::Given(_) => "AwsCredentials(keys …)",
            KeyOrigin::Renewed(_) => "AwsCredentials(role …)",
        })
    }
}

/// Returns the address of the metadata service of instances, without a slash at its end.
pub(crate) fn instance_endpoint(host: &HostIdentity) -> Result<String, AwsIdentityError> {
    const VARIABLE: &str = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
    let endpoint = host.variable(VARIABLE).unwrap_or(INSTANCE_ENDPOINT).trim_end_matches('/');
    match parse_endpoint(endpoint) {
        Some(_) => Ok(endpoint.to_owned()),
        None => Err(AwsIdentityError::Invalid(VARIABLE, "is not an http or https address")),
    }
}

/// Returns the address of the agent of this container.
fn container_address(host: &HostIdentity) -> Result<Uri, AwsIdentityError> {
    const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
    const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let invalid = |name, why| AwsIdentityError::Invalid(name, why);
    match (host.variable(RELATIVE), host.variable(FULL)) {
        (Some(path), _) => Some(path)
            .filter(|path| path.starts_with('/'))
            .and_then(|path| parse_endpoint(&format!("{CONTAINER_HOST}{path}")))
            .ok_or(invalid(RELATIVE, "is not a path")),
        (None, Some(full)) => container_endpoint(full).ok_or(invalid(
            FULL,
            "is neither https nor an address of this machine or of the agents of ECS and EKS",
        )),
        (None, None) => Err(AwsIdentityError::Unset(FULL)),
    }
}

/// Parses the address of container credentials.
fn container_endpoint(text: &str) -> Option<Uri> {
    let uri = parse_endpoint(text)?;
    let is_known = uri.host().is_some_and(|host| CONTAINER_HOSTS.contains(&host));
    (uri.scheme_str() == Some("https") || is_known).then_some(uri)
}

/// Checks a role and finds the service to ask.
fn role_request(role: &AwsRole<'_>) -> Result<RoleRequest, AwsIdentityError> {
    let AwsRole { arn, external_id, session_name, region, sts_endpoint } = *role;
    let invalid = |field, why| Err(AwsIdentityError::Invalid(field, why));
    // The region is part of the host that gets the signed request.
    let is_region_char = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if region.is_empty() || region.len() > 40 || !region.bytes().all(is_region_char) {
        return invalid("region", "must be like \"us-east-1\" to assume a role");
    }
    if !(20..=2048).contains(&arn.len())
        || !arn.starts_with("arn:")
        || !arn.bytes().all(|b| b.is_ascii_graphic())
    {
        return invalid(
            "role",
            "must be the ARN of a role, \"arn:aws:iam::123456789012:role/name\"",
        );
    }
    // Characters of names according to the reference of STS:
    // <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>.
    let is_name = |text: &str, more: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || "_+=,.@-".contains(c) || more.contains(c))
    };
    let session_name = session_name.unwrap_or(SESSION_NAME);
    if !(2..=64).contains(&session_name.len()) || !is_name(session_name, "") {
        return invalid("session_name", "must have 2 to 64 letters, digits or _+=,.@-");
    }
    if external_id.is_some_and(|id| !(2..=1224).contains(&id.len()) || !is_name(id, ":/")) {
        return invalid("external_id", "must have 2 to 1224 letters, digits or _+=,.@:/-");
    }
    let endpoint = match sts_endpoint {
        Some(endpoint) => parse_endpoint(endpoint),
        None => {
            let domain =
                if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            parse_endpoint(&format!("https://sts.{region}.{domain}/"))
        }
    };
    let Some(endpoint) = endpoint else {
        return invalid("AWS_ENDPOINT_URL_STS", "is not an http or https address");
    };
    Ok(RoleRequest {
        endpoint,
        region: region.to_owned(),
        role_arn: arn.to_owned(),
        session_name: session_name.to_owned(),
        external_id: external_id.map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_credentials_come_from_this_machine_or_over_tls() {
        for good in [
            "http://127.0.0.1:1338/x",
            "http://localhost/x",
            "http://[::1]/x",
            "http://169.254.170.23/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
            "https://keys.example/x",
        ] {
            assert!(container_endpoint(good).is_some(), "{good}");
        }
        for wrong in [
            "http://169.254.169.254/x",
            "http://keys.example/x",
            "http://127.0.0.1.evil.example/x",
            "http://localhost@evil.example/x",
            "/relative",
            "",
        ] {
            assert!(container_endpoint(wrong).is_none(), "{wrong}");
        }
    }

    fn request(region: &str, arn: &str, id: Option<&str>) -> Result<RoleRequest, AwsIdentityError> {
        let (session_name, sts_endpoint) = (None, None);
        role_request(&AwsRole { arn, external_id: id, session_name, region, sts_endpoint })
    }

    const ARN: &str = "arn:aws:iam::123456789012:role/models";

    #[test]
    fn the_region_decides_the_host_and_cannot_leave_it() {
        let host = |region| {
            request(region, ARN, None).map(|found| found.endpoint.host().map(str::to_owned))
        };
        assert_eq!(host("eu-west-1"), Ok(Some("sts.eu-west-1.amazonaws.com".to_owned())));
        assert_eq!(host("cn-north-1"), Ok(Some("sts.cn-north-1.amazonaws.com.cn".to_owned())));
        for wrong in ["", "evil.example/", "x@evil.example", "EU", "a b", "x.evil.example#"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_role_is_checked_by_its_fields() {
        assert!(request("eu-west-1", ARN, Some("our:id/7")).is_ok());
        for arn in ["", "role", "arn:short", "arn:aws:iam::123456789012:role/a b"] {
            let error = request("eu-west-1", arn, None).err().unwrap();
            assert!(error.to_string().starts_with("role "), "{error}");
        }
        let error = request("eu-west-1", ARN, Some("a b")).err().unwrap();
        assert!(error.to_string().starts_with("external_id "), "{error}");
    }
}
