//! Verification of the eight invariants of the ledger on the stored data at one instant.
//!
//! All queries read one snapshot, so a gateway may run meanwhile. Every call is decoded and compared with
//! the sums that the database keeps.

use std::collections::{BTreeMap, BTreeSet};

use canon::{Micros, Money};
use ledger::{ALIVE_WINDOW, LEASE_DURATION, LEASE_GRACE};

use crate::archive::ArchiveState;
use crate::call_audit::{
    ARCHIVED_BY_ACCOUNT, ARCHIVED_BY_KEY, CallAudit, CallSums, MAX_VIOLATIONS, SumRow, SumsByOwner,
    plus_rows,
};
use crate::call_sessions::{ARCHIVED_PAGE, PAGE, SessionPart, read_part};
use crate::corrections::{IDS_PER_STATEMENT, read_body};
use crate::db::in_snapshot;
use crate::entries::{CORRECTED_COSTS, KEYS, key_totals, read_calls, scan_calls};
use crate::retention::USAGE_HOURS_FROM;
use crate::rollup::Scope;
use crate::row::row;
use crate::session_audit::SessionAudit;
use crate::settings::GET;
use crate::verify_terms::TermFindings;
use crate::{KeyTotal, LeaseTotal, Store, StoreError};

/// Time after a node's death within which its calls must be settled, if another node is alive.
const DEAD_NODE_SETTLE_LIMIT: Micros =
    LEASE_DURATION.saturating_add(LEASE_GRACE).saturating_add(Micros::from_secs(60));
/// Rows per page of the rows that are checked one by one.
const PAGE_ROWS: i64 = 1_000;

/// An invariant of the ledger and its violations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvariantCheck {
    /// Its number, for example `L1`.
    pub law: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Its statement.
    pub statement: &'static str,
    /// Its violations, as text; empty if it holds.
    pub violations: Vec<String>,
    /// Facts that do not violate it and that the operator should know.
    pub notes: Vec<String>,
}

impl InvariantCheck {
    const fn new(law: &'static str, name: &'static str, says: &'static str) -> Self {
        Self { law, name, statement: says, violations: Vec::new(), notes: Vec::new() }
    }

    fn find(&mut self, what: impl Iterator<Item = String>) {
        self.violations.extend(what);
    }

    /// Adds a violation, unless enough are listed.
    fn add(&mut self, what: String) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(what);
        }
    }
}

macro_rules! sums_of_corrections {
    ($owner:literal) => {
        concat!(
            "SELECT ",
            $owner,
            " AS owner, CAST(0 AS BIGINT) AS calls, CAST(SUM(cost) AS BIGINT) AS cost, \
             CAST(SUM(borne) AS BIGINT) AS borne, CAST(SUM(input) AS BIGINT) AS input, \
             CAST(SUM(output) AS BIGINT) AS output FROM corrections GROUP BY 1"
        )
    };
}
const CORRECTED_BY_KEY: &str = sums_of_corrections!("key_id");
const CORRECTED_BY_ACCOUNT: &str = sums_of_corrections!("account_id");
const PART_SUMS: &str =
    "SELECT id, state, calls, cost, removed_calls, removed_cost FROM archive_parts ORDER BY id";
/// Corrected calls: their latest body, and the sum of their corrections.
const CORRECTED: &str = "SELECT c.request_id, c.body, s.cost FROM corrections c \
    JOIN (SELECT request_id, MAX(number) AS number, CAST(SUM(cost) AS BIGINT) AS cost \
    FROM corrections GROUP BY request_id) s \
    ON s.request_id = c.request_id AND s.number = c.number \
    WHERE c.request_id > $1 ORDER BY c.request_id LIMIT $2";
const INDEXED: &str = "SELECT (SELECT COUNT(*) FROM call_ids), (SELECT COUNT(*) FROM call_owners)";
const USAGE: &str = "SELECT owner, CAST(SUM(calls) AS BIGINT) AS calls, \
    CAST(SUM(cost) AS BIGINT) AS cost, CAST(SUM(borne) AS BIGINT) AS borne, \
    CAST(SUM(input) AS BIGINT) AS input, CAST(SUM(output) AS BIGINT) AS output \
    FROM usage WHERE span = $1 AND scope = $2 AND begun >= $3 GROUP BY 1";

const LEFT_OPEN: &str = "SELECT request_id, node_id FROM holds WHERE NOT EXISTS (SELECT 1 \
    FROM nodes WHERE nodes.id = holds.node_id AND seen > (SELECT now FROM store_clock) - $1) \
    AND EXISTS (SELECT 1 FROM nodes WHERE seen > (SELECT now FROM store_clock) - $2 \
    AND epoch < (SELECT now FROM store_clock) - $1) ORDER BY request_id LIMIT $3";
