//! Archiving of old calls: they leave the database, and their sums stay.
//!
//! Calls leave in parts. A part is planned in one transaction, which names its blocks. Its file is then written
//! by the caller and recorded here. Only then are the blocks removed, in small transactions, each of which adds
//! the sums of its calls to `archived_calls`. So the sums over both are equal at every instant, and a process
//! that is killed leaves a part that any other one continues.
//!
//! A block with a call that only a heartbeat reported stays, because its node may still correct it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use canon::{Micros, Money};
use ledger::{LedgerEntry, SettlementKnowledge};
use sqlx::QueryBuilder;

use crate::archived_ids::{self, IdHashes};
use crate::block_decoding::decode_calls;
use crate::call_audit::CallSums;
use crate::call_sessions::{SessionKey, SessionTotals, bind_sessions, session_rows, sum_sessions};
use crate::call_writes::owners;
use crate::compact_text::{call_numbers, compact};
use crate::corrections::{IDS_PER_STATEMENT, overlay, read_corrections};
use crate::db::{clean, in_snapshot, in_transaction, on_reader, on_writer, unknown_word};
use crate::row::row;
use crate::{Store, StoreError, UsageStep};

/// Maximum numbers of blocks and calls of a part. A part is planned in one transaction.
const MAX_PART_BLOCKS: usize = 4_000;
const MAX_PART_CALLS: usize = 200_000;
/// Maximum numbers of blocks and calls that one transaction removes.
const REMOVED_BLOCKS: i64 = 100;
const REMOVED_CALLS: usize = 1_000;
/// Blocks that are read at once.
const PAGE_BLOCKS: i64 = 50;
/// Rows that one statement inserts or deletes.
const ROWS_PER_STATEMENT: usize = 100;

/// State of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveState {
    /// Its file is not complete yet.
    Writing,
    /// Its file is complete, and its calls are being removed.
    Written,
    /// All of its calls are removed.
    Removed,
}

impl ArchiveState {
    const ALL: [Self; 3] = [Self::Writing, Self::Written, Self::Removed];

    /// The word in the table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::Written => "written",
            Self::Removed => "removed",
        }
    }
}

/// A part of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivePart {
    /// Its number.
    pub id: i64,
    /// Its state.
    pub state: ArchiveState,
    /// First and last end of its blocks.
    pub begun: Micros,
    /// See `begun`.
    pub ended: Micros,
    /// Its file; empty fields until it is written, and for calls that are deleted without a file.
    pub file: ArchiveFile,
    /// Number and cost of the calls that are removed so far.
    pub removed_calls: i64,
    /// See `removed_calls`.
    pub removed_cost: Money,
}

/// The file of a part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArchiveFile {
    /// The folder or bucket.
    pub place: String,
    /// The name in it.
    pub name: String,
    /// The hash of its bytes, in hexadecimal digits.
    pub sha256: String,
    /// Its length.
    pub bytes: i64,
    /// Number of its calls.
    pub calls: i64,
    /// Sum of their costs.
    pub cost: Money,
    /// Sum of what the operator absorbed.
    pub absorbed: Money,
}

row! {
    struct PartRow {
        id: i64,
        state: String,
        begun: Micros,
        ended: Micros,
        place: String,
        file: String,
        sha256: String,
        bytes: i64,
        calls: i64,
        cost: Money,
        borne: Money,
        removed_calls: i64,
        removed_cost: Money,
    }
}

impl TryFrom<PartRow> for ArchivePart {
    type Error = sqlx::Error;

    fn try_from(row: PartRow) -> Result<Self, sqlx::Error> {
        let state = ArchiveState::ALL.into_iter().find(|state| state.word() == row.state);
        let state = state.ok_or_else(|| unknown_word(&row.state))?;
        let PartRow { id, begun, ended, place, file: name, sha256, bytes, calls, cost, .. } = row;
        let absorbed = row.borne;
        let file = ArchiveFile { place, name, sha256, bytes, calls, cost, absorbed };
        let PartRow { removed_calls, removed_cost, .. } = row;
        Ok(Self { id, state, begun, ended, file, removed_calls, removed_cost })
    }
}

