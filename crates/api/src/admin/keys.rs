//! Keys of all accounts: list, create, change, rotate, revoke.

use ::admin::{KeyChange, KeyDraft};
use access::keys::described;
use axum::response::Response;
use canon::{ApiError, Money};
use config::duration;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use store::{BudgetTerms, KeyRecord, KeyScope, RateLimits};

use super::{actor, away, body, failed, id_in, if_match, invalid, missing, sent, thing};
use crate::query::pairs;
use crate::request::ApiRequest;
use crate::state::ApiState;

const AT: &str = "/api/admin/keys/";

/// The body of a new key or of a change. A field that is left out stays as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    #[serde(default)]
    account_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    /// `call` or `admin`; a key keeps it for good.
    #[serde(default)]
    scope: Option<String>,
    /// `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    cap_usd: Option<Option<String>>,
    #[serde(default)]
    models: Option<Vec<String>>,
    /// Life from now, such as `30d`; `null` is for ever.
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
    pub(super) fn limits(self) -> Result<RateLimits, ApiError> {
        let Self { rpm, tpm, concurrency } = self;
        let limits =
            [("limits.rpm", rpm), ("limits.tpm", tpm), ("limits.concurrency", concurrency)];
        if let Some((field, _)) = limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            return Err(invalid(field, "must be above zero; leave it out for no limit"));
        }
        Ok(RateLimits { rpm, tpm, concurrency })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    most_usd: String,
    per: String,
}

impl KeyBody {
    fn into_change(self, now: i64) -> Result<KeyChange, ApiError> {
        let Self {
            account_id: _,
            name,
            scope: _,
            cap_usd,
            models,
            expires_in,
            limits,
            ips,
            budget,
        } = self;
        let cap = cap_usd.map(|cap| cap.map(|text| amount("cap_usd", &text)).transpose());
        let expires = expires_in.map(|life| life.map(|text| later(&text, now)).transpose());
        let budget = budget.map(|budget| budget.map(terms).transpose());
        Ok(KeyChange {
            name,
            cap: cap.transpose()?,
            models,
            expires: expires.transpose()?,
            limits: limits.map(Pace::limits).transpose()?,
            ips,
            budget: budget.transpose()?,
        })
    }
}

pub(super) fn amount(field: &'static str, text: &str) -> Result<Money, ApiError> {
    let money: Money = text
        .parse()
        .map_err(|_| invalid(field, "write an amount in USD as text, such as \"5.00\""))?;
    if money.is_negative() {
        return Err(invalid(field, "must not be below zero"));
    }
    Ok(money)
}

fn later(text: &str, now: i64) -> Result<i64, ApiError> {
    let life = duration(text).map_err(|why| invalid("expires_in", why))?;
    Ok(now.saturating_add(i64::try_from(life.as_micros()).unwrap_or(i64::MAX)))
}

pub(super) fn terms(Budget { most_usd, per }: Budget) -> Result<BudgetTerms, ApiError> {
    let most = amount("budget.most_usd", &most_usd)?;
    let period = ledger::BudgetPeriod::by_word(&per)
        .ok_or_else(|| invalid("budget.per", "write day, week or month"))?;
    Ok(BudgetTerms { limit: most, period })
}

pub(crate) async fn list(asked: ApiRequest) -> Result<Response, ApiError> {
    actor(&asked.state, &asked.key).await?;
    let query = pairs(asked.request.uri().query().unwrap_or_default());
    let account = query.into_iter().find(|(name, _)| name == "account_id").map(|(_, id)| id);
    let store = &asked.state.store;
    let keys = match &account {
        Some(account) => store.keys_of(account).await,
        None => store.keys().await,
    };
    let now = asked.state.clock().now();
    Ok(super::list(keys.map_err(away)?.iter().map(|key| described(key, now)).collect()))
}

pub(crate) async fn get(asked: ApiRequest) -> Result<Response, ApiError> {
    actor(&asked.state, &asked.key).await?;
    let record = asked.state.store.key(&id_in(&asked, AT, "")).await.map_err(away)?;
    Ok(shown(&asked.state, &record.ok_or_else(|| missing("key"))?))
}

