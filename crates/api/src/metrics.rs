//! `/metrics`: the counters of the engine, and figures that its parts keep.

use access::limits::SharedLimits;
use axum::body::Body;
use axum::response::Response;
use canon::{ApiError, Micros};
use http::header::{CONTENT_TYPE, HeaderValue};
use store::{AccountRole, StoreTimes};
use telemetry::{MetricsFormat, ScrapedStore, ScrapedValkey, ScrapedValues};

use crate::request::ApiRequest;
use crate::state::ApiState;

/// Metrics for an admin key of an owner or administrator. A separate listener serves them without a
/// key.
pub(super) async fn metrics(incoming: ApiRequest) -> Result<Response, ApiError> {
    let account = incoming.state.store.account(&incoming.key.record.account_id).await;
    let account = account.map_err(|e| ApiError::internal(e.to_string()))?;
    match account.map(|account| account.role) {
        Some(AccountRole::Owner | AccountRole::Admin) => {
            Ok(metrics_text(&incoming.state, incoming.request.headers().text("accept")))
        }
        Some(AccountRole::Member | AccountRole::Viewer) | None => {
            Err(crate::admin::permission_denied("metrics are for administrators"))
        }
    }
}

/// Returns all metrics in the format that the client accepts.
pub(crate) fn metrics_text(state: &ApiState, accept: Option<&str>) -> Response {
    let format = MetricsFormat::for_accept(accept);
    let text = state.engine.metrics.encode(&scrape(state), format);
    let mut response = Response::new(Body::from(text));
    let content_type = HeaderValue::from_static(format.content_type());
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Reads the figures that are kept outside the metrics. Nothing here waits for a disk or a database.
fn scrape(state: &ApiState) -> ScrapedValues {
    let engine = &state.engine;
    let (config, uptime) = (state.config(), engine.monotonic_now());
    let (calls, leases) = (&engine.funds.open_calls, &engine.funds.lease_client);
    let large_work = engine.heavy_work.usage();
    ScrapedValues {
        lane_calls: config.lane_calls(),
        lanes: config.lane_health(uptime),
        keys: calls.key_uses(),
        connections: engine.connections.count(),
        refused_connections: engine.connections.refused(),
        large_work_running: large_work.running,
        large_work_waiting: large_work.waiting,
        held: calls.held(),
        unposted_calls: calls.unposted_count(),
        leases: leases.lease_totals(),
        nodes: leases.live_nodes(),
        is_ready: state.admin.is_ready(),
        is_journal_good: !calls.is_stalled() && !calls.is_failing(),
        journal_writes: calls.journal_times().write.snapshot(),
        journal_syncs: calls.journal_times().sync.snapshot(),
        store: scrape_store(leases.time_since_contact()),
        valkey: state.limiter.shared().map(|shared| scrape_valkey(shared)),
        config_revision: state.admin.stored.lock().revision,
        dropped_reports: engine.telemetry.dropped(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn scrape_store(silence: Micros) -> ScrapedStore {
    let times = StoreTimes::of_process();
    let (refused, unreachable) = times.failures();
    ScrapedStore {
        silence,
        reads: times.read.snapshot(),
        writes: times.write.snapshot(),
        transactions: times.transaction.snapshot(),
        refused,
        unreachable,
    }
}

fn scrape_valkey(shared: &SharedLimits) -> ScrapedValkey {
    ScrapedValkey {
        is_up: shared.requests.is_up(),
        failed: shared.requests.failed(),
        times: shared.requests.times.snapshot(),
    }
}
