//! `GET /api/admin/audit`: the audit log in pages.

use ::admin::{AuditEntry, AuditPage, AuditQuery};
use axum::response::Response;
use canon::{ApiError, Micros};
use serde::Serialize;

use super::usage::{query_value, query_values, whole_number};
use super::{actor, admin_error, invalid_field, success_response};
use crate::request::ApiRequest;

const DEFAULT_ROWS: u32 = 100;

/// A page of the log, and the `before` of the next one.
#[derive(Serialize)]
struct AuditBody {
    total: usize,
    data: Vec<AuditEntry>,
    next: Option<String>,
}

/// Lists changes, newest first. Query: `limit`, `actor`, `action`, `since`, `until`, and `before`,
/// which is the `next` of the previous page.
pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = actor(&incoming.state, &incoming.key).await?;
    let query = query_values(&incoming);
    let limit = query_value(&query, "limit");
    // No number counts as 0, which is refused.
    let limit = limit.map_or(DEFAULT_ROWS, |text| whole_number(&text).unwrap_or_default());
    let moment = |name: &'static str| match query_value(&query, name) {
        None => Ok(None),
        Some(text) => match text.parse::<jiff::Timestamp>() {
            Ok(at) => Ok(Some(Micros::new(at.as_microsecond()))),
            Err(_) => Err(invalid_field(name, "write a moment, such as 2026-03-12T00:00:00Z")),
        },
    };
    let before = query_value(&query, "before").map(|text| text.parse()).transpose();
    let query = AuditQuery {
        actor: query_value(&query, "actor"),
        action: query_value(&query, "action"),
        since: moment("since")?,
        until: moment("until")?,
        before: before.map_err(admin_error)?,
    };
    let page = incoming.state.admin.audit_page(&caller, query, limit).await;
    let AuditPage { entries, next } = page.map_err(admin_error)?;
    let next = next.map(|next| next.to_string());
    Ok(success_response(AuditBody { total: entries.len(), data: entries, next }))
}
