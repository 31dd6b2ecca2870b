//! The teller stands between the book of this node and the bank of all nodes.
//!
//! A call whose hold the lease covers never waits for the bank. Otherwise one call at a time asks
//! it for more. Once a second [`Teller::tend`] says that this node lives, renews its leases and
//! hands back what it does not need.

use canon::Money;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use crate::{
    Ask, Bank, BankError, Book, Clock, Closed, Exposed, GiveBack, Granted, Held, LEASE, LeaseNow,
    MARGIN, Micros, Node, NotHeld, Opened, Purse, Refused, Report, Standing, Ticket,
};

/// For how long the bank may be away before keys without a cap are refused, if nothing is said.
const DEBT: Micros = 60_000_000;
/// How many settled calls go to the bank at once.
pub const BATCH: usize = 500;

/// The teller of one node.
pub struct Teller<B> {
    book: Arc<Book>,
    bank: B,
    clock: Arc<dyn Clock>,
    /// The name to enter under.
    name: String,
    node: Mutex<Node>,
    /// Every purse that ever asked for money.
    purses: Mutex<HashMap<String, Arc<Purse>>>,
    /// Held while settled calls are posted and while the bank is told of running ones: what is
    /// told in between would be out of date on arrival.
    desk: tokio::sync::Mutex<Times>,
    /// When the bank was last heard, by the steady clock.
    heard: AtomicI64,
    debt: AtomicI64,
    nodes: AtomicU32,
    /// Numbers the messages about what is exposed.
    seq: AtomicI64,
}

/// What a call lacks.
#[derive(Clone, Copy, Default)]
struct Want {
    full: Money,
    least: Money,
    /// What is set aside for it in all.
    hold: Money,
}

/// What a teller knows of its own work.
#[derive(Default)]
struct Times {
    /// When it last tended.
    tended: Micros,
    /// How often it had to enter anew.
    entered: u32,
    /// Whether it left for good.
    left: bool,
}

impl<B: Bank> Teller<B> {
    /// Posts what the journal said after a restart and enters under that name.
    pub async fn open(
        opened: Opened,
        bank: B,
        clock: Arc<dyn Clock>,
        name: &str,
    ) -> Result<Self, BankError> {
        let Opened { book, found, segments } = opened;
        // First of all: entering closes the leases this was paid from.
        for settled in found.settled.chunks(BATCH) {
            bank.post(settled).await?;
        }
        book.recovered(&segments);
        let node = bank.enter(name).await?;
        let heard = AtomicI64::new(clock.steady());
        Ok(Self {
            book,
            bank,
            clock,
            name: name.to_owned(),
            node: Mutex::new(node),
            purses: Mutex::default(),
            desk: tokio::sync::Mutex::default(),
            heard,
            debt: AtomicI64::new(DEBT),
            nodes: AtomicU32::new(1),
            seq: AtomicI64::new(0),
        })
    }

    /// The bank.
    pub const fn bank(&self) -> &B {
        &self.bank
    }

    /// For how long the bank may be away before keys without a cap are refused.
    pub fn set_debt(&self, micros: Micros) {
        self.debt.store(micros, Ordering::Relaxed);
    }

    /// How long the bank was not heard.
    pub fn silence(&self) -> Micros {
        self.clock.steady().saturating_sub(self.heard.load(Ordering::Relaxed))
    }

    /// How many nodes are alive.
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// The name this node goes by: to be entered under again after a restart.
    pub fn name(&self) -> String {
        self.node.lock().id.clone()
    }

    fn node(&self) -> Node {
        self.node.lock().clone()
    }

    fn hear(&self, sent: Micros) {
        self.heard.fetch_max(sent, Ordering::Relaxed);
    }

