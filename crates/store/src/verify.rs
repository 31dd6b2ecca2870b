//! Verification of the eight invariants of the ledger on the stored data at one instant.
//!
//! All queries read one snapshot, so a gateway may run meanwhile. The database scans whole tables
//! and returns sums per key and some of the rows that violate an invariant.

use std::collections::{BTreeMap, BTreeSet};

use canon::{Micros, Money};
use ledger::{ALIVE_WINDOW, FailedAttempt, LEASE_DURATION, LEASE_GRACE};

use crate::corrections::read_body;
use crate::db::{from_json, in_snapshot};
use crate::rollup::Scope;
use crate::row::row;
use crate::verify_terms::TermFindings;
use crate::{KeyTotal, LeaseTotal, Store, StoreError};

/// Maximum number of violations listed per invariant.
const MAX_VIOLATIONS: i64 = 20;
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
        if self.violations.len() < MAX_VIOLATIONS as usize {
            self.violations.push(what);
        }
    }
}

row! {
    /// Sums that the calls of an owner and its usage must agree on.
    struct SumRow {
        owner: String,
        calls: i64,
        cost: Money,
        borne: Money,
        input: i64,
        output: i64,
    }
}

/// The same sums without their owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CallSums {
    calls: i64,
    cost: Money,
    absorbed: Money,
    input: i64,
    output: i64,
}

