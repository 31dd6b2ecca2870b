//! Addresses that agents use after they signed in: managed settings, usage in dollars, telemetry.
//!
//! The contract is that of Claude Code (`GET /protocol` of `claude gateway`).

use ::admin::ManagedSettings;
use axum::body::Body;
use axum::response::Response;
use canon::{ApiError, ErrorKind, Micros, Money};
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue};
use ledger::BudgetPeriod;
use serde_json::{Value, json};
use store::{UsageFilter, UsageStep};
use telemetry::AgentReport;
use transport::visible_text;

use crate::key_info::rfc3339;
use crate::request::ApiRequest;
use crate::spend_standing::SpendStanding;
use crate::standing_cache::StandingCache;
use crate::state::ApiState;
use access::keys::ApiKey;
use relay::json_response;

/// Largest report of telemetry.
const MAX_REPORT_BYTES: usize = 4 << 20;
const PROTOBUF: &str = "application/x-protobuf";

/// `GET /managed/settings`
pub(super) async fn managed_settings(incoming: ApiRequest) -> Result<Response, ApiError> {
    let owner = &incoming.key.record.account_id;
    let found = incoming.state.admin.accounts.managed_settings_of(owner).await;
    let found = found.map_err(|error| {
        ApiError::new(ErrorKind::Overloaded, "the settings cannot be read now, retry shortly")
            .with_log_note(error.to_string())
    })?;
    let Some(ManagedSettings { uuid, checksum, settings }) = found else {
        return Err(ApiError::new(ErrorKind::NotFound, "there are no managed settings"));
    };
    let tag = format!("\"{checksum}\"");
    let asked = incoming.request.headers().get("if-none-match").and_then(visible_text);
    // `*` is a question for the existence of settings, and gets them.
    let is_known = asked.is_some_and(|asked| asked.split(',').any(|one| one.trim() == tag));
    let mut response = if is_known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        let body = json!({ "uuid": uuid, "checksum": checksum, "settings": settings });
        json_response(body.to_string())
    };
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    // Agents ask again with the tag.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
}

/// `GET /api/oauth/usage`
pub(super) async fn usage(incoming: ApiRequest) -> Result<Response, ApiError> {
    let all = StandingCache::read(&incoming.state, &incoming.key).await;
    let fullest = all.iter().max_by_key(|standing| standing.percent());
    let body = match fullest {
        Some(fullest) => json!({
            "extra_usage": {
                "is_enabled": true,
                "monthly_limit": cents(fullest.limit),
                "used_credits": cents(fullest.spent),
                "utilization": fullest.percent(),
                "currency": "USD",
            },
            "limits": limit_rows(&all, fullest),
        }),
        None => unlimited_usage(&incoming.state, &incoming.key).await?,
    };
    Ok(json_response(body.to_string()))
}

/// One row for each limit of a period. A limit over all time has no period and no row.
fn limit_rows(all: &[SpendStanding], fullest: &SpendStanding) -> Vec<Value> {
    let rows = all.iter().filter_map(|standing| {
        let (period, resets) = standing.period?;
        Some(json!({
            "kind": "spend",
            "group": SpendStanding::period_word(period),
            "percent": standing.percent(),
            "resets_at": rfc3339(resets),
            "severity": match standing.percent() {
                ..75 => "normal",
                75..95 => "warning",
                _ => "critical",
            },
            "is_active": standing == fullest,
        }))
    });
    rows.collect()
}

/// Spending of a key without any limit: in this month, day and week of UTC.
async fn unlimited_usage(state: &ApiState, key: &ApiKey) -> Result<Value, ApiError> {
    let now = state.clock().now();
    let key_id = Some(key.record.id.clone());
    let filter = UsageFilter { key_id, ..UsageFilter::default() };
    let begins = [BudgetPeriod::Month, BudgetPeriod::Day, BudgetPeriod::Week]
        .map(|period| period.bounds(now).0);
    let since = begins.into_iter().min().unwrap_or(now);
    let points = state.store.usage_over(since..now + Micros::new(1), UsageStep::Day, None, &filter);
    let points = points.await.map_err(|error| {
        ApiError::new(ErrorKind::Overloaded, "usage cannot be read at the moment, retry shortly")
            .with_log_note(error.to_string())
    })?;
    let [month, day, week] = begins.map(|begin| {
        let spent = points.iter().filter(|point| point.begun >= begin).map(|point| point.used.cost);
        cents(spent.fold(Money::ZERO, Money::saturating_add))
    });
    let period = |spent: i64| json!({ "limit": null, "used_credits": spent, "utilization": null });
    Ok(json!({
        "extra_usage": {
            "is_enabled": true,
            "monthly_limit": null,
            "used_credits": month,
            "utilization": null,
            "currency": "USD",
            "daily": period(day),
            "weekly": period(week),
        },
        "limits": [],
    }))
}

/// Whole cents of an amount.
fn cents(amount: Money) -> i64 {
    const NANOS_PER_CENT: i64 = 10_000_000;
    amount.as_nanos() / NANOS_PER_CENT
}

/// `POST /v1/metrics`, `/v1/logs` and `/v1/traces`: OTLP of agents, for the gateway's collector.
/// Without one it is dropped. The answer is the same, because agents log every other one.
pub(super) async fn telemetry(incoming: ApiRequest) -> Result<Response, ApiError> {
    let signal = match incoming.request.path() {
        "/v1/metrics" => "/v1/metrics",
        "/v1/logs" => "/v1/logs",
        _ => "/v1/traces",
    };
    let headers = incoming.request.headers();
    let header = |name: &str| headers.get(name).and_then(|one| HeaderValue::from_bytes(one).ok());
    let (content_type, coding) = (header("content-type"), header("content-encoding"));
    let is_protobuf =
        content_type.as_ref().is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()));
    let body = transport::read_whole(incoming.request.body, MAX_REPORT_BYTES).await?;
    let report = AgentReport { path: signal, content_type, coding, body };
    incoming.state.engine.telemetry.relay(report);
    // An empty message says that everything was accepted
    // (<https://opentelemetry.io/docs/specs/otlp/#full-success-1>).
    let mut response =
        if is_protobuf { Response::new(Body::empty()) } else { json_response("{}".to_owned()) };
    if is_protobuf {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
    }
    Ok(response)
}
