//! Health that a new configuration takes over from the last one.
//!
//! A lane at the same address with the same credential keeps its health, its retry budget and its
//! count of running calls. A reload must not retry a dead lane or forget a wait that a provider
//! asked for.

use std::collections::HashMap;
use std::sync::Arc;
use upstream::{CredentialHealth, HealthTracker};

use crate::config::Config;
use crate::routes::{CredentialSlot, LiveLane, Route};

/// Lanes of the last configuration.
struct PreviousLanes<'a> {
    /// Lanes by name.
    lanes: HashMap<&'a str, &'a LiveLane>,
    /// One lane of each provider.
    providers: HashMap<&'a str, &'a LiveLane>,
}

impl<'a> PreviousLanes<'a> {
    fn new(old: &'a Config) -> Self {
        let (mut lanes, mut providers) = (HashMap::new(), HashMap::new());
        for lane in old.routes.values().flat_map(|route| &route.lanes) {
            lanes.insert(lane.name.as_str(), &**lane);
            providers.insert(lane.provider.name.as_str(), &**lane);
        }
        Self { lanes, providers }
    }

    /// Returns the last health of the credential at this index.
    fn credential_health(&self, lane: &LiveLane, place: usize) -> Option<Arc<CredentialHealth>> {
        let known = self.providers.get(lane.provider.name.as_str())?;
        let place = lane.provider.index_in(&known.provider, place)?;
        known.slots.get(place).map(|seat| Arc::clone(seat.health.credential()))
    }

    /// Returns the last health of the lane with the credential at this index.
    fn lane_health(&self, lane: &LiveLane, place: usize) -> Option<Arc<HealthTracker>> {
        let known = self.lanes.get(lane.name.as_str())?;
        let place = lane.provider.index_in(&known.provider, place)?;
        known.slots.get(place).map(|seat| Arc::clone(&seat.health))
    }
}

impl Config {
    /// Takes over the health of lanes that still exist.
    pub fn inherit_health(&mut self, old: &Self) {
        let past = PreviousLanes::new(old);
        // Models on the same lane share its health; a model and its aliases share a route.
        let mut healths: HashMap<*const HealthTracker, Arc<HealthTracker>> = HashMap::new();
        let mut routes: HashMap<*const Route, Arc<Route>> = HashMap::new();
        for route in self.routes.values_mut() {
            let heir = routes.entry(Arc::as_ptr(route)).or_insert_with(|| {
                let lanes = route.lanes.iter().map(|lane| inherit_lane(lane, &past, &mut healths));
                Arc::new(Route { lanes: lanes.map(Arc::new).collect(), ..Route::clone(route) })
            });
            *route = Arc::clone(heir);
        }
    }
}

fn inherit_lane(
    lane: &LiveLane,
    past: &PreviousLanes<'_>,
    healths: &mut HashMap<*const HealthTracker, Arc<HealthTracker>>,
) -> LiveLane {
    let seats = lane.slots.iter().enumerate().map(|(place, seat)| {
        let health = healths.entry(Arc::as_ptr(&seat.health)).or_insert_with(|| {
            let known = past.lane_health(lane, place);
            known.unwrap_or_else(|| match past.credential_health(lane, place) {
                Some(account) => Arc::new(HealthTracker::new(account)),
                None => Arc::clone(&seat.health),
            })
        });
        CredentialSlot { health: Arc::clone(health), hash_key: seat.hash_key }
    });
    let mut heir = LiveLane { slots: seats.collect(), ..lane.clone() };
    // Budget and count belong to the address, not to the credential.
    let known = past.providers.get(lane.provider.name.as_str());
    if let Some(known) = known.filter(|known| known.provider.has_same_address(&lane.provider)) {
        heir.retry_budget = Arc::clone(&known.retry_budget);
        heir.in_flight = Arc::clone(&known.in_flight);
    }
    heir
}
