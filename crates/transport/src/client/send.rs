//! How a request leaves: over the network, or to a model inside this process.

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

use crate::client::body::{Body, BodyError, NetBody, Pieces};
use crate::client::h1::{Failed, Flow, Wire};
use crate::client::outbound::{Opened, Opener, Outbound};
use crate::client::pool::{Found, Place, Pool, Shared};
use crate::client::used::Used;

/// How often a connection with many requests on it is asked whether it lives, and how long it may
/// take to say so.
const ALIVE: Duration = Duration::from_secs(10);
const ALIVE_TIME: Duration = Duration::from_secs(5);

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

/// The network: connections kept for the next request, and a way to open more.
#[derive(Clone)]
pub struct Net(Arc<Ways>);

struct Ways {
    pool: Pool,
    opener: Opener,
    connect: Duration,
}

/// Why a request got no answer.
#[derive(Debug)]
pub struct Lost {
    /// How far it got.
    pub reach: UpstreamProgress,
    /// What went wrong.
    pub why: BodyError,
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
        let opener = way.opener(connect);
        Self::Net(Net(Arc::new(Ways { pool: Pool::default(), opener, connect })))
    }

    /// Sends a request and waits for the head of the answer; on a connection of its own if `fresh`.
    pub async fn send(&self, request: Request<Pieces>, fresh: bool) -> Result<Answer, Lost> {
        self.send_within(request, fresh, Duration::MAX).await
    }

    /// The same, where a connection must be open sooner than is usual here.
    pub async fn send_within(
        &self,
        request: Request<Pieces>,
        fresh: bool,
        connect: Duration,
    ) -> Result<Answer, Lost> {
        match self {
            Self::Net(Net(ways)) => ways.send(request, fresh, connect.min(ways.connect)).await,
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
    pub fn said(&self) -> Option<&h2::Error> {
        said(&*self.why)
    }
}

fn said<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e h2::Error> {
    let mut inner = Some(error);
    while let Some(error) = inner {
        if let Some(said) = error.downcast_ref::<h2::Error>() {
            return Some(said).filter(|said| said.is_remote());
        }
        inner = error.source();
    }
    None
}

impl Ways {
    async fn send(
        &self,
        mut request: Request<Pieces>,
        fresh: bool,
        connect: Duration,
    ) -> Result<Answer, Lost> {
        let uri = request.uri();
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err(Lost { reach: UpstreamProgress::NotSent, why: "the address is not whole".into() });
        };
        let place = self.pool.place((scheme.clone(), authority.clone()));
        if let Some(proof) = self.opener.proof(uri) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, proof);
        }
        if !fresh {
            match place.find() {
                Some(Found::Own(wire)) => return exchange(wire, request, place).await,
                Some(Found::Shared(shared)) => match Box::pin(shared.exchange(request)).await {
                    Ok(outcome) => return outcome,
                    // Its last request had just been one too many: nothing of ours was sent.
                    Err(back) => request = *back,
                },
                None => {}
            }
        }
        // Boxed: it is rare, and every call carries its future along.
        Box::pin(self.send_anew(request, place, connect)).await
    }

    /// Sends a request on a connection that is opened for it, and kept for others.
    async fn send_anew(
        &self,
        request: Request<Pieces>,
        place: Arc<Place>,
        connect: Duration,
    ) -> Result<Answer, Lost> {
        let nothing = |why: BodyError| Lost { reach: UpstreamProgress::NotSent, why };
        let opening = tokio::time::timeout(connect, self.opener.open(request.uri()));
        let Opened { line, proxied, shared } = match opening.await {
            Ok(opened) => opened.map_err(nothing)?,
            Err(_) => {
                let why = format!("no connection within {connect:?}");
                return Err(nothing(io::Error::new(io::ErrorKind::TimedOut, why).into()));
            }
        };
        if !shared {
            return exchange(Box::new(Wire::new(line, proxied)), request, place).await;
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(ALIVE)
            .keep_alive_timeout(ALIVE_TIME)
            .handshake(TokioIo::new(line))
            .await
            .map_err(|e| nothing(e.into()))?;
        tokio::spawn(async move {
            // What goes wrong here is told where the answers are read.
            let _ = connection.await;
        });
        let shared = Shared { sender, used: Used::default() };
        place.share(shared.clone());
        match shared.exchange(request).await {
            Ok(outcome) => outcome,
            Err(_) => Err(nothing("the connection was closed before it was used".into())),
        }
    }
}

async fn exchange(
    mut wire: Box<Wire>,
    request: Request<Pieces>,
    place: Arc<Place>,
) -> Result<Answer, Lost> {
    let head = wire.exchange(request).await.map_err(|failed| match failed {
        Failed::Stale(why) => Lost { reach: UpstreamProgress::StaleConnection, why },
        Failed::Sent(why) => Lost { reach: UpstreamProgress::Sent, why },
    })?;
    let body = NetBody::Own(Flow::new(wire, head.framing, head.keep, place));
    let body = Body::net(&head.headers, body);
    Ok(Answer { status: head.status, headers: head.headers, body })
}

impl Shared {
    /// One request among others; it comes back when nothing of it was sent.
    async fn exchange(
        mut self,
        request: Request<Pieces>,
    ) -> Result<Result<Answer, Lost>, Box<Request<Pieces>>> {
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut failed) => {
                if let Some(request) = failed.take_message() {
                    return Err(Box::new(request));
                }
                let why = failed.into_error();
                // Both promise that nothing was done: a refused stream, and one behind the last of a
                // goodbye.
                let undone = said(&why).is_some_and(|said| {
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
                return Ok(Err(Lost { reach, why: why.into() }));
            }
        };
        self.used.answered();
        let (head, body) = response.into_parts();
        let body = Body::net(&head.headers, NetBody::Shared(body));
        Ok(Ok(Answer { status: head.status.as_u16(), headers: head.headers, body }))
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
