//! Credentials of stored providers: add, delete, check. A credential is sealed on arrival and never
//! shown again.

use axum::response::Response;
use canon::{ApiError, WireFormat};
use catalog::Endpoints;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};
use store::{ConfigChange, SealedSecret, SecretSealer, StoredCredential};
use upstream::{Provider, SendOptions};

use super::config_edit::{ConfigEdit, field_error, validate_change};
use super::providers::{PATH_PREFIX, provider_json, require_changeable};
use super::{
    check_if_match, entity_response, invalid_field, not_found, path_id, read_body, require_admin,
    rfc3339, write_audit,
};
use crate::request::ApiRequest;
use crate::state::ApiState;
use config::{EntryName, RawAuth, StoredAuth, StoredEntries, auth_from_json, auth_from_secret};

/// Maximum number of credentials of one provider.
const MAX_CREDENTIALS: usize = 100;
/// Time a provider may take to answer the check of a credential.
const CHECK_TIMEOUT: Duration = Duration::from_secs(15);

/// Credential as sent by the caller. It has no `Debug`, so it cannot be logged.
pub(super) struct NewCredential {
    name: String,
    auth: SentAuth,
}

enum SentAuth {
    /// The provider's usual kind of authentication.
    Value(Value),
    Auth(Value),
}

impl NewCredential {
    /// Parses by hand, because a serde error would repeat the secret.
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
        read.map_err(|wrong| field_error(&wrong))
    }
}

/// Sealed credentials ready to be stored. The sealer is held until they are stored, so that no
/// re-keying happens in between.
pub(super) struct SealedCredentials<'a> {
    pub(super) rows: Vec<StoredCredential>,
    pub(super) auths: Vec<StoredAuth>,
    _sealer: Option<SecretSealer<'a>>,
}

/// Seals credentials for a provider. `address_key` is the address the secrets may be sent to.
pub(super) async fn seal_credentials<'a>(
    state: &'a ApiState,
    provider: (&str, Option<&str>),
    address_key: &str,
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
            place: address_key.to_owned(),
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

pub(crate) async fn add(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "/credentials");
    let ApiRequest { state, request, .. } = incoming;
    let headers = request.headers().clone();
    // Reads the body before taking the lock, so that a slow caller does not block other changes.
    let sent: Map<String, Value> = read_body(request).await?;
    let edit = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_changeable(&config, &name)?;
    let Some(provider) = edit.stored.providers.get(&name) else {
        let known = config.providers.iter().any(|live| live.name == name);
        return Err(match known || catalog::ModelDirectory::embedded().provider(&name).is_some() {
            true => ApiError::invalid(
                "",
                format!("`{name}` is not stored; PUT {PATH_PREFIX}{name} first"),
            ),
            false => not_found("provider"),
        });
    };
    check_if_match(&headers, &provider_json(&config, &edit.stored, &name).unwrap_or_default())?;
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
    let mut next = StoredEntries::clone(&edit.stored);
    if let Some(provider) = next.providers.get_mut(&name) {
        provider.credentials.extend(sealing.auths.iter().cloned());
    }
    validate_change(&config, &edit.stored, &next, &EntryName::Provider(name.clone()))?;
    let changes: Vec<ConfigChange> = sealing.rows.iter().cloned().map(ConfigChange::Give).collect();
    edit.commit(&state, &changes).await?;
    let row = sealing.rows.first().ok_or_else(|| not_found("credential"))?;
    write_audit(&state, &caller, "credential.add", &name, &format!("{} ({})", row.name, row.id))
        .await;
    let value = json!({ "id": row.id, "name": row.name, "added": rfc3339(row.created) });
    Ok(entity_response(StatusCode::CREATED, &value))
}

pub(crate) async fn delete(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let path = path_id(&incoming, PATH_PREFIX, "");
    let (name, id) = path.split_once("/credentials/").unwrap_or((path.as_str(), ""));
    let state = incoming.state;
    let edit = ConfigEdit::begin(&state).await?;
    let config = state.config();
    require_changeable(&config, name)?;
    let provider = edit.stored.providers.get(name);
    let own = provider.and_then(|own| own.credentials.iter().find(|one| one.id == id));
    let own = own.ok_or_else(|| not_found("credential"))?;
    let now = provider_json(&config, &edit.stored, name).unwrap_or_default();
    check_if_match(incoming.request.headers(), &now)?;
    edit.commit(&state, &[ConfigChange::Take(id.to_owned())]).await?;
    write_audit(&state, &caller, "credential.delete", name, &format!("{} ({id})", own.name)).await;
    let value = json!({ "success": true, "id": id, "name": own.name, "deleted": true });
    Ok(relay::json_response(value.to_string()))
}

