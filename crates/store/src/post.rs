//! Posting of settled calls: the row, the key's sum, its lease and the usage change together, once.
//!
//! A call is paid from the lease of its hold. A call without a lease, or whose lease was closed
//! because its node was taken for dead, pays as far as its key's cap has room. The operator absorbs
//! the rest, so that the cap holds. A settlement that knows more than the posted one is another
//! posting; [`crate::corrections`] describes it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{LeaseToken, LedgerEntry, MarkRaise, PostedBatch, Posting};
use serde::Serialize;
use sqlx::error::BoxDynError;
use sqlx::{Arguments as _, AssertSqlSafe, Database, Encode, QueryBuilder, Type};

use crate::account_caps::{AccountSums, LOCK_ACCOUNT, LockedAccount, SUM};
use crate::corrections::{self, CallCorrection, PostedCall, read_corrections};
use crate::db::{clean, in_transaction, to_json};
use crate::entries::{self, EntryRow, entry_columns};
use crate::late_charges::LateCharges;
use crate::lease_bounds::{LOCK_KEY, LockedKey, SPENT_BETWEEN};
use crate::node_marks::RAISE_BY_BATCH;
use crate::rollup::{add_usage, sum_batch, sum_changes};
use crate::row_statement::{RowStatement, SharedTexts, with_places};
use crate::{Store, StoreError};

/// Rows per statement: enough to amortise its cost.
const ROWS_PER_STATEMENT: usize = 100;

const INSERT: &str = concat!("INSERT INTO entries (", entry_columns!(), ") ");
const OR_SKIP: &str = " ON CONFLICT (request_id) DO NOTHING";
const OR_SKIP_RETURNING: &str = " ON CONFLICT (request_id) DO NOTHING RETURNING request_id";
const CHARGE: &str = "UPDATE keys SET spent = spent + $2, leased = leased - $4, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END WHERE id = $1";
/// The same, if the leases cover their part and the rest has room below the cap.
const CHARGE_IF: &str = "UPDATE keys SET spent = spent + $2, leased = leased - $4, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END \
    WHERE id = $1 AND leased >= $4 AND ($2 = $4 OR ((cap IS NULL OR spent + leased + $2 - $4 <= cap) \
    AND budget IS NULL AND NOT EXISTS (SELECT 1 FROM account_caps a \
    WHERE a.account_id = keys.account_id AND (a.cap IS NOT NULL OR a.budget IS NOT NULL))))";
const ACCOUNT_OF: &str = "SELECT account_id FROM keys WHERE id = $1";
const PAY: &str = "UPDATE leases SET amount = amount - $2 WHERE token = $1 AND amount >= $2";

/// Converts a count to the type of the database. Larger values are capped.
fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Encodes the counts that the provider told, if they differ from the billed ones.
fn told_json(entry: &LedgerEntry) -> String {
    let told = entry.told.as_deref().map(serde_json::to_string);
    told.and_then(Result::ok).unwrap_or_default()
}

/// Additions of a batch to one key.
#[derive(Default)]
struct KeySum {
    cost: Money,
    /// The part that leases pay.
    leased: Money,
    /// The latest end of a call.
    ended: Micros,
}

/// Additions of a batch to each key and deductions from each lease, both in the order of their ids.
#[derive(Default)]
struct BatchSums {
    keys: BTreeMap<String, KeySum>,
    leases: BTreeMap<LeaseToken, Money>,
}

fn checked_sum(a: Money, b: Money) -> Result<Money, StoreError> {
    a.checked_add(b).ok_or_else(|| StoreError::Other("the cost of a batch overflows".to_owned()))
}

impl BatchSums {
    /// Adds the difference of a correction, which may be negative.
    fn change(&mut self, before: &LedgerEntry, after: &LedgerEntry) -> Result<(), StoreError> {
        let ended = after.ended;
        let key_id = clean(&after.key_id).into_owned();
        let key = self.keys.entry(key_id).or_insert(KeySum { ended, ..KeySum::default() });
        key.cost = checked_sum(key.cost, after.cost.saturating_sub(before.cost))?;
        Ok(())
    }

    fn add(&mut self, entry: &LedgerEntry, lease: Option<LeaseToken>) -> Result<(), StoreError> {
        let LedgerEntry { cost, ended, .. } = *entry;
        let key_id = clean(&entry.key_id).into_owned();
        let key = self.keys.entry(key_id).or_insert(KeySum { ended, ..KeySum::default() });
        key.cost = checked_sum(key.cost, cost)?;
        key.ended = ended.max(key.ended);
        if let Some(token) = lease.filter(|_| cost > Money::ZERO) {
            key.leased = checked_sum(key.leased, cost)?;
            let lease = self.leases.entry(token).or_default();
            *lease = checked_sum(*lease, cost)?;
        }
        Ok(())
    }
}

/// The insertion of entries. A few numbers of rows, so that the statements stay prepared.
type InsertStatement = RowStatement<4>;
const INSERTED_ROWS: [usize; 4] = [ROWS_PER_STATEMENT, 25, 5, 1];

