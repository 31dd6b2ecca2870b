//! Posting settled calls: the row, the key's sum and its lease move together, once.
//!
//! A call is paid from the lease its money was set aside from. One whose lease was closed in the
//! meantime (its node was taken for dead), or that never had one, pays as far as its key's cap has
//! room, and the rest is the operator's: the cap holds whatever comes late.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use canon::Money;
use ledger::{Entry, Micros, Posting, Token, day_of};
use sqlx::QueryBuilder;

use crate::db::{clean, in_transaction, to_json};
use crate::entries::entry_columns;
use crate::leases::{LOCK_KEY, Locked};
use crate::{Store, StoreError};

/// Rows per statement: enough to spread its cost, few enough to keep its text prepared.
const ROWS: usize = 100;

const INSERT: &str = concat!("INSERT INTO entries (", entry_columns!(), ") ");
const OR_SKIP: &str = " ON CONFLICT (request_id) DO NOTHING";
const OR_TELL: &str = " ON CONFLICT (request_id) DO NOTHING RETURNING key_id, cost, started, ended";
const CHARGE: &str = "UPDATE keys SET spent = spent + $2, leased = leased - $4, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END WHERE id = $1";
/// The same, if there can be such leases, and what no lease pays for has room below the cap.
const CHARGE_IF: &str = "UPDATE keys SET spent = spent + $2, leased = leased - $4, \
    last_used = CASE WHEN last_used > $3 THEN last_used ELSE $3 END \
    WHERE id = $1 AND leased >= $4 AND (cap IS NULL OR $2 = $4 OR spent + leased + $2 - $4 <= cap)";
const ADD_TO_DAY: &str = "INSERT INTO key_days (key_id, day, cost) VALUES ($1, $2, $3) \
    ON CONFLICT (key_id, day) DO UPDATE SET cost = key_days.cost + excluded.cost";
const PAY: &str = "UPDATE leases SET amount = amount - $2 WHERE token = $1 AND amount >= $2";

/// A count as the database holds it; one too large to be true is the largest.
fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// What a batch adds to one key.
#[derive(Default)]
struct Sum {
    cost: i64,
    /// The same by the day of admission.
    days: BTreeMap<i64, i64>,
    /// How much of it leases pay for.
    leased: i64,
    /// The latest end.
    ended: Micros,
}

/// What a batch adds to each key and takes from each lease, both in the order of their ids.
#[derive(Default)]
struct Sums {
    keys: BTreeMap<String, Sum>,
    leases: BTreeMap<Token, i64>,
}

impl Sums {
    fn add(
        &mut self,
        key_id: String,
        cost: i64,
        (started, ended): (Micros, Micros),
        lease: Option<Token>,
    ) -> Result<(), StoreError> {
        let sum = |a: i64, b: i64| {
            a.checked_add(b)
                .ok_or_else(|| StoreError::Other("a batch costs more than can be held".to_owned()))
        };
        let key = self.keys.entry(key_id).or_insert(Sum { ended, ..Sum::default() });
        key.cost = sum(key.cost, cost)?;
        let day = key.days.entry(day_of(started)).or_default();
        *day = sum(*day, cost)?;
        key.ended = ended.max(key.ended);
        if let Some(token) = lease.filter(|_| cost > 0) {
            key.leased = sum(key.leased, cost)?;
            let lease = self.leases.entry(token).or_insert(0);
            *lease = sum(*lease, cost)?;
        }
        Ok(())
    }
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
                .push_bind(to_json(&entry.failed))
                .push_bind(count(usage.images))
                .push_bind(count(usage.seconds))
                .push_bind(clean(&entry.service).into_owned())
                .push_bind(entry.ended_by.word())
                .push_bind(to_json(&entry.charges));
        });
        query.push($end);
        query
    }};
}

/// Adds what each key spent to its days. For a body that is compiled for both drivers.
macro_rules! add_to_days {
    ($tx:ident, $sums:expr) => {
        for (key, Sum { days, .. }) in &$sums.keys {
            for (day, cost) in days {
                sqlx::query(ADD_TO_DAY).bind(key).bind(day).bind(cost).execute(&mut *$tx).await?;
            }
        }
    };
}

