//! Insertion of posted calls: blocks, the id of each call, and the owners of each block.

use std::collections::BTreeSet;

use canon::Micros;
use ledger::LedgerEntry;
use sqlx::{Arguments as _, Database, Encode, Type};

use crate::call_block::encode_calls;
use crate::compact_text::compact;
use crate::db::clean;
use crate::row_statement::{RowStatement, with_places};

/// Longest time between the ends of two calls of a block, so that a stretch of time is a range of blocks.
pub(crate) const BLOCK_SPAN: Micros = Micros::from_millis(250);
/// Maximum number of calls in a block, which is decoded as a whole.
const MAX_BLOCK_CALLS: usize = 500;

/// A kind of owner by which blocks are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerKind {
    Key,
    Account,
    Model,
}

impl OwnerKind {
    const ALL: [Self; 3] = [Self::Key, Self::Account, Self::Model];

    /// The number in the database.
    pub(crate) const fn number(self) -> i64 {
        match self {
            Self::Key => 1,
            Self::Account => 2,
            Self::Model => 3,
        }
    }

    /// Returns the owner of a call.
    pub(crate) fn of(self, call: &LedgerEntry) -> &str {
        match self {
            Self::Key => &call.key_id,
            Self::Account => &call.account_id,
            Self::Model => &call.model,
        }
    }
}

/// Returns the owners of calls, each once.
pub(crate) fn owners<'a>(
    calls: impl Iterator<Item = &'a LedgerEntry>,
) -> BTreeSet<(OwnerKind, &'a str)> {
    let mut owners = BTreeSet::new();
    let mut last = OwnerKind::ALL.map(|_| None);
    for call in calls {
        for (kind, last) in OwnerKind::ALL.into_iter().zip(&mut last) {
            let owner = kind.of(call);
            if *last != Some(owner) {
                owners.insert((kind, owner));
                *last = Some(owner);
            }
        }
    }
    owners
}

/// A block to insert.
pub(crate) struct NewBlock<'a> {
    pub(crate) ended: Micros,
    pub(crate) body: Vec<u8>,
    owners: BTreeSet<(OwnerKind, &'a str)>,
    /// Places of its calls in the batch.
    places: Vec<usize>,
}

/// Divides calls into blocks in the order of their ends.
pub(crate) fn blocks<'a>(calls: &[&'a LedgerEntry]) -> Vec<NewBlock<'a>> {
    let mut order: Vec<(usize, &LedgerEntry)> = calls.iter().copied().enumerate().collect();
    order.sort_by_key(|(_, call)| call.ended);
    let mut blocks = Vec::new();
    let mut rest = order.as_slice();
    while let [(_, first), ..] = rest {
        let end = first.ended.saturating_add(BLOCK_SPAN);
        let within = rest.iter().take(MAX_BLOCK_CALLS).take_while(|(_, call)| call.ended <= end);
        let (block, later) = rest.split_at(within.count().max(1));
        rest = later;
        let members: Vec<&LedgerEntry> = block.iter().map(|(_, call)| *call).collect();
        blocks.push(NewBlock {
            ended: members.last().map_or(first.ended, |call| call.ended),
            body: encode_calls(&members),
            owners: owners(members.iter().copied()),
            places: block.iter().map(|(place, _)| *place).collect(),
        });
    }
    blocks
}

/// A row of `call_ids`.
pub(crate) type IdRow = (Vec<u8>, i64);
/// A row of `call_owners`.
pub(crate) type OwnerRow = (i64, Vec<u8>, i64, i64);

