//! The bank: the one place all nodes share, where a cap is cut into leases.
//!
//! A lease is a slice of a key's cap that was subtracted for one node before the node may use it,
//! so nodes cannot overspend together whatever they do. The bank keeps
//! `spent + Σ leases ≤ cap` by conditional writes; a node keeps
//! `free + held + unposted ≤ its lease`. Every message may be lost, come twice or come late:
//! a lease has a token that is never used again, and a version that each grant moves on.

use canon::Money;

use crate::{Entry, Micros, OpenCall};
use std::sync::Arc;

/// A lease's name, never given twice: what was closed cannot be used again.
pub type Token = i64;

/// How long a lease is good after it was given or renewed, by the bank's clock.
pub const LEASE: Micros = 30_000_000;
/// How much earlier its node stops using it, by its own steady clock: five seconds, and twice what
/// two clocks may drift apart in the time of a lease.
pub const MARGIN: Micros = 6_000_000;
/// How long after its end a lease is closed by others: its node may be slow and not dead.
pub const GRACE: Micros = 10_000_000;
/// For how long a node that was heard of counts as alive.
pub const ALIVE: Micros = 5_000_000;
/// How long nodes are asked to hand back what they do not need, after someone went short.
pub const WANTED: Micros = 5_000_000;

/// A process that spends, for as long as nobody else entered under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, the same after a restart.
    pub id: String,
    /// When it entered, by the bank's clock.
    pub epoch: Micros,
}

/// A node asks for money of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who asks.
    pub node: Node,
    /// Whose money.
    pub key_id: String,
    /// Less than this is of no use.
    pub least: Money,
    /// What the call that asks lacks.
    pub full: Money,
    /// What is set aside for such a call.
    pub hold: Money,
    /// What would do for a while, going by what was set aside lately.
    pub wish: Money,
    /// What the lease then exposes.
    pub exposed: Money,
    /// Orders the node's messages about what is exposed.
    pub seq: i64,
    /// Whether no call waits for it: then there is no hurry, and others come first.
    pub ahead: bool,
}

/// What a node may have used of a lease without the bank's knowing, at the most, until it says
/// something else: calls nobody was told of, settled ones that are not posted, and what it allows
/// itself in the meantime. Should it die, so much stays set aside for what its journal will tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The lease.
    pub token: Token,
    /// So much.
    pub amount: Money,
}

/// What the bank says to an [`Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    /// So much more.
    Lease {
        /// The lease it is added to.
        token: Token,
        /// The lease's version from here on.
        version: i64,
        /// What was added.
        amount: Money,
    },
    /// The key has no cap.
    Unlimited,
    /// There is not enough.
    Short {
        /// What nobody has.
        left: Money,
        /// What other nodes have; some of it may come back.
        elsewhere: Money,
    },
}

/// What a node says of itself, once a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Who says it.
    pub node: Node,
    /// Calls that run for a while and are new or have come further.
    pub calls: Vec<OpenCall>,
    /// What its leases expose.
    pub exposed: Vec<Exposed>,
    /// Orders the node's messages about what is exposed.
    pub seq: i64,
}

/// A lease as the bank has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseNow {
    /// Its name.
    pub token: Token,
    /// How often something was added.
    pub version: i64,
    /// Whose money.
    pub key_id: String,
    /// What of it is not booked as spent.
    pub amount: Money,
    /// Whether someone goes short of this key's money.
    pub wanted: bool,
    /// Whether it was closed because the node was silent for too long. What is still in it pays
    /// for calls from before, nothing else.
    pub closed: bool,
}

/// What a node is told in return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tidings {
    /// How many nodes are alive, this one included.
    pub nodes: u32,
    /// The leases of this node; all of them are good for another [`LEASE`].
    pub leases: Vec<LeaseNow>,
}

/// A node gives back what it does not need of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// Of which lease.
    pub token: Token,
    /// The version the node knows: anything else, and nothing happens.
    pub version: i64,
    /// What it keeps; nothing closes the lease.
    pub keep: Money,
}

/// How a key stands over all nodes, as far as the bank knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStanding {
    /// The most that may be spent.
    pub cap: Option<Money>,
    /// What is booked as spent.
    pub spent: Money,
    /// What other nodes have set aside for calls that run for a while.
    pub held_elsewhere: Money,
}

