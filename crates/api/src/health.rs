//! `/healthz` and `/readyz`.

use admin::{CheckName, HealthCheck};
use axum::body::Body;
use axum::response::Response;
use canon::{ApiError, ErrorKind};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::state::ApiState;
use relay::json_response;

pub(super) async fn alive(
    _app: Arc<ApiState>,
    _request: Request<Body>,
) -> Result<Response, ApiError> {
    Ok(json_response("{\"status\":\"alive\"}"))
}

/// Detail of a report on readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportDetail {
    /// Names and states of the checks, for anybody.
    States,
    /// Sentences and hints too, for operators. They name files, hosts and providers.
    Sentences,
}

/// Answers a probe. Anybody may ask, as often as they like, so no key is looked at: the administration
/// and the metrics listener have the sentences.
pub(super) async fn ready(
    state: Arc<ApiState>,
    request: Request<Body>,
) -> Result<Response, ApiError> {
    readiness(&state, request.uri().query(), ReportDetail::States)
}

/// Answers with the state of the node: 200 if calls can be served, 503 if not. `?verbose` adds the checks.
pub(super) fn readiness(
    state: &ApiState,
    query: Option<&str>,
    detail: ReportDetail,
) -> Result<Response, ApiError> {
    if wants_checks(query) {
        let report = state.admin.health_report();
        let is_ready = report.is_ready();
        let checks: Vec<Value> =
            report.checks.iter().map(|check| shown_check(check, detail)).collect();
        let status = if is_ready { "ready" } else { "unavailable" };
        let mut response = json_response(json!({ "status": status, "checks": checks }).to_string());
        if !is_ready {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        return Ok(response);
    }
    if state.admin.is_ready() {
        return Ok(json_response("{\"status\":\"ready\"}"));
    }
    let report = state.admin.health_report();
    let failing: Vec<&str> = report.failing().map(CheckName::word).collect();
    Err(ApiError::new(
        ErrorKind::Overloaded,
        format!("calls cannot be served: {}; /readyz?verbose lists all checks", failing.join(", ")),
    ))
}

/// Returns true if the query names `verbose`, with any value but `0` and `false`.
fn wants_checks(query: Option<&str>) -> bool {
    query.unwrap_or_default().split('&').any(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        name == "verbose" && !["0", "false"].contains(&value)
    })
}

fn shown_check(check: &HealthCheck, detail: ReportDetail) -> Value {
    match detail {
        ReportDetail::States => json!({ "name": check.name, "state": check.state }),
        ReportDetail::Sentences => json!(check),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_decides_about_the_checks() {
        for query in ["verbose", "verbose=1", "a=b&verbose", "verbose=true"] {
            assert!(wants_checks(Some(query)), "{query}");
        }
        for query in [None, Some(""), Some("verbose=0"), Some("verbose=false"), Some("verbosely")] {
            assert!(!wants_checks(query), "{query:?}");
        }
    }
}
