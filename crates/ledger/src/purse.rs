//! The money one key may spend on this node: what its lease leaves, what is set aside.

use canon::Money;
use parking_lot::Mutex;
use std::sync::Arc;

use crate::bank::LEASE;
use crate::{Granted, LeaseNow, Micros, Token};

/// How long a refusal by the bank is believed without asking again.
const DRY: Micros = 500_000;
/// The same while other nodes may hand something back.
const DRY_HERE: Micros = 100_000;

/// The purse of one key.
#[derive(Debug)]
pub struct Purse {
    key_id: String,
    state: Mutex<State>,
    /// Held while the bank is asked: one question at a time, the others wait for its answer.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

/// How a purse stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The most that may be spent; `None` for no limit.
    pub cap: Option<Money>,
    /// What was spent.
    pub spent: Money,
    /// What is set aside for running calls.
    pub held: Money,
}

impl Standing {
    /// What is left to set aside; `None` for no limit.
    pub fn remaining(&self) -> Option<Money> {
        let used = self.spent.saturating_add(self.held);
        self.cap.map(|cap| cap.saturating_sub(used).max(Money::ZERO))
    }
}

#[derive(Debug, Default)]
struct State {
    cap: Option<Money>,
    /// What the bank last said was spent, without what is unposted.
    spent: Money,
    /// Set aside on this node, from whatever lease.
    held: Money,
    /// Settled on this node and not yet known to be at the bank.
    unposted: Money,
    lease: Option<Lease>,
    /// What was set aside lately, fading.
    recent: Money,
    /// When something was last set aside, by the steady clock.
    used: Micros,
    /// What was last set aside for one call.
    hold: Money,
    dry: Option<Dry>,
    /// What the bank was last told this purse exposes, until it is known to know.
    pending: Option<Pending>,
}

/// What will be allowed once the bank knows.
#[derive(Clone, Copy, Debug)]
struct Pending {
    seq: i64,
    /// The lease it was said of; none for one that is only asked for.
    token: Option<Token>,
    window: Money,
    limit: Money,
}

/// This node's slice of the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    token: Token,
    version: i64,
    free: Money,
    held: Money,
    unposted: Money,
    /// All that was ever set aside from it, and how far that may go before the bank must be told.
    gross: Money,
    limit: Money,
    /// Until when it may be used, by the steady clock.
    until: Micros,
}

impl Lease {
    fn total(&self) -> Money {
        self.free.saturating_add(self.held).saturating_add(self.unposted)
    }
}

/// The bank's last refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dry {
    until: Micros,
    /// What nobody had.
    pub(crate) left: Money,
    /// What other nodes had.
    pub(crate) elsewhere: Money,
}

/// What a hold lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    pub(crate) free: Money,
}

impl Purse {
    /// The purse of a key. Money comes when it is needed.
    pub fn new(key_id: &str, cap: Option<Money>, spent: Money) -> Arc<Self> {
        Arc::new(Self {
            key_id: key_id.to_owned(),
            state: Mutex::new(State { cap, spent, ..State::default() }),
            asking: tokio::sync::Mutex::new(()),
        })
    }

    /// Whose purse it is.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// How it stands, as far as this node knows.
    pub fn standing(&self) -> Standing {
        let state = self.state.lock();
        Standing {
            cap: state.cap,
            spent: state.spent.saturating_add(state.unposted),
            held: state.held,
        }
    }

    /// What of its lease is free, set aside and unposted, and when the node stops using it.
    pub fn lease(&self) -> Option<(Token, [Money; 3], Micros)> {
        let state = self.state.lock();
        state
            .lease
            .map(|lease| (lease.token, [lease.free, lease.held, lease.unposted], lease.until))
    }

    /// Whether it has no cap.
    pub fn is_unlimited(&self) -> bool {
        self.state.lock().cap.is_none()
    }

    /// Changes the cap. Running calls keep what was set aside for them; anything else is asked of
    /// the bank anew, which knows what the new cap allows.
    pub fn set_cap(&self, cap: Option<Money>) {
        let mut state = self.state.lock();
        if state.cap != cap {
            state.cap = cap;
            state.dry = None;
            if let Some(lease) = &mut state.lease {
                lease.free = Money::ZERO;
            }
        }
    }

