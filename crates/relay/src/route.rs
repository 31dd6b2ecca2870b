//! Routing: the lanes that serve a model, in the order in which a call tries them.

use canon::{
    ApiError, EffortLevel, ErrorKind, Micros, NeedKind, RequestNeed, RequestNeeds, ToolKind,
    WireFormat,
};
use catalog::ModelKind;
use dialects::{Dialect, RequestFacts, with_own_spelling};
use std::sync::Arc;
use upstream::{HealthTracker, LaneCandidate, LaneDraw, LaneMark, LaneState};

use super::Call;
use super::call_options::LOSSY_HEADER;
use crate::request_id;
use crate::session::{self, LaneHash};
use config::{LaneOrder, LiveLane, Route};

/// Wait for a provider at its `max_in_flight` if there is no other.
const FULL_PROVIDER_WAIT: Micros = Micros::from_millis(100);
/// Attempts to place a new session at a lane while others are placed there too.
const MAX_PLACINGS: usize = 8;
/// Output size at which prices are compared.
const COMPARED_OUTPUT_TOKENS: u64 = 1_000;

/// Returns the route of a chat model, if it exists, the key may use it and it can serve the request.
pub fn find(call: &Call, facts: &RequestFacts) -> Result<Arc<Route>, ApiError> {
    let model = &*facts.model;
    let route = call.config.routes.get(model).ok_or_else(|| unknown_model(model))?;
    // Image models behind a chat format count as chat models.
    let kind = if route.converses() { route.model.kind } else { ModelKind::Chat };
    let route = check_route(call, model, route, kind)?;
    check_needs(call, &facts.needs, &route)?;
    Ok(route)
}

/// Returns the route of a model of this kind, if it exists and the key may use it.
pub(super) fn find_kind(call: &Call, model: &str, kind: ModelKind) -> Result<Arc<Route>, ApiError> {
    let route = call.config.routes.get(model).ok_or_else(|| unknown_model(model))?;
    check_route(call, model, route, kind)
}

/// Returns the route if it is of this kind and the key may use it.
fn check_route(
    call: &Call,
    model: &str,
    route: &Arc<Route>,
    kind: ModelKind,
) -> Result<Arc<Route>, ApiError> {
    if route.model.kind != kind {
        return Err(wrong_kind_error(model, route.model.kind));
    }
    // A key may list a model by its id or by an alias.
    if !call.key.may_use(model) && !call.key.may_use(&route.model.id) {
        let message = format!("this API key may not use the model `{model}`");
        return Err(ApiError::new(ErrorKind::Forbidden, message));
    }
    Ok(Arc::clone(route))
}

fn wrong_kind_error(model: &str, kind: ModelKind) -> ApiError {
    let (what, path) = match kind {
        ModelKind::Chat => ("a chat model", "/v1/chat/completions"),
        ModelKind::Image => ("an image model", "/v1/images/generations"),
        ModelKind::Embedding => ("an embedding model", "/v1/embeddings"),
    };
    ApiError::new(ErrorKind::UnknownModel, format!("`{model}` is {what}; it is served at {path}"))
}

/// Session of a call that has several equal lanes.
#[derive(Clone, Debug)]
pub(super) struct PlacedSession {
    hash: u64,
    /// True if this node knows no lane of it.
    is_new: bool,
    /// Sessions of the candidate when the lanes were ordered.
    seen: u32,
    /// Lane among whose sessions it counts since this call.
    counted_at: Option<Arc<HealthTracker>>,
}

/// A lane with one of its credentials.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) lane: Arc<LiveLane>,
    pub(super) credential_index: usize,
    /// Position in the order of preference.
    pub(super) priority: u32,
    /// True if the request must open a new connection.
    pub(super) new_connection: bool,
    pub(super) health: Arc<HealthTracker>,
    /// Session that stays at this lane if it answers.
    pub(super) session: Option<PlacedSession>,
}

