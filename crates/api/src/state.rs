//! State shared by the handlers of the API.

use access::idempotency::IdempotencyKeys;
use access::limits::RateLimiter;
use admin::Admin;
use config::Config;
use ledger::Clock;
use relay::Engine;
use std::sync::Arc;
use store::Store;
use tokio_util::sync::CancellationToken;

use crate::standing_cache::StandingCache;
use crate::stored_answers::StoredAnswers;
use crate::tasks::ImageTasks;

/// State shared by the handlers of the API.
pub struct ApiState {
    /// Serves calls.
    pub engine: Arc<Engine>,
    /// Changes keys, accounts, providers, models, settings.
    pub admin: Arc<Admin>,
    /// Accounts, keys, usage.
    pub store: Store,
    /// Rate limits of keys and accounts.
    pub limiter: Arc<RateLimiter>,
    /// Idempotency keys.
    pub idempotency: Arc<IdempotencyKeys>,
    /// Stored answers and background runs.
    pub stored_answers: StoredAnswers,
    /// Image tasks of this node.
    pub image_tasks: ImageTasks,
    /// Spending of agents' keys against their limits.
    pub standings: StandingCache,
    /// Cancelled when the process is to stop.
    pub stop: CancellationToken,
}

impl ApiState {
    /// Returns the current configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        self.engine.config()
    }

    /// Source of the time.
    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.clock
    }
}
