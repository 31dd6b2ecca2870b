//! Credentials of stored providers: given once, sealed, never shown again; and whether they work.

use axum::response::Response;
use canon::{ApiError, WireFormat};
use catalog::Endpoints;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use store::{ConfigChange, SealedSecret, SecretSealer, StoredCredential};
use upstream::{Provider, Sending};

use super::places::{Seen, judged, wrong_field};
use super::providers::{AT, changeable, told};
use super::{admin, body, id_in, invalid, missing, note, thing, time, unchanged};
use crate::request::ApiRequest;
use crate::state::ApiState;
use config::{Entry, RawAuth, Stored, StoredAuth, of_auth, of_value};

/// The most credentials of one provider.
const MOST: usize = 100;
/// How long a provider may take to show that a credential works.
const PATIENCE: Duration = Duration::from_secs(15);

/// A credential as it was sent. Never printed.
pub(super) struct Given {
    name: String,
    auth: Kind,
}

enum Kind {
    /// The provider's usual way.
    Value(Value),
    Auth(Value),
}

impl Given {
    /// Read by hand: what a reader of types says of a wrong value repeats it.
    fn one(sent: &Value) -> Result<Self, ApiError> {
        let Value::Object(fields) = sent else {
            return Err(invalid("credentials", "each must be an object with name and value"));
        };
        let known = ["name", "value", "auth"];
        if let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(invalid(unknown.clone(), "is not known; write name and value, or auth"));
        }
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().trim();
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            return Err(invalid("name", "must have 1 to 200 bytes on one line"));
        }
        let auth = match (fields.get("value"), fields.get("auth")) {
            (Some(value), None) => Kind::Value(value.clone()),
            (None, Some(auth)) => Kind::Auth(auth.clone()),
            (Some(_), Some(_)) => return Err(invalid("auth", "send either value or auth")),
            (None, None) => return Err(invalid("value", "is required: the secret itself")),
        };
        Ok(Self { name: name.to_owned(), auth })
    }

    pub(super) fn several(sent: &Value) -> Result<Vec<Self>, ApiError> {
        let Value::Array(list) = sent else {
            return Err(invalid("credentials", "must be a list"));
        };
        if list.len() > MOST {
            return Err(invalid("credentials", format!("must be at most {MOST}")));
        }
        list.iter().map(Self::one).collect()
    }

    fn read(&self, (name, like): (&str, Option<&str>)) -> Result<RawAuth, ApiError> {
        let read = match &self.auth {
            Kind::Value(value) => of_value(name, like, value),
            Kind::Auth(auth) => of_auth(auth),
        };
        read.map_err(|wrong| wrong_field(&wrong))
    }
}

/// Credentials on their way into the store. To be kept until they are there.
pub(super) struct Sealing<'a> {
    pub(super) rows: Vec<StoredCredential>,
    pub(super) read: Vec<StoredAuth>,
    _sealer: Option<SecretSealer<'a>>,
}

/// Seals credentials for a provider that is in that place.
pub(super) async fn seal<'a>(
    state: &'a ApiState,
    provider: (&str, Option<&str>),
    place: &str,
    given: Vec<Given>,
) -> Result<Sealing<'a>, ApiError> {
    let mut sealing = Sealing { rows: Vec::new(), read: Vec::new(), _sealer: None };
    if given.is_empty() {
        return Ok(sealing);
    }
    let auths: Vec<RawAuth> =
        given.iter().map(|one| one.read(provider)).collect::<Result<_, _>>()?;
    let shut = |why: store::VaultError| ApiError::invalid("", why.to_string());
    let sealer = state.admin.vault.sealer().await.map_err(shut)?;
    for (Given { name, .. }, auth) in given.into_iter().zip(auths) {
        let mut row = StoredCredential {
            id: uuid::Uuid::now_v7().to_string(),
            provider_id: provider.0.to_owned(),
            name,
            place: place.to_owned(),
            sealed: SealedSecret { by: String::new(), bytes: Vec::new() },
            created: state.clock().now(),
        };
        let text = serde_json::to_vec(&auth.0).map_err(|e| ApiError::internal(e.to_string()))?;
        row.sealed = sealer.seal(&row.label(), &text).map_err(shut)?;
        sealing.read.push(StoredAuth {
            id: row.id.clone(),
            name: row.name.clone(),
            added: row.created,
            auth: Ok(auth),
        });
        sealing.rows.push(row);
    }
    sealing._sealer = Some(sealer);
    Ok(sealing)
}