/// Writes the insertion of so many entries.
fn insertion<D: Database>(rows: usize, end: &str) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    with_places::<D>(INSERT, rows, entry_columns!().split(',').count(), end)
}

/// Binds the values of entries, in the order of the columns.
fn bind_entries<'a, D: Database>(
    entries: impl Iterator<Item = &'a LedgerEntry>,
    texts: &mut SharedTexts,
) -> Result<D::Arguments, sqlx::Error>
where
    bool: Type<D> + for<'q> Encode<'q, D>,
    i64: Type<D> + for<'q> Encode<'q, D>,
    Option<i64>: Type<D> + for<'q> Encode<'q, D>,
    Arc<str>: Type<D> + for<'q> Encode<'q, D>,
{
    let mut values = D::Arguments::default();
    for entry in entries {
        bind_entry::<D>(entry, texts, &mut values).map_err(sqlx::Error::Encode)?;
    }
    Ok(values)
}

fn bind_entry<D: Database>(
    entry: &LedgerEntry,
    texts: &mut SharedTexts,
    values: &mut D::Arguments,
) -> Result<(), BoxDynError>
where
    bool: Type<D> + for<'q> Encode<'q, D>,
    i64: Type<D> + for<'q> Encode<'q, D>,
    Option<i64>: Type<D> + for<'q> Encode<'q, D>,
    Arc<str>: Type<D> + for<'q> Encode<'q, D>,
{
    let usage = &entry.usage;
    texts.begin_row();
    values.add::<Arc<str>>(clean(&entry.request_id).into())?;
    values.add(texts.next(&clean(&entry.key_id)))?;
    values.add(texts.next(&clean(&entry.account_id)))?;
    values.add(entry.started.get())?;
    values.add(entry.ended.get())?;
    values.add(entry.first_byte_us.map(Micros::get))?;
    values.add(texts.next(&clean(&entry.dialect)))?;
    values.add(texts.next(&clean(&entry.model)))?;
    values.add(texts.next(&clean(&entry.lane)))?;
    values.add(i64::from(entry.attempts))?;
    values.add(entry.stream)?;
    values.add(i64::from(entry.status))?;
    values.add(texts.next(entry.outcome.word()))?;
    values.add(count(usage.input))?;
    values.add(count(usage.cache_read))?;
    values.add(count(usage.cache_write))?;
    values.add(count(usage.cache_write_long))?;
    values.add(count(usage.input_audio))?;
    values.add(count(usage.input_image))?;
    values.add(count(usage.output))?;
    values.add(count(usage.thinking))?;
    values.add(count(usage.output_audio))?;
    values.add(count(usage.output_image))?;
    values.add(count(usage.searches))?;
    values.add(entry.estimated)?;
    values.add(entry.cost.as_nanos())?;
    values.add(entry.absorbed.as_nanos())?;
    values.add(texts.next(&clean(&entry.price_version)))?;
    values.add(texts.next(&list_json(&entry.losses)))?;
    values.add(texts.next(&list_json(&entry.failed)))?;
    values.add(entry.held.map(Money::as_nanos))?;
    values.add(count(usage.images))?;
    values.add(count(usage.seconds))?;
    values.add(texts.next(&clean(&entry.service)))?;
    values.add(texts.next(entry.ended_by.word()))?;
    values.add(texts.next(&list_json(&entry.charges)))?;
    values.add(texts.next(&told_json(entry)))?;
    values.add(texts.next(&list_json(&entry.reasons)))?;
    values.add(entry.knowledge.rank())
}

/// Encodes a list as JSON text. Most lists are empty.
fn list_json<T: Serialize>(list: &[T]) -> Cow<'static, str> {
    if list.is_empty() { Cow::Borrowed("[]") } else { Cow::Owned(to_json(list)) }
}

