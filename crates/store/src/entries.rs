//! Queries on ledger rows: one row, a filtered page, an export in order, the sums.

use canon::{Micros, Money, Usage};
use ledger::{CallOutcome, EndedBy, LedgerEntry, SettlementKnowledge};
use sqlx::QueryBuilder;

use crate::corrections::{overlay, read_corrections};
use crate::db::{clean, from_json, on_reader, unknown_word};
use crate::row::row;
use crate::{Store, StoreError};

/// Conditions on rows; `None` is no condition.
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
    /// Older than the row with this end and request id, which is the last one of the page before.
    pub before: Option<(Micros, String)>,
}

row! {
    /// Sum of a key's rows, with the spending in the key's record.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct KeyTotal {
        /// The key.
        pub key_id: String as "id",
        /// Number of rows.
        pub rows: i64 as "n",
        /// Sum of their costs.
        pub cost: Money,
        /// Spending in the key's record; zero if there is no such key.
        pub spent: Money,
    }
}

row! {
    pub(crate) struct EntryRow {
        request_id: String,
        key_id: String,
        account_id: String,
        started: Micros,
        ended: Micros,
        first_byte_us: Option<Micros>,
        dialect: String,
        model: String,
        lane: String,
        attempts: u32,
        stream: bool,
        status: u16,
        outcome: String,
        input: u64,
        cache_read: u64,
        cache_write: u64,
        cache_write_long: u64,
        input_audio: u64,
        input_image: u64,
        output: u64,
        thinking: u64,
        output_audio: u64,
        output_image: u64,
        searches: u64,
        estimated: bool,
        cost: Money,
        borne: Money,
        price_version: String,
        losses: String,
        failed: String,
        held: Option<Money>,
        images: u64,
        seconds: u64,
        service: String,
        ended_by: String,
        charges: String,
        told: String,
        reasons: String,
        knowledge: Option<i64>,
    }
}

impl TryFrom<EntryRow> for LedgerEntry {
    type Error = sqlx::Error;

    fn try_from(row: EntryRow) -> Result<Self, sqlx::Error> {
        let outcome =
            CallOutcome::by_word(&row.outcome).ok_or_else(|| unknown_word(&row.outcome))?;
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
            attempts: row.attempts,
            stream: row.stream,
            status: row.status,
            outcome,
            // Rows from before the column was added have an empty word.
            ended_by: match row.ended_by.as_str() {
                "" => outcome.usual_end(),
                word => EndedBy::by_word(word).ok_or_else(|| unknown_word(word))?,
            },
            usage: Usage {
                input: row.input,
                cache_read: row.cache_read,
                cache_write: row.cache_write,
                cache_write_long: row.cache_write_long,
                input_audio: row.input_audio,
                input_image: row.input_image,
                // Not stored, because it is billed as text.
                input_video: 0,
                output: row.output,
                thinking: row.thinking,
                output_audio: row.output_audio,
                output_image: row.output_image,
                searches: row.searches,
                images: row.images,
                seconds: row.seconds,
                // Uses of tools stand in the charges.
                ..Usage::default()
            },
            estimated: row.estimated,
            cost: row.cost,
            absorbed: row.borne,
            price_version: row.price_version,
            losses: from_json(&row.losses)?,
            failed: from_json(&row.failed)?,
            held: row.held,
            service: row.service,
            charges: from_json(&row.charges)?,
            told: match row.told.as_str() {
                "" => None,
                told => {
                    Some(serde_json::from_str(told).map_err(|e| sqlx::Error::Decode(e.into()))?)
                }
            },
            reasons: from_json(&row.reasons)?,
            // Rows from before the column was added have none.
            knowledge: match (row.knowledge, outcome) {
                (Some(rank), _) => SettlementKnowledge::by_rank(rank)
                    .ok_or_else(|| unknown_word(&rank.to_string()))?,
                (None, CallOutcome::Recovered) => SettlementKnowledge::Reported,
                (
                    None,
                    CallOutcome::Done
                    | CallOutcome::CallerLeft
                    | CallOutcome::BrokeOff
                    | CallOutcome::Failed,
                ) => SettlementKnowledge::Settled,
            },
        })
    }
}

/// The columns of `EntryRow`, also the order in which they are written.
macro_rules! entry_columns {
    () => {
        "request_id, key_id, account_id, started, ended, first_byte_us, dialect, model, lane, \
         attempts, stream, status, outcome, input, cache_read, cache_write, cache_write_long, \
         input_audio, input_image, output, thinking, output_audio, output_image, searches, \
         estimated, cost, borne, price_version, losses, failed, held, images, seconds, \
         service, ended_by, charges, told, reasons, knowledge"
    };
}
pub(crate) use entry_columns;

/// The first postings of some calls; the ids follow.
pub(crate) const BY_ID: &str =
    concat!("SELECT ", entry_columns!(), " FROM entries WHERE request_id IN (");