impl CallSums {
    const fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            cost: self.cost.saturating_add(other.cost),
            absorbed: self.absorbed.saturating_add(other.absorbed),
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

type SumsByOwner = BTreeMap<String, CallSums>;

macro_rules! sums_of_calls {
    ($owner:literal) => {
        // Counts are capped as in the table of usage.
        concat!(
            "SELECT ",
            $owner,
            " AS owner, COUNT(*) AS calls, CAST(SUM(cost) AS BIGINT) AS cost, \
             CAST(SUM(CASE WHEN borne > 1000000000000000 THEN 1000000000000000 \
             WHEN borne < -1000000000000000 THEN -1000000000000000 ELSE borne END) AS BIGINT) \
             AS borne, \
             CAST(SUM(CASE WHEN input > 1000000000000 THEN 1000000000000 ELSE input END) \
             AS BIGINT) AS input, \
             CAST(SUM(CASE WHEN output > 1000000000000 THEN 1000000000000 ELSE output END) \
             AS BIGINT) AS output FROM entries GROUP BY 1"
        )
    };
}
const BY_KEY: &str = sums_of_calls!("key_id");
const BY_ACCOUNT: &str = sums_of_calls!("account_id");
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
/// Corrected calls: their latest body, and the sum of their postings.
const CORRECTED: &str = "SELECT c.request_id, c.body, e.cost + s.cost AS cost FROM corrections c \
    JOIN entries e ON e.request_id = c.request_id \
    JOIN (SELECT request_id, MAX(number) AS number, CAST(SUM(cost) AS BIGINT) AS cost \
    FROM corrections GROUP BY request_id) s \
    ON s.request_id = c.request_id AND s.number = c.number \
    WHERE c.request_id > $1 ORDER BY c.request_id LIMIT $2";
const USAGE: &str = "SELECT owner, CAST(SUM(calls) AS BIGINT) AS calls, \
    CAST(SUM(cost) AS BIGINT) AS cost, CAST(SUM(borne) AS BIGINT) AS borne, \
    CAST(SUM(input) AS BIGINT) AS input, CAST(SUM(output) AS BIGINT) AS output \
    FROM usage WHERE span = $1 AND scope = $2 GROUP BY 1";

const LEFT_OPEN: &str = "SELECT request_id, node_id FROM holds WHERE NOT EXISTS (SELECT 1 \
    FROM nodes WHERE nodes.id = holds.node_id AND seen > (SELECT now FROM store_clock) - $1) \
    AND EXISTS (SELECT 1 FROM nodes WHERE seen > (SELECT now FROM store_clock) - $2 \
    AND epoch < (SELECT now FROM store_clock) - $1) ORDER BY request_id LIMIT $3";
const UNBOUNDED: &str = "SELECT request_id, cost, held FROM entries \
    WHERE cost < 0 OR cost > held ORDER BY request_id LIMIT $1";
const TRIED: &str = "SELECT request_id, attempts, lane, first_byte_us, failed FROM entries \
    WHERE (attempts <> 1 OR failed <> '[]') AND outcome <> 'recovered' AND request_id > $1 \
    ORDER BY request_id LIMIT $2";
const WITHOUT_LANE: &str = "SELECT request_id FROM entries WHERE cost > 0 AND lane = '' \
    ORDER BY request_id LIMIT $1";
const FOR_NOTHING: &str = "SELECT request_id, cost FROM entries WHERE cost > 0 AND \
    (outcome = 'failed' OR (outcome <> 'done' AND input = 0 AND output = 0 AND searches = 0)) \
    ORDER BY request_id LIMIT $1";
// The same prices have the same version. If one plain reply was paid under it, all must be.
const FREE: &str = "SELECT request_id, output FROM entries WHERE output > 0 AND cost = 0 \
    AND borne = 0 AND price_version IN (SELECT price_version FROM entries WHERE cost > 0 \
    AND output > 0 AND searches = 0 AND output_image = 0 GROUP BY price_version) \
    ORDER BY request_id LIMIT $1";
const UNPRICED: &str = "SELECT request_id FROM entries \
    WHERE price_version = '' AND (cost > 0 OR held > 0) ORDER BY request_id LIMIT $1";
const GUARDS: &str = "SELECT name FROM entry_guards UNION ALL SELECT name FROM correction_guards";
const REQUIRED_GUARDS: [&str; 4] = [
    "entries_stay",
    "entries_stay_as_they_are",
    "corrections_stay",
    "corrections_stay_as_they_are",
];

row! {
    struct AttemptsRow {
        request_id: String,
        attempts: i64,
        lane: String,
        first_byte_us: Option<Micros>,
        failed: String,
    }
}

row! {
    struct UnboundedRow {
        request_id: String,
        cost: Money,
        held: Option<Money>,
    }
}

row! {
    struct CorrectedRow {
        request_id: String,
        body: String,
        cost: Money,
    }
}

row! {
    struct PaidRow {
        request_id: String,
        cost: Money,
    }
}

/// Returns true if the listed attempts agree with their number.
fn attempts_listed(attempts: i64, lane: &str, answered: bool, failed: &[FailedAttempt]) -> bool {
    let failed = i64::try_from(failed.len()).unwrap_or(i64::MAX);
    if answered {
        attempts == failed.saturating_add(1) && !lane.is_empty()
    } else {
        failed <= attempts && attempts <= failed.saturating_add(1)
    }
}

fn by_owner(rows: impl IntoIterator<Item = SumRow>) -> SumsByOwner {
    let mut sums = SumsByOwner::new();
    for SumRow { owner, calls, cost, borne, input, output } in rows {
        let sum = sums.entry(owner).or_default();
        *sum = sum.plus(CallSums { calls, cost, absorbed: borne, input, output });
    }
    sums
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
    differences.take(MAX_VIOLATIONS as usize).collect()
}

impl Store {
    /// Verifies the eight invariants, in their order, and returns the number of calls with them.
    pub async fn verify(&self) -> Result<(Vec<InvariantCheck>, i64), StoreError> {
        let mut conservation = InvariantCheck::new(
            "L1",
            "conservation",
            "a key's spent and leased amounts are the sums of its calls and leases, and usage agrees",
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
            let keys: Vec<KeyTotal> =
                sqlx::query_as(crate::entries::TOTALS).fetch_all(&mut *tx).await?;
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
            let first: Vec<SumRow> = sqlx::query_as(BY_KEY).fetch_all(&mut *tx).await?;
            let later: Vec<SumRow> = sqlx::query_as(CORRECTED_BY_KEY).fetch_all(&mut *tx).await?;
            let of_keys = by_owner(first.into_iter().chain(later));
            let first: Vec<SumRow> = sqlx::query_as(BY_ACCOUNT).fetch_all(&mut *tx).await?;
            let later: Vec<SumRow> =
                sqlx::query_as(CORRECTED_BY_ACCOUNT).fetch_all(&mut *tx).await?;
            let of_accounts = by_owner(first.into_iter().chain(later));
            let all = of_keys.values().copied().reduce(CallSums::plus);
            let of_all: SumsByOwner = all.map(|all| (String::new(), all)).into_iter().collect();
            for step in crate::UsageStep::ALL {
                for scope in Scope::ALL.into_iter().filter(|scope| scope.has(step)) {
                    let sums = match scope {
                        Scope::Key | Scope::KeySum => &of_keys,
                        Scope::Account | Scope::AccountSum => &of_accounts,
                        Scope::All | Scope::AllSum => &of_all,
                    };
                    let usage = sqlx::query_as(USAGE).bind(step.word()).bind(scope.word());
                    let usage: Vec<SumRow> = usage.fetch_all(&mut *tx).await?;
                    let usage = by_owner(usage);
                    let what = format!("usage by {}, {}", step.word(), scope.word());
                    conservation.find(differences(sums, &usage, &what).into_iter());
                }
            }

            let open: Vec<(String, String)> = sqlx::query_as(LEFT_OPEN)
                .bind(DEAD_NODE_SETTLE_LIMIT.get())
                .bind(ALIVE_WINDOW.get())
                .bind(MAX_VIOLATIONS)
                .fetch_all(&mut *tx)
                .await?;
            settled_once.find(open.into_iter().map(|(request_id, node)| format!(
                "call {request_id}: its node {node} is dead, and it is not settled"
            )));

            let unbounded: Vec<UnboundedRow> =
                sqlx::query_as(UNBOUNDED).bind(MAX_VIOLATIONS).fetch_all(&mut *tx).await?;
            bounded.find(unbounded.into_iter().map(|UnboundedRow { request_id, cost, held }| format!(
                "call {request_id}: it pays {cost} USD, but its hold is {} USD",
                held.unwrap_or_default()
            )));

            let mut after = String::new();
            loop {
                let page: Vec<CorrectedRow> = sqlx::query_as(CORRECTED)
                    .bind(&after)
                    .bind(PAGE_ROWS)
                    .fetch_all(&mut *tx)
                    .await?;
                let Some(last) = page.last() else { break };
                last.request_id.clone_into(&mut after);
                for CorrectedRow { request_id, body, cost } in page {
                    let call = read_body(&body)?;
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

            let mut after = String::new();
            loop {
                let page: Vec<AttemptsRow> =
                    sqlx::query_as(TRIED).bind(&after).bind(PAGE_ROWS).fetch_all(&mut *tx).await?;
                let Some(last) = page.last() else { break };
                last.request_id.clone_into(&mut after);
                for AttemptsRow { request_id, attempts, lane, first_byte_us, failed } in page {
                    let failed: Vec<FailedAttempt> = from_json(&failed)?;
                    if !attempts_listed(attempts, &lane, first_byte_us.is_some(), &failed)
                    {
                        attribution.add(format!(
                            "call {request_id}: {attempts} attempts are counted, {} of them listed \
                             as failed",
                            failed.len()
                        ));
                    }
                }
            }
            let without_lane: Vec<String> =
                sqlx::query_scalar(WITHOUT_LANE).bind(MAX_VIOLATIONS).fetch_all(&mut *tx).await?;
            attribution.find(without_lane.into_iter().map(|request_id| {
                format!("call {request_id}: it is charged, but no lane is named")
            }));

            let without_output: Vec<PaidRow> =
                sqlx::query_as(FOR_NOTHING).bind(MAX_VIOLATIONS).fetch_all(&mut *tx).await?;
            output_charged.find(without_output.into_iter().map(|PaidRow { request_id, cost }| {
                format!("call {request_id}: it pays {cost} USD without output")
            }));
            let free: Vec<(String, i64)> =
                sqlx::query_as(FREE).bind(MAX_VIOLATIONS).fetch_all(&mut *tx).await?;
            output_charged.find(free.into_iter().map(|(request_id, output)| {
                format!("call {request_id}: {output} output tokens are not charged")
            }));

            let guards: Vec<String> = sqlx::query_scalar(GUARDS).fetch_all(&mut *tx).await?;
            immutable.find(REQUIRED_GUARDS.iter().filter(|name| !guards.iter().any(|g| g == *name)).map(
                |name| format!("the database trigger `{name}` is missing: settled calls can be changed"),
            ));

            let unpriced: Vec<String> =
                sqlx::query_scalar(UNPRICED).bind(MAX_VIOLATIONS).fetch_all(&mut *tx).await?;
            price_pinned.find(unpriced.into_iter().map(|request_id| {
                format!("call {request_id}: it names no price list")
            }));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_listed_if_failed_and_answered_ones_are_all() {
        let failed = |count| vec![FailedAttempt::default(); count];
        for (attempts, answered, failures, listed) in [
            (1, true, 0, true),
            (2, true, 1, true),
            (2, true, 0, false),
            (1, true, 1, false),
            (0, false, 0, true),
            (2, false, 2, true),
            (2, false, 1, true),
            (3, false, 1, false),
            (1, false, 2, false),
        ] {
            let found = attempts_listed(attempts, "lane", answered, &failed(failures));
            assert_eq!(found, listed, "{attempts} {answered} {failures}");
        }
        assert!(!attempts_listed(1, "", true, &[]));
    }
}
