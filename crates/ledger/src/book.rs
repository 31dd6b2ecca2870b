//! The book of running calls: what is set aside, what was settled.
//!
//! Admission is one conditional step under the purse's own lock, never a look and then a write.
//! Settled calls wait here until the bank has them; a segment of the journal is forgotten when
//! nothing in it is needed any more.

use canon::{Money, Usage};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::journal::{Written, frame, recover};
use crate::purse::Lack;
use crate::{
    Clock, Disk, Entry, Held, JournalError, JournalErrors, Micros, OpenCall, Purse, Reached,
    Recovered, Settled, Share, Token,
};

/// When a segment of the journal is long enough.
const SEGMENT: usize = 8 << 20;

/// Why no money was set aside.
#[derive(Debug)]
pub enum Refused {
    /// Not enough is left.
    Cap {
        /// What is left.
        left: Money,
    },
    /// Not enough is left here; other nodes have some and may hand it back.
    Elsewhere {
        /// What is left.
        left: Money,
    },
    /// The bank is away, and what is here does not cover it.
    Away(String),
    /// The journal could not be written, so nothing may run.
    Journal(JournalError),
}

/// Why the book alone could not set money aside.
#[derive(Debug)]
pub enum NotHeld {
    /// The lease does not cover it.
    Short {
        /// The hold, to try again with.
        held: Arc<Held>,
        /// What is free.
        free: Money,
    },
    /// The journal could not be written.
    Journal(JournalError),
}

/// The book.
pub struct Book {
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    errors: JournalErrors,
}

/// A book that was opened, and what its journal said.
pub struct Opened {
    /// The book.
    pub book: Arc<Book>,
    /// What a crash left.
    pub found: Recovered,
    /// The segments that say it.
    pub segments: Vec<u64>,
}

#[derive(Default)]
struct State {
    segment: u64,
    written: usize,
    /// How many open holds and unposted entries each segment still carries.
    needed: BTreeMap<u64, usize>,
    open: HashMap<String, Open>,
    settled: VecDeque<Waiting>,
    /// How many of `settled`, from the front, are on their way to the bank.
    posting: usize,
}

/// A call with money set aside.
struct Open {
    /// Where the journal has it.
    segment: u64,
    held: Arc<Held>,
    reached: Option<Reached>,
    /// By the steady clock.
    since: Micros,
    /// Whether the bank may have been told of it.
    shown: bool,
    /// How often there was something new, and how much of that the bank is known to know.
    news: u32,
    known: u32,
}

/// A settled call that waits for the bank.
struct Waiting {
    settled: Settled,
    /// Whose money it was; none for a call that never had any.
    purse: Option<Arc<Purse>>,
    /// The segments it needs.
    segments: Vec<u64>,
}

/// Settled calls on their way to the bank. Until it has them they can still be found in the book.
#[derive(Debug, Default)]
pub struct Batch(Vec<Settled>);

impl Batch {
    /// What to post.
    pub fn settled(&self) -> &[Settled] {
        &self.0
    }

    /// Whether there is nothing to post.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Book {
    /// Opens the journal and settles what a crash left open. The rest of opening is
    /// [`Teller::open`](crate::Teller::open): what was found must be posted first of all.
    pub fn open(clock: Arc<dyn Clock>, disk: Arc<dyn Disk>) -> Result<Opened, JournalError> {
        let segments = disk.segments().map_err(JournalError)?;
        let found = recover(&*disk, clock.now()).map_err(JournalError)?;
        let segment = disk.begin().map_err(JournalError)?;
        let state = State { segment, ..State::default() };
        let book = Arc::new(Self {
            clock,
            disk,
            state: Mutex::new(state),
            errors: JournalErrors::default(),
        });
        Ok(Opened { book, found, segments })
    }

    /// The bank has what was recovered from these segments: they can be forgotten.
    pub fn recovered(&self, segments: &[u64]) {
        for segment in segments {
            self.remove(*segment);
        }
    }

    /// Sets money aside that this node has: all of `full`, or what is free if that is at least
    /// `least`.
    pub fn hold(
        self: &Arc<Self>,
        purse: &Arc<Purse>,
        mut held: Arc<Held>,
        full: Money,
        least: Money,
    ) -> Result<Ticket, NotHeld> {
        let since = self.clock.steady();
        let (amount, lease) = match purse.take(full, least, since) {
            Ok(taken) => taken,
            Err(Lack { free }) => return Err(NotHeld::Short { held, free }),
        };
        let fill = Arc::make_mut(&mut held);
        fill.amount = amount;
        fill.lease = lease;
        fill.at = self.clock.now();
        let bytes = frame(&Written::Held(&held));
        {
            let mut state = self.state.lock();
            if let Err(e) = self.append(&mut state, &bytes) {
                drop(state);
                purse.give_back(amount, lease, Money::ZERO);
                return Err(NotHeld::Journal(e));
            }
            let segment = state.segment;
            let open = Open {
                segment,
                held: Arc::clone(&held),
                reached: None,
                since,
                shown: false,
                news: 1,
                known: 0,
            };
            state.open.insert(held.request_id.clone(), open);
            *state.needed.entry(segment).or_default() += 1;
        }
        let (book, purse) = (Arc::clone(self), Arc::clone(purse));
        Ok(Ticket { book, purse, shares: Vec::new(), held: Some(held) })
    }

