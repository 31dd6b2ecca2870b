//! Model id → the lanes that serve it, in the order in which this call tries them.

use canon::{ApiError, WireFormat, ErrorKind};
use catalog::ModelKind;
use dialects::RequestFacts;
use memchr::memmem;
use std::sync::Arc;
use upstream::{Contender, Health, Standing};

use super::Call;
use crate::request_id;
use config::{LiveLane, Order, Route};

/// How much of a conversation's beginning tells it apart. Shorter ones are no provider's cache
/// worth a detour.
const PREFIX: usize = 2 << 10;
/// How far into a body the beginning of the conversation is looked for.
const FAR: usize = 4 << 10;
/// How long a provider that is full is waited for where there is no other, in microseconds.
const FULL: i64 = 100_000;
/// The output by which prices are compared, in tokens.
const USUAL: u64 = 1_000;

/// The route of the model asked for, if it exists, converses, and the key may use it.
pub fn find(call: &Call, peek: &RequestFacts) -> Result<Arc<Route>, ApiError> {
    // Image models that are served as a conversation converse like any other.
    let converses = |route: &Arc<Route>| {
        let mut spoken = route.lanes.iter().flat_map(|lane| &lane.speaks);
        route.model.kind == ModelKind::Image && spoken.any(|own| dialects::get(*own).is_some())
    };
    let kind = match call.config.routes.get(&*peek.model) {
        Some(route) if converses(route) => ModelKind::Image,
        Some(_) | None => ModelKind::Chat,
    };
    find_kind(call, &peek.model, kind)
}

/// The route of the model asked for, if it exists, is of that kind, and the key may use it.
pub fn find_kind(call: &Call, model: &str, kind: ModelKind) -> Result<Arc<Route>, ApiError> {
    let route = call.config.routes.get(model).ok_or_else(|| unknown_model(model))?;
    if route.model.kind != kind {
        return Err(wrong_kind(model, route.model.kind));
    }
    // A key may name a model by its own id or by the alias it is asked for.
    if !call.key.may_use(model) && !call.key.may_use(&route.model.id) {
        let say = format!("this API key may not use the model `{model}`");
        return Err(ApiError::new(ErrorKind::Forbidden, say));
    }
    Ok(Arc::clone(route))
}

fn wrong_kind(model: &str, kind: ModelKind) -> ApiError {
    let (what, path) = match kind {
        ModelKind::Chat => ("a chat model", "/v1/chat/completions"),
        ModelKind::Image => ("an image model", "/v1/images/generations"),
        ModelKind::Embedding => ("an embedding model", "/v1/embeddings"),
    };
    ApiError::new(ErrorKind::UnknownModel, format!("`{model}` is {what}; it is served at {path}"))
}

/// A lane with the credential to use on it.
#[derive(Clone, Debug)]
pub(super) struct Pick {
    pub(super) lane: Arc<LiveLane>,
    /// The place of the credential.
    pub(super) credential: usize,
    /// Whether to open a connection of its own.
    pub(super) fresh: bool,
    pub(super) health: Arc<Health>,
}

impl Pick {
    /// How it stands. A provider at which as many calls run as may is one that is pressed: not by
    /// its own word, but by the operator's.
    pub(super) fn standing(&self, now: i64) -> Standing {
        match self.health.standing(now) {
            Standing::Good | Standing::Trial if self.lane.is_full() => Standing::Pressed(FULL),
            standing => standing,
        }
    }
}

/// Every lane that may serve the call with every credential, in the order in which to try them.
pub(super) fn order(call: &Call, route: &Route, now: i64) -> Vec<Pick> {
    let by_price = call.wishes.cheapest || route.order == Order::Cheapest;
    let runs = if by_price { cheapest(call, route) } else { Vec::new() };
    let mut picks = Vec::with_capacity(route.lanes.len());
    let mut contenders: Vec<Contender> = Vec::new();
    let mut equals = false;
    for (place, lane) in route.lanes.iter().enumerate() {
        if lane.serves.id != route.model.id && !call.key.may_use(&lane.serves.id) {
            continue;
        }
        let run = runs.get(place).copied().unwrap_or(lane.run);
        for (credential, seat) in lane.seats.iter().enumerate() {
            let health = Arc::clone(&seat.health);
            let pick = Pick { lane: Arc::clone(lane), credential, fresh: false, health };
            #[expect(clippy::cast_precision_loss, reason = "nobody has that many credentials")]
            let weight = f64::from(lane.weight) / lane.seats.len() as f64;
            equals |= contenders.last().is_some_and(|last| last.run == run);
            contenders.push(Contender {
                run,
                weight,
                print: seat.print,
                standing: pick.standing(now),
                pending: pick.health.pending(),
                latency: pick.health.latency(now),
            });
            picks.push(pick);
        }
    }
    if picks.len() < 2 {
        return picks;
    }
    let print = if equals { print(call) } else { None };
    let draw = print.unwrap_or_else(|| request_id::luck(&call.id));
    let order = upstream::order(&contenders, draw, print.is_some());
    order.into_iter().filter_map(|place| picks.get(place).cloned()).collect()
}

/// The place of each lane when the cheapest goes first. Lanes of the same price stay in their
/// order; fallbacks stay behind.
fn cheapest(call: &Call, route: &Route) -> Vec<u32> {
    let input = call.body.len() as u64 / 4;
    let price = |lane: &LiveLane| {
        (lane.serves.id != route.model.id, lane.prices.max_cost(input, USUAL), lane.run)
    };
    let mut sorted: Vec<_> = route.lanes.iter().map(|lane| price(lane)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let place = |lane: &LiveLane| sorted.iter().position(|one| *one == price(lane)).unwrap_or(0);
    route.lanes.iter().map(|lane| u32::try_from(place(lane)).unwrap_or(u32::MAX)).collect()
}

/// What tells a conversation apart: its first part, which stays the same from turn to turn and is
/// what providers cache. Taken from the bytes as they are; `None` when there is too little of it.
fn print(call: &Call) -> Option<u64> {
    let names: [&[u8]; 2] = match call.dialect.origin() {
        WireFormat::Chat | WireFormat::Images => [b"\"messages\"", b"\"input\""],
        WireFormat::Messages => [b"\"messages\"", b"\"system\""],
        WireFormat::Responses => [b"\"input\"", b"\"instructions\""],
        WireFormat::Native => [b"\"contents\"", b"\"systemInstruction\""],
    };
    let near = call.body.get(..FAR.min(call.body.len()))?;
    let begin = names.iter().filter_map(|name| memmem::find(near, name)).min()?;
    let prefix = call.body.get(begin..begin.checked_add(PREFIX)?)?;
    Some(u64::from(crc32fast::hash(prefix)))
}

/// No such model; what was asked for is repeated, but not at length.
pub fn unknown_model(id: &str) -> ApiError {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(
        ErrorKind::UnknownModel,
        format!("the model `{shown}` does not exist or is not served here; see GET /api/models"),
    )
}
