//! Queries on posted calls: one call, a filtered page, an export in order, the sums.
//!
//! Calls lie in blocks by the time of their end. A page decodes blocks from its begin on until no later
//! block can have a call that belongs before its last one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use canon::{Micros, Money};
use ledger::LedgerEntry;
use sqlx::{Encode, QueryBuilder, Type};

use crate::block_decoding::{CallSelection, decode_selected};
use crate::call_audit::{ARCHIVED_BY_KEY, CallAudit, SumRow, SumsByOwner, plus_rows};
use crate::call_filter::CallFilter;
use crate::call_writes::BLOCK_SPAN;
use crate::compact_text::{call_numbers, compact};
use crate::corrections::{overlay, read_corrections};
use crate::db::{clean, in_snapshot, on_reader};
use crate::large_work::run_in_place;
use crate::{Store, StoreError};

/// Blocks that a page reads at first, and at most at once.
const FIRST_BLOCKS: i64 = 2;
const MAX_BLOCKS: i64 = 128;
/// Longest time that a call is taken to have lasted if the begin of its block was not stored.
const LONGEST_OLD_CALL: Micros = Micros::from_hours(1);
/// Blocks that a scan of all calls reads at once.
pub(crate) const SCANNED_BLOCKS: i64 = 20;

/// Calls to read; `None` is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryFilter {
    /// Conditions on the calls.
    pub calls: CallFilter,
    /// Began in this range.
    pub began: Option<Range<Micros>>,
    /// Ended at this time or later.
    pub since: Option<Micros>,
    /// Ended before this time.
    pub until: Option<Micros>,
    /// Older than the row with this end and request id, which is the last one of the page before.
    pub before: Option<(Micros, String)>,
}

impl From<CallFilter> for EntryFilter {
    fn from(calls: CallFilter) -> Self {
        Self { calls, ..Self::default() }
    }
}

/// Sum of a key's rows, with the spending in the key's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTotal {
    /// The key.
    pub key_id: String,
    /// Number of rows, archived calls included.
    pub rows: i64,
    /// Sum of their costs.
    pub cost: Money,
    /// Spending in the key's record; zero if there is no such key.
    pub spent: Money,
}

/// Some calls of a filter, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EntryPage {
    /// The calls.
    pub calls: Vec<LedgerEntry>,
    /// Begin of the next page, for `before` of its filter. There may be one although fewer calls were found
    /// than were requested: the search ended after many calls that do not match.
    pub next: Option<(Micros, String)>,
    /// Size of the stored calls that were searched.
    pub searched_bytes: usize,
}

/// The direction of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageOrder {
    NewestFirst,
    OldestFirst,
}

/// End and id of a block.
type BlockPlace = (i64, i64);

/// The blocks of some calls; the ids follow.
pub(crate) const BLOCKS_OF: &str =
    "SELECT body FROM call_blocks WHERE id IN (SELECT block FROM call_ids WHERE id IN (";
/// The blocks of the calls with these numbers.
const BLOCKS_BY_NUMBER: &str = "SELECT body FROM call_blocks WHERE id IN \
    (SELECT block FROM call_ids WHERE id BETWEEN $1 AND $2)";
/// All blocks in the order of their insertion.
pub(crate) const SCAN: &str = "SELECT id, body FROM call_blocks WHERE id > $1 ORDER BY id LIMIT $2";
/// The blocks with calls of an owner. The order of the tables is fixed.
pub(crate) const OWNED: &str = "SELECT o.ended, o.block, b.body \
    FROM call_owners o CROSS JOIN call_blocks b WHERE b.id = o.block AND o.kind = $1 \
    AND o.owner = $2 AND (o.ended, o.block) > ($3, $4) ORDER BY o.ended, o.block LIMIT $5";
/// The longest time that calls of a block took. The index has it.
const LONGEST: &str = "SELECT ended - begun FROM call_blocks WHERE ended - begun IS NOT NULL \
    ORDER BY ended - begun DESC LIMIT 1";
/// Blocks whose begin was not stored, one at most.
const BLOCKS_WITHOUT_BEGIN: &str =
    "SELECT COUNT(*) FROM (SELECT 1 FROM call_blocks WHERE ended - begun IS NULL LIMIT 1) one";
pub(crate) const KEYS: &str = "SELECT id, spent FROM keys";
pub(crate) const CORRECTED_COSTS: &str =
    "SELECT key_id, CAST(SUM(cost) AS BIGINT) FROM corrections GROUP BY key_id";

