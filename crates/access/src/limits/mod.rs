//! How fast keys and accounts may be used: requests and tokens per minute, calls at once, from
//! where. What may be spent is the ledger's business.
//!
//! A call is let in before anything of it is read ([`Pacing::enter`]), its tokens are estimated
//! when its size is known ([`Pass::estimate`]) and corrected when it is settled ([`Pass::close`]).
//! Several nodes ask each other through Valkey ([`shared`]), as long as it answers.

mod addresses;
mod headers;
mod pace;
mod shared;
mod window;

pub use addresses::check as check_address;
pub use headers::tell;
pub use pace::{AllLeft, Left, Pace};
pub use shared::Shared;

use canon::{ApiError, ErrorKind};
use ledger::Clock;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use store::{RateLimits, Store, StoreError};

use crate::keys::Key;
use pace::Excess;
use shared::{Ask, Verdict};

/// When to come back if all places are taken: nobody knows when one comes free.
const SOON: Duration = Duration::from_secs(1);

/// The paces of accounts, and the way to the other nodes.
pub struct Pacing {
    clock: Arc<dyn Clock>,
    accounts: papaya::HashMap<String, Arc<Pace>>,
    shared: Option<Arc<Shared>>,
}

/// A call that was let in. Closed with what it used, or when dropped.
pub struct Pass {
    clock: Arc<dyn Clock>,
    shared: Option<Arc<Shared>>,
    entered: Mutex<Vec<Entered>>,
}

/// Where a call was let in: its key's pace, or its account's.
struct Entered {
    pace: Arc<Pace>,
    /// The name the other nodes know it by.
    name: String,
    /// Tokens counted here: in which step, how many.
    tokens: Option<(i64, u64)>,
    /// Tokens counted by all nodes together.
    shared_tokens: Option<(i64, u64)>,
}

impl Pacing {
    pub fn new(clock: Arc<dyn Clock>, shared: Option<Arc<Shared>>) -> Self {
        Self { clock, accounts: papaya::HashMap::new(), shared }
    }

    /// Fetches the limits of accounts.
    pub async fn refresh(&self, store: &Store) -> Result<(), StoreError> {
        let told = store.account_limits().await?;
        let accounts = self.accounts.pin();
        for (id, limits) in told {
            match accounts.get(&id) {
                Some(pace) => pace.set(limits),
                None if limits.is_none() => {}
                None => {
                    accounts.insert(id, Arc::new(Pace::new(limits)));
                }
            }
        }
        Ok(())
    }

    /// The way to the other nodes, if there is one.
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }

    /// Lets a call in, or says when to come back. `None` when nothing limits it.
    pub async fn enter(&self, key: &Key) -> Result<Option<Arc<Pass>>, ApiError> {
        let account = self.account(&key.record.account_id);
        let own = key.pace.limits().map(|limits| {
            (Arc::clone(&key.pace), limits, format!("key:{}", key.record.id), "API key")
        });
        let theirs = account.and_then(|pace| {
            let limits = pace.limits()?;
            Some((pace, limits, format!("account:{}", key.record.account_id), "account"))
        });
        if own.is_none() && theirs.is_none() {
            return Ok(None);
        }
        // Made first, so that whatever was entered is left again when a later door is shut.
        let pass = Pass {
            clock: Arc::clone(&self.clock),
            shared: self.shared.clone(),
            entered: Mutex::new(Vec::with_capacity(2)),
        };
        let mut steps = Vec::with_capacity(2);
        for (pace, limits, name, whose) in [own, theirs].into_iter().flatten() {
            match self.one(&pace, limits, &name).await {
                Ok(step) => {
                    steps.push((Arc::clone(&pace), step));
                    pass.entered.lock().push(Entered {
                        pace,
                        name,
                        tokens: None,
                        shared_tokens: None,
                    });
                }
                Err(excess) => {
                    pass.entered.lock().clear();
                    for (pace, step) in steps {
                        pace.undo(self.clock.now(), step);
                    }
                    return Err(refusal(excess, whose));
                }
            }
        }
        Ok(Some(Arc::new(pass)))
    }

    async fn one(&self, pace: &Pace, limits: RateLimits, name: &str) -> Result<Option<i64>, Excess> {
        let (nodes, alone) = standing(self.shared.as_ref());
        let step = pace.enter(self.clock.now(), nodes, alone)?;
        let (Some(shared), Some(limit)) = (&self.shared, limits.rpm) else { return Ok(step) };
        if alone {
            return Ok(step);
        }
        // Boxed: calls without shared limits are not to carry it along.
        let told = Box::pin(shared.take(&Ask { name, what: "rpm", amount: 1, limit })).await;
        let now = self.clock.now();
        match told {
            Verdict::Yes(_, used) => {
                pace.hear_requests(now, used);
                Ok(step)
            }
            Verdict::No(wait, used) => {
                pace.undo(now, step);
                pace.hear_requests(now, used);
                Err(Excess::Requests(limit, wait))
            }
            Verdict::Unknown => pace.keep_share(now, nodes, step).map(|()| step),
        }
    }

    /// How fast all keys of an account together may be used; `None` for no limit.
    pub fn account_limits(&self, id: &str) -> Option<RateLimits> {
        self.account(id)?.limits()
    }

    fn account(&self, id: &str) -> Option<Arc<Pace>> {
        self.accounts.pin().get(id).cloned()
    }

    /// What of a key's limits is left, its account's included.
    pub fn left(&self, key: &Key) -> AllLeft {
        let now = self.clock.now();
        let own = key.pace.left(now);
        match self.account(&key.record.account_id) {
            Some(account) => own.and(account.left(now)),
            None => own,
        }
    }
}