/// Returns the rows that belong to inserted blocks: the ids in the order of the batch, so that
/// overlapping batches cannot deadlock.
pub(crate) fn block_rows(
    calls: &[&LedgerEntry],
    blocks: &[(i64, NewBlock<'_>)],
) -> (Vec<IdRow>, Vec<OwnerRow>) {
    let mut ids: Vec<IdRow> =
        calls.iter().map(|call| (compact(&clean(&call.request_id)), 0)).collect();
    let mut owners = Vec::new();
    for (id, block) in blocks {
        for place in &block.places {
            if let Some((_, block)) = ids.get_mut(*place) {
                *block = *id;
            }
        }
        // Texts that differ only in characters which are not stored are one owner.
        let stored = block.owners.iter();
        let stored = stored.map(|(kind, owner)| (kind.number(), compact(&clean(owner))));
        let stored: BTreeSet<(i64, Vec<u8>)> = stored.collect();
        let stored = stored.into_iter();
        owners.extend(stored.map(|(kind, owner)| (kind, owner, block.ended.get(), *id)));
    }
    (ids, owners)
}

pub(crate) const INSERT_BLOCK: &str =
    "INSERT INTO call_blocks (ended, body) VALUES ($1, $2) RETURNING id";

/// The insertion of ids. A few numbers of rows, so that the statements stay prepared.
pub(crate) type IdStatement = RowStatement<4>;
pub(crate) const ID_ROWS: [usize; 4] = [500, 100, 10, 1];
/// The insertion of owners.
pub(crate) type OwnerStatement = RowStatement<3>;
pub(crate) const OWNER_ROWS: [usize; 3] = [50, 10, 1];

/// Writes the insertion of so many ids.
pub(crate) fn id_insertion<D: Database>(rows: usize) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    let start = "INSERT INTO call_ids (id, block) ";
    with_places::<D>(start, rows, 2, " ON CONFLICT (id) DO NOTHING")
}

/// Writes the insertion of so many owners.
pub(crate) fn owner_insertion<D: Database>(rows: usize) -> String
where
    i64: Type<D> + for<'q> Encode<'q, D>,
{
    with_places::<D>("INSERT INTO call_owners (kind, owner, ended, block) ", rows, 4, "")
}

/// Binds the values of ids.
pub(crate) fn bind_ids<D: Database>(rows: &mut [IdRow]) -> Result<D::Arguments, sqlx::Error>
where
    i64: Type<D> + for<'q> Encode<'q, D>,
    Vec<u8>: Type<D> + for<'q> Encode<'q, D>,
{
    let mut values = D::Arguments::default();
    for (id, block) in rows {
        values.add(std::mem::take(id)).map_err(sqlx::Error::Encode)?;
        values.add(*block).map_err(sqlx::Error::Encode)?;
    }
    Ok(values)
}

/// Binds the values of owners.
pub(crate) fn bind_owners<D: Database>(rows: &mut [OwnerRow]) -> Result<D::Arguments, sqlx::Error>
where
    i64: Type<D> + for<'q> Encode<'q, D>,
    Vec<u8>: Type<D> + for<'q> Encode<'q, D>,
{
    let mut values = D::Arguments::default();
    for (kind, owner, ended, block) in rows {
        values.add(*kind).map_err(sqlx::Error::Encode)?;
        values.add(std::mem::take(owner)).map_err(sqlx::Error::Encode)?;
        values.add(*ended).map_err(sqlx::Error::Encode)?;
        values.add(*block).map_err(sqlx::Error::Encode)?;
    }
    Ok(values)
}

/// Inserts calls, in the order of their ids, and evaluates to the number of those that are new, for
/// either driver. If it is not all of them, the transaction must be rolled back.
macro_rules! insert_calls {
    ($kind:ident, $tx:ident, $calls:expr) => {{
        // One for each driver.
        static IDS: $crate::call_writes::IdStatement =
            $crate::call_writes::IdStatement::new($crate::call_writes::ID_ROWS);
        static OWNERS: $crate::call_writes::OwnerStatement =
            $crate::call_writes::OwnerStatement::new($crate::call_writes::OWNER_ROWS);
        let calls: &[&ledger::LedgerEntry] = $calls;
        let mut blocks = Vec::new();
        for mut block in $crate::call_writes::blocks(calls) {
            let insert = sqlx::query_scalar($crate::call_writes::INSERT_BLOCK)
                .bind(block.ended.get())
                .bind(std::mem::take(&mut block.body));
            let id: i64 = insert.fetch_one(&mut *$tx).await?;
            blocks.push((id, block));
        }
        let (mut ids, mut owners) = $crate::call_writes::block_rows(calls, &blocks);
        let mut new = 0;
        for chunk in IDS.chunks_mut(&mut ids) {
            let text =
                IDS.text(chunk.len(), || $crate::call_writes::id_insertion::<$kind>(chunk.len()));
            let values = $crate::call_writes::bind_ids::<$kind>(chunk)?;
            new += sqlx::query_with(text, values).execute(&mut *$tx).await?.rows_affected();
        }
        for chunk in OWNERS.chunks_mut(&mut owners) {
            let text = OWNERS
                .text(chunk.len(), || $crate::call_writes::owner_insertion::<$kind>(chunk.len()));
            let values = $crate::call_writes::bind_owners::<$kind>(chunk)?;
            sqlx::query_with(text, values).execute(&mut *$tx).await?;
        }
        new
    }};
}
pub(crate) use insert_calls;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call_block::decode_calls;

    #[test]
    fn a_block_is_short_and_every_call_is_in_one() {
        let spans = [0, 249_999, 250_000, 250_001, 900_000, 900_001, i64::MIN, i64::MAX];
        let many = (0..1_100).map(|_| 5_000_000);
        let calls: Vec<LedgerEntry> = many.chain(spans).enumerate().map(call).collect();
        let calls: Vec<&LedgerEntry> = calls.iter().collect();
        let blocks = blocks(&calls);
        assert!(blocks.is_sorted_by_key(|block| block.ended));
        let mut places: Vec<usize> = Vec::new();
        for block in &blocks {
            let members = decode_calls(&block.body).unwrap();
            assert!(members.len() <= MAX_BLOCK_CALLS);
            let first = members.first().unwrap().ended;
            assert!(first.saturating_add(BLOCK_SPAN) >= block.ended);
            assert_eq!(members.iter().map(|call| call.ended).max(), Some(block.ended));
            assert_eq!(members.len(), block.places.len());
            places.extend(&block.places);
        }
        places.sort_unstable();
        assert!(places.into_iter().eq(0..calls.len()));
        assert_eq!(blocks.len(), 3 + 5);
    }

    fn call((number, ended): (usize, i64)) -> LedgerEntry {
        let ended = Micros::new(ended);
        LedgerEntry { request_id: number.to_string(), ended, ..LedgerEntry::default() }
    }
}
