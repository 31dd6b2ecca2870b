//! Identity of the machine that the gateway runs on: its metadata services, and the variables and
//! token files that its platform gives it.
//!
//! A value of [`HostIdentity`] is the permission to use it. Only credentials of the configuration
//! file get one: a token of the machine would otherwise go wherever an administrator sends it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use transport::{HttpClient, Outbound};

/// Time to connect to a metadata service. Elsewhere than in its cloud nothing answers.
const METADATA_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Variables that describe the identity of a machine or container.
const VARIABLES: [&str; 24] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_ENDPOINT_URL_STS",
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "AZURE_CLIENT_CERTIFICATE_PATH",
    "AZURE_FEDERATED_TOKEN_FILE",
    "AZURE_AUTHORITY_HOST",
    "AZURE_POD_IDENTITY_AUTHORITY_HOST",
    "IDENTITY_ENDPOINT",
    "IDENTITY_HEADER",
];

/// Permission to use the identity of this machine. Never printed.
#[derive(Clone)]
pub struct HostIdentity {
    /// Client without proxies and without a guard. It asks metadata services and nothing else.
    metadata: HttpClient,
    variables: BTreeMap<&'static str, String>,
}

impl HostIdentity {
    /// Reads the variables of the platform, and makes a client for its metadata services.
    pub fn new(outbound: &Outbound, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let value = |name: &'static str| {
            let value = env(name)?.trim().to_owned();
            (!value.is_empty()).then_some((name, value))
        };
        Self {
            metadata: HttpClient::network(METADATA_CONNECT_TIMEOUT, &outbound.direct()),
            variables: VARIABLES.into_iter().filter_map(value).collect(),
        }
    }

    /// Returns the value of a variable that is set.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Returns the client for metadata services.
    pub(crate) fn metadata_client(&self) -> HttpClient {
        self.metadata.clone()
    }
}

impl fmt::Debug for HostIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostIdentity(…)")
    }
}
