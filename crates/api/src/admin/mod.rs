//! `/api/admin`: administration in JSON, with an admin key of an owner or administrator.
//!
//! Every object that can be changed carries an `ETag`. A change with `If-Match` is refused if the
//! object changed in between (RFC 9110, section 13.1.1). Every change is written into the audit
//! log.

mod alerts;
mod audit;
mod credentials;
mod keys;
mod managed_settings;
mod models;
mod providers;
mod scim_tokens;
mod settings;
mod statements;
mod system;
mod teams;
mod terms;
mod usage;
mod users;
mod vault;

pub(super) use alerts::{
    change_gateway_settings as change_gateway_alerts, change_settings as change_alert_settings,
    get_gateway_settings as get_gateway_alerts, get_settings as get_alert_settings,
    list as list_alerts,
};
pub(super) use audit::list as audit;
use canon::{ApiError, ErrorKind, Micros, RESERVED_NAME, has_reserved_name};
pub(super) use credentials::{
    add as add_credential, check as check_provider, delete as delete_credential,
};
pub(super) use keys::{change as change_key, create as create_key, get as get_key};
pub(super) use keys::{list as list_keys, revoke as revoke_key, rotate as rotate_key};
pub(super) use managed_settings::{
    delete as delete_managed_settings, get as get_managed_settings, put as put_managed_settings,
};
pub(super) use models::{delete as delete_model, get as get_model};
pub(super) use models::{list_all as list_models, put as put_model};
pub(super) use providers::{delete as delete_provider, directory, get as get_provider};
pub(super) use providers::{list_all as list_providers, put as put_provider};
pub(super) use scim_tokens::{
    create as create_scim_token, list as list_scim_tokens, revoke as revoke_scim_token,
};
pub(super) use settings::{change as set_settings, get as settings};
pub(super) use statements::get as statement;
pub(super) use system::health;
pub(super) use teams::{change as change_team, close as close_team, create as create_team};
pub(super) use teams::{get as get_team, list as list_teams, put_member, remove_member};
pub(super) use terms::{get as get_terms, set as set_terms};
pub(super) use usage::usage;
pub(super) use users::{change as change_user, create as create_user, get as get_user};
pub(super) use users::{
    erase as erase_user, list as list_users, reset as reset_user, sign_out as sign_user_out,
};
pub(super) use vault::{get as get_vault, rekey as rekey_vault};

use ::admin::{Actor, AdminError, ReadVersion, version_of};
use axum::body::Bytes;
use axum::response::Response;
use http::StatusCode;
use http::header::{ETAG, HeaderValue};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use store::{Account, AccountRole, StoreError};
use transport::{ServerBody, ServerRequest, visible_text};

use crate::request::ApiRequest;
use crate::state::ApiState;
use access::keys::ApiKey;

/// Maximum size of a request body.
const MAX_BODY_BYTES: usize = 64 << 10;

/// Returns the account of the key. Refuses accounts that do not administrate.
async fn require_admin(state: &ApiState, key: &ApiKey) -> Result<Account, ApiError> {
    let account = state.store.account(&key.record.account_id).await.map_err(store_error)?;
    match account {
        Some(account) if !account.disabled => match account.role {
            AccountRole::Owner | AccountRole::Admin => Ok(account),
            AccountRole::Member | AccountRole::Viewer => {
                Err(permission_denied("administration is for administrators"))
            }
        },
        Some(_) | None => Err(permission_denied("administration is for administrators")),
    }
}

/// Error for a missing right. Without a code of its own the refusal would be that of a model.
pub(crate) fn permission_denied(message: impl Into<Cow<'static, str>>) -> ApiError {
    ApiError::new(ErrorKind::Forbidden, message).with_code("permission_denied")
}

/// Error for a wrong field. The message repeats the field, because these answers have no separate
/// place for it.
fn invalid_field(field: impl Into<String>, why: impl Into<String>) -> ApiError {
    let (field, why) = (field.into(), why.into());
    let message = format!("`{field}`: {why}");
    ApiError::invalid(field, message)
}

fn not_found(what: &str) -> ApiError {
    ApiError::new(ErrorKind::NotFound, format!("there is no such {what}"))
}

/// Error of the store as the caller sees it. Details go to the log only.
fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Conflict(what) => ApiError::invalid("", format!("it exists already: {what}")),
        StoreError::Unreachable(_)
        | StoreError::Missing(_)
        | StoreError::Newer { .. }
        | StoreError::Sealing(_)
        | StoreError::Other(_) => {
            ApiError::new(ErrorKind::Overloaded, "the store does not answer at the moment")
                .with_log_note(error.to_string())
        }
    }
}

/// Reads a body up to the size limit.
pub(super) async fn read_bytes(body: ServerBody) -> Result<Bytes, ApiError> {
    transport::read_whole(body, MAX_BODY_BYTES).await
}

