//! How fast keys and accounts may be used: requests and tokens per minute, calls at once, from
//! where. What may be spent is the ledger's business.
//!
//! A call is let in before anything of it is read ([`RateLimiter::admit`]), its tokens are estimated
//! when its size is known ([`RatePermit::estimate_tokens`]) and corrected when it is settled ([`RatePermit::close`]).
//! Several nodes ask each other through Valkey ([`shared_limits`]), as long as it answers.

mod allowed_networks;
mod headers;
mod minute_window;
mod rate_window;
mod shared_limits;

pub use allowed_networks::check as check_address;
pub use headers::add_limit_headers;
pub use rate_window::{RateWindow, RemainingLimit, RemainingLimits};
pub use shared_limits::SharedLimits;

use canon::{ApiError, ErrorKind};
use ledger::Clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use store::{RateLimits, Store, StoreError};

use crate::keys::ApiKey;
use rate_window::LimitExceeded;
use shared_limits::{SharedTake, TakeOutcome};

/// When to come back if all places are taken: nobody knows when one comes free.
const BUSY_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The paces of accounts, and the way to the other nodes.
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    accounts: papaya::HashMap<String, Arc<RateWindow>>,
    shared: Option<Arc<SharedLimits>>,
}

/// A call that was let in. Closed with what it used, or when dropped.
pub struct RatePermit {
    clock: Arc<dyn Clock>,
    shared: Option<Arc<SharedLimits>>,
    admissions: Mutex<Vec<RateAdmission>>,
}

/// Where a call was let in: its key's pace, or its account's.
struct RateAdmission {
    window: Arc<RateWindow>,
    /// The name the other nodes know it by.
    name: String,
    /// Tokens counted here: in which step, how many.
    local_tokens: Option<(i64, u64)>,
    /// Tokens counted by all nodes together.
    shared_tokens: Option<(i64, u64)>,
}

impl RateLimiter {
    pub fn new(clock: Arc<dyn Clock>, shared: Option<Arc<SharedLimits>>) -> Self {
        Self { clock, accounts: papaya::HashMap::new(), shared }
    }

    /// Fetches the limits of accounts.
    pub async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        let told = store.account_limits().await?;
        let accounts = self.accounts.pin();
        for (id, limits) in told {
            match accounts.get(&id) {
                Some(pace) => pace.set_limits(limits),
                None if limits.is_none() => {}
                None => {
                    accounts.insert(id, Arc::new(RateWindow::new(limits)));
                }
            }
        }
        Ok(())
    }

    /// The way to the other nodes, if there is one.
    pub fn shared(&self) -> Option<&Arc<SharedLimits>> {
        self.shared.as_ref()
    }

    /// Lets a call in, or says when to come back. `None` when nothing limits it.
    pub async fn admit(&self, key: &ApiKey) -> Result<Option<Arc<RatePermit>>, ApiError> {
        let account = self.account(&key.record.account_id);
        let own = key.rate_window.limits().map(|limits| {
            (Arc::clone(&key.rate_window), limits, format!("key:{}", key.record.id), "API key")
        });
        let theirs = account.and_then(|pace| {
            let limits = pace.limits()?;
            Some((pace, limits, format!("account:{}", key.record.account_id), "account"))
        });
        if own.is_none() && theirs.is_none() {
            return Ok(None);
        }
        // Made first, so that whatever was entered is left again when a later door is shut.
        let pass = RatePermit {
            clock: Arc::clone(&self.clock),
            shared: self.shared.clone(),
            admissions: Mutex::new(Vec::with_capacity(2)),
        };
        let mut steps = Vec::with_capacity(2);
        for (pace, limits, name, whose) in [own, theirs].into_iter().flatten() {
            match self.admit_one(&pace, limits, &name).await {
                Ok(step) => {
                    steps.push((Arc::clone(&pace), step));
                    pass.admissions.lock().push(RateAdmission {
                        window: pace,
                        name,
                        local_tokens: None,
                        shared_tokens: None,
                    });
                }
                Err(excess) => {
                    pass.admissions.lock().clear();
                    for (pace, step) in steps {
                        pace.cancel(self.clock.now(), step);
                    }
                    return Err(limit_error(excess, whose));
                }
            }
        }
        Ok(Some(Arc::new(pass)))
    }

    async fn admit_one(
        &self,
        pace: &RateWindow,
        limits: RateLimits,
        name: &str,
    ) -> Result<Option<i64>, LimitExceeded> {
        let (nodes, alone) = cluster_state(self.shared.as_ref());
        let step = pace.admit(self.clock.now(), nodes, alone)?;
        let (Some(shared), Some(limit)) = (&self.shared, limits.rpm) else { return Ok(step) };
        if alone {
            return Ok(step);
        }
        // Boxed: calls without shared limits are not to carry it along.
        let told =
            Box::pin(shared.take(&SharedTake { owner: name, limit_name: "rpm", amount: 1, limit }))
                .await;
        let now = self.clock.now();
        match told {
            TakeOutcome::Allowed(_, used) => {
                pace.set_shared_requests(now, used);
                Ok(step)
            }
            TakeOutcome::Refused(wait, used) => {
                pace.cancel(now, step);
                pace.set_shared_requests(now, used);
                Err(LimitExceeded::Requests(limit, wait))
            }
            TakeOutcome::Unknown => pace.check_share(now, nodes, step).map(|()| step),
        }
    }

    /// How fast all keys of an account together may be used; `None` for no limit.
    pub fn account_limits(&self, id: &str) -> Option<RateLimits> {
        self.account(id)?.limits()
    }

    fn account(&self, id: &str) -> Option<Arc<RateWindow>> {
        self.accounts.pin().get(id).cloned()
    }

    /// What of a key's limits is left, its account's included.
    pub fn remaining(&self, key: &ApiKey) -> RemainingLimits {
        let now = self.clock.now();
        let own = key.rate_window.remaining(now);
        match self.account(&key.record.account_id) {
            Some(account) => own.tighter(account.remaining(now)),
            None => own,
        }
    }
}