const GUARDS: &str = "SELECT name FROM call_guards UNION ALL SELECT name FROM correction_guards \
    UNION ALL SELECT name FROM archive_guards";
const REQUIRED_GUARDS: [&str; 9] = [
    "archive_parts_stay",
    "archived_calls_stay",
    "archived_ids_stay",
    "call_blocks_stay",
    "call_blocks_stay_as_they_are",
    "call_ids_stay",
    "call_ids_stay_as_they_are",
    "corrections_stay",
    "corrections_stay_as_they_are",
];

row! {
    struct CorrectedRow {
        request_id: String,
        body: String,
        cost: Money,
    }
}

row! {
    /// A part of the archive and its removed calls.
    struct PartSums {
        id: i64,
        state: String,
        calls: i64,
        cost: Money,
        removed_calls: i64,
        removed_cost: Money,
    }
}

/// Parts whose files and removed calls differ, and sums of removed calls that no part accounts for.
fn archive_differences(archived: &SumsByOwner, parts: &[PartSums]) -> Vec<String> {
    let mut found = Vec::new();
    let removed = parts.iter().fold((0_i64, Money::ZERO), |(calls, cost), part| {
        (calls.saturating_add(part.removed_calls), cost.saturating_add(part.removed_cost))
    });
    let kept = archived.values().fold((0_i64, Money::ZERO), |(calls, cost), sums| {
        (calls.saturating_add(sums.calls), cost.saturating_add(sums.cost))
    });
    if removed != kept {
        found.push(format!(
            "archive: {} calls for {} USD were removed, but the sums of archived calls have {} for {} USD",
            removed.0, removed.1, kept.0, kept.1
        ));
    }
    let wrong = parts.iter().filter(|part| {
        let is_removed = part.state == ArchiveState::Removed.word();
        is_removed && (part.calls, part.cost) != (part.removed_calls, part.removed_cost)
    });
    found.extend(wrong.take(MAX_VIOLATIONS).map(|part| {
        let PartSums { id, calls, cost, removed_calls, removed_cost, .. } = part;
        format!(
            "archive part {id}: its file has {calls} calls for {cost} USD, but {removed_calls} for \
             {removed_cost} USD were removed"
        )
    }));
    found
}

/// Owners whose usage does not add up to their calls.
fn differences(calls: &SumsByOwner, usage: &SumsByOwner, what: &str) -> Vec<String> {
    let owners: BTreeSet<&String> = calls.keys().chain(usage.keys()).collect();
    let differences = owners.into_iter().filter_map(|owner| {
        let booked = calls.get(owner).copied().unwrap_or_default();
        let summed = usage.get(owner).copied().unwrap_or_default();
        (booked != summed).then(|| {
            format!(
                "{what} {owner}: {} calls for {} USD are recorded, but usage has {} for {} USD, \
                 or their tokens differ",
                booked.calls, booked.cost, summed.calls, summed.cost
            )
        })
    });
    differences.take(MAX_VIOLATIONS).collect()
}

