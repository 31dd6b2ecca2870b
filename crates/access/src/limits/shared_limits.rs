//! Counts and key changes that nodes share through Valkey.
//!
//! The shared counts are hints and never decide about money. If Valkey is unreachable, slow, full
//! or holds foreign values, each node applies its share of a limit and finds changed keys by
//! polling.

use canon::{AtomicMicros, Micros, TimeHistogram};
use futures_util::StreamExt as _;
use ledger::Clock;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Script};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_util::task::TaskTracker;

use config::ValkeySettings;

/// Pause after a failed request before Valkey is asked again.
const RETRY_PAUSE: Micros = Micros::from_secs(1);
/// Interval of node heartbeats, and the age at which a silent node is dropped.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIMEOUT: Duration = Duration::from_secs(3);
const NODE_TIMEOUT_SECONDS: i64 = 10;
const WINDOW_SECONDS: i64 = 60;
/// Channel on which nodes announce changed keys.
const KEYS_CHANNEL: &str = "portunus:keys";
const NODES_KEY: &str = "portunus:nodes";

/// Connection to Valkey.
pub struct SharedLimits {
    clock: Arc<dyn Clock>,
    tasks: TaskTracker,
    client: Client,
    manager: ConnectionManager,
    take_script: Script,
    /// Time limit for a request on the path of a call.
    timeout: Duration,
    node: String,
    /// Node count of the last heartbeat.
    nodes: AtomicU32,
    /// Time until which Valkey is not asked.
    paused_until: AtomicMicros,
    /// Requests so far, for metrics.
    pub requests: ValkeyRequests,
}

/// Requests to Valkey on the path of a call and of heartbeats.
#[derive(Debug)]
pub struct ValkeyRequests {
    /// Their durations.
    pub times: TimeHistogram,
    failed: AtomicU64,
    is_up: AtomicBool,
}

impl ValkeyRequests {
    const fn new() -> Self {
        let (failed, is_up) = (AtomicU64::new(0), AtomicBool::new(true));
        Self { times: TimeHistogram::for_storage(), failed, is_up }
    }

