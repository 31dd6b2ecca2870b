//! Providers: what there is, and those that administrators make, change and remove.

use axum::response::Response;
use canon::{ApiError, ErrorKind};
use http::StatusCode;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use store::{ConfigChange, ConfigEntry, ConfigEntryKind};
use upstream::Provider;

use super::credentials::{Given, seal};
use super::places::{Seen, judged, wrong_field};
use super::{Thing, thing_of};
use super::{admin, body, id_in, invalid, list, missing, note, time, unchanged};
use crate::query::pairs;
use crate::request::ApiRequest;
use crate::state::ApiState;
use config::{Config, DEMO, Entry, Stored, StoredProvider};

pub(super) const AT: &str = "/api/admin/providers/";
/// The longest name of a provider.
const LONGEST: usize = 64;

/// How the lanes of each provider stand.
fn lanes(state: &ApiState, config: &Config) -> BTreeMap<String, Vec<Value>> {
    let mut all: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for lane in config.health(state.engine.ticks()) {
        let provider = lane.lane.split('/').next().unwrap_or_default().to_owned();
        let health = &lane.health;
        all.entry(provider).or_default().push(json!({
            "lane": lane.lane,
            "credential": lane.credential,
            "standing": health.standing.word(),
            "failures": health.failures,
            "pending": health.pending,
            "latency_ms": health.latency.map(|time| time.as_millis()),
            "last_failure": health.last,
        }));
    }
    all
}

/// Where a provider that serves comes from.
fn source(config: &Config, stored: &Stored, name: &str) -> &'static str {
    let entry = Entry::Provider(name.to_owned());
    if name == DEMO {
        "built-in"
    } else if config.ground.has(&entry) {
        "file"
    } else if stored.providers.contains_key(name) {
        "stored"
    } else {
        "environment"
    }
}

/// A provider, without how its lanes stand, which changes by the moment.
pub(super) fn told(config: &Config, stored: &Stored, name: &str) -> Option<Value> {
    let live = config.providers.iter().find(|provider| provider.name == name);
    let own = stored.providers.get(name);
    if live.is_none() && own.is_none() {
        return None;
    }
    let source = source(config, stored, name);
    let raw = own.and_then(|own| own.raw.as_ref().ok());
    let of = config.ways.get(name).map(|ways| ways.provider.clone()).filter(|of| !of.is_empty());
    // One that does not serve is what it was said to be, or what the directory knows of it.
    let known = raw.map(|raw| raw.like.as_deref().unwrap_or(name));
    let known = known.and_then(|of| catalog::ModelDirectory::embedded().provider(of));
    let of = of.or_else(|| known.map(|known| known.id.clone()));
    let speaks = live.map(|live| &live.speaks).or_else(|| known.map(|known| &known.formats));
    let speaks: Vec<&str> = speaks.into_iter().flatten().map(|one| one.as_str()).collect();
    let base = live.filter(|_| name != DEMO).map(|live| live.address());
    let base = base.or_else(|| raw.and_then(|raw| raw.base.clone()));
    let base = base.or_else(|| known.map(|known| known.base.clone()));
    let most = live.map(|live| live.max_in_flight).filter(|most| *most != usize::MAX);
    Some(json!({
        "id": name,
        "source": source,
        "of": of,
        "speaks": speaks,
        "base": base,
        "max_in_flight": most,
        "trouble": config.troubles.get(&Entry::Provider(name.to_owned())),
        "settings": own.map(|own| &own.settings),
        "credentials": credentials(source, live.map(|live| &**live), own),
    }))
}

fn credentials(source: &str, live: Option<&Provider>, own: Option<&StoredProvider>) -> Vec<Value> {
    if let Some(own) = own.filter(|own| source == "stored" && !own.credentials.is_empty()) {
        let told = own.credentials.iter().map(|one| {
            json!({
                "id": one.id, "name": one.name, "source": "stored", "added": time(one.added),
                "trouble": one.auth.as_ref().err(),
            })
        });
        return told.collect();
    }
    // A stored one without credentials of its own proves itself by the environment's, if at all.
    let source = if source == "stored" { "environment" } else { source };
    let Some(live) = live else { return Vec::new() };
    let places = (0..live.credentials()).filter(|place| live.proves(*place));
    let told = places.map(|place| {
        json!({
            "id": place.to_string(), "name": format!("credential {}", place + 1),
            "source": source, "added": null, "trouble": null,
        })
    });
    told.collect()
}

