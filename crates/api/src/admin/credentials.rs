//! Credentials of stored providers: given once, sealed, never shown again; and whether they work.

use axum::response::Response;
use canon::{ApiError, WireFormat};
use catalog::Endpoints;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use store::{ConfigChange, SealedSecret, SecretSealer, StoredCredential};
use upstream::{Provider, SendOptions};

use super::config_edit::{ConfigEdit, field_fault, validate_change};
use super::providers::{PATH_PREFIX, provider_json, require_changeable};
use super::{
    check_if_match, entity_response, invalid_field, not_found, path_id, read_body, require_admin,
    rfc3339, write_audit,
};
use crate::request::ApiRequest;
use crate::state::ApiState;
use config::{EntryName, RawAuth, StoredAuth, StoredEntries, auth_from_json, auth_from_secret};

/// The most credentials of one provider.
const MAX_CREDENTIALS: usize = 100;
/// How long a provider may take to show that a credential works.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// A credential as it was sent. Never printed.
pub(super) struct NewCredential {
    name: String,
    auth: SentAuth,
}

enum SentAuth {
    /// The provider's usual way.
    Value(Value),
    Auth(Value),
}

impl NewCredential {
    /// Read by hand: what a reader of types says of a wrong value repeats it.
    fn parse(sent: &Value) -> Result<Self, ApiError> {
        let Value::Object(fields) = sent else {
            return Err(invalid_field("credentials", "each must be an object with name and value"));
        };
        let known = ["name", "value", "auth"];
        if let Some(unknown) = fields.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(invalid_field(
                unknown.clone(),
                "is not known; write name and value, or auth",
            ));
        }
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().trim();
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            return Err(invalid_field("name", "must have 1 to 200 bytes on one line"));
        }
        let auth = match (fields.get("value"), fields.get("auth")) {
            (Some(value), None) => SentAuth::Value(value.clone()),
            (None, Some(auth)) => SentAuth::Auth(auth.clone()),
            (Some(_), Some(_)) => return Err(invalid_field("auth", "send either value or auth")),
            (None, None) => return Err(invalid_field("value", "is required: the secret itself")),
        };
        Ok(Self { name: name.to_owned(), auth })
    }

    pub(super) fn parse_list(sent: &Value) -> Result<Vec<Self>, ApiError> {
        let Value::Array(list) = sent else {
            return Err(invalid_field("credentials", "must be a list"));
        };
        if list.len() > MAX_CREDENTIALS {
            return Err(invalid_field("credentials", format!("must be at most {MAX_CREDENTIALS}")));
        }
        list.iter().map(Self::parse).collect()
    }

    fn to_auth(&self, (name, like): (&str, Option<&str>)) -> Result<RawAuth, ApiError> {
        let read = match &self.auth {
            SentAuth::Value(value) => auth_from_secret(name, like, value),
            SentAuth::Auth(auth) => auth_from_json(auth),
        };
        read.map_err(|wrong| field_fault(&wrong))
    }
}

/// Credentials on their way into the store. To be kept until they are there.
pub(super) struct SealedCredentials<'a> {
    pub(super) rows: Vec<StoredCredential>,
    pub(super) auths: Vec<StoredAuth>,
    _sealer: Option<SecretSealer<'a>>,
}

/// Seals credentials for a provider that is in that place.
pub(super) async fn seal_credentials<'a>(
    state: &'a ApiState,
    provider: (&str, Option<&str>),
    place: &str,
    given: Vec<NewCredential>,
) -> Result<SealedCredentials<'a>, ApiError> {
    let mut sealing = SealedCredentials { rows: Vec::new(), auths: Vec::new(), _sealer: None };
    if given.is_empty() {
        return Ok(sealing);
    }
    let auths: Vec<RawAuth> =
        given.iter().map(|one| one.to_auth(provider)).collect::<Result<_, _>>()?;
    let shut = |why: store::VaultError| ApiError::invalid("", why.to_string());
    let sealer = state.admin.vault.sealer().await.map_err(shut)?;
    for (NewCredential { name, .. }, auth) in given.into_iter().zip(auths) {
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
        sealing.auths.push(StoredAuth {
            id: row.id.clone(),
            name: row.name.clone(),
            added_at: row.created,
            auth: Ok(auth),
        });
        sealing.rows.push(row);
    }
    sealing._sealer = Some(sealer);
    Ok(sealing)
}

