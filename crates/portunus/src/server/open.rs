//! Who is connected: how many, from where, and how all of them are told that it is over.

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Context;
use tokio_util::sync::CancellationToken;

use crate::config::HttpLimits;

/// What connections are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
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
pub(crate) struct Open {
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

impl Open {
    pub(crate) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Drain,
            2 => Order::End,
            _ => Order::Cut,
        }
    }

    /// Gives everybody an order. An earlier, harder one stands.
    pub(crate) fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        if order >= Order::End {
            self.ending.cancel();
        }
        for waker in self.guests.lock().wakers.values() {
            waker.wake();
        }
    }

    /// Over when what runs is to end.
    pub(super) async fn ending(&self) {
        self.ending.cancelled().await;
    }

    /// How many are connected.
    pub(crate) fn count(&self) -> usize {
        self.guests.lock().wakers.len()
    }

    /// Lets somebody in, unless there are too many already.
    pub(super) fn enter(self: &Arc<Self>, ip: IpAddr, limits: &HttpLimits) -> Option<Guest> {
        let mut guests = self.guests.lock();
        let here = guests.by_address.get(&ip).copied().unwrap_or(0);
        if guests.wakers.len() >= limits.connections || here >= limits.connections_per_address {
            return None;
        }
        guests.by_address.insert(ip, here + 1);
        guests.next += 1;
        let (number, waker) = (guests.next, Arc::new(AtomicWaker::new()));
        guests.wakers.insert(number, Arc::clone(&waker));
        Some(Guest { open: Arc::clone(self), ip, number, waker })
    }
}

/// One who is connected.
#[derive(Debug)]
pub(super) struct Guest {
    open: Arc<Open>,
    ip: IpAddr,
    number: u64,
    waker: Arc<AtomicWaker>,
}

impl Guest {
    /// What is to be done.
    pub(super) fn order(&self) -> Order {
        self.open.order()
    }

    /// Be woken by the next order. Called before looking at the order, so that none is missed.
    pub(super) fn listen(&self, cx: &Context<'_>) {
        self.waker.register(cx.waker());
    }

    /// What wakes this one.
    pub(super) fn waker(&self) -> Arc<AtomicWaker> {
        Arc::clone(&self.waker)
    }
}

impl Drop for Guest {
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
