//! Ids of calls that left the database. A call that is posted again must not be charged again.
//!
//! Eight bytes of the SHA-256 of each id are kept, sorted, in one row for each batch of removed calls. The row
//! names the range of their admissions, which every settlement of a call states alike.

use aws_lc_rs::digest;
use canon::Micros;
use ledger::LedgerEntry;

use crate::db::{clean, on_reader};
use crate::{Store, StoreError};

const HASH_BYTES: usize = 8;

pub(crate) const INSERT: &str =
    "INSERT INTO archived_ids (first_started, last_started, hashes) VALUES ($1, $2, $3)";
/// Hashes of removed calls that were admitted around a time.
pub(crate) const AROUND: &str =
    "SELECT hashes FROM archived_ids WHERE last_started >= $1 AND first_started <= $1";
/// Number of planned blocks with a call of these numbers.
pub(crate) const PLANNED: &str = "SELECT COUNT(*) FROM call_ids c JOIN archive_blocks a \
    ON a.block = c.block WHERE c.id BETWEEN $1 AND $2";

fn id_hash(request_id: &str) -> [u8; HASH_BYTES] {
    let hash = digest::digest(&digest::SHA256, clean(request_id).as_bytes());
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

/// The hashes of some calls, and the range of their admissions.
pub(crate) struct IdHashes {
    pub(crate) first_started: Micros,
    pub(crate) last_started: Micros,
    pub(crate) bytes: Vec<u8>,
}

impl IdHashes {
    pub(crate) fn of(calls: &[LedgerEntry]) -> Self {
        let mut hashes: Vec<_> = calls.iter().map(|call| id_hash(&call.request_id)).collect();
        hashes.sort_unstable();
        Self {
            first_started: calls.iter().map(|call| call.started).min().unwrap_or_default(),
            last_started: calls.iter().map(|call| call.started).max().unwrap_or_default(),
            bytes: hashes.concat(),
        }
    }
}

/// Returns true if one of the rows has the hash of the id.
pub(crate) fn has_id(rows: &[Vec<u8>], request_id: &str) -> bool {
    let wanted = id_hash(request_id);
    rows.iter().any(|row| row.as_chunks().0.binary_search(&wanted).is_ok())
}

/// Evaluates to the ids of those postings whose calls are archived or about to be, for either driver.
/// `$posted` has the calls that the database still has.
macro_rules! find_archived {
    ($tx:ident, $candidates:expr, $posted:expr) => {{
        let mut archived = std::collections::BTreeSet::new();
        for entry in $candidates {
            let entry: &ledger::LedgerEntry = entry;
            let id = $crate::db::clean(&entry.request_id).into_owned();
            let is_archived = match $posted.get(&id) {
                // Only a settlement of the node's journal can be planned and still be corrected.
                Some(posted) if posted.entry.knowledge != ledger::SettlementKnowledge::Journal => {
                    false
                }
                Some(_) => {
                    let numbers = $crate::compact_text::call_numbers(&id);
                    let planned: i64 = sqlx::query_scalar($crate::archived_ids::PLANNED)
                        .bind(*numbers.start())
                        .bind(*numbers.end())
                        .fetch_one(&mut *$tx)
                        .await?;
                    planned > 0
                }
                None => {
                    let rows: Vec<Vec<u8>> = sqlx::query_scalar($crate::archived_ids::AROUND)
                        .bind(entry.started.get())
                        .fetch_all(&mut *$tx)
                        .await?;
                    $crate::archived_ids::has_id(&rows, &id)
                }
            };
            if is_archived {
                archived.insert(id);
            }
        }
        archived
    }};
}
pub(crate) use find_archived;

/// Logs a settlement of a call that is archived.
pub(crate) fn report_archived(entry: &LedgerEntry) {
    tracing::warn!(
        request.id = &*entry.request_id,
        "a settlement of an archived call came late and is ignored: {} USD and {} USD absorbed",
        entry.cost,
        entry.absorbed
    );
}

impl Store {
    /// Returns true if the call is recorded, in the database or in an archive.
    pub async fn is_recorded(&self, call: &LedgerEntry) -> Result<bool, StoreError> {
        if self.first_posting(&call.request_id).await?.is_some() {
            return Ok(true);
        }
        let rows: Vec<Vec<u8>> = on_reader!(&self.db, pool => {
            sqlx::query_scalar(AROUND).bind(call.started.get()).fetch_all(pool).await?
        });
        Ok(has_id(&rows, &call.request_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_found_and_no_other_one() {
        let call = |number: usize| LedgerEntry {
            request_id: format!("req_{number}").into(),
            started: Micros::new(number as i64),
            ..LedgerEntry::default()
        };
        let calls: Vec<LedgerEntry> = (0..1_000).map(call).collect();
        let IdHashes { first_started, last_started, bytes } = IdHashes::of(&calls);
        assert_eq!((first_started, last_started), (Micros::ZERO, Micros::new(999)));
        let rows = [IdHashes::of(&[]).bytes, bytes];
        assert!(calls.iter().all(|call| has_id(&rows, &call.request_id)));
        assert!((1_000..2_000).all(|number| !has_id(&rows, &call(number).request_id)));
        // NUL is stored as another character.
        let one = LedgerEntry { request_id: "a\0".into(), ..LedgerEntry::default() };
        assert!(has_id(&[IdHashes::of(&[one]).bytes], "a\u{fffd}"));
    }
}
