//! Open connections: limits, and the shutdown of all of them.

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
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
}

#[derive(Debug, Default)]
struct ConnectionRegistry {
    next_id: u64,
    by_address: HashMap<IpAddr, usize>,
    wakers: HashMap<u64, Arc<AtomicWaker>>,
}

impl Connections {
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
        for waker in self.registry.lock().wakers.values() {
            waker.wake();
        }
    }

    /// Waits for [`ShutdownPhase::End`].
    pub async fn wait_for_end(&self) {
        self.ending.cancelled().await;
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.registry.lock().wakers.len()
    }

    /// Returns the number of connections that were refused since start.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Registers a connection, unless a limit is reached.
    pub fn admit(self: &Arc<Self>, ip: IpAddr, limits: &HttpLimits) -> Option<Connection> {
        let mut registry = self.registry.lock();
        let count = registry.by_address.get(&ip).copied().unwrap_or(0);
        if registry.wakers.len() >= limits.connections || count >= limits.connections_per_address {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        registry.by_address.insert(ip, count + 1);
        registry.next_id += 1;
        let (id, waker) = (registry.next_id, Arc::new(AtomicWaker::new()));
        registry.wakers.insert(id, Arc::clone(&waker));
        Some(Connection { connections: Arc::clone(self), ip, id, waker })
    }
}

/// A registered connection; dropping it frees its place.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    ip: IpAddr,
    id: u64,
    waker: Arc<AtomicWaker>,
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
        self.waker.register(cx.waker());
    }

    /// Returns the waker of this connection.
    pub fn waker(&self) -> Arc<AtomicWaker> {
        Arc::clone(&self.waker)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut registry = self.connections.registry.lock();
        registry.wakers.remove(&self.id);
        if let Some(count) = registry.by_address.get_mut(&self.ip) {
            *count -= 1;
            if *count == 0 {
                registry.by_address.remove(&self.ip);
            }
        }
    }
}
