//! Posting of settled calls: the row, the key's sum, its lease and the usage change together, once.
//!
//! A call is paid from the lease of its hold. A call without a lease, or whose lease was closed
//! because its node was taken for dead, pays as far as its key's cap has room. The operator absorbs
//! the rest, so that the cap holds. A settlement that knows more than the posted one is another
//! posting; [`crate::corrections`] describes it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use canon::{Micros, Money};
use ledger::{LeaseToken, LedgerEntry, MarkRaise, PostedBatch, Posting};
use sqlx::QueryBuilder;

use crate::account_caps::{AccountSums, LOCK_ACCOUNT, LockedAccount, SUM};
use crate::archived_ids::{find_archived, report_archived};
use crate::call_sessions::{add_sessions, sum_sessions};
use crate::call_writes::{choose_numbers, first_numbers, insert_calls};
use crate::corrections::{self, CallCorrection, PostedCall, read_corrections};
use crate::db::{clean, in_transaction};
use crate::entries::read_calls;
use crate::late_charges::LateCharges;
use crate::lease_bounds::{LOCK_KEY, LockedKey, SPENT_BETWEEN};
use crate::node_marks::RAISE_BY_BATCH;
use crate::rollup::{CallGroup, add_usage, group_calls, sum_changes, sum_groups};
use crate::{Store, StoreError};

/// Rows per statement: enough to amortise its cost.
const ROWS_PER_STATEMENT: usize = 100;
/// Attempts at a batch of which other nodes post calls at the same time.
const MIXED_ATTEMPTS: usize = 5;

const CHARGE: &str = "UPDATE keys SET spent = spent + $2, leased = leased - $4, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END WHERE id = $1";
/// The same, if the leases cover their part, the rest has room below the cap, and none of the calls can be
/// archived.
const CHARGE_IF: &str = "UPDATE keys SET spent = spent + $2, leased = leased - $4, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END \
    WHERE id = $1 AND leased >= $4 AND (archived_until IS NULL OR archived_until < $5) \
    AND ($2 = $4 OR ((cap IS NULL OR spent + leased + $2 - $4 <= cap) \
    AND budget IS NULL AND NOT EXISTS (SELECT 1 FROM account_caps a \
    WHERE a.account_id = keys.account_id AND (a.cap IS NOT NULL OR a.budget IS NOT NULL))))";
const ACCOUNT_OF: &str = "SELECT account_id FROM keys WHERE id = $1";
const PAY: &str = "UPDATE leases SET amount = amount - $2 WHERE token = $1 AND amount >= $2";

/// Converts a count to the type of the database. Larger values are capped.
fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Additions of a batch to one key.
#[derive(Default)]
struct KeySum {
    cost: Money,
    /// The part that leases pay.
    leased: Money,
    /// The earliest admission of a call.
    started: Micros,
    /// The latest end of a call.
    ended: Micros,
}

/// Additions of a batch to each key and deductions from each lease, both in the order of their ids.
#[derive(Default)]
struct BatchSums<'a> {
    keys: BTreeMap<Cow<'a, str>, KeySum>,
    leases: BTreeMap<LeaseToken, Money>,
}

fn checked_sum(a: Money, b: Money) -> Result<Money, StoreError> {
    a.checked_add(b).ok_or_else(|| StoreError::Other("the cost of a batch overflows".to_owned()))
}

impl<'a> BatchSums<'a> {
    /// Adds the difference of a correction, which may be negative.
    fn change(&mut self, before: &LedgerEntry, after: &'a LedgerEntry) -> Result<(), StoreError> {
        let ended = after.ended;
        let key = KeySum { ended, ..KeySum::default() };
        let key = self.keys.entry(clean(&after.key_id)).or_insert(key);
        key.cost = checked_sum(key.cost, after.cost.saturating_sub(before.cost))?;
        Ok(())
    }

