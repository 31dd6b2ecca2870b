//! Sends requests over the network or to a service inside this process.

use bytes::Bytes;
use canon::UpstreamProgress;
use http::header::PROXY_AUTHORIZATION;
use http::{Method, Request, Response, Uri};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::error::Error;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::client::body::{BodyError, ClientBody, LocalBody, NetworkBody, RequestBody};
use crate::client::client_response::ClientResponse;
use crate::client::connection_use::ConnectionUse;
use crate::client::h1::{ClientWire, ExchangeError, Http1Body};
use crate::client::outbound::{OpenedConnection, Outbound, OutboundConnector};
use crate::client::pool::{ConnectionPool, HostPool, Http2Connection, PooledConnection};
use crate::client::request_template::RequestTemplate;
use crate::client::sent_mark::{BodyEnd, SentMark};
use crate::header_block::HeaderBlock;
use crate::header_fields::HeaderFields;

/// Interval and timeout of HTTP/2 pings.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// A service inside this process.
pub trait LocalService: Send + Sync {
    /// Answers one request.
    fn call(
        &self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Response<LocalBody>> + Send>>;
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
    pub fn network(connect_timeout: Duration, outbound: &Outbound) -> Self {
        let connector = outbound.connector(connect_timeout);
        Self::Network(NetworkClient(Arc::new(ClientCore {
            pool: ConnectionPool::default(),
            connector,
            connect_timeout,
        })))
    }

    /// Sends a request and waits for the head of the response. With `new_connection` it takes no
    /// connection from the pool.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
        new_connection: bool,
    ) -> Result<ClientResponse, SendError> {
        self.send_within(request, new_connection, Duration::MAX, &SentMark::default()).await
    }

    /// Sends a request like [`Self::send`], with a shorter connect timeout. The mark is set once a
    /// connection has the request.
    pub async fn send_within(
        &self,
        request: Request<RequestBody>,
        new_connection: bool,
        connect_timeout: Duration,
        sent: &SentMark,
    ) -> Result<ClientResponse, SendError> {
        match self {
            Self::Network(NetworkClient(core)) => {
                let connect_timeout = connect_timeout.min(core.connect_timeout);
                core.send(request, new_connection, connect_timeout, sent).await
            }
            Self::Local(local) => {
                sent.add();
                sent.set_whole();
                let (head, body) = local.call(request.map(RequestBody::join)).await.into_parts();
                Ok(ClientResponse {
                    status: head.status.as_u16(),
                    headers: HeaderBlock::from_map(&head.headers),
                    body: ClientBody::Local(body),
                })
            }
        }
    }
}

impl HttpClient {
    /// Makes the template of requests to a URL.
    pub fn template(&self, method: Method, uri: Uri, headers: HeaderFields) -> RequestTemplate {
        let pool = match (self, uri.scheme(), uri.authority()) {
            (Self::Network(NetworkClient(core)), Some(scheme), Some(authority))
                if !core.connector.is_read_by_proxy(&uri) =>
            {
                Some(core.pool.host(scheme, authority.as_str()))
            }
            _ => None,
        };
        RequestTemplate::new(method, uri, headers, pool)
    }

    /// Sends a request of a template of this client like [`Self::send_within`].
    pub async fn send_templated(
        &self,
        template: &RequestTemplate,
        (fields, body): (HeaderFields, RequestBody),
        new_connection: bool,
        connect_timeout: Duration,
        sent: &SentMark,
    ) -> Result<ClientResponse, SendError> {
        let pool = template.pool_for(&fields).filter(|_| !new_connection);
        // Another connection than an idle one of HTTP/1 takes the request as such.
        if let Some((pool, mut wire)) = pool.and_then(|pool| Some((pool, pool.take_http1()?))) {
            wire.buffer_with(body, |length, out| template.write(&fields, length, out));
            drop(fields);
            return exchange_http1(wire, Arc::clone(pool), sent).await;
        }
        let request = template.to_request(&fields, body);
        // Boxed, because it is rare and would enlarge the future of every call.
        Box::pin(self.send_within(request, new_connection, connect_timeout, sent)).await
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
        if let Some(found) = error.downcast_ref::<h2::Error>() {
            return Some(found).filter(|found| found.is_remote());
        }
        inner = error.source();
    }
    None
}

