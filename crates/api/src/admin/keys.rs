//! `/api/admin/keys`: list, create, change, rotate, revoke.

use ::admin::{KeyChange, KeyDraft};
use access::keys::{key_json, key_settings_json};
use axum::response::Response;
use canon::{ApiError, Micros, Money};
use config::parse_duration;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::{
    BudgetTerms, KeyGrants, KeyOrder, KeyRecord, KeyScope, KeySelection, KeyStanding, RateLimits,
};

use super::usage::{query_value, query_values, whole_number};
use super::{
    actor, admin_error, entity_response, if_match, invalid_field, not_found, path_id, read_body,
    sent, store_error, success_response, tagged_response,
};
use crate::request::ApiRequest;
use crate::state::ApiState;

const PATH_PREFIX: &str = "/api/admin/keys/";
const MAX_PAGE_KEYS: u32 = 1_000;

/// Body of a new key or of a change. An absent field stays unchanged.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyBody {
    #[serde(default)]
    account_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    /// `call`, `read`, `admin` or parts such as `admin:keys`. The scope of a key never changes.
    #[serde(default)]
    scope: Option<String>,
    /// `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    cap_usd: Option<Option<String>>,
    #[serde(default)]
    models: Option<Vec<String>>,
    /// Lifetime from now, such as `30d`; `null` is unlimited.
    #[serde(default, deserialize_with = "sent")]
    expires_in: Option<Option<String>>,
    #[serde(default)]
    limits: Option<LimitsBody>,
    #[serde(default)]
    ips: Option<Vec<String>>,
    #[serde(default, deserialize_with = "sent")]
    budget: Option<Option<BudgetBody>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsBody {
    #[serde(default)]
    rpm: Option<u32>,
    #[serde(default)]
    tpm: Option<u32>,
    #[serde(default)]
    concurrency: Option<u32>,
}

