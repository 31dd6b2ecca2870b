//! `GET /api/admin/audit`: the audit log in pages.

use axum::response::Response;
use canon::ApiError;
use serde_json::{Value, json};
use store::{AuditFilter, AuditRecord};

use super::usage::{query_value, query_values};
use super::{invalid_field, require_admin, rfc3339, store_error};
use crate::request::ApiRequest;

/// Lists changes, newest first. Query: `limit`, `actor`, `action`, `since`, `until`, and `before`,
/// which is the `next` of the previous page.
pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let query = query_values(&incoming);
    let limit = match query_value(&query, "limit") {
        None => 100,
        Some(text) => match text.parse::<u32>() {
            Ok(limit) if (1..=1_000).contains(&limit) => limit,
            _ => return Err(invalid_field("limit", "write a whole number from 1 to 1000")),
        },
    };
    let moment = |name: &'static str| match query_value(&query, name) {
        None => Ok(None),
        Some(text) => match text.parse::<jiff::Timestamp>() {
            Ok(at) => Ok(Some(at.as_microsecond())),
            Err(_) => Err(invalid_field(name, "write a moment, such as 2026-03-12T00:00:00Z")),
        },
    };
    let before = match query_value(&query, "before") {
        None => None,
        Some(text) => {
            let parts = text.split_once('~');
            let parts = parts.and_then(|(at, id)| Some((at.parse().ok()?, id.parse().ok()?)));
            Some(
                parts
                    .ok_or_else(|| invalid_field("before", "write the `next` of another answer"))?,
            )
        }
    };
    let filter = AuditFilter {
        actor: query_value(&query, "actor"),
        action: query_value(&query, "action"),
        since: moment("since")?,
        until: moment("until")?,
        before,
    };
    let audits = incoming.state.store.audits_of(&filter, limit).await.map_err(store_error)?;
    let full = u32::try_from(audits.len()) == Ok(limit);
    let next = audits.last().filter(|_| full).map(|last| format!("{}~{}", last.at, last.id));
    let data: Vec<Value> = audits.iter().map(audit_json).collect();
    let value = json!({ "success": true, "total": data.len(), "data": data, "next": next });
    Ok(relay::json_response(value.to_string()))
}

fn audit_json(one: &AuditRecord) -> Value {
    json!({
        "at": rfc3339(one.at), "actor": one.actor, "action": one.action,
        "subject": one.subject, "detail": one.detail,
    })
}
