//! Rate limits of keys and accounts: requests per minute, tokens per minute, concurrent calls, and
//! allowed networks. Spending limits are in the ledger.
//!
//! A call is admitted before its body is read ([`RateLimiter::admit`]). Its tokens are estimated
//! when its size is known ([`RatePermit::estimate_tokens`]) and corrected when it is settled
//! ([`RatePermit::close`]). Nodes share their counts through Valkey (`shared_limits`) while it is
//! reachable. Memory and requests that cost nothing are limited by `admission`, requests without a key
//! by `network_limits`.

mod admission;
mod allowed_networks;
mod headers;
mod minute_window;
mod network_limits;
mod rate_window;
mod shared_limits;

pub use admission::{Admission, BufferPermit, CallerUse, FreePermit};
pub use allowed_networks::{check as check_address, client_address};
pub use headers::add_limit_headers;
pub use network_limits::{NetworkPermit, NetworkUse};
pub use rate_window::{RateWindow, RemainingLimit, RemainingLimits};
pub use shared_limits::{SharedLimits, ValkeyRequests};

use canon::{ApiError, ErrorKind};
use ledger::Clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use store::{RateLimits, Store, StoreError};

use crate::keys::ApiKey;
use network_limits::NetworkTable;
use rate_window::LimitExceeded;
use shared_limits::{SharedTake, TakeOutcome};

/// `Retry-After` for the concurrency limit. The time until a running call ends is unknown.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Rate windows of all accounts, and the counts shared with other nodes.
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    accounts: papaya::HashMap<String, Arc<RateWindow>>,
    /// Use of this node by networks, for requests without a key.
    networks: Mutex<NetworkTable>,
    /// Bytes of request bodies in memory.
    buffered: Arc<AtomicU64>,
    shared: Option<Arc<SharedLimits>>,
}

/// Permit of an admitted call. Closed with the tokens the call used, or with none when dropped.
pub struct RatePermit {
    clock: Arc<dyn Clock>,
    shared: Option<Arc<SharedLimits>>,
    admissions: Mutex<Vec<RateAdmission>>,
    /// Windows of the key and its account, with their names. They outlive the admissions.
    windows: Vec<NamedWindow>,
}

/// Window with its name in the shared counts.
type NamedWindow = (Arc<RateWindow>, Arc<str>);

/// Admission of a call to one window: its key's or its account's.
struct RateAdmission {
    window: Arc<RateWindow>,
    /// Name of the window in the shared counts.
    name: Arc<str>,
    /// Step and amount of the tokens counted on this node.
    local_tokens: Option<(i64, u64)>,
    /// Step and amount of the tokens in the shared count.
    shared_tokens: Option<(i64, u64)>,
}

impl RateLimiter {
    /// Creates a limiter; without `shared` every node counts alone.
    pub fn new(clock: Arc<dyn Clock>, shared: Option<Arc<SharedLimits>>) -> Self {
        let (networks, buffered) = (Mutex::default(), Arc::default());
        Self { clock, accounts: papaya::HashMap::new(), networks, buffered, shared }
    }