    /// Adds alike calls.
    fn add(&mut self, group: &CallGroup<'a>) -> Result<(), StoreError> {
        let (cost, started, ended) = (group.used.cost, group.started, group.ended);
        let key = KeySum { started, ended, ..KeySum::default() };
        let key = self.keys.entry(group.key_id.clone()).or_insert(key);
        key.cost = checked_sum(key.cost, cost)?;
        key.started = started.min(key.started);
        key.ended = ended.max(key.ended);
        if let Some(token) = group.lease.filter(|_| group.leased > Money::ZERO) {
            key.leased = checked_sum(key.leased, group.leased)?;
            let lease = self.leases.entry(token).or_default();
            *lease = checked_sum(*lease, group.leased)?;
        }
        Ok(())
    }
}

/// Deletes the reports of running calls, for either driver.
macro_rules! forget_holds {
    ($kind:ident, $tx:ident, $postings:expr) => {
        let mut shown: Vec<_> = $postings.iter().filter(|posting| posting.shown()).collect();
        shown.sort_unstable_by(|a, b| a.entry().request_id.cmp(&b.entry().request_id));
        for chunk in shown.chunks(ROWS_PER_STATEMENT) {
            let mut query = QueryBuilder::<$kind>::new("DELETE FROM holds WHERE request_id IN (");
            let mut ids = query.separated(", ");
            for posting in chunk {
                ids.push_bind(clean(&posting.entry().request_id).into_owned());
            }
            query.push(")").build().persistent(false).execute(&mut *$tx).await?;
        }
    };
}

/// Raises the mark of a node by so many calls and returns it, for either driver.
macro_rules! raise_mark {
    ($tx:ident, $raise:expr, $calls:expr) => {
        match $raise {
            Some(MarkRaise { node_id, before }) => {
                let raised = sqlx::query_scalar(RAISE_BY_BATCH)
                    .bind(node_id)
                    .bind(before)
                    .bind(count($calls as u64));
                raised.fetch_optional(&mut *$tx).await?
            }
            None => None,
        }
    };
}

impl Store {
    /// Records settled calls and charges their keys in one transaction, and returns the number of
    /// new ones.
    ///
    /// A call that is recorded already is skipped, so a batch can be posted again after an error. If
    /// the record knows less than the batch, it is corrected. A call of an unknown key is recorded
    /// too; [`Store::totals`] shows it.
    pub async fn post<P: Posting>(&self, postings: &[P]) -> Result<usize, StoreError> {
        Ok(self.post_marked(postings, None).await?.new)
    }

    /// The same, and raises the mark of the node in the same transaction.
    pub(crate) async fn post_marked<P: Posting>(
        &self,
        postings: &[P],
        raise: Option<&MarkRaise>,
    ) -> Result<PostedBatch, StoreError> {
        if postings.is_empty() {
            return Ok(PostedBatch::default());
        }
        if let Some(posted) = self.post_new(postings, raise).await? {
            return Ok(posted);
        }
        let mut sorted: Vec<&P> = postings.iter().collect();
        sorted.sort_by(|a, b| {
            let (a, b) = (a.entry(), b.entry());
            a.request_id.cmp(&b.request_id).then(b.knowledge.cmp(&a.knowledge))
        });
        for _ in 0..MIXED_ATTEMPTS {
            // Boxed because it is rare: the future of every batch would grow by its size.
            if let Some(posted) = Box::pin(self.post_mixed(&sorted, raise)).await? {
                return Ok(posted);
            }
        }
        Err(StoreError::Other("other nodes post the same calls; try again".to_owned()))
    }