/// How many nodes there are, and whether this one cannot ask them.
fn cluster_state(shared: Option<&Arc<SharedLimits>>) -> (u32, bool) {
    shared.map_or((1, false), |shared| (shared.nodes(), shared.is_unreachable()))
}

impl RatePermit {
    /// Counts the tokens the call will use, by estimate, or says when to come back.
    pub async fn estimate_tokens(&self, estimate: u64) -> Result<(), ApiError> {
        let (nodes, alone) = cluster_state(self.shared.as_ref());
        let paces: Vec<(Arc<RateWindow>, String)> = {
            let entered = self.admissions.lock();
            entered.iter().map(|one| (Arc::clone(&one.window), one.name.clone())).collect()
        };
        for (place, (pace, name)) in paces.into_iter().enumerate() {
            let whose = if name.starts_with("key:") { "API key" } else { "account" };
            let taken = pace.count_tokens(self.clock.now(), estimate, nodes, alone);
            let Some(taken) = taken.map_err(|excess| limit_error(excess, whose))? else { continue };
            if let Some(entered) = self.admissions.lock().get_mut(place) {
                entered.local_tokens = Some(taken);
            }
            let limit = pace.limits().and_then(|limits| limits.tpm);
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
                    pace.set_shared_tokens(self.clock.now(), used);
                    if let Some(entered) = self.admissions.lock().get_mut(place) {
                        entered.shared_tokens = Some((step, amount));
                    }
                }
                TakeOutcome::Refused(wait, used) => {
                    pace.set_shared_tokens(self.clock.now(), used);
                    return Err(limit_error(LimitExceeded::Tokens(limit, wait), whose));
                }
                // The node's own count, made above, has to do.
                TakeOutcome::Unknown => {}
            }
        }
        Ok(())
    }

    /// The call has ended and used so many tokens. The first word counts.
    pub fn close(&self, used: u64) {
        let now = self.clock.now();
        for RateAdmission { window: pace, name, local_tokens: tokens, shared_tokens } in
            self.admissions.lock().drain(..)
        {
            pace.release();
            if let Some((step, counted)) = tokens {
                pace.correct_tokens(now, step, counted, used);
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

fn limit_error(excess: LimitExceeded, whose: &str) -> ApiError {
    let (say, wait) = match excess {
        LimitExceeded::Requests(limit, wait) => {
            (format!("this {whose} may make {limit} requests per minute; retry later"), wait)
        }
        LimitExceeded::Tokens(limit, wait) => {
            (format!("this {whose} may use {limit} tokens per minute; retry later"), wait)
        }
        LimitExceeded::Calls(limit) => (
            format!("this {whose} may have {limit} calls running at once; retry shortly"),
            BUSY_RETRY_AFTER,
        ),
    };
    ApiError::new(ErrorKind::RateLimited, say).with_retry_after(wait)
}