fn with_lanes(mut value: Value, lanes: Vec<Value>) -> Value {
    if let Value::Object(fields) = &mut value {
        fields.insert("lanes".to_owned(), Value::Array(lanes));
    }
    value
}

pub(crate) async fn list_all(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    let (config, stored) = asked.state.admin.in_force();
    let mut lanes = lanes(&asked.state, &config);
    let mut names: Vec<&str> = config.providers.iter().map(|live| live.name.as_str()).collect();
    names.extend(stored.providers.keys().map(String::as_str));
    names.sort_unstable();
    names.dedup();
    let told = names.into_iter().filter_map(|name| {
        Some(with_lanes(told(&config, &stored, name)?, lanes.remove(name).unwrap_or_default()))
    });
    Ok(list(told.collect()))
}

/// A provider as it is now, and what its tag is made of.
pub(super) fn shown(state: &ApiState, name: &str) -> Result<Thing, ApiError> {
    let (config, stored) = state.admin.in_force();
    let stable = told(&config, &stored, name).ok_or_else(|| missing("provider"))?;
    let lanes = lanes(state, &config).remove(name).unwrap_or_default();
    Ok(Thing { shown: with_lanes(stable.clone(), lanes), stable })
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    let name = id_in(&asked, AT, "");
    Ok(thing_of(StatusCode::OK, &shown(&asked.state, &name)?))
}

/// Refuses to change what is not ours to change.
pub(super) fn changeable(config: &Config, name: &str) -> Result<(), ApiError> {
    if name == DEMO {
        return Err(ApiError::invalid(
            "",
            "the demo models are built in; `[server] demo` says whether",
        ));
    }
    if config.ground.has(&Entry::Provider(name.to_owned())) {
        let say = format!("`{name}` is in the configuration file; change it there");
        return Err(ApiError::invalid("", say));
    }
    Ok(())
}

fn check_name(name: &str, seen: &Stored, config: &Config) -> Result<(), ApiError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > LONGEST || !name.chars().all(plain) || !name.starts_with(char::is_alphanumeric)
    {
        let say = format!(
            "must have 1 to {LONGEST} letters, digits, `-`, `_` or `.`, a letter or digit first"
        );
        return Err(invalid("id", say));
    }
    let live = config.providers.iter().map(|live| live.name.as_str());
    let mut others = live.chain(seen.providers.keys().map(String::as_str));
    match others.find(|other| *other != name && other.eq_ignore_ascii_case(name)) {
        Some(other) => Err(invalid("id", format!("there is `{other}` already"))),
        None => Ok(()),
    }
}

