//! JSON description of a key for the CLI and the admin API, without its secret.

use canon::Micros;
use serde_json::{Value, json};
use store::{BudgetTerms, KeyBounds, KeyRecord, RateLimits};

/// Returns `live`, `expired` or `revoked`.
pub fn key_state(key: &KeyRecord, now: Micros) -> &'static str {
    if key.revoked.is_some() {
        "revoked"
    } else if key.expires.is_some_and(|expires| expires <= now) {
        "expired"
    } else {
        "live"
    }
}

/// Describes a budget.
pub fn budget_json(BudgetTerms { limit: most, period }: BudgetTerms) -> Value {
    json!({ "most_usd": most.to_string(), "per": period.word() })
}

/// Describes the part of a key that only administration changes. Its version is computed from this
/// object, so that a call does not make it stale.
pub fn key_settings_json(key: &KeyRecord) -> Value {
    let mut settings = key_json(key, Micros::ZERO);
    if let Value::Object(fields) = &mut settings {
        for used in ["state", "spent_usd", "last_used_at"] {
            fields.shift_remove(used);
        }
        fields.insert("revoked".to_owned(), Value::from(key.revoked.is_some()));
    }
    settings
}

/// Describes the limits that an administrator set on a key; `null` if there are none.
fn bounds_json(bounds: &KeyBounds) -> Value {
    if bounds.is_none() {
        return Value::Null;
    }
    let KeyBounds { cap, budget, models, expires, limits, ips } = bounds;
    json!({
        "cap_usd": cap.map(|cap| cap.to_string()),
        "budget": budget.map(budget_json),
        "models": models,
        "expires_at": expires.and_then(rfc3339),
        "limits": limits_json(*limits),
        "ips": ips,
    })
}

fn limits_json(RateLimits { rpm, tpm, concurrency }: RateLimits) -> Value {
    json!({ "rpm": rpm, "tpm": tpm, "concurrency": concurrency })
}

fn rfc3339(at: Micros) -> Option<String> {
    jiff::Timestamp::from_microsecond(at.get()).map(|time| time.to_string()).ok()
}

/// Describes a key.
pub fn key_json(key: &KeyRecord, now: Micros) -> Value {
    json!({
        "id": key.id,
        "name": key.name,
        "scope": key.scope_text(),
        "state": key_state(key, now),
        "cap_usd": key.cap.map(|cap| cap.to_string()),
        "spent_usd": key.spent.to_string(),
        "models": key.models,
        "account_id": key.account_id,
        "made_by": key.created_by,
        "surface": key.surface,
        "limits": limits_json(key.limits),
        "ips": key.ips,
        "budget": key.budget.map(budget_json),
        "bounds": bounds_json(&key.bounds),
        "expires_at": key.expires.and_then(rfc3339),
        "created_at": rfc3339(key.created),
        "last_used_at": key.last_used.and_then(rfc3339),
    })
}
