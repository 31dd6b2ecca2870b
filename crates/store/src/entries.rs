//! Reading the ledger's rows: one, a filtered page, everything in order, the sums.

use canon::{Money, Usage};
use ledger::{EndedBy, Entry, Micros, Outcome};
use sqlx::{FromRow, QueryBuilder};

use crate::db::{clean, from_json, number, on_reader, unknown_word};
use crate::{Store, StoreError};

/// Which rows to list; `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// Of this key.
    pub key_id: Option<String>,
    /// Of this account.
    pub account_id: Option<String>,
    /// For this model.
    pub model: Option<String>,
    /// Ended at this time or later.
    pub since: Option<Micros>,
    /// Ended before this time.
    pub until: Option<Micros>,
    /// Older than this row, told by its end and request id: the next page begins behind the last
    /// row of this one.
    pub before: Option<(Micros, String)>,
}

/// What a key's rows add up to, beside what the key says it spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTotal {
    /// The key.
    pub key_id: String,
    /// How many rows it has.
    pub rows: i64,
    /// The sum of their costs.
    pub cost: Money,
    /// What the key's record says; nothing when there is no such key.
    pub spent: Money,
}

/// A ledger row as a row.
#[derive(FromRow)]
struct EntryRow {
    request_id: String,
    key_id: String,
    account_id: String,
    started: Micros,
    ended: Micros,
    first_byte_us: Option<i64>,
    dialect: String,
    model: String,
    lane: String,
    attempts: i64,
    stream: bool,
    status: i64,
    outcome: String,
    input: i64,
    cache_read: i64,
    cache_write: i64,
    cache_write_long: i64,
    input_audio: i64,
    input_image: i64,
    output: i64,
    thinking: i64,
    output_audio: i64,
    output_image: i64,
    searches: i64,
    estimated: bool,
    cost: i64,
    borne: i64,
    price_version: String,
    losses: String,
    failed: String,
    images: i64,
    seconds: i64,
    service: String,
    ended_by: String,
    charges: String,
}

impl TryFrom<EntryRow> for Entry {
    type Error = sqlx::Error;

    fn try_from(row: EntryRow) -> Result<Self, sqlx::Error> {
        let outcome = Outcome::by_word(&row.outcome).ok_or_else(|| unknown_word(&row.outcome))?;
        Ok(Self {
            request_id: row.request_id,
            key_id: row.key_id,
            account_id: row.account_id,
            started: row.started,
            ended: row.ended,
            first_byte_us: row.first_byte_us,
            dialect: row.dialect,
            model: row.model,
            lane: row.lane,
            attempts: number(row.attempts)?,
            stream: row.stream,
            status: number(row.status)?,
            outcome,
            // A row from before this was told.
            ended_by: match row.ended_by.as_str() {
                "" => outcome.usual_end(),
                word => EndedBy::by_word(word).ok_or_else(|| unknown_word(word))?,
            },
            usage: Usage {
                input: number(row.input)?,
                cache_read: number(row.cache_read)?,
                cache_write: number(row.cache_write)?,
                cache_write_long: number(row.cache_write_long)?,
                input_audio: number(row.input_audio)?,
                input_image: number(row.input_image)?,
                output: number(row.output)?,
                thinking: number(row.thinking)?,
                output_audio: number(row.output_audio)?,
                output_image: number(row.output_image)?,
                searches: number(row.searches)?,
                images: number(row.images)?,
                seconds: number(row.seconds)?,
            },
            estimated: row.estimated,
            cost: Money::nanos(row.cost),
            borne: Money::nanos(row.borne),
            price_version: row.price_version,
            losses: from_json(&row.losses)?,
            failed: from_json(&row.failed)?,
            service: row.service,
            charges: from_json(&row.charges)?,
        })
    }
}

/// The columns of [`EntryRow`], also the order in which they are written.
macro_rules! entry_columns {
    () => {
        "request_id, key_id, account_id, started, ended, first_byte_us, dialect, model, lane, \
         attempts, stream, status, outcome, input, cache_read, cache_write, cache_write_long, \
         input_audio, input_image, output, thinking, output_audio, output_image, searches, \
         estimated, cost, borne, price_version, losses, failed, images, seconds, \
         service, ended_by, charges"
    };
}
pub(crate) use entry_columns;