/// How many nodes there are, and whether this one cannot ask them.
fn standing(shared: Option<&Arc<Shared>>) -> (u32, bool) {
    shared.map_or((1, false), |shared| (shared.nodes(), shared.is_away()))
}

impl Pass {
    /// Counts the tokens the call will use, by estimate, or says when to come back.
    pub async fn estimate(&self, estimate: u64) -> Result<(), ApiError> {
        let (nodes, alone) = standing(self.shared.as_ref());
        let paces: Vec<(Arc<Pace>, String)> = {
            let entered = self.entered.lock();
            entered.iter().map(|one| (Arc::clone(&one.pace), one.name.clone())).collect()
        };
        for (place, (pace, name)) in paces.into_iter().enumerate() {
            let whose = if name.starts_with("key:") { "API key" } else { "account" };
            let taken = pace.take_tokens(self.clock.now(), estimate, nodes, alone);
            let Some(taken) = taken.map_err(|excess| refusal(excess, whose))? else { continue };
            if let Some(entered) = self.entered.lock().get_mut(place) {
                entered.tokens = Some(taken);
            }
            let limit = pace.limits().and_then(|limits| limits.tpm);
            let (Some(shared), Some(limit), false) = (&self.shared, limit, alone) else { continue };
            let amount = estimate.min(u64::from(limit));
            match Box::pin(shared.take(&Ask { name: &name, what: "tpm", amount, limit })).await {
                Verdict::Yes(step, used) => {
                    pace.hear_tokens(self.clock.now(), used);
                    if let Some(entered) = self.entered.lock().get_mut(place) {
                        entered.shared_tokens = Some((step, amount));
                    }
                }
                Verdict::No(wait, used) => {
                    pace.hear_tokens(self.clock.now(), used);
                    return Err(refusal(Excess::Tokens(limit, wait), whose));
                }
                // The node's own count, made above, has to do.
                Verdict::Unknown => {}
            }
        }
        Ok(())
    }

    /// The call has ended and used so many tokens. The first word counts.
    pub fn close(&self, used: u64) {
        let now = self.clock.now();
        for Entered { pace, name, tokens, shared_tokens } in self.entered.lock().drain(..) {
            pace.leave();
            if let Some((step, counted)) = tokens {
                pace.correct_tokens(now, step, counted, used);
            }
            if let (Some(shared), Some((step, counted))) = (&self.shared, shared_tokens) {
                shared.correct(&name, step, counted, used);
            }
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.close(0);
    }
}

fn refusal(excess: Excess, whose: &str) -> ApiError {
    let (say, wait) = match excess {
        Excess::Requests(limit, wait) => {
            (format!("this {whose} may make {limit} requests per minute; retry later"), wait)
        }
        Excess::Tokens(limit, wait) => {
            (format!("this {whose} may use {limit} tokens per minute; retry later"), wait)
        }
        Excess::Calls(limit) => {
            (format!("this {whose} may have {limit} calls running at once; retry shortly"), SOON)
        }
    };
    ApiError::new(ErrorKind::RateLimited, say).with_retry_after(wait)
}
