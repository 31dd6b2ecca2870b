//! What the console needs of the gateway it is part of.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use admin::AccountAdmin;
use axum::body::Body;
use axum::response::Response;
use catalog::Catalog;
use http::Request;
use ledger::Micros;
use store::{Account, Vault};

pub use config::{IdentityProvider, MailMessage};

/// Something that takes its time.
pub type HostFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The gateway as the console sees it.
pub trait ConsoleHost: Send + Sync + 'static {
    /// Shows the catalog in force: calls `look` once, with one snapshot.
    fn with_catalog(&self, look: &mut dyn FnMut(&Catalog));

    /// The configured address of the gateway, without a slash at the end.
    fn public_url(&self) -> String;

    /// The formats the gateway serves: `chat`, `responses`, `messages`, `native`, `images`,
    /// `embeddings`. Examples are shown for these and no others.
    fn formats(&self) -> Vec<&'static str>;

    /// The description of the API, as OpenAPI has it.
    fn openapi(&self) -> serde_json::Map<String, serde_json::Value>;

    /// Serves a request for the API as if it had come with that key, from that address.
    fn call_api(
        self: Arc<Self>,
        key: String,
        peer: SocketAddr,
        request: Request<Body>,
    ) -> HostFuture<Response>;

    /// Serves a request for administration (`/api/admin/…`) in the name of somebody signed in, with
    /// the rights of their account.
    fn call_admin_api(
        self: Arc<Self>,
        account: Account,
        request: Request<Body>,
    ) -> HostFuture<Response>;

    /// The time.
    fn now(&self) -> Micros;

    /// Administration of accounts, teams and keys.
    fn accounts(&self) -> &AccountAdmin;

    /// Where secrets that must be had again are sealed.
    fn vault(&self) -> &Vault;

    /// Whether mail can be sent.
    fn can_mail(&self) -> bool;

    /// Sends a mail. The error is for the log.
    fn send_mail(&self, mail: MailMessage) -> HostFuture<Result<(), String>>;

    /// The providers of identities to sign in with.
    fn identity_providers(&self) -> Vec<IdentityProvider>;

    /// Sends a request to a provider of identities. Redirects are not followed, and the answer is
    /// small. The error is for the log.
    fn fetch(
        &self,
        request: Request<Vec<u8>>,
    ) -> HostFuture<Result<http::Response<Vec<u8>>, String>>;
}
