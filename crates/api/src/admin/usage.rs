//! What administrators look at: usage.

use axum::response::Response;
use canon::ApiError;
use serde_json::{Map, Value, json};
use store::{GroupBy, LatencyTotals, GroupOrder, ReportTotals, UsageStep, DurationHistogram, UsageFilter, UsageReport, UsageRequest};

use super::{require_admin, store_fault, invalid_field, rfc3339};
use crate::query::query_pairs;
use crate::request::ApiRequest;

const DAY_US: i64 = 24 * 3_600 * 1_000_000;
/// How many groups are listed.
const MAX_GROUPS: usize = 100;
/// How many stretches of time are told at most.
const MAX_STEPS: i64 = 1_000;

pub(super) fn query_values(asked: &ApiRequest) -> Map<String, Value> {
    let pairs = query_pairs(asked.request.uri().query().unwrap_or_default());
    pairs.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}

pub(super) fn query_value(wishes: &Map<String, Value>, name: &str) -> Option<String> {
    wishes.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What was used: in all, over time, and by whom.
pub(crate) async fn usage(asked: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&asked.state, &asked.key).await?;
    let wishes = query_values(&asked);
    let days: i64 = match query_value(&wishes, "days") {
        None => 30,
        Some(text) => match text.parse() {
            Ok(days) if (1..=3_660).contains(&days) => days,
            _ => return Err(invalid_field("days", "write a whole number from 1 to 3660")),
        },
    };
    let by = match query_value(&wishes, "by") {
        None => GroupBy::Model,
        Some(word) => GroupBy::by_word(&word)
            .ok_or_else(|| invalid_field("by", "write account, key, model, lane or status"))?,
    };
    let step = match query_value(&wishes, "step") {
        None => UsageStep::Day,
        Some(word) => {
            UsageStep::by_word(&word).ok_or_else(|| invalid_field("step", "write hour, day or month"))?
        }
    };
    let status = match query_value(&wishes, "status") {
        None => None,
        Some(text) => {
            let read = text.parse();
            Some(read.map_err(|_| invalid_field("status", "write an HTTP status"))?)
        }
    };
    let stretches = match step {
        UsageStep::Hour => days.saturating_mul(24),
        UsageStep::Day => days,
        UsageStep::Month => days / 28,
    };
    if stretches > MAX_STEPS {
        return Err(invalid_field("step", "so many days need longer steps: write day or month"));
    }
    let apart = match query_value(&wishes, "top") {
        None => 10,
        Some(text) => match text.parse() {
            Ok(top) if (1..=MAX_GROUPS).contains(&top) => top,
            _ => return Err(invalid_field("top", "write a whole number from 1 to 100")),
        },
    };
    let filter = UsageFilter {
        account_id: query_value(&wishes, "account_id"),
        key_id: query_value(&wishes, "key_id"),
        model: query_value(&wishes, "model"),
        lane: query_value(&wishes, "lane"),
        status,
    };
    let now = asked.state.clock().now();
    let range = now.saturating_sub(days.saturating_mul(DAY_US))..now.saturating_add(1);
    let wish = UsageRequest { range, step, by, rank: GroupOrder::Cost, filter, listed: MAX_GROUPS, with_series: apart };
    let seen = asked.state.store.usage_view(&wish).await.map_err(store_fault)?;
    let UsageReport { all, latencies: pace, top, series: over, others } = &seen;
    let top = top.iter().map(|(group, used)| json!({ "group": group, "used": totals_json(used) }));
    let told = |begun: i64, group: Option<&str>, used: &ReportTotals| json!({ "begun": rfc3339(begun), "group": group, "used": totals_json(used) });
    let apart = over.iter().map(|point| told(point.begun, Some(&point.group), &point.used));
    let points = apart.chain(others.iter().map(|(begun, used)| told(*begun, None, used)));
    let value = json!({
        "success": true,
        "days": days,
        "by": by.word(),
        "step": step.word(),
        "total": totals_json(all),
        "pace": latencies_json(pace),
        "groups": top.collect::<Vec<_>>(),
        "points": points.collect::<Vec<_>>(),
    });
    Ok(relay::json_response(value.to_string()))
}

fn totals_json(used: &ReportTotals) -> Value {
    json!({
        "calls": used.calls,
        "input_tokens": used.input,
        "cached_tokens": used.cache_read,
        "output_tokens": used.output,
        "thinking_tokens": used.thinking,
        "cost_usd": used.cost.to_string(),
        "absorbed_usd": used.absorbed.to_string(),
    })
}

fn latencies_json(LatencyTotals { took, waited }: &LatencyTotals) -> Value {
    let told = |times: &DurationHistogram| json!({ "p50": to_ms(times.percentile(50)), "p95": to_ms(times.percentile(95)) });
    json!({ "first_byte_ms": told(waited), "whole_ms": told(took) })
}

fn to_ms(micros: Option<i64>) -> Option<i64> {
    micros.map(|micros| micros / 1_000)
}
