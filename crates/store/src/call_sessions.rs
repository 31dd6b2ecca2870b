//! Sums of the calls of each session, by key, model and lane, written in the transaction that posts the
//! calls.
//!
//! A session is named by its caller, so that two keys may use the same name. Every query is limited to the
//! calls of an owner.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use canon::{Micros, Money};
use ledger::LedgerEntry;
use sqlx::{Arguments as _, ColumnIndex, Database, Decode, Encode, QueryBuilder, Row, Type};

use crate::corrections::CallCorrection;
use crate::db::{clean, on_reader};
use crate::rollup::counted;
use crate::row_statement::{RowStatement, with_places};
use crate::{ObjectOwner, Store, StoreError};

/// Maximum number of rows of one session that are read: pairs of a model and a lane, and keys.
const MAX_SESSION_ROWS: i64 = 10_000;

/// Sums of calls of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionTotals {
    /// Begin of the first call.
    pub begun: Micros,
    /// End of the last call.
    pub ended: Micros,
    /// Number of calls.
    pub calls: i64,
    /// Prompt tokens.
    pub input: i64,
    /// Prompt tokens that a provider read from its cache.
    pub cache_read: i64,
    /// Reply tokens.
    pub output: i64,
    /// Reply tokens of thinking.
    pub thinking: i64,
    /// Amount that the keys paid.
    pub cost: Money,
    /// Amount that the operator absorbed.
    pub absorbed: Money,
}

/// Calls of a session with one key, for one model, answered by one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionPart {
    /// The session.
    pub session: String,
    /// The key.
    pub key_id: String,
    /// The requested model; empty in a sum over all.
    pub model: String,
    /// The lane that answered; empty if none did, and in a sum over all.
    pub lane: String,
    /// The sums.
    pub totals: SessionTotals,
}

impl SessionTotals {
    /// Adds other sums.
    pub fn add(&mut self, other: &Self) {
        self.begun = if self.calls == 0 { other.begun } else { self.begun.min(other.begun) };
        self.ended = self.ended.max(other.ended);
        self.calls = self.calls.saturating_add(other.calls);
        self.input = self.input.saturating_add(other.input);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.output = self.output.saturating_add(other.output);
        self.thinking = self.thinking.saturating_add(other.thinking);
        self.cost = self.cost.saturating_add(other.cost);
        self.absorbed = self.absorbed.saturating_add(other.absorbed);
    }

    pub(crate) fn of_call(entry: &LedgerEntry) -> Self {
        let one = counted(entry);
        Self {
            begun: entry.started,
            ended: entry.ended,
            calls: one.calls,
            input: one.input,
            cache_read: one.cache_read,
            output: one.output,
            thinking: one.thinking,
            cost: one.cost,
            absorbed: one.absorbed,
        }
    }

    /// Returns the numbers in the order of the columns.
    const fn numbers(&self) -> [i64; NUMBER_COUNT] {
        let Self { begun, ended, calls, input, cache_read, output, thinking, cost, absorbed } =
            *self;
        let (cost, absorbed) = (cost.as_nanos(), absorbed.as_nanos());
        [begun.get(), ended.get(), calls, input, cache_read, output, thinking, cost, absorbed]
    }

    const fn from_numbers(numbers: [i64; NUMBER_COUNT]) -> Self {
        let [begun, ended, calls, input, cache_read, output, thinking, cost, absorbed] = numbers;
        let (begun, ended) = (Micros::new(begun), Micros::new(ended));
        let (cost, absorbed) = (Money::from_nanos(cost), Money::from_nanos(absorbed));
        Self { begun, ended, calls, input, cache_read, output, thinking, cost, absorbed }
    }

    /// Returns the same sums to be taken away.
    pub(crate) const fn negated(mut self) -> Self {
        self.calls = -self.calls;
        self.input = -self.input;
        self.cache_read = -self.cache_read;
        self.output = -self.output;
        self.thinking = -self.thinking;
        self.cost = Money::from_nanos(-self.cost.as_nanos());
        self.absorbed = Money::from_nanos(-self.absorbed.as_nanos());
        self
    }
}

/// The key of a row. Its order is the order in which all transactions lock rows.
pub(crate) type SessionKey<'a> = [Cow<'a, str>; 5];
pub(crate) type SessionSums<'a> = BTreeMap<SessionKey<'a>, SessionTotals>;

