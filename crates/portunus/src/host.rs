//! What the console needs of the gateway.

use axum::body::Body;
use axum::response::Response;
use catalog::Catalog;
use console::{Host, KeyAsk};
use http::Request;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use store::KeyRecord;

use crate::app::{App, NewKey};

impl Host for App {
    fn with_catalog(&self, look: &mut dyn FnMut(&Catalog)) {
        look(&self.config().catalog);
    }

    fn public_url(&self) -> String {
        self.config().public_url.clone()
    }

    fn now(&self) -> i64 {
        self.clock.now()
    }

    fn formats(&self) -> Vec<&'static str> {
        dialects::all().map(|dialect| dialect.origin().name()).collect()
    }

    fn description(&self) -> serde_json::Map<String, serde_json::Value> {
        crate::surfaces::description(self)
    }

    fn call(
        self: Arc<Self>,
        key: String,
        peer: SocketAddr,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(async move { crate::surfaces::serve_as(self, &key, peer, request).await })
    }

    fn new_key(&self, account_id: &str, ask: KeyAsk) -> Result<(KeyRecord, String), String> {
        let KeyAsk { name, cap, models, expires } = ask;
        let key = NewKey { name, cap, models, expires };
        key.make(account_id, &self.ring, self.clock.now()).map_err(|e| e.to_string())
    }

    fn key_changed(&self, record: KeyRecord) {
        self.ring.put(record);
        if let Some(shared) = self.pacing.shared() {
            let shared = Arc::clone(shared);
            self.tasks.spawn(async move { shared.tell_news().await });
        }
    }
}
