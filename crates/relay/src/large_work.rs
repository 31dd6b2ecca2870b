//! Places for work on large inputs.

use canon::WorkToken;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::available_parallelism;
use store::{is_large, run_in_place};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::caller_task;

/// More pieces of large work at once only compete for memory.
const MAX_PIECES: usize = 16;

/// Places for work on large inputs. One processor is left to the threads that serve sockets, however
/// many large inputs there are.
///
/// The wait for a place and the work end with their caller: see [`caller_task::run_for_caller`].
#[derive(Debug)]
pub struct HeavyWork {
    places: Arc<Semaphore>,
    limit: usize,
    waiting: AtomicUsize,
    begun: AtomicUsize,
    abandoned: Arc<AtomicUsize>,
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
    /// Pieces that ended early since start, because their caller left.
    pub abandoned: usize,
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
        let [waiting, begun, abandoned] = Default::default();
        Self { places, limit, waiting, begun, abandoned: Arc::new(abandoned) }
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
        caller_task::become_task().await;
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        self.begun.fetch_add(1, Ordering::Relaxed);
        let (token, abandoned) = (caller_task::token(), Arc::clone(&self.abandoned));
        WorkPermit(place.map(|place| WorkPlace { _place: place, token, abandoned }))
    }

    /// Returns the use of the places.
    pub fn usage(&self) -> HeavyWorkUse {
        HeavyWorkUse {
            limit: self.limit,
            running: self.limit - self.places.available_permits(),
            waiting: self.waiting.load(Ordering::Relaxed),
            begun: self.begun.load(Ordering::Relaxed),
            abandoned: self.abandoned.load(Ordering::Relaxed),
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
pub struct WorkPermit(Option<WorkPlace>);

#[derive(Debug)]
struct WorkPlace {
    _place: OwnedSemaphorePermit,
    /// Cancelled when the caller leaves.
    token: WorkToken,
    abandoned: Arc<AtomicUsize>,
}

impl WorkPermit {
    /// Runs the work at once and frees the place.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> WorkOutcome<T> {
        let Some(place) = self.0 else { return WorkOutcome(Some(work())) };
        let value = run_in_place(usize::MAX, || place.token.scope(work));
        if !place.token.is_cancelled() {
            return WorkOutcome(Some(value));
        }
        place.abandoned.fetch_add(1, Ordering::Relaxed);
        WorkOutcome(None)
    }
}

/// The result of work. Work whose caller has left has none: the call stays here until it is dropped.
#[derive(Debug)]
#[must_use = "the result of work must be awaited"]
pub struct WorkOutcome<T>(Option<T>);

// The value is never pinned.
impl<T> Unpin for WorkOutcome<T> {}

impl<T> Future for WorkOutcome<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0.take().map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::pin::pin;

    const LARGE: usize = (256 << 10) + 1;

    #[tokio::test]
    async fn small_work_never_waits() {
        let work = HeavyWork::new(1);
        let _held = work.permit(LARGE).await;
        let permit = work.permit(LARGE - 1).now_or_never();
        assert_eq!(permit.expect("no wait").run(|| 7).await, 7);
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
            assert_eq!(
                work.usage(),
                HeavyWorkUse { limit: 2, running: 2, waiting: 2, begun: 2, abandoned: 0 }
            );
        }
        assert_eq!(work.usage().waiting, 1, "the caller that left waits no more");
        drop(held);
        third.await.run(|| ()).await;
        assert_eq!(
            work.usage(),
            HeavyWorkUse { limit: 2, running: 0, waiting: 0, begun: 3, abandoned: 0 }
        );
    }

    /// A call of many pieces is polled between them, where it ends if its caller has left.
    #[tokio::test]
    async fn a_call_yields_between_two_pieces_even_if_places_are_free() {
        let work = HeavyWork::new(2);
        let pieces = async {
            for _ in 0..5 {
                work.permit(LARGE).await.run(|| ()).await;
            }
        };
        {
            let mut pieces = pin!(pieces);
            for begun in 0..3 {
                assert!(futures_util::poll!(&mut pieces).is_pending());
                assert_eq!(work.usage().begun, begun);
            }
        }
        assert_eq!(
            work.usage(),
            HeavyWorkUse { limit: 2, running: 0, waiting: 0, begun: 2, abandoned: 0 }
        );
    }
}
