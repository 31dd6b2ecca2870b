//! `/api/admin/providers`: list, create, change and delete providers.

use axum::response::Response;
use canon::{ApiError, ErrorKind};
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use store::{ConfigChange, ConfigEntry, ConfigEntryKind};
use upstream::Provider;

use super::config_edit::{ConfigEdit, field_error, validate_change};
use super::credentials::{NewCredential, seal_credentials};
use super::{EntityView, view_response};
use super::{
    check_if_match, invalid_field, list_response, not_found, path_id, read_body, require_admin,
    rfc3339, write_audit,
};
use crate::query::query_pairs;
use crate::request::ApiRequest;
use crate::state::ApiState;
use config::{Config, DEMO_PROVIDER, EntryName, StoredEntries, StoredProvider};

pub(super) const PATH_PREFIX: &str = "/api/admin/providers/";
/// Maximum length of a provider's name.
const MAX_NAME_BYTES: usize = 64;

/// Health of the lanes of each provider.
fn lane_health(state: &ApiState, config: &Config) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for lane in config.lane_health(state.engine.monotonic_micros()) {
        let provider = lane.lane.split('/').next().unwrap_or_default().to_owned();
        let health = &lane.health;
        all.entry(provider).or_default().push(json!({
            "lane": lane.lane,
            "credential": lane.credential,
            "standing": health.state.as_str(),
            "failures": health.failure_streak,
            "pending": health.pending,
            "latency_ms": health.latency.map(|time| time.as_millis()),
            "last_failure": health.last_failure,
        }));
    }
    all
}

/// Returns the source of a provider: built-in, file, stored or environment.
fn source(config: &Config, stored: &StoredEntries, name: &str) -> &'static str {
    let entry = EntryName::Provider(name.to_owned());
    if name == DEMO_PROVIDER {
        "built-in"
    } else if config.file_layer.contains(&entry) {
        "file"
    } else if stored.providers.contains_key(name) {
        "stored"
    } else {
        "environment"
    }
}

/// JSON of a provider without the health of its lanes, which changes all the time.
pub(super) fn provider_json(config: &Config, stored: &StoredEntries, name: &str) -> Option<Value> {
    let live = config.providers.iter().find(|provider| provider.name == name);
    let own = stored.providers.get(name);
    if live.is_none() && own.is_none() {
        return None;
    }
    let source = source(config, stored, name);
    let raw = own.and_then(|own| own.raw.as_ref().ok());
    let of = config
        .endpoints
        .get(name)
        .map(|endpoints| endpoints.provider.clone())
        .filter(|of| !of.is_empty());
    // A provider that is not live shows its settings, completed from the directory.
    let known = raw.map(|raw| raw.like.as_deref().unwrap_or(name));
    let known = known.and_then(|of| catalog::ModelDirectory::embedded().provider(of));
    let of = of.or_else(|| known.map(|known| known.id.clone()));
    let speaks = live.map(|live| &live.formats).or_else(|| known.map(|known| &known.formats));
    let speaks: Vec<&str> = speaks.into_iter().flatten().map(|one| one.as_str()).collect();
    let base = live.filter(|_| name != DEMO_PROVIDER).map(|live| live.address());
    let base = base.or_else(|| raw.and_then(|raw| raw.base.clone()));
    let base = base.or_else(|| known.map(|known| known.base.clone()));
    let max_in_flight =
        live.map(|live| live.max_in_flight).filter(|max_in_flight| *max_in_flight != usize::MAX);
    Some(json!({
        "id": name,
        "source": source,
        "of": of,
        "speaks": speaks,
        "base": base,
        "max_in_flight": max_in_flight,
        "trouble": config.issues.get(&EntryName::Provider(name.to_owned())),
        "settings": own.map(|own| &own.settings),
        "credentials": credentials_json(source, live.map(|live| &**live), own),
    }))
}

fn credentials_json(
    source: &str,
    live: Option<&Provider>,
    own: Option<&StoredProvider>,
) -> Vec<Value> {
    if let Some(own) = own.filter(|own| source == "stored" && !own.credentials.is_empty()) {
        let items = own.credentials.iter().map(|one| {
            json!({
                "id": one.id, "name": one.name, "source": "stored", "added": rfc3339(one.added_at),
                "trouble": one.auth.as_ref().err(),
            })
        });
        return items.collect();
    }
    // A stored provider without credentials of its own uses those of the environment, if any.
    let source = if source == "stored" { "environment" } else { source };
    let Some(live) = live else { return Vec::new() };
    let slots = (0..live.credential_count()).filter(|slot| live.has_credential(*slot));
    let items = slots.map(|slot| {
        json!({
            "id": slot.to_string(), "name": format!("credential {}", slot + 1),
            "source": source, "added": null, "trouble": null,
        })
    });
    items.collect()
}

