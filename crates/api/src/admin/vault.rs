//! `/api/admin/vault`: key ids, number of secrets sealed by each, and re-keying.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

use super::{entity_response, require_admin, store_error, write_audit};
use crate::request::ApiRequest;
use crate::state::ApiState;

async fn vault_json(state: &ApiState) -> Result<Value, ApiError> {
    let (current, keys) = state.admin.vault.keys();
    let sealed = state.store.sealed().await.map_err(store_error)?;
    Ok(
        json!({ "current": current, "keys": keys, "sealed": sealed, "trouble": state.admin.vault.unavailable_reason() }),
    )
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    Ok(entity_response(StatusCode::OK, &vault_json(&incoming.state).await?))
}

pub(crate) async fn rekey(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let state = incoming.state;
    // Runs as a task of its own, so that it completes even if the caller disconnects.
    let task_state = Arc::clone(&state);
    let rekeying = state
        .engine
        .tasks
        .spawn(async move { task_state.admin.vault.rekey(&task_state.store).await });
    let done = rekeying.await.map_err(|e| ApiError::internal(e.to_string()))?;
    let done = done.map_err(|why| match why {
        store::VaultError::Store(error) => store_error(error),
        why @ (store::VaultError::Unavailable(_)
        | store::VaultError::UnknownKey(_)
        | store::VaultError::Corrupt) => ApiError::invalid("", why.to_string()),
    })?;
    let detail = format!("{} resealed, {} could not be opened", done.sealed, done.left);
    write_audit(&state, &caller, "vault.rekey", "vault", &detail).await;
    let mut value = vault_json(&state).await?;
    if let Value::Object(fields) = &mut value {
        fields.insert("sealed_anew".to_owned(), json!(done.sealed));
        fields.insert("left".to_owned(), json!(done.left));
    }
    Ok(entity_response(StatusCode::OK, &value))
}
