//! Signatures of requests to a provider on AWS, with keys that may have to be fetched.

use canon::ApiError;
use http::Request;
use std::fmt;
use std::sync::Arc;

use crate::aws_credentials::AwsCredentials;
use crate::clock::ClockFn;
use crate::sigv4::{AwsKeys, SigV4Error, SigningScope, check_part};
use transport::{HttpClient, RequestBody};

/// Signs requests for a service in a region. Never printed.
pub struct SigV4Signer {
    scope: SigningScope,
    credentials: AwsCredentials,
    now: ClockFn,
}

impl SigV4Signer {
    /// Creates a signer for a service in a region. The error names the invalid field.
    pub fn new(
        region: &str,
        service: &str,
        credentials: AwsCredentials,
        now: ClockFn,
    ) -> Result<Self, SigV4Error> {
        check_part("region", region)?;
        check_part("service", service)?;
        Ok(Self { scope: SigningScope::new(region, service), credentials, now })
    }

    /// Returns the credentials.
    pub(crate) const fn credentials(&self) -> &AwsCredentials {
        &self.credentials
    }

    /// Returns true if both have the same keys, region and service.
    pub(crate) fn matches(&self, other: &Self) -> bool {
        let Self { scope, credentials, now: _ } = self;
        *scope == other.scope && credentials.matches(&other.credentials)
    }

    /// Signs a request that is otherwise complete, and returns the keys. Those that expire may have to be
    /// fetched first.
    pub(crate) async fn sign(
        &self,
        request: &mut Request<RequestBody>,
        client: &HttpClient,
    ) -> Result<Arc<AwsKeys>, ApiError> {
        let keys = self.credentials.keys(client).await?;
        let signed = self.scope.sign(request, &keys, (self.now)());
        signed.map_err(|what| ApiError::internal(format!("a request cannot be signed: {what}")))?;
        Ok(keys)
    }
}

impl fmt::Debug for SigV4Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigV4Signer({} …)", self.scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Micros;

    #[test]
    fn error_names_the_field_without_the_secret() {
        let new = |region: &str, access: &str, secret: &str, session: Option<&str>| {
            let now: ClockFn = Arc::new(|| Micros::ZERO);
            AwsCredentials::from_keys(access, secret, session)
                .and_then(|keys| SigV4Signer::new(region, "bedrock", keys, now))
                .unwrap_err()
                .to_string()
        };
        assert!(new("", "AK", "s", None).starts_with("region:"));
        assert!(new("eu", "A/K", "s", None).starts_with("access_key:"));
        let error = new("eu", "AK", "hush hush", None);
        assert!(error.starts_with("secret_key:") && !error.contains("hush"));
        let error = new("eu", "AK", "s", Some("hush\n"));
        assert!(error.starts_with("session_token:") && !error.contains("hush"));
        let now: ClockFn = Arc::new(|| Micros::ZERO);
        let keys = AwsCredentials::from_keys("AKIDEXAMPLE", "wJalrXUt", Some("tok-en")).unwrap();
        let shown = format!("{:?}", SigV4Signer::new("eu", "bedrock", keys, now).unwrap());
        assert!(!shown.contains("tok-en") && !shown.contains("wJalr") && !shown.contains("AKID"));
    }
}