pub(crate) async fn put(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let name = id_in(&asked, AT, "");
    let ApiRequest { state, request, .. } = asked;
    let headers = request.headers().clone();
    // Read before it is this change's turn: a slow caller holds up nobody else.
    let mut settings: Map<String, Value> = body(request).await?;
    let seen = Seen::now(&state).await?;
    let config = state.config();
    changeable(&config, &name)?;
    check_name(&name, &seen.stored, &config)?;
    let old = seen.stored.providers.get(&name);
    unchanged(&headers, &told(&config, &seen.stored, &name).unwrap_or_default())?;
    let given = settings.remove("credentials").map(|list| Given::several(&list)).transpose()?;
    if settings.contains_key("auth") {
        let say = "credentials are given apart, as `credentials` or at …/credentials";
        return Err(invalid("auth", say));
    }
    settings.retain(|_, value| !value.is_null());
    let now = state.clock().now();
    let mut new = StoredProvider::new(settings, old.map_or(now, |old| old.created));
    let raw = new.raw.as_ref().map_err(wrong_field)?;
    let like = raw.like.clone();
    let place = new.place();
    let kept = old.filter(|old| given.is_none() && old.place() == place);
    let dropped = match (old, kept) {
        (Some(old), None) => old.credentials.len(),
        (Some(_), Some(_)) | (None, _) => 0,
    };
    new.credentials = kept.map(|old| old.credentials.clone()).unwrap_or_default();
    let sealing = seal(&state, (&name, like.as_deref()), &place, given.unwrap_or_default()).await?;
    new.credentials.extend(sealing.read.iter().cloned());
    let text = serde_json::to_string(&new.settings).map_err(|e| ApiError::internal(e.to_string()))?;
    let (created, made) = (new.created, old.is_none());
    let mut next = Stored::clone(&seen.stored);
    next.providers.insert(name.clone(), new);
    judged(&config, &seen.stored, &next, &Entry::Provider(name.clone()))?;
    let entry = ConfigEntry {
        kind: ConfigEntryKind::Provider,
        id: name.clone(),
        settings: text,
        created,
        changed: now,
    };
    let mut changes = vec![ConfigChange::Put(entry)];
    if kept.is_none() {
        changes.push(ConfigChange::TakeAll(name.clone()));
    }
    let added = sealing.rows.len();
    changes.extend(sealing.rows.iter().cloned().map(ConfigChange::Give));
    seen.change(&state, &changes).await?;
    drop(sealing);
    let action = if made { "provider.create" } else { "provider.change" };
    let thing = shown(&state, &name)?;
    let base = thing.stable.get("base").and_then(Value::as_str).unwrap_or_default();
    let detail = format!("{base}, credentials: {added} given, {dropped} dropped");
    note(&state, &who, action, &name, &detail).await;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok(thing_of(status, &thing.with("dropped_credentials", json!(dropped))))
}

pub(crate) async fn delete(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let name = id_in(&asked, AT, "");
    let force = pairs(asked.request.uri().query().unwrap_or_default());
    let force = force.iter().any(|(name, value)| name == "force" && value == "true");
    let state = asked.state;
    let seen = Seen::now(&state).await?;
    let config = state.config();
    if !seen.stored.providers.contains_key(&name) {
        changeable(&config, &name)?;
        let there = config.providers.iter().any(|live| live.name == name);
        return Err(match there {
            true => ApiError::invalid("", format!("`{name}` comes from the environment")),
            false => missing("provider"),
        });
    }
    let now = told(&config, &seen.stored, &name).unwrap_or_default();
    unchanged(asked.request.headers(), &now)?;
    let alone = served_by_alone(&seen.stored, &name);
    if !alone.is_empty() && !force && !config.ground.has(&Entry::Provider(name.clone())) {
        let say = format!(
            "only `{name}` serves {}; change or delete them first, or repeat with ?force=true",
            alone.join(", ")
        );
        return Err(ApiError::new(ErrorKind::Conflict, say).without_retry());
    }
    seen.change(&state, &[ConfigChange::Drop(ConfigEntryKind::Provider, name.clone())]).await?;
    note(&state, &who, "provider.delete", &name, &alone.join(", ")).await;
    Ok(relay::json(
        json!({ "success": true, "id": name, "deleted": true, "models_left_alone": alone })
            .to_string(),
    ))
}

/// The stored models all of whose lanes lead to that provider.
fn served_by_alone(stored: &Stored, name: &str) -> Vec<String> {
    let alone = stored.models.iter().filter(|(_, model)| {
        let lanes = model.raw.as_ref().map(|raw| raw.lanes.as_slice()).unwrap_or_default();
        let theirs = |lane: &str| lane.split('/').next() == Some(name);
        !lanes.is_empty() && lanes.iter().all(|lane| theirs(lane.name()))
    });
    alone.map(|(id, _)| id.clone()).collect()
}

/// What the directory knows, to choose from.
pub(crate) async fn directory(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    let directory = catalog::ModelDirectory::embedded();
    let known = directory.providers().filter(|known| known.id != DEMO);
    let told = known.map(|known| {
        let offers =
            |entry: &&catalog::ModelEntry| entry.offers.iter().any(|offer| offer.provider == known.id);
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
    Ok(list(told.collect()))
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
