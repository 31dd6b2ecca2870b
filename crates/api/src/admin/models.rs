//! `/api/admin/models`: list, create, change and delete models.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{ConfigChange, ConfigEntry, ConfigEntryKind};

use super::check_if_match;
use super::config_edit::{ConfigEdit, field_error, validate_change};
use super::{
    EntityView, entity_response, invalid_field, list_response, not_found, path_id, read_body,
    require_admin, view_response, write_audit,
};
use crate::query::percent_decode;
use crate::request::ApiRequest;
use config::{Config, EntryName, MergedConfig, StoredEntries, StoredModel, default_auth};

const PATH_PREFIX: &str = "/api/admin/models/";

fn model_json(config: &Config, stored: &StoredEntries, id: &str) -> Option<Value> {
    let entry = EntryName::Model(id.to_owned());
    let own = stored.models.get(id);
    let live = config.catalog.get(id).filter(|live| live.id == id);
    let mut value = match live {
        Some(live) => {
            let record = catalog::ModelListing::new(live, &config.public_url);
            let mut value = serde_json::to_value(record).unwrap_or_default();
            if let Value::Object(fields) = &mut value {
                let lanes = live.lanes.iter().map(|lane| Value::from(lane.name())).collect();
                fields.insert("lanes".to_owned(), Value::Array(lanes));
                fields.insert("price_version".to_owned(), json!(live.prices.version));
            }
            value
        }
        None => {
            let lanes = own?.raw.as_ref().map(|raw| raw.lanes.as_slice()).unwrap_or_default();
            let lanes: Vec<&str> = lanes.iter().map(|lane| lane.name()).collect();
            json!({ "id": id, "lanes": lanes })
        }
    };
    if let Value::Object(fields) = &mut value {
        let source = if config.file_layer.contains(&entry) {
            "file"
        } else if own.is_some() {
            "stored"
        } else {
            "built-in"
        };
        fields.insert("source".to_owned(), json!(source));
        fields.insert("trouble".to_owned(), json!(config.issues.get(&entry)));
        fields.insert("settings".to_owned(), json!(own.map(|own| &own.settings)));
    }
    Some(value)
}

pub(crate) async fn list_all(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let (config, stored) = incoming.state.admin.current_config();
    let live = config.catalog.iter().map(|model| model.id.as_str());
    let gone = stored.models.keys().map(String::as_str);
    let gone = gone.filter(|id| config.catalog.get(id).is_none_or(|live| live.id != *id));
    let items = live.chain(gone).filter_map(|id| model_json(&config, &stored, id));
    Ok(list_response(items.collect()))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let id = percent_decode(&path_id(&incoming, PATH_PREFIX, ""));
    let (config, stored) = incoming.state.admin.current_config();
    let model = model_json(&config, &stored, &id).ok_or_else(|| not_found("model"))?;
    Ok(entity_response(StatusCode::OK, &model))
}

fn check_id(id: &str, config: &Config, stored: &StoredEntries) -> Result<(), ApiError> {
    let dots = |piece: &str| piece.chars().all(|c| c == '.');
    if id.len() > 256 || id.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid_field("id", "must have 1 to 256 bytes, without spaces"));
    }
    if id.split('/').any(dots) {
        return Err(invalid_field("id", "must not have an empty segment or one of dots only"));
    }
    let live = config.catalog.iter().map(|model| model.id.as_str());
    let mut others = live.chain(stored.models.keys().map(String::as_str));
    match others.find(|other| *other != id && other.eq_ignore_ascii_case(id)) {
        Some(other) => Err(invalid_field("id", format!("there is `{other}` already"))),
        None => Ok(()),
    }
}

fn require_not_in_file(config: &Config, id: &str) -> Result<(), ApiError> {
    if config.file_layer.contains(&EntryName::Model(id.to_owned())) {
        let message = format!("`{id}` is in the configuration file; change it there");
        return Err(ApiError::invalid("", message));
    }
    Ok(())
}