pub(crate) async fn add(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let name = id_in(&asked, AT, "/credentials");
    let ApiRequest { state, request, .. } = asked;
    let headers = request.headers().clone();
    // Read before it is this change's turn: a slow caller holds up nobody else.
    let sent: Map<String, Value> = body(request).await?;
    let seen = Seen::now(&state).await?;
    let config = state.config();
    changeable(&config, &name)?;
    let Some(provider) = seen.stored.providers.get(&name) else {
        let known = config.providers.iter().any(|live| live.name == name);
        return Err(match known || catalog::ModelDirectory::embedded().provider(&name).is_some() {
            true => ApiError::invalid("", format!("`{name}` is not stored; PUT {AT}{name} first")),
            false => missing("provider"),
        });
    };
    unchanged(&headers, &told(&config, &seen.stored, &name).unwrap_or_default())?;
    let given = Given::one(&Value::Object(sent))?;
    if provider.credentials.len() >= MOST {
        return Err(invalid("name", format!("there are {MOST} already; delete one first")));
    }
    let like = provider.raw.as_ref().ok().and_then(|raw| raw.like.clone());
    let sealing = seal(&state, (&name, like.as_deref()), &provider.place(), vec![given]).await?;
    let mut next = Stored::clone(&seen.stored);
    if let Some(provider) = next.providers.get_mut(&name) {
        provider.credentials.extend(sealing.read.iter().cloned());
    }
    judged(&config, &seen.stored, &next, &Entry::Provider(name.clone()))?;
    let changes: Vec<ConfigChange> = sealing.rows.iter().cloned().map(ConfigChange::Give).collect();
    seen.change(&state, &changes).await?;
    let row = sealing.rows.first().ok_or_else(|| missing("credential"))?;
    note(&state, &who, "credential.add", &name, &format!("{} ({})", row.name, row.id)).await;
    let value = json!({ "id": row.id, "name": row.name, "added": time(row.created) });
    Ok(thing(StatusCode::CREATED, &value))
}

pub(crate) async fn delete(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let path = id_in(&asked, AT, "");
    let (name, id) = path.split_once("/credentials/").unwrap_or((path.as_str(), ""));
    let state = asked.state;
    let seen = Seen::now(&state).await?;
    let config = state.config();
    changeable(&config, name)?;
    let provider = seen.stored.providers.get(name);
    let own = provider.and_then(|own| own.credentials.iter().find(|one| one.id == id));
    let own = own.ok_or_else(|| missing("credential"))?;
    let now = told(&config, &seen.stored, name).unwrap_or_default();
    unchanged(asked.request.headers(), &now)?;
    seen.change(&state, &[ConfigChange::Take(id.to_owned())]).await?;
    note(&state, &who, "credential.delete", name, &format!("{} ({id})", own.name)).await;
    let value = json!({ "success": true, "id": id, "name": own.name, "deleted": true });
    Ok(relay::json(value.to_string()))
}

