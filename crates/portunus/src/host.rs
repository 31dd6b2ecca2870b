//! The services of the gateway that the console uses.

use admin::{AccountAdmin, Admin};
use axum::body::Body;
use axum::response::Response;
use canon::Micros;
use catalog::Catalog;
use console::{ConsoleHost, HostError, HostFuture, IdentityProvider, MailMessage};
use http::Request;
use http_body_util::{BodyExt as _, Limited};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use store::Vault;
use transport::{HttpClient, RequestBody};

use crate::app::App;

/// Time an OpenID Connect provider may take, and the maximum size of its answer.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_IDENTITY_BYTES: usize = 1 << 20;

impl ConsoleHost for App {
    fn with_catalog(&self, visit: &mut dyn FnMut(&Catalog)) {
        visit(&self.config().catalog);
    }

    fn public_url(&self) -> String {
        self.config().public_url.clone()
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn formats(&self) -> Vec<&'static str> {
        let conversations = dialects::all().map(|dialect| dialect.origin().as_str());
        conversations.chain(["images", "embeddings"]).collect()
    }

    fn converses(&self, model: &str) -> bool {
        self.config().routes.get(model).is_some_and(|route| route.converses())
    }

    fn openapi(&self) -> serde_json::Map<String, serde_json::Value> {
        api::openapi_document(&self.config().public_url)
    }

    fn call_api(
        self: Arc<Self>,
        key: String,
        peer: SocketAddr,
        request: Request<Body>,
    ) -> HostFuture<Response> {
        Box::pin(
            async move { api::serve_with_key(Arc::clone(&self.api), &key, peer, request).await },
        )
    }

    fn admin(&self) -> &Arc<Admin> {
        &self.admin
    }

    fn accounts(&self) -> &AccountAdmin {
        &self.admin.accounts
    }

    fn vault(&self) -> &Vault {
        &self.admin.vault
    }

    fn alert_secret(&self, account_id: &str) -> String {
        self.api.alert_secret(account_id)
    }

    fn can_mail(&self) -> bool {
        self.config().mailer.is_some()
    }

    fn send_mail(&self, mail: MailMessage) -> HostFuture<Result<(), HostError>> {
        let mailer = self.config().mailer.clone();
        Box::pin(async move {
            match mailer {
                Some(mailer) => mailer.send(mail).await.map_err(failed),
                None => Err(HostError("no mail server is configured".to_owned())),
            }
        })
    }

    fn identity_providers(&self) -> Vec<IdentityProvider> {
        self.config().identity_providers.clone()
    }

    fn fetch(
        &self,
        request: Request<Vec<u8>>,
    ) -> HostFuture<Result<http::Response<Vec<u8>>, HostError>> {
        let way = self.config().outbound.clone();
        Box::pin(async move {
            let client = HttpClient::network(IDENTITY_TIMEOUT, &way);
            let fetching = fetch(client, request, MAX_IDENTITY_BYTES);
            match tokio::time::timeout(IDENTITY_TIMEOUT, fetching).await {
                Ok(answer) => answer,
                Err(_) => {
                    Err(HostError(format!("no answer within {} s", IDENTITY_TIMEOUT.as_secs())))
                }
            }
        })
    }
}

fn failed(error: impl std::fmt::Display) -> HostError {
    HostError(error.to_string())
}

/// Sends one request and returns the whole answer, if it is not larger than the limit.
pub(crate) async fn fetch(
    client: HttpClient,
    request: Request<Vec<u8>>,
    max_bytes: usize,
) -> Result<http::Response<Vec<u8>>, HostError> {
    let request = request.map(|body| RequestBody::new(vec![body.into()]));
    let answer = client.send(request, false).await.map_err(|lost| failed(lost.cause))?;
    let body = Limited::new(answer.body, max_bytes).collect().await.map_err(failed)?;
    let mut response = http::Response::new(body.to_bytes().to_vec());
    *response.status_mut() = http::StatusCode::from_u16(answer.status).map_err(failed)?;
    *response.headers_mut() = answer.headers.to_map();
    Ok(response)
}