    /// Sets money aside: all of `full`, or what is free if that is at least `least`.
    pub(crate) fn take(
        &self,
        full: Money,
        least: Money,
        steady: Micros,
    ) -> Result<(Money, Option<Token>), Lack> {
        let mut state = self.state.lock();
        let taken = if state.cap.is_none() || full <= Money::ZERO {
            (full.max(Money::ZERO), None)
        } else {
            match &mut state.lease {
                Some(lease) if steady < lease.until => {
                    let window = lease.limit.saturating_sub(lease.gross);
                    let amount = full.min(lease.free).min(window);
                    if amount < full && (amount < least || amount <= Money::ZERO) {
                        return Err(Lack { free: lease.free });
                    }
                    lease.free = lease.free.saturating_sub(amount);
                    lease.held = lease.held.saturating_add(amount);
                    lease.gross = lease.gross.saturating_add(amount);
                    (amount, Some(lease.token))
                }
                Some(_) | None => return Err(Lack { free: Money::ZERO }),
            }
        };
        state.held = state.held.saturating_add(taken.0);
        state.recent = state.recent.saturating_add(taken.0);
        state.used = steady;
        state.hold = taken.0;
        Ok(taken)
    }

    /// A hold ends: what it cost is spent, the rest is free again, if its lease still is.
    pub(crate) fn give_back(&self, held: Money, lease: Option<Token>, spent: Money) {
        let mut state = self.state.lock();
        state.held = state.held.saturating_sub(held);
        state.unposted = state.unposted.saturating_add(spent);
        if let Some(mine) = state.lease.as_mut().filter(|mine| Some(mine.token) == lease) {
            mine.held = mine.held.saturating_sub(held);
            mine.unposted = mine.unposted.saturating_add(spent);
            mine.free = mine.free.saturating_add(held.saturating_sub(spent));
            // A refusal is no longer true on this node.
            state.dry = None;
        }
    }

    /// The bank has a settled call.
    pub(crate) fn posted(&self, lease: Option<Token>, spent: Money) {
        let mut state = self.state.lock();
        state.unposted = state.unposted.saturating_sub(spent);
        state.spent = state.spent.saturating_add(spent);
        if let Some(mine) = state.lease.as_mut().filter(|mine| Some(mine.token) == lease) {
            mine.unposted = mine.unposted.saturating_sub(spent);
        }
    }

    /// The bank's last refusal, while it is believed.
    pub(crate) fn dry(&self, steady: Micros) -> Option<Dry> {
        self.state.lock().dry.filter(|dry| steady < dry.until)
    }

    /// What would do for a while.
    pub(crate) fn wish(&self) -> Money {
        let state = self.state.lock();
        state.recent.saturating_add(state.recent)
    }

    /// What the bank is to be told this purse exposes, with room for a hold of that size (or the
    /// last one) and some seconds like the last ones. From here on it keeps to that.
    pub(crate) fn expose(&self, seq: i64, hold: Option<Money>) -> (Option<Token>, Money) {
        let mut state = self.state.lock();
        // Half of what is remembered of the last half minute.
        let lately = Money::nanos(state.recent.as_nanos() / 2);
        let window = match hold {
            Some(hold) => lately.saturating_add(hold),
            None => lately.max(state.hold),
        };
        let gross = state.lease.map_or(Money::ZERO, |lease| lease.gross);
        let limit = gross.saturating_add(window);
        let token = state.lease.map(|lease| lease.token);
        state.pending = Some(Pending { seq, token, window, limit });
        match &mut state.lease {
            Some(lease) => {
                // The bank may know at once; what it allows more is allowed when it is known to.
                lease.limit = lease.limit.min(limit);
                let exposed = lease.held.saturating_add(lease.unposted).saturating_add(window);
                (Some(lease.token), exposed)
            }
            None => (None, window),
        }
    }

    /// The bank knows what it was told under that number.
    pub(crate) fn exposed(&self, seq: i64) {
        let mut state = self.state.lock();
        if let Some(pending) = state.pending.take_if(|pending| pending.seq == seq)
            && let Some(lease) = &mut state.lease
            && pending.token == Some(lease.token)
        {
            lease.limit = pending.limit;
        }
    }

