//! The lease store: the place all nodes share, where a cap is divided into leases.
//!
//! A lease is a slice of a key's cap. It is subtracted from the cap before a node may use it, so
//! that nodes cannot overspend together. The store keeps `spent + Σ leases ≤ cap` by conditional
//! writes; a node keeps `free + held + unposted ≤ its lease`. Every message may be lost, duplicated
//! or delayed. Therefore a lease has a token that is never reused, and a version that each grant
//! increases. The scheme is that of Gray and Cheriton, "Leases" (SOSP 1989,
//! <https://doi.org/10.1145/74850.74870>), applied to money.

use canon::{Micros, Money};

use crate::{BudgetStatus, LedgerEntry, MoneyBounds, OpenCall, UnleasedCost};
use std::sync::Arc;

/// The identity of a lease. A closed lease's token is never used again.
pub type LeaseToken = i64;

/// Validity of a lease after it was granted or renewed, by the store's clock.
pub const LEASE_DURATION: Micros = Micros::from_secs(30);
/// Time before its end at which the node stops using a lease, by its own steady clock: five
/// seconds, and twice the drift of two clocks during a lease.
pub const LEASE_MARGIN: Micros = Micros::from_secs(6);
/// Time after its end at which other nodes may close a lease: its node may be slow and not dead.
pub const LEASE_GRACE: Micros = Micros::from_secs(10);
/// Time for which a node counts as alive after its last heartbeat.
pub const ALIVE_WINDOW: Micros = Micros::from_secs(5);
/// Time for which nodes are asked to return spare money after one of them went short.
pub const RECALL_WINDOW: Micros = Micros::from_secs(5);

/// A process that spends, until another one registers under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name, the same after a restart.
    pub id: String,
    /// Number of its registration; later ones are larger.
    pub epoch: i64,
}

/// A node's request for money of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The node.
    pub node: Node,
    /// The key.
    pub key_id: String,
    /// Smallest useful amount.
    pub least: Money,
    /// Amount the requesting call lacks.
    pub full: Money,
    /// Size of the hold of that call.
    pub hold: Money,
    /// Amount that would last for a while, judged by recent holds.
    pub wish: Money,
    /// Cost of the node's calls without a lease, which must not be leased.
    pub unleased: UnleasedCost,
    /// Unreported spending of the lease after this grant.
    pub unreported: Money,
    /// Orders the node's announcements of unreported spending.
    pub seq: i64,
    /// True if no call waits for the answer. Other nodes' requests then come first.
    pub ahead: bool,
}

/// An upper bound of the money a node may have used of a lease without the store's knowledge, until
/// its next statement: holds of calls it has not reported, settled calls it has not posted, and
/// room for new ones. The node admits no call beyond it. If the node dies, this amount stays reserved
/// for the calls in its journal, which may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnreportedSpend {
    /// The lease.
    pub token: LeaseToken,
    /// The bound.
    pub amount: Money,
}

/// The store's answer to a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseGrant {
    /// Money was added.
    Lease {
        /// The lease it was added to.
        token: LeaseToken,
        /// The new version of the lease.
        version: i64,
        /// The added amount.
        amount: Money,
    },
    /// Nothing limits the spending of the key.
    Unlimited,
    /// There is not enough that is neither spent nor leased.
    Short(MoneyBounds),
}

/// A node's heartbeat, sent once a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeartbeatReport {
    /// The node.
    pub node: Node,
    /// Calls that have run for a while and are new or have progressed.
    pub calls: Vec<OpenCall>,
    /// Unreported spending of its leases.
    pub unreported: Vec<UnreportedSpend>,
    /// Orders the node's announcements of unreported spending.
    pub seq: i64,
}

/// A lease as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseState {
    /// Its token.
    pub token: LeaseToken,
    /// Number of grants added to it.
    pub version: i64,
    /// The key.
    pub key_id: String,
    /// Money in it that is not booked as spent.
    pub amount: Money,
    /// True if another node goes short of this key's money.
    pub wanted: bool,
    /// True if more is spent and leased than the terms allow, because they were changed. The node
    /// then uses nothing of the lease.
    pub above: bool,
    /// True if it was closed because its node was silent for too long. Its rest pays only for calls
    /// from before.
    pub closed: bool,
}