/// The columns of `PartRow`.
macro_rules! part_columns {
    () => {
        "SELECT id, state, begun, ended, place, file, sha256, bytes, calls, cost, borne, \
         removed_calls, removed_cost FROM archive_parts"
    };
}
const PARTS: &str = concat!(part_columns!(), " WHERE id > $1 ORDER BY id LIMIT $2");
const UNFINISHED: &str = concat!(part_columns!(), " WHERE state <> 'removed' ORDER BY id LIMIT 1");
const OLD_BLOCKS: &str = "SELECT ended, id, body FROM call_blocks WHERE ended >= $1 AND ended < $2 \
    AND (ended, id) > ($3, $4) AND NOT EXISTS (SELECT 1 FROM archive_blocks a \
    WHERE a.block = call_blocks.id) ORDER BY ended, id LIMIT $5";
const ADD_PART: &str = "INSERT INTO archive_parts (state, created, begun, ended, place, file, sha256, \
    bytes, calls, cost, borne, removed_calls, removed_cost) \
    VALUES ('writing', (SELECT now FROM store_clock), $1, $2, '', '', '', 0, 0, 0, 0, 0, 0) RETURNING id";
const RAISE_HORIZON: &str = "UPDATE keys SET archived_until = CASE WHEN archived_until > $2 \
    THEN archived_until ELSE $2 END WHERE id = $1";
const CORRECTED: &str = "SELECT DISTINCT request_id FROM corrections WHERE request_id IN (";
const BLOCKS_OF_PART: &str = "SELECT b.id, b.body FROM archive_blocks a JOIN call_blocks b ON b.id = a.block \
    WHERE a.part = $1 AND a.block > $2 ORDER BY a.block LIMIT $3";
const WRITTEN: &str = "UPDATE archive_parts SET state = 'written', place = $2, file = $3, sha256 = $4, \
    bytes = $5, calls = $6, cost = $7, borne = $8 WHERE id = $1 AND state = 'writing'";
/// Locks a part whose blocks may be removed.
const LOCK_PART: &str =
    "UPDATE archive_parts SET bytes = bytes WHERE id = $1 AND state = 'written' RETURNING id";
const ADD_REMOVED: &str = "UPDATE archive_parts SET removed_calls = removed_calls + $2, \
    removed_cost = removed_cost + $3 WHERE id = $1";
const FINISH: &str = "UPDATE archive_parts SET state = 'removed' WHERE id = $1 AND NOT EXISTS \
    (SELECT 1 FROM archive_blocks WHERE part = $1)";
const ADD_SUMS: &str = " ON CONFLICT (key_id, account_id) DO UPDATE SET \
    calls = archived_calls.calls + excluded.calls, cost = archived_calls.cost + excluded.cost, \
    borne = archived_calls.borne + excluded.borne, input = archived_calls.input + excluded.input, \
    output = archived_calls.output + excluded.output";

const DROP_OWNER: &str =
    "DELETE FROM call_owners WHERE kind = $1 AND owner = $2 AND ended = $3 AND block = $4";
/// Deletions of blocks and of what belongs to them; the numbers of the blocks follow, and the closing brackets.
const DROP_BLOCKS: [(&str, &str); 4] = [
    (
        "DELETE FROM corrections WHERE request_id IN \
         (SELECT request_id FROM archive_corrections WHERE block IN (",
        "))",
    ),
    ("DELETE FROM archive_corrections WHERE block IN (", ")"),
    ("DELETE FROM call_blocks WHERE id IN (", ")"),
    ("DELETE FROM archive_blocks WHERE block IN (", ")"),
];

/// A block that may leave the database, with its calls as they are now.
struct OldBlock {
    id: i64,
    ended: Micros,
    calls: Vec<LedgerEntry>,
}

/// Returns true if no node can still correct a call, as far as anyone knows.
fn is_settled(call: &LedgerEntry) -> bool {
    match call.knowledge {
        SettlementKnowledge::Reported => false,
        SettlementKnowledge::Journal | SettlementKnowledge::Settled => true,
    }
}

