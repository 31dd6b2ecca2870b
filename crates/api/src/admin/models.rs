//! Models: what there is, and those that administrators make, change and remove.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{ConfigChange, ConfigEntry, ConfigEntryKind};

use super::check_if_match;
use super::config_edit::{ConfigEdit, field_fault, validate_change};
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

pub(crate) async fn list_all(asked: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&asked.state, &asked.key).await?;
    let (config, stored) = asked.state.admin.current_config();
    let live = config.catalog.iter().map(|model| model.id.as_str());
    let gone = stored.models.keys().map(String::as_str);
    let gone = gone.filter(|id| config.catalog.get(id).is_none_or(|live| live.id != *id));
    let told = live.chain(gone).filter_map(|id| model_json(&config, &stored, id));
    Ok(list_response(told.collect()))
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&asked.state, &asked.key).await?;
    let id = percent_decode(&path_id(&asked, PATH_PREFIX, ""));
    let (config, stored) = asked.state.admin.current_config();
    let told = model_json(&config, &stored, &id).ok_or_else(|| not_found("model"))?;
    Ok(entity_response(StatusCode::OK, &told))
}

fn check_id(id: &str, config: &Config, seen: &StoredEntries) -> Result<(), ApiError> {
    let dots = |piece: &str| piece.chars().all(|c| c == '.');
    if id.len() > 256 || id.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(invalid_field("id", "must have 1 to 256 bytes, without spaces"));
    }
    if id.split('/').any(dots) {
        return Err(invalid_field("id", "must not have a piece that is empty or of dots alone"));
    }
    let live = config.catalog.iter().map(|model| model.id.as_str());
    let mut others = live.chain(seen.models.keys().map(String::as_str));
    match others.find(|other| *other != id && other.eq_ignore_ascii_case(id)) {
        Some(other) => Err(invalid_field("id", format!("there is `{other}` already"))),
        None => Ok(()),
    }
}

fn require_not_in_file(config: &Config, id: &str) -> Result<(), ApiError> {
    if config.file_layer.contains(&EntryName::Model(id.to_owned())) {
        let say = format!("`{id}` is in the configuration file; change it there");
        return Err(ApiError::invalid("", say));
    }
    Ok(())
}

/// What is allowed and may yet be a slip: calls that cost nothing at a provider that is paid.
fn warnings(places: &MergedConfig, id: &str) -> Vec<String> {
    let Some(route) = places.route(id) else { return Vec::new() };
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

pub(crate) async fn put(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let id = percent_decode(&path_id(&asked, PATH_PREFIX, ""));
    let ApiRequest { state, request, .. } = asked;
    let headers = request.headers().clone();
    // Read before it is this change's turn: a slow caller holds up nobody else.
    let mut settings: Map<String, Value> = read_body(request).await?;
    let seen = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_not_in_file(&config, &id)?;
    check_id(&id, &config, &seen.stored)?;
    check_if_match(&headers, &model_json(&config, &seen.stored, &id).unwrap_or_default())?;
    settings.retain(|_, value| !value.is_null());
    let now = state.clock().now();
    let old = seen.stored.models.get(&id);
    let new = StoredModel::new(settings, old.map_or(now, |old| old.created_at));
    new.raw.as_ref().map_err(field_fault)?;
    let text =
        serde_json::to_string(&new.settings).map_err(|e| ApiError::internal(e.to_string()))?;
    let entry = ConfigEntry {
        kind: ConfigEntryKind::Model,
        id: id.clone(),
        settings: text,
        created: new.created_at,
        changed: now,
    };
    let mut next = StoredEntries::clone(&seen.stored);
    next.models.insert(id.clone(), new);
    let places = validate_change(&config, &seen.stored, &next, &EntryName::Model(id.clone()))?;
    let warnings = warnings(&places, &id);
    seen.commit(&state, &[ConfigChange::Put(entry)]).await?;
    let (action, status) = match old {
        None => ("model.create", StatusCode::CREATED),
        Some(_) => ("model.change", StatusCode::OK),
    };
    write_audit(&state, &who, action, &id, &warnings.join("; ")).await;
    let (config, stored) = state.admin.current_config();
    let stable = model_json(&config, &stored, &id).ok_or_else(|| not_found("model"))?;
    let thing = EntityView { shown: stable.clone(), stable };
    Ok(view_response(status, &thing.with_field("warnings", json!(warnings))))
}

pub(crate) async fn delete(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let id = percent_decode(&path_id(&asked, PATH_PREFIX, ""));
    let state = Arc::clone(&asked.state);
    let seen = ConfigEdit::begin(&state).await?;
    let config = state.config();
    let now = model_json(&config, &seen.stored, &id).ok_or_else(|| not_found("model"))?;
    if !seen.stored.models.contains_key(&id) {
        require_not_in_file(&config, &id)?;
        return Err(ApiError::invalid("", format!("`{id}` comes with its provider")));
    }
    check_if_match(asked.request.headers(), &now)?;
    let mut next = StoredEntries::clone(&seen.stored);
    next.models.remove(&id);
    // Another may fall back to it.
    validate_change(&config, &seen.stored, &next, &EntryName::Model(id.clone()))?;
    seen.commit(&state, &[ConfigChange::Drop(ConfigEntryKind::Model, id.clone())]).await?;
    write_audit(&state, &who, "model.delete", &id, "").await;
    let value = json!({ "success": true, "id": id, "deleted": true });
    Ok(relay::json_response(value.to_string()))
}