/// The store's answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// Time of the store's clock.
    pub now: Micros,
    /// Number of live nodes, this one included.
    pub nodes: u32,
    /// The leases of this node, all renewed for another [`LEASE_DURATION`].
    pub leases: Vec<LeaseState>,
}

/// Money that a node returns from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseReturn {
    /// The lease.
    pub token: LeaseToken,
    /// The version the node knows. The store ignores the return if it has another one.
    pub version: i64,
    /// Amount the node keeps; zero closes the lease.
    pub keep: Money,
}

/// Spending of a key on all nodes, as far as the store knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyStatus {
    /// Limit of the spending; `None` for no limit.
    pub cap: Option<Money>,
    /// Money booked as spent.
    pub spent: Money,
    /// Holds that other nodes have reported.
    pub held_elsewhere: Money,
    /// Posted spending in the period of the key's budget, without holds.
    pub budget: Option<BudgetStatus>,
    /// The same of its account's budget, with holds that other nodes have reported.
    pub account_budget: Option<BudgetStatus>,
}

/// A settled call on its way to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledCall {
    /// The call.
    pub entry: Arc<LedgerEntry>,
    /// The lease that pays for it.
    pub lease: Option<LeaseToken>,
    /// True if a heartbeat may have reported it as running.
    pub shown: bool,
}

/// A call to post and the lease that pays for it.
pub trait Posting: Sync {
    /// The call.
    fn entry(&self) -> &LedgerEntry;
    /// The lease that pays for it.
    fn lease(&self) -> Option<LeaseToken>;
    /// Returns true if a heartbeat may have reported it as running.
    fn shown(&self) -> bool;
}

impl Posting for SettledCall {
    fn entry(&self) -> &LedgerEntry {
        &self.entry
    }

    fn lease(&self) -> Option<LeaseToken> {
        self.lease
    }

    fn shown(&self) -> bool {
        self.shown
    }
}

/// A call without a hold from a lease.
impl Posting for LedgerEntry {
    fn entry(&self) -> &LedgerEntry {
        self
    }

    fn lease(&self) -> Option<LeaseToken> {
        None
    }

    fn shown(&self) -> bool {
        false
    }
}

/// Leases and calls that the store closed for dead nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosedCounts {
    /// Number of closed leases.
    pub leases: usize,
    /// Number of calls settled from their last report.
    pub calls: usize,
}

/// Number of calls that a node has posted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostedMark {
    /// Name under which the node began to count. It stays when the node gets another name.
    pub node_id: String,
    /// Identity of the store, the same in all its copies.
    pub store_id: String,
    /// The number.
    pub posted: i64,
    /// True if an operator has set the store back on purpose since the node posted last.
    pub is_adopted: bool,
    /// True if the store has leases of the node.
    pub has_leases: bool,
}

/// The mark that a batch of calls raises by the number of calls that it changed in the books. It stays
/// if the store knows less than the number before: the store went back, and the node has to notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRaise {
    /// See [`PostedMark::node_id`].
    pub node_id: String,
    /// The number before the batch, as far as the node knows.
    pub before: i64,
}

/// A batch of calls that was posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PostedBatch {
    /// Number of new calls.
    pub new: usize,
    /// Number of known calls that were corrected.
    pub corrected: usize,
    /// Mark of the node after it; `None` if it was not raised.
    pub mark: Option<i64>,
}

/// A time that the store went back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRollback {
    /// Number of this node's calls that the store had lost.
    pub missing: i64,
    /// Number of calls that were posted again.
    pub reposted: i64,
}

/// Reason the store did not carry out an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseStoreError {
    /// No valid answer. The operation may or may not have taken effect.
    #[error("{0}")]
    Unreachable(String),
    /// The store answered that there is no such key.
    #[error("{0}")]
    Rejected(String),
    /// Another process registered under this node's name.
    #[error("another process entered under this node's name")]
    Fenced,
}

