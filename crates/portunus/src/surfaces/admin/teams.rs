//! Teams: list, make, change, close, and who belongs to them.

use axum::response::Response;
use canon::Fault;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, AccountTerms, Limits, Member, Seated, Store, Team, TeamRole, TeamTotal};

use super::keys::{Budget, Pace, amount, terms};
use super::{Asked, admin, away, body, id_in, invalid, missing, note, sent, tagged, unchanged};
use crate::app::App;
use crate::keys::told_budget;
use crate::surfaces::query::pairs;

const AT: &str = "/api/admin/teams/";

/// What can be said of a team; what is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    disabled: Option<bool>,
    /// `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    cap_usd: Option<Option<String>>,
    #[serde(default, deserialize_with = "sent")]
    budget: Option<Option<Budget>>,
    #[serde(default)]
    limits: Option<Pace>,
}

impl Wish {
    /// What the team is to be, from what it is.
    fn apply(self, mut whole: Whole) -> Result<Whole, Fault> {
        let Self { name, disabled, cap_usd, budget, limits } = self;
        if let Some(name) = name {
            if let Some(why) = console::team_objection(&name) {
                return Err(invalid("name", why));
            }
            whole.team.name = name;
        }
        if let Some(disabled) = disabled {
            whole.team.disabled = disabled;
        }
        if let Some(cap) = cap_usd {
            whole.money.cap = cap.map(|text| amount("cap_usd", &text)).transpose()?;
        }
        if let Some(budget) = budget {
            whole.money.budget = budget.map(terms).transpose()?;
        }
        if let Some(pace) = limits {
            whole.limits = pace.limits()?;
        }
        Ok(whole)
    }
}

/// A team with everything that can be changed about it.
#[derive(Clone)]
struct Whole {
    team: Team,
    money: AccountTerms,
    limits: Limits,
    members: Vec<Member>,
}

impl Whole {
    async fn of(store: &Store, id: &str) -> Result<Self, Fault> {
        let team = store.team(id).await.map_err(away)?.ok_or_else(|| missing("team"))?;
        let money = store.account_terms().await.map_err(away)?;
        let limits = store.account_limits().await.map_err(away)?;
        let members = store.members(&team.id).await.map_err(away)?;
        Ok(Self { money: of(&money, &team.id), limits: of(&limits, &team.id), members, team })
    }

    fn told(&self) -> Value {
        let mut value = told(&self.team, self.money, self.limits);
        if let Value::Object(fields) = &mut value {
            let members = self.members.iter().map(|Member { account, role, since }| {
                json!({
                    "account_id": account.id,
                    "name": account.username,
                    "role": role.word(),
                    "disabled": account.disabled,
                    "since": super::time(*since),
                })
            });
            fields.insert("members".to_owned(), members.collect());
        }
        value
    }
}

/// What is known of an account, or nothing.
fn of<T: Copy + Default>(all: &[(String, T)], id: &str) -> T {
    all.iter().find(|(own, _)| own == id).map(|(_, found)| *found).unwrap_or_default()
}

/// What can be changed of a team.
fn told(team: &Team, money: AccountTerms, limits: Limits) -> Value {
    let AccountTerms { cap, budget } = money;
    let Limits { rpm, tpm, concurrency } = limits;
    json!({
        "id": team.id,
        "name": team.name,
        "disabled": team.disabled,
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(told_budget),
        "limits": { "rpm": rpm, "tpm": tpm, "concurrency": concurrency },
        "created_at": super::time(team.created),
    })
}

pub(in crate::surfaces) async fn list(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let store = &asked.app.store;
    let money = store.account_terms().await.map_err(away)?;
    let limits = store.account_limits().await.map_err(away)?;
    let teams = store.teams().await.map_err(away)?;
    let teams = teams.iter().map(|TeamTotal { team, spent, members }| {
        let mut value = told(team, of(&money, &team.id), of(&limits, &team.id));
        if let Value::Object(fields) = &mut value {
            fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
            fields.insert("member_count".to_owned(), Value::from(*members));
        }
        value
    });
    Ok(super::list(teams.collect()))
}

/// A team as it is now. What it has spent is told as well, but is no part of its tag: calls are no
/// change of the team.
async fn fresh(app: &App, id: &str, status: StatusCode) -> Result<Response, Fault> {
    let part = Whole::of(&app.store, id).await?.told();
    let (spent, _) = app.store.account_spending(id).await.map_err(away)?;
    let mut value = part.clone();
    if let Value::Object(fields) = &mut value {
        fields.insert("spent_usd".to_owned(), Value::from(spent.to_string()));
    }
    Ok(tagged(status, &value, &part))
}

pub(in crate::surfaces) async fn get(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    fresh(&asked.app, &id_in(&asked, AT, ""), StatusCode::OK).await
}

pub(in crate::surfaces) async fn create(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let Asked { app, request, .. } = asked;
    let wish: Wish = body(request).await?;
    if wish.name.is_none() {
        return Err(invalid("name", "is required"));
    }
    let now = app.clock.now();
    let team = Team {
        id: uuid::Uuid::now_v7().to_string(),
        name: String::new(),
        disabled: false,
        created: now,
        changed: now,
    };
    let blank =
        Whole { team, money: AccountTerms::default(), limits: Limits::default(), members: vec![] };
    let whole = wish.apply(blank.clone())?;
    app.store.add_team(&whole.team).await.map_err(away)?;
    note(&app, &who, "team.create", &whole.team.id, &whole.team.name).await;
    set_terms(&app, &who, &blank, &whole).await?;
    fresh(&app, &whole.team.id, StatusCode::CREATED).await
}