    /// Notes a call that never had money set aside, such as one that was refused.
    pub fn note(&self, entry: Entry) {
        let settled = Settled { entry: Arc::new(entry), lease: None, shown: false };
        let waiting = Waiting { settled, purse: None, segments: Vec::new() };
        self.state.lock().settled.push_back(waiting);
    }

    /// The calls that run since before that moment of the steady clock, as far as there is
    /// something new to tell of them, and how new it is.
    pub(crate) fn news(&self, since: Micros) -> (Vec<OpenCall>, Vec<u32>) {
        let mut state = self.state.lock();
        let old = state.open.values_mut().filter(|o| o.known < o.news && o.since < since);
        old.map(|open| {
            open.shown = true;
            let call = OpenCall { held: (*open.held).clone(), reached: open.reached.clone() };
            (call, open.news)
        })
        .unzip()
    }

    /// What is set aside, by lease, for running calls the bank was told of or is about to be.
    pub(crate) fn shown(&self) -> HashMap<Token, Money> {
        let mut sums: HashMap<Token, Money> = HashMap::new();
        for open in self.state.lock().open.values().filter(|open| open.shown) {
            if let Some(token) = open.held.lease {
                let sum = sums.entry(token).or_default();
                *sum = sum.saturating_add(open.held.amount);
            }
        }
        sums
    }

    /// Whether a call that runs or waits to be posted was paid from that lease.
    pub(crate) fn uses(&self, token: Token) -> bool {
        let state = self.state.lock();
        state.open.values().any(|open| open.held.lease == Some(token))
            || state.settled.iter().any(|waiting| waiting.settled.lease == Some(token))
    }

    /// The bank knows this.
    pub(crate) fn news_arrived(&self, calls: &[OpenCall], news: &[u32]) {
        let mut state = self.state.lock();
        for (call, news) in calls.iter().zip(news) {
            if let Some(open) = state.open.get_mut(&call.held.request_id) {
                open.known = *news;
            }
        }
    }

    /// The bank forgot this node and with it all that was told of its calls.
    pub(crate) fn news_forgotten(&self) {
        for open in self.state.lock().open.values_mut() {
            open.known = 0;
        }
    }

    /// Up to that many settled calls, oldest first. One batch is on its way at a time: until it
    /// was posted or put back, there is no other.
    pub fn take_batch(&self, most: usize) -> Batch {
        let mut state = self.state.lock();
        if state.posting > 0 {
            return Batch::default();
        }
        state.posting = most.min(state.settled.len());
        Batch(state.settled.iter().take(state.posting).map(|w| w.settled.clone()).collect())
    }

    /// The bank has the batch.
    pub fn posted(&self, batch: Batch) {
        let mut state = self.state.lock();
        state.posting = 0;
        let count = batch.0.len().min(state.settled.len());
        let posted: Vec<Waiting> = state.settled.drain(..count).collect();
        for Waiting { settled, purse, segments } in posted {
            if let Some(purse) = purse {
                purse.posted(settled.lease, settled.entry.cost);
            }
            for segment in segments {
                release(&mut state, segment);
            }
        }
        let idle: Vec<u64> = state
            .needed
            .iter()
            .filter(|(segment, count)| **count == 0 && **segment != state.segment)
            .map(|(segment, _)| *segment)
            .collect();
        for segment in &idle {
            state.needed.remove(segment);
        }
        // Outside of the lock: calls must not wait for the file system to free blocks.
        drop(state);
        for segment in idle {
            self.remove(segment);
        }
    }

    /// A segment that stays is read again at the next start and posted again, in vain.
    fn remove(&self, segment: u64) {
        if let Err(e) = self.disk.remove(segment) {
            self.errors.note(&e);
        }
    }

    /// Failures of the journal, those included that no caller hears of.
    pub fn errors(&self) -> &JournalErrors {
        &self.errors
    }

    /// Whatever was on its way to the bank may not have arrived: it waits in front of everything
    /// else.
    pub fn put_back(&self) {
        self.state.lock().posting = 0;
    }

    /// How many settled calls wait for the bank.
    pub fn waiting(&self) -> usize {
        self.state.lock().settled.len()
    }

    /// A settled call that still waits for the bank.
    pub fn find(&self, request_id: &str) -> Option<Entry> {
        let state = self.state.lock();
        // The one asked for is nearly always among the newest.
        let mut newest_first = state.settled.iter().rev();
        let found = newest_first.find(|waiting| waiting.settled.entry.request_id == request_id);
        found.map(|waiting| (*waiting.settled.entry).clone())
    }