const GET: &str = concat!("SELECT ", entry_columns!(), " FROM entries WHERE request_id = $1");
const LIST: &str = concat!("SELECT ", entry_columns!(), " FROM entries WHERE true");
const FIRST: &str =
    concat!("SELECT ", entry_columns!(), " FROM entries ORDER BY ended, request_id LIMIT $1");
const AFTER: &str = concat!(
    "SELECT ",
    entry_columns!(),
    " FROM entries WHERE (ended, request_id) > ($2, $3) ORDER BY ended, request_id LIMIT $1"
);
// One statement, so that rows and sums are of the same instant on a live database. The second half
// is for rows whose key is unknown.
const TOTALS: &str = "SELECT k.id, COALESCE(e.n, 0), COALESCE(e.cost, 0), k.spent \
    FROM keys k LEFT JOIN \
    (SELECT key_id, COUNT(*) AS n, CAST(SUM(cost) AS BIGINT) AS cost FROM entries GROUP BY key_id) e \
    ON e.key_id = k.id \
    UNION ALL \
    SELECT key_id, COUNT(*), CAST(SUM(cost) AS BIGINT), 0 FROM entries \
    WHERE NOT EXISTS (SELECT 1 FROM keys WHERE keys.id = entries.key_id) GROUP BY key_id \
    ORDER BY 1";

fn entries(rows: Vec<EntryRow>) -> Result<Vec<Entry>, StoreError> {
    Ok(rows.into_iter().map(Entry::try_from).collect::<Result<_, _>>()?)
}

impl Store {
    /// The record of that call.
    pub async fn entry(&self, request_id: &str) -> Result<Option<Entry>, StoreError> {
        let row: Option<EntryRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(request_id)).fetch_optional(pool).await?
        });
        Ok(row.map(Entry::try_from).transpose()?)
    }

    /// A page of rows that fit the filter, newest first.
    pub async fn entries(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let EntryFilter { key_id, account_id, model, since, until, before } = filter;
        // Put together from fixed pieces, so that the planner sees only the conditions that count
        // and takes the index that fits them.
        let rows = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(LIST);
            if let Some(key_id) = key_id {
                query.push(" AND key_id = ").push_bind(clean(key_id));
            }
            if let Some(account_id) = account_id {
                query.push(" AND account_id = ").push_bind(clean(account_id));
            }
            if let Some(model) = model {
                query.push(" AND model = ").push_bind(clean(model));
            }
            if let Some(since) = since {
                query.push(" AND ended >= ").push_bind(*since);
            }
            if let Some(until) = until {
                query.push(" AND ended < ").push_bind(*until);
            }
            if let Some((ended, request_id)) = before {
                query.push(" AND (ended, request_id) < (").push_bind(*ended);
                query.push(", ").push_bind(clean(request_id)).push(")");
            }
            query.push(" ORDER BY ended DESC, request_id DESC LIMIT ").push_bind(i64::from(limit));
            query.build_query_as().fetch_all(pool).await?
        });
        entries(rows)
    }

    /// A page of all rows, oldest first, behind the row with that end and request id.
    pub async fn export(
        &self,
        after: Option<(Micros, String)>,
        limit: u32,
    ) -> Result<Vec<Entry>, StoreError> {
        let limit = i64::from(limit);
        let rows = match after {
            None => on_reader!(&self.db, pool => {
                sqlx::query_as(FIRST).bind(limit).fetch_all(pool).await?
            }),
            Some((ended, request_id)) => on_reader!(&self.db, pool => {
                sqlx::query_as(AFTER)
                    .bind(limit)
                    .bind(ended)
                    .bind(clean(&request_id))
                    .fetch_all(pool)
                    .await?
            }),
        };
        entries(rows)
    }

    /// What every key's rows add up to, beside what it says it spent, in the order of the ids.
    pub async fn totals(&self) -> Result<Vec<KeyTotal>, StoreError> {
        let rows: Vec<(String, i64, i64, i64)> =
            on_reader!(&self.db, pool => sqlx::query_as(TOTALS).fetch_all(pool).await?);
        Ok(rows
            .into_iter()
            .map(|(key_id, rows, cost, spent)| KeyTotal {
                key_id,
                rows,
                cost: Money::nanos(cost),
                spent: Money::nanos(spent),
            })
            .collect())
    }
}
