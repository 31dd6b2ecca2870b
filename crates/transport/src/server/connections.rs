//! Open connections: limits, and the shutdown of all of them.

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Context;
use tokio_util::sync::CancellationToken;

use super::limits::HttpLimits;
use crate::network::network_of;

/// Phase of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// Accept requests.
    Serve,
    /// Another process accepts new connections. Requests on existing ones are served, and each answer
    /// closes its connection.
    HandOver,
    /// New connections are accepted, but are asked to go elsewhere: each answer closes its connection.
    Linger,
    /// Finish running requests and accept no new ones.
    Drain,
    /// End running requests with an error in their own format.
    End,
    /// Close all connections.
    Cut,
}

/// Use of a connection. It decides which connection a new one may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionUse {
    /// No request has arrived completely, or the connection only waits for its end.
    Waiting,
    /// The handler has answered, and the caller has not read the whole answer.
    Answered,
    /// A handler works on a request.
    Busy,
}

impl ConnectionUse {
    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Waiting,
            1 => Self::Answered,
            _ => Self::Busy,
        }
    }
}

/// All open connections of a listener.
#[derive(Debug, Default)]
pub struct Connections {
    /// Read by every connection on every poll and written a few times per process, so an atomic
    /// keeps the cost of a call low.
    phase: AtomicU8,
    registry: Mutex<ConnectionRegistry>,
    ending: CancellationToken,
    refused: AtomicU64,
    /// True if a new connection may take the place of one on which no handler works.
    replaces_idle: bool,
}

#[derive(Debug, Default)]
struct ConnectionRegistry {
    next_id: u64,
    by_network: HashMap<IpAddr, usize>,
    open: HashMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    network: IpAddr,
    state: Arc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    waker: Arc<AtomicWaker>,
    /// A [`ConnectionUse`].
    current_use: AtomicU8,
    is_replaced: AtomicBool,
}

impl ConnectionState {
    fn current_use(&self) -> ConnectionUse {
        ConnectionUse::from_number(self.current_use.load(Ordering::Relaxed))
    }
}

impl ConnectionRegistry {
    fn remove(&mut self, id: u64) -> Option<OpenConnection> {
        let removed = self.open.remove(&id)?;
        if let Some(count) = self.by_network.get_mut(&removed.network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&removed.network);
            }
        }
        Some(removed)
    }

    /// Closes the oldest connection that waits for a request, or else the oldest whose answer is not
    /// read, of that network if there is one. Returns false if handlers work on all of them.
    fn close_replaceable(&mut self, network: Option<IpAddr>) -> bool {
        let rank = |one: &OpenConnection| match one.state.current_use() {
            ConnectionUse::Waiting => Some(0_u8),
            ConnectionUse::Answered => Some(1),
            ConnectionUse::Busy => None,
        };
        let open = self.open.iter();
        let open = open.filter(|(_, one)| network.is_none_or(|network| network == one.network));
        let replaceable = open.filter_map(|(id, one)| Some((rank(one)?, *id)));
        let Some(OpenConnection { state, .. }) =
            replaceable.min().and_then(|(_, id)| self.remove(id))
        else {
            return false;
        };
        state.is_replaced.store(true, Ordering::Release);
        state.waker.wake();
        true
    }
}

impl Connections {
    /// Creates a registry in which a new connection takes the place of the oldest one on which no handler
    /// works, if there are too many. Peers that send nothing or half of a head, or do not read their
    /// answers, keep nobody out.
    pub fn replacing_idle() -> Self {
        Self { replaces_idle: true, ..Self::default() }
    }

    /// Returns the current phase.
    pub fn phase(&self) -> ShutdownPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => ShutdownPhase::Serve,
            1 => ShutdownPhase::HandOver,
            2 => ShutdownPhase::Linger,
            3 => ShutdownPhase::Drain,
            4 => ShutdownPhase::End,
            _ => ShutdownPhase::Cut,
        }
    }

    /// Enters a phase. A later phase is never left again.
    pub fn advance(&self, phase: ShutdownPhase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
        if phase >= ShutdownPhase::End {
            self.ending.cancel();
        }
        for OpenConnection { state, .. } in self.registry.lock().open.values() {
            state.waker.wake();
        }
    }

    /// Waits for [`ShutdownPhase::End`].
    pub async fn wait_for_end(&self) {
        self.ending.cancelled().await;
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.registry.lock().open.len()
    }

    /// Returns the number of connections that were refused since start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Registers a connection, unless a limit is reached. The limit of an address counts the addresses of
    /// one network together.
    pub fn admit(self: &Arc<Self>, ip: IpAddr, limits: &HttpLimits) -> Option<Connection> {
        let mut registry = self.registry.lock();
        let network = network_of(ip);
        let count = registry.by_network.get(&network).copied().unwrap_or(0);
        let has_many = count >= limits.connections_per_address;
        if has_many || registry.open.len() >= limits.connections {
            let crowded = has_many.then_some(network);
            if !self.replaces_idle || !registry.close_replaceable(crowded) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        *registry.by_network.entry(network).or_default() += 1;
        registry.next_id += 1;
        let id = registry.next_id;
        let state = Arc::new(ConnectionState {
            waker: Arc::default(),
            current_use: AtomicU8::new(ConnectionUse::Waiting as u8),
            is_replaced: AtomicBool::new(false),
        });
        registry.open.insert(id, OpenConnection { network, state: Arc::clone(&state) });
        Some(Connection { connections: Arc::clone(self), id, state })
    }
}

