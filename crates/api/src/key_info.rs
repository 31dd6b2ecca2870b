//! `GET /v1/key`: spending and limits of the calling key. `GET /v1/usage/{request_id}`: the receipt
//! of one call.

use axum::response::Response;
use canon::{ApiError, ErrorKind, Micros, Usage};
use ledger::{BudgetStatus, CallError, KeySpending, LedgerEntry, SpendStatus};
use serde_json::{Value, json};
use store::{CallPosting, StoreError};

use crate::request::ApiRequest;
use access::limits::RemainingLimit;
use relay::json_response;

pub(super) async fn show(incoming: ApiRequest) -> Result<Response, ApiError> {
    let record = &incoming.key.record;
    let left = incoming.state.limiter.remaining(&incoming.key);
    let remaining = |left: Option<RemainingLimit>| left.map(|left| left.remaining);
    let KeySpending { own, budget, account_budget: shared } =
        incoming.state.engine.funds.key_status(&incoming.key.balance).await;
    let status = SpendStatus { cap: record.cap, ..own };
    let account = &incoming.key.account;
    let above = match account.cap() {
        Some(cap) => incoming.state.engine.funds.account_balance(&record.account_id, cap).await,
        None => None,
    };
    // The smallest remainder decides.
    let budgets = [&budget, &shared].into_iter().flatten();
    let remaining_usd = (status.remaining().into_iter())
        .chain(above.map(|(_, left)| left))
        .chain(budgets.filter_map(|budget| budget.money.remaining()))
        .min();
    let body = json!({
        "id": record.id,
        "name": record.name,
        "scope": record.scope_text(),
        "cap_usd": status.cap.map(|cap| cap.to_string()),
        "spent_usd": status.spent.to_string(),
        "held_usd": status.held.to_string(),
        "remaining_usd": remaining_usd.map(|left| left.to_string()),
        "expires_at": record.expires.map(rfc3339),
        "limits": {
            "rpm": record.limits.rpm,
            "tpm": record.limits.tpm,
            "concurrency": record.limits.concurrency,
            "models": record.models,
            "ips": record.ips,
        },
        "remaining": {
            "requests": remaining(left.requests),
            "tokens": remaining(left.tokens),
            "concurrency": remaining(left.calls),
        },
        "budget": budget.as_ref().map(budget_json),
        "account": {
            "id": record.account_id,
            "cap_usd": account.cap().map(|cap| cap.to_string()),
            "spent_usd": above.map(|(spent, _)| spent.to_string()),
            "remaining_usd": above.map(|(_, left)| left.to_string()),
            "limits": incoming.state.limiter.account_limits(&record.account_id).map(|limits| {
                let store::RateLimits { rpm, tpm, concurrency } = limits;
                json!({ "rpm": rpm, "tpm": tpm, "concurrency": concurrency })
            }),
            "budget": shared.as_ref().map(budget_json),
        },
    });
    Ok(json_response(body.to_string()))
}

/// JSON of a budget with its reset time.
fn budget_json(budget: &BudgetStatus) -> Value {
    let BudgetStatus { money, period, resets } = budget;
    json!({
        "most_usd": money.cap.map(|cap| cap.to_string()),
        "per": period.word(),
        "spent_usd": money.spent.to_string(),
        "held_usd": money.held.to_string(),
        "remaining_usd": money.remaining().map(|left| left.to_string()),
        "resets_at": rfc3339(*resets),
    })
}

pub(super) async fn receipt(incoming: ApiRequest) -> Result<Response, ApiError> {
    let id = incoming.request.path().strip_prefix("/v1/usage/").unwrap_or_default();
    let entry = match incoming.state.engine.funds.open_calls.find_unposted(id) {
        Some(entry) => Some(entry),
        None => incoming.state.store.entry(id).await.map_err(unreadable)?,
    };
    // A call of another owner is reported as unknown.
    let owner = incoming.key.object_owner();
    let entry = entry.filter(|entry| owner.owns(&entry.account_id, Some(&entry.key_id)));
    let entry =
        entry.ok_or_else(|| ApiError::new(ErrorKind::NotFound, "there is no call with this id"))?;
    let calls = std::slice::from_ref(&entry);
    let mut postings = incoming.state.store.postings_of(calls).await.map_err(unreadable)?;
    let postings = postings.remove(&*entry.request_id).unwrap_or_default();
    Ok(json_response(entry_json(&entry, &postings, false).to_string()))
}

fn unreadable(error: StoreError) -> ApiError {
    ApiError::new(ErrorKind::Overloaded, "receipts cannot be read at the moment, retry shortly")
        .with_log_note(error.to_string())
}

/// One line of an export: the receipt, and fields only the operator sees. `postings` is empty for a
/// call that was never corrected.
pub fn export_json(entry: &LedgerEntry, postings: &[CallPosting]) -> Value {
    let mut line = entry_json(entry, postings, true);
    if let Some(line) = line.as_object_mut() {
        line.insert("account_id".to_owned(), entry.account_id.as_str().into());
        line.insert("absorbed_usd".to_owned(), entry.absorbed.to_string().into());
    }
    line
}

