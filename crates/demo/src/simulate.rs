//! The upstream behind a socket: `portunus simulate`.

use bytes::{Bytes, BytesMut};
use canon::{ApiError, ErrorKind};
use http::{Request, Response, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use serde::Deserialize;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::faults::{
    self, FaultOrder, FaultRules, RequestProperties, ScriptBody, ServerIo, SharedSocket,
};
use crate::server::{DemoBody, DemoUpstream, StreamPace, model_of};

/// Options of the simulated upstream.
#[derive(Clone, Debug)]
pub struct SimulatorOptions {
    /// Speed of its streams.
    pub pace: StreamPace,
    /// True to use prepared answers, to measure the proxy in front. Requests are then not searched
    /// for faults.
    pub canned: bool,
    /// Maximum size of a request in bytes.
    pub max_request_bytes: usize,
    /// Time for running answers to end after the shutdown started.
    pub drain_timeout: Duration,
    /// Maximum number of concurrent HTTP/2 streams per connection.
    pub max_concurrent_streams: Option<u32>,
    /// Rules that decide which requests fail.
    pub rules: Arc<FaultRules>,
}

impl Default for SimulatorOptions {
    fn default() -> Self {
        Self {
            pace: StreamPace::default(),
            canned: false,
            max_request_bytes: 64 << 20,
            drain_timeout: Duration::from_secs(5),
            max_concurrent_streams: None,
            rules: Arc::default(),
        }
    }
}

/// Asks the accept loop to refuse connections for a while; the sender learns when it does.
type AcceptPause = (Duration, oneshot::Sender<()>);

/// Serves the demo models on that listener until `shutdown` completes, over HTTP/1 and HTTP/2, with
/// any credential or none. `/meter` returns the served calls, `/faults` the list of faults.
pub async fn simulate(
    listener: TcpListener,
    options: SimulatorOptions,
    shutdown: impl Future,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let drain = options.drain_timeout;
    let (refuse, mut pauses) = mpsc::channel(1);
    let (stop, stopping) = watch::channel(());
    let upstream = DemoUpstream::new(options.pace).canned(options.canned);
    let host = Arc::new(Simulator { upstream, options, refuse });
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            _ = &mut shutdown => break,
            accepted = accept(listener.as_ref()) => match accepted {
                Ok(socket) => {
                    connections.spawn(Arc::clone(&host).connection(socket, stopping.clone()));
                }
                // Neither a lack of file handles nor a caller that already left ends the server.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
            Some((time, done)) = pauses.recv() => {
                listener = None;
                // The receiver is gone if the caller left in the meantime.
                let _ = done.send(());
                tokio::select! {
                    _ = &mut shutdown => break,
                    again = listen_again(address, time) => listener = Some(again?),
                }
            }
        }
    }
    drop(listener);
    let _ = stop.send(());
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(drain, ended).await;
    Ok(())
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(socket, _)| socket),
        None => std::future::pending().await,
    }
}

async fn listen_again(address: SocketAddr, after: Duration) -> io::Result<TcpListener> {
    tokio::time::sleep(after).await;
    TcpListener::bind(address).await
}

/// State shared by all connections.
struct Simulator {
    upstream: DemoUpstream,
    options: SimulatorOptions,
    refuse: mpsc::Sender<AcceptPause>,
}

impl Simulator {
    /// Serves one connection to its end.
    async fn connection(self: Arc<Self>, socket: TcpStream, mut stopping: watch::Receiver<()>) {
        // Pieces of a stream must not be delayed by Nagle's algorithm (RFC 896).
        let _ = socket.set_nodelay(true);
        let line = SharedSocket::new(socket);
        if let Some(order) = self.options.rules.for_connection() {
            if let Ok(script) = order.on_connection() {
                tokio::select! {
                    () = faults::over_http1(script, &line, None) => {}
                    () = line.closing.notified() => {}
                    _ = stopping.changed() => {}
                }
            }
            return;
        }
        let mut server = Builder::new(TokioExecutor::new());
        server.http1().timer(TokioTimer::new());
        server.http2().timer(TokioTimer::new());
        if let Some(streams) = self.options.max_concurrent_streams {
            server.http2().max_concurrent_streams(streams);
        }
        let service = service_fn(|request| {
            let (host, line) = (Arc::clone(&self), Arc::clone(&line));
            async move { host.serve(request, &line).await }
        });
        let wire = TokioIo::new(ServerIo(Arc::clone(&line)));
        let mut connection = pin!(server.serve_connection(wire, service));
        loop {
            tokio::select! {
                // The result of a connection does not matter here; there is nothing to clean up.
                _ = &mut connection => return,
                () = line.closing.notified() => return,
                () = line.goodbye.notified() => connection.as_mut().graceful_shutdown(),
                _ = stopping.changed() => {
                    connection.as_mut().graceful_shutdown();
                    tokio::select! {
                        _ = &mut connection => return,
                        () = line.closing.notified() => return,
                    }
                }
            }
        }
    }

