//! Everything the handlers of the API use.

use access::idempotency::Idempotency;
use access::limits::Pacing;
use admin::Admin;
use config::Config;
use ledger::Clock;
use relay::Engine;
use std::sync::Arc;
use store::Store;
use tokio_util::sync::CancellationToken;
use transport::ShutdownPhase;

use crate::memory::Memory;
use crate::tasks::Tasks;

/// Silence of the store, in microseconds, after which a node that is not alone is not ready.
const MAX_STORE_SILENCE_US: i64 = 4_000_000;

/// The parts the handlers of the API use.
pub struct ApiState {
    /// Serves calls.
    pub engine: Arc<Engine>,
    /// Changes keys, accounts, providers, models, settings.
    pub admin: Arc<Admin>,
    /// Accounts, keys, usage.
    pub store: Store,
    /// Rate limits of keys and accounts.
    pub limiter: Arc<Pacing>,
    /// Idempotency keys.
    pub idempotency: Arc<Idempotency>,
    /// Answers kept for later calls.
    pub memory: Memory,
    /// Image tasks of this node.
    pub jobs: Tasks,
    /// Cancelled when the process is to stop.
    pub stop: CancellationToken,
}

impl ApiState {
    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.engine.config()
    }

    /// The time.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.clock
    }

    /// Returns true if new work is welcome.
    pub fn is_ready(&self) -> bool {
        let leases = &self.engine.funds.teller;
        let cut_off = leases.live_nodes() > 1 && leases.time_since_contact() > MAX_STORE_SILENCE_US;
        !cut_off && self.engine.connections.order() == ShutdownPhase::Serve
    }
}
