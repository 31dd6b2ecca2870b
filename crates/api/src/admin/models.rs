//! `/api/admin/models`: list, create, change and delete models.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    actor, admin_error, entity_response, if_match, list_response, path_id, read_body,
    success_response, tagged_response,
};
use crate::query::percent_decode;
use crate::request::ApiRequest;

const PATH_PREFIX: &str = "/api/admin/models/";

pub(crate) async fn list_all(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    Ok(list_response(incoming.state.admin.models(&actor).map_err(admin_error)?))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let id = percent_decode(&path_id(&incoming, PATH_PREFIX, ""));
    let model = incoming.state.admin.model(&actor, &id).map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &model))
}

pub(crate) async fn put(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let id = percent_decode(&path_id(&incoming, PATH_PREFIX, ""));
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let settings: Map<String, Value> = read_body(request).await?;
    let saved = state.admin.put_model(&actor, &id, read.as_read_version(), settings).await;
    let saved = saved.map_err(admin_error)?;
    let status = if saved.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(tagged_response(status, &saved, &saved.model))
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let id = percent_decode(&path_id(&incoming, PATH_PREFIX, ""));
    let (admin, read) = (&incoming.state.admin, if_match(&incoming.request));
    let deleted = admin.delete_model(&actor, &id, read.as_read_version()).await;
    Ok(success_response(deleted.map_err(admin_error)?))
}
