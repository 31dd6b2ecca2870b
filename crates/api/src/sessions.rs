//! `GET /v1/sessions`, `GET /v1/sessions/{id}`: the cost of sessions that callers name, such as those of
//! coding agents.

use axum::response::Response;
use canon::{ApiError, ErrorKind, Micros};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use store::{SessionPart, SessionTotals, StoreError};

use crate::key_info::rfc3339;
use crate::query::percent_decode;
use crate::request::ApiRequest;
use relay::{caller_id, json_response};

/// Sessions without a call for longer than this are not listed.
const LISTED_TIME: Micros = Micros::from_days(30);
const MAX_LISTED: u32 = 100;

/// Answers with the caller's latest sessions.
pub(super) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let owner = incoming.key.object_owner();
    let since = incoming.state.clock().now() - LISTED_TIME;
    let sessions = incoming
        .state
        .store
        .sessions_since(Some(&owner), since, MAX_LISTED)
        .await
        .map_err(unreadable)?;
    let data: Vec<Value> = sessions
        .iter()
        .map(|SessionPart { session, key_id, totals, .. }| {
            let mut line = totals_json(totals);
            line.insert("id".to_owned(), session.as_str().into());
            line.insert("key_id".to_owned(), key_id.as_str().into());
            Value::Object(line)
        })
        .collect();
    Ok(json_response(json!({ "object": "list", "data": data }).to_string()))
}

/// Answers with the sums of one session.
pub(super) async fn show(incoming: ApiRequest) -> Result<Response, ApiError> {
    let path = incoming.request.path().strip_prefix("/v1/sessions/").unwrap_or_default();
    let id = percent_decode(path);
    // A long id is kept as its hash, and may be asked for by either.
    let id = caller_id(&id).unwrap_or_default();
    // A session of another owner is reported as unknown.
    let owner = incoming.key.object_owner();
    let parts = incoming.state.store.session_parts(Some(&owner), &id).await.map_err(unreadable)?;
    if parts.is_empty() {
        let message = "there is no call with this session yet; calls are listed about a second after their end";
        return Err(ApiError::new(ErrorKind::NotFound, message));
    }
    let mut all = SessionTotals::default();
    parts.iter().for_each(|part| all.add(&part.totals));
    let mut body = totals_json(&all);
    body.insert("id".to_owned(), id.as_str().into());
    body.insert("object".to_owned(), "session".into());
    body.insert("lanes".to_owned(), groups_json("lane", &parts, |part| &part.lane));
    body.insert("models".to_owned(), groups_json("model", &parts, |part| &part.model));
    body.insert("keys".to_owned(), groups_json("key_id", &parts, |part| &part.key_id));
    Ok(json_response(Value::Object(body).to_string()))
}

/// Sums of parts by one of their texts.
fn groups_json(name: &str, parts: &[SessionPart], text: fn(&SessionPart) -> &String) -> Value {
    let mut groups: BTreeMap<&str, SessionTotals> = BTreeMap::new();
    for part in parts {
        groups.entry(text(part)).or_default().add(&part.totals);
    }
    let lines = groups.into_iter().map(|(group, totals)| {
        let mut line = totals_json(&totals);
        line.insert(name.to_owned(), (!group.is_empty()).then_some(group).into());
        Value::Object(line)
    });
    Value::Array(lines.collect())
}

fn totals_json(totals: &SessionTotals) -> serde_json::Map<String, Value> {
    let SessionTotals {
        begun,
        ended,
        calls,
        input,
        cache_read,
        output,
        thinking,
        cost,
        absorbed: _,
    } = totals;
    let fields = [
        ("calls", json!(calls)),
        (
            "tokens",
            json!({
                "input": input, "cached_input": cache_read, "output": output, "thinking": thinking,
                "total": input.saturating_add(*output),
            }),
        ),
        ("cost_usd", json!(cost.to_string())),
        ("started_at", json!(rfc3339(*begun))),
        ("ended_at", json!(rfc3339(*ended))),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn unreadable(error: StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "sessions cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}
