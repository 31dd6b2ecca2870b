//! Work whose duration grows with the size of its input.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Inputs above this size are processed outside the threads that serve sockets.
const LARGE_INPUT_BYTES: usize = 256 << 10;
/// More pieces of large work at once only compete for memory.
const MAX_PIECES: usize = 16;

/// Places for work on large inputs. One processor is left to the threads that serve sockets, however
/// many large inputs there are.
///
/// The wait for a place ends with its caller. Between two pieces of work a call yields, so that it
/// ends there if its caller has left. One piece is not interrupted: docs/security.md tells how long
/// it takes at most.
#[derive(Debug)]
pub struct HeavyWork {
    places: Arc<Semaphore>,
    limit: usize,
    waiting: AtomicUsize,
    begun: AtomicUsize,
}

/// Large work at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeavyWorkUse {
    /// Places.
    pub limit: usize,
    /// Places in use.
    pub running: usize,
    /// Pieces of work that wait for a place.
    pub waiting: usize,
    /// Pieces that got a place since start.
    pub begun: usize,
}

impl Default for HeavyWork {
    fn default() -> Self {
        let processors = available_parallelism().map_or(1, usize::from);
        Self::new((processors - 1).clamp(1, MAX_PIECES))
    }
}

impl HeavyWork {
    /// Creates that many places.
    pub fn new(limit: usize) -> Self {
        let places = Arc::new(Semaphore::new(limit));
        Self { places, limit, waiting: AtomicUsize::new(0), begun: AtomicUsize::new(0) }
    }

    /// Waits until work on an input of this size may run. A small input never waits.
    pub async fn permit(&self, input_bytes: usize) -> WorkPermit {
        if !is_large(input_bytes) {
            return WorkPermit(None);
        }
        // Boxed because it is rare: the future of every call would grow by its size.
        Box::pin(self.wait()).await
    }

    async fn wait(&self) -> WorkPermit {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = WaitGuard(&self.waiting);
        // The connection looks for its caller while the call waits, so a call always waits once.
        tokio::task::yield_now().await;
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        self.begun.fetch_add(1, Ordering::Relaxed);
        WorkPermit(place)
    }

    /// Returns the use of the places.
    pub fn usage(&self) -> HeavyWorkUse {
        HeavyWorkUse {
            limit: self.limit,
            running: self.limit - self.places.available_permits(),
            waiting: self.waiting.load(Ordering::Relaxed),
            begun: self.begun.load(Ordering::Relaxed),
        }
    }
}

/// Counts a waiting piece of work until it gets a place or its caller leaves.
struct WaitGuard<'a>(&'a AtomicUsize);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Permission to work on one input. It holds a place if the input is large.
#[derive(Debug)]
pub struct WorkPermit(Option<OwnedSemaphorePermit>);

impl WorkPermit {
    /// Runs the work and frees the place.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        match self.0 {
            None => work(),
            Some(_place) => leave_worker(work),
        }
    }
}

/// Runs work on an input of this size where nothing can wait: within a stream or under a lock. For
/// copies and short scans only, because it needs no place.
pub fn run_in_place<T>(input_bytes: usize, work: impl FnOnce() -> T) -> T {
    if is_large(input_bytes) { leave_worker(work) } else { work() }
}

/// Returns true if work on an input of this size leaves the threads that serve sockets.
pub(crate) const fn is_large(input_bytes: usize) -> bool {
    input_bytes > LARGE_INPUT_BYTES
}

/// Runs work that may take long. The other tasks of this thread move to another one.
fn leave_worker<T>(work: impl FnOnce() -> T) -> T {
    // A single-threaded runtime, as in tests, has no other thread.
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(work),
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::pin::pin;

    const LARGE: usize = LARGE_INPUT_BYTES + 1;

    #[tokio::test]
    async fn small_work_never_waits() {
        let work = HeavyWork::new(1);
        let _held = work.permit(LARGE).await;
        let permit = work.permit(LARGE_INPUT_BYTES).now_or_never();
        assert_eq!(permit.expect("no wait").run(|| 7), 7);
        assert_eq!(work.usage().begun, 1);
    }

    #[tokio::test]
    async fn large_work_waits_for_a_place_and_ends_with_its_caller() {
        let work = HeavyWork::new(2);
        let held = [work.permit(LARGE).await, work.permit(LARGE).await];
        let mut third = pin!(work.permit(LARGE));
        {
            let mut left = Box::pin(work.permit(LARGE));
            for _ in 0..3 {
                assert!(futures_util::poll!(&mut third).is_pending());
                assert!(futures_util::poll!(&mut left).is_pending());
            }
            assert_eq!(work.usage(), HeavyWorkUse { limit: 2, running: 2, waiting: 2, begun: 2 });
        }
        assert_eq!(work.usage().waiting, 1, "the caller that left waits no more");
        drop(held);
        third.await.run(|| ());
        assert_eq!(work.usage(), HeavyWorkUse { limit: 2, running: 0, waiting: 0, begun: 3 });
    }

    /// A call of many pieces is polled between them, where it ends if its caller has left.
    #[tokio::test]
    async fn a_call_yields_between_two_pieces_even_if_places_are_free() {
        let work = HeavyWork::new(2);
        let pieces = async {
            for _ in 0..5 {
                work.permit(LARGE).await.run(|| ());
            }
        };
        {
            let mut pieces = pin!(pieces);
            for begun in 0..3 {
                assert!(futures_util::poll!(&mut pieces).is_pending());
                assert_eq!(work.usage().begun, begun);
            }
        }
        assert_eq!(work.usage(), HeavyWorkUse { limit: 2, running: 0, waiting: 0, begun: 2 });
    }
}
