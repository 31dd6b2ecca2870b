//! `/api/admin/users`: list, create, change role, lock, issue a password link.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountRole};

use super::{
    ApiRequest, check_if_match, entity_response, forbidden, invalid_field, not_found, path_id,
    read_body, require_admin, require_may_change, store_error, write_audit,
};
use crate::state::ApiState;
use access::keys::ApiKey;

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

fn user_json(account: &Account) -> Value {
    json!({
        "id": account.id,
        "name": account.username,
        "email": account.email,
        "role": account.role.word(),
        "disabled": account.disabled,
        "has_password": account.password_hash.is_some(),
        "created_at": super::rfc3339(account.created),
    })
}

fn parse_role(word: &str) -> Result<AccountRole, ApiError> {
    AccountRole::by_word(word)
        .ok_or_else(|| invalid_field("role", "write owner, admin, member or viewer"))
}

/// Refuses a role above the caller's own.
fn require_may_grant(own: AccountRole, given: AccountRole) -> Result<(), ApiError> {
    let may = ::admin::may_grant_role(own, given);
    if may { Ok(()) } else { Err(forbidden("you may not grant this role")) }
}

pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    require_admin(&incoming.state, &incoming.key).await?;
    let accounts = incoming.state.store.accounts().await.map_err(store_error)?;
    Ok(super::list_response(accounts.iter().map(user_json).collect()))
}

async fn find_user(
    state: &ApiState,
    key: &ApiKey,
    id: String,
) -> Result<(Account, Account), ApiError> {
    let caller = require_admin(state, key).await?;
    let found = state.store.account(&id).await.map_err(store_error)?;
    Ok((caller, found.ok_or_else(|| not_found("user"))?))
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (_, account) =
        find_user(&incoming.state, &incoming.key, path_id(&incoming, PATH_PREFIX, "")).await?;
    Ok(entity_response(StatusCode::OK, &user_json(&account)))
}

pub(crate) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let caller = require_admin(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, request, .. } = incoming;
    let NewUserBody { name, email, role: word } = read_body(request).await?;
    let given = word.as_deref().map(parse_role).transpose()?.unwrap_or(AccountRole::Member);
    require_may_grant(caller.role, given)?;
    if let Some(why) = ::admin::account_names_error(&name, email.as_deref()) {
        return Err(invalid_field("name", why));
    }
    let now = state.clock().now();
    let account = Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: name,
        email,
        role: given,
        password_hash: None,
        disabled: false,
        created: now,
        changed: now,
    };
    state.store.add_account(&account).await.map_err(store_error)?;
    write_audit(&state, &caller, "account.create", &account.id, given.word()).await;
    let mut value = user_json(&account);
    if let Value::Object(fields) = &mut value {
        fields.insert("link".to_owned(), Value::from(reset_link(&state, &account).await?));
    }
    Ok(entity_response(StatusCode::CREATED, &value))
}

/// Creates a link with which the account chooses a password.
async fn reset_link(state: &ApiState, account: &Account) -> Result<String, ApiError> {
    let path = ::admin::reset_link(&state.store, account, state.clock().now()).await;
    let path = path.map_err(ApiError::internal)?;
    Ok(format!("{}{path}", state.config().public_url))
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (caller, account) =
        find_user(&incoming.state, &incoming.key, path_id(&incoming, PATH_PREFIX, "")).await?;
    let ApiRequest { state, request, .. } = incoming;
    require_may_change(&caller, &account)?;
    check_if_match(request.headers(), &user_json(&account))?;
    let UserBody { role: word, disabled } = read_body(request).await?;
    let given = word.as_deref().map(parse_role).transpose()?;
    let loses = given.is_some_and(|role| role != AccountRole::Owner) || disabled == Some(true);
    if account.role == AccountRole::Owner && loses {
        let others = state.store.accounts().await.map_err(store_error)?;
        let stays =
            |one: &Account| one.role == AccountRole::Owner && !one.disabled && one.id != account.id;
        if !others.iter().any(stays) {
            return Err(forbidden("this is the only owner; create another one first"));
        }
    }
    let now = state.clock().now();
    if let Some(role) = given.filter(|role| *role != account.role) {
        require_may_grant(caller.role, role)?;
        state.store.set_role(&account.id, role, now).await.map_err(store_error)?;
        write_audit(&state, &caller, "account.role", &account.id, role.word()).await;
    }
    if let Some(disabled) = disabled.filter(|disabled| *disabled != account.disabled) {
        state.store.set_disabled(&account.id, disabled, now).await.map_err(store_error)?;
        let action = if disabled { "account.disable" } else { "account.enable" };
        write_audit(&state, &caller, action, &account.id, "").await;
    }
    let account = state.store.account(&account.id).await.map_err(store_error)?;
    Ok(entity_response(StatusCode::OK, &user_json(&account.ok_or_else(|| not_found("user"))?)))
}

pub(crate) async fn reset(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (caller, account) =
        find_user(&incoming.state, &incoming.key, path_id(&incoming, PATH_PREFIX, "/reset"))
            .await?;
    require_may_change(&caller, &account)?;
    if account.disabled {
        return Err(ApiError::invalid("", "the account is locked"));
    }
    let link = reset_link(&incoming.state, &account).await?;
    write_audit(&incoming.state, &caller, "account.reset_link", &account.id, "").await;
    Ok(entity_response(StatusCode::OK, &json!({ "id": account.id, "link": link })))
}
