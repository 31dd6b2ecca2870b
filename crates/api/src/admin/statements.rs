//! `/api/admin/statements/{month}`: the calls of a calendar month, as on the page of statements.

use ::admin::{MonthStatement, StatementLine, StatementMonth};
use axum::response::Response;
use canon::ApiError;
use serde_json::{Value, json};

use super::usage::{query_value, query_values, totals_json};
use super::{actor, admin_error, invalid_field, path_id, rfc3339, success_response};
use crate::request::ApiRequest;

/// `GET`, with the parameter `account_id` of one account or team, or without it of the whole gateway.
pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = actor(&incoming.state, &incoming.key).await?;
    let month = path_id(&incoming, "/api/admin/statements/", "");
    let month = StatementMonth::parse(&month)
        .ok_or_else(|| invalid_field("month", "write a month like 2026-03"))?;
    let admin = &incoming.state.admin;
    let statement = match query_value(&query_values(&incoming), "account_id") {
        Some(account_id) => admin.statement(&caller, &account_id, month).await,
        None => admin.gateway_statement(&caller, month).await,
    };
    Ok(success_response(statement_json(&statement.map_err(admin_error)?)))
}

fn statement_json(statement: &MonthStatement) -> Value {
    let MonthStatement { month, owner, is_over, all, models, parts } = statement;
    let model =
        |line: &StatementLine| json!({ "model": line.id, "used": totals_json(&line.totals) });
    let part = |line: &StatementLine| {
        let StatementLine { id, name, totals } = line;
        json!({ "id": id, "name": name, "used": totals_json(totals) })
    };
    let parts: Vec<Value> = parts.iter().map(part).collect();
    let (keys, accounts) = match owner {
        Some(_) => (Some(parts), None),
        None => (None, Some(parts)),
    };
    json!({
        "month": month.word(),
        "from": rfc3339(month.begun()),
        "to": rfc3339(month.end()),
        "complete": is_over,
        "account_id": owner.as_ref().map(|owner| &owner.id),
        "account": owner.as_ref().map(|owner| &owner.name),
        "total": totals_json(all),
        "models": models.iter().map(model).collect::<Vec<_>>(),
        "keys": keys,
        "accounts": accounts,
    })
}