/// Returns the additions of new and corrected calls to each row. Calls without a session have none.
pub(crate) fn sum_sessions<'a>(
    new: impl Iterator<Item = &'a LedgerEntry>,
    corrected: &'a [CallCorrection],
) -> SessionSums<'a> {
    let mut sums = SessionSums::new();
    let mut add = |entry: &'a LedgerEntry, totals: SessionTotals| {
        let LedgerEntry { session, key_id, model, lane, account_id, .. } = entry;
        let key = [session, key_id, model, lane, account_id].map(|text| clean(text));
        sums.entry(key).or_default().add(&totals);
    };
    for entry in new.filter(|entry| !entry.session.is_empty()) {
        add(entry, SessionTotals::of_call(entry));
    }
    for CallCorrection { before, after, .. } in corrected {
        if !before.session.is_empty() {
            add(before, SessionTotals::of_call(before).negated());
        }
        if !after.session.is_empty() {
            add(after, SessionTotals::of_call(after));
        }
    }
    sums
}

const COLUMNS: &str = "session, key_id, model, lane, account_id, begun, ended, calls, input, \
    cache_read, output, thinking, cost, absorbed";
const COLUMN_COUNT: usize = 14;
/// Texts of a row that is read, and its numbers.
const TEXT_COUNT: usize = 4;
const NUMBER_COUNT: usize = 9;
const ADD: &str = " ON CONFLICT (session, key_id, model, lane) DO UPDATE SET \
    begun = CASE WHEN excluded.begun < call_sessions.begun THEN excluded.begun ELSE call_sessions.begun END, \
    ended = CASE WHEN excluded.ended > call_sessions.ended THEN excluded.ended ELSE call_sessions.ended END, \
    calls = call_sessions.calls + excluded.calls, input = call_sessions.input + excluded.input, \
    cache_read = call_sessions.cache_read + excluded.cache_read, \
    output = call_sessions.output + excluded.output, \
    thinking = call_sessions.thinking + excluded.thinking, cost = call_sessions.cost + excluded.cost, \
    absorbed = call_sessions.absorbed + excluded.absorbed";

/// The addition to rows, for one driver.
pub(crate) type SessionStatement = RowStatement<3>;
pub(crate) const SESSION_ROWS: [usize; 3] = [40, 6, 1];

/// Adds sums of sessions to the table, for either driver.
macro_rules! add_sessions {
    ($kind:ident, $tx:ident, $sums:expr) => {
        // One for each driver.
        static SESSIONS: $crate::call_sessions::SessionStatement =
            $crate::call_sessions::SessionStatement::new($crate::call_sessions::SESSION_ROWS);
        let rows: Vec<_> = $sums.into_iter().collect();
        for chunk in SESSIONS.chunks(&rows) {
            let text = SESSIONS.text(chunk.len(), || {
                $crate::call_sessions::session_addition::<$kind>(chunk.len())
            });
            let values = $crate::call_sessions::bind_sessions::<$kind>(chunk)?;
            sqlx::query_with(text, values).execute(&mut *$tx).await?;
        }
    };
}
pub(crate) use add_sessions;

/// Writes the statement that adds to so many rows.
pub(crate) fn session_addition<D: Database>(rows: usize) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    session_rows::<D>(CALL_SESSIONS, rows)
}

/// The table of the sums, in which removed calls still count.
const CALL_SESSIONS: &str = "call_sessions";

/// Writes the same statement for a table of these columns.
pub(crate) fn session_rows<D: Database>(table: &str, rows: usize) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    let (start, end) =
        (format!("INSERT INTO {table} ({COLUMNS}) "), ADD.replace(CALL_SESSIONS, table));
    with_places::<D>(&start, rows, COLUMN_COUNT, &end)
}