/// The lease store. Every operation except a grant can be repeated without further effect; a grant
/// whose answer got lost is returned by a later heartbeat.
pub trait LeaseStore: Send + Sync {
    /// Registers a node. Leases of an earlier process of that name are closed; its calls must have
    /// been posted before.
    fn enter(&self, id: &str) -> impl Future<Output = Result<Node, LeaseStoreError>> + Send;
    /// Closes the leases of a node. All its calls must have been posted.
    fn leave(&self, node: &Node) -> impl Future<Output = Result<(), LeaseStoreError>> + Send;
    /// Adds to the node's lease of a key, or creates one, as far as the cap has room.
    fn grant(
        &self,
        request: &LeaseRequest,
    ) -> impl Future<Output = Result<LeaseGrant, LeaseStoreError>> + Send;
    /// Records a heartbeat and renews the node's leases.
    fn heartbeat(
        &self,
        report: &HeartbeatReport,
    ) -> impl Future<Output = Result<HeartbeatReply, LeaseStoreError>> + Send;
    /// Takes back money that a node does not need.
    fn take_back(
        &self,
        back: &LeaseReturn,
    ) -> impl Future<Output = Result<(), LeaseStoreError>> + Send;
    /// Records settled calls, each once. A call whose lease is
    /// closed pays as far as its key's cap has room; the operator absorbs the rest. A settlement that
    /// knows more than the recorded one corrects it. The mark of the node changes together with them.
    fn post(
        &self,
        settled: &[SettledCall],
        raise: Option<&MarkRaise>,
    ) -> impl Future<Output = Result<PostedBatch, LeaseStoreError>> + Send;
    /// Returns the number of calls that a node has posted, as far as the store knows.
    fn posted_mark(
        &self,
        id: &str,
    ) -> impl Future<Output = Result<PostedMark, LeaseStoreError>> + Send;
    /// Sets the mark of a node that has posted its calls again. Returns false, without effect, if the
    /// store knows less than the number before: it went back once more.
    fn mark_posted(
        &self,
        raise: &MarkRaise,
        posted: i64,
    ) -> impl Future<Output = Result<bool, LeaseStoreError>> + Send;
    /// Records that the store had lost calls of a node. An operator need not accept one that is expected.
    fn note_rollback(
        &self,
        id: &str,
        rollback: StoreRollback,
        is_expected: bool,
    ) -> impl Future<Output = Result<(), LeaseStoreError>> + Send;
    /// Returns the status of a key, without the holds of that node.
    fn key_status(
        &self,
        key_id: &str,
        node: &Node,
    ) -> impl Future<Output = Result<Option<KeyStatus>, LeaseStoreError>> + Send;
    /// Closes the leases of dead nodes. Their calls are settled from their last report, and their
    /// money is free again except for the announced unreported spending. `now` is the end of the
    /// settled calls.
    fn close_gone(
        &self,
        now: Micros,
    ) -> impl Future<Output = Result<ClosedCounts, LeaseStoreError>> + Send;
}

/// Returns the amount to grant when `left` is free and that many nodes are alive. A negative amount
/// is left when a cap was lowered.
///
/// A single node gets everything. Otherwise shares shrink with the money that is left, down to the
/// amount one call lacks, so that the last money is not stranded on a node without calls.
pub fn lease_slice(request: &LeaseRequest, left: Money, nodes: u32, wanted: bool) -> Option<Money> {
    /// With less than this number of holds left, money is granted call by call.
    const FEW_HOLDS: i64 = 10;
    // The terms were changed, and even an announcement would use money that they do not cover.
    if left < Money::ZERO {
        return None;
    }
    if request.full <= Money::ZERO {
        return Some(Money::ZERO);
    }
    if left < request.least || left <= Money::ZERO {
        return None;
    }
    let single = request.full.min(left);
    let few = left.as_nanos() / FEW_HOLDS < request.hold.as_nanos();
    if request.ahead && (wanted || few) {
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
    let share = Money::from_nanos(left.as_nanos() / (2 * i64::from(nodes)));
    Some(share.min(request.wish).max(single))
}
