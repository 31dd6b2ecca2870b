//! `/api/admin/providers`: list, create, change and delete providers.

use ::admin::ProviderDraft;
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Map, Value};

use super::credentials::parse_credentials;
use super::{
    actor, admin_error, if_match, list_response, path_id, read_body, success_response,
    tagged_response,
};
use crate::query::query_pairs;
use crate::request::ApiRequest;

pub(super) const PATH_PREFIX: &str = "/api/admin/providers/";

pub(crate) async fn list_all(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    Ok(list_response(incoming.state.admin.providers(&actor).map_err(admin_error)?))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "");
    let detail = incoming.state.admin.provider(&actor, &name).map_err(admin_error)?;
    Ok(tagged_response(StatusCode::OK, &detail, &detail.provider))
}

pub(crate) async fn put(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "");
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let mut settings: Map<String, Value> = read_body(request).await?;
    let credentials =
        settings.remove("credentials").map(|list| parse_credentials(&list)).transpose()?;
    let draft = ProviderDraft { settings, credentials };
    let saved = state.admin.put_provider(&actor, &name, read.as_read_version(), draft).await;
    let saved = saved.map_err(admin_error)?;
    let status = if saved.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(tagged_response(status, &saved, &saved.detail.provider))
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "");
    let query = query_pairs(incoming.request.query());
    let force = query.iter().any(|(name, value)| name == "force" && value == "true");
    let (admin, read) = (&incoming.state.admin, if_match(&incoming.request));
    let deleted = admin.delete_provider(&actor, &name, read.as_read_version(), force).await;
    Ok(success_response(deleted.map_err(admin_error)?))
}

/// `GET /api/admin/directory`: known providers to choose from.
pub(crate) async fn directory(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    Ok(list_response(incoming.state.admin.provider_directory(&actor).map_err(admin_error)?))
}
