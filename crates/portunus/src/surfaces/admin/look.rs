//! What administrators look at: providers and their lanes, models and prices, usage, the audit log,
//! settings, the health of the whole.

use axum::response::Response;
use canon::{Fault, Money};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use store::{By, Pace, Rank, Shown, Step, Times, UsageFilter, UsageView, UsageWish};

use super::{Asked, admin, away, body, invalid, list, note, thing, time, unchanged};
use crate::app::App;
use crate::surfaces::query::pairs;

const DAY: i64 = 24 * 3_600 * 1_000_000;
/// How many groups are listed.
const LISTED: usize = 100;
/// How many stretches of time are told at most.
const STRETCHES: i64 = 1_000;
/// The settings that can be changed here, and the words each takes.
const SETTINGS: [(&str, &[&str]); 1] = [("signup", &["open", "invited", "closed"])];

fn wishes(asked: &Asked) -> Map<String, Value> {
    let pairs = pairs(asked.request.uri().query().unwrap_or_default());
    pairs.into_iter().map(|(name, value)| (name, Value::from(value))).collect()
}

fn wish(wishes: &Map<String, Value>, name: &str) -> Option<String> {
    wishes.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Who is asked for answers, with each lane and how it stands. Credentials are counted, not shown.
pub(in crate::surfaces) async fn providers(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let config = asked.app.config();
    let mut all: Map<String, Value> = Map::new();
    for lane in config.health(asked.app.ticks()) {
        let provider = lane.lane.split('/').next().unwrap_or_default().to_owned();
        let health = &lane.health;
        let told = json!({
            "lane": lane.lane,
            "credential": lane.credential,
            "standing": health.standing.word(),
            "failures": health.failures,
            "pending": health.pending,
            "latency_ms": health.latency.map(|time| time.as_millis()),
            "last_failure": health.last,
        });
        let lanes = all.entry(provider).or_insert_with(|| json!([]));
        if let Value::Array(lanes) = lanes {
            lanes.push(told);
        }
    }
    let told = |(id, lanes): (String, Value)| json!({ "id": id, "lanes": lanes });
    Ok(list(all.into_iter().map(told).collect()))
}

/// Every model with its price list and its lanes.
pub(in crate::surfaces) async fn models(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let config = asked.app.config();
    let told = |model: &Arc<catalog::Model>| {
        let record = catalog::Record::new(model, &config.public_url);
        let mut value = serde_json::to_value(record).unwrap_or_default();
        if let Value::Object(fields) = &mut value {
            let lanes = model.lanes.iter().map(|lane| Value::from(lane.name())).collect();
            fields.insert("lanes".to_owned(), Value::Array(lanes));
            fields.insert("price_version".to_owned(), json!(model.prices.version));
        }
        value
    };
    Ok(list(config.catalog.iter().map(told).collect()))
}

/// What was used: in all, over time, and by whom.
pub(in crate::surfaces) async fn usage(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let wishes = wishes(&asked);
    let days: i64 = match wish(&wishes, "days") {
        None => 30,
        Some(text) => match text.parse() {
            Ok(days) if (1..=3_660).contains(&days) => days,
            _ => return Err(invalid("days", "write a whole number from 1 to 3660")),
        },
    };
    let by = match wish(&wishes, "by") {
        None => By::Model,
        Some(word) => By::by_word(&word)
            .ok_or_else(|| invalid("by", "write account, key, model, lane or status"))?,
    };
    let step = match wish(&wishes, "step") {
        None => Step::Day,
        Some(word) => {
            Step::by_word(&word).ok_or_else(|| invalid("step", "write hour, day or month"))?
        }
    };
    let status = match wish(&wishes, "status") {
        None => None,
        Some(text) => {
            let read = text.parse();
            Some(read.map_err(|_| invalid("status", "write an HTTP status"))?)
        }
    };
    let stretches = match step {
        Step::Hour => days.saturating_mul(24),
        Step::Day => days,
        Step::Month => days / 28,
    };
    if stretches > STRETCHES {
        return Err(invalid("step", "so many days need longer steps: write day or month"));
    }
    let apart = match wish(&wishes, "top") {
        None => 10,
        Some(text) => match text.parse() {
            Ok(top) if (1..=LISTED).contains(&top) => top,
            _ => return Err(invalid("top", "write a whole number from 1 to 100")),
        },
    };
    let filter = UsageFilter {
        account_id: wish(&wishes, "account_id"),
        key_id: wish(&wishes, "key_id"),
        model: wish(&wishes, "model"),
        lane: wish(&wishes, "lane"),
        status,
    };
    let now = asked.app.clock.now();
    let range = now.saturating_sub(days.saturating_mul(DAY))..now.saturating_add(1);
    let wish = UsageWish { range, step, by, rank: Rank::Cost, filter, listed: LISTED, apart };
    let seen = asked.app.store.usage_view(&wish).await.map_err(away)?;
    let UsageView { all, pace, top, over, others } = &seen;
    let top = top.iter().map(|(group, used)| json!({ "group": group, "used": used_json(used) }));
    let told = |begun: i64, group: Option<&str>, used: &Shown| json!({ "begun": time(begun), "group": group, "used": used_json(used) });
    let apart = over.iter().map(|point| told(point.begun, Some(&point.group), &point.used));
    let points = apart.chain(others.iter().map(|(begun, used)| told(*begun, None, used)));
    let value = json!({
        "success": true,
        "days": days,
        "by": by.word(),
        "step": step.word(),
        "total": used_json(all),
        "pace": pace_json(pace),
        "groups": top.collect::<Vec<_>>(),
        "points": points.collect::<Vec<_>>(),
    });
    Ok(super::super::json(value.to_string()))
}

fn used_json(used: &Shown) -> Value {
    json!({
        "calls": used.calls,
        "input_tokens": used.input,
        "cached_tokens": used.cache_read,
        "output_tokens": used.output,
        "thinking_tokens": used.thinking,
        "cost_usd": Money::nanos(used.cost).to_string(),
        "borne_usd": Money::nanos(used.borne).to_string(),
    })
}

fn pace_json(Pace { took, waited }: &Pace) -> Value {
    let told = |times: &Times| json!({ "p50": ms(times.within(50)), "p95": ms(times.within(95)) });
    json!({ "first_byte_ms": told(waited), "whole_ms": told(took) })
}

fn ms(micros: Option<i64>) -> Option<i64> {
    micros.map(|micros| micros / 1_000)
}

/// The latest changes, newest first.
pub(in crate::surfaces) async fn audit(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let most = match wish(&wishes(&asked), "limit") {
        None => 100,
        Some(text) => match text.parse::<u32>() {
            Ok(limit) if (1..=1_000).contains(&limit) => limit,
            _ => return Err(invalid("limit", "write a whole number from 1 to 1000")),
        },
    };
    let audits = asked.app.store.audits(most).await.map_err(away)?;
    let told = |one: &store::Audit| {
        json!({
            "at": time(one.at), "actor": one.actor, "action": one.action,
            "subject": one.subject, "detail": one.detail,
        })
    };
    Ok(list(audits.iter().map(told).collect()))
}

async fn settings_now(app: &App) -> Result<Value, Fault> {
    let mut all = Map::new();
    for (name, _) in SETTINGS {
        let value = app.store.setting(name).await.map_err(away)?;
        all.insert(name.to_owned(), Value::from(value));
    }
    Ok(Value::Object(all))
}

pub(in crate::surfaces) async fn settings(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    Ok(thing(StatusCode::OK, &settings_now(&asked.app).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    signup: Option<String>,
}

pub(in crate::surfaces) async fn set_settings(asked: Asked) -> Result<Response, Fault> {
    let who = admin(&asked.app, &asked.key).await?;
    let Asked { app, request, .. } = asked;
    unchanged(request.headers(), &settings_now(&app).await?)?;
    let Settings { signup } = body(request).await?;
    for (name, value) in [("signup", signup)] {
        let Some(value) = value else { continue };
        let words = SETTINGS.iter().find(|(own, _)| *own == name).map(|(_, words)| *words);
        let words = words.unwrap_or_default();
        if !words.contains(&value.as_str()) {
            return Err(invalid(name, format!("write one of {}", words.join(", "))));
        }
        app.store.put_setting(name, &value).await.map_err(away)?;
        note(&app, &who, "setting.change", name, &value).await;
    }
    Ok(thing(StatusCode::OK, &settings_now(&app).await?))
}

/// Whether the parts of the whole are well.
pub(in crate::surfaces) async fn health(asked: Asked) -> Result<Response, Fault> {
    admin(&asked.app, &asked.key).await?;
    let app = &asked.app;
    let lanes = app.config().health(app.ticks());
    let good = lanes.iter().filter(|lane| lane.health.standing.word() == "good").count();
    let value = json!({
        "success": true,
        "version": env!("CARGO_PKG_VERSION"),
        "ready": app.is_ready(),
        "store": app.store.ping().await.is_ok(),
        "lanes": { "all": lanes.len(), "good": good },
    });
    Ok(super::super::json(value.to_string()))
}