pub(crate) async fn add(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let name = path_id(&asked, PATH_PREFIX, "/credentials");
    let ApiRequest { state, request, .. } = asked;
    let headers = request.headers().clone();
    // Read before it is this change's turn: a slow caller holds up nobody else.
    let sent: Map<String, Value> = read_body(request).await?;
    let seen = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_changeable(&config, &name)?;
    let Some(provider) = seen.stored.providers.get(&name) else {
        let known = config.providers.iter().any(|live| live.name == name);
        return Err(match known || catalog::ModelDirectory::embedded().provider(&name).is_some() {
            true => ApiError::invalid(
                "",
                format!("`{name}` is not stored; PUT {PATH_PREFIX}{name} first"),
            ),
            false => not_found("provider"),
        });
    };
    check_if_match(&headers, &provider_json(&config, &seen.stored, &name).unwrap_or_default())?;
    let given = NewCredential::parse(&Value::Object(sent))?;
    if provider.credentials.len() >= MAX_CREDENTIALS {
        return Err(invalid_field(
            "name",
            format!("there are {MAX_CREDENTIALS} already; delete one first"),
        ));
    }
    let like = provider.raw.as_ref().ok().and_then(|raw| raw.like.clone());
    let sealing =
        seal_credentials(&state, (&name, like.as_deref()), &provider.address_key(), vec![given])
            .await?;
    let mut next = StoredEntries::clone(&seen.stored);
    if let Some(provider) = next.providers.get_mut(&name) {
        provider.credentials.extend(sealing.auths.iter().cloned());
    }
    validate_change(&config, &seen.stored, &next, &EntryName::Provider(name.clone()))?;
    let changes: Vec<ConfigChange> = sealing.rows.iter().cloned().map(ConfigChange::Give).collect();
    seen.commit(&state, &changes).await?;
    let row = sealing.rows.first().ok_or_else(|| not_found("credential"))?;
    write_audit(&state, &who, "credential.add", &name, &format!("{} ({})", row.name, row.id)).await;
    let value = json!({ "id": row.id, "name": row.name, "added": rfc3339(row.created) });
    Ok(entity_response(StatusCode::CREATED, &value))
}

pub(crate) async fn delete(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let path = path_id(&asked, PATH_PREFIX, "");
    let (name, id) = path.split_once("/credentials/").unwrap_or((path.as_str(), ""));
    let state = asked.state;
    let seen = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_changeable(&config, name)?;
    let provider = seen.stored.providers.get(name);
    let own = provider.and_then(|own| own.credentials.iter().find(|one| one.id == id));
    let own = own.ok_or_else(|| not_found("credential"))?;
    let now = provider_json(&config, &seen.stored, name).unwrap_or_default();
    check_if_match(asked.request.headers(), &now)?;
    seen.commit(&state, &[ConfigChange::Take(id.to_owned())]).await?;
    write_audit(&state, &who, "credential.delete", name, &format!("{} ({id})", own.name)).await;
    let value = json!({ "success": true, "id": id, "name": own.name, "deleted": true });
    Ok(relay::json_response(value.to_string()))
}

/// Asks a provider with each of its credentials for something that costs nothing.
pub(crate) async fn check(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = require_admin(&asked.state, &asked.key).await?;
    let name = path_id(&asked, PATH_PREFIX, "/check");
    let state = asked.state;
    state.admin.refresh_stored_config().await.map_err(super::store_fault)?;
    let (config, stored) = state.admin.current_config();
    let shown = provider_json(&config, &stored, &name).ok_or_else(|| not_found("provider"))?;
    let live = config.providers.iter().find(|live| live.name == name);
    let ways = config.endpoints.get(&name).cloned().unwrap_or_default();
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
                check_credential(live, &ways, place - 1).await
            }
            (None, None) => {
                CheckResult::failed("the provider does not serve; see its trouble".to_owned())
            }
            (_, Some(trouble)) => CheckResult::failed(trouble.to_owned()),
        };
        results.push(found.to_json(Some(credential)));
    }
    if let (Some(live), true) = (live, credentials.is_empty()) {
        results.push(check_credential(live, &ways, 0).await.to_json(None));
    }
    write_audit(&state, &who, "provider.check", &name, "").await;
    Ok(super::list_response(results))
}

struct CheckResult {
    ok: bool,
    status: Option<u16>,
    elapsed: Option<Duration>,
    message: String,
}

impl CheckResult {
    const fn failed(say: String) -> Self {
        Self { ok: false, status: None, elapsed: None, message: say }
    }

    fn to_json(self, credential: Option<&Value>) -> Value {
        let part = |name: &str| credential.and_then(|credential| credential.get(name));
        json!({
            "credential": part("id"), "name": part("name"), "ok": self.ok, "status": self.status,
            "took_ms": self.elapsed.map(|took| took.as_millis()), "say": self.message,
        })
    }
}

/// One request for the list of models. Of the answer only the status is looked at.
async fn check_credential(provider: &Provider, ways: &Endpoints, credential: usize) -> CheckResult {
    let Some((origin, path)) =
        provider.formats.iter().find_map(|origin| Some((*origin, model_list_path(ways, *origin)?)))
    else {
        return CheckResult::failed(
            "it has no list of models to try this on; try a call".to_owned(),
        );
    };
    let mut headers = HeaderMap::new();
    for (name, value) in dialects::get(origin).map(|own| own.request_headers()).unwrap_or_default()
    {
        headers.insert(*name, HeaderValue::from_static(value));
    }
    let how = SendOptions {
        credential,
        new_connection: true,
        connect: provider.timeouts.connect,
        first_byte: provider.timeouts.first_byte.min(CHECK_TIMEOUT),
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
            CheckResult { ok, status: Some(status), elapsed: took, message: say }
        }
        Err(fault) => CheckResult {
            ok: false,
            status: None,
            elapsed: took,
            message: fault.message().to_owned(),
        },
    }
}

/// Where a provider lists its models: beside where it is called in that format.
fn model_list_path(ways: &Endpoints, origin: WireFormat) -> Option<String> {
    let usual = match origin {
        WireFormat::Chat | WireFormat::Responses | WireFormat::Messages | WireFormat::Images => {
            "/v1/models"
        }
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
