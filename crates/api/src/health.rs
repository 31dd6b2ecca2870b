//! `/healthz`, `/readyz` and `/metrics`.

use axum::body::Body;
use axum::response::Response;
use canon::{ApiError, ErrorKind};
use http::Request;
use http::header::{CONTENT_TYPE, HeaderValue};
use std::sync::Arc;
use store::AccountRole;

use crate::request::ApiRequest;
use crate::state::ApiState;
use relay::json_response;
use telemetry::ScrapedValues;

pub(super) async fn alive(
    _app: Arc<ApiState>,
    _request: Request<Body>,
) -> Result<Response, ApiError> {
    Ok(json_response("{\"status\":\"alive\"}"))
}

pub(super) async fn ready(
    state: Arc<ApiState>,
    _request: Request<Body>,
) -> Result<Response, ApiError> {
    if state.is_ready() {
        let damaged = state.engine.funds.open_calls.damaged_files();
        if damaged.is_empty() {
            return Ok(json_response("{\"status\":\"ready\"}"));
        }
        // The gateway works, so that it keeps its callers, but somebody must look.
        let journal = format!("damaged: {}", damaged.join(", "));
        let body = serde_json::json!({ "status": "ready", "journal": journal });
        Ok(json_response(body.to_string()))
    } else {
        Err(ApiError::new(
            ErrorKind::Overloaded,
            "the gateway is stopping, or out of reach of its store or journal",
        ))
    }
}

/// Metrics for an admin key of an owner or administrator. A separate listener serves them without a
/// key.
pub(super) async fn metrics(incoming: ApiRequest) -> Result<Response, ApiError> {
    let account = incoming.state.store.account(&incoming.key.record.account_id).await;
    let account = account.map_err(|e| ApiError::internal(e.to_string()))?;
    match account.map(|account| account.role) {
        Some(AccountRole::Owner | AccountRole::Admin) => Ok(metrics_text(&incoming.state)),
        Some(AccountRole::Member | AccountRole::Viewer) | None => {
            Err(crate::admin::permission_denied("metrics are for administrators"))
        }
    }
}

/// All metrics as OpenMetrics text: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
pub(crate) fn metrics_text(state: &ApiState) -> Response {
    let engine = &state.engine;
    let lanes = state.config().lane_health(engine.monotonic_now());
    let large_work = engine.heavy_work.usage();
    let scraped = ScrapedValues {
        refused_connections: engine.connections.refused(),
        large_work_running: large_work.running,
        large_work_waiting: large_work.waiting,
    };
    let text = engine.metrics.encode(&lanes, scraped);
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8"),
    );
    response
}
