//! Serving: listeners, drain and shutdown.

use api::{ApiService, MetricsHandler, PageService};
use axum::body::Body;
use axum::response::Response;
use http::Request;
use relay::ErrorFormat;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use transport::server::{ChallengeCertificates, ListenerSettings, TlsSettings, accept};
use transport::{HttpLimits, ShutdownPhase};

use crate::acme::ChallengeStore;
use crate::app::App;
use crate::process_limits::{self, ProcessRoom};

/// Time ended calls may take to send their last error to the caller.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Time the remaining calls may take to settle after their connections are closed.
const CUT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// Time the background loops may take to end, including the last telemetry export.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(5);

/// Time the last sync of the journal may take. Calls that are neither posted nor written by then are
/// reported.
const LAST_SYNC_TIMEOUT: Duration = Duration::from_secs(3);
/// Time in which handshakes that have begun may still end before the listener closes. It need only be
/// longer than a round trip to a load balancer.
const HANDSHAKE_TIME: Duration = Duration::from_millis(100);
/// Connections of the metrics listener. Their descriptors are reserved ones.
const MAX_METRICS_CONNECTIONS: usize = 32;

/// Settled calls that were lost at the end of the process: neither the store nor the journal took
/// them. The next start charges them as far as their last checkpoints say.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} settled calls could be stored neither in the database nor in the journal: {}",
    request_ids.len(),
    request_ids.join(", ")
)]
pub struct UnstoredCalls {
    /// The ids of the calls.
    pub request_ids: Vec<String>,
}

/// Serves until [`App::stop`] is cancelled, without background loops. [`run`](crate::run) adds
/// them.
pub async fn serve(app: Arc<App>, listener: TcpListener) {
    let pages =
        console::router(app.store.clone(), Arc::clone(&app) as Arc<dyn console::ConsoleHost>);
    let pages = PageService {
        router: pages.fallback(page_not_found),
        too_many_requests: console::too_many_requests,
    };
    let service = Arc::new(ApiService::new(Arc::clone(&app.api), pages));
    let stop = app.stop.clone();
    let ProcessRoom { connections: most, calls } = process_limits::raise_open_files();
    app.engine.in_flight.limit_to(calls);
    let configured = app.config().http_limits.connections;
    if most < configured {
        tracing::warn!(
            most,
            configured,
            "only {most} connections at a time: the limit of open files is too low for {configured}"
        );
    }
    let closing = Box::pin(listener_closing(Arc::clone(&app)));
    let challenges: Arc<dyn ChallengeCertificates> =
        Arc::new(ChallengeStore::new(Arc::clone(&app)));
    let settings = move || {
        let config = app.config();
        let tls = config.tls.as_ref().map(|tls| TlsSettings {
            config: tls.server_config(),
            challenges: tls.acme().map(|_| Arc::clone(&challenges)),
        });
        ListenerSettings { limits: listener_limits(&app, most), tls }
    };
    api::listen(service, listener, Box::new(settings), closing).await;
    // Another process may have taken the listener over. Then connections still bring calls until the stop.
    stop.cancelled().await;
}

/// Waits until nothing is accepted any more: another process does, or the gateway stops. In the latter
/// case no handshake begins any more, so that closing the listener resets no connection.
async fn listener_closing(app: Arc<App>) {
    tokio::select! {
        () = app.handed_over.cancelled() => {}
        () = app.stop.cancelled() => {
            if app.sockets.refuse_handshakes() {
                tokio::time::sleep(HANDSHAKE_TIME).await;
            }
        }
    }
}

/// Returns the configured limits, with at most so many connections. Where the process has fewer than
/// configured, one address has at most half of them.
fn listener_limits(app: &App, most: usize) -> HttpLimits {
    let limits = app.config().http_limits;
    if limits.connections <= most {
        return limits;
    }
    let connections_per_address = limits.connections_per_address.min(most.div_ceil(2));
    HttpLimits { connections: most, connections_per_address, ..limits }
}

/// Serves metrics on a separate listener. It is plain HTTP, because the listener is internal.
pub(crate) async fn serve_metrics(app: Arc<App>, listener: TcpListener) {
    let connections = Arc::clone(&app.metrics_connections);
    // No tasks of the engine, because a stopping process waits for those.
    let tasks = TaskTracker::new();
    let settings = || {
        let limits = app.config().http_limits;
        let connections_per_address =
            limits.connections_per_address.min(MAX_METRICS_CONNECTIONS / 2);
        let connections = MAX_METRICS_CONNECTIONS;
        let limits = HttpLimits { connections, connections_per_address, ..limits };
        ListenerSettings { limits, tls: None }
    };
    let handler = |_| MetricsHandler(Arc::clone(&app.api));
    accept(listener, connections, tasks, settings, handler, app.handed_over.cancelled()).await;
}

/// Lets running calls finish within the drain timeout, then ends them with an error, then closes
/// their connections. Background loops end last.
pub(crate) async fn drain(app: &App) -> Result<(), UnstoredCalls> {
    drain_calls(app).await;
    app.calls_ended.cancel();
    app.background.close();
    if tokio::time::timeout(BACKGROUND_TIMEOUT, app.background.wait()).await.is_err() {
        tracing::warn!("some background work did not end in time");
    }
    let ending = async {
        app.sync_journal().await;
        app.retire_journal().await;
    };
    if tokio::time::timeout(LAST_SYNC_TIMEOUT, ending).await.is_err() {
        tracing::error!("the disk of the journal does not answer");
    }
    app.report_journal_errors();
    app.report_rollbacks();
    let request_ids = app.engine.funds.open_calls.unwritten();
    if request_ids.is_empty() { Ok(()) } else { Err(UnstoredCalls { request_ids }) }
}

async fn drain_calls(app: &App) {
    app.drain();
    let tasks = &app.engine.tasks;
    tasks.close();
    let limit = app.config().drain_timeout;
    tokio::select! {
        () = tasks.wait() => return,
        () = app.end_calls.cancelled() => {}
        () = tokio::time::sleep(limit) => {}
    }
    let open = app.engine.connections.count();
    tracing::warn!(connections = open, "the drain timeout expired; {open} connections are ended");
    for (phase, time) in [(ShutdownPhase::End, END_TIMEOUT), (ShutdownPhase::Cut, CUT_TIMEOUT)] {
        app.advance(phase);
        if tokio::time::timeout(time, tasks.wait()).await.is_ok() {
            return;
        }
    }
    tracing::warn!("some calls did not end; they are settled at the next start");
}

/// Answers a path that neither the API nor the console serves.
async fn page_not_found(request: Request<Body>) -> Response {
    let format =
        ErrorFormat::for_path(request.uri().path(), |name| request.headers().contains_key(name));
    if matches!(format, ErrorFormat::Plain) && api::wants_page(request.headers()) {
        return console::not_found();
    }
    api::path_not_found(request).await
}
