//! How a request leaves: over the network, or to a model inside this process.

use bytes::Bytes;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::body::{Body, BodyError, Pieces};
use crate::outbound::{Connector, Outbound};

/// The body of an answer from inside this process.
pub type LocalBody = UnsyncBoxBody<Bytes, BodyError>;

/// A place inside this process that answers requests.
pub trait Local: Send + Sync {
    /// Answers one request.
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<LocalBody>> + Send>>;
}

/// A provider's answer: status, headers, and a body still to be read.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

/// A pool of connections and the way they leave.
#[derive(Clone)]
pub struct Net {
    pool: legacy::Client<HttpsConnector<Connector>, Pieces>,
    way: Outbound,
}

/// Sends requests.
#[derive(Clone)]
pub enum Client {
    /// Over the network.
    Net(Net),
    /// Inside this process.
    Local(Arc<dyn Local>),
}

impl Client {
    /// A client for the network with its own pool of connections. Redirects are never followed:
    /// they would carry the credential to a place it was not meant for.
    pub fn net(connect: Duration, way: &Outbound) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(way.tls())
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(way.connector(connect));
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(256)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .http2_keep_alive_timeout(Duration::from_secs(5))
            .build(connector);
        Self::Net(Net { pool, way: way.clone() })
    }

    /// Sends a request and waits for the head of the answer.
    pub async fn send(&self, mut request: Request<Pieces>) -> Result<Answer, legacy::Error> {
        match self {
            Self::Net(Net { pool, way }) => {
                if let Some(proof) = way.proof(request.uri()) {
                    request.headers_mut().insert(PROXY_AUTHORIZATION, proof);
                }
                let (head, body) = pool.request(request).await?.into_parts();
                Ok(Answer {
                    status: head.status.as_u16(),
                    headers: head.headers,
                    body: Body::Net(body),
                })
            }
            Self::Local(local) => {
                let (head, body) = local.call(request.map(Pieces::join)).await.into_parts();
                Ok(Answer {
                    status: head.status.as_u16(),
                    headers: head.headers,
                    body: Body::Local(body),
                })
            }
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Net(_) => "Client::Net",
            Self::Local(_) => "Client::Local",
        })
    }
}
