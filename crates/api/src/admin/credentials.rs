//! `/api/admin/providers/…/credentials` and `…/check`: add, delete and check credentials.

use ::admin::{CredentialDraft, CredentialSecret};
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Map, Value};

use super::providers::PATH_PREFIX;
use super::{
    actor, admin_error, entity_response, if_match, invalid_field, list_response, path_id,
    read_body, success_response,
};
use crate::request::ApiRequest;

/// Parses by hand, because a serde error would repeat the secret.
fn parse_credential(sent: &Value) -> Result<CredentialDraft, ApiError> {
    let Value::Object(fields) = sent else {
        return Err(invalid_field("credentials", "each must be an object with name and value"));
    };
    let known = ["name", "value", "auth"];
    if let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) {
        return Err(invalid_field(unknown.clone(), "is not known; write name and value, or auth"));
    }
    let secret = match (fields.get("value"), fields.get("auth")) {
        (Some(value), None) => CredentialSecret::Value(value.clone()),
        (None, Some(auth)) => CredentialSecret::Auth(auth.clone()),
        (Some(_), Some(_)) => return Err(invalid_field("auth", "send either value or auth")),
        (None, None) => return Err(invalid_field("value", "is required: the secret itself")),
    };
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    Ok(CredentialDraft { name: name.to_owned(), secret })
}

pub(super) fn parse_credentials(sent: &Value) -> Result<Vec<CredentialDraft>, ApiError> {
    let Value::Array(list) = sent else {
        return Err(invalid_field("credentials", "must be a list"));
    };
    list.iter().map(parse_credential).collect()
}

pub(crate) async fn add(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "/credentials");
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let sent: Map<String, Value> = read_body(request).await?;
    let draft = parse_credential(&Value::Object(sent))?;
    let added = state.admin.add_credential(&actor, &name, read.as_read_version(), draft).await;
    Ok(entity_response(StatusCode::CREATED, &added.map_err(admin_error)?))
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let path = path_id(&incoming, PATH_PREFIX, "");
    let (name, id) = path.split_once("/credentials/").unwrap_or((path.as_str(), ""));
    let (admin, read) = (&incoming.state.admin, if_match(&incoming.request));
    let deleted = admin.delete_credential(&actor, name, read.as_read_version(), id).await;
    Ok(success_response(deleted.map_err(admin_error)?))
}

/// Checks every credential of a provider with a request that costs nothing.
pub(crate) async fn check(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "/check");
    let checked = incoming.state.admin.check_provider(&actor, &name).await;
    Ok(list_response(checked.map_err(admin_error)?))
}
