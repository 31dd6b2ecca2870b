//! Accounts: list, make, change role, lock, hand out a link to choose a password.

use axum::response::Response;
use canon::ApiError;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountRole};

use super::{
    ApiRequest, admin, away, body, forbidden, id_in, invalid, may_change, missing, note, thing,
    unchanged,
};
use crate::state::ApiState;
use access::keys::Key;

const AT: &str = "/api/admin/users/";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    role: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    disabled: Option<bool>,
}

fn told(account: &Account) -> Value {
    json!({
        "id": account.id,
        "name": account.username,
        "email": account.email,
        "role": account.role.word(),
        "disabled": account.disabled,
        "has_password": account.password_hash.is_some(),
        "created_at": super::time(account.created),
    })
}

fn role(word: &str) -> Result<AccountRole, ApiError> {
    AccountRole::by_word(word).ok_or_else(|| invalid("role", "write owner, admin, member or viewer"))
}

/// Nobody gives more than they have.
fn may_give(own: AccountRole, given: AccountRole) -> Result<(), ApiError> {
    let may = ::admin::may_give(own, given);
    if may { Ok(()) } else { Err(forbidden("you may not give this role")) }
}

pub(crate) async fn list(asked: ApiRequest) -> Result<Response, ApiError> {
    admin(&asked.state, &asked.key).await?;
    let accounts = asked.state.store.accounts().await.map_err(away)?;
    Ok(super::list(accounts.iter().map(told).collect()))
}

async fn find(state: &ApiState, key: &Key, id: String) -> Result<(Account, Account), ApiError> {
    let who = admin(state, key).await?;
    let found = state.store.account(&id).await.map_err(away)?;
    Ok((who, found.ok_or_else(|| missing("user"))?))
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    let (_, account) = find(&asked.state, &asked.key, id_in(&asked, AT, "")).await?;
    Ok(thing(StatusCode::OK, &told(&account)))
}

pub(crate) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    let who = admin(&asked.state, &asked.key).await?;
    let ApiRequest { state, request, .. } = asked;
    let New { name, email, role: word } = body(request).await?;
    let given = word.as_deref().map(role).transpose()?.unwrap_or(AccountRole::Member);
    may_give(who.role, given)?;
    if let Some(why) = ::admin::names_objection(&name, email.as_deref()) {
        return Err(invalid("name", why));
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
    state.store.add_account(&account).await.map_err(away)?;
    note(&state, &who, "account.create", &account.id, given.word()).await;
    let mut value = told(&account);
    if let Value::Object(fields) = &mut value {
        fields.insert("link".to_owned(), Value::from(link(&state, &account).await?));
    }
    Ok(thing(StatusCode::CREATED, &value))
}

/// A link with which the account chooses a password.
async fn link(state: &ApiState, account: &Account) -> Result<String, ApiError> {
    let path = ::admin::reset_link(&state.store, account, state.clock().now()).await;
    let path = path.map_err(ApiError::internal)?;
    Ok(format!("{}{path}", state.config().public_url))
}

pub(crate) async fn change(asked: ApiRequest) -> Result<Response, ApiError> {
    let (who, account) = find(&asked.state, &asked.key, id_in(&asked, AT, "")).await?;
    let ApiRequest { state, request, .. } = asked;
    may_change(&who, &account)?;
    unchanged(request.headers(), &told(&account))?;
    let Change { role: word, disabled } = body(request).await?;
    let given = word.as_deref().map(role).transpose()?;
    let loses = given.is_some_and(|role| role != AccountRole::Owner) || disabled == Some(true);
    if account.role == AccountRole::Owner && loses {
        let others = state.store.accounts().await.map_err(away)?;
        let stays =
            |one: &Account| one.role == AccountRole::Owner && !one.disabled && one.id != account.id;
        if !others.iter().any(stays) {
            return Err(forbidden("this is the only owner; make another one first"));
        }
    }
    let now = state.clock().now();
    if let Some(role) = given.filter(|role| *role != account.role) {
        may_give(who.role, role)?;
        state.store.set_role(&account.id, role, now).await.map_err(away)?;
        note(&state, &who, "account.role", &account.id, role.word()).await;
    }
    if let Some(disabled) = disabled.filter(|disabled| *disabled != account.disabled) {
        state.store.set_disabled(&account.id, disabled, now).await.map_err(away)?;
        let action = if disabled { "account.disable" } else { "account.enable" };
        note(&state, &who, action, &account.id, "").await;
    }
    let account = state.store.account(&account.id).await.map_err(away)?;
    Ok(thing(StatusCode::OK, &told(&account.ok_or_else(|| missing("user"))?)))
}

pub(crate) async fn reset(asked: ApiRequest) -> Result<Response, ApiError> {
    let (who, account) = find(&asked.state, &asked.key, id_in(&asked, AT, "/reset")).await?;
    may_change(&who, &account)?;
    if account.disabled {
        return Err(ApiError::invalid("", "the account is locked"));
    }
    let link = link(&asked.state, &account).await?;
    note(&asked.state, &who, "account.reset_link", &account.id, "").await;
    Ok(thing(StatusCode::OK, &json!({ "id": account.id, "link": link })))
}
