//! Everything a call uses.

use access::keys::KeyCache;
use arc_swap::ArcSwap;
use config::Config;
use http::HeaderValue;
use ledger::Clock;
use std::sync::Arc;
use std::time::Instant;
use telemetry::{GatewayMetrics, Telemetry};
use tokio_util::task::TaskTracker;
use transport::{Connections, ShutdownPhase};
use upstream::InFlight;

use crate::file_store::FileStore;
use crate::funds::NodeFunds;
use crate::request_id::RequestIds;
use crate::signature_cache::SignatureCache;

/// The parts of the gateway a call uses, and nothing else: administration, sign-in and stored
/// answers are not here.
pub struct Engine {
    /// The configuration in force.
    config: ArcSwap<Config>,
    /// API keys in memory.
    pub keys: Arc<KeyCache>,
    /// Money of running calls.
    pub funds: NodeFunds,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The source of request ids.
    pub request_ids: RequestIds,
    /// Files kept for callers.
    pub files: FileStore,
    /// Signatures of callers whose format has no field for them.
    pub signatures: SignatureCache,
    /// Counters for `/metrics`.
    pub metrics: GatewayMetrics,
    /// The exporter of ended calls.
    pub telemetry: Telemetry,
    /// Calls that run now.
    pub in_flight: InFlight,
    /// Open connections, and the phase of the shutdown they are in.
    pub connections: Arc<Connections>,
    /// Tasks that must end before the process does.
    pub tasks: TaskTracker,
    /// A random id of this process, sent upstream, by which a request loop is recognised.
    pub instance: HeaderValue,
    started: Instant,
}

/// The parts an [`Engine`] is made of.
#[expect(missing_docs, reason = "the fields are those of `Engine`")]
pub struct EngineParts {
    pub config: Config,
    pub keys: Arc<KeyCache>,
    pub funds: NodeFunds,
    pub clock: Arc<dyn Clock>,
    pub request_ids: RequestIds,
    pub files: FileStore,
    pub telemetry: Telemetry,
    pub tasks: TaskTracker,
    pub instance: HeaderValue,
}

impl Engine {
    /// Puts the parts together.
    pub fn new(parts: EngineParts) -> Self {
        let EngineParts {
            config,
            keys,
            funds,
            clock,
            request_ids: ids,
            files,
            telemetry,
            tasks,
            instance,
        } = parts;
        Self {
            config: ArcSwap::from_pointee(config),
            keys,
            funds,
            clock,
            request_ids: ids,
            files,
            signatures: SignatureCache::default(),
            metrics: GatewayMetrics::new(),
            telemetry,
            in_flight: InFlight::default(),
            connections: Arc::default(),
            tasks,
            instance,
            started: Instant::now(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Puts a configuration in force. Running calls keep the one they began with.
    pub fn set_config(&self, config: Config) {
        self.config.store(Arc::new(config));
    }

    /// Microseconds since the start, by a clock that never jumps.
    pub fn monotonic_micros(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Returns true once running calls must end because the drain timeout is over.
    pub fn must_end_calls(&self) -> bool {
        self.connections.phase() >= ShutdownPhase::End
    }
}
