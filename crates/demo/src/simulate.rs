//! The upstream behind a socket: `portunus simulate`.

use bytes::{Bytes, BytesMut};
use canon::{Fault, Trouble};
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

use crate::faults::{self, Line, Order, Rules, Seen, Steps, Wire};
use crate::server::{Body, Pace, Upstream, model_of};

/// How the simulated upstream behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How fast its streams flow.
    pub pace: Pace,
    /// Whether every answer is made beforehand, for measuring what stands in front. No request is
    /// then looked at for faults.
    pub canned: bool,
    /// The largest request it takes, in bytes.
    pub largest: usize,
    /// How long running answers may take to end after the shutdown began.
    pub drain: Duration,
    /// How many requests an HTTP/2 connection may carry at once.
    pub streams: Option<u32>,
    /// Which requests fail.
    pub rules: Arc<Rules>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            canned: false,
            largest: 64 << 20,
            drain: Duration::from_secs(5),
            streams: None,
            rules: Arc::default(),
        }
    }
}

/// Asks the accept loop to take no connection for a while, and waits until it takes none.
type Refusal = (Duration, oneshot::Sender<()>);

/// Serves the demo models on that listener until `shutdown` is over; HTTP/1 and HTTP/2, any
/// credential or none. What was served can be read at `/meter`, the faults there are at `/faults`.
pub async fn simulate(
    listener: TcpListener,
    options: Options,
    shutdown: impl Future,
) -> io::Result<()> {
    let address = listener.local_addr()?;
    let drain = options.drain;
    let (refuse, mut refusals) = mpsc::channel(1);
    let (stop, stopping) = watch::channel(());
    let upstream = Upstream::new(options.pace).canned(options.canned);
    let host = Arc::new(Host { upstream, options, refuse });
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
                // Out of file handles or a caller that left already: neither ends the server.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            },
            Some(_) = connections.join_next() => {}
            Some((time, done)) = refusals.recv() => {
                listener = None;
                // A caller that left meanwhile does not wait any more.
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

/// What all connections share.
struct Host {
    upstream: Upstream,
    options: Options,
    refuse: mpsc::Sender<Refusal>,
}

impl Host {
    /// Serves one connection to its end.
    async fn connection(self: Arc<Self>, socket: TcpStream, mut stopping: watch::Receiver<()>) {
        // Pieces of a stream must not wait for each other.
        let _ = socket.set_nodelay(true);
        let line = Line::new(socket);
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
        if let Some(streams) = self.options.streams {
            server.http2().max_concurrent_streams(streams);
        }
        let service = service_fn(|request| {
            let (host, line) = (Arc::clone(&self), Arc::clone(&line));
            async move { host.serve(request, &line).await }
        });
        let wire = TokioIo::new(Wire(Arc::clone(&line)));
        let mut connection = pin!(server.serve_connection(wire, service));
        loop {
            tokio::select! {
                // How a connection ended is its caller's business; there is nothing to clean up.
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

    /// Answers one request, properly or as its fault wants it.
    async fn serve(
        &self,
        request: Request<Incoming>,
        line: &Arc<Line>,
    ) -> Result<Response<Out>, h2::Error> {
        let (head, body) = request.into_parts();
        let told = if self.options.canned { None } else { Order::in_headers(&head.headers) };
        let (told, body) = match read(body, told, &self.options).await {
            Ok(read) => read,
            Err(fault) => return Ok(self.upstream.refuse_at(&head.uri, &fault).map(Out::Good)),
        };
        let told = told.or_else(|| self.by_rule(&head, &body).map(Ok));
        let request = Request::from_parts(head, body);
        let order = match told {
            None => return Ok(self.upstream.serve(request).await.map(Out::Good)),
            Some(Err(why)) => {
                return Ok(faults::refused(&why, &self.upstream, request.uri()).map(Out::Good));
            }
            Some(Ok(order)) => order,
        };
        let (uri, version) = (request.uri().clone(), request.version());
        let (script, ticket) = match order.on_request(&self.upstream, request) {
            Ok(made) => made,
            Err(why) => return Ok(faults::refused(&why, &self.upstream, &uri).map(Out::Good)),
        };
        if let Some(time) = script.refuses() {
            let (done, waiting) = oneshot::channel();
            if self.refuse.send((time, done)).await.is_ok() {
                // The loop ended: it takes no connection any more either.
                let _ = waiting.await;
            }
        }
        if version == Version::HTTP_2 {
            let response = faults::over_http2(script, line, ticket).await?;
            return Ok(response.map(Out::Faulty));
        }
        faults::over_http1(script, line, ticket).await;
        // Only a connection that is about to be dropped comes here.
        std::future::pending().await
    }

    fn by_rule(&self, head: &http::request::Parts, body: &[u8]) -> Option<Order> {
        #[derive(Deserialize)]
        struct Named {
            model: Option<String>,
        }
        let rules = &self.options.rules;
        let model = if rules.need_model() {
            let (_, model) = model_of(head.uri.path(), head.uri.query());
            model.or_else(|| serde_json::from_slice::<Named>(body).ok()?.model)
        } else {
            None
        };
        let (path, headers) = (head.uri.path(), &head.headers);
        rules.for_request(&Seen { path, model: model.as_deref(), headers })
    }
}

type Told = Option<Result<Order, faults::BadOrder>>;

/// Reads a request, and the fault its text orders unless a header did. A fault that interrupts the
/// request ends the reading.
async fn read(
    mut body: Incoming,
    mut told: Told,
    options: &Options,
) -> Result<(Told, Bytes), Fault> {
    let broken = || Fault::new(Trouble::TooLarge, "the request is too large, or broke off");
    let mut all = BytesMut::new();
    loop {
        if let Some(Ok(order)) = &told
            && order.interrupts()
        {
            break;
        }
        let Some(frame) = body.frame().await else { break };
        let Ok(data) = frame.map_err(|_| broken())?.into_data() else { continue };
        if all.len() + data.len() > options.largest {
            return Err(broken());
        }
        all.extend_from_slice(&data);
        if told.is_none() && !options.canned {
            told = Order::within(&all).filter(|order| matches!(order, Ok(o) if o.interrupts()));
        }
    }
    if told.is_none() && !options.canned {
        told = Order::within(&all);
    }
    Ok((told, all.freeze()))
}

/// What a request is answered with.
enum Out {
    Good(Body),
    Faulty(Steps),
}

impl http_body::Body for Out {
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
