//! `/api/admin/settings`: settings that can be changed at run time.

use ::admin::SettingsChange;
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;

use super::{actor, admin_error, entity_response, if_match, read_body, sent};
use crate::request::ApiRequest;

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let settings = incoming.state.admin.settings(&actor).await.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &settings))
}

/// An absent field stays unchanged; `null` resets to the default.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsBody {
    #[serde(default, deserialize_with = "sent")]
    signup: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    signup_role: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    signup_cap_usd: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    second_factor_roles: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    name: Option<Option<String>>,
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let SettingsBody { signup, signup_role, signup_cap_usd, second_factor_roles, name } =
        read_body(request).await?;
    let change = SettingsChange { signup, signup_role, signup_cap_usd, second_factor_roles, name };
    let changed = state.admin.change_settings(&actor, read.as_read_version(), change).await;
    Ok(entity_response(StatusCode::OK, &changed.map_err(admin_error)?))
}
