//! What the console needs of the gateway.

use admin::AccountAdmin;
use axum::body::Body;
use axum::response::Response;
use catalog::Catalog;
use console::{Host, IdentityProvider, Later, Mail};
use http::Request;
use http_body_util::{BodyExt as _, Limited};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::{Account, Vault};
use transport::{Client, Pieces};

use crate::app::App;

/// How long a provider of identities may take, and how much it may say.
const PATIENCE: Duration = Duration::from_secs(10);
const LARGEST: usize = 1 << 20;

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
        dialects::all().map(|dialect| dialect.origin().as_str()).collect()
    }

    fn description(&self) -> serde_json::Map<String, serde_json::Value> {
        api::description(&self.api)
    }

    fn call(
        self: Arc<Self>,
        key: String,
        peer: SocketAddr,
        request: Request<Body>,
    ) -> Later<Response> {
        Box::pin(async move { api::serve_as(Arc::clone(&self.api), &key, peer, request).await })
    }

    fn administer(self: Arc<Self>, account: Account, request: Request<Body>) -> Later<Response> {
        Box::pin(async move { api::administer(Arc::clone(&self.api), &account, request).await })
    }

    fn accounts(&self) -> &AccountAdmin {
        &self.admin.accounts
    }

    fn vault(&self) -> &Vault {
        &self.admin.vault
    }

    fn can_mail(&self) -> bool {
        self.config().mail.is_some()
    }

    fn send_mail(&self, mail: Mail) -> Later<Result<(), String>> {
        let post = self.config().mail.clone();
        Box::pin(async move {
            match post {
                Some(post) => post.send(mail).await,
                None => Err("no mail server is configured".to_owned()),
            }
        })
    }

    fn identities(&self) -> Vec<IdentityProvider> {
        self.config().identities.clone()
    }

    fn fetch(&self, request: Request<Vec<u8>>) -> Later<Result<http::Response<Vec<u8>>, String>> {
        let way = self.config().way.clone();
        Box::pin(async move {
            let fetching = fetch(Client::net(PATIENCE, &way), request);
            match tokio::time::timeout(PATIENCE, fetching).await {
                Ok(answer) => answer,
                Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
            }
        })
    }
}

/// One request, and its whole answer.
async fn fetch(
    client: Client,
    request: Request<Vec<u8>>,
) -> Result<http::Response<Vec<u8>>, String> {
    let request = request.map(|body| Pieces::new(vec![body.into()]));
    let answer = client.send(request, false).await.map_err(|lost| lost.why.to_string())?;
    let body = Limited::new(answer.body, LARGEST).collect().await.map_err(|e| e.to_string())?;
    let mut response = http::Response::new(body.to_bytes().to_vec());
    *response.status_mut() =
        http::StatusCode::from_u16(answer.status).map_err(|e| e.to_string())?;
    *response.headers_mut() = answer.headers;
    Ok(response)
}
