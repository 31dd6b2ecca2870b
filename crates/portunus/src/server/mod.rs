//! The accept loop: connections in, requests to the routes, an orderly end.
//!
//! Our own, because every limit a connection has must be set by us: how many headers, how long
//! they may take, how many streams, and what happens to all of it when the process must go.

mod h1;
mod h2;
mod open;

pub(crate) use open::{Open, Order};

use axum::body::Body;
use axum::response::Response;
use bytes::BytesMut;
use canon::{Fault, Trouble};
use futures_util::FutureExt as _;
use http::header::{HOST, HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::config::HttpLimits;
use crate::respond::{self, Voice};
use crate::surfaces::{self, RequestId, Routes};
use open::Guest;

/// How long to wait before accepting again when it failed.
const BACK_OFF: Duration = Duration::from_millis(50);
/// How often a failure to accept is told.
const TOLD: Duration = Duration::from_secs(5);
/// What whoever is one too many is told.
const FULL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
/// How long calls may take to tell their callers that they were ended.
const ENDING: Duration = Duration::from_secs(3);
/// How long what is left may take to settle after the last connection was closed.
const CLOSING: Duration = Duration::from_millis(1_500);

/// Serves until the order to stop, and does nothing beside: [`run`](crate::run) does.
pub async fn serve(app: Arc<App>, listener: TcpListener) {
    let routes = Arc::new(Routes::new(&app));
    let stop = app.stop.clone();
    let accepting = accept(app, listener, Answers::Routes(routes));
    tokio::select! {
        () = stop.cancelled() => {}
        () = accepting => {}
    }
}

/// Tells metrics on a listener of their own, for whoever can reach it.
pub(crate) async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    accept(app, listener, Answers::Metrics).await;
}

/// Lets what runs finish within the drain time, then ends it properly, then ends it anyway.
pub(crate) async fn drain(app: &App) {
    app.drain();
    app.tasks.close();
    let limit = app.config().drain;
    tokio::select! {
        () = app.tasks.wait() => return,
        () = app.hurry.cancelled() => {}
        () = tokio::time::sleep(limit) => {}
    }
    let open = app.open.count();
    tracing::warn!(connections = open, "the drain time is over; {open} connections are ended");
    for (order, time) in [(Order::End, ENDING), (Order::Cut, CLOSING)] {
        app.open.give(order);
        if tokio::time::timeout(time, app.tasks.wait()).await.is_ok() {
            return;
        }
    }
    tracing::warn!("some calls did not end; they are settled at the next start");
}

async fn accept(app: Arc<App>, listener: TcpListener, answers: Answers) {
    let mut told: Option<Instant> = None;
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(e) => {
                // Out of file descriptors, most likely: others must end before more can begin.
                if told.is_none_or(|told| told.elapsed() > TOLD) {
                    told = Some(Instant::now());
                    tracing::warn!("a connection could not be accepted: {e}");
                }
                tokio::time::sleep(BACK_OFF).await;
                continue;
            }
        };
        let config = app.config();
        let Some(guest) = app.open.enter(peer.ip(), &config.http) else {
            if config.tls.is_none() {
                let _ = socket2::SockRef::from(&stream).send(FULL);
            }
            if told.is_none_or(|told| told.elapsed() > TOLD) {
                told = Some(Instant::now());
                tracing::warn!(peer = %peer.ip(), "too many connections: {} is turned away", peer.ip());
            }
            continue;
        };
        let service = Service { app: Arc::clone(&app), answers: answers.clone(), peer };
        // Metrics are plain even where calls are not: their listener is the operator's own.
        let tls = match &answers {
            Answers::Routes(_) => config.tls.clone().map(TlsAcceptor::from),
            Answers::Metrics => None,
        };
        app.tasks.spawn(connection(service, guest, stream, tls, config.http));
    }
}