/// Sums of removed calls by key and account.
fn sums_by_owner(calls: &[LedgerEntry]) -> BTreeMap<(String, String), CallSums> {
    let mut sums: BTreeMap<(String, String), CallSums> = BTreeMap::new();
    for call in calls {
        let owner = (clean(&call.key_id).into_owned(), clean(&call.account_id).into_owned());
        let sum = sums.entry(owner).or_default();
        *sum = sum.plus(CallSums::of(call));
    }
    sums
}

/// Rows of `call_owners` that a block has.
fn owner_rows(calls: &[LedgerEntry]) -> BTreeSet<(i64, Vec<u8>)> {
    let owners = owners(calls.iter()).into_iter();
    // Texts that are stored alike are one owner.
    owners.map(|(kind, owner)| (kind.number(), compact(&clean(owner)))).collect()
}

impl Store {
    /// Returns the parts of the archive after this one, the oldest first.
    pub async fn archive_parts(&self, after: i64) -> Result<Vec<ArchivePart>, StoreError> {
        let rows: Vec<PartRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(PARTS).bind(after).bind(1_000_i64).fetch_all(pool).await?
        });
        Ok(rows.into_iter().map(ArchivePart::try_from).collect::<Result<_, _>>()?)
    }

    /// Returns the first part that is not removed yet.
    pub async fn unfinished_part(&self) -> Result<Option<ArchivePart>, StoreError> {
        let row: Option<PartRow> = on_reader!(&self.db, pool => {
            sqlx::query_as(UNFINISHED).fetch_optional(pool).await?
        });
        Ok(row.map(ArchivePart::try_from).transpose()?)
    }

    /// Plans the next part: blocks of one day that end within the range. Returns `None` if there is none.
    /// From then on no call of these blocks is corrected.
    pub async fn plan_part(&self, range: Range<Micros>) -> Result<Option<ArchivePart>, StoreError> {
        let blocks = self.old_blocks(&range).await?;
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(None) };
        let (begun, ended) = (first.ended, last.ended);
        let mut horizons: BTreeMap<String, Micros> = BTreeMap::new();
        for call in blocks.iter().flat_map(|block| &block.calls) {
            let horizon = horizons.entry(clean(&call.key_id).into_owned()).or_insert(call.started);
            *horizon = call.started.max(*horizon);
        }
        let corrected: BTreeMap<String, i64> = blocks
            .iter()
            .flat_map(|block| block.calls.iter().map(|call| (call, block.id)))
            .map(|(call, block)| (clean(&call.request_id).into_owned(), block))
            .collect();
        let id = in_transaction!(&self.db, tx: Kind => {
            // Keys are locked first and in the order of their ids, as by every posting.
            for (key_id, horizon) in &horizons {
                let raise = sqlx::query(RAISE_HORIZON).bind(key_id).bind(horizon.get());
                raise.execute(&mut *tx).await?;
            }
            let part = sqlx::query_scalar(ADD_PART).bind(begun.get()).bind(ended.get());
            let part: i64 = part.fetch_one(&mut *tx).await?;
            for chunk in blocks.chunks(ROWS_PER_STATEMENT) {
                let mut insert = QueryBuilder::<Kind>::new("INSERT INTO archive_blocks (block, part) ");
                insert.push_values(chunk, |mut row, block| {
                    row.push_bind(block.id).push_bind(part);
                });
                insert.build().persistent(false).execute(&mut *tx).await?;
            }
            let ids: Vec<&String> = corrected.keys().collect();
            let mut found: Vec<String> = Vec::new();
            for chunk in ids.chunks(IDS_PER_STATEMENT) {
                let mut query = QueryBuilder::<Kind>::new(CORRECTED);
                let mut list = query.separated(", ");
                for id in chunk {
                    list.push_bind((*id).clone());
                }
                query.push(")");
                let some: Vec<String> = query.build_query_scalar().persistent(false).fetch_all(&mut *tx).await?;
                found.extend(some);
            }
            for id in &found {
                let block = corrected.get(id).copied().unwrap_or_default();
                sqlx::query("INSERT INTO archive_corrections (request_id, block) VALUES ($1, $2)")
                    .bind(id)
                    .bind(block)
                    .execute(&mut *tx)
                    .await?;
            }
            part
        });
        let parts = self.archive_parts(id.saturating_sub(1)).await?;
        Ok(parts.into_iter().find(|part| part.id == id))
    }

    /// Reads the blocks of the first day in the range that has any which may leave.
    async fn old_blocks(&self, range: &Range<Micros>) -> Result<Vec<OldBlock>, StoreError> {
        let mut blocks: Vec<OldBlock> = Vec::new();
        let mut calls = 0;
        let mut until = range.end;
        let (mut seen_ended, mut seen_id) = (i64::MIN, i64::MIN);
        loop {
            let rows: Vec<(i64, i64, Vec<u8>)> = on_reader!(&self.db, pool => {
                sqlx::query_as(OLD_BLOCKS)
                    .bind(range.start.get())
                    .bind(until.get())
                    .bind(seen_ended)
                    .bind(seen_id)
                    .bind(PAGE_BLOCKS)
                    .fetch_all(pool)
                    .await?
            });
            let Some((ended, id, _)) = rows.last() else { return Ok(blocks) };
            (seen_ended, seen_id) = (*ended, *id);
            for (ended, id, body) in rows {
                let ended = Micros::new(ended);
                if ended >= until {
                    return Ok(blocks);
                }
                let mut own = decode_calls(&body)?;
                let corrections =
                    on_reader!(&self.db, pool: Kind => read_corrections!(Kind, pool, own));
                overlay(&mut own, corrections)?;
                if !own.iter().all(is_settled) {
                    continue;
                }
                if blocks.is_empty() {
                    until = until.min(UsageStep::Day.end(ended));
                }
                calls += own.len();
                blocks.push(OldBlock { id, ended, calls: own });
                if blocks.len() >= MAX_PART_BLOCKS || calls >= MAX_PART_CALLS {
                    return Ok(blocks);
                }
            }
        }
    }

    /// Returns the next calls of a part that is not removed, each page with the number of its last block.
    pub async fn part_calls(
        &self,
        part: i64,
        after_block: i64,
    ) -> Result<Option<(i64, Vec<LedgerEntry>)>, StoreError> {
        Ok(in_snapshot!(&self.db, tx: Kind => {
            let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(BLOCKS_OF_PART)
                .bind(part)
                .bind(after_block)
                .bind(PAGE_BLOCKS)
                .fetch_all(&mut *tx)
                .await?;
            let Some((last, _)) = rows.last() else { return Ok(None) };
            let last = *last;
            let mut calls = Vec::new();
            for (_, body) in &rows {
                calls.extend(decode_calls(body)?);
            }
            let corrections = read_corrections!(Kind, &mut *tx, calls);
            overlay(&mut calls, corrections)?;
            Some((last, calls))
        }))
    }

    /// Records that the file of a part is complete and durable. Returns false if another process did so before.
    pub async fn part_written(&self, part: i64, file: &ArchiveFile) -> Result<bool, StoreError> {
        Ok(on_writer!(&self.db, pool => {
            let written = sqlx::query(WRITTEN)
                .bind(part)
                .bind(clean(&file.place))
                .bind(clean(&file.name))
                .bind(&file.sha256)
                .bind(file.bytes)
                .bind(file.calls)
                .bind(file.cost.as_nanos())
                .bind(file.absorbed.as_nanos());
            written.execute(pool).await?.rows_affected()
        }) > 0)
    }

    /// Removes some calls of a written part and keeps their sums, in one transaction. Returns the number of
    /// removed calls; zero if none is left.
    pub async fn remove_part_calls(&self, part: i64) -> Result<usize, StoreError> {
        let removed = in_transaction!(&self.db, tx: Kind => {
            let locked: Option<i64> =
                sqlx::query_scalar(LOCK_PART).bind(part).fetch_optional(&mut *tx).await?;
            if locked.is_none() {
                return Ok(0);
            }
            let rows: Vec<(i64, Vec<u8>)> = sqlx::query_as(BLOCKS_OF_PART)
                .bind(part)
                .bind(i64::MIN)
                .bind(REMOVED_BLOCKS)
                .fetch_all(&mut *tx)
                .await?;
            let (mut block_ids, mut calls): (Vec<i64>, Vec<LedgerEntry>) = (Vec::new(), Vec::new());
            for (block, body) in rows {
                let own = decode_calls(&body)?;
                let ended = own.iter().map(|call| call.ended).max().unwrap_or_default();
                for (kind, owner) in owner_rows(&own) {
                    let drop = sqlx::query(DROP_OWNER).bind(kind).bind(owner).bind(ended.get());
                    drop.bind(block).execute(&mut *tx).await?;
                }
                block_ids.push(block);
                calls.extend(own);
                if calls.len() >= REMOVED_CALLS {
                    break;
                }
            }
            let corrections = read_corrections!(Kind, &mut *tx, calls);
            overlay(&mut calls, corrections)?;
            for chunk in calls.chunks(ROWS_PER_STATEMENT) {
                let mut drop = QueryBuilder::<Kind>::new("DELETE FROM call_ids WHERE id IN (");
                let mut list = drop.separated(", ");
                for number in chunk.iter().flat_map(|call| call_numbers(&clean(&call.request_id))) {
                    list.push_bind(number);
                }
                let mut list = drop.push(") AND block IN (").separated(", ");
                for block in &block_ids {
                    list.push_bind(*block);
                }
                drop.push(")").build().persistent(false).execute(&mut *tx).await?;
            }
            for (statement, end) in DROP_BLOCKS.into_iter().filter(|_| !block_ids.is_empty()) {
                let mut drop = QueryBuilder::<Kind>::new(statement);
                let mut list = drop.separated(", ");
                for block in &block_ids {
                    list.push_bind(*block);
                }
                drop.push(end).build().persistent(false).execute(&mut *tx).await?;
            }
            let sums: Vec<_> = sums_by_owner(&calls).into_iter().collect();
            for chunk in sums.chunks(ROWS_PER_STATEMENT) {
                let mut add = QueryBuilder::<Kind>::new(
                    "INSERT INTO archived_calls (key_id, account_id, calls, cost, borne, input, output) ",
                );
                add.push_values(chunk, |mut row, ((key_id, account_id), sums)| {
                    row.push_bind(key_id.clone()).push_bind(account_id.clone());
                    row.push_bind(sums.calls).push_bind(sums.cost.as_nanos());
                    row.push_bind(sums.absorbed.as_nanos()).push_bind(sums.input).push_bind(sums.output);
                });
                add.push(ADD_SUMS).build().persistent(false).execute(&mut *tx).await?;
            }
            let sessions: Vec<(SessionKey<'_>, SessionTotals)> =
                sum_sessions(calls.iter(), &[]).into_iter().collect();
            for chunk in sessions.chunks(ROWS_PER_STATEMENT) {
                let text = session_rows::<Kind>("archived_sessions", chunk.len());
                let values = bind_sessions::<Kind>(chunk)?;
                sqlx::query_with(sqlx::AssertSqlSafe(text), values)
                    .persistent(false)
                    .execute(&mut *tx)
                    .await?;
            }
            if !calls.is_empty() {
                let IdHashes { first_started, last_started, bytes } = IdHashes::of(&calls);
                sqlx::query(archived_ids::INSERT)
                    .bind(first_started.get())
                    .bind(last_started.get())
                    .bind(bytes)
                    .execute(&mut *tx)
                    .await?;
            }
            let all = calls.iter().map(CallSums::of).fold(CallSums::default(), CallSums::plus);
            let add = sqlx::query(ADD_REMOVED).bind(part).bind(all.calls).bind(all.cost.as_nanos());
            add.execute(&mut *tx).await?;
            sqlx::query(FINISH).bind(part).execute(&mut *tx).await?;
            calls.len()
        });
        Ok(removed)
    }
}
