//! `GET /api/admin/usage`: usage totals, groups and time series.

use std::str::FromStr;

use axum::response::Response;
use canon::{ApiError, Micros, Money};
use serde_json::{Map, Value, json};
use store::{
    CallFilter, DurationHistogram, GroupBy, GroupOrder, LatencyTotals, ObjectOwner, ReportTotals,
    SessionPart, StatusFilter, UsageReport, UsageRequest, UsageStep,
};

use super::{invalid_field, require_admin, rfc3339, store_error};
use crate::query::query_pairs;
use crate::request::ApiRequest;

/// Word for the grouping by session, whose sums are in a table of their own.
const SESSION_WORD: &str = "session";
/// Maximum number of groups in the answer.
const MAX_GROUPS: usize = 100;
/// Maximum number of time steps in the answer.
const MAX_STEPS: i64 = 1_000;

pub(super) fn query_values(incoming: &ApiRequest) -> Map<String, Value> {
    let pairs = query_pairs(incoming.request.query());
    pairs.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}

pub(super) fn query_value(query: &Map<String, Value>, name: &str) -> Option<String> {
    query.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Reads a number that has digits only. `parse` also takes a sign.
pub(super) fn whole_number<T: FromStr>(text: &str) -> Option<T> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// Returns usage in total, over time and by group.
pub(crate) async fn usage(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let query = query_values(&incoming);
    let days: i64 = match query_value(&query, "days") {
        None => 30,
        Some(text) => match whole_number(&text) {
            Some(days) if (1..=3_660).contains(&days) => days,
            _ => return Err(invalid_field("days", "write a whole number from 1 to 3660")),
        },
    };
    let by_word = query_value(&query, "by");
    let by_session = by_word.as_deref() == Some(SESSION_WORD);
    let by = match by_word {
        None => GroupBy::Model,
        // The totals are those of all calls, with and without a session.
        Some(word) if word == SESSION_WORD => GroupBy::Account,
        Some(word) => GroupBy::by_word(&word).ok_or_else(|| {
            let words = GroupBy::ALL.map(GroupBy::word).join(", ");
            invalid_field("by", format!("write one of {words}"))
        })?,
    };
    let step = match query_value(&query, "step") {
        None => UsageStep::Day,
        Some(word) => UsageStep::by_word(&word)
            .ok_or_else(|| invalid_field("step", "write hour, day or month"))?,
    };
    let stretches = match step {
        UsageStep::Hour => days.saturating_mul(24),
        UsageStep::Day => days,
        UsageStep::Month => days / 28,
    };
    if stretches > MAX_STEPS {
        return Err(invalid_field("step", "too many steps for that many days: write day or month"));
    }
    let apart = match query_value(&query, "top") {
        None => 10,
        Some(text) => match text.parse() {
            Ok(top) if (1..=MAX_GROUPS).contains(&top) => top,
            _ => return Err(invalid_field("top", "write a whole number from 1 to 100")),
        },
    };
    let tag = query_value(&query, "tag_name");
    if tag.is_some() && by != GroupBy::Tag {
        return Err(invalid_field("tag_name", "is for by=tag"));
    }
    let filter = call_filter(&query)?;
    let of_account = CallFilter { account_id: filter.account_id.clone(), ..CallFilter::default() };
    if by_session && filter != of_account {
        let narrow = CONDITIONS.into_iter().find(|name| query_value(&query, name).is_some());
        let name = narrow.unwrap_or("by");
        return Err(invalid_field(name, "cannot be combined with by=session"));
    }
    let owner = filter.account_id.as_deref().map(ObjectOwner::account);
    let now = incoming.state.clock().now();
    // Whole hours need no calls.
    let range = step.begin(now - Micros::from_days(days))..UsageStep::Hour.end(now);
    let report_request = UsageRequest {
        steps: step.begins(&range),
        range,
        by,
        tag,
        rank: GroupOrder::Cost,
        filter,
        listed: MAX_GROUPS,
        with_series: apart,
    };
    let report = incoming.state.store.usage_view(&report_request).await.map_err(store_error)?;
    let UsageReport { all, refused, refused_by, latencies, top, series, others, .. } = &report;
    if by_session {
        let since = report_request.range.start;
        let listed = u32::try_from(MAX_GROUPS).unwrap_or(u32::MAX);
        let sessions = incoming.state.store.sessions_since(owner.as_ref(), since, listed).await;
        let value = json!({
            "success": true,
            "days": days,
            "by": SESSION_WORD,
            "step": step.word(),
            "total": totals_json(all),
            "refused": refused,
            "pace": latencies_json(latencies),
            "groups": sessions.map_err(store_error)?.iter().map(session_json).collect::<Vec<_>>(),
            "points": [],
            "searched_since": null,
            "tag_name": null,
            "tag_names": {},
        });
        return Ok(relay::json_response(value.to_string()));
    }
    let refused_of = |group: &String| refused_by.get(group).copied().unwrap_or_default();
    let top = top.iter().map(|(group, used)| {
        json!({ "group": group, "used": totals_json(used), "refused": refused_of(group) })
    });
    let point_json = |begun: Micros, group: Option<&str>, used: &ReportTotals| json!({ "begun": rfc3339(begun), "group": group, "used": totals_json(used) });
    let apart = series.iter().map(|point| point_json(point.begun, Some(&point.group), &point.used));
    let points = apart.chain(others.iter().map(|(begun, used)| point_json(*begun, None, used)));
    let value = json!({
        "success": true,
        "days": days,
        "by": by.word(),
        "step": step.word(),
        "total": totals_json(all),
        "refused": refused,
        "pace": latencies_json(latencies),
        "groups": top.collect::<Vec<_>>(),
        "points": points.collect::<Vec<_>>(),
        "searched_since": report.searched_since.map(rfc3339),
        "tag_name": report.tag,
        "tag_names": report.tag_names,
    });
    Ok(relay::json_response(value.to_string()))
}

/// Conditions that a report by session cannot have.
const CONDITIONS: [&str; 11] = [
    "key_id",
    "model",
    "lane",
    "status",
    "format",
    "session",
    "end_user",
    "tag",
    "error",
    "min_cost_usd",
    "min_took_ms",
];

/// Reads the conditions on the calls.
fn call_filter(query: &Map<String, Value>) -> Result<CallFilter, ApiError> {
    let status = query_value(query, "status").map(|word| {
        let why = "write an HTTP status, 4xx, 5xx, done or failed";
        StatusFilter::by_word(&word).ok_or_else(|| invalid_field("status", why))
    });
    let min_cost = query_value(query, "min_cost_usd").map(|text| {
        let why = "write an amount in dollars like 0.25";
        text.parse::<Money>().map_err(|_| invalid_field("min_cost_usd", why))
    });
    let min_took = query_value(query, "min_took_ms").map(|text| {
        let why = "write a whole number of milliseconds";
        let millis = text.parse::<u32>().map_err(|_| invalid_field("min_took_ms", why))?;
        Ok(Micros::from_millis(i64::from(millis)))
    });
    Ok(CallFilter {
        key_id: query_value(query, "key_id"),
        account_id: query_value(query, "account_id"),
        model: query_value(query, "model"),
        lane: query_value(query, "lane"),
        status: status.transpose()?,
        format: query_value(query, "format"),
        session: query_value(query, "session"),
        end_user: query_value(query, "end_user"),
        tag: query_value(query, "tag"),
        error: query_value(query, "error"),
        min_cost: min_cost.transpose()?,
        min_took: min_took.transpose()?,
    })
}

/// A session as a group of the report. It counts as a whole if its last call is in the range.
fn session_json(part: &SessionPart) -> Value {
    let totals = &part.totals;
    json!({
        "group": part.session,
        "used": {
            "calls": totals.calls,
            "input_tokens": totals.input,
            "cached_tokens": totals.cache_read,
            "output_tokens": totals.output,
            "thinking_tokens": totals.thinking,
            "cost_usd": totals.cost.to_string(),
            "absorbed_usd": totals.absorbed.to_string(),
        },
        "refused": 0,
    })
}

pub(super) fn totals_json(used: &ReportTotals) -> Value {
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
    let percentiles = |times: &DurationHistogram| json!({ "p50": to_ms(times.percentile(50)), "p95": to_ms(times.percentile(95)) });
    json!({ "first_byte_ms": percentiles(waited), "whole_ms": percentiles(took) })
}

fn to_ms(time: Option<Micros>) -> Option<i64> {
    time.map(Micros::as_millis)
}