    /// Fetches the limits of all accounts.
    pub async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        let all_limits = store.account_limits().await?;
        let accounts = self.accounts.pin();
        for (id, limits) in all_limits {
            match accounts.get(&id) {
                Some(window) => window.set_limits(limits),
                None if limits.is_none() => {}
                None => {
                    accounts.insert(id, Arc::new(RateWindow::new(limits)));
                }
            }
        }
        Ok(())
    }

    /// Returns the connection to the shared counts, if configured.
    pub fn shared(&self) -> Option<&Arc<SharedLimits>> {
        self.shared.as_ref()
    }

    /// Admits a call, or returns an error with the time to retry after. Returns `None` if no limit
    /// applies.
    pub async fn admit(&self, key: &ApiKey) -> Result<Option<Arc<RatePermit>>, ApiError> {
        let mut windows: Vec<NamedWindow> = Vec::with_capacity(2);
        if key.rate_window.is_limited() {
            let name = format!("key:{}", key.record.id);
            windows.push((Arc::clone(&key.rate_window), name.into()));
        }
        let account = self.account(&key.record.account_id);
        if let Some(account) = account.filter(|window| window.is_limited()) {
            windows.push((account, format!("account:{}", key.record.account_id).into()));
        }
        if windows.is_empty() {
            return Ok(None);
        }
        let (clock, shared) = (Arc::clone(&self.clock), self.shared.clone());
        RatePermit::admit(clock, shared, windows).await.map(Some)
    }

    /// Returns true if no rate limit applies to a call with this key.
    pub fn is_unlimited(&self, key: &ApiKey) -> bool {
        let is_limited = |window: Arc<RateWindow>| window.is_limited();
        !key.rate_window.is_limited()
            && !self.account(&key.record.account_id).is_some_and(is_limited)
    }

    /// Limits of all keys of an account together; `None` for no limit.
    pub fn account_limits(&self, id: &str) -> Option<RateLimits> {
        self.account(id)?.limits()
    }

    fn account(&self, id: &str) -> Option<Arc<RateWindow>> {
        self.accounts.pin().get(id).cloned()
    }

    /// Returns the remaining limits of a key, the account's included.
    pub fn remaining(&self, key: &ApiKey) -> RemainingLimits {
        let account = self.account(&key.record.account_id);
        if account.is_none() && !key.rate_window.is_limited() {
            return RemainingLimits::default();
        }
        let now = self.clock.now();
        let own = key.rate_window.remaining(now);
        match account {
            Some(account) => own.tighter(account.remaining(now)),
            None => own,
        }
    }
}

/// Returns the number of nodes, and true if the shared counts are unreachable.
fn cluster_state(shared: Option<&Arc<SharedLimits>>) -> (u32, bool) {
    shared.map_or((1, false), |shared| (shared.nodes(), shared.is_unreachable()))
}

impl RatePermit {
    /// Admits a call to all windows, or to none.
    async fn admit(
        clock: Arc<dyn Clock>,
        shared: Option<Arc<SharedLimits>>,
        windows: Vec<NamedWindow>,
    ) -> Result<Arc<Self>, ApiError> {
        // Created before the checks, so that dropping it releases the key's window if the account
        // refuses.
        let admissions = Mutex::new(Vec::with_capacity(windows.len()));
        let permit = Self { clock, shared, admissions, windows };
        let mut steps = Vec::with_capacity(2);
        for (window, name) in &permit.windows {
            let Some(limits) = window.limits() else { continue };
            match permit.admit_one(window, limits, name).await {
                Ok(step) => {
                    steps.push((window, step));
                    permit.admissions.lock().push(RateAdmission {
                        window: Arc::clone(window),
                        name: Arc::clone(name),
                        local_tokens: None,
                        shared_tokens: None,
                    });
                }
                Err(exceeded) => {
                    permit.admissions.lock().clear();
                    for (window, step) in steps {
                        window.cancel(permit.clock.now(), step);
                    }
                    return Err(limit_error(exceeded, owner_noun(name)));
                }
            }
        }
        Ok(Arc::new(permit))
    }

    /// Admits another call of the same request, after the earlier one has ended.
    pub async fn next_call(&self) -> Result<Arc<Self>, ApiError> {
        Self::admit(Arc::clone(&self.clock), self.shared.clone(), self.windows.clone()).await
    }

