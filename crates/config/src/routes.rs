//! Routes: the lanes of each model with everything a call needs, so that a call never looks up a
//! provider.

use canon::{Micros, SharedText, ThinkingRange, WireFormat};
use catalog::{
    Catalog, Endpoints, Model, ModelCapabilities, ModelDirectory, ModelEntry, ModelKind,
    ModelPrices, ThinkingSupport,
};
use foldhash::fast::RandomState;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use upstream::{CredentialHealth, HealthSnapshot, HealthTracker, Provider, RetryBudget, Timeouts};

use crate::entry::{EntryError, EntryName};
use crate::error::FieldError;
use crate::lane_counters::LaneCounters;
use crate::providers::EndpointsByProvider;
use crate::raw::{RawLane, RawModel};
use crate::units::nearest_word;
use upstream::InFlight;

/// A model and the lanes that serve it.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model.
    pub model: Arc<Model>,
    /// Its id, as records of calls share it.
    pub model_id: SharedText,
    /// Lanes in order of preference, followed by the lanes of its fallback models.
    pub lanes: Vec<Arc<LiveLane>>,
    /// Preference among the lanes.
    pub order: LaneOrder,
    /// Every price list that a call may be charged by.
    pub prices: Vec<Arc<ModelPrices>>,
    /// Counts of calls that no lane was asked for.
    pub unplaced_calls: Arc<LaneCounters>,
}

impl Route {
    /// Returns true if the model can be called in the formats of conversations: a chat model, or an
    /// image model behind such a format.
    pub fn converses(&self) -> bool {
        let mut formats = self.lanes.iter().flat_map(|lane| &lane.formats);
        match self.model.kind {
            ModelKind::Chat => true,
            ModelKind::Image => formats.any(|own| own.carries(ModelKind::Chat)),
            ModelKind::Embedding => false,
        }
    }
}

/// Preference among the lanes of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// The order of the file. Adjacent lanes with weights share the calls.
    AsWritten,
    /// The cheapest lane first.
    CheapestFirst,
}

/// One provider that serves one model.
#[derive(Clone, Debug)]
pub struct LiveLane {
    /// `provider/model`.
    pub name: SharedText,
    /// The provider.
    pub provider: Arc<Provider>,
    /// Name of the model at the provider.
    pub model: String,
    /// Model that the lane serves. On a fallback lane it differs from the requested model.
    pub served_model: Arc<Model>,
    /// Capabilities of the model at the provider. Most lanes share those of the model that they serve.
    pub capabilities: Arc<ModelCapabilities>,
    /// Wire formats the lane accepts, the best one first.
    pub formats: Vec<WireFormat>,
    /// Thinking options of the model, if they are known; `NEVER` if it does not think.
    pub thinking_range: Option<ThinkingRange>,
    /// Paths and field quirks of the provider.
    pub endpoints: Arc<Endpoints>,
    /// Timeouts of calls on this lane.
    pub timeouts: Timeouts,
    /// Prices of this lane.
    pub prices: Arc<ModelPrices>,
    /// Position in the order of preference. Lanes of equal priority share calls by weight.
    pub priority: u32,
    /// Share among lanes of equal priority.
    pub weight: u32,
    /// One slot for each credential of the provider.
    pub slots: Vec<CredentialSlot>,
    /// Retry budget of the provider.
    pub retry_budget: Arc<RetryBudget>,
    /// Running calls of the provider.
    pub in_flight: Arc<InFlight>,
    /// Counts of the calls of one model on this lane.
    pub calls: Arc<LaneCounters>,
}

impl LiveLane {
    /// Returns true if the provider is at its `max_in_flight`.
    pub fn is_full(&self) -> bool {
        self.in_flight.is_full(self.provider.max_in_flight)
    }
}

/// A lane with one of the provider's credentials.
#[derive(Clone, Debug)]
pub struct CredentialSlot {
    /// Health of the lane with this credential.
    pub health: Arc<HealthTracker>,
    /// Hash of lane and credential, equal on every node.
    pub hash_key: u64,
}

