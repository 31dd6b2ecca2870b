//! What the console needs of the gateway it is part of.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use canon::Money;
use catalog::Catalog;
use http::Request;
use ledger::Micros;
use store::KeyRecord;

/// The gateway as the console sees it.
pub trait Host: Send + Sync + 'static {
    /// Shows the catalog in force: calls `look` once, with one snapshot.
    fn with_catalog(&self, look: &mut dyn FnMut(&Catalog));

    /// The configured address of the gateway, without a slash at the end.
    fn public_url(&self) -> String;

    /// The formats the gateway serves: `chat`, `responses`, `messages`, `native`, `images`,
    /// `embeddings`. Examples are shown for these and no others.
    fn formats(&self) -> Vec<&'static str>;

    /// The description of the API, as OpenAPI has it.
    fn description(&self) -> serde_json::Map<String, serde_json::Value>;

    /// Serves a request for the API as if it had come with that key, from that address.
    fn call(
        self: Arc<Self>,
        key: String,
        peer: SocketAddr,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>>;

    /// The time.
    fn now(&self) -> Micros;

    /// Makes a key that is not stored yet: its record, and its text, which is shown once. The
    /// error is for the log.
    fn new_key(&self, account_id: &str, ask: KeyAsk) -> Result<(KeyRecord, String), String>;

    /// Tells that a key was stored or changed, so that calls learn of it at once.
    fn key_changed(&self, record: KeyRecord);
}

/// What a new key is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyAsk {
    /// What its owner calls it.
    pub name: String,
    /// The most it may spend; `None` is unlimited.
    pub cap: Option<Money>,
    /// The models it may use; empty is all.
    pub models: Vec<String>,
    /// When it ends.
    pub expires: Option<Micros>,
}
