//! Routes: a model's lanes with everything a call needs to know of them, resolved once, so that a
//! call never looks up a provider.

use canon::{EffortLevel, WireFormat};
use catalog::{Catalog, Endpoints, Model, ModelDirectory, ModelPrices, ThinkingRange};
use dialects::ThinkingControls;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use upstream::{CredentialHealth, HealthSnapshot, HealthTracker, Provider, RetryBudget, Timeouts};

use crate::overlay::{EntryError, EntryName};
use crate::providers::EndpointsByProvider;
use crate::raw::{RawLane, RawModel};
use crate::units::nearest_word;
use upstream::InFlight;

/// A model and the lanes that serve it.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model.
    pub model: Arc<Model>,
    /// Its lanes in order of preference; behind them those of the models it may fall back to.
    pub lanes: Vec<Arc<LiveLane>>,
    /// Which of its lanes go first.
    pub order: LaneOrder,
    /// Every price list it may be charged by.
    pub prices: Vec<Arc<ModelPrices>>,
}

/// Which lanes of a route go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// As they are written; those with weights share.
    AsWritten,
    /// The cheapest.
    CheapestFirst,
}

/// One provider serving one model.
#[derive(Clone, Debug)]
pub struct LiveLane {
    /// `provider/model`.
    pub name: String,
    /// The provider.
    pub provider: Arc<Provider>,
    /// The model's name there.
    pub model: String,
    /// The model it serves; another than the one asked for where it is a fallback.
    pub served_model: Arc<Model>,
    /// The formats it can be asked in, the best one first.
    pub formats: Vec<WireFormat>,
    /// How the model lets its thinking be steered, where the directory knows it.
    pub thinking_controls: Option<ThinkingControls>,
    /// How requests to its provider differ from the usual ones.
    pub endpoints: Arc<Endpoints>,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// What it costs.
    pub prices: Arc<ModelPrices>,
    /// Its place in the order of preference; lanes of the same place share by weight.
    pub priority: u32,
    /// Its share among those of the same place.
    pub weight: u32,
    /// One for each of the provider's credentials.
    pub slots: Vec<CredentialSlot>,
    /// How much may be tried again at its provider.
    pub retry_budget: Arc<RetryBudget>,
    /// The calls that run at its provider.
    pub in_flight: Arc<InFlight>,
}

impl LiveLane {
    /// Whether as many calls run at its provider as may.
    pub fn is_full(&self) -> bool {
        self.in_flight.is_full(self.provider.max_in_flight)
    }
}

/// A lane with one credential.
#[derive(Clone, Debug)]
pub struct CredentialSlot {
    /// Whether it can be expected to answer.
    pub health: Arc<HealthTracker>,
    /// A number of its own, the same in every process.
    pub hash_key: u64,
}

/// The health of a lane with one credential, for whoever shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneHealth {
    /// The lane.
    pub lane: String,
    /// The place of the credential in the configuration, from zero.
    pub credential: usize,
    /// How it stands.
    pub health: HealthSnapshot,
}

/// What all lanes of a provider share.
struct ProviderState {
    provider: Arc<Provider>,
    endpoints: Arc<Endpoints>,
    credential_health: Vec<Arc<CredentialHealth>>,
    retry_budget: Arc<RetryBudget>,
    in_flight: Arc<InFlight>,
    /// By the model's name there: models that lead to the same lane share its health.
    slots_by_model: HashMap<String, Vec<CredentialSlot>>,
}

impl ProviderState {
    fn new(provider: &Arc<Provider>, ways: &EndpointsByProvider) -> Self {
        let accounts = (0..provider.credential_count()).map(|_| Arc::default()).collect();
        let (budget, running) = (Arc::new(RetryBudget::new(0)), Arc::default());
        let ways = ways.get(&provider.name).cloned().unwrap_or_default();
        let (provider, seats) = (Arc::clone(provider), HashMap::new());
        Self {
            provider,
            endpoints: ways,
            credential_health: accounts,
            retry_budget: budget,
            in_flight: running,
            slots_by_model: seats,
        }
    }

