//! `/api/admin/settings/managed` and `/api/admin/teams/{id}/managed-settings`: the managed settings
//! that agents fetch.

use ::admin::ManagedSettings;
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{actor, admin_error, entity_response, not_found, path_id, read_body, view_response};
use crate::request::ApiRequest;

/// The team in the path; `None` for the gateway.
fn team_id(incoming: &ApiRequest) -> Option<String> {
    let id = path_id(incoming, "/api/admin/teams/", "/managed-settings");
    (!id.is_empty()).then_some(id)
}

fn shown(settings: Option<ManagedSettings>) -> Result<Response, ApiError> {
    let settings = settings.ok_or_else(|| not_found("document of managed settings"))?;
    Ok(entity_response(StatusCode::OK, &settings))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, team) = (actor(&incoming.state, &incoming.key).await?, team_id(&incoming));
    let accounts = &incoming.state.admin.accounts;
    shown(accounts.managed_settings(&actor, team.as_deref()).await.map_err(admin_error)?)
}

pub(crate) async fn put(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, team) = (actor(&incoming.state, &incoming.key).await?, team_id(&incoming));
    let ApiRequest { state, request, .. } = incoming;
    let settings: Map<String, Value> = read_body(request).await?;
    let accounts = &state.admin.accounts;
    let saved = accounts.set_managed_settings(&actor, team.as_deref(), Some(settings)).await;
    shown(saved.map_err(admin_error)?)
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, team) = (actor(&incoming.state, &incoming.key).await?, team_id(&incoming));
    let accounts = &incoming.state.admin.accounts;
    let removed = accounts.set_managed_settings(&actor, team.as_deref(), None).await;
    removed.map_err(admin_error)?;
    Ok(view_response(&json!({ "success": true })))
}