impl Store {
    /// Verifies the eight invariants, in their order, and returns the number of calls with them.
    pub async fn verify(&self) -> Result<(Vec<InvariantCheck>, i64), StoreError> {
        let mut conservation = InvariantCheck::new(
            "L1",
            "conservation",
            "a key's spent and leased amounts are the sums of its calls and leases, and usage and sessions agree",
        );
        let mut cap = InvariantCheck::new(
            "L2",
            "caps and budgets",
            "no cap and no budget of a key or an account in force at the time was passed",
        );
        let mut settled_once = InvariantCheck::new(
            "L3",
            "one settlement",
            "every admitted call is settled once and in time",
        );
        let mut bounded =
            InvariantCheck::new("L4", "bounded charge", "no call pays more than its hold");
        let mut attribution = InvariantCheck::new(
            "L5",
            "attribution",
            "every attempt is recorded, and every charge has a lane",
        );
        let mut output_charged = InvariantCheck::new(
            "L6",
            "no charge without output, no free output",
            "failed calls are free, and output with a price is charged",
        );
        let mut immutable =
            InvariantCheck::new("L7", "immutable", "the database refuses changes of settled calls");
        let mut price_pinned = InvariantCheck::new(
            "L8",
            "price pinning",
            "every charge names the price list of its admission",
        );
        let TermFindings { violations, notes } = self.verify_terms().await?;
        (cap.violations, cap.notes) = (violations, notes);
        let calls = in_snapshot!(&self.db, tx: Kind => {
            let mut audit = CallAudit::default();
            scan_calls!(tx, audit);
            let (ids, owners): (i64, i64) = sqlx::query_as(INDEXED).fetch_one(&mut *tx).await?;
            if (ids, owners) != (audit.calls, audit.owners) {
                settled_once.add(format!(
                    "{} calls of {} owners are recorded, but {ids} and {owners} can be found",
                    audit.calls, audit.owners
                ));
            }
            let keys = sqlx::query_as(KEYS).fetch_all(&mut *tx).await?;
            let corrected = sqlx::query_as(CORRECTED_COSTS).fetch_all(&mut *tx).await?;
            let archived: Vec<SumRow> = sqlx::query_as(ARCHIVED_BY_KEY).fetch_all(&mut *tx).await?;
            let archived = plus_rows(SumsByOwner::new(), archived);
            let keys = key_totals(keys, corrected, &archived, &audit);
            conservation.find(keys.iter().filter(|key| key.cost != key.spent).map(
                |KeyTotal { key_id, cost, spent, .. }| format!(
                    "key {key_id}: its calls cost {cost} USD, but {spent} USD are booked as spent"
                ),
            ));
            let leases: Vec<LeaseTotal> =
                sqlx::query_as(crate::leases::TOTALS).fetch_all(&mut *tx).await?;
            conservation.find(leases.iter().filter(|key| key.leased != key.leases).map(
                |LeaseTotal { key_id, leased, leases, .. }| format!(
                    "key {key_id}: its leases hold {leases} USD, but {leased} USD are booked as leased"
                ),
            ));
            let later: Vec<SumRow> = sqlx::query_as(CORRECTED_BY_KEY).fetch_all(&mut *tx).await?;
            let mut of_keys = plus_rows(std::mem::take(&mut audit.by_key), later);
            for (key_id, sums) in &archived {
                let sum = of_keys.entry(key_id.clone()).or_default();
                *sum = sum.plus(*sums);
            }
            let removed: Vec<PartSums> = sqlx::query_as(PART_SUMS).fetch_all(&mut *tx).await?;
            conservation.find(archive_differences(&archived, &removed).into_iter());
            let later: Vec<SumRow> =
                sqlx::query_as(CORRECTED_BY_ACCOUNT).fetch_all(&mut *tx).await?;
            let of_accounts = plus_rows(std::mem::take(&mut audit.by_account), later);
            let old: Vec<SumRow> = sqlx::query_as(ARCHIVED_BY_ACCOUNT).fetch_all(&mut *tx).await?;
            let of_accounts = plus_rows(of_accounts, old);
            let all = of_keys.values().copied().reduce(CallSums::plus);
            let of_all: SumsByOwner = all.map(|all| (String::new(), all)).into_iter().collect();
            // Older hours may be deleted. The days of the others have the same sums.
            let hours_from: Option<String> =
                sqlx::query_scalar(GET).bind(USAGE_HOURS_FROM).fetch_optional(&mut *tx).await?;
            let hours_from: Option<i64> = hours_from.and_then(|text| text.parse().ok());
            for step in crate::UsageStep::ALL {
                for scope in Scope::ALL.into_iter().filter(|scope| scope.has(step)) {
                    let from = hours_from.filter(|_| step == crate::UsageStep::Hour);
                    let begin = from.unwrap_or(i64::MIN);
                    let calls = match scope {
                        Scope::Key | Scope::KeySum => &of_keys,
                        Scope::Account | Scope::AccountSum => &of_accounts,
                        Scope::All | Scope::AllSum => &of_all,
                    };
                    let days = if from.is_some() {
                        let days = sqlx::query_as(USAGE).bind(crate::UsageStep::Day.word());
                        let days = days.bind(scope.word()).bind(begin).fetch_all(&mut *tx).await?;
                        Some(plus_rows(SumsByOwner::new(), days))
                    } else {
                        None
                    };
                    let sums = days.as_ref().unwrap_or(calls);
                    let usage = sqlx::query_as(USAGE).bind(step.word()).bind(scope.word());
                    let usage: Vec<SumRow> = usage.bind(begin).fetch_all(&mut *tx).await?;
                    let usage = plus_rows(SumsByOwner::new(), usage);
                    let what = format!("usage by {}, {}", step.word(), scope.word());
                    conservation.find(differences(sums, &usage, &what).into_iter());
                }
            }

            let open: Vec<(String, String)> = sqlx::query_as(LEFT_OPEN)
                .bind(DEAD_NODE_SETTLE_LIMIT.get())
                .bind(ALIVE_WINDOW.get())
                .bind(MAX_VIOLATIONS as i64)
                .fetch_all(&mut *tx)
                .await?;
            settled_once.find(open.into_iter().map(|(request_id, node)| format!(
                "call {request_id}: its node {node} is dead, and it is not settled"
            )));

            bounded.find(audit.unbounded.0.drain(..));

            let mut after = String::new();
            loop {
                let page: Vec<CorrectedRow> = sqlx::query_as(CORRECTED)
                    .bind(&after)
                    .bind(PAGE_ROWS)
                    .fetch_all(&mut *tx)
                    .await?;
                let Some(last) = page.last() else { break };
                last.request_id.clone_into(&mut after);
                let mut first_costs: BTreeMap<String, Money> = BTreeMap::new();
                for chunk in page.chunks(IDS_PER_STATEMENT) {
                    let ids = chunk.iter().map(|row| row.request_id.clone()).collect();
                    let calls = read_calls!(Kind, &mut *tx, &ids);
                    calls.iter().for_each(|call| audit.by_session.remove_call(call));
                    first_costs.extend(calls.into_iter().map(|call| (call.request_id.into(), call.cost)));
                }
                for CorrectedRow { request_id, body, cost } in page {
                    let Some(first) = first_costs.get(&request_id) else {
                        conservation.add(format!("call {request_id}: its first posting is missing"));
                        continue;
                    };
                    let cost = first.saturating_add(cost);
                    let call = read_body(&body)?;
                    audit.by_session.add_call(&call);
                    let held = call.held.unwrap_or(Money::MAX);
                    if call.cost != cost {
                        conservation.add(format!(
                            "call {request_id}: its postings sum up to {cost} USD, but the last one \
                             says {} USD",
                            call.cost
                        ));
                    }
                    if cost < Money::ZERO || cost > held {
                        bounded.add(format!(
                            "call {request_id}: it pays {cost} USD, but its hold is {held} USD"
                        ));
                    }
                    if cost > Money::ZERO && call.lane.is_empty() {
                        attribution.add(format!(
                            "call {request_id}: it is charged, but no lane is named"
                        ));
                    }
                }
            }

            let (mut sessions, mut last) = (SessionAudit::default(), SessionPart::default());
            loop {
                let SessionPart { session, key_id, model, lane, .. } = &last;
                let page = sqlx::query(PAGE).bind(session).bind(key_id).bind(model).bind(lane);
                let page = page.bind(PAGE_ROWS).fetch_all(&mut *tx).await?;
                let page: Result<Vec<SessionPart>, sqlx::Error> = page.iter().map(read_part).collect();
                let page = page?;
                page.iter().for_each(|part| sessions.add_part(part));
                match page.into_iter().next_back() {
                    Some(part) => last = part,
                    None => break,
                }
            }
            let mut last = SessionPart::default();
            loop {
                let SessionPart { session, key_id, model, lane, .. } = &last;
                let page = sqlx::query(ARCHIVED_PAGE).bind(session).bind(key_id).bind(model).bind(lane);
                let page = page.bind(PAGE_ROWS).fetch_all(&mut *tx).await?;
                let page: Result<Vec<SessionPart>, sqlx::Error> = page.iter().map(read_part).collect();
                let page = page?;
                page.iter().for_each(|part| audit.by_session.add_part(part));
                match page.into_iter().next_back() {
                    Some(part) => last = part,
                    None => break,
                }
            }
            conservation.find(audit.by_session.differences(&sessions).into_iter());

            attribution.find(audit.unattributed.0.drain(..));
            output_charged.find(audit.for_nothing.0.drain(..));
            output_charged.find(audit.free_replies().into_iter());

            let guards: Vec<String> = sqlx::query_scalar(GUARDS).fetch_all(&mut *tx).await?;
            immutable.find(REQUIRED_GUARDS.iter().filter(|name| !guards.iter().any(|g| g == *name)).map(
                |name| format!("the database trigger `{name}` is missing: settled calls can be changed"),
            ));

            price_pinned.find(audit.unpriced.0.drain(..));
            keys.iter().map(|key| key.rows).sum()
        });
        Ok((
            vec![
                conservation,
                cap,
                settled_once,
                bounded,
                attribution,
                output_charged,
                immutable,
                price_pinned,
            ],
            calls,
        ))
    }
}
