//! How a request leaves: over the network, or to a model inside this process.

use bytes::Bytes;
use canon::Reach;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::body::{Body, BodyError, Pieces};
use crate::outbound::{Connector, Outbound};
use crate::used::Used;

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

type Pool = legacy::Client<HttpsConnector<Connector>, Pieces>;

/// Connections kept for the next request, and a way to send without them.
#[derive(Clone)]
pub struct Net {
    pool: Pool,
    fresh: Pool,
    way: Outbound,
}

/// Why a request got no answer.
#[derive(Debug)]
pub struct Lost {
    /// How far it got.
    pub reach: Reach,
    /// What went wrong.
    pub why: legacy::Error,
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
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(60))
            .pool_max_idle_per_host(256)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .http2_keep_alive_timeout(Duration::from_secs(5));
        let pool = builder.build(connector.clone());
        let fresh = builder.pool_max_idle_per_host(0).build(connector);
        Self::Net(Net { pool, fresh, way: way.clone() })
    }

    /// Sends a request and waits for the head of the answer; on a connection of its own if `fresh`.
    pub async fn send(&self, mut request: Request<Pieces>, fresh: bool) -> Result<Answer, Lost> {
        match self {
            Self::Net(net) => {
                if let Some(proof) = net.way.proof(request.uri()) {
                    request.headers_mut().insert(PROXY_AUTHORIZATION, proof);
                }
                let client = if fresh { &net.fresh } else { &net.pool };
                let response = client
                    .request(request)
                    .await
                    .map_err(|why| Lost { reach: reach(&why), why })?;
                if let Some(used) = response.extensions().get::<Used>() {
                    used.answered();
                }
                let (head, body) = response.into_parts();
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

impl Lost {
    /// What the other end of an HTTP/2 connection said instead of answering.
    pub(crate) fn said(&self) -> Option<&h2::Error> {
        said(&self.why)
    }
}

fn said(error: &legacy::Error) -> Option<&h2::Error> {
    let mut inner = error.source();
    while let Some(error) = inner {
        if let Some(said) = error.downcast_ref::<h2::Error>() {
            return Some(said).filter(|said| said.is_remote());
        }
        inner = error.source();
    }
    None
}

/// How far a request got whose sending failed.
fn reach(error: &legacy::Error) -> Reach {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>());
    if error.is_connect() || cause.is_some_and(hyper::Error::is_canceled) {
        return Reach::Nothing;
    }
    // Both promise that nothing was done: a refused stream, and one behind the last of a goodbye.
    let undone =
        |said: &h2::Error| said.is_go_away() || said.reason() == Some(h2::Reason::REFUSED_STREAM);
    if said(error).is_some_and(undone) {
        return Reach::Undone;
    }
    let mut extras = http::Extensions::new();
    if let Some(connection) = error.connect_info() {
        connection.get_extras(&mut extras);
    }
    let used = extras.get::<Used>().is_some_and(Used::has_answered);
    // Bytes that are no answer are an answer of sorts: somebody was there.
    let silent = !cause.is_some_and(hyper::Error::is_parse);
    if used && silent { Reach::Stale } else { Reach::Sent }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Net(_) => "Client::Net",
            Self::Local(_) => "Client::Local",
        })
    }
}
