//! Connections kept for the next request, one place per address.

use http::uri::{Authority, Scheme};
use hyper::client::conn::http2::SendRequest;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::body::Pieces;
use crate::client::h1::Wire;
use crate::client::used::Used;

/// How long a connection is kept without being used.
const IDLE: Duration = Duration::from_secs(60);
/// How many are kept per address.
const MOST: usize = 256;

/// Which address a connection leads to; what proxy stands between is the same for all to it.
pub(crate) type Key = (Scheme, Authority);

/// Every address connections were opened to.
#[derive(Default)]
pub(crate) struct Pool(RwLock<HashMap<Key, Arc<Place>>>);

/// The connections to one address.
#[derive(Default)]
pub(crate) struct Place(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Those that speak HTTP/1, the longest unused first.
    idle: VecDeque<(Instant, Box<Wire>)>,
    /// The one that speaks HTTP/2, with the time of its last use.
    shared: Option<(Instant, Shared)>,
    /// Whether somebody looks after those nobody uses any more.
    tended: bool,
}

/// A connection that speaks HTTP/2 and carries many requests at a time.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) sender: SendRequest<Pieces>,
    pub(crate) used: Used,
}

/// A connection that was kept.
pub(crate) enum Found {
    Own(Box<Wire>),
    Shared(Shared),
}

impl Pool {
    /// The place of an address.
    pub(crate) fn place(&self, key: Key) -> Arc<Place> {
        if let Some(place) = self.0.read().get(&key) {
            return Arc::clone(place);
        }
        Arc::clone(self.0.write().entry(key).or_default())
    }
}

impl Place {
    /// A connection that can be used at once, the most recently used first.
    pub(crate) fn find(&self) -> Option<Found> {
        let mut kept = self.0.lock();
        if let Some((last, shared)) = &mut kept.shared {
            if !shared.sender.is_closed() {
                *last = Instant::now();
                return Some(Found::Shared(shared.clone()));
            }
            kept.shared = None;
        }
        while let Some((last, mut wire)) = kept.idle.pop_back() {
            if last.elapsed() < IDLE && wire.is_idle() {
                return Some(Found::Own(wire));
            }
        }
        None
    }

    /// Keeps a connection that has answered and is free again.
    pub(crate) fn keep(self: &Arc<Self>, wire: Box<Wire>) {
        let mut kept = self.0.lock();
        if kept.idle.len() < MOST {
            kept.idle.push_back((Instant::now(), wire));
            self.tend(&mut kept);
        }
    }

    /// Has others use a connection, too. The last one that was opened is the one to use.
    pub(crate) fn share(self: &Arc<Self>, shared: Shared) {
        let mut kept = self.0.lock();
        kept.shared = Some((Instant::now(), shared));
        self.tend(&mut kept);
    }

    /// Sees to it that what nobody uses is closed, for as long as there is anything.
    fn tend(self: &Arc<Self>, kept: &mut Kept) {
        if std::mem::replace(&mut kept.tended, true) {
            return;
        }
        let place = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE / 2).await;
                let Some(place) = place.upgrade() else { return };
                if !place.0.lock().clean() {
                    return;
                }
            }
        });
    }
}

impl Kept {
    /// Drops what was not used for too long. Whether anything is left.
    fn clean(&mut self) -> bool {
        while self.idle.front().is_some_and(|(last, _)| last.elapsed() >= IDLE) {
            self.idle.pop_front();
        }
        self.shared.take_if(|(last, shared)| last.elapsed() >= IDLE || shared.sender.is_closed());
        self.tended = !self.idle.is_empty() || self.shared.is_some();
        self.tended
    }
}
