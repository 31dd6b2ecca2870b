//! Connections kept for the next request, one place per address.

use http::uri::{Authority, Scheme};
use hyper::client::conn::http2::SendRequest;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::body::RequestBody;
use crate::client::connection_use::ConnectionUse;
use crate::client::h1::ClientWire;

/// How long a connection is kept without being used.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How many are kept per address.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// Which address a connection leads to; what proxy stands between is the same for all to it.
pub(crate) type PoolKey = (Scheme, Authority);

/// Every address connections were opened to.
#[derive(Default)]
pub(crate) struct ConnectionPool(RwLock<HashMap<PoolKey, Arc<HostPool>>>);

/// The connections to one address.
#[derive(Default)]
pub(crate) struct HostPool(Mutex<IdleConnections>);

#[derive(Default)]
struct IdleConnections {
    /// Those that speak HTTP/1, the longest unused first.
    idle: VecDeque<(Instant, Box<ClientWire>)>,
    /// The one that speaks HTTP/2, with the time of its last use.
    http2: Option<(Instant, Http2Connection)>,
    /// Whether somebody looks after those nobody uses any more.
    has_reaper: bool,
}

/// A connection that speaks HTTP/2 and carries many requests at a time.
#[derive(Clone)]
pub(crate) struct Http2Connection {
    pub(crate) sender: SendRequest<RequestBody>,
    pub(crate) used: ConnectionUse,
}

/// A connection that was kept.
pub(crate) enum PooledConnection {
    Http1(Box<ClientWire>),
    Http2(Http2Connection),
}

impl ConnectionPool {
    /// The place of an address.
    pub(crate) fn host(&self, key: PoolKey) -> Arc<HostPool> {
        if let Some(place) = self.0.read().get(&key) {
            return Arc::clone(place);
        }
        Arc::clone(self.0.write().entry(key).or_default())
    }
}

impl HostPool {
    /// A connection that can be used at once, the most recently used first.
    pub(crate) fn take(&self) -> Option<PooledConnection> {
        let mut kept = self.0.lock();
        if let Some((last, shared)) = &mut kept.http2 {
            if !shared.sender.is_closed() {
                *last = Instant::now();
                return Some(PooledConnection::Http2(shared.clone()));
            }
            kept.http2 = None;
        }
        while let Some((last, mut wire)) = kept.idle.pop_back() {
            if last.elapsed() < IDLE_TIMEOUT && wire.is_idle() {
                return Some(PooledConnection::Http1(wire));
            }
        }
        None
    }

    /// Keeps a connection that has answered and is free again.
    pub(crate) fn put(self: &Arc<Self>, wire: Box<ClientWire>) {
        let mut kept = self.0.lock();
        if kept.idle.len() < MAX_IDLE_CONNECTIONS {
            kept.idle.push_back((Instant::now(), wire));
            self.start_reaper(&mut kept);
        }
    }

    /// Has others use a connection, too. The last one that was opened is the one to use.
    pub(crate) fn put_http2(self: &Arc<Self>, shared: Http2Connection) {
        let mut kept = self.0.lock();
        kept.http2 = Some((Instant::now(), shared));
        self.start_reaper(&mut kept);
    }

    /// Sees to it that what nobody uses is closed, for as long as there is anything.
    fn start_reaper(self: &Arc<Self>, kept: &mut IdleConnections) {
        if std::mem::replace(&mut kept.has_reaper, true) {
            return;
        }
        let place = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE_TIMEOUT / 2).await;
                let Some(place) = place.upgrade() else { return };
                if !place.0.lock().drop_expired() {
                    return;
                }
            }
        });
    }
}

impl IdleConnections {
    /// Drops what was not used for too long. Whether anything is left.
    fn drop_expired(&mut self) -> bool {
        while self.idle.front().is_some_and(|(last, _)| last.elapsed() >= IDLE_TIMEOUT) {
            self.idle.pop_front();
        }
        self.http2
            .take_if(|(last, shared)| last.elapsed() >= IDLE_TIMEOUT || shared.sender.is_closed());
        self.has_reaper = !self.idle.is_empty() || self.http2.is_some();
        self.has_reaper
    }
}
