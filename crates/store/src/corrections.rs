//! Corrections of posted calls.
//!
//! The first posting of a call is a row of `entries`. A settlement that knows more adds a row of
//! `corrections`: the differences, and the call as it is now. The sum over both tables is the truth,
//! and no row changes. Only provisional postings are corrected, so that reading other calls costs
//! nothing.

use std::collections::BTreeMap;

use canon::{Micros, Money};
use ledger::{LedgerEntry, SettlementKnowledge};

use crate::db::{clean, on_reader};
use crate::rollup::counted;
use crate::row::row;
use crate::sums::SummedColumns;
use crate::{Store, StoreError};

/// Latest corrections of some calls; the ids follow.
pub(crate) const LATEST: &str =
    "SELECT request_id, number, body FROM corrections WHERE request_id IN (";
pub(crate) const INSERT: &str = "INSERT INTO corrections \
    (request_id, number, at, key_id, account_id, knowledge, cost, borne, input, output, body) \
    VALUES ($1, $2, (SELECT now FROM store_clock), $3, $4, $5, $6, $7, $8, $9, $10)";
/// Postings after the first one of some calls; the ids follow.
const LATER: &str = "SELECT request_id, number, at, knowledge, cost, borne FROM corrections \
    WHERE request_id IN (";

row! {
    pub(crate) struct CorrectionRow {
        pub(crate) request_id: String,
        pub(crate) number: i64,
        body: String,
    }
}

row! {
    struct PostingRow {
        request_id: String,
        number: i64,
        at: Micros,
        knowledge: i64,
        cost: Money,
        borne: Money,
    }
}

/// One posting of a call. The sums over all of its postings are the call as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPosting {
    /// Time of the posting, by the clock of the database; for the first one the end of the call.
    pub at: Micros,
    /// Degree to which it knows the call.
    pub knowledge: SettlementKnowledge,
    /// Amount the key pays, or gets back.
    pub cost: Money,
    /// Amount the operator absorbs, or saves.
    pub absorbed: Money,
}

impl CallPosting {
    /// Returns the first posting of a call.
    pub fn first(entry: &LedgerEntry) -> Self {
        let LedgerEntry { ended: at, knowledge, cost, absorbed, .. } = *entry;
        Self { at, knowledge, cost, absorbed }
    }
}

/// A posted call as it is now, with the number of its corrections.
pub(crate) struct PostedCall {
    pub(crate) entry: LedgerEntry,
    pub(crate) corrections: i64,
}

/// A call before and after a correction.
pub(crate) struct CallCorrection {
    pub(crate) before: LedgerEntry,
    pub(crate) after: LedgerEntry,
    pub(crate) number: i64,
}

/// The values of a new row, in the order of its columns.
pub(crate) struct CorrectionValues {
    pub(crate) cost: i64,
    pub(crate) absorbed: i64,
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) body: String,
}

impl CallCorrection {
    /// Returns the differences, counted as in the table of usage.
    pub(crate) fn values(&self) -> Result<CorrectionValues, StoreError> {
        let change = counted(&self.after).less(&counted(&self.before))?;
        let body = serde_json::to_string(&self.after)
            .map_err(|e| StoreError::Other(format!("a correction cannot be encoded: {e}")))?;
        Ok(CorrectionValues {
            cost: change.cost.as_nanos(),
            absorbed: change.absorbed.as_nanos(),
            input: change.input,
            output: change.output,
            body,
        })
    }
}

/// Reads a call from the body of its latest correction.
pub(crate) fn read_body(body: &str) -> Result<LedgerEntry, StoreError> {
    serde_json::from_str(body)
        .map_err(|e| StoreError::Other(format!("a correction cannot be decoded: {e}")))
}

/// Replaces calls by their latest corrections. Returns the number of corrections of each.
pub(crate) fn overlay(
    entries: &mut [LedgerEntry],
    rows: Vec<CorrectionRow>,
) -> Result<BTreeMap<String, i64>, StoreError> {
    let mut latest: BTreeMap<String, CorrectionRow> = BTreeMap::new();
    for row in rows {
        let newer = |known: &CorrectionRow| known.number < row.number;
        if latest.get(&row.request_id).is_none_or(newer) {
            latest.insert(row.request_id.clone(), row);
        }
    }
    for entry in entries {
        if let Some(row) = latest.get(&*entry.request_id) {
            *entry = read_body(&row.body)?;
        }
    }
    Ok(latest.into_iter().map(|(id, row)| (id, row.number)).collect())
}

/// Reads the corrections of provisional calls, for either driver.
macro_rules! read_corrections {
    ($kind:ident, $executor:expr, $entries:expr) => {{
        let provisional: Vec<&ledger::LedgerEntry> =
            $entries.iter().filter(|entry| !entry.knowledge.is_final()).collect();
        let mut rows: Vec<$crate::corrections::CorrectionRow> = Vec::new();
        for chunk in provisional.chunks($crate::corrections::IDS_PER_STATEMENT) {
            let mut query = sqlx::QueryBuilder::<$kind>::new($crate::corrections::LATEST);
            let mut ids = query.separated(", ");
            for entry in chunk {
                ids.push_bind(entry.request_id.to_string());
            }
            query.push(")");
            let found = query.build_query_as().persistent(false).fetch_all($executor).await?;
            rows.extend::<Vec<_>>(found);
        }
        rows
    }};
}
pub(crate) use read_corrections;

/// Ids in one statement.
pub(crate) const IDS_PER_STATEMENT: usize = 100;

impl Store {
    /// Returns all postings of those of these calls that were corrected, the first one first. The
    /// only posting of any other call is the call itself.
    pub async fn postings_of(
        &self,
        calls: &[LedgerEntry],
    ) -> Result<BTreeMap<String, Vec<CallPosting>>, StoreError> {
        let mut rows: Vec<PostingRow> = Vec::new();
        for chunk in calls.chunks(IDS_PER_STATEMENT) {
            let found: Vec<PostingRow> = on_reader!(&self.db, pool: Kind => {
                let mut query = sqlx::QueryBuilder::<Kind>::new(LATER);
                let mut ids = query.separated(", ");
                for call in chunk {
                    ids.push_bind(clean(&call.request_id).into_owned());
                }
                query.push(")");
                query.build_query_as().persistent(false).fetch_all(pool).await?
            });
            rows.extend(found);
        }
        rows.sort_by_key(|row| row.number);
        let mut postings: BTreeMap<String, Vec<CallPosting>> = BTreeMap::new();
        for PostingRow { request_id, number: _, at, knowledge, cost, borne: absorbed } in rows {
            let known = postings.entry(request_id.clone()).or_default();
            if known.is_empty()
                && let Some(first) = self.first_posting(&request_id).await?
            {
                known.push(CallPosting::first(&first));
            }
            let knowledge = SettlementKnowledge::by_rank(knowledge).unwrap_or_default();
            known.push(CallPosting { at, knowledge, cost, absorbed });
        }
        Ok(postings)
    }
}