/// Asks a provider with each of its credentials for something that costs nothing.
pub(crate) async fn check(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let name = id_in(&asked, AT, "/check");
    let state = asked.state;
    state.admin.fresh_places().await.map_err(super::away)?;
    let (config, stored) = state.admin.in_force();
    let shown = told(&config, &stored, &name).ok_or_else(|| missing("provider"))?;
    let live = config.providers.iter().find(|live| live.name == name);
    let ways = config.ways.get(&name).cloned().unwrap_or_default();
    let credentials = shown.get("credentials").and_then(Value::as_array);
    let credentials = credentials.map(Vec::as_slice).unwrap_or_default();
    let mut results = Vec::new();
    // The places of the provider that serves are those of the credentials that can be used.
    let mut place = 0;
    for credential in credentials {
        let trouble = credential.get("trouble").and_then(Value::as_str);
        let found = match (live, trouble) {
            (Some(live), None) => {
                place += 1;
                ask(live, &ways, place - 1).await
            }
            (None, None) => Found::not("the provider does not serve; see its trouble".to_owned()),
            (_, Some(trouble)) => Found::not(trouble.to_owned()),
        };
        results.push(found.told(Some(credential)));
    }
    if let (Some(live), true) = (live, credentials.is_empty()) {
        results.push(ask(live, &ways, 0).await.told(None));
    }
    note(&state, &who, "provider.check", &name, "").await;
    Ok(super::list(results))
}

struct Found {
    ok: bool,
    status: Option<u16>,
    took: Option<Duration>,
    say: String,
}

impl Found {
    const fn not(say: String) -> Self {
        Self { ok: false, status: None, took: None, say }
    }

    fn told(self, credential: Option<&Value>) -> Value {
        let part = |name: &str| credential.and_then(|credential| credential.get(name));
        json!({
            "credential": part("id"), "name": part("name"), "ok": self.ok, "status": self.status,
            "took_ms": self.took.map(|took| took.as_millis()), "say": self.say,
        })
    }
}

/// One request for the list of models. Of the answer only the status is looked at.
async fn ask(provider: &Provider, ways: &Endpoints, credential: usize) -> Found {
    let Some((origin, path)) =
        provider.speaks.iter().find_map(|origin| Some((*origin, list_path(ways, *origin)?)))
    else {
        return Found::not("it has no list of models to try this on; try a call".to_owned());
    };
    let mut headers = HeaderMap::new();
    for (name, value) in dialects::get(origin).map(|own| own.request_headers()).unwrap_or_default() {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    let how = Sending {
        credential,
        fresh: true,
        connect: provider.timeouts.connect,
        first_byte: provider.timeouts.first_byte.min(PATIENCE),
    };
    let begun = Instant::now();
    let answer = provider.get(&path, headers, &how).await;
    let took = Some(begun.elapsed());
    match answer {
        Ok(answer) => {
            let status = answer.status;
            let (ok, say) = match status {
                200..=299 => (true, "it works".to_owned()),
                401 | 403 => (false, "the credential is refused".to_owned()),
                404 | 405 => {
                    (false, "it answers, but has no list of models; try a call".to_owned())
                }
                _ => (false, format!("it answers with status {status}")),
            };
            Found { ok, status: Some(status), took, say }
        }
        Err(fault) => Found { ok: false, status: None, took, say: fault.message().to_owned() },
    }
}

/// Where a provider lists its models: beside where it is called in that format.
fn list_path(ways: &Endpoints, origin: WireFormat) -> Option<String> {
    let usual = match origin {
        WireFormat::Chat | WireFormat::Responses | WireFormat::Messages | WireFormat::Images => "/v1/models",
        WireFormat::Native => "/v1beta/models",
    };
    let Some(own) = ways.path(origin) else { return Some(usual.to_owned()) };
    let (path, query) = match own.whole.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (own.whole.as_str(), String::new()),
    };
    let ends = ["/chat/completions", "/responses", "/messages", "/images/generations"];
    let front = ends.iter().find_map(|end| path.strip_suffix(end));
    let listed = front.map(|front| format!("{front}/models"));
    let listed = listed.or_else(|| {
        let front = path.split_once("/{model}")?.0;
        front.ends_with("/models").then(|| front.to_owned())
    })?;
    (!listed.contains('{')).then(|| format!("{listed}{query}"))
}
