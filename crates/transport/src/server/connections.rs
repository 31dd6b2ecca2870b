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
    order: AtomicU8,
    guests: Mutex<Guests>,
    ending: CancellationToken,
}

#[derive(Debug, Default)]
struct Guests {
    next: u64,
    by_address: HashMap<IpAddr, usize>,
    wakers: HashMap<u64, Arc<AtomicWaker>>,
}

impl Connections {
    pub fn order(&self) -> ShutdownPhase {
        match self.order.load(Ordering::Acquire) {
            0 => ShutdownPhase::Serve,
            1 => ShutdownPhase::Drain,
            2 => ShutdownPhase::End,
            _ => ShutdownPhase::Cut,
        }
    }

    /// Gives everybody an order. An earlier, harder one stands.
    pub fn give(&self, order: ShutdownPhase) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        if order >= ShutdownPhase::End {
            self.ending.cancel();
        }
        for waker in self.guests.lock().wakers.values() {
            waker.wake();
        }
    }

    /// Over when what runs is to end.
    pub async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// How many are connected.
    pub fn count(&self) -> usize {
        self.guests.lock().wakers.len()
    }

    /// Lets somebody in, unless there are too many already.
    pub fn enter(self: &Arc<Self>, ip: IpAddr, limits: &HttpLimits) -> Option<Connection> {
        let mut guests = self.guests.lock();
        let here = guests.by_address.get(&ip).copied().unwrap_or(0);
        if guests.wakers.len() >= limits.connections || here >= limits.connections_per_address {
            return None;
        }
        guests.by_address.insert(ip, here + 1);
        guests.next += 1;
        let (number, waker) = (guests.next, Arc::new(AtomicWaker::new()));
        guests.wakers.insert(number, Arc::clone(&waker));
        Some(Connection { open: Arc::clone(self), ip, number, waker })
    }
}

/// One who is connected.
#[derive(Debug)]
pub struct Connection {
    open: Arc<Connections>,
    ip: IpAddr,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl Connection {
    /// All connections of this listener.
    pub fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.open)
    }

    /// What is to be done.
    pub fn order(&self) -> ShutdownPhase {
        self.open.order()
    }

    /// Be woken by the next order. Called before looking at the order, so that none is missed.
    pub fn listen(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// What wakes this one.
    pub fn waker(&self) -> Arc<AtomicWaker> {
        Arc::clone(&self.waker)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut guests = self.open.guests.lock();
        guests.wakers.remove(&self.number);
        if let Some(here) = guests.by_address.get_mut(&self.ip) {
            *here -= 1;
            if *here == 0 {
                guests.by_address.remove(&self.ip);
            }
        }
    }
}