/// Binds the values of rows, in the order of the columns.
pub(crate) fn bind_sessions<D: Database>(
    rows: &[(SessionKey<'_>, SessionTotals)],
) -> Result<D::Arguments, sqlx::Error>
where
    i64: Type<D> + for<'q> Encode<'q, D>,
    Arc<str>: Type<D> + for<'q> Encode<'q, D>,
{
    let mut values = D::Arguments::default();
    let mut bind = |(key, totals): &(SessionKey<'_>, SessionTotals)| {
        key.iter().try_for_each(|text| values.add(Arc::<str>::from(&**text)))?;
        totals.numbers().into_iter().try_for_each(|number| values.add(number))
    };
    rows.iter().try_for_each(&mut bind).map_err(sqlx::Error::Encode)?;
    Ok(values)
}

/// A page of all rows, after the row with these texts.
pub(crate) const PAGE: &str = "SELECT session, key_id, model, lane, begun, ended, calls, input, cache_read, \
    output, thinking, cost, absorbed FROM call_sessions WHERE (session, key_id, model, lane) > ($1, $2, $3, $4) \
    ORDER BY session, key_id, model, lane LIMIT $5";
/// The same of the sums whose calls are archived.
pub(crate) const ARCHIVED_PAGE: &str = "SELECT session, key_id, model, lane, begun, ended, calls, input, cache_read, \
    output, thinking, cost, absorbed FROM archived_sessions WHERE (session, key_id, model, lane) > ($1, $2, $3, $4) \
    ORDER BY session, key_id, model, lane LIMIT $5";

/// Reads a row: four texts and the numbers.
pub(crate) fn read_part<'r, R>(row: &'r R) -> Result<SessionPart, sqlx::Error>
where
    R: Row,
    usize: ColumnIndex<R>,
    i64: Type<R::Database> + Decode<'r, R::Database>,
    String: Type<R::Database> + Decode<'r, R::Database>,
{
    let mut numbers = [0; NUMBER_COUNT];
    for (place, number) in (TEXT_COUNT..).zip(&mut numbers) {
        *number = row.try_get(place)?;
    }
    Ok(SessionPart {
        session: row.try_get(0)?,
        key_id: row.try_get(1)?,
        model: row.try_get(2)?,
        lane: row.try_get(3)?,
        totals: SessionTotals::from_numbers(numbers),
    })
}

/// Adds the condition that calls belong to an owner, for either driver.
macro_rules! push_owner {
    ($query:ident, $owner:expr) => {
        if let Some(owner) = $owner {
            $query.push(" AND account_id = ").push_bind(clean(owner.account_id()).into_owned());
            if let Some(key_id) = owner.key_id() {
                $query.push(" AND key_id = ").push_bind(clean(key_id).into_owned());
            }
        }
    };
}

impl Store {
    /// Returns the sums of a session by key, model and lane; `None` of owner stands for everyone.
    pub async fn session_parts(
        &self,
        owner: Option<&ObjectOwner>,
        session: &str,
    ) -> Result<Vec<SessionPart>, StoreError> {
        let parts: Result<Vec<SessionPart>, sqlx::Error> = on_reader!(&self.db, pool: Kind => {
            let mut query = QueryBuilder::<Kind>::new(
                "SELECT session, key_id, model, lane, begun, ended, calls, input, cache_read, output, \
                 thinking, cost, absorbed FROM call_sessions WHERE calls > 0 AND session = ",
            );
            query.push_bind(clean(session).into_owned());
            push_owner!(query, owner);
            query.push(" ORDER BY key_id, model, lane LIMIT ").push_bind(MAX_SESSION_ROWS);
            query.build().fetch_all(pool).await?.iter().map(read_part).collect()
        });
        Ok(parts?)
    }

    /// Returns the sessions whose last call ended since then, by key, the latest one first.
    pub async fn sessions_since(
        &self,
        owner: Option<&ObjectOwner>,
        since: Micros,
        limit: u32,
    ) -> Result<Vec<SessionPart>, StoreError> {
        let parts: Result<Vec<SessionPart>, sqlx::Error> = on_reader!(&self.db, pool: Kind => {
            // PostgreSQL returns NUMERIC for a sum of BIGINTs.
            let mut query = QueryBuilder::<Kind>::new("SELECT session, key_id, '', '', MIN(begun), MAX(ended)");
            for column in ["calls", "input", "cache_read", "output", "thinking", "cost", "absorbed"] {
                query.push(format_args!(", CAST(SUM({column}) AS BIGINT)"));
            }
            query.push(" FROM call_sessions WHERE ended >= ").push_bind(since.get());
            push_owner!(query, owner);
            query.push(" GROUP BY session, key_id HAVING SUM(calls) > 0 ORDER BY 6 DESC, 1, 2 LIMIT ");
            query.push_bind(i64::from(limit));
            query.build().fetch_all(pool).await?.iter().map(read_part).collect()
        });
        Ok(parts?)
    }
}
