//! The accept loop: connections in, requests to the routes, an orderly end.
//!
//! Our own, because every limit a connection has must be set by us: how many headers, how long
//! they may take, how many streams, and what happens to all of it when the process must go.

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use canon::Fault;
use futures_util::FutureExt as _;
use http::Request;
use http::header::HeaderValue;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

use crate::app::App;
use crate::respond::Voice;
use crate::surfaces::{self, RequestId, Routes};

/// How long the headers of a request may take.
const HEADERS: Duration = Duration::from_secs(15);
/// How many headers a request may have.
const MOST_HEADERS: usize = 100;
/// How many bytes of headers are read.
const HEADER_BYTES: usize = 64 << 10;
/// How many streams one HTTP/2 connection may have open.
const STREAMS: u32 = 256;

/// Serves until the order to stop, then lets running calls finish within the drain time.
pub(crate) async fn serve(app: Arc<App>, listener: TcpListener) {
    let routes = Arc::new(Routes::new(&app));
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(true);
    server
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(u32::try_from(HEADER_BYTES).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(10));
    let server = Arc::new(server);
    loop {
        let accepted = tokio::select! {
            () = app.stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (app, routes, server) =
                    (Arc::clone(&app), Arc::clone(&routes), Arc::clone(&server));
                app.tasks.clone().spawn(connection(app, routes, server, stream, peer));
            }
            Err(e) => {
                // Out of file descriptors, most likely: others must end before more can begin.
                tracing::warn!("a connection could not be accepted: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(
    app: Arc<App>,
    routes: Arc<Routes>,
    server: Arc<auto::Builder<TokioExecutor>>,
    stream: TcpStream,
    peer: SocketAddr,
) {
    // A write that waits for another acknowledgement costs a caller 40 ms.
    let _ = stream.set_nodelay(true);
    let stop = app.stop.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, routes) = (Arc::clone(&app), Arc::clone(&routes));
        async move { Ok::<_, Infallible>(answer(app, routes, request, peer).await) }
    });
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        outcome = connection.as_mut() => {
            if let Err(e) = outcome {
                tracing::debug!("a connection ended badly: {e}");
            }
        }
        () = stop.cancelled() => {
            // The running request is answered, then the connection ends.
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

/// One request, with an id of ours and no way to take the process down with it.
async fn answer(
    app: Arc<App>,
    routes: Arc<Routes>,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Response {
    let id = app.ids.next(app.clock.now());
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(RequestId(Arc::clone(&id)));
    request.extensions_mut().insert(ConnectInfo(peer));
    let voice = Voice::of(request.uri().path(), request.headers());
    let work = AssertUnwindSafe(routes.serve(&app, request)).catch_unwind();
    let mut response = match work.await {
        Ok(response) => response,
        Err(_) => voice.answer(&Fault::internal("a request panicked"), &id),
    };
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert("request-id", id.clone());
        response.headers_mut().insert("x-request-id", id);
    }
    if !app.is_ready() {
        response.headers_mut().insert("connection", HeaderValue::from_static("close"));
    }
    response
}

/// Tells metrics on a listener of their own, for whoever can reach it.
pub(crate) async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let app = Arc::clone(&app);
        tokio::spawn(async move {
            let service = service_fn(move |_request: Request<Incoming>| {
                let app = Arc::clone(&app);
                async move { Ok::<_, Infallible>(surfaces::metrics_text(&app)) }
            });
            let server = auto::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
