//! Posting settled calls: the row and the key's sum move together, once.

use std::borrow::Borrow;
use std::collections::BTreeMap;

use ledger::{Entry, Micros, day_of};
use sqlx::QueryBuilder;

use crate::db::{clean, in_transaction, to_json};
use crate::entries::entry_columns;
use crate::{Store, StoreError};

/// Rows per statement: enough to spread its cost, few enough to keep its text prepared.
const ROWS: usize = 100;

const INSERT: &str = concat!("INSERT INTO entries (", entry_columns!(), ") ");
const OR_SKIP: &str = " ON CONFLICT (request_id) DO NOTHING";
const OR_TELL: &str = " ON CONFLICT (request_id) DO NOTHING RETURNING key_id, cost, started, ended";
const CHARGE: &str = "UPDATE keys SET spent = spent + $2, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END WHERE id = $1";

const ADD_TO_DAY: &str = "INSERT INTO key_days (key_id, day, cost) VALUES ($1, $2, $3) \
    ON CONFLICT (key_id, day) DO UPDATE SET cost = key_days.cost + excluded.cost";

/// A count as the database holds it; one too large to be true is the largest.
fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What the new rows of a batch add to a key: the cost of each day of admission, and the latest end.
#[derive(Default)]
struct Owed {
    days: BTreeMap<i64, i64>,
    latest: Micros,
}

/// What the new rows of a batch add to each key, in the order of the ids. A row is its key, cost,
/// start and end.
fn sums(
    posted: impl IntoIterator<Item = (String, i64, Micros, Micros)>,
) -> Result<BTreeMap<String, Owed>, StoreError> {
    let mut sums: BTreeMap<String, Owed> = BTreeMap::new();
    for (key, cost, started, ended) in posted {
        let owed = sums.entry(key).or_insert(Owed { days: BTreeMap::new(), latest: ended });
        let sum = owed.days.entry(day_of(started)).or_default();
        *sum = sum.checked_add(cost).ok_or_else(too_much)?;
        owed.latest = ended.max(owed.latest);
    }
    Ok(sums)
}

impl Owed {
    fn cost(&self) -> Result<i64, StoreError> {
        let add = |sum: i64, cost: &i64| sum.checked_add(*cost);
        self.days.values().try_fold(0, add).ok_or_else(too_much)
    }
}

fn too_much() -> StoreError {
    StoreError::Other("a batch costs more than can be held".to_owned())
}

/// Charges the keys with what they owe. Both drivers need it.
macro_rules! charge {
    ($tx:ident, $sums:expr) => {
        for (key, owed) in $sums {
            let (cost, latest) = (owed.cost()?, owed.latest);
            sqlx::query(CHARGE).bind(key).bind(cost).bind(latest).execute(&mut *$tx).await?;
            for (day, cost) in &owed.days {
                sqlx::query(ADD_TO_DAY).bind(key).bind(day).bind(cost).execute(&mut *$tx).await?;
            }
        }
    };
}

/// A statement that inserts some entries. Both drivers need it, and it names the driver's types.
macro_rules! insertion {
    ($kind:ident, $chunk:expr, $end:expr) => {{
        let mut query = QueryBuilder::<$kind>::new(INSERT);
        query.push_values($chunk, |mut row, entry| {
            let usage = &entry.usage;
            row.push_bind(clean(&entry.request_id).into_owned())
                .push_bind(clean(&entry.key_id).into_owned())
                .push_bind(clean(&entry.account_id).into_owned())
                .push_bind(entry.started)
                .push_bind(entry.ended)
                .push_bind(entry.first_byte_us)
                .push_bind(clean(&entry.dialect).into_owned())
                .push_bind(clean(&entry.model).into_owned())
                .push_bind(clean(&entry.lane).into_owned())
                .push_bind(i64::from(entry.attempts))
                .push_bind(entry.stream)
                .push_bind(i64::from(entry.status))
                .push_bind(entry.outcome.word())
                .push_bind(count(usage.input))
                .push_bind(count(usage.cache_read))
                .push_bind(count(usage.cache_write))
                .push_bind(count(usage.cache_write_long))
                .push_bind(count(usage.input_audio))
                .push_bind(count(usage.input_image))
                .push_bind(count(usage.output))
                .push_bind(count(usage.thinking))
                .push_bind(count(usage.output_audio))
                .push_bind(count(usage.output_image))
                .push_bind(count(usage.searches))
                .push_bind(entry.estimated)
                .push_bind(entry.cost.as_nanos())
                .push_bind(entry.borne.as_nanos())
                .push_bind(clean(&entry.price_version).into_owned())
                .push_bind(to_json(&entry.losses))
                .push_bind(to_json(&entry.failed));
        });
        query.push($end);
        query
    }};
}

impl Store {
    /// Records settled calls and charges their keys, all or nothing, and tells how many were new.
    ///
    /// A call that is recorded already is skipped, so a batch whose fate is unknown is simply
    /// posted again. A call of an unknown key is recorded too; [`Store::totals`] shows it.
    pub async fn post<E: Borrow<Entry> + Sync>(&self, entries: &[E]) -> Result<usize, StoreError> {
        if entries.is_empty() {
            return Ok(0);
        }
        // Everyone inserts in the order of the request ids and then charges in the order of the
        // key ids: overlapping batches wait for each other in one direction and cannot deadlock.
        let mut sorted: Vec<&Entry> = entries.iter().map(Borrow::borrow).collect();
        sorted.sort_by(|a, b| a.request_id.cmp(&b.request_id));
        if self.post_new(&sorted).await? {
            return Ok(sorted.len());
        }
        self.post_some(&sorted).await
    }

    /// The usual case: every call is new, so what each key owes is known without asking back row
    /// by row, which costs the most. False, and nothing done, when some were recorded already.
    async fn post_new(&self, sorted: &[&Entry]) -> Result<bool, StoreError> {
        let owed = sums(sorted.iter().map(|entry| {
            (clean(&entry.key_id).into_owned(), entry.cost.as_nanos(), entry.started, entry.ended)
        }))?;
        in_transaction!(&self.db, tx: Kind => {
            let mut new = 0;
            for chunk in sorted.chunks(ROWS) {
                let mut query = insertion!(Kind, chunk, OR_SKIP);
                // Only the text of a full chunk comes back often enough to be kept prepared.
                let query = query.build().persistent(chunk.len() == ROWS);
                new += query.execute(&mut *tx).await?.rows_affected();
            }
            if new != sorted.len() as u64 {
                return Ok(false);
            }
            charge!(tx, &owed);
        });
        Ok(true)
    }

    /// Some calls were recorded already: each row tells whether it is new.
    async fn post_some(&self, sorted: &[&Entry]) -> Result<usize, StoreError> {
        Ok(in_transaction!(&self.db, tx: Kind => {
            let mut posted = Vec::with_capacity(sorted.len());
            for chunk in sorted.chunks(ROWS) {
                let mut query = insertion!(Kind, chunk, OR_TELL);
                let new: Vec<(String, i64, Micros, Micros)> =
                    query.build_query_as().persistent(false).fetch_all(&mut *tx).await?;
                posted.extend(new);
            }
            let new = posted.len();
            let owed = sums(posted)?;
            charge!(tx, &owed);
            new
        }))
    }
}