    /// Returns the number of requests without an answer.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns true if the last heartbeat was answered, and before the first one.
    pub fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    fn note(&self, begun: Instant, is_answered: bool) {
        self.times.record(begun.elapsed());
        if !is_answered {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An amount to count against a shared limit.
pub struct SharedTake<'a> {
    /// Name of the key or account.
    pub owner: &'a str,
    /// `rpm` or `tpm`.
    pub limit_name: &'static str,
    /// Amount to add.
    pub amount: u64,
    /// Limit per minute over all nodes.
    pub limit: u32,
}

/// Result of counting against a shared limit.
pub enum TakeOutcome {
    /// The amount was counted in this step. The second value is the total in use.
    Allowed(i64, u64),
    /// The amount does not fit. Holds the time to retry after, and the total in use.
    Refused(Duration, u64),
    /// Valkey is unreachable.
    Unknown,
}

impl SharedLimits {
    /// Creates a connection that is opened on first use.
    pub fn open(
        valkey: &ValkeySettings,
        node: String,
        clock: Arc<dyn Clock>,
        tasks: TaskTracker,
    ) -> anyhow::Result<Arc<Self>> {
        let ValkeySettings { url, timeout } = valkey;
        let client = Client::open(url.as_str())?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(500))
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(Duration::from_secs(1)));
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config)?;
        Ok(Arc::new(Self {
            clock,
            tasks,
            client,
            manager,
            take_script: Script::new(include_str!("take.lua")),
            timeout: *timeout,
            node,
            nodes: AtomicU32::new(1),
            paused_until: AtomicMicros::default(),
            requests: ValkeyRequests::new(),
        }))
    }

    /// Returns the last known number of nodes, at least 1.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Returns true if Valkey recently failed to answer.
    pub fn is_unreachable(&self) -> bool {
        !self.requests.is_up() || self.clock.now() < self.paused_until.load()
    }

    /// Asks Valkey for a sign of life.
    pub async fn ping(&self) -> Result<(), String> {
        let mut manager = self.manager.clone();
        let command = redis::cmd("PING");
        match tokio::time::timeout(PING_TIMEOUT, command.query_async::<String>(&mut manager)).await
        {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    /// Counts an amount against a limit that all nodes share.
    pub async fn take(&self, ask: &SharedTake<'_>) -> TakeOutcome {
        let SharedTake { owner, limit_name, amount, limit } = ask;
        let mut manager = self.manager.clone();
        let mut invocation = self.take_script.key(format!("portunus:{limit_name}:{owner}"));
        invocation.arg(*amount).arg(*limit);
        let begun = Instant::now();
        let answered =
            tokio::time::timeout(self.timeout, invocation.invoke_async(&mut manager)).await;
        self.requests.note(begun, matches!(answered, Ok(Ok(_))));
        let reply: Result<(i64, i64, u64), _> = match answered {
            Ok(reply) => reply,
            Err(_) => return self.pause("no answer in time"),
        };
        match reply {
            Ok((1, step, used)) => TakeOutcome::Allowed(step, used),
            Ok((_, millis, used)) => TakeOutcome::Refused(
                Duration::from_millis(u64::try_from(millis).unwrap_or(1)),
                used,
            ),
            Err(e) => self.pause(&e.to_string()),
        }
    }

    fn pause(&self, why: &str) -> TakeOutcome {
        let now = self.clock.now();
        let before = self.paused_until.swap(now + RETRY_PAUSE);
        if before + RETRY_PAUSE < now {
            tracing::warn!(
                nodes = self.nodes(),
                "Valkey does not answer ({why}); each node applies its share of the limits"
            );
        }
        TakeOutcome::Unknown
    }

    /// Replaces an estimate by the tokens used, in a background task.
    pub fn correct(self: &Arc<Self>, owner: &str, step: i64, from: u64, to: u64) {
        let difference = i128::from(to) - i128::from(from);
        let Ok(difference) = i64::try_from(difference) else { return };
        // A write after its minute would recreate a step that has been swept.
        let over = step.saturating_add(WINDOW_SECONDS) <= self.clock.now().as_secs();
        if difference == 0 || over || self.is_unreachable() {
            return;
        }
        let (shared, owner) = (Arc::clone(self), format!("portunus:tpm:{owner}"));
        self.tasks.spawn(async move {
            let mut manager = shared.manager.clone();
            let mut pipe = redis::pipe();
            pipe.cmd("HINCRBY").arg(&owner).arg(step).arg(difference).ignore();
            pipe.cmd("EXPIRE").arg(&owner).arg(WINDOW_SECONDS + 2).ignore();
            let corrected = pipe.query_async::<()>(&mut manager);
            // If it fails, the estimate stays.
            let _ = tokio::time::timeout(HEARTBEAT_INTERVAL, corrected).await;
        });
    }

    /// Announces changed keys to all nodes.
    pub async fn publish_key_change(&self) {
        let mut manager = self.manager.clone();
        let mut command = redis::cmd("PUBLISH");
        command.arg(KEYS_CHANNEL).arg(&self.node);
        match tokio::time::timeout(HEARTBEAT_INTERVAL, command.query_async::<i64>(&mut manager))
            .await
        {
            Ok(Ok(_)) => {}
            // Nodes also poll, so a lost message delays the change by a second.
            Ok(Err(e)) => tracing::debug!("a key change could not be announced: {e}"),
            Err(_) => tracing::debug!("a key change could not be announced in time"),
        }
    }

    /// Sends a heartbeat every second and reads the number of nodes.
    pub async fn run_heartbeat(&self) {
        let script = Script::new(include_str!("beat.lua"));
        loop {
            let mut manager = self.manager.clone();
            let mut invocation = script.key(NODES_KEY);
            invocation.arg(&self.node).arg(NODE_TIMEOUT_SECONDS);
            let counted = invocation.invoke_async::<u32>(&mut manager);
            let begun = Instant::now();
            let counted = tokio::time::timeout(HEARTBEAT_INTERVAL, counted).await;
            let is_answered = matches!(counted, Ok(Ok(_)));
            self.requests.note(begun, is_answered);
            self.requests.is_up.store(is_answered, Ordering::Relaxed);
            if let Ok(Ok(nodes)) = counted {
                self.nodes.store(nodes.max(1), Ordering::Relaxed);
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    /// Calls `on_change` for every announced key change, and after every reconnect because messages
    /// may have been missed. Never returns.
    pub async fn listen_for_key_changes<F: Future<Output = ()>>(&self, on_change: impl Fn() -> F) {
        loop {
            if let Ok(Ok(mut pubsub)) =
                tokio::time::timeout(HEARTBEAT_INTERVAL, self.client.get_async_pubsub()).await
                && pubsub.subscribe(KEYS_CHANNEL).await.is_ok()
            {
                on_change().await;
                let mut messages = pubsub.on_message();
                while messages.next().await.is_some() {
                    on_change().await;
                }
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }
}