/// Forgets that calls were running. For a body that is compiled for both drivers.
macro_rules! forget_holds {
    ($kind:ident, $tx:ident, $sorted:expr) => {
        let shown: Vec<_> = $sorted.iter().filter(|posting| posting.shown()).collect();
        for chunk in shown.chunks(ROWS) {
            let mut query = QueryBuilder::<$kind>::new("DELETE FROM holds WHERE request_id IN (");
            let mut ids = query.separated(", ");
            for posting in chunk {
                ids.push_bind(clean(&posting.entry().request_id).into_owned());
            }
            query.push(")").build().persistent(false).execute(&mut *$tx).await?;
        }
    };
}

impl Store {
    /// Records settled calls and charges their keys, all or nothing, and tells how many were new.
    ///
    /// A call that is recorded already is skipped, so a batch whose fate is unknown is simply
    /// posted again. A call of an unknown key is recorded too; [`Store::totals`] shows it.
    pub async fn post<P: Posting>(&self, postings: &[P]) -> Result<usize, StoreError> {
        if postings.is_empty() {
            return Ok(0);
        }
        // Everyone locks keys in the order of their ids, then leases, then inserts in the order of
        // the request ids: overlapping batches wait in one direction and cannot deadlock.
        let mut sorted: Vec<&P> = postings.iter().collect();
        sorted.sort_by(|a, b| a.entry().request_id.cmp(&b.entry().request_id));
        if self.post_new(&sorted).await? {
            return Ok(sorted.len());
        }
        self.post_some(&sorted).await
    }

    /// The usual case: every call is new and paid for, so nothing has to be asked back row by row,
    /// which costs the most. False, and nothing done, when it is not so.
    async fn post_new<P: Posting>(&self, sorted: &[&P]) -> Result<bool, StoreError> {
        let mut sums = Sums::default();
        for posting in sorted {
            let Entry { key_id, cost, started, ended, .. } = posting.entry();
            let key_id = clean(key_id).into_owned();
            sums.add(key_id, cost.as_nanos(), (*started, *ended), posting.lease())?;
        }
        in_transaction!(&self.db, tx: Kind => {
            for (key, Sum { cost, days: _, leased, ended }) in &sums.keys {
                let charge = sqlx::query(CHARGE_IF).bind(key).bind(cost).bind(ended).bind(leased);
                if charge.execute(&mut *tx).await?.rows_affected() != 1 {
                    return Ok(false);
                }
            }
            for (token, cost) in &sums.leases {
                let paid = sqlx::query(PAY).bind(token).bind(cost).execute(&mut *tx).await?;
                if paid.rows_affected() != 1 {
                    return Ok(false);
                }
            }
            let mut new = 0;
            for chunk in sorted.chunks(ROWS) {
                let mut query = insertion!(Kind, chunk.iter().map(|p| p.entry()), OR_SKIP);
                // Only the text of a full chunk comes back often enough to be kept prepared.
                let query = query.build().persistent(chunk.len() == ROWS);
                new += query.execute(&mut *tx).await?.rows_affected();
            }
            if new != sorted.len() as u64 {
                return Ok(false);
            }
            add_to_days!(tx, &sums);
            forget_holds!(Kind, tx, sorted);
        });
        Ok(true)
    }

