//! What a new configuration keeps of the last one: how lanes stand, what may be tried again and what
//! runs, wherever a lane leads to the same place with the same credential. A reload is no reason to
//! ask a dead lane again, nor to forget who asked to be left alone.

use std::collections::HashMap;
use std::sync::Arc;
use upstream::{Account, Health};

use crate::config::Config;
use crate::routes::{LiveLane, Route, Seat};

/// The lanes of the last configuration.
struct Past<'a> {
    /// By their names.
    lanes: HashMap<&'a str, &'a LiveLane>,
    /// Any lane of each provider.
    providers: HashMap<&'a str, &'a LiveLane>,
}

impl<'a> Past<'a> {
    fn of(old: &'a Config) -> Self {
        let (mut lanes, mut providers) = (HashMap::new(), HashMap::new());
        for lane in old.routes.values().flat_map(|route| &route.lanes) {
            lanes.insert(lane.name.as_str(), &**lane);
            providers.insert(lane.provider.name.as_str(), &**lane);
        }
        Self { lanes, providers }
    }

    /// What was known of the credential in that place.
    fn account(&self, lane: &LiveLane, place: usize) -> Option<Arc<Account>> {
        let known = self.providers.get(lane.provider.name.as_str())?;
        let place = lane.provider.place_in(&known.provider, place)?;
        known.seats.get(place).map(|seat| Arc::clone(seat.health.account()))
    }

    /// What was known of the lane with the credential in that place.
    fn health(&self, lane: &LiveLane, place: usize) -> Option<Arc<Health>> {
        let known = self.lanes.get(lane.name.as_str())?;
        let place = lane.provider.place_in(&known.provider, place)?;
        known.seats.get(place).map(|seat| Arc::clone(&seat.health))
    }
}

impl Config {
    /// Keeps what the last configuration knew of lanes that are still there.
    pub fn inherit(&mut self, old: &Self) {
        let past = Past::of(old);
        // Models that lead to the same lane share its health, and a model and its aliases a route.
        let mut healths: HashMap<*const Health, Arc<Health>> = HashMap::new();
        let mut routes: HashMap<*const Route, Arc<Route>> = HashMap::new();
        for route in self.routes.values_mut() {
            let heir = routes.entry(Arc::as_ptr(route)).or_insert_with(|| {
                let lanes = route.lanes.iter().map(|lane| heir(lane, &past, &mut healths));
                Arc::new(Route { lanes: lanes.map(Arc::new).collect(), ..Route::clone(route) })
            });
            *route = Arc::clone(heir);
        }
    }
}

fn heir(
    lane: &LiveLane,
    past: &Past<'_>,
    healths: &mut HashMap<*const Health, Arc<Health>>,
) -> LiveLane {
    let seats = lane.seats.iter().enumerate().map(|(place, seat)| {
        let health = healths.entry(Arc::as_ptr(&seat.health)).or_insert_with(|| {
            let known = past.health(lane, place);
            known.unwrap_or_else(|| match past.account(lane, place) {
                Some(account) => Arc::new(Health::new(account)),
                None => Arc::clone(&seat.health),
            })
        });
        Seat { health: Arc::clone(health), print: seat.print }
    });
    let mut heir = LiveLane { seats: seats.collect(), ..lane.clone() };
    // Both belong to the place, whoever we are there.
    let known = past.providers.get(lane.provider.name.as_str());
    if let Some(known) = known.filter(|known| known.provider.is_at(&lane.provider)) {
        heir.budget = Arc::clone(&known.budget);
        heir.running = Arc::clone(&known.running);
    }
    heir
}
