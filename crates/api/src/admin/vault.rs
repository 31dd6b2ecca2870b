//! `/api/admin/vault`: key ids, number of secrets sealed by each, and re-keying.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;

use super::{actor, admin_error, entity_response};
use crate::request::ApiRequest;

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let status = incoming.state.admin.vault_status(&actor).await.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &status))
}

pub(crate) async fn rekey(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let report = incoming.state.admin.rekey_vault(&actor).await.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &report))
}