    /// Some calls were recorded already, or come late: each is looked at.
    async fn post_some<P: Posting>(&self, sorted: &[&P]) -> Result<usize, StoreError> {
        let key_ids: BTreeSet<_> = sorted.iter().map(|p| clean(&p.entry().key_id)).collect();
        let tokens: BTreeSet<Token> = sorted.iter().filter_map(|p| p.lease()).collect();
        Ok(in_transaction!(&self.db, tx: Kind => {
            let mut till = Till::default();
            for key_id in &key_ids {
                let locked: Option<Locked> =
                    sqlx::query_as(LOCK_KEY).bind(key_id).fetch_optional(&mut *tx).await?;
                if let Some((Some(cap), spent, leased, ..)) = locked {
                    let room = cap.saturating_sub(spent).saturating_sub(leased).max(0);
                    till.room.insert(key_id.clone().into_owned(), room);
                }
            }
            // From here on nobody else posts for these keys or touches their leases.
            for token in &tokens {
                let amount: Option<i64> = sqlx::query_scalar("SELECT amount FROM leases WHERE token = $1")
                    .bind(token)
                    .fetch_optional(&mut *tx)
                    .await?;
                till.leases.extend(amount.map(|amount| (*token, amount)));
            }
            let mut known = BTreeSet::new();
            for chunk in sorted.chunks(ROWS) {
                let mut query = QueryBuilder::<Kind>::new(
                    "SELECT request_id FROM entries WHERE request_id IN (",
                );
                let mut ids = query.separated(", ");
                for posting in chunk {
                    ids.push_bind(clean(&posting.entry().request_id).into_owned());
                }
                let found: Vec<String> = query
                    .push(")")
                    .build_query_scalar()
                    .persistent(false)
                    .fetch_all(&mut *tx)
                    .await?;
                known.extend(found);
            }
            let mut new: Vec<Cow<'_, Entry>> = Vec::with_capacity(sorted.len());
            for posting in sorted {
                if known.insert(clean(&posting.entry().request_id).into_owned()) {
                    new.push(till.ring_up(posting.entry(), posting.lease()));
                }
            }
            let mut sums = Sums::default();
            let mut count = 0;
            for chunk in new.chunks(ROWS) {
                let mut query = insertion!(Kind, chunk, OR_TELL);
                let rows: Vec<(String, i64, Micros, Micros)> =
                    query.build_query_as().persistent(false).fetch_all(&mut *tx).await?;
                count += rows.len();
                for (key_id, cost, started, ended) in rows {
                    sums.add(key_id, cost, (started, ended), None)?;
                }
            }
            for (key, Sum { cost, ended, .. }) in &sums.keys {
                let leased = till.paid.get(key).copied().unwrap_or(0);
                sqlx::query(CHARGE)
                    .bind(key)
                    .bind(cost)
                    .bind(ended)
                    .bind(leased)
                    .execute(&mut *tx)
                    .await?;
            }
            add_to_days!(tx, &sums);
            for (token, cost) in &till.taken {
                sqlx::query(PAY).bind(token).bind(cost).execute(&mut *tx).await?;
            }
            forget_holds!(Kind, tx, sorted);
            count
        }))
    }
}

/// Who pays for what comes late, or twice.
#[derive(Default)]
struct Till {
    /// What the cap of each capped key leaves, beyond its leases.
    room: BTreeMap<String, i64>,
    /// The leases there are, and what is in them.
    leases: BTreeMap<Token, i64>,
    /// What was taken from each.
    taken: BTreeMap<Token, i64>,
    /// What leases paid for each key.
    paid: BTreeMap<String, i64>,
}

impl Till {
    /// The entry as it can be paid.
    fn ring_up<'a>(&mut self, entry: &'a Entry, lease: Option<Token>) -> Cow<'a, Entry> {
        let cost = entry.cost.as_nanos();
        let key_id = clean(&entry.key_id).into_owned();
        if let Some(token) = lease
            && let Some(left) = self.leases.get_mut(&token)
            && *left >= cost
        {
            *left -= cost;
            *self.taken.entry(token).or_insert(0) += cost;
            *self.paid.entry(key_id).or_insert(0) += cost;
            return Cow::Borrowed(entry);
        }
        let Some(room) = self.room.get_mut(&key_id) else { return Cow::Borrowed(entry) };
        let pays = cost.min(*room);
        *room -= pays;
        if pays == cost {
            return Cow::Borrowed(entry);
        }
        let mut entry = entry.clone();
        entry.borne = entry.borne.saturating_add(Money::nanos(cost - pays));
        entry.cost = Money::nanos(pays);
        Cow::Owned(entry)
    }
}