/// Returns those calls of some blocks that have one of these ids.
pub(crate) fn calls_with_ids(
    blocks: &[Vec<u8>],
    ids: &BTreeSet<String>,
) -> Result<Vec<LedgerEntry>, sqlx::Error> {
    let ids = ids.iter().map(|id| compact(id)).collect();
    let selection = CallSelection { ids: Some(&ids), ..CallSelection::default() };
    let mut found = Vec::new();
    for block in blocks {
        found.extend(decode_selected(block, &selection)?);
    }
    Ok(found)
}

/// Reads the first postings of the calls with these ids, for either driver.
macro_rules! read_calls {
    ($kind:ident, $executor:expr, $ids:expr) => {{
        let ids: &std::collections::BTreeSet<String> = $ids;
        let mut query = sqlx::QueryBuilder::<$kind>::new($crate::entries::BLOCKS_OF);
        let mut list = query.separated(", ");
        for id in ids {
            for number in $crate::compact_text::call_numbers(id) {
                list.push_bind(number);
            }
        }
        query.push("))");
        let blocks: Vec<Vec<u8>> =
            query.build_query_scalar().persistent(false).fetch_all($executor).await?;
        $crate::entries::calls_with_ids(&blocks, ids)?
    }};
}
pub(crate) use read_calls;

/// Adds all calls to an audit, for either driver.
macro_rules! scan_calls {
    ($tx:ident, $audit:ident) => {{
        let mut after = 0_i64;
        loop {
            let page: Vec<(i64, Vec<u8>)> = sqlx::query_as($crate::entries::SCAN)
                .bind(after)
                .bind($crate::entries::SCANNED_BLOCKS)
                .fetch_all(&mut *$tx)
                .await?;
            let Some((last, _)) = page.last() else { break };
            after = *last;
            for (_, body) in &page {
                $audit.add_block(&$crate::block_decoding::decode_calls(body)?);
            }
        }
    }};
}
pub(crate) use scan_calls;

/// Returns the sum of every key, ordered by id.
pub(crate) fn key_totals(
    keys: Vec<(String, i64)>,
    corrected: Vec<(String, i64)>,
    archived: &SumsByOwner,
    audit: &CallAudit,
) -> Vec<KeyTotal> {
    let mut totals: BTreeMap<String, KeyTotal> = BTreeMap::new();
    let total = |key_id: &str| KeyTotal {
        key_id: key_id.to_owned(),
        rows: 0,
        cost: Money::ZERO,
        spent: Money::ZERO,
    };
    for (id, spent) in keys {
        let spent = Money::from_nanos(spent);
        totals.insert(id.clone(), KeyTotal { spent, ..total(&id) });
    }
    for (id, sums) in &audit.by_key {
        let total = totals.entry(id.clone()).or_insert_with(|| total(id));
        (total.rows, total.cost) = (sums.calls, sums.cost);
    }
    for (id, sums) in archived {
        let total = totals.entry(id.clone()).or_insert_with(|| total(id));
        total.rows += sums.calls;
        total.cost = total.cost.saturating_add(sums.cost);
    }
    for (id, cost) in corrected {
        let total = totals.entry(id.clone()).or_insert_with(|| total(&id));
        total.cost = total.cost.saturating_add(Money::from_nanos(cost));
    }
    totals.into_values().collect()
}

impl EntryFilter {
    /// Returns the same filter with texts as they are stored.
    fn cleaned(&self) -> Self {
        Self {
            calls: self.calls.cleaned(),
            began: self.began.clone(),
            since: self.since,
            until: self.until,
            before: self.before.as_ref().map(|(ended, id)| (*ended, clean(id).into_owned())),
        }
    }

    /// Returns a time before which no matching call ended.
    fn first_end(&self, after: Option<&(Micros, String)>) -> Option<Micros> {
        let begun = self.began.as_ref().map(|began| began.start);
        let after = after.map(|(ended, _)| *ended);
        [self.since, begun, after].into_iter().flatten().max()
    }

    /// Returns a time after which no matching call ended, if no call that began in the range takes longer
    /// than that.
    fn last_end(&self, longest: Micros) -> Option<Micros> {
        let begun = self.began.as_ref().map(|began| began.end.saturating_add(longest));
        let before = self.before.as_ref().map(|(ended, _)| *ended);
        [self.until, begun, before].into_iter().flatten().min()
    }