    /// Posts a batch in which every call is new and covered, which is the usual case. No row has to
    /// be returned, which is the largest cost. Returns `None`, without effect, if that does not
    /// hold.
    async fn post_new<P: Posting>(
        &self,
        postings: &[P],
        raise: Option<&MarkRaise>,
    ) -> Result<Option<PostedBatch>, StoreError> {
        // Every transaction locks keys in the order of their ids, then leases, then inserts calls in
        // the order of their numbers. So overlapping batches cannot deadlock.
        let groups = group_calls(postings.iter().map(|one| (one.entry(), one.lease())))?;
        let mut sums = BatchSums::default();
        for group in &groups {
            sums.add(group)?;
        }
        let posted = in_transaction!(&self.db, tx: Kind => {
            for (key, KeySum { cost, leased, started, ended }) in &sums.keys {
                let charge = sqlx::query(CHARGE_IF)
                    .bind(&**key)
                    .bind(cost.as_nanos())
                    .bind(ended.get())
                    .bind(leased.as_nanos())
                    .bind(started.get());
                if charge.execute(&mut *tx).await?.rows_affected() != 1 {
                    return Ok(None);
                }
            }
            for (token, cost) in &sums.leases {
                let paid = sqlx::query(PAY).bind(token).bind(cost.as_nanos());
                let paid = paid.execute(&mut *tx).await?;
                if paid.rows_affected() != 1 {
                    return Ok(None);
                }
            }
            let calls: Vec<&LedgerEntry> = postings.iter().map(Posting::entry).collect();
            if insert_calls!(Kind, tx, &calls, &first_numbers(&calls)) != calls.len() as u64 {
                return Ok(None);
            }
            add_sessions!(Kind, tx, sum_sessions(calls.iter().copied(), &[]));
            add_usage!(Kind, tx, sum_groups(&groups)?);
            forget_holds!(Kind, tx, postings);
            let mark = raise_mark!(tx, raise, postings.len());
            PostedBatch { new: postings.len(), corrected: 0, mark }
        });
        Ok(Some(posted))
    }

