//! Keys of all accounts: list, make, change, rotate, revoke.

use axum::response::Response;
use canon::{Fault, Money};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{Account, BudgetTerms, KeyRecord, Limits, Owner};

use super::{
    ApiRequest, admin, away, body, id_in, invalid, may_change, missing, note, sent, thing,
    unchanged,
};
use crate::query::pairs;
use crate::state::ApiState;
use ::admin::NewKey;
use access::keys::{Key, NewToken, hash, told};
use config::Net;
use config::duration;

const AT: &str = "/api/admin/keys/";

/// What can be said of a key; what is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    #[serde(default)]
    account_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    /// `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    cap_usd: Option<Option<String>>,
    #[serde(default)]
    models: Option<Vec<String>>,
    /// How long it lives from now, such as `30d`; `null` is for ever.
    #[serde(default, deserialize_with = "sent")]
    expires_in: Option<Option<String>>,
    #[serde(default)]
    limits: Option<Pace>,
    #[serde(default)]
    ips: Option<Vec<String>>,
    #[serde(default, deserialize_with = "sent")]
    budget: Option<Option<Budget>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pace {
    #[serde(default)]
    rpm: Option<u32>,
    #[serde(default)]
    tpm: Option<u32>,
    #[serde(default)]
    concurrency: Option<u32>,
}

impl Pace {
    pub(super) fn limits(self) -> Result<Limits, Fault> {
        let Self { rpm, tpm, concurrency } = self;
        let limits =
            [("limits.rpm", rpm), ("limits.tpm", tpm), ("limits.concurrency", concurrency)];
        if let Some((field, _)) = limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            return Err(invalid(field, "must be above zero; leave it out for no limit"));
        }
        Ok(Limits { rpm, tpm, concurrency })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    most_usd: String,
    per: String,
}

impl Wish {
    /// Makes the record what is wished.
    fn apply(self, record: &mut KeyRecord, now: i64) -> Result<(), Fault> {
        let Self { account_id: _, name, cap_usd, models, expires_in, limits, ips, budget } = self;
        if let Some(name) = name {
            if name.trim().is_empty() || name.len() > 200 {
                return Err(invalid("name", "must have 1 to 200 bytes"));
            }
            record.name = name;
        }
        if let Some(cap) = cap_usd {
            record.cap = cap.map(|text| amount("cap_usd", &text)).transpose()?;
        }
        if let Some(models) = models {
            record.models = models;
        }
        if let Some(life) = expires_in {
            record.expires = life.map(|text| later(&text, now)).transpose()?;
        }
        if let Some(pace) = limits {
            record.limits = pace.limits()?;
        }
        if let Some(ips) = ips {
            for text in &ips {
                Net::read(text).map_err(|why| invalid("ips", why))?;
            }
            record.ips = ips;
        }
        if let Some(budget) = budget {
            record.budget = budget.map(terms).transpose()?;
        }
        Ok(())
    }
}

pub(super) fn amount(field: &'static str, text: &str) -> Result<Money, Fault> {
    let money: Money = text
        .parse()
        .map_err(|_| invalid(field, "write an amount in USD as text, such as \"5.00\""))?;
    if money.is_negative() {
        return Err(invalid(field, "must not be below zero"));
    }
    Ok(money)
}

fn later(text: &str, now: i64) -> Result<i64, Fault> {
    let life = duration(text).map_err(|why| invalid("expires_in", why))?;
    Ok(now.saturating_add(i64::try_from(life.as_micros()).unwrap_or(i64::MAX)))
}

pub(super) fn terms(Budget { most_usd, per }: Budget) -> Result<BudgetTerms, Fault> {
    let most = amount("budget.most_usd", &most_usd)?;
    let period = ledger::Period::by_word(&per)
        .ok_or_else(|| invalid("budget.per", "write day, week or month"))?;
    Ok(BudgetTerms { most, period })
}

pub(crate) async fn list(asked: ApiRequest) -> Result<Response, Fault> {
    admin(&asked.state, &asked.key).await?;
    let query = pairs(asked.request.uri().query().unwrap_or_default());
    let account = query.into_iter().find(|(name, _)| name == "account_id").map(|(_, id)| id);
    let store = &asked.state.store;
    let keys = match &account {
        Some(account) => store.keys_of(account).await,
        None => store.keys().await,
    };
    let now = asked.state.clock().now();
    Ok(super::list(keys.map_err(away)?.iter().map(|key| told(key, now)).collect()))
}

/// The key of a path, the account it belongs to and who asks.
async fn find(state: &ApiState, key: &Key, id: String) -> Result<(Account, KeyRecord), Fault> {
    let who = admin(state, key).await?;
    let record = state.store.key(&id).await.map_err(away)?.ok_or_else(|| missing("key"))?;
    Ok((who, record))
}

