//! Interface of the gateway that the console runs in.

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use admin::{AccountAdmin, Admin};
use axum::body::Body;
use axum::response::Response;
use canon::Micros;
use catalog::Catalog;
use http::Request;
use store::Vault;

pub use config::{IdentityProvider, MailMessage};

/// A boxed future returned by [`ConsoleHost`].
pub type HostFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Failure of a service of the gateway. The text is meant for the log.
#[derive(Clone, Debug)]
pub struct HostError(pub String);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostError {}

/// Services the gateway provides to the console.
pub trait ConsoleHost: Send + Sync + 'static {
    /// Calls `look` once with a snapshot of the current catalog.
    fn with_catalog(&self, look: &mut dyn FnMut(&Catalog));

    /// Configured public URL of the gateway, without a slash at the end.
    fn public_url(&self) -> String;

    /// Request formats the gateway serves: `chat`, `responses`, `messages`, `native`, `images`,
    /// `embeddings`. The pages show examples for these only.
    fn formats(&self) -> Vec<&'static str>;

    /// Returns true if the model can be called in the formats of conversations, as chat models and
    /// some image models can.
    fn converses(&self, model: &str) -> bool;

    /// The OpenAPI document of the API.
    fn openapi(&self) -> serde_json::Map<String, serde_json::Value>;

    /// Serves an API request as if it came with this key and from this address.
    fn call_api(
        self: Arc<Self>,
        key: String,
        peer: SocketAddr,
        request: Request<Body>,
    ) -> HostFuture<Response>;

    /// Current time.
    fn now(&self) -> Micros;

    /// Administration of the gateway.
    fn admin(&self) -> &Arc<Admin>;

    /// Administration of accounts, teams and keys.
    fn accounts(&self) -> &AccountAdmin;

    /// Vault for secrets that must be readable again.
    fn vault(&self) -> &Vault;

    /// Secret that signs the alerts of an account.
    fn alert_secret(&self, account_id: &str) -> String;

    /// Returns true if mail can be sent.
    fn can_mail(&self) -> bool;

    /// Sends a mail.
    fn send_mail(&self, mail: MailMessage) -> HostFuture<Result<(), HostError>>;

    /// Identity providers users can sign in with.
    fn identity_providers(&self) -> Vec<IdentityProvider>;

    /// Sends a request to an identity provider. Redirects are not followed and the response size is
    /// limited.
    fn fetch(
        &self,
        request: Request<Vec<u8>>,
    ) -> HostFuture<Result<http::Response<Vec<u8>>, HostError>>;
}
