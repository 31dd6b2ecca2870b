//! `GET /openapi.json`: the OpenAPI description of every route.
//!
//! The parts in `assets/openapi` are written by hand: one file per group of routes, and the objects
//! of each format in `schemas`. Tests compare them with the route table, with the fields that
//! `dialects` reads, and with the answers. Error responses are added from one table, and the answer of a dry run and the
//! second spelling of native names by a rule each.

mod dry_runs;
mod error_responses;
mod snake_case;
#[cfg(test)]
mod tests;

use axum::body::Body;
use axum::response::Response;
use canon::ApiError;
use http::Request;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

use crate::state::ApiState;
use relay::json_response;

const BASE_DOCUMENT: &str = include_str!("../../assets/openapi/base.json");
const PART_DOCUMENTS: &[&str] = &[
    include_str!("../../assets/openapi/chat.json"),
    include_str!("../../assets/openapi/responses.json"),
    include_str!("../../assets/openapi/messages.json"),
    include_str!("../../assets/openapi/native.json"),
    include_str!("../../assets/openapi/caches.json"),
    include_str!("../../assets/openapi/mcp.json"),
    include_str!("../../assets/openapi/images.json"),
    include_str!("../../assets/openapi/models.json"),
    include_str!("../../assets/openapi/account.json"),
    include_str!("../../assets/openapi/admin.json"),
    include_str!("../../assets/openapi/providers.json"),
    include_str!("../../assets/openapi/operations.json"),
    include_str!("../../assets/openapi/sign_in.json"),
    include_str!("../../assets/openapi/alerts.json"),
    include_str!("../../assets/openapi/reports.json"),
    include_str!("../../assets/openapi/scim.json"),
    include_str!("../../assets/openapi/schemas/account.json"),
    include_str!("../../assets/openapi/schemas/admin_keys.json"),
    include_str!("../../assets/openapi/schemas/admin_providers.json"),
    include_str!("../../assets/openapi/schemas/admin_alerts.json"),
    include_str!("../../assets/openapi/schemas/admin_reports.json"),
    include_str!("../../assets/openapi/schemas/chat_reply.json"),
    include_str!("../../assets/openapi/schemas/chat_request.json"),
    include_str!("../../assets/openapi/schemas/images.json"),
    include_str!("../../assets/openapi/schemas/messages_reply.json"),
    include_str!("../../assets/openapi/schemas/messages_request.json"),
    include_str!("../../assets/openapi/schemas/native_more.json"),
    include_str!("../../assets/openapi/schemas/native_reply.json"),
    include_str!("../../assets/openapi/schemas/native_request.json"),
    include_str!("../../assets/openapi/schemas/responses_events.json"),
    include_str!("../../assets/openapi/schemas/responses_reply.json"),
    include_str!("../../assets/openapi/schemas/responses_request.json"),
];

/// The description without the server URL.
static DOCUMENT: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut document = crate::json_object::parse_object(BASE_DOCUMENT);
    if let Some(version) = document.get_mut("info").and_then(|info| info.get_mut("version")) {
        *version = json!(env!("CARGO_PKG_VERSION"));
    }
    for part in PART_DOCUMENTS {
        merge(&mut document, crate::json_object::parse_object(part));
    }
    dry_runs::add(&mut document);
    snake_case::add(&mut document);
    error_responses::add(&mut document);
    document
});

/// Merges one object into another, recursively.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (name, value) in from {
        match (into.get_mut(&name), value) {
            (Some(Value::Object(own)), Value::Object(more)) => merge(own, more),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// The complete description of a gateway with that public address.
pub fn document(public_url: &str) -> Map<String, Value> {
    let mut document = DOCUMENT.clone();
    document.insert("servers".to_owned(), json!([{ "url": public_url }]));
    document
}

pub(super) async fn show(state: Arc<ApiState>, _: Request<Body>) -> Result<Response, ApiError> {
    Ok(json_response(Value::Object(document(&state.config().public_url)).to_string()))
}
