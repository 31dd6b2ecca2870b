//! Sends requests over the network or to a service inside this process.

use bytes::Bytes;
use canon::UpstreamProgress;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::client::body::{BodyError, ClientBody, NetworkBody, RequestBody};
use crate::client::connection_use::ConnectionUse;
use crate::client::h1::{ClientWire, ExchangeError, Http1Body};
use crate::client::outbound::{OpenedConnection, Outbound, OutboundConnector};
use crate::client::pool::{ConnectionPool, HostPool, Http2Connection, PooledConnection};

/// Interval and timeout of HTTP/2 pings.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Body of a response from inside this process.
pub type LocalBody = UnsyncBoxBody<Bytes, BodyError>;

/// A service inside this process.
pub trait LocalService: Send + Sync {
    /// Answers one request.
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<LocalBody>> + Send>>;
}

/// A response: status, headers and an unread body.
#[derive(Debug)]
pub struct ClientResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: ClientBody,
}

/// Network client: a connection pool and a connector.
#[derive(Clone)]
pub struct NetworkClient(Arc<ClientCore>);

struct ClientCore {
    pool: ConnectionPool,
    connector: OutboundConnector,
    connect_timeout: Duration,
}

/// Error of a request without a response.
#[derive(Debug)]
pub struct SendError {
    /// Progress of the request before the error.
    pub progress: UpstreamProgress,
    /// Underlying error.
    pub cause: BodyError,
}

/// Sends HTTP requests.
#[derive(Clone)]
pub enum HttpClient {
    /// Over the network.
    Network(NetworkClient),
    /// Inside this process.
    Local(Arc<dyn LocalService>),
}

impl HttpClient {
    /// Creates a network client with its own pool. It never follows redirects, which would carry
    /// the credential to another host.
    pub fn network(connect: Duration, way: &Outbound) -> Self {
        let opener = way.connector(connect);
        Self::Network(NetworkClient(Arc::new(ClientCore {
            pool: ConnectionPool::default(),
            connector: opener,
            connect_timeout: connect,
        })))
    }

    /// Sends a request and waits for the head of the response; `fresh` forces a new connection.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
        fresh: bool,
    ) -> Result<ClientResponse, SendError> {
        self.send_within(request, fresh, Duration::MAX).await
    }

    /// Sends a request like [`Self::send`], with a shorter connect timeout.
    pub async fn send_within(
        &self,
        request: Request<RequestBody>,
        fresh: bool,
        connect: Duration,
    ) -> Result<ClientResponse, SendError> {
        match self {
            Self::Network(NetworkClient(ways)) => {
                ways.send(request, fresh, connect.min(ways.connect_timeout)).await
            }
            Self::Local(local) => {
                let (head, body) = local.call(request.map(RequestBody::join)).await.into_parts();
                Ok(ClientResponse {
                    status: head.status.as_u16(),
                    headers: head.headers,
                    body: ClientBody::Local(body),
                })
            }
        }
    }
}

impl SendError {
    /// Returns the error frame the server sent on HTTP/2.
    pub fn http2_error(&self) -> Option<&h2::Error> {
        find_http2_error(&*self.cause)
    }
}

fn find_http2_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e h2::Error> {
    let mut inner = Some(error);
    while let Some(error) = inner {
        if let Some(said) = error.downcast_ref::<h2::Error>() {
            return Some(said).filter(|said| said.is_remote());
        }
        inner = error.source();
    }
    None
}

