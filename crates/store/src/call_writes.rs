//! Insertion of posted calls: blocks, the id of each call, and the owners of each block.

use std::collections::BTreeSet;

use canon::Micros;
use ledger::LedgerEntry;
use sqlx::postgres::PgArguments;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments as _, Database, Postgres, SqlSafeStr as _, SqlStr, Sqlite};

use crate::call_block::encode_calls;
use crate::compact_text::{call_numbers, compact};
use crate::db::clean;
use crate::row_statement::{RowStatement, with_places};

/// Longest time between the ends of two calls of a block, so that a stretch of time is a range of blocks.
pub(crate) const BLOCK_SPAN: Micros = Micros::from_millis(250);
/// Length of the longest call whose begin is stored as it is, about thirty years.
const MAX_LENGTH: Micros = Micros::from_days(11_000);
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
    /// A time before which none of its calls began.
    pub(crate) begun: Micros,
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
        let ended = members.last().map_or(first.ended, |call| call.ended);
        let begun = members.iter().map(|call| call.started).min().unwrap_or(ended);
        blocks.push(NewBlock {
            ended,
            // Within bounds, so that its distance to the end is a number.
            begun: begun.max(ended.saturating_sub(MAX_LENGTH)).min(ended),
            body: encode_calls(&members),
            owners: owners(members.iter().copied()),
            places: block.iter().map(|(place, _)| *place).collect(),
        });
    }
    blocks
}

/// A row of `call_ids`.
pub(crate) type IdRow = (i64, i64);
/// A row of `call_owners`.
pub(crate) type OwnerRow = (i64, Vec<u8>, i64, i64);