    fn matches(&self, call: &LedgerEntry, after: Option<&(Micros, String)>) -> bool {
        let is_before = |(ended, id): &(Micros, String)| {
            (call.ended, &*call.request_id) < (*ended, id.as_str())
        };
        let is_after = |(ended, id): &(Micros, String)| {
            (call.ended, &*call.request_id) > (*ended, id.as_str())
        };
        self.calls.owners().all(|(kind, owner)| kind.of(call) == owner)
            && self.began.as_ref().is_none_or(|began| began.contains(&call.started))
            && self.since.is_none_or(|since| call.ended >= since)
            && self.until.is_none_or(|until| call.ended < until)
            && self.before.as_ref().is_none_or(is_before)
            && after.is_none_or(is_after)
    }

    /// Builds the query for the next blocks of a page. Built from fixed pieces, so that the planner sees
    /// only the conditions in use.
    fn blocks<D: sqlx::Database>(
        &self,
        after: Option<&(Micros, String)>,
        longest: Micros,
        order: PageOrder,
        seen: Option<BlockPlace>,
        limit: i64,
    ) -> QueryBuilder<D>
    where
        i64: Type<D> + for<'q> Encode<'q, D>,
        Vec<u8>: Type<D> + for<'q> Encode<'q, D>,
    {
        let mut owners = self.calls.owners();
        let (ended, id, mut query) = match owners.next() {
            Some((kind, owner)) => {
                let mut query = QueryBuilder::new(
                    "SELECT o.ended, o.block, b.body FROM call_owners o CROSS JOIN call_blocks b \
                     WHERE b.id = o.block AND o.kind = ",
                );
                query.push_bind(kind.number()).push(" AND o.owner = ").push_bind(compact(owner));
                ("o.ended", "o.block", query)
            }
            None => {
                let start = "SELECT b.ended, b.id, b.body FROM call_blocks b WHERE true";
                ("b.ended", "b.id", QueryBuilder::new(start))
            }
        };
        for (kind, owner) in owners {
            query.push(" AND EXISTS (SELECT 1 FROM call_owners x WHERE x.kind = ");
            query.push_bind(kind.number()).push(" AND x.owner = ").push_bind(compact(owner));
            query.push(" AND x.ended = b.ended AND x.block = b.id)");
        }
        if let Some(from) = self.first_end(after) {
            query.push(format_args!(" AND {ended} >= ")).push_bind(from.get());
        }
        if let Some(to) = self.last_end(longest) {
            let to = to.saturating_add(BLOCK_SPAN);
            query.push(format_args!(" AND {ended} <= ")).push_bind(to.get());
        }
        if let Some(began) = &self.began {
            query.push(" AND (b.begun IS NULL OR b.begun < ").push_bind(began.end.get()).push(")");
        }
        let (beyond, direction) = match order {
            PageOrder::NewestFirst => ("<", " DESC"),
            PageOrder::OldestFirst => (">", ""),
        };
        if let Some((seen_ended, seen_id)) = seen {
            query.push(format_args!(" AND ({ended}, {id}) {beyond} ("));
            query.push_bind(seen_ended).push(", ").push_bind(seen_id).push(")");
        }
        query.push(format_args!(" ORDER BY {ended}{direction}, {id}{direction} LIMIT "));
        query.push_bind(limit);
        query
    }
}