fn with_lanes(mut value: Value, lanes: Vec<Value>) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.insert("lanes".to_owned(), Value::Array(lanes));
    }
    value
}

pub(crate) async fn list_all(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let (config, stored) = incoming.state.admin.current_config();
    let mut lanes = lane_health(&incoming.state, &config);
    let mut names: Vec<&str> = config.providers.iter().map(|live| live.name.as_str()).collect();
    names.extend(stored.providers.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    let items = names.into_iter().filter_map(|name| {
        Some(with_lanes(
            provider_json(&config, &stored, name)?,
            lanes.remove(name).unwrap_or_default(),
        ))
    });
    Ok(list_response(items.collect()))
}

/// JSON of a provider including the health of its lanes.
pub(super) fn provider_view(state: &ApiState, name: &str) -> Result<EntityView, ApiError> {
    let (config, stored) = state.admin.current_config();
    let stable = provider_json(&config, &stored, name).ok_or_else(|| not_found("provider"))?;
    let lanes = lane_health(state, &config).remove(name).unwrap_or_default();
    Ok(EntityView { shown: with_lanes(stable.clone(), lanes), stable })
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "");
    Ok(view_response(StatusCode::OK, &provider_view(&incoming.state, &name)?))
}

/// Refuses to change a provider that is built in or defined in the file.
pub(super) fn require_changeable(config: &Config, name: &str) -> Result<(), ApiError> {
    if name == DEMO_PROVIDER {
        return Err(ApiError::invalid(
            "",
            "the demo models are built in; `[server] demo` turns them on or off",
        ));
    }
    if config.file_layer.contains(&EntryName::Provider(name.to_owned())) {
        let message = format!("`{name}` is in the configuration file; change it there");
        return Err(ApiError::invalid("", message));
    }
    Ok(())
}

fn check_name(name: &str, stored: &StoredEntries, config: &Config) -> Result<(), ApiError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > MAX_NAME_BYTES
        || !name.chars().all(plain)
        || !name.starts_with(char::is_alphanumeric)
    {
        let message = format!(
            "must have 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` or `.`, a letter or digit first"
        );
        return Err(invalid_field("id", message));
    }
    let live = config.providers.iter().map(|live| live.name.as_str());
    let mut others = live.chain(stored.providers.keys().map(String::as_str));
    match others.find(|other| *other != name && other.eq_ignore_ascii_case(name)) {
        Some(other) => Err(invalid_field("id", format!("there is `{other}` already"))),
        None => Ok(()),
    }
}

