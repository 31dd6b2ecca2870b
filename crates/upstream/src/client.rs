//! How a request leaves: over the network, or to a model inside this process.

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::body::{Body, BodyError, Pieces};

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

type Net = legacy::Client<HttpsConnector<HttpConnector>, Pieces>;

/// Sends requests.
#[derive(Clone)]
pub enum Client {
    /// Over the network.
    Net(Net),
    /// Inside this process.
    Local(Arc<dyn Local>),
}

impl Client {
    /// A client for the network with its own pool of connections. Certificates are always checked.
    pub fn net(connect: Duration) -> Result<Self, rustls::Error> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(connect));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let tls = ClientConfig::builder().try_with_platform_verifier()?.with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(256)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .http2_keep_alive_timeout(Duration::from_secs(5))
            .build(connector);
        Ok(Self::Net(client))
    }

    /// Sends a request and waits for the head of the answer.
    pub async fn send(&self, request: Request<Pieces>) -> Result<Answer, legacy::Error> {
        match self {
            Self::Net(client) => {
                let (head, body) = client.request(request).await?.into_parts();
                Ok(Answer {
                    status: head.status.as_u16(),
                    body: Body::net(&head.headers, body),
                    headers: head.headers,
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