/// Returns warnings about settings that are valid but probably a mistake, such as a price of 0 at a
/// paid provider.
fn warnings(merged: &MergedConfig, id: &str) -> Vec<String> {
    let Some(route) = merged.route(id) else { return Vec::new() };
    let wants =
        |of: &str| default_auth(of, None).is_some_and(|auth| *auth != catalog::AuthScheme::None);
    let free = route.lanes.iter().filter(|lane| {
        lane.prices.is_free()
            && (lane.provider.has_credential(0) || wants(&lane.endpoints.provider))
    });
    let mut names: Vec<&str> = free.map(|lane| lane.name.as_str()).collect();
    names.dedup();
    match names.is_empty() {
        true => Vec::new(),
        false => {
            vec![format!("calls of `{id}` cost nothing by {}: its price is 0", names.join(", "))]
        }
    }
}

pub(crate) async fn put(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let id = percent_decode(&path_id(&incoming, PATH_PREFIX, ""));
    let ApiRequest { state, request, .. } = incoming;
    let headers = request.headers().clone();
    // Reads the body before taking the lock, so that a slow caller does not block other changes.
    let mut settings: Map<String, Value> = read_body(request).await?;
    let edit = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_not_in_file(&config, &id)?;
    check_id(&id, &config, &edit.stored)?;
    check_if_match(&headers, &model_json(&config, &edit.stored, &id).unwrap_or_default())?;
    settings.retain(|_, value| !value.is_null());
    let now = state.clock().now();
    let old = edit.stored.models.get(&id);
    let new = StoredModel::new(settings, old.map_or(now, |old| old.created_at));
    new.raw.as_ref().map_err(field_error)?;
    let text =
        serde_json::to_string(&new.settings).map_err(|e| ApiError::internal(e.to_string()))?;
    let entry = ConfigEntry {
        kind: ConfigEntryKind::Model,
        id: id.clone(),
        settings: text,
        created: new.created_at,
        changed: now,
    };
    let mut next = StoredEntries::clone(&edit.stored);
    next.models.insert(id.clone(), new);
    let merged = validate_change(&config, &edit.stored, &next, &EntryName::Model(id.clone()))?;
    let warnings = warnings(&merged, &id);
    edit.commit(&state, &[ConfigChange::Put(entry)]).await?;
    let (action, status) = match old {
        None => ("model.create", StatusCode::CREATED),
        Some(_) => ("model.change", StatusCode::OK),
    };
    write_audit(&state, &caller, action, &id, &warnings.join("; ")).await;
    let (config, stored) = state.admin.current_config();
    let stable = model_json(&config, &stored, &id).ok_or_else(|| not_found("model"))?;
    let view = EntityView { shown: stable.clone(), stable };
    Ok(view_response(status, &view.with_field("warnings", json!(warnings))))
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let id = percent_decode(&path_id(&incoming, PATH_PREFIX, ""));
    let state = Arc::clone(&incoming.state);
    let edit = ConfigEdit::begin(&state).await?;
    let config = state.config();
    let now = model_json(&config, &edit.stored, &id).ok_or_else(|| not_found("model"))?;
    if !edit.stored.models.contains_key(&id) {
        require_not_in_file(&config, &id)?;
        return Err(ApiError::invalid("", format!("`{id}` comes with its provider")));
    }
    check_if_match(incoming.request.headers(), &now)?;
    let mut next = StoredEntries::clone(&edit.stored);
    next.models.remove(&id);
    // Another model may name this one as its fallback.
    validate_change(&config, &edit.stored, &next, &EntryName::Model(id.clone()))?;
    edit.commit(&state, &[ConfigChange::Drop(ConfigEntryKind::Model, id.clone())]).await?;
    write_audit(&state, &caller, "model.delete", &id, "").await;
    let value = json!({ "success": true, "id": id, "deleted": true });
    Ok(relay::json_response(value.to_string()))
}