    /// How many calls have money set aside.
    pub fn running(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Waits until the journal survives the death of the machine.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.disk.sync().map_err(|e| self.failed(e))
    }

    fn append(&self, state: &mut State, bytes: &[u8]) -> Result<(), JournalError> {
        if bytes.is_empty() {
            return Err(self.failed(std::io::Error::other("a record could not be encoded")));
        }
        if state.written > SEGMENT {
            state.segment = self.disk.begin().map_err(|e| self.failed(e))?;
            state.written = 0;
        }
        if let Err(e) = self.disk.append(bytes) {
            // The segment may now end in half a record; nothing must be written behind it, so that
            // the next record begins a new segment or is refused.
            state.written = usize::MAX;
            return Err(self.failed(e));
        }
        state.written += bytes.len();
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> JournalError {
        self.errors.note(&error);
        JournalError(error)
    }

    /// Tells what the key pays.
    fn settle(&self, purse: &Arc<Purse>, held: &Held, mut entry: Entry) -> Money {
        // A provider that reports more than was set aside is the operator's loss: the cap holds.
        let cost = entry.cost.max(Money::ZERO).min(held.amount);
        entry.borne = entry.borne.saturating_add(entry.cost.saturating_sub(cost));
        entry.cost = cost;
        entry.held = Some(held.amount);
        entry.started = held.at;
        entry.ended = self.clock.now().max(held.at);
        let bytes = frame(&Written::Settled(&entry));
        let mut state = self.state.lock();
        // If the disk refuses, the entry is still posted from memory; only a crash before that
        // would settle the call again, from its last progress. `append` counts the failure.
        let _ = self.append(&mut state, &bytes);
        let segment = state.segment;
        *state.needed.entry(segment).or_default() += 1;
        let mut segments = vec![segment];
        let open = state.open.remove(&held.request_id);
        let shown = open.as_ref().is_some_and(|open| open.shown);
        segments.extend(open.map(|open| open.segment));
        let settled = Settled { entry: Arc::new(entry), lease: held.lease, shown };
        // Before anyone can post it: what is posted must have been given back.
        purse.give_back(held.amount, held.lease, cost);
        let purse = Some(Arc::clone(purse));
        state.settled.push_back(Waiting { settled, purse, segments });
        cost
    }
}

fn release(state: &mut State, segment: u64) {
    if let Some(count) = state.needed.get_mut(&segment) {
        *count = count.saturating_sub(1);
    }
}

/// How far a running call has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The lane that answers.
    pub lane: String,
    /// What was used so far, as far as is known.
    pub usage: Usage,
    /// What that costs.
    pub cost: Money,
}

/// Proof that a call was admitted. It is settled exactly once: by hand, or as failed when dropped.
pub struct Ticket {
    book: Arc<Book>,
    purse: Arc<Purse>,
    /// Its shares of budgets, where there are any.
    shares: Vec<Share>,
    held: Option<Arc<Held>>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ticket").field(&self.held.as_ref().map(|held| &held.request_id)).finish()
    }
}

impl Ticket {
    /// What was set aside.
    pub fn amount(&self) -> Money {
        self.held.as_ref().map_or(Money::ZERO, |held| held.amount)
    }

    /// The same, with a share of a budget that is settled along with it.
    #[must_use]
    pub fn with(mut self, mut share: Share) -> Self {
        share.shrink(self.amount());
        self.shares.push(share);
        self
    }

    /// The key that pays.
    pub fn key_id(&self) -> &str {
        self.held.as_ref().map_or("", |held| &held.key_id)
    }

    /// The lease it was set aside from.
    pub fn lease(&self) -> Option<Token> {
        self.held.as_ref().and_then(|held| held.lease)
    }

    /// Notes how far the call has come, so that a crash charges for it.
    pub fn progress(&self, progress: Progress) {
        let Some(held) = &self.held else { return };
        let Progress { lane, usage, cost } = progress;
        let at = self.book.clock.now();
        let reached = Reached { request_id: held.request_id.clone(), at, lane, usage, cost };
        let bytes = frame(&Written::Reached(&reached));
        let mut state = self.book.state.lock();
        let _ = self.book.append(&mut state, &bytes);
        if let Some(open) = state.open.get_mut(&held.request_id) {
            open.reached = Some(reached);
            open.news = open.news.saturating_add(1);
        }
    }

    /// Settles the call: what it cost is spent, the rest is free again.
    pub fn settle(mut self, entry: Entry) {
        if let Some(held) = self.held.take() {
            let cost = self.book.settle(&self.purse, &held, entry);
            for share in self.shares.drain(..) {
                share.settle(cost);
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let entry = Entry {
            request_id: held.request_id.clone(),
            key_id: held.key_id.clone(),
            account_id: held.account_id.clone(),
            dialect: held.dialect.clone(),
            model: held.model.clone(),
            stream: held.stream,
            status: 503,
            price_version: held.price_version.clone(),
            ..Entry::default()
        };
        self.book.settle(&self.purse, &held, entry);
    }
}