impl PageOrder {
    /// Returns true if a call comes before all calls of the blocks behind that one.
    fn is_settled(self, call: &LedgerEntry, (ended, _): BlockPlace) -> bool {
        match self {
            Self::NewestFirst => call.ended > Micros::new(ended),
            Self::OldestFirst => call.ended < Micros::new(ended).saturating_sub(BLOCK_SPAN),
        }
    }
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
        let ids = BTreeSet::from([clean(request_id).into_owned()]);
        let numbers = call_numbers(&clean(request_id));
        let blocks: Vec<Vec<u8>> = on_reader!(&self.db, pool => {
            let blocks = sqlx::query_scalar(BLOCKS_BY_NUMBER).bind(*numbers.start());
            blocks.bind(*numbers.end()).fetch_all(pool).await?
        });
        Ok(calls_with_ids(&blocks, &ids)?.pop())
    }

    /// Returns a page of the rows that match the filter, newest first.
    pub async fn entries(
        &self,
        filter: &EntryFilter,
        limit: u32,
    ) -> Result<Vec<LedgerEntry>, StoreError> {
        Ok(self.page(filter, None, limit, PageOrder::NewestFirst, usize::MAX).await?.calls)
    }

    /// Returns the same with the begin of the next page. The search ends after so many bytes of stored calls,
    /// because a rare status among a hundred million calls is not found at once.
    pub async fn entry_page(
        &self,
        filter: &EntryFilter,
        limit: u32,
        max_bytes: usize,
    ) -> Result<EntryPage, StoreError> {
        self.page(filter, None, limit, PageOrder::NewestFirst, max_bytes).await
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
        Ok(self.page(filter, after, limit, PageOrder::OldestFirst, usize::MAX).await?.calls)
    }

    async fn page(
        &self,
        filter: &EntryFilter,
        after: Option<(Micros, String)>,
        limit: u32,
        order: PageOrder,
        max_bytes: usize,
    ) -> Result<EntryPage, StoreError> {
        let (filter, after) = (&filter.cleaned(), after.as_ref());
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let longest = match filter.began {
            Some(_) => self.longest_call().await?,
            None => Micros::ZERO,
        };
        let selection = CallSelection {
            ids: None,
            owners: filter.calls.owners().collect(),
            since: filter.first_end(after),
            until: filter.last_end(longest),
        };
        let mut calls: Vec<LedgerEntry> = Vec::new();
        let (mut seen, mut size, mut searched_bytes) = (None, FIRST_BLOCKS, 0_usize);
        let mut stop = None;
        loop {
            let blocks: Vec<(i64, i64, Vec<u8>)> = on_reader!(&self.db, pool: Kind => {
                let mut query = filter.blocks::<Kind>(after, longest, order, seen, size);
                query.build_query_as().fetch_all(pool).await?
            });
            let bytes = blocks.iter().map(|(_, _, body)| body.len()).sum();
            let mut found = run_in_place(bytes, || {
                let mut found = Vec::new();
                for (_, _, body) in &blocks {
                    found.extend(decode_selected(body, &selection)?);
                }
                found.retain(|call| filter.matches(call, after));
                Ok::<_, sqlx::Error>(found)
            })?;
            if filter.calls.has_later_conditions() {
                found = self.corrected(found).await?;
            }
            calls.extend(found.into_iter().filter(|call| filter.calls.matches_corrected(call)));
            seen = blocks.last().map(|(ended, id, _)| (*ended, *id)).or(seen);
            searched_bytes = searched_bytes.saturating_add(bytes);
            let is_settled =
                |call: &&LedgerEntry| seen.is_some_and(|at| order.is_settled(call, at));
            let is_last = (blocks.len() as i64) < size;
            if is_last || calls.iter().filter(is_settled).count() >= wanted {
                break;
            }
            stop = seen.map(|(ended, _)| (Micros::new(ended) + Micros::new(1), String::new()));
            if searched_bytes >= max_bytes
                && filter.before.as_ref().is_none_or(|at| stop.as_ref() < Some(at))
            {
                // Calls at the border are found again by the next page.
                calls.retain(|call| is_settled(&call));
                break;
            }
            stop = None;
            size = MAX_BLOCKS.min(size * 4);
        }
        calls.sort_by(|a, b| {
            let order_of = (a.ended, &a.request_id).cmp(&(b.ended, &b.request_id));
            match order {
                PageOrder::NewestFirst => order_of.reverse(),
                PageOrder::OldestFirst => order_of,
            }
        });
        calls.truncate(wanted);
        let last = (calls.len() == wanted).then(|| calls.last()).flatten();
        let next = last.map(|last| (last.ended, last.request_id.to_string())).or(stop);
        Ok(EntryPage { calls: self.corrected(calls).await?, next, searched_bytes })
    }

    /// Returns a time that no stored call exceeds.
    async fn longest_call(&self) -> Result<Micros, StoreError> {
        let (longest, old) = on_reader!(&self.db, pool => {
            let longest: Option<i64> = sqlx::query_scalar(LONGEST).fetch_optional(pool).await?;
            let old: i64 = sqlx::query_scalar(BLOCKS_WITHOUT_BEGIN).fetch_one(pool).await?;
            (Micros::new(longest.unwrap_or_default()), old)
        });
        Ok(if old > 0 { longest.max(LONGEST_OLD_CALL) } else { longest })
    }

    /// Returns the sum of every key's rows with the spending in its record, ordered by id.
    pub async fn totals(&self) -> Result<Vec<KeyTotal>, StoreError> {
        Ok(in_snapshot!(&self.db, tx: Kind => {
            let keys = sqlx::query_as(KEYS).fetch_all(&mut *tx).await?;
            let corrected = sqlx::query_as(CORRECTED_COSTS).fetch_all(&mut *tx).await?;
            let archived: Vec<SumRow> = sqlx::query_as(ARCHIVED_BY_KEY).fetch_all(&mut *tx).await?;
            let archived = plus_rows(SumsByOwner::new(), archived);
            let mut audit = CallAudit::default();
            scan_calls!(tx, audit);
            key_totals(keys, corrected, &archived, &audit)
        }))
    }
}