impl ClientCore {
    async fn send(
        &self,
        mut request: Request<RequestBody>,
        new_connection: bool,
        connect_timeout: Duration,
        sent: &SentMark,
    ) -> Result<ClientResponse, SendError> {
        let uri = request.uri();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(SendError {
                progress: UpstreamProgress::NotSent,
                cause: "the URL has no scheme or host".into(),
            });
        };
        let pool = self.pool.host(scheme, authority.as_str());
        if let Some(proof) = self.connector.proxy_authorization(uri) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, proof);
        }
        if !new_connection {
            match pool.take() {
                Some(PooledConnection::Http1(mut wire)) => {
                    wire.buffer_request(request);
                    return exchange_http1(wire, pool, sent).await;
                }
                Some(PooledConnection::Http2(shared)) => {
                    match Box::pin(shared.send(request, sent)).await {
                        Ok(response) => return Ok(response),
                        // The connection had reached its last stream and sent nothing of this request.
                        Err(Http2SendError::Unsent(unsent)) => request = *unsent,
                        Err(Http2SendError::Failed(error)) => return Err(error),
                    }
                }
                None => {}
            }
        }
        // Boxed, because it is rare and would enlarge the future of every call.
        Box::pin(self.send_on_new_connection(request, pool, connect_timeout, sent)).await
    }

    /// Opens a connection, sends the request and pools the connection.
    async fn send_on_new_connection(
        &self,
        request: Request<RequestBody>,
        pool: Arc<HostPool>,
        connect_timeout: Duration,
        sent: &SentMark,
    ) -> Result<ClientResponse, SendError> {
        let not_sent = |cause: BodyError| SendError { progress: UpstreamProgress::NotSent, cause };
        let opening = tokio::time::timeout(connect_timeout, self.connector.open(request.uri()));
        let OpenedConnection { stream, is_proxied, is_http2 } = match opening.await {
            Ok(opened) => opened.map_err(not_sent)?,
            Err(_) => {
                let cause = format!("no connection within {connect_timeout:?}");
                return Err(not_sent(io::Error::new(io::ErrorKind::TimedOut, cause).into()));
            }
        };
        if !is_http2 {
            let mut wire = Box::new(ClientWire::new(stream, is_proxied));
            wire.buffer_request(request);
            return exchange_http1(wire, pool, sent).await;
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|e| not_sent(e.into()))?;
        tokio::spawn(async move {
            // Readers of the responses see the error.
            let _ = connection.await;
        });
        let shared = Http2Connection { sender, used: ConnectionUse::default() };
        pool.put_http2(shared.clone());
        match shared.send(request, sent).await {
            Ok(response) => Ok(response),
            Err(Http2SendError::Failed(error)) => Err(error),
            Err(Http2SendError::Unsent(_)) => {
                Err(not_sent("the connection was closed before it was used".into()))
            }
        }
    }
}

/// Exchanges the buffered request of a connection for its response.
async fn exchange_http1(
    mut wire: Box<ClientWire>,
    pool: Arc<HostPool>,
    sent: &SentMark,
) -> Result<ClientResponse, SendError> {
    sent.add();
    let head = wire.exchange(sent).await.map_err(|failed| match failed {
        ExchangeError::Stale(cause) => {
            SendError { progress: UpstreamProgress::StaleConnection, cause }
        }
        ExchangeError::Sent(cause) => SendError { progress: UpstreamProgress::Sent, cause },
    })?;
    // A server that answers early has all that it needs.
    sent.set_whole();
    let body = NetworkBody::Http1(Http1Body::new(wire, head.framing, head.keep_alive, pool));
    let body = ClientBody::from_network(&head.headers, body);
    Ok(ClientResponse { status: head.status, headers: head.headers, body })
}

/// Failure of a request on a shared connection.
enum Http2SendError {
    /// Nothing of the request was sent. It can go to another connection.
    Unsent(Box<Request<RequestBody>>),
    Failed(SendError),
}

impl Http2Connection {
    /// Sends one request among others.
    async fn send(
        mut self,
        request: Request<RequestBody>,
        sent: &SentMark,
    ) -> Result<ClientResponse, Http2SendError> {
        sent.add();
        let end = BodyEnd { has_ended: Arc::default(), sent };
        let request = request.map(|body| body.telling_end(&end.has_ended));
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut failed) => {
                if let Some(request) = failed.take_message() {
                    sent.take_back();
                    return Err(Http2SendError::Unsent(Box::new(request)));
                }
                let cause = failed.into_error();
                // A refused stream, and a stream above the last id of GOAWAY, were not processed
                // (RFC 9113, section 8.7).
                let is_refused = find_http2_error(&cause).is_some_and(|found| {
                    found.is_go_away() || found.reason() == Some(h2::Reason::REFUSED_STREAM)
                });
                let progress = if cause.is_canceled() {
                    UpstreamProgress::NotSent
                } else if is_refused {
                    UpstreamProgress::Refused
                } else if self.used.has_answered() && !cause.is_parse() {
                    UpstreamProgress::StaleConnection
                } else {
                    UpstreamProgress::Sent
                };
                return Err(Http2SendError::Failed(SendError { progress, cause: cause.into() }));
            }
        };
        self.used.mark_answered();
        sent.set_whole();
        let (head, body) = response.into_parts();
        let headers = HeaderBlock::from_map(&head.headers);
        let body = ClientBody::from_network(&headers, NetworkBody::Http2(body));
        Ok(ClientResponse { status: head.status.as_u16(), headers, body })
    }
}

impl std::fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Network(_) => "HttpClient::Network",
            Self::Local(_) => "HttpClient::Local",
        })
    }
}