    fn slots(&mut self, model: &str) -> Vec<CredentialSlot> {
        let Self { provider, credential_health: accounts, slots_by_model: seats, .. } = self;
        let made = seats.entry(model.to_owned()).or_insert_with(|| {
            let seat = |(place, account): (usize, &Arc<CredentialHealth>)| CredentialSlot {
                health: Arc::new(HealthTracker::new(Arc::clone(account))),
                hash_key: slot_hash(&provider.name, model, place),
            };
            accounts.iter().enumerate().map(seat).collect()
        });
        made.clone()
    }
}

/// FNV-1a, because it must not change from one version to the next: conversations would move.
fn slot_hash(provider: &str, model: &str, place: usize) -> u64 {
    let name = format!("{provider}/{model}#{place}");
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |print, byte| {
        (print ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Makes the routes of all models, found by their ids and aliases.
pub(super) fn check(
    raw: &BTreeMap<String, RawModel>,
    catalog: &Catalog,
    providers: &[Arc<Provider>],
    ways: &EndpointsByProvider,
) -> Result<HashMap<String, Arc<Route>>, EntryError> {
    let mut shared: HashMap<String, ProviderState> =
        providers.iter().map(|p| (p.name.clone(), ProviderState::new(p, ways))).collect();
    let mut own: HashMap<&str, Vec<LiveLane>> = HashMap::new();
    for model in catalog.iter() {
        let given = raw.get(&model.id);
        let lanes = build_lanes(model, given, &mut shared)
            .map_err(|why| EntryError::for_entry(EntryName::Model(model.id.clone()), why))?;
        own.insert(&model.id, lanes);
    }
    let mut routes = HashMap::new();
    for model in catalog.iter() {
        let route = build_route(model, raw.get(&model.id), &own)
            .map_err(|why| EntryError::for_entry(EntryName::Model(model.id.clone()), why))?;
        let route = Arc::new(route);
        for name in model.aliases.iter().chain([&model.id]) {
            routes.insert(name.clone(), Arc::clone(&route));
        }
    }
    Ok(routes)
}

/// A model's own lanes.
fn build_lanes(
    model: &Arc<Model>,
    raw: Option<&RawModel>,
    shared: &mut HashMap<String, ProviderState>,
) -> Result<Vec<LiveLane>, String> {
    let mut lanes: Vec<LiveLane> = Vec::new();
    let mut shares = false;
    for (place, lane) in model.lanes.iter().enumerate() {
        let Some(shared) = shared.get_mut(&lane.provider) else { continue };
        let table = raw.and_then(|raw| raw.lanes.get(place)).and_then(RawLane::table);
        // Lanes written with weights one after the other share; any other stands alone.
        let weighted = table.is_some_and(|table| table.weight.is_some());
        let run = match lanes.last() {
            Some(last) if shares && weighted => last.priority,
            Some(last) => last.priority + 1,
            None => 0,
        };
        shares = weighted;
        let offer = ModelDirectory::embedded().find_offer(&shared.endpoints.provider, &lane.model);
        let prices = match (table.and_then(|table| table.price.as_ref()), offer) {
            (Some(list), _) => {
                Arc::new(list.prices().map_err(|e| format!(".lanes: `{lane}`: price: {e}"))?)
            }
            (None, Some((_, offer))) if raw.is_none_or(|raw| raw.price.is_none()) => {
                Arc::clone(&offer.prices)
            }
            (None, _) => Arc::clone(&model.prices),
        };
        let provider = Arc::clone(&shared.provider);
        let times = raw.map(|raw| raw.timeouts.clone()).unwrap_or_default();
        let timeouts = crate::timeouts::overlay(provider.timeouts, &times, ".timeouts")?;
        if timeouts.connect > provider.timeouts.connect {
            return Err(format!(
                ".timeouts.connect: is longer than that of the provider `{}`; set it there",
                provider.name
            ));
        }
        lanes.push(LiveLane {
            name: lane.name(),
            formats: lane_formats(&provider, &shared.endpoints.provider, &lane.model),
            thinking_controls: thinking_controls(&shared.endpoints.provider, &lane.model),
            endpoints: Arc::clone(&shared.endpoints),
            provider,
            model: lane.model.clone(),
            served_model: Arc::clone(model),
            timeouts,
            prices,
            priority: run,
            weight: lane.weight,
            slots: shared.slots(&lane.model),
            retry_budget: Arc::clone(&shared.retry_budget),
            in_flight: Arc::clone(&shared.in_flight),
        });
    }
    Ok(lanes)
}

fn build_route(
    model: &Arc<Model>,
    raw: Option<&RawModel>,
    own: &HashMap<&str, Vec<LiveLane>>,
) -> Result<Route, String> {
    let mut lanes = own.get(model.id.as_str()).cloned().unwrap_or_default();
    for other in raw.map(|raw| raw.fallback.as_slice()).unwrap_or_default() {
        let Some(others) = own.get(other.as_str()) else {
            let near = nearest_word(other, own.keys().copied());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(format!(".fallback: there is no model `{other}`{near}"));
        };
        if *other == model.id || others.iter().any(|lane| lane.served_model.kind != model.kind) {
            return Err(format!(".fallback: `{other}` cannot stand in for `{}`", model.id));
        }
        let next = lanes.last().map_or(0, |last| last.priority + 1);
        lanes.extend(
            others.iter().map(|lane| LiveLane { priority: next + lane.priority, ..lane.clone() }),
        );
    }
    let order = match raw.and_then(|raw| raw.order.as_deref()) {
        None | Some("written") => LaneOrder::AsWritten,
        Some("cheapest") => LaneOrder::CheapestFirst,
        Some(word) => {
            return Err(format!(
                ".order: `{word}` is not known; write \"written\" or \"cheapest\""
            ));
        }
    };
    let mut prices: Vec<Arc<ModelPrices>> = Vec::new();
    for lane in &lanes {
        if !prices.iter().any(|known| known.version == lane.prices.version) {
            prices.push(Arc::clone(&lane.prices));
        }
    }
    let lanes = lanes.into_iter().map(Arc::new).collect();
    Ok(Route { model: Arc::clone(model), lanes, order, prices })
}

/// What the directory knows of this very model there, else what the provider speaks.
fn lane_formats(provider: &Provider, known_as: &str, model: &str) -> Vec<WireFormat> {
    let mut known = ModelDirectory::embedded().formats(known_as, model);
    known.retain(|origin| provider.formats.contains(origin));
    if known.is_empty() { provider.formats.clone() } else { known }
}

/// What the directory knows of the model a lane leads to, which may be another than the callers'.
fn thinking_controls(provider: &str, model: &str) -> Option<ThinkingControls> {
    let directory = ModelDirectory::embedded();
    let known = directory.find_offer(provider, model).map(|(entry, _)| entry);
    let thinking = known.or_else(|| directory.model(model))?.thinking.as_ref()?;
    let ThinkingRange { min, max, can_disable, dynamic, levels } = thinking;
    let levels: Vec<EffortLevel> =
        levels.iter().filter_map(|word| EffortLevel::parse(word)).collect();
    if max.is_none() && !dynamic && levels.is_empty() {
        // That it thinks is known, but not how it is told to.
        return None;
    }
    let budget = max.map(|max| (min.unwrap_or(0), max));
    Some(ThinkingControls { budget, dynamic: *dynamic, can_disable: *can_disable, levels })
}

impl crate::config::Config {
    /// The health of every lane with every credential, in the order of their names.
    pub fn lane_health(&self, now: i64) -> Vec<LaneHealth> {
        let mut all = BTreeMap::new();
        for lane in self.routes.values().flat_map(|route| &route.lanes) {
            for (credential, seat) in lane.slots.iter().enumerate() {
                all.entry((lane.name.as_str(), credential))
                    .or_insert_with(|| seat.health.snapshot(now));
            }
        }
        all.into_iter()
            .map(|((lane, credential), health)| LaneHealth {
                lane: lane.to_owned(),
                credential,
                health,
            })
            .collect()
    }
}