pub(crate) async fn put(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "");
    let ApiRequest { state, request, .. } = incoming;
    let headers = request.headers().clone();
    // Reads the body before taking the lock, so that a slow caller does not block other changes.
    let mut settings: Map<String, Value> = read_body(request).await?;
    let edit = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_changeable(&config, &name)?;
    check_name(&name, &edit.stored, &config)?;
    let old = edit.stored.providers.get(&name);
    check_if_match(&headers, &provider_json(&config, &edit.stored, &name).unwrap_or_default())?;
    let given =
        settings.remove("credentials").map(|list| NewCredential::parse_list(&list)).transpose()?;
    if settings.contains_key("auth") {
        let message = "credentials are set separately, as `credentials` or at …/credentials";
        return Err(invalid_field("auth", message));
    }
    settings.retain(|_, value| !value.is_null());
    let now = state.clock().now();
    let mut new = StoredProvider::new(settings, old.map_or(now, |old| old.created_at));
    let raw = new.raw.as_ref().map_err(field_error)?;
    let like = raw.like.clone();
    let address_key = new.address_key();
    let retained = old.filter(|old| given.is_none() && old.address_key() == address_key);
    let dropped = match (old, retained) {
        (Some(old), None) => old.credentials.len(),
        (Some(_), Some(_)) | (None, _) => 0,
    };
    new.credentials = retained.map(|old| old.credentials.clone()).unwrap_or_default();
    let sealing =
        seal_credentials(&state, (&name, like.as_deref()), &address_key, given.unwrap_or_default())
            .await?;
    new.credentials.extend(sealing.auths.iter().cloned());
    let text =
        serde_json::to_string(&new.settings).map_err(|e| ApiError::internal(e.to_string()))?;
    let (created, is_new) = (new.created_at, old.is_none());
    let mut next = StoredEntries::clone(&edit.stored);
    next.providers.insert(name.clone(), new);
    validate_change(&config, &edit.stored, &next, &EntryName::Provider(name.clone()))?;
    let entry = ConfigEntry {
        kind: ConfigEntryKind::Provider,
        id: name.clone(),
        settings: text,
        created,
        changed: now,
    };
    let mut changes = vec![ConfigChange::Put(entry)];
    if retained.is_none() {
        changes.push(ConfigChange::TakeAll(name.clone()));
    }
    let added = sealing.rows.len();
    changes.extend(sealing.rows.iter().cloned().map(ConfigChange::Give));
    edit.commit(&state, &changes).await?;
    drop(sealing);
    let action = if is_new { "provider.create" } else { "provider.change" };
    let view = provider_view(&state, &name)?;
    let base = view.stable.get("base").and_then(Value::as_str).unwrap_or_default();
    let detail = format!("{base}, credentials: {added} given, {dropped} dropped");
    write_audit(&state, &caller, action, &name, &detail).await;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(view_response(status, &view.with_field("dropped_credentials", json!(dropped))))
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "");
    let force = query_pairs(incoming.request.uri().query().unwrap_or_default());
    let force = force.iter().any(|(name, value)| name == "force" && value == "true");
    let state = incoming.state;
    let edit = ConfigEdit::begin(&state).await?;
    let config = state.config();
    if !edit.stored.providers.contains_key(&name) {
        require_changeable(&config, &name)?;
        let there = config.providers.iter().any(|live| live.name == name);
        return Err(match there {
            true => ApiError::invalid("", format!("`{name}` comes from the environment")),
            false => not_found("provider"),
        });
    }
    let now = provider_json(&config, &edit.stored, &name).unwrap_or_default();
    check_if_match(incoming.request.headers(), &now)?;
    let alone = models_only_on(&edit.stored, &name);
    if !alone.is_empty()
        && !force
        && !config.file_layer.contains(&EntryName::Provider(name.clone()))
    {
        let message = format!(
            "only `{name}` serves {}; change or delete them first, or repeat with ?force=true",
            alone.join(", ")
        );
        return Err(ApiError::new(ErrorKind::Conflict, message).without_retry());
    }
    edit.commit(&state, &[ConfigChange::Drop(ConfigEntryKind::Provider, name.clone())]).await?;
    write_audit(&state, &caller, "provider.delete", &name, &alone.join(", ")).await;
    Ok(relay::json_response(
        json!({ "success": true, "id": name, "deleted": true, "models_left_alone": alone })
            .to_string(),
    ))
}

/// Returns the stored models that only this provider serves.
fn models_only_on(stored: &StoredEntries, name: &str) -> Vec<String> {
    let alone = stored.models.iter().filter(|(_, model)| {
        let lanes = model.raw.as_ref().map(|raw| raw.lanes.as_slice()).unwrap_or_default();
        let theirs = |lane: &str| lane.split('/').next() == Some(name);
        !lanes.is_empty() && lanes.iter().all(|lane| theirs(lane.name()))
    });
    alone.map(|(id, _)| id.clone()).collect()
}

/// `GET /api/admin/directory`: known providers to choose from.
pub(crate) async fn directory(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let directory = catalog::ModelDirectory::embedded();
    let known = directory.providers().filter(|known| known.id != DEMO_PROVIDER);
    let items = known.map(|known| {
        let offers = |entry: &&catalog::ModelEntry| {
            entry.offers.iter().any(|offer| offer.provider == known.id)
        };
        json!({
            "id": known.id,
            "name": known.name,
            "speaks": known.formats.iter().map(|one| one.as_str()).collect::<Vec<_>>(),
            "base": known.base,
            "fill": known.placeholders(),
            "auth": auth_word(&known.auth),
            "models": directory.models().filter(offers).count(),
        })
    });
    Ok(list_response(items.collect()))
}

const fn auth_word(auth: &catalog::AuthScheme) -> &'static str {
    match auth {
        catalog::AuthScheme::Bearer => "bearer",
        catalog::AuthScheme::Header(_) => "header",
        catalog::AuthScheme::Google => "google",
        catalog::AuthScheme::SigV4(_) => "sigv4",
        catalog::AuthScheme::None => "none",
    }
}