/// Checks every credential of a provider with a request that costs nothing.
pub(crate) async fn check(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let name = path_id(&incoming, PATH_PREFIX, "/check");
    let state = incoming.state;
    state.admin.refresh_stored_config().await.map_err(super::store_error)?;
    let (config, stored) = state.admin.current_config();
    let shown = provider_json(&config, &stored, &name).ok_or_else(|| not_found("provider"))?;
    let live = config.providers.iter().find(|live| live.name == name);
    let endpoints = config.endpoints.get(&name).cloned().unwrap_or_default();
    let credentials = shown.get("credentials").and_then(Value::as_array);
    let credentials = credentials.map(Vec::as_slice).unwrap_or_default();
    let mut results = Vec::new();
    // Credential slots of the live provider count only credentials that can be used.
    let mut slot = 0;
    for credential in credentials {
        let trouble = credential.get("trouble").and_then(Value::as_str);
        let found = match (live, trouble) {
            (Some(live), None) => {
                slot += 1;
                check_credential(live, &endpoints, slot - 1).await
            }
            (None, None) => {
                CheckResult::failed("the provider does not serve; see its trouble".to_owned())
            }
            (_, Some(trouble)) => CheckResult::failed(trouble.to_owned()),
        };
        results.push(found.into_json(Some(credential)));
    }
    if let (Some(live), true) = (live, credentials.is_empty()) {
        results.push(check_credential(live, &endpoints, 0).await.into_json(None));
    }
    write_audit(&state, &caller, "provider.check", &name, "").await;
    Ok(super::list_response(results))
}

struct CheckResult {
    ok: bool,
    status: Option<u16>,
    elapsed: Option<Duration>,
    message: String,
}

impl CheckResult {
    const fn failed(message: String) -> Self {
        Self { ok: false, status: None, elapsed: None, message }
    }

    fn into_json(self, credential: Option<&Value>) -> Value {
        let part = |name: &str| credential.and_then(|credential| credential.get(name));
        json!({
            "credential": part("id"), "name": part("name"), "ok": self.ok, "status": self.status,
            "took_ms": self.elapsed.map(|elapsed| elapsed.as_millis()), "say": self.message,
        })
    }
}

/// Requests the list of models and judges only the status of the answer.
async fn check_credential(
    provider: &Provider,
    endpoints: &Endpoints,
    credential: usize,
) -> CheckResult {
    let Some((origin, path)) = provider
        .formats
        .iter()
        .find_map(|origin| Some((*origin, model_list_path(endpoints, *origin)?)))
    else {
        return CheckResult::failed(
            "the provider has no model list to check with; try a call".to_owned(),
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
    let started = Instant::now();
    let answer = provider.get(&path, headers, &how).await;
    let elapsed = Some(started.elapsed());
    match answer {
        Ok(answer) => {
            let status = answer.status;
            let (ok, message) = match status {
                200..=299 => (true, "it works".to_owned()),
                401 | 403 => (false, "the credential is refused".to_owned()),
                404 | 405 => (false, "it answers, but has no model list; try a call".to_owned()),
                _ => (false, format!("it answers with status {status}")),
            };
            CheckResult { ok, status: Some(status), elapsed, message }
        }
        Err(error) => {
            CheckResult { ok: false, status: None, elapsed, message: error.message().to_owned() }
        }
    }
}

/// Returns the path of a provider's model list, derived from its call path in that format.
fn model_list_path(endpoints: &Endpoints, origin: WireFormat) -> Option<String> {
    let usual = match origin {
        WireFormat::Chat | WireFormat::Responses | WireFormat::Messages | WireFormat::Images => {
            "/v1/models"
        }
        WireFormat::Native => "/v1beta/models",
    };
    let Some(own) = endpoints.path(origin) else { return Some(usual.to_owned()) };
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