/// Counts that the provider told. All are null if it told none.
fn told_json(entry: &LedgerEntry) -> Value {
    let told = entry.told_usage();
    let count = |of: fn(&Usage) -> u64| told.as_ref().map(of);
    json!({
        "input": count(|usage| usage.input),
        "cached_input": count(|usage| usage.cache_read),
        "cache_write": count(|usage| usage.cache_write.saturating_add(usage.cache_write_long)),
        "output": count(|usage| usage.output),
        "thinking": count(|usage| usage.thinking),
        "searches": count(|usage| usage.searches),
        "images": count(|usage| usage.images),
        "bill_usd": told.and_then(|usage| usage.bill).map(|bill| bill.to_string()),
    })
}

/// Postings of a call, the first one first. The costs sum up to the charge.
fn postings_json(entry: &LedgerEntry, postings: &[CallPosting], for_operator: bool) -> Vec<Value> {
    let only = [CallPosting::first(entry)];
    let postings = if postings.is_empty() { &only } else { postings };
    let lines = postings.iter().enumerate().map(|(number, posting)| {
        let CallPosting { at, knowledge, cost, absorbed } = posting;
        let kind = match (number, knowledge.is_final()) {
            (0, true) => "final",
            (0, false) => "provisional",
            (_, _) => "correction",
        };
        let mut line = json!({
            "kind": kind,
            "at": rfc3339(*at),
            "why": knowledge.word(),
            "cost_usd": cost.to_string(),
        });
        if let Some(line) = line.as_object_mut().filter(|_| for_operator) {
            line.insert("absorbed_usd".to_owned(), absorbed.to_string().into());
        }
        line
    });
    lines.collect()
}

/// A settled call as JSON.
fn entry_json(entry: &LedgerEntry, postings: &[CallPosting], for_operator: bool) -> Value {
    let usage = &entry.usage;
    json!({
        "request_id": entry.request_id,
        "key_id": entry.key_id,
        "model": entry.model,
        "lane": entry.lane,
        "session": (!entry.session.is_empty()).then_some(entry.session.as_str()),
        "end_user": (!entry.end_user.is_empty()).then_some(entry.end_user.as_str()),
        "tags": entry.tags,
        "dialect": entry.dialect,
        "status": entry.status,
        "outcome": entry.outcome.word(),
        "ended_by": entry.ended_by.word(),
        "error": entry.error.as_deref().map(error_json),
        "stream": entry.stream,
        "attempts": entry.attempts,
        "tries": attempts_json(entry),
        "tokens": {
            "input": usage.input,
            "cached_input": usage.cache_read,
            "cache_write": usage.cache_write.saturating_add(usage.cache_write_long),
            "cache_write_long": usage.cache_write_long,
            "output": usage.output,
            "thinking": usage.thinking,
            "input_audio": usage.input_audio,
            "input_image": usage.input_image,
            "output_audio": usage.output_audio,
            "output_image": usage.output_image,
            "total": usage.total(),
        },
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "searches": usage.searches,
        "images": usage.images,
        "seconds": usage.seconds,
        "estimated": entry.estimated,
        "told": told_json(entry),
        "reasons": entry.reasons.iter().map(|reason| reason.word()).collect::<Vec<_>>(),
        "cost_usd": entry.cost.to_string(),
        "charged_usd": entry.cost.to_string(),
        "postings": postings_json(entry, postings, for_operator),
        "charges": charges_json(entry),
        "price_version": entry.price_version,
        "service_tier": if entry.service.is_empty() { "standard" } else { &entry.service },
        "losses": entry.losses,
        "started_at": rfc3339(entry.started),
        "ended_at": rfc3339(entry.ended),
        "first_byte_ms": entry.first_byte_us.map(Micros::as_millis),
    })
}

/// Charges by dimension, exact. The cost is their sum, rounded up once, and never above the
/// reserved amount.
fn charges_json(entry: &LedgerEntry) -> Vec<Value> {
    let charges = entry.charges.iter().map(|charge| {
        json!({
            "for": charge.dimension.as_str(),
            "count": charge.count,
            "price_usd": charge.price.to_per_unit(),
            "usd": charge.usd(),
        })
    });
    charges.collect()
}

/// The error of a call; `field` is null if no field of the request is at fault.
fn error_json(error: &CallError) -> Value {
    let CallError { code, field, message } = error;
    json!({ "code": code, "field": (!field.is_empty()).then_some(field), "message": message })
}

/// All attempts in order: the failed ones, then the one that answered, if any.
fn attempts_json(entry: &LedgerEntry) -> Vec<Value> {
    let mut tries: Vec<Value> = entry
        .failed
        .iter()
        .map(|one| {
            let ledger::FailedAttempt { lane, outcome, status, ms } = one;
            json!({ "lane": lane, "outcome": outcome, "status": status, "ms": ms })
        })
        .collect();
    if let Some(wait) = entry.first_byte_us {
        tries.push(json!({
            "lane": entry.lane, "outcome": "answered", "status": 200,
            "ms": wait.as_millis(),
        }));
    }
    tries
}

/// Returns a time as RFC 3339 text.
pub(crate) fn rfc3339(at: Micros) -> String {
    jiff::Timestamp::from_microsecond(at.get()).map(|time| time.to_string()).unwrap_or_default()
}