    /// Counts a call in one window.
    async fn admit_one(
        &self,
        window: &RateWindow,
        limits: RateLimits,
        name: &str,
    ) -> Result<Option<i64>, LimitExceeded> {
        let (nodes, alone) = cluster_state(self.shared.as_ref());
        let step = window.admit(self.clock.now(), nodes, alone)?;
        let (Some(shared), Some(limit)) = (&self.shared, limits.rpm) else { return Ok(step) };
        if alone {
            return Ok(step);
        }
        // Boxed, so that calls without shared limits do not carry this future.
        let outcome =
            Box::pin(shared.take(&SharedTake { owner: name, limit_name: "rpm", amount: 1, limit }))
                .await;
        let now = self.clock.now();
        match outcome {
            TakeOutcome::Allowed(_, used) => {
                window.set_shared_requests(now, used);
                Ok(step)
            }
            TakeOutcome::Refused(wait, used) => {
                window.cancel(now, step);
                window.set_shared_requests(now, used);
                Err(LimitExceeded::Requests(limit, wait))
            }
            TakeOutcome::Unknown => window.check_share(now, nodes, step).map(|()| step),
        }
    }

    /// Counts an estimate of the call's tokens, or returns an error with the time to retry after.
    pub async fn estimate_tokens(&self, estimate: u64) -> Result<(), ApiError> {
        let (nodes, alone) = cluster_state(self.shared.as_ref());
        let windows: Vec<NamedWindow> = {
            let admissions = self.admissions.lock();
            admissions
                .iter()
                .map(|admission| (Arc::clone(&admission.window), Arc::clone(&admission.name)))
                .collect()
        };
        for (index, (window, name)) in windows.into_iter().enumerate() {
            let owner = owner_noun(&name);
            let taken = window.count_tokens(self.clock.now(), estimate, nodes, alone);
            let Some(taken) = taken.map_err(|exceeded| limit_error(exceeded, owner))? else {
                continue;
            };
            if let Some(admission) = self.admissions.lock().get_mut(index) {
                admission.local_tokens = Some(taken);
            }
            let limit = window.limits().and_then(|limits| limits.tpm);
            let (Some(shared), Some(limit), false) = (&self.shared, limit, alone) else { continue };
            let amount = estimate.min(u64::from(limit));
            match Box::pin(shared.take(&SharedTake {
                owner: &name,
                limit_name: "tpm",
                amount,
                limit,
            }))
            .await
            {
                TakeOutcome::Allowed(step, used) => {
                    window.set_shared_tokens(self.clock.now(), used);
                    if let Some(admission) = self.admissions.lock().get_mut(index) {
                        admission.shared_tokens = Some((step, amount));
                    }
                }
                TakeOutcome::Refused(wait, used) => {
                    window.set_shared_tokens(self.clock.now(), used);
                    return Err(limit_error(LimitExceeded::Tokens(limit, wait), owner));
                }
                // The local count above applies alone.
                TakeOutcome::Unknown => {}
            }
        }
        Ok(())
    }

    /// Ends the call and replaces the estimate by the tokens used. Later calls have no effect.
    pub fn close(&self, used: u64) {
        let now = self.clock.now();
        for RateAdmission { window, name, local_tokens: tokens, shared_tokens } in
            self.admissions.lock().drain(..)
        {
            window.release();
            if let Some((step, counted)) = tokens {
                window.correct_tokens(now, step, counted, used);
            }
            if let (Some(shared), Some((step, counted))) = (&self.shared, shared_tokens) {
                shared.correct(&name, step, counted, used);
            }
        }
    }
}

impl Drop for RatePermit {
    fn drop(&mut self) {
        self.close(0);
    }
}

/// Returns the word for the owner of a window.
fn owner_noun(name: &str) -> &'static str {
    if name.starts_with("key:") { "API key" } else { "account" }
}

fn limit_error(exceeded: LimitExceeded, owner: &str) -> ApiError {
    let (message, wait) = match exceeded {
        LimitExceeded::Requests(limit, wait) => {
            (format!("this {owner} may make {limit} requests per minute; retry later"), wait)
        }
        LimitExceeded::Tokens(limit, wait) => {
            (format!("this {owner} may use {limit} tokens per minute; retry later"), wait)
        }
        LimitExceeded::Calls(limit) => (
            format!("this {owner} may have {limit} calls running at once; retry shortly"),
            BUSY_RETRY_AFTER,
        ),
    };
    ApiError::new(ErrorKind::RateLimited, message).with_retry_after(wait)
}
