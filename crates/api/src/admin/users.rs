//! `/api/admin/users`: list, create, change role, lock, erase, issue a password link, sign out.

use ::admin::{AccountChange, AccountDraft, CreatedAccount, user_json};
use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::AccountRole;

use super::{
    ApiRequest, actor, admin_error, entity_response, if_match, invalid_field, path_id, read_body,
};
use crate::state::ApiState;

const PATH_PREFIX: &str = "/api/admin/users/";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewUserBody {
    name: String,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    role: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserBody {
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    disabled: Option<bool>,
}

fn parse_role(word: &str) -> Result<AccountRole, ApiError> {
    AccountRole::by_word(word)
        .ok_or_else(|| invalid_field("role", "write owner, admin, member or viewer"))
}

fn absolute(state: &ApiState, path: &str) -> String {
    format!("{}{path}", state.config().public_url)
}

pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let users = incoming.state.admin.accounts.users(&actor).await.map_err(admin_error)?;
    Ok(super::list_response(users.iter().map(user_json).collect()))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let user = incoming.state.admin.accounts.user(&actor, &id).await.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &user_json(&user)))
}

pub(crate) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let NewUserBody { name, email, role } = read_body(request).await?;
    let role = role.as_deref().map(parse_role).transpose()?.unwrap_or(AccountRole::Member);
    let draft = AccountDraft { username: name, email, role, password: None };
    let created = state.admin.accounts.create_account(&actor, draft).await.map_err(admin_error)?;
    let CreatedAccount { account, link } = created;
    let mut value = user_json(&account);
    if let (Value::Object(fields), Some(path)) = (&mut value, link) {
        fields.insert("link".to_owned(), Value::from(absolute(&state, &path)));
    }
    Ok(entity_response(StatusCode::CREATED, &value))
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let ApiRequest { state, request, .. } = incoming;
    let read = if_match(&request);
    let UserBody { role, disabled } = read_body(request).await?;
    let change = AccountChange { role: role.as_deref().map(parse_role).transpose()?, disabled };
    let accounts = &state.admin.accounts;
    let changed = accounts.change_account(&actor, &id, read.as_read_version(), change).await;
    Ok(entity_response(StatusCode::OK, &user_json(&changed.map_err(admin_error)?)))
}

/// Erases the personal data of an account.
pub(crate) async fn erase(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let state = &incoming.state;
    let erased = state.admin.accounts.erase_account(&actor, &id, &state.engine.files).await;
    let rows = erased.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &json!({ "id": id, "erased": true, "rows": rows })))
}

pub(crate) async fn reset(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, "/reset"));
    let state = &incoming.state;
    let path = state.admin.accounts.issue_password_link(&actor, &id).await.map_err(admin_error)?;
    let link = absolute(state, &path);
    Ok(entity_response(StatusCode::OK, &json!({ "id": id, "link": link })))
}

pub(crate) async fn sign_out(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let id = path_id(&incoming, PATH_PREFIX, "/sign-out");
    let ended = incoming.state.admin.accounts.end_sessions(&actor, &id).await;
    let ended = ended.map_err(admin_error)?;
    Ok(entity_response(StatusCode::OK, &json!({ "id": id, "ended": ended })))
}