/// Deletes the reports of running calls, for either driver.
macro_rules! forget_holds {
    ($kind:ident, $tx:ident, $sorted:expr) => {
        let shown: Vec<_> = $sorted.iter().filter(|posting| posting.shown()).collect();
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
        // Every transaction locks keys in the order of their ids, then leases, then inserts in the
        // order of the request ids. So overlapping batches cannot deadlock.
        let mut sorted: Vec<&P> = postings.iter().collect();
        sorted.sort_by(|a, b| {
            let (a, b) = (a.entry(), b.entry());
            a.request_id.cmp(&b.request_id).then(b.knowledge.cmp(&a.knowledge))
        });
        if let Some(posted) = self.post_new(&sorted, raise).await? {
            return Ok(posted);
        }
        // Boxed because it is rare: the future of every batch would grow by its size.
        Box::pin(self.post_mixed(&sorted, raise)).await
    }

    /// Posts a batch in which every call is new and covered, which is the usual case. No row has to
    /// be returned, which is the largest cost. Returns `None`, without effect, if that does not
    /// hold.
    async fn post_new<P: Posting>(
        &self,
        sorted: &[&P],
        raise: Option<&MarkRaise>,
    ) -> Result<Option<PostedBatch>, StoreError> {
        let mut sums = BatchSums::default();
        for posting in sorted {
            sums.add(posting.entry(), posting.lease())?;
        }
        let posted = in_transaction!(&self.db, tx: Kind => {
            for (key, KeySum { cost, leased, ended }) in &sums.keys {
                let charge = sqlx::query(CHARGE_IF)
                    .bind(key)
                    .bind(cost.as_nanos())
                    .bind(ended.get())
                    .bind(leased.as_nanos());
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
            let mut new = 0;
            // One for each driver.
            static INSERTION: InsertStatement = InsertStatement::new(INSERTED_ROWS);
            let mut texts = SharedTexts::default();
            for chunk in INSERTION.chunks(sorted) {
                let text = INSERTION.text(chunk.len(), || insertion::<Kind>(chunk.len(), OR_SKIP));
                let entries = chunk.iter().map(|posting| posting.entry());
                let query = sqlx::query_with(text, bind_entries::<Kind>(entries, &mut texts)?);
                new += query.execute(&mut *tx).await?.rows_affected();
            }
            if new != sorted.len() as u64 {
                return Ok(None);
            }
            add_usage!(Kind, tx, sum_batch(sorted.iter().map(|posting| posting.entry()))?);
            forget_holds!(Kind, tx, sorted);
            let mark = raise_mark!(tx, raise, sorted.len());
            PostedBatch { new: sorted.len(), corrected: 0, mark }
        });
        Ok(Some(posted))
    }

    /// Posts a batch with calls that are recorded already or not covered by their lease.
    async fn post_mixed<P: Posting>(
        &self,
        sorted: &[&P],
        raise: Option<&MarkRaise>,
    ) -> Result<PostedBatch, StoreError> {
        let key_ids: BTreeSet<_> = sorted.iter().map(|p| clean(&p.entry().key_id)).collect();
        let tokens: BTreeSet<LeaseToken> = sorted.iter().filter_map(|p| p.lease()).collect();
        Ok(in_transaction!(&self.db, tx: Kind => {
            let mut late = LateCharges::default();
            for key_id in &key_ids {
                let locked: Option<LockedKey> =
                    sqlx::query_as(LOCK_KEY).bind(key_id).fetch_optional(&mut *tx).await?;
                if let Some(key) = locked {
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
                let mut query = QueryBuilder::<Kind>::new(entries::BY_ID);
                let mut ids = query.separated(", ");
                for posting in chunk {
                    ids.push_bind(clean(&posting.entry().request_id).into_owned());
                }
                query.push(")");
                let rows: Vec<EntryRow> =
                    query.build_query_as().persistent(false).fetch_all(&mut *tx).await?;
                let mut found = entries::entries(rows)?;
                let rows = read_corrections!(Kind, &mut *tx, found);
                let numbers = corrections::overlay(&mut found, rows)?;
                posted.extend(found.into_iter().map(|entry| {
                    let id = clean(&entry.request_id).into_owned();
                    let corrections = numbers.get(&id).copied().unwrap_or_default();
                    (id, PostedCall { entry, corrections })
                }));
            }
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
                    None => new.push(late.charge(posting.entry(), posting.lease())),
                    Some(before) => corrected.extend(late.correct(before, posting.entry())),
                }
            }
            let mut inserted: BTreeSet<String> = BTreeSet::new();
            let mut texts = SharedTexts::default();
            for chunk in new.chunks(ROWS_PER_STATEMENT) {
                let text = AssertSqlSafe(insertion::<Kind>(chunk.len(), OR_SKIP_RETURNING));
                let values = bind_entries::<Kind>(chunk.iter().map(|entry| &**entry), &mut texts)?;
                let query = sqlx::query_scalar_with(text, values).persistent(false);
                let ids: Vec<String> = query.fetch_all(&mut *tx).await?;
                inserted.extend(ids);
            }
            let is_new = |entry: &LedgerEntry| inserted.contains(&*clean(&entry.request_id));
            let mut sums = BatchSums::default();
            for entry in new.iter().filter(|entry| is_new(entry)) {
                sums.add(entry, None)?;
            }
            for CallCorrection { before, after, .. } in &corrected {
                sums.change(before, after)?;
            }
            for (key, KeySum { cost, ended, .. }) in &sums.keys {
                let leased = late.paid.get(key).copied().unwrap_or_default();
                sqlx::query(CHARGE)
                    .bind(key)
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
            let fresh = new.iter().map(|entry| &**entry).filter(|entry| is_new(entry));
            add_usage!(Kind, tx, sum_changes(fresh, &corrected)?);
            forget_holds!(Kind, tx, sorted);
            let mark = raise_mark!(tx, raise, inserted.len() + corrected.len());
            PostedBatch { new: inserted.len(), corrected: corrected.len(), mark }
        }))
    }
}