    /// Answers one request, properly or with its fault.
    async fn serve(
        &self,
        request: Request<Incoming>,
        line: &Arc<SharedSocket>,
    ) -> Result<Response<SimulatedBody>, h2::Error> {
        let (head, body) = request.into_parts();
        let ordered =
            if self.options.canned { None } else { FaultOrder::in_headers(&head.headers) };
        let (ordered, body) = match read(body, ordered, &self.options).await {
            Ok(read) => read,
            Err(fault) => {
                return Ok(self.upstream.refuse_at(&head.uri, &fault).map(SimulatedBody::Good));
            }
        };
        let ordered = ordered.or_else(|| self.by_rule(&head, &body).map(Ok));
        let request = Request::from_parts(head, body);
        let order = match ordered {
            None => return Ok(self.upstream.serve(request).await.map(SimulatedBody::Good)),
            Some(Err(why)) => {
                return Ok(
                    faults::refused(&why, &self.upstream, request.uri()).map(SimulatedBody::Good)
                );
            }
            Some(Ok(order)) => order,
        };
        let (uri, version) = (request.uri().clone(), request.version());
        let (script, ticket) = match order.on_request(&self.upstream, request) {
            Ok(made) => made,
            Err(why) => {
                return Ok(faults::refused(&why, &self.upstream, &uri).map(SimulatedBody::Good));
            }
        };
        if let Some(time) = script.refuses() {
            let (done, waiting) = oneshot::channel();
            if self.refuse.send((time, done)).await.is_ok() {
                // An error means that the accept loop has ended, which refuses connections too.
                let _ = waiting.await;
            }
        }
        if version == Version::HTTP_2 {
            let response = faults::over_http2(script, line, ticket).await?;
            return Ok(response.map(SimulatedBody::Faulty));
        }
        faults::over_http1(script, line, ticket).await;
        // This connection is about to be dropped.
        std::future::pending().await
    }

    fn by_rule(&self, head: &http::request::Parts, body: &[u8]) -> Option<FaultOrder> {
        #[derive(Deserialize)]
        struct Named {
            model: Option<String>,
        }
        let rules = &self.options.rules;
        let model = if rules.need_model() {
            let (_, model) = model_of(head.uri.path(), head.uri.query());
            model.or_else(|| dialects::json::read_bytes::<Named>(body).ok()?.model)
        } else {
            None
        };
        let (path, headers) = (head.uri.path(), &head.headers);
        rules.for_request(&RequestProperties { path, model: model.as_deref(), headers })
    }
}

type OrderResult = Option<Result<FaultOrder, faults::OrderError>>;

/// Reads a request, and the fault that its text orders unless a header did. A fault that interrupts
/// the request ends the reading.
async fn read(
    mut body: Incoming,
    mut ordered: OrderResult,
    options: &SimulatorOptions,
) -> Result<(OrderResult, Bytes), ApiError> {
    let broken =
        || ApiError::new(ErrorKind::BodyTooLarge, "the request is too large, or broke off");
    let mut all = BytesMut::new();
    loop {
        if let Some(Ok(order)) = &ordered
            && order.interrupts()
        {
            break;
        }
        let Some(frame) = body.frame().await else { break };
        let Ok(data) = frame.map_err(|_| broken())?.into_data() else { continue };
        if all.len() + data.len() > options.max_request_bytes {
            return Err(broken());
        }
        all.extend_from_slice(&data);
        if ordered.is_none() && !options.canned {
            ordered =
                FaultOrder::within(&all).filter(|order| matches!(order, Ok(o) if o.interrupts()));
        }
    }
    if ordered.is_none() && !options.canned {
        ordered = FaultOrder::within(&all);
    }
    Ok((ordered, all.freeze()))
}

/// Body of a response.
enum SimulatedBody {
    Good(DemoBody),
    Faulty(ScriptBody),
}

impl http_body::Body for SimulatedBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        match self.get_mut() {
            Self::Good(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Faulty(steps) => Pin::new(steps).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Good(body) => body.is_end_stream(),
            Self::Faulty(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Good(body) => body.size_hint(),
            Self::Faulty(_) => SizeHint::default(),
        }
    }
}