    /// Sets all of `full` aside if what this node has covers it: the usual case, which waits for
    /// nothing. Otherwise the hold comes back, for [`Teller::hold`].
    pub fn try_hold(
        &self,
        purse: &Arc<Purse>,
        held: Arc<Held>,
        full: Money,
    ) -> Result<Result<Ticket, Arc<Held>>, Refused> {
        if self.silence() > self.debt.load(Ordering::Relaxed) && purse.is_unlimited() {
            return Err(Refused::Away("the bank has not been heard for too long".to_owned()));
        }
        Ok(self.attempt(purse, held, full, full)?.map_err(|(held, _)| held))
    }

    /// Sets money aside: all of `full`, or what is left if that is at least `least`. Asks the bank
    /// when what this node has is not enough.
    pub async fn hold(
        &self,
        purse: &Arc<Purse>,
        held: Arc<Held>,
        full: Money,
        least: Money,
    ) -> Result<Ticket, Refused> {
        let mut held = match self.try_hold(purse, held, full)? {
            Ok(ticket) => return Ok(ticket),
            Err(held) => held,
        };
        // Another call may take what was fetched for this one before it can; then it asks again.
        for _ in 0..8 {
            let _turn = purse.asking.lock().await;
            let free;
            (held, free) = match self.attempt(purse, held, full, full)? {
                Ok(ticket) => return Ok(ticket),
                Err(short) => short,
            };
            let sent = self.clock.steady();
            // With enough there, the bank only has to know that more of it is used.
            let lacks = if full <= free {
                Money::ZERO
            } else {
                least.saturating_sub(free).max(Money::nanos(1))
            };
            // What was refused to another call may be enough for this one.
            if let Some(dry) = purse.dry(sent).filter(|dry| dry.left < lacks) {
                return self.make_do(purse, held, full, least, dry.left, dry.elsewhere);
            }
            let lack = Want { full: full.saturating_sub(free), least: lacks, hold: full };
            match self.fetch(purse, lack, false).await {
                Ok(Granted::Short { left, elsewhere }) => {
                    if least <= free {
                        // Some of it is enough, but the bank has to know.
                        let word = Want { hold: free, ..Want::default() };
                        self.fetch(purse, word, false).await.ok();
                    }
                    return self.make_do(purse, held, full, least, left, elsewhere);
                }
                Ok(Granted::Lease { .. } | Granted::Unlimited) => {}
                Err(e) => {
                    // What is here may be spent, nothing more.
                    return match self.attempt(purse, held, full, least)? {
                        Ok(ticket) => Ok(ticket),
                        Err(_) => Err(Refused::Away(e.to_string())),
                    };
                }
            }
            (held, _) = match self.attempt(purse, held, full, full)? {
                Ok(ticket) => return Ok(ticket),
                Err(short) => short,
            };
        }
        self.make_do(purse, held, full, least, Money::ZERO, Money::ZERO)
    }

    /// One try with what this node has. Not enough is no failure yet: the hold comes back.
    fn attempt(
        &self,
        purse: &Arc<Purse>,
        held: Arc<Held>,
        full: Money,
        least: Money,
    ) -> Result<Result<Ticket, (Arc<Held>, Money)>, Refused> {
        match self.book.hold(purse, held, full, least) {
            Ok(ticket) => Ok(Ok(ticket)),
            Err(NotHeld::Short { held, free }) => Ok(Err((held, free))),
            Err(NotHeld::Journal(e)) => Err(Refused::Journal(e)),
        }
    }

    /// The bank has no more: what is here has to do.
    fn make_do(
        &self,
        purse: &Arc<Purse>,
        held: Arc<Held>,
        full: Money,
        least: Money,
        left: Money,
        elsewhere: Money,
    ) -> Result<Ticket, Refused> {
        match self.attempt(purse, held, full, least)? {
            Ok(ticket) => Ok(ticket),
            Err((_, free)) => {
                let left = left.saturating_add(free);
                Err(if elsewhere > Money::ZERO {
                    Refused::Elsewhere { left }
                } else {
                    Refused::Cap { left }
                })
            }
        }
    }

