//! Accounts: list, make, change role, lock, hand out a link to choose a password.

use axum::response::Response;
use canon::Fault;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, Role};

use super::{
    Asked, admin, away, body, forbidden, id_in, invalid, may_change, missing, note, thing,
    unchanged,
};
use crate::app::App;
use crate::keys::Key;

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

fn role(word: &str) -> Result<Role, Fault> {
    Role::by_word(word).ok_or_else(|| invalid("role", "write owner, admin, member or viewer"))
}

/// Nobody gives more than they have.
fn may_give(own: Role, given: Role) -> Result<(), Fault> {
    let may = console::may_give(own, given);
    if may { Ok(()) } else { Err(forbidden("you may not give this role")) }
}

pub(in crate::surfaces) async fn list(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let accounts = asked.app.store.accounts().await.map_err(away)?;
    Ok(super::list(accounts.iter().map(told).collect()))
}

async fn find(app: &App, key: &Key, id: String) -> Result<(Account, Account), Fault> {
    let who = admin(app, key).await?;
    let found = app.store.account(&id).await.map_err(away)?;
    Ok((who, found.ok_or_else(|| missing("user"))?))
}

pub(in crate::surfaces) async fn get(asked: Asked) -> Result<Response, Fault> {
    let (_, account) = find(&asked.app, &asked.key, id_in(&asked, AT, "")).await?;
    Ok(thing(StatusCode::OK, &told(&account)))
}

pub(in crate::surfaces) async fn create(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let Asked { app, request, .. } = asked;
    let New { name, email, role: word } = body(request).await?;
    let given = word.as_deref().map(role).transpose()?.unwrap_or(Role::Member);
    may_give(who.role, given)?;
    if let Some(why) = console::names_objection(&name, email.as_deref()) {
        return Err(invalid("name", why));
    }
    let now = app.clock.now();
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
    app.store.add_account(&account).await.map_err(away)?;
    note(&app, &who, "account.create", &account.id, given.word()).await;
    let mut value = told(&account);
    if let Value::Object(fields) = &mut value {
        fields.insert("link".to_owned(), Value::from(link(&app, &account).await?));
    }
    Ok(thing(StatusCode::CREATED, &value))
}

/// A link with which the account chooses a password.
async fn link(app: &App, account: &Account) -> Result<String, Fault> {
    let path = console::reset_link(&app.store, account, app.clock.now()).await;
    let path = path.map_err(Fault::internal)?;
    Ok(format!("{}{path}", app.config().public_url))
}

pub(in crate::surfaces) async fn change(asked: Asked) -> Result<Response, Fault> {
    let (who, account) = find(&asked.app, &asked.key, id_in(&asked, AT, "")).await?;
    let Asked { app, request, .. } = asked;
    may_change(&who, &account)?;
    unchanged(request.headers(), &told(&account))?;
    let Change { role: word, disabled } = body(request).await?;
    let given = word.as_deref().map(role).transpose()?;
    let loses = given.is_some_and(|role| role != Role::Owner) || disabled == Some(true);
    if account.role == Role::Owner && loses {
        let others = app.store.accounts().await.map_err(away)?;
        let stays =
            |one: &Account| one.role == Role::Owner && !one.disabled && one.id != account.id;
        if !others.iter().any(stays) {
            return Err(forbidden("this is the only owner; make another one first"));
        }
    }
    let now = app.clock.now();
    if let Some(role) = given.filter(|role| *role != account.role) {
        may_give(who.role, role)?;
        app.store.set_role(&account.id, role, now).await.map_err(away)?;
        note(&app, &who, "account.role", &account.id, role.word()).await;
    }
    if let Some(disabled) = disabled.filter(|disabled| *disabled != account.disabled) {
        app.store.set_disabled(&account.id, disabled, now).await.map_err(away)?;
        let action = if disabled { "account.disable" } else { "account.enable" };
        note(&app, &who, action, &account.id, "").await;
    }
    let account = app.store.account(&account.id).await.map_err(away)?;
    Ok(thing(StatusCode::OK, &told(&account.ok_or_else(|| missing("user"))?)))
}

pub(in crate::surfaces) async fn reset(asked: Asked) -> Result<Response, Fault> {
    let (who, account) = find(&asked.app, &asked.key, id_in(&asked, AT, "/reset")).await?;
    may_change(&who, &account)?;
    if account.disabled {
        return Err(Fault::invalid("", "the account is locked"));
    }
    let link = link(&asked.app, &account).await?;
    note(&asked.app, &who, "account.reset_link", &account.id, "").await;
    Ok(thing(StatusCode::OK, &json!({ "id": account.id, "link": link })))
}
