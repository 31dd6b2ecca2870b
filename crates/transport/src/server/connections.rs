//! Who is connected: how many, from where, and how all of them are told that it is over.

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Context;
use tokio_util::sync::CancellationToken;

use super::limits::HttpLimits;

/// What connections are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// Take requests.
    Serve,
    /// Finish what runs and take nothing new.
    Drain,
    /// End what runs, with an error in its own format.
    End,
    /// Close, whatever runs.
    Cut,
}

/// Everybody who is connected.
#[derive(Debug, Default)]
pub struct Connections {
    /// Read by every connection at every turn and written a few times in a process's life, so
    /// that a call pays nothing for being stoppable.
    phase: AtomicU8,
    registry: Mutex<ConnectionRegistry>,
    ending: CancellationToken,
}

#[derive(Debug, Default)]
struct ConnectionRegistry {
    next_id: u64,
    by_address: HashMap<IpAddr, usize>,
    wakers: HashMap<u64, Arc<AtomicWaker>>,
}

impl Connections {
    pub fn phase(&self) -> ShutdownPhase {
        match self.phase.load(Ordering::Acquire) {
            0 => ShutdownPhase::Serve,
            1 => ShutdownPhase::Drain,
            2 => ShutdownPhase::End,
            _ => ShutdownPhase::Cut,
        }
    }

    /// Gives everybody an order. An earlier, harder one stands.
    pub fn advance(&self, order: ShutdownPhase) {
        self.phase.fetch_max(order as u8, Ordering::AcqRel);
        if order >= ShutdownPhase::End {
            self.ending.cancel();
        }
        for waker in self.registry.lock().wakers.values() {
            waker.wake();
        }
    }

    /// Over when what runs is to end.
    pub async fn wait_for_end(&self) {
        self.ending.cancelled().await;
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.registry.lock().wakers.len()
    }

    /// Lets somebody in, unless there are too many already.
    pub fn admit(self: &Arc<Self>, ip: IpAddr, limits: &HttpLimits) -> Option<Connection> {
        let mut guests = self.registry.lock();
        let here = guests.by_address.get(&ip).copied().unwrap_or(0);
        if guests.wakers.len() >= limits.connections || here >= limits.connections_per_address {
            return None;
        }
        guests.by_address.insert(ip, here + 1);
        guests.next_id += 1;
        let (number, waker) = (guests.next_id, Arc::new(AtomicWaker::new()));
        guests.wakers.insert(number, Arc::clone(&waker));
        Some(Connection { connections: Arc::clone(self), ip, id: number, waker })
    }
}

/// One who is connected.
#[derive(Debug)]
pub struct Connection {
    connections: Arc<Connections>,
    ip: IpAddr,
    id: u64,
    waker: Arc<AtomicWaker>,
}

impl Connection {
    /// All connections of this listener.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections)
    }

    /// What is to be done.
    pub fn phase(&self) -> ShutdownPhase {
        self.connections.phase()
    }

    /// Be woken by the next order. Called before looking at the order, so that none is missed.
    pub fn register_waker(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// What wakes this one.
    pub fn waker(&self) -> Arc<AtomicWaker> {
        Arc::clone(&self.waker)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut guests = self.connections.registry.lock();
        guests.wakers.remove(&self.id);
        if let Some(here) = guests.by_address.get_mut(&self.ip) {
            *here -= 1;
            if *here == 0 {
                guests.by_address.remove(&self.ip);
            }
        }
    }
}
