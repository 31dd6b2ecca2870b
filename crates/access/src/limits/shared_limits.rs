//! What nodes tell each other through Valkey: how much of a limit is used, and that keys changed.
//!
//! Hints, never money. Valkey may be away, slow, full or hold something else under our names: then
//! each node keeps to its share of a limit, and news of keys come by polling alone.

use futures_util::StreamExt as _;
use ledger::{Clock, Micros};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Script};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::Duration;

use config::ValkeySettings;

/// How long Valkey is left alone after it failed to answer.
const RETRY_PAUSE_MICROS: Micros = 1_000_000;
/// How often a node says that it is there, and when it is taken for gone.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
const NODE_TIMEOUT_SECONDS: i64 = 10;
/// The seconds in which a count counts.
const WINDOW_SECONDS: i64 = 60;
/// Whoever changed a key says so here.
const KEYS_CHANNEL: &str = "portunus:keys";
const NODES_KEY: &str = "portunus:nodes";

/// The connection to Valkey.
pub struct SharedLimits {
    clock: Arc<dyn Clock>,
    client: Client,
    manager: ConnectionManager,
    take_script: Script,
    /// How long a call may wait for Valkey.
    timeout: Duration,
    node: String,
    /// How many nodes there were when last heard.
    nodes: AtomicU32,
    /// Until when Valkey is not asked.
    paused_until: AtomicI64,
}

/// What is asked of the other nodes.
pub struct SharedTake<'a> {
    /// Whose limit.
    pub owner: &'a str,
    /// Which limit.
    pub limit_name: &'static str,
    /// How much of it.
    pub amount: u64,
    /// All of it.
    pub limit: u32,
}

/// What they say.
pub enum TakeOutcome {
    /// It fits and is counted, in that step; so much is used now.
    Allowed(i64, u64),
    /// It does not fit, so much being used; it may in so long.
    Refused(Duration, u64),
    /// They cannot be asked.
    Unknown,
}

impl SharedLimits {
    /// A connection to be made when it is first needed.
    pub fn open(
        valkey: &ValkeySettings,
        node: String,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Arc<Self>> {
        let ValkeySettings { url, timeout: patience } = valkey;
        let client = Client::open(url.as_str())?;
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(Duration::from_millis(500))
            .set_connection_timeout(Some(Duration::from_secs(1)))
            .set_response_timeout(Some(Duration::from_secs(1)));
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config)?;
        Ok(Arc::new(Self {
            clock,
            client,
            manager,
            take_script: Script::new(include_str!("take.lua")),
            timeout: *patience,
            node,
            nodes: AtomicU32::new(1),
            paused_until: AtomicI64::new(0),
        }))
    }

    /// How many nodes there are, as far as is known.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Whether Valkey failed to answer a moment ago.
    pub fn is_unreachable(&self) -> bool {
        self.clock.now() < self.paused_until.load(Ordering::Relaxed)
    }

    /// Counts an amount against a limit all nodes share.
    pub async fn take(&self, ask: &SharedTake<'_>) -> TakeOutcome {
        let SharedTake { owner: name, limit_name: what, amount, limit } = ask;
        let mut manager = self.manager.clone();
        let mut invocation = self.take_script.key(format!("portunus:{what}:{name}"));
        invocation.arg(*amount).arg(*limit);
        let asked = tokio::time::timeout(self.timeout, invocation.invoke_async(&mut manager)).await;
        let told: Result<(i64, i64, u64), _> = match asked {
            Ok(told) => told,
            Err(_) => return self.pause("no answer in time"),
        };
        match told {
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
        let before =
            self.paused_until.swap(now.saturating_add(RETRY_PAUSE_MICROS), Ordering::Relaxed);
        if before.saturating_add(RETRY_PAUSE_MICROS) < now {
            tracing::warn!(
                nodes = self.nodes(),
                "Valkey does not answer ({why}); limits are kept by each node for its share"
            );
        }
        TakeOutcome::Unknown
    }

    /// Puts what was really used in place of an estimate, behind the caller's back.
    pub fn correct(self: &Arc<Self>, name: &str, step: i64, from: u64, to: u64) {
        let difference = i128::from(to) - i128::from(from);
        let Ok(difference) = i64::try_from(difference) else { return };
        // Written after its minute, it would bring back what is swept already.
        let over = step.saturating_add(WINDOW_SECONDS) <= self.clock.now() / 1_000_000;
        if difference == 0 || over || self.is_unreachable() {
            return;
        }
        let (shared, name) = (Arc::clone(self), format!("portunus:tpm:{name}"));
        tokio::spawn(async move {
            let mut manager = shared.manager.clone();
            let mut pipe = redis::pipe();
            pipe.cmd("HINCRBY").arg(&name).arg(step).arg(difference).ignore();
            pipe.cmd("EXPIRE").arg(&name).arg(WINDOW_SECONDS + 2).ignore();
            let corrected = pipe.query_async::<()>(&mut manager);
            // Lost, it is an estimate that stays.
            let _ = tokio::time::timeout(HEARTBEAT_INTERVAL, corrected).await;
        });
    }

    /// Tells all nodes that keys changed.
    pub async fn publish_key_change(&self) {
        let mut manager = self.manager.clone();
        let mut command = redis::cmd("PUBLISH");
        command.arg(KEYS_CHANNEL).arg(&self.node);
        match tokio::time::timeout(HEARTBEAT_INTERVAL, command.query_async::<i64>(&mut manager))
            .await
        {
            Ok(Ok(_)) => {}
            // They poll; it only takes a second longer.
            Ok(Err(e)) => tracing::debug!("news of keys could not be told: {e}"),
            Err(_) => tracing::debug!("news of keys could not be told in time"),
        }
    }

    /// Says once a second that this node is there, and hears how many there are.
    pub async fn run_heartbeat(&self) {
        let script = Script::new(include_str!("beat.lua"));
        loop {
            let mut manager = self.manager.clone();
            let mut invocation = script.key(NODES_KEY);
            invocation.arg(&self.node).arg(NODE_TIMEOUT_SECONDS);
            let counted = invocation.invoke_async::<u32>(&mut manager);
            if let Ok(Ok(nodes)) = tokio::time::timeout(HEARTBEAT_INTERVAL, counted).await {
                self.nodes.store(nodes.max(1), Ordering::Relaxed);
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }

    /// Listens for news of keys for ever; `heard` is called for each, and whenever the connection
    /// is new, since some may have been missed.
    pub async fn listen_for_key_changes<F: Future<Output = ()>>(&self, heard: impl Fn() -> F) {
        loop {
            if let Ok(Ok(mut news)) =
                tokio::time::timeout(HEARTBEAT_INTERVAL, self.client.get_async_pubsub()).await
                && news.subscribe(KEYS_CHANNEL).await.is_ok()
            {
                heard().await;
                let mut messages = news.on_message();
                while messages.next().await.is_some() {
                    heard().await;
                }
            }
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
        }
    }
}
