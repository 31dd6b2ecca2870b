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

/// All open connections of a listener.
#[derive(Debug, Default)]
pub struct Connections {
    /// Read by every connection on every poll and written a few times per process, so an atomic
    /// keeps the cost of a call low.
    phase: AtomicU8,
    registry: Mutex<ConnectionRegistry>,
    ending: CancellationToken,
    refused: AtomicU64,
    /// True if a new connection may take the place of one that waits for a request.
    replaces_idle: bool,
}

#[derive(Debug, Default)]
struct ConnectionRegistry {
    next_id: u64,
    by_address: HashMap<IpAddr, usize>,
    open: HashMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    ip: IpAddr,
    state: Arc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    waker: Arc<AtomicWaker>,
    /// True while no request has arrived completely.
    is_waiting: AtomicBool,
    is_replaced: AtomicBool,
}

impl ConnectionRegistry {
    fn remove(&mut self, id: u64) -> Option<OpenConnection> {
        let removed = self.open.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&removed.ip) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&removed.ip);
            }
        }
        Some(removed)
    }

    /// Closes the oldest connection that waits for a request, of that address if there is one. Returns
    /// false if none waits.
    fn close_waiting(&mut self, ip: Option<IpAddr>) -> bool {
        let waits = |one: &OpenConnection| {
            ip.is_none_or(|ip| ip == one.ip) && one.state.is_waiting.load(Ordering::Relaxed)
        };
        let waiting = self.open.iter().filter(|(_, one)| waits(one)).map(|(id, _)| *id);
        let Some(OpenConnection { state, .. }) = waiting.min().and_then(|id| self.remove(id))
        else {
            return false;
        };
        state.is_replaced.store(true, Ordering::Release);
        state.waker.wake();
        true
    }
}

impl Connections {
    /// Creates a registry in which a new connection takes the place of the oldest one that waits for a
    /// request, if there are too many. Peers that send nothing, or half of a head, keep nobody out.
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

    /// Registers a connection, unless a limit is reached.
    pub fn admit(self: &Arc<Self>, ip: IpAddr, limits: &HttpLimits) -> Option<Connection> {
        let mut registry = self.registry.lock();
        let count = registry.by_address.get(&ip).copied().unwrap_or(0);
        let has_many = count >= limits.connections_per_address;
        if has_many || registry.open.len() >= limits.connections {
            let address = has_many.then_some(ip);
            if !self.replaces_idle || !registry.close_waiting(address) {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        *registry.by_address.entry(ip).or_default() += 1;
        registry.next_id += 1;
        let id = registry.next_id;
        let state = Arc::new(ConnectionState {
            waker: Arc::default(),
            is_waiting: AtomicBool::new(true),
            is_replaced: AtomicBool::new(false),
        });
        registry.open.insert(id, OpenConnection { ip, state: Arc::clone(&state) });
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

    /// Notes if the connection waits for a request.
    pub fn set_waiting(&self, is_waiting: bool) {
        self.state.is_waiting.store(is_waiting, Ordering::Relaxed);
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
        busy.set_waiting(false);
        let waiting = admit(one).unwrap();
        let of_other = admit(other).unwrap();
        let next = admit(one).unwrap();
        assert!(waiting.is_replaced() && !busy.is_replaced() && !of_other.is_replaced());
        drop(waiting);
        assert_eq!(connections.count(), 3, "its place was given away before");
        let last = admit(third).unwrap();
        assert!(of_other.is_replaced() && !next.is_replaced());
        [&next, &last].iter().for_each(|one| one.set_waiting(false));
        assert!(admit(other).is_none(), "all of them serve requests");
        drop((busy, next, last, of_other));
        assert_eq!(connections.count(), 0);
        assert!(connections.registry.lock().by_address.is_empty());
    }
}
