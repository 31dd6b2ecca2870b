//! `x-portunus-dry-run: true`: what would be sent and what it could cost, calling no one.

use axum::response::Response;
use canon::Fault;
use dialects::Peek;
use serde_json::{Value, json};

use super::{Call, prepare, route};
use crate::config::Route;
use crate::surfaces;

/// Tells the lane, its body, the losses and the price.
pub(super) fn answer(call: &Call, peek: &Peek, found: &Route) -> Result<Response, Fault> {
    let lanes = route::lanes(found, call.app.clock.now());
    let lane = lanes.first().ok_or_else(|| surfaces::unknown_model(&peek.model))?;
    let prepared = prepare::prepare(call, peek, found, lane, None)?;
    let body = prepared.outgoing.body.to_vec();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let model = &found.model;
    let output = peek.max_output.or(model.max_output).unwrap_or_default();
    let bound =
        model.prices.bound(call.body.len() as u64, output * u64::from(peek.candidates.max(1)));
    let losses: Vec<Value> =
        prepared.losses.iter().map(|loss| json!({ "what": loss.what, "why": loss.why })).collect();
    let told = json!({
        "object": "portunus.dry_run",
        "model": peek.model,
        "lane": lane.name,
        "dialect": prepared.dialect.origin().name(),
        "path": prepared.outgoing.path,
        "body": body,
        "losses": losses,
        "quote": { "at_most_usd": bound.to_string(), "price_version": model.prices.version },
    });
    Ok(surfaces::json(told.to_string()))
}