pub(crate) async fn create(asked: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&asked.state, &asked.key).await?;
    let ApiRequest { state, key, request, .. } = asked;
    let mut wanted: KeyBody = body(request).await?;
    let scope = match wanted.scope.as_deref() {
        None => KeyScope::Call,
        Some(word) => {
            KeyScope::by_word(word).ok_or_else(|| invalid("scope", "write call or admin"))?
        }
    };
    let owner = wanted.account_id.take().unwrap_or_else(|| key.record.account_id.clone());
    let owner = state.store.owner(&owner).await.map_err(away)?;
    let owner = owner.ok_or_else(|| invalid("account_id", "there is no such account"))?;
    let KeyChange { name, cap, models, expires, limits, ips, budget } =
        wanted.into_change(state.clock().now())?;
    let name = name.ok_or_else(|| invalid("name", "is required"))?;
    let cap = match (scope, cap) {
        (KeyScope::Call, None) => {
            return Err(invalid("cap_usd", "is required: an amount, or null for unlimited"));
        }
        (KeyScope::Admin, Some(Some(cap))) if cap != Money::ZERO => {
            return Err(invalid("cap_usd", "an admin key cannot spend"));
        }
        (KeyScope::Call | KeyScope::Admin, cap) => cap.flatten(),
    };
    if scope == KeyScope::Admin && expires == Some(None) {
        return Err(invalid("expires_in", "an admin key must have an end"));
    }
    let draft = KeyDraft {
        scope,
        name,
        cap,
        models: models.unwrap_or_default(),
        expires: expires.flatten(),
        limits: limits.unwrap_or_default(),
        ips: ips.unwrap_or_default(),
        budget: budget.flatten(),
    };
    let made = state.admin.accounts.create_key(&actor, &owner, draft).await.map_err(failed)?;
    let mut value = described(&made.record, state.clock().now());
    if let Value::Object(fields) = &mut value {
        fields.insert("key".to_owned(), Value::from(made.text));
    }
    Ok(thing(StatusCode::CREATED, &value))
}

pub(crate) async fn change(asked: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) = (actor(&asked.state, &asked.key).await?, id_in(&asked, AT, ""));
    let ApiRequest { state, request, .. } = asked;
    let read = if_match(&request);
    let wanted: KeyBody = body(request).await?;
    let now = state.store.key(&id).await.map_err(away)?.ok_or_else(|| missing("key"))?;
    if wanted.account_id.as_ref().is_some_and(|id| *id != now.account_id) {
        return Err(invalid("account_id", "a key stays with its account"));
    }
    if wanted.scope.as_ref().is_some_and(|word| word != now.scope.word()) {
        return Err(invalid("scope", "a key keeps the scope it was made with"));
    }
    let change = wanted.into_change(state.clock().now())?;
    let accounts = &state.admin.accounts;
    let changed = accounts.change_key(&actor, &id, read.as_read(), change).await;
    Ok(shown(&state, &changed.map_err(failed)?))
}

pub(crate) async fn revoke(asked: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) = (actor(&asked.state, &asked.key).await?, id_in(&asked, AT, ""));
    let (state, read) = (asked.state, if_match(&asked.request));
    let revoked = state.admin.accounts.revoke_key(&actor, &id, read.as_read()).await;
    Ok(shown(&state, &revoked.map_err(failed)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RotateBody {
    /// Time the old value goes on working.
    #[serde(default)]
    overlap: Option<String>,
}

pub(crate) async fn rotate(asked: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) = (actor(&asked.state, &asked.key).await?, id_in(&asked, AT, "/rotate"));
    let ApiRequest { state, request, .. } = asked;
    let RotateBody { overlap } = body(request).await?;
    let until = later(overlap.as_deref().unwrap_or("24h"), state.clock().now())?;
    let rotated = state.admin.accounts.rotate_key(&actor, &id, until).await.map_err(failed)?;
    let value = json!({
        "id": rotated.record.id,
        "name": rotated.record.name,
        "key": rotated.text,
        "old_until": super::time(until),
    });
    Ok(thing(StatusCode::OK, &value))
}

fn shown(state: &ApiState, record: &KeyRecord) -> Response {
    thing(StatusCode::OK, &described(record, state.clock().now()))
}
