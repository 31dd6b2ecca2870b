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

use config::Valkey;

/// How long Valkey is left alone after it failed to answer.
const APART: Micros = 1_000_000;
/// How often a node says that it is there, and when it is taken for gone.
const BEAT: Duration = Duration::from_secs(1);
const GONE: i64 = 10;
/// The seconds in which a count counts.
const MINUTE: i64 = 60;
/// Whoever changed a key says so here.
const NEWS: &str = "portunus:keys";
const NODES: &str = "portunus:nodes";

/// The connection to Valkey.
pub struct Shared {
    clock: Arc<dyn Clock>,
    client: Client,
    manager: ConnectionManager,
    take: Script,
    /// How long a call may wait for Valkey.
    patience: Duration,
    node: String,
    /// How many nodes there were when last heard.
    nodes: AtomicU32,
    /// Until when Valkey is not asked.
    apart_until: AtomicI64,
}

/// What is asked of the other nodes.
pub struct Ask<'a> {
    /// Whose limit.
    pub name: &'a str,
    /// Which limit.
    pub what: &'static str,
    /// How much of it.
    pub amount: u64,
    /// All of it.
    pub limit: u32,
}

/// What they say.
pub enum Verdict {
    /// It fits and is counted, in that step; so much is used now.
    Yes(i64, u64),
    /// It does not fit, so much being used; it may in so long.
    No(Duration, u64),
    /// They cannot be asked.
    Unknown,
}

impl Shared {
    /// A connection to be made when it is first needed.
    pub fn open(valkey: &Valkey, node: String, clock: Arc<dyn Clock>) -> anyhow::Result<Arc<Self>> {
        let Valkey { url, patience } = valkey;
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
            take: Script::new(include_str!("take.lua")),
            patience: *patience,
            node,
            nodes: AtomicU32::new(1),
            apart_until: AtomicI64::new(0),
        }))
    }

    /// How many nodes there are, as far as is known.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Whether Valkey failed to answer a moment ago.
    pub fn is_away(&self) -> bool {
        self.clock.now() < self.apart_until.load(Ordering::Relaxed)
    }

    /// Counts an amount against a limit all nodes share.
    pub async fn take(&self, ask: &Ask<'_>) -> Verdict {
        let Ask { name, what, amount, limit } = ask;
        let mut manager = self.manager.clone();
        let mut invocation = self.take.key(format!("portunus:{what}:{name}"));
        invocation.arg(*amount).arg(*limit);
        let asked =
            tokio::time::timeout(self.patience, invocation.invoke_async(&mut manager)).await;
        let told: Result<(i64, i64, u64), _> = match asked {
            Ok(told) => told,
            Err(_) => return self.apart("no answer in time"),
        };
        match told {
            Ok((1, step, used)) => Verdict::Yes(step, used),
            Ok((_, millis, used)) => {
                Verdict::No(Duration::from_millis(u64::try_from(millis).unwrap_or(1)), used)
            }
            Err(e) => self.apart(&e.to_string()),
        }
    }

    fn apart(&self, why: &str) -> Verdict {
        let now = self.clock.now();
        let before = self.apart_until.swap(now.saturating_add(APART), Ordering::Relaxed);
        if before.saturating_add(APART) < now {
            tracing::warn!(
                nodes = self.nodes(),
                "Valkey does not answer ({why}); limits are kept by each node for its share"
            );
        }
        Verdict::Unknown
    }

    /// Puts what was really used in place of an estimate, behind the caller's back.
    pub fn correct(self: &Arc<Self>, name: &str, step: i64, from: u64, to: u64) {
        let difference = i128::from(to) - i128::from(from);
        let Ok(difference) = i64::try_from(difference) else { return };
        // Written after its minute, it would bring back what is swept already.
        let over = step.saturating_add(MINUTE) <= self.clock.now() / 1_000_000;
        if difference == 0 || over || self.is_away() {
            return;
        }
        let (shared, name) = (Arc::clone(self), format!("portunus:tpm:{name}"));
        tokio::spawn(async move {
            let mut manager = shared.manager.clone();
            let mut pipe = redis::pipe();
            pipe.cmd("HINCRBY").arg(&name).arg(step).arg(difference).ignore();
            pipe.cmd("EXPIRE").arg(&name).arg(MINUTE + 2).ignore();
            let corrected = pipe.query_async::<()>(&mut manager);
            // Lost, it is an estimate that stays.
            let _ = tokio::time::timeout(BEAT, corrected).await;
        });
    }

    /// Tells all nodes that keys changed.
    pub async fn tell_news(&self) {
        let mut manager = self.manager.clone();
        let mut command = redis::cmd("PUBLISH");
        command.arg(NEWS).arg(&self.node);
        match tokio::time::timeout(BEAT, command.query_async::<i64>(&mut manager)).await {
            Ok(Ok(_)) => {}
            // They poll; it only takes a second longer.
            Ok(Err(e)) => tracing::debug!("news of keys could not be told: {e}"),
            Err(_) => tracing::debug!("news of keys could not be told in time"),
        }
    }

    /// Says once a second that this node is there, and hears how many there are.
    pub async fn beat(&self) {
        let script = Script::new(include_str!("beat.lua"));
        loop {
            let mut manager = self.manager.clone();
            let mut invocation = script.key(NODES);
            invocation.arg(&self.node).arg(GONE);
            let counted = invocation.invoke_async::<u32>(&mut manager);
            if let Ok(Ok(nodes)) = tokio::time::timeout(BEAT, counted).await {
                self.nodes.store(nodes.max(1), Ordering::Relaxed);
            }
            tokio::time::sleep(BEAT).await;
        }
    }

    /// Listens for news of keys for ever; `heard` is called for each, and whenever the connection
    /// is new, since some may have been missed.
    pub async fn listen<F: Future<Output = ()>>(&self, heard: impl Fn() -> F) {
        loop {
            if let Ok(Ok(mut news)) =
                tokio::time::timeout(BEAT, self.client.get_async_pubsub()).await
                && news.subscribe(NEWS).await.is_ok()
            {
                heard().await;
                let mut messages = news.on_message();
                while messages.next().await.is_some() {
                    heard().await;
                }
            }
            tokio::time::sleep(BEAT).await;
        }
    }
}