impl Candidate {
    /// Returns the hash of the lane and the credential.
    pub(super) fn slot_hash(&self) -> Option<u64> {
        self.lane.slots.get(self.credential_index).map(|slot| slot.hash_key)
    }

    /// Remembers that the session of the call is at this lane now.
    pub(super) fn keep_session(&self, call: &Call) {
        let (Some(session), Some(slot)) = (&self.session, self.slot_hash()) else { return };
        let now = call.engine.monotonic_now();
        call.engine.session_lanes.record(session.hash, LaneMark::of(slot), now);
        if session.is_new {
            self.health.add_session();
        }
        // The lane it was placed at has failed.
        if let Some(other) = session.counted_at.as_ref().filter(|at| !Arc::ptr_eq(at, &self.health))
        {
            other.remove_session();
            self.health.add_session();
        }
    }

    /// Describes the candidate for the order of attempts.
    fn rank(&self, now: Micros) -> LaneCandidate {
        let slots = &self.lane.slots;
        #[expect(clippy::cast_precision_loss, reason = "a lane has few credentials")]
        let weight = f64::from(self.lane.weight) / slots.len().max(1) as f64;
        LaneCandidate {
            priority: self.priority,
            weight,
            hash_key: self.slot_hash().unwrap_or_default(),
            state: self.standing(now),
            pending: self.health.pending(),
            latency: self.health.latency(now),
            sessions: self.health.sessions(),
        }
    }

    /// Returns the health of the candidate. Treats a provider at its `max_in_flight` as busy.
    pub(super) fn standing(&self, now: Micros) -> LaneState {
        match self.health.state(now) {
            LaneState::Good | LaneState::Probing if self.lane.is_full() => {
                LaneState::Busy(FULL_PROVIDER_WAIT)
            }
            standing => standing,
        }
    }
}

/// Refuses a request that no lane of its model can serve, by the record of the lane, or whose media none can
/// carry. The error is that of the first lane, at the caller's own field.
pub(super) fn check_needs(
    call: &Call,
    needs: &RequestNeeds,
    route: &Route,
) -> Result<(), ApiError> {
    if needs.is_empty() {
        return Ok(());
    }
    find_unmet(call, needs, route)
        .map_err(|error| with_own_spelling(error, call.dialect.origin(), &call.body))
}

/// Returns true if a lane of the model has the caller's format and asks MCP servers itself. The gateway asks
/// them for all others.
pub(super) fn lane_asks_servers(call: &Call, facts: &RequestFacts) -> bool {
    let model = &*facts.model;
    let Some(route) = call.config.routes.get(model) else { return true };
    // No server is asked for a call that is refused anyway.
    if !call.key.may_use(model) && !call.key.may_use(&route.model.id) {
        return true;
    }
    let judge = LaneJudge::new(call, route, may_drop_media(call, route));
    let mut servers = RequestNeeds::default();
    servers.add_tool("mcp", String::new);
    route.lanes.iter().any(|lane| {
        may_use_lane(call, route, lane)
            && lane.formats.contains(&judge.own)
            && judge.meets(lane, &servers).is_ok()
    })
}