/// Health of a lane with one credential, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneHealth {
    /// Name of the lane.
    pub lane: String,
    /// Index of the credential in the configuration.
    pub credential: usize,
    /// State and figures.
    pub health: HealthSnapshot,
}

/// State shared by all lanes of a provider.
struct ProviderState {
    provider: Arc<Provider>,
    endpoints: Arc<Endpoints>,
    credential_health: Vec<Arc<CredentialHealth>>,
    retry_budget: Arc<RetryBudget>,
    in_flight: Arc<InFlight>,
    /// Slots by the provider's model name, because models on the same lane share its health.
    slots_by_model: HashMap<String, Vec<CredentialSlot>>,
}

impl ProviderState {
    fn new(provider: &Arc<Provider>, endpoints: &EndpointsByProvider) -> Self {
        let credential_health = (0..provider.credential_count()).map(|_| Arc::default()).collect();
        let (retry_budget, in_flight) = (Arc::new(RetryBudget::new(Micros::ZERO)), Arc::default());
        let endpoints = endpoints.get(&provider.name).cloned().unwrap_or_default();
        let (provider, slots_by_model) = (Arc::clone(provider), HashMap::new());
        Self { provider, endpoints, credential_health, retry_budget, in_flight, slots_by_model }
    }

    fn slots(&mut self, model: &str) -> Vec<CredentialSlot> {
        let Self { provider, credential_health, slots_by_model, .. } = self;
        let slots = slots_by_model.entry(model.to_owned()).or_insert_with(|| {
            let slot = |(index, credential): (usize, &Arc<CredentialHealth>)| CredentialSlot {
                health: Arc::new(HealthTracker::new(Arc::clone(credential))),
                hash_key: slot_hash(&provider.name, model, index),
            };
            credential_health.iter().enumerate().map(slot).collect()
        });
        slots.clone()
    }
}