/// Who owns what belongs to that account, if whoever asks may change it: what is a team's they may.
async fn owned(state: &ApiState, who: &Account, account_id: &str) -> Result<Owner, Fault> {
    let owner = state.store.owner(account_id).await.map_err(away)?;
    let owner = owner.ok_or_else(|| invalid("account_id", "there is no such account"))?;
    match &owner {
        Owner::Person(account) => may_change(who, account)?,
        Owner::Team(_) => {}
    }
    Ok(owner)
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, Fault> {
    let (_, record) = find(&asked.state, &asked.key, id_in(&asked, AT, "")).await?;
    Ok(thing(StatusCode::OK, &told(&record, asked.state.clock().now())))
}

pub(crate) async fn create(asked: ApiRequest) -> Result<Response, Fault> {
    let who = admin(&asked.state, &asked.key).await?;
    let ApiRequest { state, request, .. } = asked;
    let wish: Wish = body(request).await?;
    let now = state.clock().now();
    let owner = wish.account_id.clone().unwrap_or_else(|| who.id.clone());
    let owner = owned(&state, &who, &owner).await?;
    if wish.name.is_none() {
        return Err(invalid("name", "is required"));
    }
    if wish.cap_usd.is_none() {
        let say = "is required: an amount, or null for unlimited";
        return Err(invalid("cap_usd", say));
    }
    let key = NewKey { name: String::new(), cap: None, models: vec![], expires: None };
    let made = key.make(owner.id(), &state.engine.keys, now);
    let (mut record, text) = made.map_err(|e| Fault::internal(e.to_string()))?;
    wish.apply(&mut record, now)?;
    record.made_by = Some(who.id.clone());
    state.store.add_key(&record).await.map_err(away)?;
    note(&state, &who, "key.create", &record.id, &record.name).await;
    state.admin.key_changed(record.clone());
    let mut value = told(&record, now);
    if let Value::Object(fields) = &mut value {
        fields.insert("key".to_owned(), Value::from(text));
    }
    Ok(thing(StatusCode::CREATED, &value))
}

pub(crate) async fn change(asked: ApiRequest) -> Result<Response, Fault> {
    let (who, mut record) = find(&asked.state, &asked.key, id_in(&asked, AT, "")).await?;
    let ApiRequest { state, request, .. } = asked;
    owned(&state, &who, &record.account_id).await?;
    let now = state.clock().now();
    unchanged(request.headers(), &told(&record, now))?;
    let wish: Wish = body(request).await?;
    if wish.account_id.as_ref().is_some_and(|id| *id != record.account_id) {
        return Err(invalid("account_id", "a key stays with its account"));
    }
    wish.apply(&mut record, now)?;
    record.changed = now;
    state.store.update_key(&record).await.map_err(away)?;
    note(&state, &who, "key.change", &record.id, &record.name).await;
    fresh(&state, &record.id).await
}

pub(crate) async fn revoke(asked: ApiRequest) -> Result<Response, Fault> {
    let (who, record) = find(&asked.state, &asked.key, id_in(&asked, AT, "")).await?;
    let state = asked.state;
    owned(&state, &who, &record.account_id).await?;
    unchanged(asked.request.headers(), &told(&record, state.clock().now()))?;
    if state.store.revoke_key(&record.id, state.clock().now()).await.map_err(away)? {
        note(&state, &who, "key.revoke", &record.id, &record.name).await;
    }
    fresh(&state, &record.id).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Overlap {
    /// How long the old value works on.
    #[serde(default)]
    overlap: Option<String>,
}

pub(crate) async fn rotate(asked: ApiRequest) -> Result<Response, Fault> {
    let (who, record) = find(&asked.state, &asked.key, id_in(&asked, AT, "/rotate")).await?;
    let ApiRequest { state, request, .. } = asked;
    owned(&state, &who, &record.account_id).await?;
    let Overlap { overlap } = body(request).await?;
    let now = state.clock().now();
    let until = later(overlap.as_deref().unwrap_or("24h"), now)?;
    let token = NewToken::with_id(record.id.clone()).map_err(|e| Fault::internal(e.to_string()))?;
    let new = hash(state.engine.keys.pepper(), &token.text);
    if !state.store.rotate_key(&record.id, &new, until, now).await.map_err(away)? {
        return Err(Fault::invalid("", "the key is revoked"));
    }
    note(&state, &who, "key.rotate", &record.id, &record.name).await;
    fresh(&state, &record.id).await?;
    let value = json!({
        "id": record.id, "name": record.name, "key": token.text, "old_until": super::time(until),
    });
    Ok(thing(StatusCode::OK, &value))
}

/// The key as the store has it now; callers learn of it at once.
async fn fresh(state: &ApiState, id: &str) -> Result<Response, Fault> {
    let record = state.store.key(id).await.map_err(away)?.ok_or_else(|| missing("key"))?;
    state.admin.key_changed(record.clone());
    Ok(thing(StatusCode::OK, &told(&record, state.clock().now())))
}
