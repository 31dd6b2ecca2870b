//! `GET /api/admin/health`: state of this node and of the parts it depends on.

use axum::response::Response;
use canon::ApiError;

use super::{actor, admin_error, success_response};
use crate::request::ApiRequest;

pub(crate) async fn health(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let health = incoming.state.admin.node_health(&actor).await.map_err(admin_error)?;
    Ok(success_response(health))
}