const GET: &str = concat!("SELECT ", entry_columns!(), " FROM entries WHERE request_id = $1");
const LIST: &str = concat!("SELECT ", entry_columns!(), " FROM entries WHERE true");
// One statement, so that rows and sums are of the same instant. The second half is for rows whose
// key is unknown.
pub(crate) const TOTALS: &str = "SELECT k.id, COALESCE(e.n, 0) AS n, \
    COALESCE(e.cost, 0) + COALESCE(c.cost, 0) AS cost, k.spent \
    FROM keys k LEFT JOIN \
    (SELECT key_id, COUNT(*) AS n, CAST(SUM(cost) AS BIGINT) AS cost FROM entries GROUP BY key_id) e \
    ON e.key_id = k.id LEFT JOIN \
    (SELECT key_id, CAST(SUM(cost) AS BIGINT) AS cost FROM corrections GROUP BY key_id) c \
    ON c.key_id = k.id \
    UNION ALL \
    SELECT key_id, COUNT(*), CAST(SUM(cost) AS BIGINT), 0 FROM entries \
    WHERE NOT EXISTS (SELECT 1 FROM keys WHERE keys.id = entries.key_id) GROUP BY key_id \
    ORDER BY 1";

pub(crate) fn entries(rows: Vec<EntryRow>) -> Result<Vec<LedgerEntry>, StoreError> {
    Ok(rows.into_iter().map(LedgerEntry::try_from).collect::<Result<_, _>>()?)
}

impl Store {
    /// Returns a call as it is now: its record, with its latest correction.
    pub async fn entry(&self, request_id: &str) -> Result<Option<LedgerEntry>, StoreError> {
        let Some(first) = self.first_posting(request_id).await? else { return Ok(None) };
        Ok(self.corrected(vec![first]).await?.pop())
    }

    /// Replaces calls by their latest corrections.
    async fn corrected(&self, entries: Vec<LedgerEntry>) -> Result<Vec<LedgerEntry>, StoreError> {
        if entries.iter().all(|entry| entry.knowledge.is_final()) {
            return Ok(entries);
        }
        // Boxed because it is rare: the future of every query would grow by its size.
        Box::pin(self.overlaid(entries)).await
    }

    async fn overlaid(
        &self,
        mut entries: Vec<LedgerEntry>,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let rows = on_reader!(&self.db, pool: Kind => read_corrections!(Kind, pool, entries));
        overlay(&mut entries, rows)?;
        Ok(entries)
    }

    /// Returns the first record of a call.
    pub(crate) async fn first_posting(
        &self,
        request_id: &str,
    ) -> Result<Option<LedgerEntry>, StoreError> {
        let row: Option<EntryRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(GET).bind(clean(request_id)).fetch_optional(pool).await?
        });
        Ok(row.map(LedgerEntry::try_from).transpose()?)
    }

    /// Returns a page of the rows that match the filter, newest first.
    pub async fn entries(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.page(filter, None, limit, " ORDER BY ended DESC, request_id DESC LIMIT ").await
    }

    /// Returns a page of all rows, oldest first, that follow the row with that end and request id.
    pub async fn export(
        &self,
        after: Option<(Micros, String)>,
        limit: u32,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.export_of(&EntryFilter::default(), after, limit).await
    }

    /// Returns the same for the rows that match the filter.
    pub async fn export_of(
        &self,
        filter: &EntryFilter,
        after: Option<(Micros, String)>,
        limit: u32,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        self.page(filter, after, limit, " ORDER BY ended, request_id LIMIT ").await
    }

    async fn page(
        &self,
        filter: &EntryFilter,
        after: Option<(Micros, String)>,
        limit: u32,
        order: &str,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        let EntryFilter { key_id, account_id, model, since, until, before } = filter;
        // Built from fixed pieces, so that the planner sees only the conditions in use and can
        // choose the index that fits them.
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
                query.push(" AND ended >= ").push_bind(since.get());
            }
            if let Some(until) = until {
                query.push(" AND ended < ").push_bind(until.get());
            }
            if let Some((ended, request_id)) = before {
                query.push(" AND (ended, request_id) < (").push_bind(ended.get());
                query.push(", ").push_bind(clean(request_id)).push(")");
            }
            if let Some((ended, request_id)) = &after {
                query.push(" AND (ended, request_id) > (").push_bind(ended.get());
                query.push(", ").push_bind(clean(request_id)).push(")");
            }
            query.push(order).push_bind(i64::from(limit));
            query.build_query_as().fetch_all(pool).await?
        });
        self.corrected(entries(rows)?).await
    }

    /// Returns the sum of every key's rows with the spending in its record, ordered by id.
    pub async fn totals(&self) -> Result<Vec<KeyTotal>, StoreError> {
        Ok(on_reader!(&self.db, pool => sqlx::query_as(TOTALS).fetch_all(pool).await?))
    }
}