/// Reads the JSON body of a change. Unknown fields are refused, so that a misspelt field has no
/// silent effect.
async fn read_body<T: DeserializeOwned>(request: ServerRequest) -> Result<T, ApiError> {
    let bytes = read_bytes(request.body).await?;
    // A derived struct would also accept a list of its fields in order.
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(ApiError::invalid("", "the body must be a JSON object"));
    }
    if has_reserved_name(&bytes) {
        return Err(ApiError::invalid(
            "",
            format!("the body has the reserved name `{RESERVED_NAME}`"),
        ));
    }
    let reader = &mut serde_json::Deserializer::from_slice(&bytes);
    let body = serde_path_to_error::deserialize(&mut *reader).map_err(|wrong| {
        let path = wrong.path().to_string();
        let message = without_type_names(&wrong.into_inner().to_string());
        match path.as_str() {
            "." | "?" => ApiError::invalid("", message),
            _ => invalid_field(path, message),
        }
    })?;
    reader.end().map_err(|wrong| ApiError::invalid("", wrong.to_string()))?;
    Ok(body)
}

/// Replaces the names of our types in a message of serde: `struct KeyBody` is an object to callers.
fn without_type_names(message: &str) -> String {
    let mut words = message.split(' ');
    let mut plain = Vec::new();
    while let Some(word) = words.next() {
        if word == "struct" {
            words.next();
            plain.push("an object");
        } else {
            plain.push(word);
        }
    }
    plain.join(" ")
}

/// Value of `If-Match`, owned, for use after the request was consumed.
struct IfMatch(Option<String>);

impl IfMatch {
    fn as_read_version(&self) -> ReadVersion<'_> {
        ReadVersion(self.0.as_deref())
    }
}

fn if_match(request: &ServerRequest) -> IfMatch {
    let read = request.headers().get("if-match");
    IfMatch(read.map(|value| visible_text(value).unwrap_or_default().to_owned()))
}

/// Returns the key as an actor, with the rights of its account.
async fn actor(state: &ApiState, key: &ApiKey) -> Result<Actor, ApiError> {
    let account = require_admin(state, key).await?;
    Ok(Actor::Key { account, record: Box::new(key.record.clone()) })
}

/// Error of administration as the API reports it.
fn admin_error(error: AdminError) -> ApiError {
    match error {
        AdminError::Forbidden(message) => permission_denied(message),
        AdminError::Invalid { field, message } if field.is_empty() => {
            ApiError::invalid("", message)
        }
        AdminError::Invalid { field, message } => invalid_field(field, message),
        AdminError::NotFound(what) => not_found(what),
        AdminError::Stale | AdminError::Concurrent => {
            ApiError::new(ErrorKind::PreconditionFailed, error.to_string())
        }
        AdminError::Conflict(message) => {
            ApiError::new(ErrorKind::Conflict, message).with_code("conflict").without_retry()
        }
        AdminError::Store(error) => store_error(error),
        AdminError::Internal(note) => ApiError::internal(note),
    }
}

/// Response with an object and its entity tag.
fn entity_response(status: StatusCode, value: &impl Serialize) -> Response {
    tagged_response(status, value, value)
}

/// Response with an object whose entity tag covers `stable`, the part of it that changes only
/// through administration.
fn tagged_response(
    status: StatusCode,
    shown: &impl Serialize,
    stable: &impl Serialize,
) -> Response {
    let mut response = view_response(shown);
    *response.status_mut() = status;
    if let Ok(tag) = HeaderValue::from_str(&version_of(stable)) {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// Response with an object.
fn view_response(view: &impl Serialize) -> Response {
    // Only a map with keys that are no text could fail, and no view has one.
    relay::json_response(serde_json::to_string(view).unwrap_or_default())
}

/// An object behind the field `success`.
#[derive(Serialize)]
struct SuccessBody<T> {
    success: bool,
    #[serde(flatten)]
    view: T,
}

fn success_response(view: impl Serialize) -> Response {
    view_response(&SuccessBody { success: true, view })
}

/// Response with a list.
fn list_response(data: Vec<impl Serialize>) -> Response {
    #[derive(Serialize)]
    struct ListBody<T> {
        total: usize,
        data: Vec<T>,
    }
    success_response(ListBody { total: data.len(), data })
}

/// Returns the id in the request path between `before` and `behind`.
fn path_id(incoming: &ApiRequest, before: &str, behind: &str) -> String {
    let path = incoming.request.path();
    let id = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(behind));
    id.unwrap_or_default().to_owned()
}

/// Formats a time as RFC 3339.
pub(crate) fn rfc3339(at: Micros) -> Option<String> {
    jiff::Timestamp::from_microsecond(at.get()).map(|time| time.to_string()).ok()
}

/// Deserialises a present field, including `null`. An absent field needs `#[serde(default)]`.
fn sent<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}