    /// Asks the bank for money.
    async fn fetch(
        &self,
        purse: &Arc<Purse>,
        want: Want,
        ahead: bool,
    ) -> Result<Granted, BankError> {
        let Want { full, least, hold } = want;
        self.purses.lock().insert(purse.key_id().to_owned(), Arc::clone(purse));
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let ask = Ask {
            node: self.node(),
            key_id: purse.key_id().to_owned(),
            least,
            full: full.max(Money::ZERO),
            hold,
            wish: purse.wish(),
            exposed: purse.expose(seq, Some(hold)).1,
            seq,
            ahead,
        };
        let sent = self.clock.steady();
        let granted = self.bank.grant(&ask).await?;
        self.hear(sent);
        if !(ahead && matches!(granted, Granted::Short { .. })) {
            purse.answered(granted, seq, usable(sent), self.clock.steady());
        }
        Ok(granted)
    }

    /// Posts a batch of settled calls and tells how many. After a failure they wait.
    pub async fn post(&self) -> Result<usize, BankError> {
        let _desk = self.desk.lock().await;
        let batch = self.book.take_batch(BATCH);
        if batch.is_empty() {
            return Ok(0);
        }
        // Also when nobody waits for the bank's answer any more.
        let _unless_posted = PutBack(&self.book);
        let sent = self.clock.steady();
        self.bank.post(batch.settled()).await?;
        self.hear(sent);
        let count = batch.settled().len();
        self.book.posted(batch);
        Ok(count)
    }

    /// Says that this node lives and what it runs, renews its leases, gives back what is not
    /// needed. To be done once a second.
    pub async fn tend(&self) -> Result<(), BankError> {
        let mut desk = self.desk.lock().await;
        if desk.left {
            return Ok(());
        }
        let sent = self.clock.steady();
        let (calls, news) = self.book.news(desk.tended);
        let seq = self.seq.fetch_add(1, Ordering::Relaxed) + 1;
        let purses: Vec<Arc<Purse>> = self.purses.lock().values().cloned().collect();
        let exposed = purses.iter().map(|purse| purse.expose(seq, None));
        let mut exposed: Vec<Exposed> =
            exposed.filter_map(|(token, amount)| Some(Exposed { token: token?, amount })).collect();
        // After the purses were asked: what ends in between counts twice and not never.
        let shown = self.book.shown();
        for Exposed { token, amount } in &mut exposed {
            let known = shown.get(token).copied().unwrap_or(Money::ZERO);
            *amount = amount.saturating_sub(known).max(Money::ZERO);
        }
        let report = Report { node: self.node(), calls, exposed, seq };
        let tidings = match self.bank.tend(&report).await {
            Ok(tidings) => tidings,
            Err(BankError::Away(why)) => return Err(BankError::Away(why)),
            Err(BankError::Fenced) => {
                desk.entered += 1;
                self.enter_anew(desk.entered).await?;
                return Err(BankError::Fenced);
            }
        };
        self.book.news_arrived(&report.calls, &news);
        desk.tended = sent;
        self.hear(sent);
        self.nodes.store(tidings.nodes.max(1), Ordering::Relaxed);
        // Anew: some may have come in the meantime, and their leases be among these.
        let purses: Vec<Arc<Purse>> = self.purses.lock().values().cloned().collect();
        let (closed, open): (Vec<_>, Vec<_>) = tidings.leases.iter().partition(|l| l.closed);
        let mut leases: HashMap<&str, &LeaseNow> =
            open.into_iter().map(|lease| (lease.key_id.as_str(), lease)).collect();
        for purse in purses {
            let lease = leases.remove(purse.key_id());
            if lease.is_some() {
                purse.exposed(seq);
            }
            // One that was granted while the bank spoke is not among those it spoke of.
            let spoken_of = purse.lease().is_some_and(|(token, ..)| {
                report.exposed.iter().any(|exposed| exposed.token == token)
            });
            match lease {
                Some(lease) => self.look_after(&purse, lease, tidings.nodes <= 1, sent).await?,
                None => self.forget(&purse, spoken_of),
            }
        }
        // Closed ones nobody needs any more; and some granted to none that knows of it.
        let closed = closed.into_iter().filter(|lease| !self.book.uses(lease.token));
        for lease in closed.chain(leases.into_values()) {
            let LeaseNow { token, version, .. } = *lease;
            self.bank.take_back(&GiveBack { token, version, keep: Money::ZERO }).await?;
        }
        Ok(())
    }