impl ClientCore {
    async fn send(
        &self,
        mut request: Request<RequestBody>,
        fresh: bool,
        connect: Duration,
    ) -> Result<ClientResponse, SendError> {
        let uri = request.uri();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(SendError {
                progress: UpstreamProgress::NotSent,
                cause: "the URL has no scheme or host".into(),
            });
        };
        let place = self.pool.host((scheme.clone(), authority.clone()));
        if let Some(proof) = self.connector.proxy_authorization(uri) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, proof);
        }
        if !fresh {
            match place.take() {
                Some(PooledConnection::Http1(wire)) => {
                    return exchange_http1(wire, request, place).await;
                }
                Some(PooledConnection::Http2(shared)) => match Box::pin(shared.send(request)).await
                {
                    Ok(outcome) => return outcome,
                    // The connection had reached its last stream and sent nothing of this request.
                    Err(back) => request = *back,
                },
                None => {}
            }
        }
        // Boxed, because it is rare and would enlarge the future of every call.
        Box::pin(self.send_on_new_connection(request, place, connect)).await
    }

    /// Opens a connection, sends the request and pools the connection.
    async fn send_on_new_connection(
        &self,
        request: Request<RequestBody>,
        place: Arc<HostPool>,
        connect: Duration,
    ) -> Result<ClientResponse, SendError> {
        let nothing =
            |why: BodyError| SendError { progress: UpstreamProgress::NotSent, cause: why };
        let opening = tokio::time::timeout(connect, self.connector.open(request.uri()));
        let OpenedConnection { stream: line, is_proxied: proxied, is_http2: shared } =
            match opening.await {
                Ok(opened) => opened.map_err(nothing)?,
                Err(_) => {
                    let why = format!("no connection within {connect:?}");
                    return Err(nothing(io::Error::new(io::ErrorKind::TimedOut, why).into()));
                }
            };
        if !shared {
            return exchange_http1(Box::new(ClientWire::new(line, proxied)), request, place).await;
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(line))
            .await
            .map_err(|e| nothing(e.into()))?;
        tokio::spawn(async move {
            // Readers of the responses see the error.
            let _ = connection.await;
        });
        let shared = Http2Connection { sender, used: ConnectionUse::default() };
        place.put_http2(shared.clone());
        match shared.send(request).await {
            Ok(outcome) => outcome,
            Err(_) => Err(nothing("the connection was closed before it was used".into())),
        }
    }
}

async fn exchange_http1(
    mut wire: Box<ClientWire>,
    request: Request<RequestBody>,
    place: Arc<HostPool>,
) -> Result<ClientResponse, SendError> {
    let head = wire.exchange(request).await.map_err(|failed| match failed {
        ExchangeError::Stale(why) => {
            SendError { progress: UpstreamProgress::StaleConnection, cause: why }
        }
        ExchangeError::Sent(why) => SendError { progress: UpstreamProgress::Sent, cause: why },
    })?;
    let body = NetworkBody::Http1(Http1Body::new(wire, head.framing, head.keep_alive, place));
    let body = ClientBody::from_network(&head.headers, body);
    Ok(ClientResponse { status: head.status, headers: head.headers, body })
}

impl Http2Connection {
    /// Sends one request among others, and returns the request if nothing of it was sent.
    async fn send(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<Result<ClientResponse, SendError>, Box<Request<RequestBody>>> {
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut failed) => {
                if let Some(request) = failed.take_message() {
                    return Err(Box::new(request));
                }
                let why = failed.into_error();
                // A refused stream, and a stream above the last id of GOAWAY, were not processed
                // (RFC 9113, section 8.7).
                let undone = find_http2_error(&why).is_some_and(|said| {
                    said.is_go_away() || said.reason() == Some(h2::Reason::REFUSED_STREAM)
                });
                let reach = if why.is_canceled() {
                    UpstreamProgress::NotSent
                } else if undone {
                    UpstreamProgress::Refused
                } else if self.used.has_answered() && !why.is_parse() {
                    UpstreamProgress::StaleConnection
                } else {
                    UpstreamProgress::Sent
                };
                return Ok(Err(SendError { progress: reach, cause: why.into() }));
            }
        };
        self.used.mark_answered();
        let (head, body) = response.into_parts();
        let body = ClientBody::from_network(&head.headers, NetworkBody::Http2(body));
        Ok(Ok(ClientResponse { status: head.status.as_u16(), headers: head.headers, body }))
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Network(_) => "Client::Net",
            Self::Local(_) => "Client::Local",
        })
    }
}