impl LimitsBody {
    pub(super) fn into_limits(self) -> Result<RateLimits, ApiError> {
        let Self { rpm, tpm, concurrency } = self;
        let limits =
            [("limits.rpm", rpm), ("limits.tpm", tpm), ("limits.concurrency", concurrency)];
        if let Some((field, _)) = limits.into_iter().find(|(_, limit)| *limit == Some(0)) {
            return Err(invalid_field(field, "must be above zero; leave it out for no limit"));
        }
        Ok(RateLimits { rpm, tpm, concurrency })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BudgetBody {
    most_usd: String,
    per: String,
}

impl KeyBody {
    fn into_change(self, now: Micros) -> Result<KeyChange, ApiError> {
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
        let cap = cap_usd.map(|cap| cap.map(|text| parse_amount("cap_usd", &text)).transpose());
        let expires = expires_in.map(|life| life.map(|text| time_from_now(&text, now)).transpose());
        let budget = budget.map(|budget| budget.map(parse_budget).transpose());
        Ok(KeyChange {
            name,
            cap: cap.transpose()?,
            models,
            expires: expires.transpose()?,
            limits: limits.map(LimitsBody::into_limits).transpose()?,
            ips,
            budget: budget.transpose()?,
        })
    }
}

pub(super) fn parse_amount(field: &'static str, text: &str) -> Result<Money, ApiError> {
    ::admin::parse_amount(field, text).map_err(admin_error)
}

pub(super) fn time_from_now(text: &str, now: Micros) -> Result<Micros, ApiError> {
    let life = parse_duration(text).map_err(|why| invalid_field("expires_in", why))?;
    Ok(now + Micros::from(life))
}

pub(super) fn parse_budget(
    BudgetBody { most_usd, per }: BudgetBody,
) -> Result<BudgetTerms, ApiError> {
    let limit = parse_amount("budget.most_usd", &most_usd)?;
    let period = ledger::BudgetPeriod::by_word(&per)
        .ok_or_else(|| invalid_field("budget.per", "write day, week or month"))?;
    Ok(BudgetTerms { limit, period })
}

/// `GET /api/admin/keys`. Query: `account_id`, `q`, `state`, `sort`, and `limit` with `page` for a part of the
/// selected keys. `total` counts all of them.
pub(crate) async fn list(incoming: ApiRequest) -> Result<Response, ApiError> {
    #[derive(Serialize)]
    struct KeysBody {
        total: u64,
        data: Vec<Value>,
    }
    actor(&incoming.state, &incoming.key).await?;
    let query = query_values(&incoming);
    let standing = query_value(&query, "state").map(|word| {
        let words = KeyStanding::ALL.map(KeyStanding::word).join(", ");
        KeyStanding::by_word(&word)
            .ok_or_else(|| invalid_field("state", format!("write one of {words}")))
    });
    let order = query_value(&query, "sort").map(|word| {
        let words = KeyOrder::ALL.map(KeyOrder::word).join(", ");
        KeyOrder::by_word(&word)
            .ok_or_else(|| invalid_field("sort", format!("write one of {words}")))
    });
    let selection = KeySelection {
        account_id: query_value(&query, "account_id"),
        text: query_value(&query, "q"),
        standing: standing.transpose()?,
    };
    let order = order.transpose()?.unwrap_or(KeyOrder::Oldest);
    let rows = read_rows(&query)?;
    let now = incoming.state.clock().now();
    let page = incoming.state.store.key_page(&selection, order, rows, now).await;
    let page = page.map_err(store_error)?;
    let data = page.keys.iter().map(|key| key_json(key, now)).collect();
    Ok(success_response(KeysBody { total: page.total(selection.standing), data }))
}

/// Reads the number of rows before a page and of those on it. Without a limit there is one page.
fn read_rows(query: &Map<String, Value>) -> Result<(u64, u32), ApiError> {
    let limit = query_value(query, "limit").map(|text| match whole_number(&text) {
        Some(limit) if (1..=MAX_PAGE_KEYS).contains(&limit) => Ok(limit),
        _ => Err(invalid_field("limit", format!("write a number from 1 to {MAX_PAGE_KEYS}"))),
    });
    let page = query_value(query, "page").map(|text| match whole_number::<u64>(&text) {
        Some(page) if page > 0 => Ok(page),
        _ => Err(invalid_field("page", "write a number, of which 1 is the first page")),
    });
    match (limit.transpose()?, page.transpose()?) {
        (None, None) => Ok((0, u32::MAX)),
        (None, Some(_)) => Err(invalid_field("page", "needs a `limit`")),
        (Some(limit), page) => {
            Ok(((page.unwrap_or(1) - 1).saturating_mul(u64::from(limit)), limit))
        }
    }
}

pub(crate) async fn get(incoming: ApiRequest) -> Result<Response, ApiError> {
    actor(&incoming.state, &incoming.key).await?;
    let record = incoming
        .state
        .store
        .key(&path_id(&incoming, PATH_PREFIX, ""))
        .await
        .map_err(store_error)?;
    Ok(key_response(&incoming.state, &record.ok_or_else(|| not_found("key"))?))
}

pub(crate) async fn create(incoming: ApiRequest) -> Result<Response, ApiError> {
    let actor = actor(&incoming.state, &incoming.key).await?;
    let ApiRequest { state, key, request, .. } = incoming;
    let mut body: KeyBody = read_body(request).await?;
    let (scope, grants) =
        KeyScope::parse(body.scope.as_deref().unwrap_or("call")).ok_or_else(|| {
            invalid_field("scope", "write call, read, admin or parts like admin:keys")
        })?;
    let owner = body.account_id.take().unwrap_or_else(|| key.record.account_id.clone());
    let owner = state.store.owner(&owner).await.map_err(store_error)?;
    let owner = owner.ok_or_else(|| invalid_field("account_id", "there is no such account"))?;
    let KeyChange { name, cap, models, expires, limits, ips, budget } =
        body.into_change(state.clock().now())?;
    let name = name.ok_or_else(|| invalid_field("name", "is required"))?;
    let cap = match (scope, cap) {
        (KeyScope::Call, None) if grants == KeyGrants::All => {
            return Err(invalid_field("cap_usd", "is required: an amount, or null for unlimited"));
        }
        (KeyScope::Admin, Some(Some(cap))) if cap != Money::ZERO => {
            return Err(invalid_field("cap_usd", "an admin key cannot spend"));
        }
        (KeyScope::Call | KeyScope::Admin, cap) => cap.flatten(),
    };
    if scope == KeyScope::Admin && expires == Some(None) {
        return Err(invalid_field("expires_in", "an admin key must have an end"));
    }
    let draft = KeyDraft {
        scope,
        grants,
        name,
        cap,
        models: models.unwrap_or_default(),
        expires: expires.flatten(),
        limits: limits.unwrap_or_default(),
        ips: ips.unwrap_or_default(),
        budget: budget.flatten(),
    };
    let issued =
        state.admin.accounts.create_key(&actor, &owner, draft).await.map_err(admin_error)?;
    let mut value = key_json(&issued.record, state.clock().now());
    if let Value::Object(fields) = &mut value {
        fields.insert("key".to_owned(), Value::from(issued.secret));
    }
    Ok(tagged_response(StatusCode::CREATED, &value, &key_settings_json(&issued.record)))
}

pub(crate) async fn change(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let ApiRequest { state, key, request, .. } = incoming;
    let read = if_match(&request);
    let body: KeyBody = read_body(request).await?;
    // A key that changes itself is refused below, whatever it asks for.
    let other = key.record.id != id;
    let now = state.store.key(&id).await.map_err(store_error)?.ok_or_else(|| not_found("key"))?;
    if other && body.account_id.as_ref().is_some_and(|id| *id != now.account_id) {
        return Err(invalid_field("account_id", "a key stays with its account"));
    }
    if other && body.scope.as_ref().is_some_and(|word| *word != now.scope_text()) {
        return Err(invalid_field("scope", "a key keeps the scope it was made with"));
    }
    let change = body.into_change(state.clock().now())?;
    let accounts = &state.admin.accounts;
    let changed = accounts.change_key(&actor, &id, read.as_read_version(), change).await;
    Ok(key_response(&state, &changed.map_err(admin_error)?))
}

pub(crate) async fn revoke(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, ""));
    let (state, read) = (incoming.state, if_match(&incoming.request));
    let revoked = state.admin.accounts.revoke_key(&actor, &id, read.as_read_version()).await;
    Ok(key_response(&state, &revoked.map_err(admin_error)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RotateBody {
    /// Time the old value continues to work.
    #[serde(default)]
    overlap: Option<String>,
}

pub(crate) async fn rotate(incoming: ApiRequest) -> Result<Response, ApiError> {
    let (actor, id) =
        (actor(&incoming.state, &incoming.key).await?, path_id(&incoming, PATH_PREFIX, "/rotate"));
    let ApiRequest { state, request, .. } = incoming;
    let RotateBody { overlap } = read_body(request).await?;
    let until = time_from_now(overlap.as_deref().unwrap_or("24h"), state.clock().now())?;
    let rotated = state.admin.accounts.rotate_key(&actor, &id, until).await.map_err(admin_error)?;
    let value = json!({
        "id": rotated.record.id,
        "name": rotated.record.name,
        "key": rotated.secret,
        "old_until": super::rfc3339(until),
    });
    Ok(entity_response(StatusCode::OK, &value))
}

fn key_response(state: &ApiState, record: &KeyRecord) -> Response {
    let shown = key_json(record, state.clock().now());
    tagged_response(StatusCode::OK, &shown, &key_settings_json(record))
}