    /// The bank has no lease for this purse.
    fn forget(&self, purse: &Arc<Purse>, spoken_of: bool) {
        let Ok(_turn) = purse.asking.try_lock() else { return };
        if spoken_of {
            purse.forget_lease();
        }
        if purse.lease().is_none() {
            self.purses.lock().remove(purse.key_id());
        }
    }

    /// Renews one lease and gives back what is not needed of it.
    async fn look_after(
        &self,
        purse: &Arc<Purse>,
        lease: &LeaseNow,
        alone: bool,
        sent: Micros,
    ) -> Result<(), BankError> {
        purse.fade();
        purse.renewed(lease, usable(sent));
        // While the bank is being asked, what it said before may be out of date.
        let Ok(_turn) = purse.asking.try_lock() else { return Ok(()) };
        let LeaseNow { token, amount, wanted, .. } = *lease;
        let trimmed = purse.trim(lease, alone, self.clock.steady());
        let (version, keep) = match trimmed {
            Some(trimmed) => trimmed,
            // Another one is in use: it was granted after the bank spoke.
            None if purse.lease().is_some() => return Ok(()),
            None => (lease.version, Money::ZERO),
        };
        if keep < amount || purse.lease().is_none() {
            return self.bank.take_back(&GiveBack { token, version, keep }).await;
        }
        // So that the next call need not wait.
        if let Some(full) = purse.runs_low(self.clock.steady()).filter(|_| !wanted) {
            let want = Want { full, least: Money::nanos(1), hold: full };
            self.fetch(purse, want, true).await?;
        }
        Ok(())
    }

    /// Someone else uses this node's name: from here on it has another one, and no lease.
    async fn enter_anew(&self, times: u32) -> Result<(), BankError> {
        for purse in self.purses.lock().values() {
            purse.forget_lease();
        }
        self.book.news_forgotten();
        let node = self.bank.enter(&format!("{}.{times}", self.name)).await?;
        *self.node.lock() = node;
        Ok(())
    }

    /// Closes what nodes that are gone left behind.
    pub async fn close_gone(&self) -> Result<Closed, BankError> {
        self.bank.close_gone(self.clock.now()).await
    }

    /// How a key stands over all nodes.
    pub async fn standing(&self, purse: &Purse) -> Result<Standing, BankError> {
        let _desk = self.desk.lock().await;
        let standing = self.bank.standing(purse.key_id(), &self.node()).await?;
        Ok(match standing {
            Some(found) => purse.told(found.cap, found.spent, found.held_elsewhere),
            None => purse.standing(),
        })
    }

    /// Hands everything back, if nothing runs and nothing waits to be posted.
    pub async fn leave(&self) -> Result<(), BankError> {
        let mut desk = self.desk.lock().await;
        if self.book.running() > 0 || self.book.waiting() > 0 {
            return Ok(());
        }
        desk.left = true;
        for purse in self.purses.lock().values() {
            purse.forget_lease();
        }
        self.bank.leave(&self.node()).await
    }
}

/// Puts a batch back when dropped; one that was posted is no longer there to be put back.
struct PutBack<'a>(&'a Book);

impl Drop for PutBack<'_> {
    fn drop(&mut self) {
        self.0.put_back();
    }
}

/// Until when something the bank gave or renewed may be used, when it was asked at that moment.
const fn usable(sent: Micros) -> Micros {
    sent.saturating_add(LEASE).saturating_sub(MARGIN)
}
