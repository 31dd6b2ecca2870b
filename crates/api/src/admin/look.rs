//! What administrators look at: usage.

use axum::response::Response;
use canon::ApiError;
use serde_json::{Map, Value, json};
use store::{GroupBy, LatencyTotals, GroupOrder, ReportTotals, UsageStep, DurationHistogram, UsageFilter, UsageReport, UsageRequest};

use super::{admin, away, invalid, time};
use crate::query::pairs;
use crate::request::ApiRequest;

const DAY: i64 = 24 * 3_600 * 1_000_000;
/// How many groups are listed.
const LISTED: usize = 100;
/// How many stretches of time are told at most.
const STRETCHES: i64 = 1_000;

pub(super) fn wishes(asked: &ApiRequest) -> Map<String, Value> {
    let pairs = pairs(asked.request.uri().query().unwrap_or_default());
    pairs.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}

pub(super) fn wish(wishes: &Map<String, Value>, name: &str) -> Option<String> {
    wishes.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// What was used: in all, over time, and by whom.
pub(crate) async fn usage(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    let wishes = wishes(&asked);
    let days: i64 = match wish(&wishes, "days") {
        None => 30,
        Some(text) => match text.parse() {
            Ok(days) if (1..=3_660).contains(&days) => days,
            _ => return Err(invalid("days", "write a whole number from 1 to 3660")),
        },
    };
    let by = match wish(&wishes, "by") {
        None => GroupBy::Model,
        Some(word) => GroupBy::by_word(&word)
            .ok_or_else(|| invalid("by", "write account, key, model, lane or status"))?,
    };
    let step = match wish(&wishes, "step") {
        None => UsageStep::Day,
        Some(word) => {
            UsageStep::by_word(&word).ok_or_else(|| invalid("step", "write hour, day or month"))?
        }
    };
    let status = match wish(&wishes, "status") {
        None => None,
        Some(text) => {
            let read = text.parse();
            Some(read.map_err(|_| invalid("status", "write an HTTP status"))?)
        }
    };
    let stretches = match step {
        UsageStep::Hour => days.saturating_mul(24),
        UsageStep::Day => days,
        UsageStep::Month => days / 28,
    };
    if stretches > STRETCHES {
        return Err(invalid("step", "so many days need longer steps: write day or month"));
    }
    let apart = match wish(&wishes, "top") {
        None => 10,
        Some(text) => match text.parse() {
            Ok(top) if (1..=LISTED).contains(&top) => top,
            _ => return Err(invalid("top", "write a whole number from 1 to 100")),
        },
    };
    let filter = UsageFilter {
        account_id: wish(&wishes, "account_id"),
        key_id: wish(&wishes, "key_id"),
        model: wish(&wishes, "model"),
        lane: wish(&wishes, "lane"),
        status,
    };
    let now = asked.state.clock().now();
    let range = now.saturating_sub(days.saturating_mul(DAY))..now.saturating_add(1);
    let wish = UsageRequest { range, step, by, rank: GroupOrder::Cost, filter, listed: LISTED, with_series: apart };
    let seen = asked.state.store.usage_view(&wish).await.map_err(away)?;
    let UsageReport { all, latencies: pace, top, series: over, others } = &seen;
    let top = top.iter().map(|(group, used)| json!({ "group": group, "used": used_json(used) }));
    let told = |begun: i64, group: Option<&str>, used: &ReportTotals| json!({ "begun": time(begun), "group": group, "used": used_json(used) });
    let apart = over.iter().map(|point| told(point.begun, Some(&point.group), &point.used));
    let points = apart.chain(others.iter().map(|(begun, used)| told(*begun, None, used)));
    let value = json!({
        "success": true,
        "days": days,
        "by": by.word(),
        "step": step.word(),
        "total": used_json(all),
        "pace": pace_json(pace),
        "groups": top.collect::<Vec<_>>(),
        "points": points.collect::<Vec<_>>(),
    });
    Ok(relay::json(value.to_string()))
}

fn used_json(used: &ReportTotals) -> Value {
    json!({
        "calls": used.calls,
        "input_tokens": used.input,
        "cached_tokens": used.cache_read,
        "output_tokens": used.output,
        "thinking_tokens": used.thinking,
        "cost_usd": used.cost.to_string(),
        "borne_usd": used.absorbed.to_string(),
    })
}

fn pace_json(LatencyTotals { took, waited }: &LatencyTotals) -> Value {
    let told = |times: &DurationHistogram| json!({ "p50": ms(times.percentile(50)), "p95": ms(times.percentile(95)) });
    json!({ "first_byte_ms": told(waited), "whole_ms": told(took) })
}

fn ms(micros: Option<i64>) -> Option<i64> {
    micros.map(|micros| micros / 1_000)
}