fn find_unmet(call: &Call, needs: &RequestNeeds, route: &Route) -> Result<(), ApiError> {
    let own = call.dialect.origin();
    let usable = || route.lanes.iter().filter(|lane| may_use_lane(call, route, lane));
    let unknown_tool = needs.unknown_tool().map(|unknown| {
        let path = &*unknown.path;
        let message = format!(
            "`{path}` is a tool that this gateway does not know; only a provider with the format of \
             the request could, and `{}` has none",
            route.model.id
        );
        ApiError::invalid(path, message)
    });
    if let Some(error) = &unknown_tool
        && !usable().any(|lane| lane.formats.contains(&own))
    {
        return Err(error.clone());
    }
    if let Some(field) = needs.own_field()
        && !usable().any(|lane| lane.formats.contains(&own))
    {
        let path = &*field.path;
        let message = format!(
            "`{path}` is not supported by `{}`: only a provider with the format of the request obeys \
             it, and an answer without it would look as if it did",
            route.model.id
        );
        return Err(ApiError::invalid(path, message));
    }
    // The gateway asks the servers where no lane does.
    let lowered = if call.may_ask_servers() { needs.without_tool(ToolKind::Mcp) } else { None };
    let needs = lowered.as_ref().unwrap_or(needs);
    let judge = LaneJudge::new(call, route, may_drop_media(call, route));
    let own_lanes = route.lanes.iter().filter(|lane| lane.served_model.id == route.model.id);
    let mut refusal = None;
    for lane in own_lanes {
        match judge.meets(lane, needs) {
            Ok(()) => {
                refusal = None;
                break;
            }
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    if let Some(error) = refusal {
        return Err(error);
    }
    let strict = LaneJudge { drops_media: false, ..judge };
    let is_carried = |needs: &RequestNeeds| usable().any(|lane| strict.serves(lane, needs));
    if judge.drops_media || is_carried(needs) {
        return Ok(());
    }
    let is_carried_alone = |kind| {
        let mut alone = RequestNeeds::default();
        alone.add_media(kind, None, String::new);
        is_carried(&alone)
    };
    if let Some(error) = unknown_tool.filter(|_| needs.media().next().is_none()) {
        return Err(error);
    }
    let unmet = needs.media().find(|(_, kind)| !is_carried_alone(*kind)).or(needs.media().next());
    let path = unmet.map(|(path, _)| path).unwrap_or_default();
    let message = format!(
        "`{path}` cannot be carried to `{}`: its provider takes no media of this kind; the header \
         `{LOSSY_HEADER}: true` leaves it out",
        route.model.id
    );
    Err(ApiError::invalid(path, message))
}

/// Returns true if the key may use the model behind a lane. It may use the requested model.
fn may_use_lane(call: &Call, route: &Route, lane: &LiveLane) -> bool {
    lane.served_model.id == route.model.id || call.key.may_use(&lane.served_model.id)
}

/// Returns true if the caller has media left out. A vector of half of the input would be that of another
/// input, so embeddings leave nothing out.
fn may_drop_media(call: &Call, route: &Route) -> bool {
    call.options.lossy && route.model.kind != ModelKind::Embedding
}

/// The way that lanes are judged for one request.
#[derive(Clone, Copy, Debug)]
struct LaneJudge {
    /// Format of the caller.
    own: WireFormat,
    /// True if a lane of the model, and not only one of its fallbacks, has the caller's format.
    has_own: bool,
    /// True if the caller has those media left out that a lane does not take.
    drops_media: bool,
}

impl LaneJudge {
    fn new(call: &Call, route: &Route, drops_media: bool) -> Self {
        let own = call.dialect.origin();
        let is_own = |lane: &Arc<LiveLane>| {
            lane.served_model.id == route.model.id && lane.formats.contains(&own)
        };
        let has_own = route.lanes.iter().any(is_own);
        Self { own, has_own, drops_media }
    }

    /// Refuses a request by the record of a lane. Media that are left out need not be read.
    fn meets(self, lane: &LiveLane, needs: &RequestNeeds) -> Result<(), ApiError> {
        let is_judged = |need: &&RequestNeed| {
            let NeedKind::Media(media) = &need.kind else {
                return !self.is_lowered(lane, &need.kind);
            };
            !self.drops_media || lane.capabilities.may_read(media.kind)
        };
        lane.capabilities.check_needs(&lane.served_model.id, needs.iter().filter(is_judged))
    }

    /// Returns true if the writer of the lane's format lowers what the request asks for. Where a lane takes the
    /// caller's own words, only the lowest level is that of every other lane that thinks.
    fn is_lowered(self, lane: &LiveLane, need: &NeedKind) -> bool {
        let is_lowest = *need == NeedKind::ThinkingLevel(EffortLevel::Minimal)
            && lane.capabilities.thinking.range().is_some();
        let is_translated = !lane.formats.contains(&self.own);
        is_translated && (!self.has_own || is_lowest) && lane.capabilities.may_lower(need)
    }

    /// Returns true if the model at the lane can do what the request needs and the lane carries its media. A
    /// body of the lane's own format goes out as it is.
    fn serves(self, lane: &LiveLane, needs: &RequestNeeds) -> bool {
        let is_carried =
            || lane.formats.iter().any(|format| *format == self.own || carries(*format, needs));
        // A provider of the caller's format may know tools that this gateway does not.
        let needs_own = needs.unknown_tool().is_some() || needs.own_field().is_some();
        let is_understood = !needs_own || lane.formats.contains(&self.own);
        is_understood && self.meets(lane, needs).is_ok() && (self.drops_media || is_carried())
    }
}

/// Returns true if a format has fields for the media of a request.
fn carries(format: WireFormat, needs: &RequestNeeds) -> bool {
    let Some(dialect) = dialects::get(format) else { return false };
    needs.media().all(|(_, kind)| dialect.traits().media_kinds.contains(&kind))
}

/// Returns every lane that may serve the call, with every credential, in the order to try them. Lanes that
/// cannot do what it needs are left out.
pub(super) fn ordered_candidates(
    call: &Call,
    (needs, session): (&RequestNeeds, Option<&str>),
    route: &Route,
    now: Micros,
) -> Vec<Candidate> {
    let by_price = call.options.cheapest_first || route.order == LaneOrder::CheapestFirst;
    let ranks = if by_price { price_ranks(call, route) } else { Vec::new() };
    // A caller that has media dropped keeps them where a lane carries them.
    let strict = LaneJudge::new(call, route, false);
    let drops_media = may_drop_media(call, route)
        && !needs.is_empty()
        && !route.lanes.iter().any(|lane| strict.serves(lane, needs));
    let judge = LaneJudge { drops_media, ..strict };
    let mut candidates = Vec::with_capacity(route.lanes.len());
    for (index, lane) in route.lanes.iter().enumerate() {
        if !may_use_lane(call, route, lane) {
            continue;
        }
        if !needs.is_empty() && !judge.serves(lane, needs) {
            continue;
        }
        let priority = ranks.get(index).copied().unwrap_or(lane.priority);
        for (credential, slot) in lane.slots.iter().enumerate() {
            let health = Arc::clone(&slot.health);
            candidates.push(Candidate {
                lane: Arc::clone(lane),
                credential_index: credential,
                priority,
                new_connection: false,
                health,
                session: None,
            });
        }
    }
    if candidates.len() < 2 {
        return candidates;
    }
    let lane_candidates: Vec<LaneCandidate> =
        candidates.iter().map(|candidate| candidate.rank(now)).collect();
    let has_ties = lane_candidates.windows(2).any(|pair| match pair {
        [one, next] => one.priority == next.priority,
        _ => false,
    });
    let hash = if has_ties { session::lane_hash(call, session) } else { None };
    let draw = match hash {
        Some(LaneHash { hash, is_kept }) => {
            let lane = call.engine.session_lanes.find(hash, now);
            let is_new = lane.is_none();
            // The order of the file counts more than a cache, so that a session leaves a fallback.
            let priority = candidates.iter().map(|one| one.priority).min();
            let is_placed = |one: &Candidate| is_kept && Some(one.priority) == priority;
            for (one, ranked) in candidates.iter_mut().zip(&lane_candidates) {
                let session =
                    PlacedSession { hash, is_new, seen: ranked.sessions, counted_at: None };
                one.session = is_placed(one).then_some(session);
            }
            LaneDraw::Session { hash, lane }
        }
        None => LaneDraw::Random(request_id::random_from_id(&call.id)),
    };
    let order = upstream::order_lanes(&lane_candidates, draw);
    let mut ordered: Vec<Candidate> =
        order.into_iter().filter_map(|index| candidates.get(index).cloned()).collect();
    if let Some(cache) = &call.cache {
        let is_first =
            |one: &Candidate| cache.is_at(one.slot_hash()) && one.standing(now) == LaneState::Good;
        ordered.sort_by_key(|one| !is_first(one));
    }
    ordered
}

/// Returns the candidates in the order to try them, and places a new session at the first one. Sessions that begin
/// at the same moment are placed one after the other, because each counts those before it.
pub(super) fn placed_candidates(
    call: &Call,
    wanted: (&RequestNeeds, Option<&str>),
    route: &Route,
    now: Micros,
) -> Vec<Candidate> {
    let mut candidates = ordered_candidates(call, wanted, route, now);
    // After the last attempt the session is not counted.
    for _ in 0..MAX_PLACINGS {
        if place_session(call, &mut candidates, now) {
            break;
        }
        candidates = ordered_candidates(call, wanted, route, now);
    }
    candidates
}

/// Remembers the first candidate as the lane of a new session. Calls that run at the same time then go there
/// too, and other new sessions count this one. Returns false if another session began there since the lanes were
/// ordered.
fn place_session(call: &Call, candidates: &mut [Candidate], now: Micros) -> bool {
    let Some(first) = candidates.first() else { return true };
    let session = first.session.as_ref().filter(|session| session.is_new);
    let (Some(session), Some(slot)) = (session, first.slot_hash()) else { return true };
    if !matches!(first.standing(now), LaneState::Good | LaneState::Probing) {
        return true;
    }
    if !first.health.add_session_after(session.seen) {
        return false;
    }
    let placed = call.engine.session_lanes.place(session.hash, LaneMark::of(slot), now);
    let counted_at = placed.is_ok().then(|| Arc::clone(&first.health));
    if let Err(own) = placed {
        first.health.remove_session();
        let is_own = |one: &Candidate| {
            one.session.is_some()
                && one.slot_hash().map(LaneMark::of) == Some(own)
                && one.standing(now) == LaneState::Good
        };
        let at = candidates.iter().position(is_own);
        if let Some(before) = at.and_then(|at| candidates.get_mut(..=at)) {
            before.rotate_right(1);
        }
    }
    for session in candidates.iter_mut().filter_map(|one| one.session.as_mut()) {
        session.is_new = false;
        session.counted_at.clone_from(&counted_at);
    }
    true
}

/// Ranks the lanes by price. Lanes of equal price keep their order, and fallbacks stay last.
fn price_ranks(call: &Call, route: &Route) -> Vec<u32> {
    let input = call.body.len() as u64 / 4;
    let price = |lane: &LiveLane| {
        (
            lane.served_model.id != route.model.id,
            lane.prices.max_cost(input, COMPARED_OUTPUT_TOKENS),
            lane.priority,
        )
    };
    let mut sorted: Vec<_> = route.lanes.iter().map(|lane| price(lane)).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let rank = |lane: &LiveLane| sorted.iter().position(|other| *other == price(lane)).unwrap_or(0);
    route.lanes.iter().map(|lane| u32::try_from(rank(lane)).unwrap_or(u32::MAX)).collect()
}

/// Returns the format for a lane: the caller's own if the lane has it, else the lane's preferred
/// one that carries the media of the request.
pub(super) fn choose_dialect(
    lane: &LiveLane,
    own: WireFormat,
    needs: &RequestNeeds,
) -> Result<&'static dyn Dialect, ApiError> {
    let same = lane.formats.iter().find(|format| **format == own);
    let carrying = || lane.formats.iter().find(|format| carries(**format, needs));
    let format = same.or_else(carrying).or_else(|| lane.formats.first());
    format.and_then(|format| dialects::get(*format)).ok_or_else(|| {
        ApiError::internal(format!("lane {} has no format known to this gateway", lane.name))
    })
}

/// Error for an unknown model. Repeats a short form of the requested id.
pub fn unknown_model(id: &str) -> ApiError {
    let shown: String = id.chars().filter(|c| !c.is_control()).take(64).collect();
    ApiError::new(
        ErrorKind::UnknownModel,
        format!("the model `{shown}` does not exist or is not served here; see GET /api/models"),
    )
}