/// Returns the rows that belong to inserted blocks: the ids in ascending order, so that overlapping
/// batches cannot deadlock.
pub(crate) fn block_rows(
    numbers: &[i64],
    blocks: &[(i64, NewBlock<'_>)],
) -> (Vec<IdRow>, Vec<OwnerRow>) {
    let (mut ids, mut owners) = (Vec::with_capacity(numbers.len()), Vec::new());
    for (id, block) in blocks {
        let numbers = block.places.iter().filter_map(|place| numbers.get(*place));
        ids.extend(numbers.map(|number| (*number, *id)));
        // Texts that differ only in characters which are not stored are one owner.
        let stored = block.owners.iter();
        let stored = stored.map(|(kind, owner)| (kind.number(), compact(&clean(owner))));
        let stored: BTreeSet<(i64, Vec<u8>)> = stored.collect();
        let stored = stored.into_iter();
        owners.extend(stored.map(|(kind, owner)| (kind, owner, block.ended.get(), *id)));
    }
    ids.sort_unstable();
    (ids, owners)
}

/// Returns the numbers that new calls have if no other call has them.
pub(crate) fn first_numbers(calls: &[&LedgerEntry]) -> Vec<i64> {
    calls.iter().map(|call| *call_numbers(&clean(&call.request_id)).start()).collect()
}

/// Returns a free number of each call. Fails if all of its numbers are taken.
pub(crate) fn free_numbers(
    calls: &[&LedgerEntry],
    mut taken: BTreeSet<i64>,
) -> Result<Vec<i64>, sqlx::Error> {
    let number = |call: &&LedgerEntry| {
        let free = call_numbers(&clean(&call.request_id)).find(|number| taken.insert(*number));
        free.ok_or_else(|| sqlx::Error::Protocol("all numbers of a call are taken".to_owned()))
    };
    calls.iter().map(number).collect()
}

pub(crate) const TAKEN: &str = "SELECT id FROM call_ids WHERE id IN (";

/// Chooses numbers for calls that are not posted, for either driver.
macro_rules! choose_numbers {
    ($kind:ident, $tx:ident, $calls:expr) => {{
        let calls: &[&ledger::LedgerEntry] = $calls;
        let mut taken = std::collections::BTreeSet::new();
        for chunk in calls.chunks($crate::corrections::IDS_PER_STATEMENT) {
            let mut query = sqlx::QueryBuilder::<$kind>::new($crate::call_writes::TAKEN);
            let mut list = query.separated(", ");
            for call in chunk {
                let id = $crate::db::clean(&call.request_id);
                for number in $crate::compact_text::call_numbers(&id) {
                    list.push_bind(number);
                }
            }
            query.push(")");
            let found: Vec<i64> =
                query.build_query_scalar().persistent(false).fetch_all(&mut *$tx).await?;
            taken.extend(found);
        }
        $crate::call_writes::free_numbers(calls, taken)?
    }};
}
pub(crate) use choose_numbers;

pub(crate) const INSERT_BLOCK: &str =
    "INSERT INTO call_blocks (ended, begun, body) VALUES ($1, $2, $3) RETURNING id";

/// A statement with its values.
type BoundStatement<D> = (SqlStr, <D as Database>::Arguments);

/// A database and its way to insert many rows.
pub(crate) trait CallRows: Database {
    /// Returns the insertions of ids. Those that are taken are left out.
    fn insert_ids(rows: &[IdRow]) -> Result<Vec<BoundStatement<Self>>, sqlx::Error>;
    /// Returns the insertions of owners.
    fn insert_owners(rows: Vec<OwnerRow>) -> Result<Vec<BoundStatement<Self>>, sqlx::Error>;
}

const INSERT_IDS: &str = "INSERT INTO call_ids (id, block) ";
const OR_SKIP: &str = " ON CONFLICT (id) DO NOTHING";
const INSERT_OWNERS: &str = "INSERT INTO call_owners (kind, owner, ended, block) ";

impl CallRows for Sqlite {
    fn insert_ids(rows: &[IdRow]) -> Result<Vec<BoundStatement<Self>>, sqlx::Error> {
        // A few numbers of rows, so that the statements stay prepared.
        static IDS: RowStatement<4> = RowStatement::new([500, 100, 10, 1]);
        let bound = IDS.chunks(rows).map(|chunk| {
            let write = || with_places::<Self>(INSERT_IDS, chunk.len(), 2, OR_SKIP);
            let mut values = SqliteArguments::default();
            for (id, block) in chunk {
                values.add(*id).map_err(sqlx::Error::Encode)?;
                values.add(*block).map_err(sqlx::Error::Encode)?;
            }
            Ok((IDS.text(chunk.len(), write).into_sql_str(), values))
        });
        bound.collect()
    }

    fn insert_owners(rows: Vec<OwnerRow>) -> Result<Vec<BoundStatement<Self>>, sqlx::Error> {
        static OWNERS: RowStatement<3> = RowStatement::new([50, 10, 1]);
        let bound = OWNERS.chunks(&rows).map(|chunk| {
            let write = || with_places::<Self>(INSERT_OWNERS, chunk.len(), 4, "");
            let mut values = SqliteArguments::default();
            for (kind, owner, ended, block) in chunk {
                values.add(*kind).map_err(sqlx::Error::Encode)?;
                values.add(owner.clone()).map_err(sqlx::Error::Encode)?;
                values.add(*ended).map_err(sqlx::Error::Encode)?;
                values.add(*block).map_err(sqlx::Error::Encode)?;
            }
            Ok((OWNERS.text(chunk.len(), write).into_sql_str(), values))
        });
        bound.collect()
    }
}

impl CallRows for Postgres {
    fn insert_ids(rows: &[IdRow]) -> Result<Vec<BoundStatement<Self>>, sqlx::Error> {
        let text = SqlStr::from_static(
            "INSERT INTO call_ids (id, block) SELECT * FROM unnest($1::bigint[], $2::bigint[]) \
             ON CONFLICT (id) DO NOTHING",
        );
        let (ids, blocks): (Vec<i64>, Vec<i64>) = rows.iter().copied().unzip();
        let mut values = PgArguments::default();
        values.add(ids).map_err(sqlx::Error::Encode)?;
        values.add(blocks).map_err(sqlx::Error::Encode)?;
        Ok(vec![(text, values)])
    }

    fn insert_owners(rows: Vec<OwnerRow>) -> Result<Vec<BoundStatement<Self>>, sqlx::Error> {
        let text = SqlStr::from_static(
            "INSERT INTO call_owners (kind, owner, ended, block) \
             SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bigint[])",
        );
        let (mut kinds, mut owners, mut ends, mut blocks) = (vec![], vec![], vec![], vec![]);
        for (kind, owner, ended, block) in rows {
            kinds.push(kind);
            owners.push(owner);
            ends.push(ended);
            blocks.push(block);
        }
        let mut values = PgArguments::default();
        values.add(kinds).map_err(sqlx::Error::Encode)?;
        values.add(owners).map_err(sqlx::Error::Encode)?;
        values.add(ends).map_err(sqlx::Error::Encode)?;
        values.add(blocks).map_err(sqlx::Error::Encode)?;
        Ok(vec![(text, values)])
    }
}

/// Inserts calls with these numbers and evaluates to the number of those that are new, for either driver.
/// If it is not all of them, the transaction must be rolled back.
macro_rules! insert_calls {
    ($kind:ident, $tx:ident, $calls:expr, $numbers:expr) => {{
        let mut blocks = Vec::new();
        for mut block in $crate::call_writes::blocks($calls) {
            let insert = sqlx::query_scalar($crate::call_writes::INSERT_BLOCK)
                .bind(block.ended.get())
                .bind(block.begun.get())
                .bind(std::mem::take(&mut block.body));
            let id: i64 = insert.fetch_one(&mut *$tx).await?;
            blocks.push((id, block));
        }
        let (ids, owners) = $crate::call_writes::block_rows($numbers, &blocks);
        let mut new = 0;
        for (text, values) in <$kind as $crate::call_writes::CallRows>::insert_ids(&ids)? {
            new += sqlx::query_with(text, values).execute(&mut *$tx).await?.rows_affected();
        }
        for (text, values) in <$kind as $crate::call_writes::CallRows>::insert_owners(owners)? {
            sqlx::query_with(text, values).execute(&mut *$tx).await?;
        }
        new
    }};
}
pub(crate) use insert_calls;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_decoding::decode_calls;

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

    #[test]
    fn calls_with_one_number_get_the_next_free_ones() {
        // The same microsecond, and words that end alike.
        let ids = ["1000", "2000", "3000", "3001"];
        let ids = ids.map(|end| format!("req_0065f0a1b2c3d000000000000{end}"));
        let calls = ids.map(|request_id| LedgerEntry {
            request_id: request_id.into(),
            ..LedgerEntry::default()
        });
        let calls: Vec<&LedgerEntry> = calls.iter().collect();
        let [first, .., other] = first_numbers(&calls)[..] else { panic!("four calls") };
        assert_eq!(other, first + 1);
        let numbers = free_numbers(&calls, BTreeSet::from([first])).unwrap();
        assert_eq!(numbers, [first + 1, first + 2, first + 3, first + 4]);
        let taken = call_numbers(&calls[0].request_id).collect();
        assert!(free_numbers(&calls, taken).is_err());
    }

    fn call((number, ended): (usize, i64)) -> LedgerEntry {
        let ended = Micros::new(ended);
        LedgerEntry { request_id: number.to_string().into(), ended, ..LedgerEntry::default() }
    }
}
