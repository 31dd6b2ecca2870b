//! `/api/admin/scim/tokens`: tokens with which identity providers manage people.

use ::admin::IssuedScimToken;
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::ScimToken;

use super::keys::time_from_now;
use super::{
    ApiRequest, actor, admin_error, entity_response, invalid_field, path_id, read_body, rfc3339,
};

const PATH_PREFIX: &str = "/api/admin/scim/tokens/";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTokenBody {
    identity: String,
    #[serde(default)]
    expires_in: Option<String>,
}

fn token_json(token: &ScimToken) -> Value {
    json!({
        "id": token.id,
        "identity": token.identity,
        "created_by": token.created_by,
        "created_at": rfc3339(token.created),
        "expires_at": token.expires.and_then(rfc3339),
        "last_used_at": token.last_used.and_then(rfc3339),
    })
}

pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let tokens = incoming.state.admin.accounts.scim_tokens(&actor).await.map_err(admin_error)?;
    Ok(super::list_response(tokens.iter().map(token_json).collect()))
}

pub(crate) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let NewTokenBody { identity, expires_in } = read_body(request).await?;
    let config = state.config();
    let provider = config.identity_providers.iter().find(|provider| provider.name == identity);
    let provider = provider.ok_or_else(|| {
        invalid_field("identity", "the configuration has no such `[identity.NAME]`")
    })?;
    let now = state.clock().now();
    let expires = expires_in.as_deref().map(|text| time_from_now(text, now)).transpose()?;
    let created = state.admin.accounts.create_scim_token(&actor, provider, expires).await;
    let IssuedScimToken { token, secret } = created.map_err(admin_error)?;
    let mut value = token_json(&token);
    if let Value::Object(fields) = &mut value {
        fields.insert("token".to_owned(), Value::from(secret));
        let base = format!("{}/scim/v2", config.public_url);
        fields.insert("base_url".to_owned(), Value::from(base));
    }
    Ok(entity_response(StatusCode::CREATED, &value))
}

pub(crate) async fn revoke(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let revoked = incoming.state.admin.accounts.revoke_scim_token(&actor, &id).await;
    revoked.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &json!({ "id": id, "revoked": true })))
}
