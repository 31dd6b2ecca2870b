//! `/api/admin/settings`: settings that can be changed at run time.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::keys::parse_amount;
use super::{
    check_if_match, entity_response, invalid_field, read_body, require_admin, sent, store_error,
    write_audit,
};
use crate::request::ApiRequest;
use crate::state::ApiState;

/// Names of the settings.
const SETTINGS: [&str; 4] = ["signup", "signup_role", "signup_cap_usd", "name"];

async fn current_settings(state: &ApiState) -> Result<Value, ApiError> {
    let mut all = Map::new();
    for name in SETTINGS {
        let value = state.store.setting(name).await.map_err(store_error)?;
        all.insert(name.to_owned(), Value::from(value));
    }
    Ok(Value::Object(all))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    Ok(entity_response(StatusCode::OK, &current_settings(&incoming.state).await?))
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
    name: Option<Option<String>>,
}

/// Checks the value of a setting and returns the text to store.
fn validate_setting(name: &'static str, text: String) -> Result<String, ApiError> {
    let one_of = |words: &[&str]| {
        let message = || invalid_field(name, format!("write one of {}", words.join(", ")));
        if words.contains(&text.as_str()) { Ok(()) } else { Err(message()) }
    };
    match name {
        "signup" => one_of(&["open", "invited", "closed"])?,
        "signup_role" => one_of(&["member", "viewer"])?,
        "signup_cap_usd" => return Ok(parse_amount(name, &text)?.to_string()),
        _ => {
            let long = text.chars().count();
            let plain = !text.chars().any(char::is_control) && text.trim() == text;
            if !plain || !(1..=40).contains(&long) {
                return Err(invalid_field(name, "write 1 to 40 characters on one line"));
            }
        }
    }
    Ok(text)
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let before = current_settings(&state).await?;
    check_if_match(request.headers(), &before)?;
    let SettingsBody { signup, signup_role, signup_cap_usd, name } = read_body(request).await?;
    let mut changes = Vec::new();
    for (setting, new_value) in
        SETTINGS.into_iter().zip([signup, signup_role, signup_cap_usd, name])
    {
        let Some(new_value) = new_value else { continue };
        let value = new_value.map(|text| validate_setting(setting, text)).transpose()?;
        if before.get(setting).and_then(Value::as_str) != value.as_deref() {
            changes.push((setting, value));
        }
    }
    for (setting, value) in changes {
        match &value {
            Some(value) => state.store.put_setting(setting, value).await.map_err(store_error)?,
            None => drop(state.store.take_setting(setting).await.map_err(store_error)?),
        }
        write_audit(
            &state,
            &caller,
            "setting.change",
            setting,
            value.as_deref().unwrap_or("default"),
        )
        .await;
    }
    Ok(entity_response(StatusCode::OK, &current_settings(&state).await?))
}