/// Returns the FNV-1a hash of a slot. A change of the hash would move conversations away from their
/// cached prompts.
fn slot_hash(provider: &str, model: &str, index: usize) -> u64 {
    let name = format!("{provider}/{model}#{index}");
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Routes by id and alias. Callers look names up but add none, so that a fast hash is safe.
pub type RoutesByModel = HashMap<String, Arc<Route>, RandomState>;

/// Builds the routes of all models, by id and alias.
pub(super) fn check(
    (raw, directory): (&BTreeMap<String, RawModel>, &ModelDirectory),
    catalog: &Catalog,
    providers: &[Arc<Provider>],
    endpoints: &EndpointsByProvider,
) -> Result<RoutesByModel, EntryError> {
    let mut state: HashMap<String, ProviderState> =
        providers.iter().map(|p| (p.name.clone(), ProviderState::new(p, endpoints))).collect();
    let mut own_lanes: HashMap<&str, Vec<LiveLane>> = HashMap::new();
    for model in catalog.iter() {
        let entry = raw.get(&model.id);
        let lanes = build_lanes(model, entry, directory, &mut state)
            .map_err(|why| EntryError::for_entry(EntryName::Model(model.id.clone()), why))?;
        own_lanes.insert(&model.id, lanes);
    }
    let mut routes = RoutesByModel::default();
    for model in catalog.iter() {
        let route = build_route(model, raw.get(&model.id), &own_lanes)
            .map_err(|why| EntryError::for_entry(EntryName::Model(model.id.clone()), why))?;
        let route = Arc::new(route);
        for name in model.aliases.iter().chain([&model.id]) {
            routes.insert(name.clone(), Arc::clone(&route));
        }
    }
    Ok(routes)
}

/// Builds the lanes of a model, without its fallbacks.
fn build_lanes(
    model: &Arc<Model>,
    raw: Option<&RawModel>,
    directory: &ModelDirectory,
    state: &mut HashMap<String, ProviderState>,
) -> Result<Vec<LiveLane>, FieldError> {
    let mut lanes: Vec<LiveLane> = Vec::new();
    let mut shares = false;
    let capabilities = Arc::new(model.capabilities.clone());
    for (index, lane) in model.lanes.iter().enumerate() {
        let Some(state) = state.get_mut(&lane.provider) else { continue };
        let table = raw.and_then(|raw| raw.lanes.get(index)).and_then(RawLane::table);
        // Adjacent lanes with weights share a priority; a lane without a weight has its own.
        let weighted = table.is_some_and(|table| table.weight.is_some());
        let priority = match lanes.last() {
            Some(last) if shares && weighted => last.priority,
            Some(last) => last.priority + 1,
            None => 0,
        };
        shares = weighted;
        let offer = directory.find_offer(&state.endpoints.provider, &lane.model);
        let prices = match (table.and_then(|table| table.price.as_ref()), offer) {
            (Some(list), _) => Arc::new(
                list.prices()
                    .map_err(|e| FieldError::new("lanes", format_args!("`{lane}`: price: {e}")))?,
            ),
            (None, Some((_, offer))) if raw.is_none_or(|raw| raw.price.is_none()) => {
                Arc::clone(&offer.prices)
            }
            (None, _) => Arc::clone(&model.prices),
        };
        let provider = Arc::clone(&state.provider);
        let overrides = raw.map(|raw| raw.timeouts.clone()).unwrap_or_default();
        let timeouts = crate::timeouts::overlay(provider.timeouts, &overrides, "timeouts")?;
        if timeouts.connect > provider.timeouts.connect {
            return Err(FieldError::new(
                "timeouts.connect",
                format_args!(
                    "is longer than that of the provider `{}`; set it there",
                    provider.name
                ),
            ));
        }
        lanes.push(LiveLane {
            name: lane.name().into(),
            formats: lane_formats(directory, &provider, &state.endpoints.provider, &lane.model),
            thinking_range: lane_thinking(
                directory,
                (model, raw),
                &state.endpoints.provider,
                &lane.model,
            ),
            endpoints: Arc::clone(&state.endpoints),
            provider,
            model: lane.model.clone(),
            served_model: Arc::clone(model),
            capabilities: lane_capabilities(&capabilities, raw, offer.map(|(entry, _)| entry))?,
            timeouts,
            prices,
            priority,
            weight: lane.weight,
            slots: state.slots(&lane.model),
            retry_budget: Arc::clone(&state.retry_budget),
            in_flight: Arc::clone(&state.in_flight),
            calls: Arc::default(),
        });
    }
    Ok(lanes)
}

fn build_route(
    model: &Arc<Model>,
    raw: Option<&RawModel>,
    own_lanes: &HashMap<&str, Vec<LiveLane>>,
) -> Result<Route, FieldError> {
    let mut lanes = own_lanes.get(model.id.as_str()).cloned().unwrap_or_default();
    for other in raw.map(|raw| raw.fallback.as_slice()).unwrap_or_default() {
        let Some(others) = own_lanes.get(other.as_str()) else {
            let near = nearest_word(other, own_lanes.keys().copied());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            return Err(FieldError::new(
                "fallback",
                format_args!("there is no model `{other}`{near}"),
            ));
        };
        if *other == model.id || others.iter().any(|lane| lane.served_model.kind != model.kind) {
            return Err(FieldError::new(
                "fallback",
                format_args!("`{other}` cannot be a fallback of `{}`", model.id),
            ));
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
            return Err(FieldError::new(
                "order",
                format_args!("`{word}` is not known; write \"written\" or \"cheapest\""),
            ));
        }
    };
    let mut prices: Vec<Arc<ModelPrices>> = Vec::new();
    for lane in &lanes {
        if !prices.iter().any(|known| known.version == lane.prices.version) {
            prices.push(Arc::clone(&lane.prices));
        }
    }
    // The calls of each requested model are counted apart, and those of a lane that is named twice together.
    let mut calls: HashMap<SharedText, Arc<LaneCounters>> = HashMap::new();
    for lane in &mut lanes {
        lane.calls = Arc::clone(calls.entry(lane.name.clone()).or_default());
    }
    let lanes = lanes.into_iter().map(Arc::new).collect();
    let model_id = SharedText::from(model.id.as_str());
    let unplaced_calls = Arc::default();
    Ok(Route { model: Arc::clone(model), model_id, lanes, order, prices, unplaced_calls })
}

/// Returns the formats the directory lists for this model, or else those of the provider.
fn lane_formats(
    directory: &ModelDirectory,
    provider: &Provider,
    known_as: &str,
    model: &str,
) -> Vec<WireFormat> {
    let mut known = directory.formats(known_as, model);
    known.retain(|wire_format| provider.formats.contains(wire_format));
    if known.is_empty() { provider.formats.clone() } else { known }
}

/// Returns the capabilities of the model behind a lane: those that the operator wrote and those of the
/// directory. If the directory does not know the lane, they are those of the model that it serves.
fn lane_capabilities(
    served: &Arc<ModelCapabilities>,
    raw: Option<&RawModel>,
    offered: Option<&ModelEntry>,
) -> Result<Arc<ModelCapabilities>, FieldError> {
    let (Some(raw), Some(entry)) = (raw, offered) else { return Ok(Arc::clone(served)) };
    let mut own = entry.capabilities.clone();
    crate::models::apply_written(raw, &mut own)?;
    Ok(if own == **served { Arc::clone(served) } else { Arc::new(own) })
}

/// Returns the thinking options of the model behind a lane, which may differ from the requested one: those
/// that the operator wrote, those of the directory for the model at the provider, or else for the id.
fn lane_thinking(
    directory: &ModelDirectory,
    (model, raw): (&Model, Option<&RawModel>),
    known_as: &str,
    upstream: &str,
) -> Option<ThinkingRange> {
    let offered = directory.find_offer(known_as, upstream).map(|(entry, _)| entry);
    let known =
        offered.or_else(|| directory.model(upstream)).or_else(|| directory.model(&model.id));
    let known = known.map(|entry| &entry.capabilities);
    let is_written = raw.is_some_and(|raw| raw.thinking.is_some());
    let capabilities = known.filter(|_| !is_written).unwrap_or(&model.capabilities);
    match &capabilities.thinking {
        ThinkingSupport::Unknown => None,
        ThinkingSupport::Never => Some(ThinkingRange::NEVER),
        // A model may be known to think, but not by which parameter.
        ThinkingSupport::Range(range) => Some(range).filter(|range| range.has_controls()).cloned(),
    }
}

/// Counters of a model on a lane.
#[derive(Clone, Debug)]
pub struct LaneCalls {
    /// Id of the requested model.
    pub model: SharedText,
    /// Name of the lane; empty for calls that no lane was asked for.
    pub lane: SharedText,
    /// The counters.
    pub calls: Arc<LaneCounters>,
}

impl crate::config::Config {
    /// Returns the counters that have counted a call, sorted by model and lane.
    pub fn lane_calls(&self) -> Vec<LaneCalls> {
        let mut all = BTreeMap::new();
        for route in self.routes.values() {
            let model = &route.model_id;
            let lanes = route.lanes.iter().map(|lane| (lane.name.clone(), &lane.calls));
            for (lane, calls) in lanes.chain([(SharedText::default(), &route.unplaced_calls)]) {
                // A model and its aliases share a route.
                if calls.used_place().is_some() {
                    all.entry((model.to_string(), lane.to_string()))
                        .or_insert_with(|| (model.clone(), lane, Arc::clone(calls)));
                }
            }
        }
        all.into_values().map(|(model, lane, calls)| LaneCalls { model, lane, calls }).collect()
    }

    /// Returns the health of every lane and credential, sorted by name.
    pub fn lane_health(&self, now: Micros) -> Vec<LaneHealth> {
        let mut all = BTreeMap::new();
        for lane in self.routes.values().flat_map(|route| &route.lanes) {
            for (credential, slot) in lane.slots.iter().enumerate() {
                all.entry((lane.name.as_str(), credential))
                    .or_insert_with(|| slot.health.snapshot(now));
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
