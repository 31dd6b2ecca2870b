//! Model id → the lanes that serve it, the unhealthy last.

use canon::{Fault, Trouble};
use catalog::Kind;
use dialects::Peek;
use std::sync::Arc;

use super::Call;
use crate::config::{LiveLane, Route};
use crate::surfaces::unknown_model;

/// The route of the model asked for, if it exists, converses, and the key may use it.
pub(crate) fn find(call: &Call, peek: &Peek) -> Result<Arc<Route>, Fault> {
    find_kind(call, &peek.model, Kind::Chat)
}

/// The route of the model asked for, if it exists, is of that kind, and the key may use it.
pub(crate) fn find_kind(call: &Call, model: &str, kind: Kind) -> Result<Arc<Route>, Fault> {
    let route = call.config.routes.get(model).ok_or_else(|| unknown_model(model))?;
    if route.model.kind != kind {
        return Err(wrong_kind(model, route.model.kind));
    }
    if !call.key.may_use(model) {
        let say = format!("this API key may not use the model `{model}`");
        return Err(Fault::new(Trouble::Forbidden, say));
    }
    Ok(Arc::clone(route))
}

fn wrong_kind(model: &str, kind: Kind) -> Fault {
    let (what, path) = match kind {
        Kind::Chat => ("a chat model", "/v1/chat/completions"),
        Kind::Image => ("an image model", "/v1/images/generations"),
        Kind::Embedding => ("an embedding model", "/v1/embeddings"),
    };
    Fault::new(Trouble::NoModel, format!("`{model}` is {what}; it is served at {path}"))
}

/// The lanes in the order they are tried.
pub(super) fn lanes(route: &Route, now: i64) -> Vec<Arc<LiveLane>> {
    let (good, bad): (Vec<_>, Vec<_>) =
        route.lanes.iter().cloned().partition(|lane| lane.health.is_good(now));
    good.into_iter().chain(bad).collect()
}