    /// What the next call will probably lack, when what is free does not last for long.
    pub(crate) fn runs_low(&self, steady: Micros) -> Option<Money> {
        let state = self.state.lock();
        let lease = state.lease.filter(|_| steady.saturating_sub(state.used) < LEASE)?;
        let soon = state.hold.max(Money::nanos(state.recent.as_nanos() / 8));
        (lease.free < soon).then(|| soon.saturating_sub(lease.free))
    }

    /// Takes the bank's answer in. Whatever came with it may be used until `until`.
    pub(crate) fn answered(&self, granted: Granted, seq: i64, until: Micros, steady: Micros) {
        let mut state = self.state.lock();
        match granted {
            Granted::Unlimited => state.cap = None,
            Granted::Short { left, elsewhere } => {
                let pause = if elsewhere > Money::ZERO { DRY_HERE } else { DRY };
                state.dry = Some(Dry { until: steady.saturating_add(pause), left, elsewhere });
            }
            Granted::Lease { token, version, amount } => {
                state.dry = None;
                let known = state.lease.filter(|known| known.token == token);
                // Another token: the lease before was closed, and its holds settle as they can.
                let pending = state.pending.take_if(|pending| pending.seq == seq);
                let mut lease = known.unwrap_or(Lease {
                    token,
                    version,
                    free: Money::ZERO,
                    held: Money::ZERO,
                    unposted: Money::ZERO,
                    gross: Money::ZERO,
                    limit: Money::ZERO,
                    until,
                });
                if let Some(Pending { window, limit, .. }) = pending {
                    lease.limit = if known.is_some() { limit } else { window };
                }
                lease.version = version;
                lease.free = lease.free.saturating_add(amount);
                lease.until = lease.until.max(until);
                state.lease = Some(lease);
            }
        }
    }

    /// The bank renewed this lease.
    pub(crate) fn renewed(&self, now: &LeaseNow, until: Micros) {
        let mut state = self.state.lock();
        if let Some(lease) = state.lease.as_mut().filter(|lease| lease.token == now.token) {
            lease.until = lease.until.max(until);
            // A grant whose answer was lost moved it on.
            lease.version = lease.version.max(now.version);
        }
    }

    /// The bank no longer has a lease of this node.
    pub(crate) fn forget_lease(&self) {
        self.state.lock().lease = None;
    }

    /// A second has passed: what was used lately counts a little less.
    pub(crate) fn fade(&self) {
        let mut state = self.state.lock();
        let recent = state.recent.as_nanos();
        state.recent = Money::nanos(recent - recent / 32 - i64::from(recent > 0));
    }

    /// What the lease keeps after everything that is not needed was taken out of it: all of what
    /// is free when others want it or nobody here does, what goes beyond the wish when there are
    /// others at all. Tells version and total afterwards; `None` when this is not the lease.
    pub(crate) fn trim(&self, now: &LeaseNow, alone: bool, steady: Micros) -> Option<(i64, Money)> {
        let mut state = self.state.lock();
        let idle = steady.saturating_sub(state.used) > LEASE;
        let wish = state.recent.saturating_add(state.recent);
        let lease = state.lease.as_mut().filter(|lease| lease.token == now.token)?;
        if now.wanted || idle {
            lease.free = Money::ZERO;
        } else if !alone && lease.free > wish.saturating_add(wish) {
            lease.free = wish;
        }
        let (version, total) = (lease.version, lease.total());
        let goes_on = now.amount == Money::ZERO && !now.wanted && !idle;
        if total == Money::ZERO && !goes_on {
            // The bank closes a lease of which nothing is kept.
            state.lease = None;
        }
        Some((version, total))
    }

    /// What the bank says of the key over all nodes; told is how it stands with this one.
    pub(crate) fn told(&self, cap: Option<Money>, spent: Money, elsewhere: Money) -> Standing {
        let mut state = self.state.lock();
        state.spent = spent;
        Standing {
            cap,
            spent: spent.saturating_add(state.unposted),
            held: state.held.saturating_add(elsewhere),
        }
    }
}
