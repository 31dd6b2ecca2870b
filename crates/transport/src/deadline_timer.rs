//! Timers for waits that nearly always end early.

use parking_lot::Mutex;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Timers that are kept for the next waits.
const MAX_SPARE_TIMERS: usize = 1 << 10;

/// One timer for all waits of a connection, created at the first wait. It is only moved to an
/// earlier time, because most waits end before it fires and moving it each time would be expensive.
#[derive(Debug, Default)]
pub(crate) struct DeadlineTimer(Option<Pin<Box<Sleep>>>);

impl DeadlineTimer {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, deadline: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

/// Timers of waits that follow each other, such as those for the answers of a provider.
#[derive(Debug, Default)]
pub struct TimerPool(Mutex<Vec<DeadlineTimer>>);

impl TimerPool {
    /// Waits for a future at most this long; `None` if it takes longer.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let begun = Instant::now();
        // A limit beyond what the clock can express is none.
        let deadline = begun.checked_add(limit);
        let mut timer = self.0.lock().pop().unwrap_or_default();
        let mut future = pin!(future);
        let output = poll_fn(|cx| match (future.as_mut().poll(cx), deadline) {
            (Poll::Ready(output), _) => Poll::Ready(Some(output)),
            (Poll::Pending, Some(deadline)) => timer.poll(cx, deadline).map(|()| None),
            (Poll::Pending, None) => Poll::Pending,
        })
        .await;
        let mut spare = self.0.lock();
        if spare.len() < MAX_SPARE_TIMERS {
            spare.push(timer);
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    #[tokio::test]
    async fn a_used_timer_fires_at_the_next_deadline() {
        let timers = TimerPool::default();
        let (soon, late) = (Duration::from_millis(1), Duration::from_secs(3_600));
        assert_eq!(timers.timeout(late, tokio::task::yield_now()).await, Some(()));
        assert_eq!(timers.timeout(soon, pending::<()>()).await, None);
        let begun = Instant::now();
        assert_eq!(timers.timeout(soon, pending::<()>()).await, None);
        assert!(begun.elapsed() >= soon);
        assert_eq!(timers.timeout(Duration::MAX, async { 1 }).await, Some(1));
        assert_eq!(timers.0.lock().len(), 1, "one timer serves waits that follow each other");
    }
}