/// Gives a team what of its terms is new.
async fn set_terms(app: &App, who: &Account, before: &Whole, whole: &Whole) -> Result<(), Fault> {
    let id = &whole.team.id;
    let mut what = Vec::new();
    if whole.money != before.money {
        app.store.set_account_terms(id, whole.money).await.map_err(away)?;
        what.push(whole.money.to_string());
    }
    if whole.limits != before.limits {
        app.store.set_account_limits(id, whole.limits).await.map_err(away)?;
        what.push("limits".to_owned());
    }
    if !what.is_empty() {
        note(app, who, "team.terms", id, &what.join(", ")).await;
    }
    Ok(())
}

pub(in crate::surfaces) async fn change(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let id = id_in(&asked, AT, "");
    let Asked { app, request, .. } = asked;
    let before = Whole::of(&app.store, &id).await?;
    unchanged(request.headers(), &before.told())?;
    let whole = body::<Wish>(request).await?.apply(before.clone())?;
    let now = app.clock.now();
    if whole.team.name != before.team.name {
        let name = &whole.team.name;
        app.store.rename_account(&id, name, None, now).await.map_err(away)?;
        note(&app, &who, "team.rename", &id, name).await;
    }
    set_terms(&app, &who, &before, &whole).await?;
    set_disabled(&app, &who, &before.team, whole.team.disabled).await?;
    fresh(&app, &id, StatusCode::OK).await
}

/// Closes a team or opens it again; its keys stop or work at once.
async fn set_disabled(app: &App, who: &Account, team: &Team, disabled: bool) -> Result<(), Fault> {
    if team.disabled == disabled {
        return Ok(());
    }
    app.store.set_disabled(&team.id, disabled, app.clock.now()).await.map_err(away)?;
    let action = if disabled { "team.disable" } else { "team.enable" };
    note(app, who, action, &team.id, &team.name).await;
    for key in app.store.keys_of(&team.id).await.map_err(away)? {
        console::Host::key_changed(app, key);
    }
    Ok(())
}

pub(in crate::surfaces) async fn close(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let id = id_in(&asked, AT, "");
    let whole = Whole::of(&asked.app.store, &id).await?;
    unchanged(asked.request.headers(), &whole.told())?;
    set_disabled(&asked.app, &who, &whole.team, true).await?;
    fresh(&asked.app, &id, StatusCode::OK).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    role: String,
}

/// The team and the account in a path.
fn both_in(asked: &Asked) -> Result<(String, String), Fault> {
    let rest = id_in(asked, AT, "");
    let both = rest.split_once("/members/").ok_or_else(|| missing("team"))?;
    Ok((both.0.to_owned(), both.1.to_owned()))
}

pub(in crate::surfaces) async fn put_member(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let (id, account) = both_in(&asked)?;
    let Asked { app, request, .. } = asked;
    unchanged(request.headers(), &Whole::of(&app.store, &id).await?.told())?;
    let Place { role } = body(request).await?;
    let role = TeamRole::by_word(&role)
        .ok_or_else(|| invalid("role", "write manager, member or viewer"))?;
    seat(&app, &who, &id, &account, Some(role)).await?;
    fresh(&app, &id, StatusCode::OK).await
}

pub(in crate::surfaces) async fn remove_member(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let (id, account) = both_in(&asked)?;
    let query = pairs(asked.request.uri().query().unwrap_or_default());
    let keys = query.into_iter().find(|(name, _)| name == "keys").map(|(_, word)| word);
    let revokes = match keys.as_deref() {
        Some("revoke") => true,
        Some("keep") | None => false,
        Some(_) => return Err(invalid("keys", "write keep or revoke")),
    };
    let app = asked.app;
    unchanged(asked.request.headers(), &Whole::of(&app.store, &id).await?.told())?;
    seat(&app, &who, &id, &account, None).await?;
    if revokes {
        let keys = app.store.keys_made_by(&account).await.map_err(away)?;
        for key in keys.iter().filter(|key| key.account_id == id) {
            if app.store.revoke_key(&key.id, app.clock.now()).await.map_err(away)? {
                note(&app, &who, "key.revoke", &key.id, &key.name).await;
                if let Some(record) = app.store.key(&key.id).await.map_err(away)? {
                    console::Host::key_changed(app.as_ref(), record);
                }
            }
        }
    }
    fresh(&app, &id, StatusCode::OK).await
}

async fn seat(
    app: &App,
    who: &Account,
    team: &str,
    account: &str,
    role: Option<TeamRole>,
) -> Result<(), Fault> {
    let now = app.clock.now();
    match app.store.set_member(team, account, role, true, now).await.map_err(away)? {
        Seated::Done => {}
        Seated::Missing | Seated::LastManager => return Err(missing("member")),
    }
    match role {
        Some(role) => {
            note(app, who, "team.member", team, &format!("{account} {}", role.word())).await;
        }
        None => note(app, who, "team.remove_member", team, account).await,
    }
    Ok(())
}