/// A registered connection; dropping it frees its place.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    id: u64,
    state: Arc<ConnectionState>,
}

impl Connection {
    /// Returns all connections of this listener.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections)
    }

    /// Returns the current phase.
    pub fn phase(&self) -> ShutdownPhase {
        self.connections.phase()
    }

    /// Registers the task to be woken by the next phase. Must be called before [`Self::phase`], so
    /// that no change is missed.
    pub fn register_waker(&self, cx: &Context<'_>) {
        self.state.waker.register(cx.waker());
    }

    /// Returns the waker of this connection.
    pub fn waker(&self) -> Arc<AtomicWaker> {
        Arc::clone(&self.state.waker)
    }

    /// Notes the use of the connection.
    pub fn set_use(&self, current_use: ConnectionUse) {
        self.state.current_use.store(current_use as u8, Ordering::Relaxed);
    }

    /// Returns true if the connection must close in the middle of an answer.
    pub fn must_close(&self) -> bool {
        self.is_replaced() || self.phase() == ShutdownPhase::Cut
    }

    /// Returns true if another connection has the place of this one, which must close then.
    pub fn is_replaced(&self) -> bool {
        self.state.is_replaced.load(Ordering::Acquire)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        drop(self.connections.registry.lock().remove(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LIMITS: HttpLimits = HttpLimits {
        connections: 3,
        connections_per_address: 2,
        headers: 1,
        header_bytes: 1,
        header_time: Duration::ZERO,
        body_time: Duration::ZERO,
        body_rate: 1,
        idle: Duration::ZERO,
        stall: Duration::ZERO,
        streams: 1,
        resets: 1,
        control_frames: 1,
    };

    #[test]
    fn a_new_connection_replaces_the_oldest_that_waits() {
        let [one, other, third] = [1, 2, 3].map(|last| IpAddr::from([127, 0, 0, last]));
        let plain = Arc::new(Connections::default());
        let kept = [one, one].map(|ip| plain.admit(ip, &LIMITS).unwrap());
        assert!(plain.admit(one, &LIMITS).is_none(), "usually the new one is refused");
        drop(kept);
        let connections = Arc::new(Connections::replacing_idle());
        let admit = |ip| connections.admit(ip, &LIMITS);
        let busy = admit(one).unwrap();
        busy.set_use(ConnectionUse::Busy);
        let waiting = admit(one).unwrap();
        let of_other = admit(other).unwrap();
        let next = admit(one).unwrap();
        assert!(waiting.is_replaced() && !busy.is_replaced() && !of_other.is_replaced());
        drop(waiting);
        assert_eq!(connections.count(), 3, "its place was given away before");
        let last = admit(third).unwrap();
        assert!(of_other.is_replaced() && !next.is_replaced());
        [&next, &last].iter().for_each(|one| one.set_use(ConnectionUse::Busy));
        assert!(admit(other).is_none(), "all of them serve requests");
        next.set_use(ConnectionUse::Answered);
        let after_answer = admit(other).unwrap();
        assert!(next.is_replaced(), "its answer is not read");
        last.set_use(ConnectionUse::Answered);
        let youngest = admit(other).unwrap();
        assert!(after_answer.is_replaced() && !last.is_replaced(), "waiting ones come first");
        drop((busy, next, last, of_other, after_answer, youngest));
        assert_eq!(connections.count(), 0);
        assert!(connections.registry.lock().by_network.is_empty());
    }

    #[test]
    fn addresses_of_one_network_have_one_limit() {
        let connections = Arc::new(Connections::default());
        let admit = |text: &str| connections.admit(text.parse().unwrap(), &LIMITS);
        let held = [admit("2001:db8::1"), admit("2001:db8::ffff:2")];
        assert!(held.iter().all(Option::is_some));
        assert!(admit("2001:db8::3").is_none(), "the network has two");
        assert!(admit("2001:db8:0:1::1").is_some(), "another network");
        let [first, _] = held;
        drop(first);
        assert!(admit("2001:db8::3").is_some());
    }
}
