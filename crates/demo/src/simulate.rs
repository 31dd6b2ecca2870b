//! The upstream behind a socket: `portunus simulate`.

use bytes::Bytes;
use canon::{Fault, Trouble};
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;
use tokio::net::TcpListener;

use crate::server::{Body, Pace, Upstream};

/// How the simulated upstream behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How fast its streams flow.
    pub pace: Pace,
    /// Whether every answer is made beforehand, for measuring what stands in front.
    pub canned: bool,
    /// The largest request it takes, in bytes.
    pub largest: usize,
    /// How long running answers may take to end after the shutdown began.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pace: Pace::default(),
            canned: false,
            largest: 64 << 20,
            drain: Duration::from_secs(5),
        }
    }
}

/// Serves the demo models on that listener until `shutdown` is over; HTTP/1 and HTTP/2, any
/// credential or none. What was served can be read at `/meter`.
pub async fn simulate(
    listener: TcpListener,
    options: Options,
    shutdown: impl Future,
) -> io::Result<()> {
    let upstream = Upstream::new(options.pace).canned(options.canned);
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new());
    server.http2().timer(TokioTimer::new());
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let socket = tokio::select! {
            _ = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => socket,
                Err(_) => {
                    // Out of file handles or a caller that left already: neither ends the server.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        // Pieces of a stream must not wait for each other.
        let _ = socket.set_nodelay(true);
        let upstream = upstream.clone();
        let service = service_fn(move |request| {
            let upstream = upstream.clone();
            async move { Ok::<_, Infallible>(serve(&upstream, request, options.largest).await) }
        });
        let connection = server.serve_connection(TokioIo::new(socket), service).into_owned();
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            // How a connection ended is its caller's business; there is nothing to clean up.
            let _ = watched.await;
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(options.drain, graceful.shutdown()).await;
    Ok(())
}

async fn serve(upstream: &Upstream, request: Request<Incoming>, largest: usize) -> Response<Body> {
    let (head, body) = request.into_parts();
    match Limited::new(body, largest).collect().await {
        Ok(body) => {
            let body: Bytes = body.to_bytes();
            upstream.serve(Request::from_parts(head, body)).await
        }
        Err(_) => {
            let fault = Fault::new(Trouble::TooLarge, "the request is too large, or broke off");
            upstream.refuse_at(&head.uri, &fault)
        }
    }
}