    /// Posts a batch with calls that are recorded already or not covered by their lease. Returns `None`,
    /// without effect, if another node posted one of them meanwhile. The lock of its key prevents that
    /// unless the key is unknown.
    async fn post_mixed<P: Posting>(
        &self,
        sorted: &[&P],
        raise: Option<&MarkRaise>,
    ) -> Result<Option<PostedBatch>, StoreError> {
        let key_ids: BTreeSet<_> = sorted.iter().map(|p| clean(&p.entry().key_id)).collect();
        let tokens: BTreeSet<LeaseToken> = sorted.iter().filter_map(|p| p.lease()).collect();
        let posted = in_transaction!(&self.db, tx: Kind => {
            let mut late = LateCharges::default();
            // The latest admission of an archived call of each known key.
            let mut horizons = BTreeMap::new();
            for key_id in &key_ids {
                let locked: Option<LockedKey> =
                    sqlx::query_as(LOCK_KEY).bind(key_id).fetch_optional(&mut *tx).await?;
                if let Some(key) = locked {
                    horizons.insert(key_id, key.archived_until.unwrap_or(Micros::new(i64::MIN)));
                    late.add_key(key_id, &key)?;
                }
            }
            // Accounts are locked in the order of their ids as well, after all keys.
            let mut accounts = BTreeMap::new();
            for key_id in &key_ids {
                let account: Option<String> =
                    sqlx::query_scalar(ACCOUNT_OF).bind(key_id).fetch_optional(&mut *tx).await?;
                if let Some(account) = account {
                    accounts.entry(account).or_insert_with(Vec::new).push(key_id.clone().into_owned());
                }
            }
            for (account, keys) in accounts {
                let Some(key_id) = keys.first() else { continue };
                let locked: Option<LockedAccount> =
                    sqlx::query_as(LOCK_ACCOUNT).bind(key_id).fetch_optional(&mut *tx).await?;
                if let Some(locked) = locked.filter(LockedAccount::is_limited) {
                    let sums: AccountSums =
                        sqlx::query_as(SUM).bind(&account).bind(i64::MAX).fetch_one(&mut *tx).await?;
                    late.add_account(keys, &locked, &sums)?;
                }
            }
            for period in late.periods(sorted.iter().map(|posting| posting.entry())) {
                let spent: i64 = sqlx::query_scalar(SPENT_BETWEEN)
                    .bind(period.scope.word())
                    .bind(&period.owner)
                    .bind(period.begin.get())
                    .bind(period.end.get())
                    .fetch_one(&mut *tx)
                    .await?;
                late.add_period(period, Money::from_nanos(spent));
            }
            // From here on no other transaction posts for these keys or changes their leases.
            for token in &tokens {
                let amount: Option<i64> = sqlx::query_scalar("SELECT amount FROM leases WHERE token = $1")
                    .bind(token)
                    .fetch_optional(&mut *tx)
                    .await?;
                late.leases.extend(amount.map(|amount| (*token, Money::from_nanos(amount))));
            }
            let mut posted: BTreeMap<String, PostedCall> = BTreeMap::new();
            for chunk in sorted.chunks(ROWS_PER_STATEMENT) {
                let ids = chunk.iter().map(|posting| clean(&posting.entry().request_id).into_owned());
                let mut found = read_calls!(Kind, &mut *tx, &ids.collect());
                let rows = read_corrections!(Kind, &mut *tx, found);
                let numbers = corrections::overlay(&mut found, rows)?;
                posted.extend(found.into_iter().map(|entry| {
                    let id = clean(&entry.request_id).into_owned();
                    let corrections = numbers.get(&id).copied().unwrap_or_default();
                    (id, PostedCall { entry, corrections })
                }));
            }
            // After the calls themselves: a call that is removed meanwhile is found here.
            let may_be_archived = |entry: &LedgerEntry| {
                horizons.get(&clean(&entry.key_id)).is_none_or(|until| entry.started <= *until)
            };
            let candidates = sorted.iter().map(|posting| posting.entry());
            let archived = find_archived!(tx, candidates.filter(|call| may_be_archived(call)), posted);
            let mut new: Vec<Cow<'_, LedgerEntry>> = Vec::with_capacity(sorted.len());
            let mut corrected: Vec<CallCorrection> = Vec::new();
            let mut seen = BTreeSet::new();
            for posting in sorted {
                let id = clean(&posting.entry().request_id);
                // The best informed one of equal ids comes first.
                if !seen.insert(id.clone()) {
                    continue;
                }
                match posted.remove(&*id) {
                    None if archived.contains(&*id) => report_archived(posting.entry()),
                    None => new.push(late.charge(posting.entry(), posting.lease())),
                    Some(PostedCall { entry, .. })
                        if archived.contains(&*id) && entry.knowledge < posting.entry().knowledge =>
                    {
                        report_archived(posting.entry());
                    }
                    Some(before) => corrected.extend(late.correct(before, posting.entry())),
                }
            }
            let calls: Vec<&LedgerEntry> = new.iter().map(|entry| &**entry).collect();
            let numbers = choose_numbers!(Kind, tx, &calls);
            if insert_calls!(Kind, tx, &calls, &numbers) != calls.len() as u64 {
                return Ok(None);
            }
            let mut sums = BatchSums::default();
            for group in &group_calls(calls.iter().map(|call| (*call, None)))? {
                sums.add(group)?;
            }
            for CallCorrection { before, after, .. } in &corrected {
                sums.change(before, after)?;
            }
            for (key, KeySum { cost, ended, .. }) in &sums.keys {
                let leased = late.paid.get(&**key).copied().unwrap_or_default();
                sqlx::query(CHARGE)
                    .bind(&**key)
                    .bind(cost.as_nanos())
                    .bind(ended.get())
                    .bind(leased.as_nanos())
                    .execute(&mut *tx)
                    .await?;
            }
            for (token, cost) in &late.taken {
                sqlx::query(PAY).bind(token).bind(cost.as_nanos()).execute(&mut *tx).await?;
            }
            for correction in &corrected {
                let values = correction.values()?;
                let CallCorrection { after, number, .. } = correction;
                sqlx::query(corrections::INSERT)
                    .bind(clean(&after.request_id))
                    .bind(number)
                    .bind(clean(&after.key_id))
                    .bind(clean(&after.account_id))
                    .bind(after.knowledge.rank())
                    .bind(values.cost)
                    .bind(values.absorbed)
                    .bind(values.input)
                    .bind(values.output)
                    .bind(values.body)
                    .execute(&mut *tx)
                    .await?;
            }
            add_sessions!(Kind, tx, sum_sessions(calls.iter().copied(), &corrected));
            add_usage!(Kind, tx, sum_changes(calls.iter().copied(), &corrected)?);
            forget_holds!(Kind, tx, sorted);
            let mark = raise_mark!(tx, raise, calls.len() + corrected.len());
            PostedBatch { new: calls.len(), corrected: corrected.len(), mark }
        });
        Ok(Some(posted))
    }
}
