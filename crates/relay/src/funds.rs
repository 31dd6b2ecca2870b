//! Money of running calls, and the background tasks that synchronise this node with the store.

use canon::{Micros, Money};
use ledger::{
    HoldRecord, HoldRefusal, HoldTicket, KeyBalance, KeySpending, LeaseClient, LeaseStoreError,
    MAX_BATCH_CALLS, OpenCalls, TryHold,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::node_folder::NodeFolder;
use crate::refusals::RefusalCounts;

/// Time limit for a call that needs the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// Silence of the store up to which it is only busy. A heartbeat may take three seconds, and there is one
/// every second.
pub const MAX_STORE_SILENCE: Micros = Micros::from_secs(4);
/// Time limit for a call that needs a store which is only busy.
const BUSY_STORE_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts to return the money that a process does not need after a take-over. The new process waits
/// for ten seconds.
const HAND_OVER_ATTEMPTS: u32 = 3;
/// Longest pause between two attempts of a call that waits for money. A call of this node that ends
/// wakes it earlier; other nodes return money with a heartbeat, once a second.
const LEASE_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for lease operations.
const LEASE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for storing a batch of settled calls.
const POST_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval at which counts of refused calls are stored.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between batches of settled calls.
const POST_PAUSE: Duration = Duration::from_millis(100);
/// The same for a busy node: a batch writes each sum of usage once, however many calls it has.
const BUSY_POST_PAUSE: Duration = Duration::from_secs(1);
/// Settled calls that end the pause of a busy node, so that they do not fill the memory.
const FULL_BATCH_CALLS: usize = 2_000;
/// Number of calls per millisecond from which on a node is busy.
const BUSY_CALLS: usize = 1;
/// Longest pause between attempts to store settled calls, while the node runs and at shutdown.
const MAX_POST_PAUSE: Duration = Duration::from_secs(5);
const MAX_LAST_POST_PAUSE: Duration = Duration::from_millis(500);
/// Time for which a stopping node tries to store calls that are not in the journal either.
const LAST_POST_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which leases of dead nodes are closed.
const CLOSE_DEAD_NODES_SECONDS: u32 = 5;

/// Money of running calls: reservations of this node, and the leases they draw on.
pub struct NodeFunds {
    /// Reservations and settled calls of this node, in memory and in the journal.
    pub open_calls: Arc<OpenCalls>,
    /// Leases of this node.
    pub lease_client: LeaseClient<Store>,
    /// Refused calls that the store does not have.
    pub(super) refusals: RefusalCounts,
    store: Store,
    /// Reason of the last heartbeat that failed; `None` after one that was answered.
    heartbeat_error: Mutex<Option<String>>,
    /// Reason why the last batch of settled calls was not stored; `None` after one that was.
    post_error: Mutex<Option<String>>,
    /// Folder of the journal.
    pub node_folder: NodeFolder,
}

impl NodeFunds {
    /// Creates the funds of a node with that folder.
    pub fn new(
        open_calls: Arc<OpenCalls>,
        lease_client: LeaseClient<Store>,
        store: Store,
        node_folder: NodeFolder,
    ) -> Self {
        Self {
            open_calls,
            lease_client,
            refusals: RefusalCounts::default(),
            store,
            heartbeat_error: Mutex::default(),
            post_error: Mutex::default(),
            node_folder,
        }
    }

    /// The database.
    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    /// Reserves `full`, or what is left if that is at least `least`. Asks the store only if the
    /// leases of this node do not cover the amount.
    ///
    /// Waits up to `wait` for money that is reserved for other calls. It waits for all of `full` if
    /// the limits leave that much unspent: a lower limit would truncate the answer for a reason that
    /// does not last.
    pub async fn reserve(
        &self,
        balance: &Arc<KeyBalance>,
        record: Arc<HoldRecord>,
        full: Money,
        least: impl Fn() -> Money,
        wait: Duration,
    ) -> Result<HoldTicket, HoldRefusal> {
        let record = match self.lease_client.try_hold(balance, record, full)? {
            TryHold::Held(pending) => return pending.written().await.map_err(HoldRefusal::Journal),
            TryHold::MustWait(record) => record,
        };
        // Boxed because it is rare: the future of every call would grow by its size.
        Box::pin(self.reserve_from_store(balance, record, full, least(), wait)).await
    }

    /// Reserves money that the leases of this node do not cover.
    async fn reserve_from_store(
        &self,
        balance: &Arc<KeyBalance>,
        record: Arc<HoldRecord>,
        full: Money,
        least: Money,
        wait: Duration,
    ) -> Result<HoldTicket, HoldRefusal> {
        let begun = Instant::now();
        let mut may_get_full = least < full;
        loop {
            let patience = wait.saturating_sub(begun.elapsed());
            let waits_for_full = may_get_full && !patience.is_zero();
            let least = if waits_for_full { full } else { least };
            let holding = self.lease_client.hold(balance, Arc::clone(&record), full, least);
            match self.unless_away(begun, holding).await {
                Some(Err(HoldRefusal::Spent(_) | HoldRefusal::Unreachable(_)))
                    if waits_for_full =>
                {
                    may_get_full = false;
                }
                Some(Err(HoldRefusal::Held(_))) if !patience.is_zero() => {
                    let pause = LEASE_RETRY_PAUSE.min(patience);
                    // Both outcomes lead to another attempt.
                    let _ = tokio::time::timeout(pause, balance.money_freed()).await;
                }
                Some(outcome) => return outcome,
                None => {
                    return Err(HoldRefusal::Unreachable(
                        "the store did not answer in time".to_owned(),
                    ));
                }
            }
        }
    }

    /// Waits for an answer of the store. Returns `None` after a second if the store is away. A store that
    /// answers others is only busy, as during a take-over, and is waited for. The question is not asked
    /// again, because a busy store would have to answer both.
    async fn unless_away<T>(&self, begun: Instant, asked: impl Future<Output = T>) -> Option<T> {
        let mut asked = std::pin::pin!(asked);
        loop {
            if let Ok(answer) = tokio::time::timeout(STORE_TIMEOUT, &mut asked).await {
                return Some(answer);
            }
            let is_busy = self.lease_client.time_since_contact() <= MAX_STORE_SILENCE;
            if !is_busy || begun.elapsed() >= BUSY_STORE_TIMEOUT {
                return None;
            }
        }
    }

    /// Returns the spending of a key over all nodes, or as known to this node if the store is
    /// unreachable.
    pub async fn key_status(&self, balance: &KeyBalance) -> KeySpending {
        match tokio::time::timeout(STORE_TIMEOUT, self.lease_client.key_status(balance)).await {
            Ok(Ok(status)) => status,
            Ok(Err(_)) | Err(_) => KeySpending { own: balance.status(), ..KeySpending::default() },
        }
    }

    /// Returns the amount an account has spent and the rest of its cap; `None` if the store is
    /// unreachable.
    pub async fn account_balance(&self, id: &str, cap: Money) -> Option<(Money, Money)> {
        let query = tokio::time::timeout(STORE_TIMEOUT, self.store.account_spending(id));
        let (spent, _) = query.await.ok()?.ok()?;
        Some((spent, cap.saturating_sub(spent).max(Money::ZERO)))
    }

    /// Posts settled calls to the store until `stop` is cancelled and no call is left.
    pub async fn post_settled_calls(&self, stop: &CancellationToken) {
        let (mut wait, mut pause) = (POST_PAUSE, POST_PAUSE);
        let mut calls_ended: Option<Instant> = None;
        let mut refusals_stored = Instant::now();
        loop {
            if refusals_stored.elapsed() >= REFUSAL_INTERVAL || stop.is_cancelled() {
                self.store_refusals().await;
                refusals_stored = Instant::now();
            }
            let posting = tokio::time::timeout(POST_TIMEOUT, self.lease_client.post());
            let posted = posting.await.unwrap_or_else(|_| {
                Err(LeaseStoreError::Unreachable("the store did not answer in time".to_owned()))
            });
            *self.post_error.lock() = posted.as_ref().err().map(ToString::to_string);
            match posted {
                Ok(count) => {
                    let stops = stop.is_cancelled();
                    if count == 0 && stops && self.open_calls.running_count() == 0 {
                        return self.return_leases().await;
                    }
                    wait = POST_PAUSE;
                    // Small batches cost the store almost as much as large ones, so wait for more
                    // calls.
                    pause = pause_after(count, pause);
                    if count == 0 || (pause == POST_PAUSE && !stops) {
                        tokio::time::sleep(POST_PAUSE).await;
                    } else if count < MAX_BATCH_CALLS && !stops {
                        self.wait_for_batch(pause, stop).await;
                    }
                }
                Err(e) => {
                    tracing::error!("settled calls could not be stored and will be retried: {e}");
                    let stops = stop.is_cancelled();
                    if stops && self.open_calls.running_count() == 0 {
                        let since = *calls_ended.get_or_insert_with(Instant::now);
                        // Calls in the journal are posted at the next start.
                        if self.is_all_in_journal().await || since.elapsed() > LAST_POST_TIMEOUT {
                            return;
                        }
                    }
                    let longest = if stops { MAX_LAST_POST_PAUSE } else { MAX_POST_PAUSE };
                    wait = wait.min(longest);
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(longest);
                }
            }
        }
    }

    /// Waits for more settled calls: for this time, or until there are enough. A stop ends the pause, and
    /// so does a journal that takes no records: then only the store can have the calls.
    async fn wait_for_batch(&self, pause: Duration, stop: &CancellationToken) {
        let (ends, calls) = (Instant::now() + pause, &self.open_calls);
        let may_wait = || !calls.is_stalled() && !calls.is_failing();
        while Instant::now() < ends && calls.unposted_count() < FULL_BATCH_CALLS && may_wait() {
            if tokio::time::timeout(POST_PAUSE, stop.cancelled()).await.is_ok() {
                return;
            }
        }
    }

    /// Adds the refused calls to their counts in the store. Public for tests, which need not wait for
    /// the interval.
    pub async fn store_refusals(&self) {
        let refused = self.refusals.take();
        if refused.is_empty() {
            return;
        }
        let storing = tokio::time::timeout(POST_TIMEOUT, self.store.add_refusals(&refused));
        let outcome = match storing.await {
            Ok(stored) => stored.map_err(|e| e.to_string()),
            Err(_) => Err("the store did not answer in time".to_owned()),
        };
        if let Err(why) = outcome {
            tracing::warn!("refused calls could not be counted and will be retried: {why}");
            self.refusals.put_back(refused);
        }
    }

    /// Returns true if the journal has every settled call. Writes those it lacks.
    async fn is_all_in_journal(&self) -> bool {
        let book = Arc::clone(&self.open_calls);
        // A failure is counted by the journal and leaves unwritten calls. So does a disk that hangs.
        let writing = tokio::task::spawn_blocking(move || book.maintain_journal());
        let _ = tokio::time::timeout(MAX_LAST_POST_PAUSE, writing).await;
        self.open_calls.unwritten().is_empty()
    }

    /// Returns all leases at shutdown, so that other nodes need not wait until they expire.
    async fn return_leases(&self) {
        match tokio::time::timeout(LEASE_TIMEOUT, self.lease_client.leave()).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::warn!("leases could not be returned and will expire: {e}"),
            Err(_) => tracing::warn!("leases could not be returned in time and will expire"),
        }
    }

    /// Sends a heartbeat every second, which renews the leases of this node, and closes leases of
    /// dead nodes.
    pub async fn run_heartbeats(&self, stop: &CancellationToken) {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for second in 0_u32.. {
            seconds.tick().await;
            if stop.is_cancelled() && self.open_calls.running_count() == 0 {
                return;
            }
            self.heartbeat().await;
            if second % CLOSE_DEAD_NODES_SECONDS == 0 {
                self.close_dead_nodes().await;
            }
        }
    }

    /// Sends one heartbeat. Public for tests, which need not wait for the interval.
    pub async fn heartbeat(&self) {
        let sent = tokio::time::timeout(LEASE_TIMEOUT, self.lease_client.heartbeat()).await;
        *self.heartbeat_error.lock() = match &sent {
            Ok(Ok(())) => None,
            Ok(Err(e)) => Some(e.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        };
        match sent {
            Ok(Ok(())) => {}
            Ok(Err(LeaseStoreError::Fenced)) => {
                tracing::error!(
                    "another process uses the name of this node: was its data folder \
                     copied? This one continues under a new name"
                );
                if let Err(e) = self.node_folder.write_name(&self.lease_client.node_name()) {
                    tracing::error!("{e}");
                }
            }
            Ok(Err(e)) => tracing::warn!("leases could not be renewed: {e}"),
            Err(_) => tracing::warn!("leases could not be renewed: no answer in time"),
        }
    }

    /// Returns the reason why the last heartbeat failed, if it did.
    pub fn heartbeat_error(&self) -> Option<String> {
        self.heartbeat_error.lock().clone()
    }

    /// Returns the reason why the last batch of settled calls was not stored, if it was not.
    pub fn post_error(&self) -> Option<String> {
        self.post_error.lock().clone()
    }

    /// Returns the money that running calls do not need, now and with every heartbeat from now on,
    /// because another process serves new calls.
    pub async fn hand_over(&self) {
        self.lease_client.yield_money();
        for _ in 0..HAND_OVER_ATTEMPTS {
            self.heartbeat().await;
            if self.heartbeat_error().is_none() {
                return;
            }
        }
    }

    async fn close_dead_nodes(&self) {
        match tokio::time::timeout(LEASE_TIMEOUT, self.lease_client.close_dead_nodes()).await {
            Ok(Ok(closed)) if closed.leases + closed.calls > 0 => tracing::warn!(
                leases = closed.leases,
                calls = closed.calls,
                "a node is dead: {} of its calls are settled, {} of its leases closed",
                closed.calls,
                closed.leases
            ),
            Ok(Ok(_)) => {}
            Ok(Err(e)) => tracing::warn!("leases of dead nodes could not be closed: {e}"),
            Err(_) => tracing::warn!("leases of dead nodes could not be closed in time"),
        }
    }
}

/// Returns the pause after a batch with that many calls, which came within the pause before it.
fn pause_after(calls: usize, before: Duration) -> Duration {
    let few = usize::try_from(before.as_millis()).unwrap_or(usize::MAX).saturating_mul(BUSY_CALLS);
    if calls < few { POST_PAUSE } else { BUSY_POST_PAUSE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use ledger::{Clock, KeyBalance, MemoryDisk, SystemClock};

    #[test]
    fn a_node_is_busy_by_its_rate_and_not_by_its_last_pause() {
        for (calls, before, after) in [
            (0, POST_PAUSE, POST_PAUSE),
            (99, POST_PAUSE, POST_PAUSE),
            (100, POST_PAUSE, BUSY_POST_PAUSE),
            (150, BUSY_POST_PAUSE, POST_PAUSE),
            (999, BUSY_POST_PAUSE, POST_PAUSE),
            (1_000, BUSY_POST_PAUSE, BUSY_POST_PAUSE),
            (FULL_BATCH_CALLS, BUSY_POST_PAUSE, BUSY_POST_PAUSE),
        ] {
            assert_eq!(pause_after(calls, before), after, "{calls} calls after {before:?}");
        }
    }

    #[tokio::test]
    async fn calls_that_the_journal_does_not_take_are_posted_at_once() {
        let disk = Arc::new(MemoryDisk::default());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = Store::open("sqlite::memory:").await.unwrap();
        let opened = OpenCalls::open(Arc::clone(&clock), Arc::clone(&disk) as _).unwrap();
        let open_calls = Arc::clone(&opened.book);
        let leases = LeaseClient::open(opened, store.clone(), clock, "node-a").await.unwrap();
        let funds =
            NodeFunds::new(Arc::clone(&open_calls), leases, store, NodeFolder::first("".as_ref()));
        let stop = CancellationToken::new();
        let hour = Duration::from_secs(3_600);
        let waits = funds.wait_for_batch(hour, &stop).now_or_never();
        assert!(waits.is_none(), "more calls may come");
        disk.set_free_space(Some(0));
        let balance = KeyBalance::new("k", None, Money::ZERO);
        let held = Arc::new(HoldRecord { request_id: "r".into(), ..HoldRecord::default() });
        // Nobody waits for the record.
        drop(open_calls.hold(&balance, held, Money::ZERO, Money::ZERO));
        assert!(open_calls.is_failing());
        assert!(funds.wait_for_batch(hour, &stop).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_busy_store_is_waited_for_and_an_absent_one_is_not() {
        let clock = Arc::new(ledger::TestClock::default());
        let shared = Arc::clone(&clock) as Arc<dyn Clock>;
        let store = Store::open("sqlite::memory:").await.unwrap();
        let disk = Arc::new(MemoryDisk::default());
        let opened = OpenCalls::open(Arc::clone(&shared), disk).unwrap();
        let open_calls = Arc::clone(&opened.book);
        let leases = LeaseClient::open(opened, store.clone(), shared, "node-a").await.unwrap();
        let funds = NodeFunds::new(open_calls, leases, store, NodeFolder::first("".as_ref()));
        let begun = Instant::now();
        let slow = tokio::time::sleep(STORE_TIMEOUT * 2 + STORE_TIMEOUT / 2);
        assert!(funds.unless_away(begun, slow).await.is_some(), "the store has just answered");
        clock.pass(MAX_STORE_SILENCE + Micros::new(1));
        let never = std::future::pending::<()>();
        assert!(funds.unless_away(Instant::now(), never).await.is_none());
    }
}
