//! What a new configuration keeps of the last one: how lanes stand, what may be tried again and what
//! runs, wherever a lane leads to the same place with the same credential. A reload is no reason to
//! ask a dead lane again, nor to forget who asked to be left alone.

use std::collections::HashMap;
use std::sync::Arc;
use upstream::{CredentialHealth, HealthTracker};

use crate::config::Config;
use crate::routes::{CredentialSlot, LiveLane, Route};

/// The lanes of the last configuration.
struct PreviousLanes<'a> {
    /// By their names.
    lanes: HashMap<&'a str, &'a LiveLane>,
    /// Any lane of each provider.
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

    /// What was known of the credential in that place.
    fn credential_health(&self, lane: &LiveLane, place: usize) -> Option<Arc<CredentialHealth>> {
        let known = self.providers.get(lane.provider.name.as_str())?;
        let place = lane.provider.index_in(&known.provider, place)?;
        known.slots.get(place).map(|seat| Arc::clone(seat.health.credential()))
    }

    /// What was known of the lane with the credential in that place.
    fn lane_health(&self, lane: &LiveLane, place: usize) -> Option<Arc<HealthTracker>> {
        let known = self.lanes.get(lane.name.as_str())?;
        let place = lane.provider.index_in(&known.provider, place)?;
        known.slots.get(place).map(|seat| Arc::clone(&seat.health))
    }
}

impl Config {
    /// Keeps what the last configuration knew of lanes that are still there.
    pub fn inherit_health(&mut self, old: &Self) {
        let past = PreviousLanes::new(old);
        // Models that lead to the same lane share its health, and a model and its aliases a route.
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
    // Both belong to the place, whoever we are there.
    let known = past.providers.get(lane.provider.name.as_str());
    if let Some(known) = known.filter(|known| known.provider.has_same_address(&lane.provider)) {
        heir.retry_budget = Arc::clone(&known.retry_budget);
        heir.in_flight = Arc::clone(&known.in_flight);
    }
    heir
}