/// A settled call on its way to the bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The call.
    pub entry: Arc<Entry>,
    /// The lease its money was set aside from.
    pub lease: Option<Token>,
    /// Whether the bank may have been told of it while it ran.
    pub shown: bool,
}

/// Something to post: a call, and the lease that pays for it.
pub trait Posting: Sync {
    /// The call.
    fn entry(&self) -> &Entry;
    /// The lease its money was set aside from.
    fn lease(&self) -> Option<Token>;
    /// Whether the bank may have been told of it while it ran.
    fn shown(&self) -> bool;
}

impl Posting for Settled {
    fn entry(&self) -> &Entry {
        &self.entry
    }

    fn lease(&self) -> Option<Token> {
        self.lease
    }

    fn shown(&self) -> bool {
        self.shown
    }
}

/// A call for which no money was set aside from a lease.
impl Posting for Entry {
    fn entry(&self) -> &Entry {
        self
    }

    fn lease(&self) -> Option<Token> {
        None
    }

    fn shown(&self) -> bool {
        false
    }
}

/// What the bank closed for nodes that are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closed {
    /// How many leases.
    pub leases: usize,
    /// How many calls were settled from what was known of them.
    pub calls: usize,
}

/// Why the bank did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BankError {
    /// It does not answer, or not with sense. Whether it did something is not known.
    Away(String),
    /// Someone else entered under this node's name.
    Fenced,
}

impl std::fmt::Display for BankError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Away(why) => f.write_str(why),
            Self::Fenced => f.write_str("another process entered under this node's name"),
        }
    }
}

impl std::error::Error for BankError {}

/// The bank. What it did once it does not do twice, whatever is asked again, except for grants:
/// one whose answer got lost is given back later.
pub trait Bank: Send + Sync {
    /// Enters under that name. What an earlier process of that name still had is closed; it must
    /// have been posted before.
    fn enter(&self, id: &str) -> impl Future<Output = Result<Node, BankError>> + Send;
    /// Leaves: the leases are closed. Everything must have been posted.
    fn leave(&self, node: &Node) -> impl Future<Output = Result<(), BankError>> + Send;
    /// Adds to the node's lease of a key, or begins one, as far as the cap has room.
    fn grant(&self, ask: &Ask) -> impl Future<Output = Result<Granted, BankError>> + Send;
    /// Takes the node's word that it is alive and what it runs, and renews its leases.
    fn tend(&self, report: &Report) -> impl Future<Output = Result<Tidings, BankError>> + Send;
    /// Takes back what a node does not need.
    fn take_back(&self, back: &GiveBack) -> impl Future<Output = Result<(), BankError>> + Send;
    /// Records settled calls, each once, and tells how many were new. One whose lease is closed
    /// pays as far as its key's cap has room; the rest is the operator's.
    fn post(&self, settled: &[Settled]) -> impl Future<Output = Result<usize, BankError>> + Send;
    /// How a key stands, but for what that node has.
    fn standing(
        &self,
        key_id: &str,
        node: &Node,
    ) -> impl Future<Output = Result<Option<KeyStanding>, BankError>> + Send;
    /// Closes what nodes that are gone left behind: their calls are settled from what was last
    /// known of them, and what is left of their leases is free again, but for what they exposed.
    /// `now` goes into the entries.
    fn close_gone(&self, now: Micros) -> impl Future<Output = Result<Closed, BankError>> + Send;
}

/// How much to give to one who asks, when so much is free and so many nodes are alive.
///
/// A node alone gets everything. Otherwise shares shrink with what is left, down to what one call
/// lacks, so that the last money is not stranded where nobody needs it.
pub fn slice(ask: &Ask, left: Money, nodes: u32, wanted: bool) -> Option<Money> {
    const FEW_HOLDS: i64 = 10;
    if ask.full <= Money::ZERO {
        return Some(Money::ZERO);
    }
    if left < ask.least || left <= Money::ZERO {
        return None;
    }
    let single = ask.full.min(left);
    let few = left.as_nanos() / FEW_HOLDS < ask.hold.as_nanos();
    if ask.ahead && (wanted || few) {
        return None;
    }
    if wanted {
        return Some(single);
    }
    if nodes <= 1 {
        return Some(left);
    }
    if few {
        return Some(single);
    }
    let share = Money::nanos(left.as_nanos() / (2 * i64::from(nodes)));
    Some(share.min(ask.wish).max(single))
}