async fn connection(
    service: Service,
    guest: Guest,
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    limits: HttpLimits,
) {
    set_up(&stream, &limits);
    match tls {
        None => over(stream, service, guest, limits).await,
        Some(tls) => match tokio::time::timeout(limits.header_time, tls.accept(stream)).await {
            Ok(Ok(stream)) => over(stream, service, guest, limits).await,
            Ok(Err(e)) => tracing::debug!("a connection could not be secured: {e}"),
            Err(_) => tracing::debug!("a connection was not secured in time"),
        },
    }
}

/// HTTP/1, unless the first bytes say HTTP/2.
async fn over<S: h1::Stream>(stream: S, service: Service, guest: Guest, limits: HttpLimits) {
    let other = h1::serve(stream, BytesMut::new(), service, guest, limits).await;
    if let Some(h1::Handed { stream, read, service, guest }) = other {
        h2::serve(h2::Rewound::new(stream, read), service, guest, limits).await;
    }
}

/// What the system is told of a connection. Where it does not listen, nothing is lost but comfort.
fn set_up(stream: &TcpStream, limits: &HttpLimits) {
    // A write that waits for another acknowledgement costs a caller 40 ms.
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let alive = socket2::TcpKeepalive::new().with_time(limits.stall);
    let _ = socket.set_tcp_keepalive(&alive);
    // A caller whose machine is gone takes nothing and says nothing.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(limits.stall));
}

/// Who answers on a listener.
#[derive(Clone)]
enum Answers {
    Routes(Arc<Routes>),
    Metrics,
}

/// What answers the requests of one connection.
struct Service {
    app: Arc<App>,
    answers: Answers,
    peer: SocketAddr,
}

impl Service {
    /// The time.
    fn now(&self) -> i64 {
        self.app.clock.now()
    }

    /// One request, with an id of ours and no way to take the process down with it.
    async fn answer(&self, request: Request<Body>, voice: Voice) -> Response {
        let routes = match &self.answers {
            Answers::Routes(routes) => routes,
            Answers::Metrics => return surfaces::metrics_text(&self.app),
        };
        let id = self.app.ids.next(self.now());
        let work = routes.serve(&self.app, RequestId(Arc::clone(&id)), self.peer, request);
        let response = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(response) => response,
            Err(_) => voice.answer(&Fault::internal("a request panicked"), &id),
        };
        signed(response, &id)
    }

    /// The answer to a request that cannot be read.
    fn refuse(&self, fault: &Fault, path: &str) -> Response {
        let voice = Voice::of(path, &HeaderMap::new());
        let id = self.app.ids.next(self.now());
        let response = voice.answer(fault, &id);
        let response = match fault.trouble() {
            Trouble::NoMethod => respond::allow(
                response,
                &HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
            ),
            _ => response,
        };
        signed(response, &id)
    }

    /// The answer to a request for which there is no time left.
    fn ended(&self, voice: Voice) -> Response {
        let id = self.app.ids.next(self.now());
        let fault = Fault::new(Trouble::Overload, "the gateway is stopping, retry elsewhere");
        signed(voice.answer(&fault, &id), &id)
    }

    /// What HTTP/2 lets through and we do not.
    fn check(headers: &HeaderMap, limits: &HttpLimits) -> Result<(), Fault> {
        if headers.len() > limits.headers {
            let say = format!("a request may have {} headers at most", limits.headers);
            return Err(Fault::new(Trouble::HeadTooLarge, say));
        }
        let mut hosts = headers.get_all(HOST).iter();
        if hosts.next().is_some_and(|host| !h1::is_host(host.as_bytes())) || hosts.next().is_some()
        {
            return Err(Fault::invalid("host", "`Host` is not the name of a host"));
        }
        let expects = headers.get(http::header::EXPECT);
        if expects.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
            let say = "`Expect` can only be `100-continue`";
            return Err(Fault::new(Trouble::Expectation, say).param("expect"));
        }
        Ok(())
    }
}

/// An answer with the id of its request.
fn signed(mut response: Response, id: &str) -> Response {
    const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
    const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    if let Ok(id) = HeaderValue::from_str(id) {
        response.headers_mut().insert(REQUEST_ID, id.clone());
        response.headers_mut().insert(X_REQUEST_ID, id);
    }
    response
}
