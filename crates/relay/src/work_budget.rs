//! Cooperation of streams with the other tasks of their thread.

use std::future::poll_fn;
use std::task::{Context, Poll};
use tokio::task::coop;

/// Received bytes that cost one unit of a task's budget. A task has 128 units per poll
/// (<https://docs.rs/tokio/latest/tokio/task/coop/index.html>), so it yields every 64 KiB.
///
/// A read of the socket costs one unit whatever its size, which lets a provider whose events have no
/// output occupy a thread for megabytes.
const BYTES_PER_UNIT: usize = 512;

/// Received bytes that are not yet charged to the budget of the task.
#[derive(Debug, Default)]
pub(super) struct WorkBudget {
    uncharged_bytes: usize,
}

impl WorkBudget {
    /// Adds bytes that were processed.
    pub(super) fn add(&mut self, bytes: usize) {
        self.uncharged_bytes = self.uncharged_bytes.saturating_add(bytes);
    }

    /// Charges the bytes. Pending if the task must yield first, and then one yield pays for all.
    pub(super) fn poll_charge(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(left) = self.uncharged_bytes.checked_sub(BYTES_PER_UNIT) {
            match coop::poll_proceed(cx) {
                Poll::Ready(unit) => unit.made_progress(),
                Poll::Pending => {
                    self.uncharged_bytes = 0;
                    return Poll::Pending;
                }
            }
            self.uncharged_bytes = left;
        }
        Poll::Ready(())
    }

    /// Charges the bytes, and yields if the budget is used up.
    pub(super) async fn charge(&mut self) {
        poll_fn(|cx| self.poll_charge(cx)).await;
    }
}
