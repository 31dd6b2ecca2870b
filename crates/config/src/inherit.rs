//! Health that a new configuration takes over from the last one.
//!
//! A lane at the same address with the same credential keeps its health, its retry budget and its
//! count of running calls. A reload must not retry a dead lane or forget a wait that a provider
//! asked for.

use canon::Micros;
use std::collections::HashMap;
use std::sync::Arc;
use upstream::{CredentialHealth, HealthTracker};

use crate::config::Config;
use crate::lane_counters::LaneCounters;
use crate::routes::{CredentialSlot, LiveLane, Route};

/// Lanes of the last configuration.
struct PreviousLanes<'a> {
    /// Lanes by name.
    lanes: HashMap<&'a str, &'a LiveLane>,
    /// One lane of each provider.
    providers: HashMap<&'a str, &'a LiveLane>,
    /// Counts by requested model and lane. Those of a model without a lane have no name of one.
    calls: HashMap<(&'a str, &'a str), &'a Arc<LaneCounters>>,
}

impl<'a> PreviousLanes<'a> {
    fn new(old: &'a Config) -> Self {
        let (mut lanes, mut providers) = (HashMap::new(), HashMap::new());
        let mut calls = HashMap::new();
        for route in old.routes.values() {
            let model = route.model_id.as_str();
            calls.insert((model, ""), &route.unplaced_calls);
            for lane in &route.lanes {
                lanes.insert(lane.name.as_str(), &**lane);
                providers.insert(lane.provider.name.as_str(), &**lane);
                calls.entry((model, lane.name.as_str())).or_insert(&lane.calls);
            }
        }
        Self { lanes, providers, calls }
    }

    /// Returns the last health of the credential at this index.
    fn credential_health(&self, lane: &LiveLane, index: usize) -> Option<Arc<CredentialHealth>> {
        let known = self.providers.get(lane.provider.name.as_str())?;
        let index = lane.provider.index_in(&known.provider, index)?;
        known.slots.get(index).map(|slot| Arc::clone(slot.health.credential()))
    }

    /// Returns the last health of the lane with the credential at this index.
    fn lane_health(&self, lane: &LiveLane, index: usize) -> Option<Arc<HealthTracker>> {
        let known = self.lanes.get(lane.name.as_str())?;
        let index = lane.provider.index_in(&known.provider, index)?;
        known.slots.get(index).map(|slot| Arc::clone(&slot.health))
    }
}

impl PreviousLanes<'_> {
    /// Returns the last counts of the model on this lane, or the new ones.
    fn calls(&self, model: &str, lane: &str, new: &Arc<LaneCounters>) -> Arc<LaneCounters> {
        Arc::clone(self.calls.get(&(model, lane)).copied().unwrap_or(new))
    }
}

impl Config {
    /// Takes over the health and the counts of lanes that still exist, what their credentials fetched, and
    /// the certificate of the listener if it is not in a file, or if the one in the file is not valid.
    pub fn inherit_health(&mut self, old: &Self, now: Micros) {
        if let (Some(tls), Some(earlier)) = (&self.tls, &old.tls) {
            tls.adopt(earlier, now);
        }
        for provider in &self.providers {
            if let Some(earlier) = old.providers.iter().find(|own| own.name == provider.name) {
                provider.adopt_credentials(earlier);
            }
        }
        let previous = PreviousLanes::new(old);
        // Models on the same lane share its health; a model and its aliases share a route.
        let mut healths: HashMap<*const HealthTracker, Arc<HealthTracker>> = HashMap::new();
        let mut routes: HashMap<*const Route, Arc<Route>> = HashMap::new();
        for route in self.routes.values_mut() {
            let inherited = routes.entry(Arc::as_ptr(route)).or_insert_with(|| {
                let model = route.model_id.as_str();
                let lanes = route.lanes.iter().map(|lane| LiveLane {
                    calls: previous.calls(model, &lane.name, &lane.calls),
                    ..inherit_lane(lane, &previous, &mut healths)
                });
                Arc::new(Route {
                    lanes: lanes.map(Arc::new).collect(),
                    unplaced_calls: previous.calls(model, "", &route.unplaced_calls),
                    ..Route::clone(route)
                })
            });
            *route = Arc::clone(inherited);
        }
    }
}

fn inherit_lane(
    lane: &LiveLane,
    previous: &PreviousLanes<'_>,
    healths: &mut HashMap<*const HealthTracker, Arc<HealthTracker>>,
) -> LiveLane {
    let slots = lane.slots.iter().enumerate().map(|(index, slot)| {
        let health = healths.entry(Arc::as_ptr(&slot.health)).or_insert_with(|| {
            let known = previous.lane_health(lane, index);
            known.unwrap_or_else(|| match previous.credential_health(lane, index) {
                Some(account) => Arc::new(HealthTracker::new(account)),
                None => Arc::clone(&slot.health),
            })
        });
        CredentialSlot { health: Arc::clone(health), hash_key: slot.hash_key }
    });
    let mut inherited = LiveLane { slots: slots.collect(), ..lane.clone() };
    // Budget and count belong to the address, not to the credential.
    let known = previous.providers.get(lane.provider.name.as_str());
    if let Some(known) = known.filter(|known| known.provider.has_same_address(&lane.provider)) {
        inherited.retry_budget = Arc::clone(&known.retry_budget);
        inherited.in_flight = Arc::clone(&known.in_flight);
    }
    inherited
}
