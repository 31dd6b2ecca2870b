//! The eight laws of the ledger, each proved on the data as it is at one instant.
//!
//! A gateway may run meanwhile: everything is read in one snapshot. Whole tables are read, by the
//! database itself; what comes out is sums per key and the rows that break a law, a few of each.

use std::collections::BTreeMap;

use canon::Money;
use ledger::{ALIVE, GRACE, LEASE, Micros, Try};

use crate::db::{from_json, in_snapshot};
use crate::rollup::Scope;
use crate::{Store, StoreError};

/// How many rows that break a law are named.
const NAMED: i64 = 20;
/// How long after a key was changed calls may still be paid from leases of before.
const SETTLES: Micros = 60_000_000;
/// Within which time of a node's death its calls must be settled, if another node lives.
const SETTLED: Micros = LEASE + GRACE + 60_000_000;
/// Rows looked at one by one, per page.
const PAGE: i64 = 1_000;

/// A law of the ledger, and what breaks it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Its number: `L1`.
    pub law: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
    /// Where it is broken, in words; nothing when it holds.
    pub broken: Vec<String>,
}

impl Proof {
    const fn new(law: &'static str, name: &'static str, says: &'static str) -> Self {
        Self { law, name, says, broken: Vec::new() }
    }

    fn find(&mut self, what: impl Iterator<Item = String>) {
        self.broken.extend(what);
    }
}

/// The sums that calls and usage must agree on, by owner.
type Sums = BTreeMap<String, [i64; 5]>;
type SumRow = (String, i64, i64, i64, i64, i64);

macro_rules! sums_of_calls {
    ($owner:literal) => {
        // Counts too large to be true are added up as in the table of usage.
        concat!(
            "SELECT ",
            $owner,
            ", COUNT(*), CAST(SUM(cost) AS BIGINT), \
             CAST(SUM(CASE WHEN borne > 1000000000000000 THEN 1000000000000000 \
             WHEN borne < -1000000000000000 THEN -1000000000000000 ELSE borne END) AS BIGINT), \
             CAST(SUM(CASE WHEN input > 1000000000000 THEN 1000000000000 ELSE input END) \
             AS BIGINT), \
             CAST(SUM(CASE WHEN output > 1000000000000 THEN 1000000000000 ELSE output END) \
             AS BIGINT) FROM entries GROUP BY 1"
        )
    };
}
const BY_KEY: &str = sums_of_calls!("key_id");
const BY_ACCOUNT: &str = sums_of_calls!("account_id");
const USAGE: &str = "SELECT owner, CAST(SUM(calls) AS BIGINT), CAST(SUM(cost) AS BIGINT), \
    CAST(SUM(borne) AS BIGINT), CAST(SUM(input) AS BIGINT), CAST(SUM(output) AS BIGINT) \
    FROM usage WHERE span = $1 AND scope = $2 GROUP BY 1";

// A cap that was lowered below what is spent cancels nothing; it must only let nothing more in.
const ABOVE_CAP: &str = "SELECT id, cap, spent, leased FROM keys \
    WHERE spent + leased > cap AND (changed <= created OR EXISTS (SELECT 1 FROM entries \
    WHERE key_id = keys.id AND ended > keys.changed + $1 AND started > keys.changed + $1 \
    AND cost > 0)) ORDER BY id LIMIT $2";
const ACCOUNTS_ABOVE: &str = "SELECT a.account_id, a.cap, CAST(SUM(k.spent) AS BIGINT), \
    CAST(SUM(k.leased) AS BIGINT) FROM account_caps a JOIN keys k ON k.account_id = a.account_id \
    WHERE EXISTS (SELECT 1 FROM entries WHERE account_id = a.account_id \
    AND ended > a.changed + $1 AND started > a.changed + $1 AND cost > 0) \
    GROUP BY a.account_id, a.cap HAVING SUM(k.spent) + SUM(k.leased) > a.cap ORDER BY 1 LIMIT $2";
const LEFT_OPEN: &str = "SELECT request_id, node_id FROM holds WHERE NOT EXISTS (SELECT 1 \
    FROM nodes WHERE nodes.id = holds.node_id AND seen > (SELECT now FROM store_clock) - $1) \
    AND EXISTS (SELECT 1 FROM nodes WHERE seen > (SELECT now FROM store_clock) - $2 \
    AND epoch < (SELECT now FROM store_clock) - $1) ORDER BY request_id LIMIT $3";
const UNBOUNDED: &str = "SELECT request_id, cost, held FROM entries \
    WHERE cost < 0 OR cost > held ORDER BY request_id LIMIT $1";
const TRIED: &str = "SELECT request_id, attempts, lane, first_byte_us, failed FROM entries \
    WHERE (attempts <> 1 OR failed <> '[]') AND outcome <> 'recovered' AND request_id > $1 \
    ORDER BY request_id LIMIT $2";
const NOBODYS: &str = "SELECT request_id FROM entries WHERE cost > 0 AND lane = '' \
    ORDER BY request_id LIMIT $1";
const FOR_NOTHING: &str = "SELECT request_id, cost FROM entries WHERE cost > 0 AND \
    (outcome = 'failed' OR (outcome <> 'done' AND input = 0 AND output = 0 AND searches = 0)) \
    ORDER BY request_id LIMIT $1";
// Equal figures have an equal version: if a plain answer was paid under it, all have to be.
const FREE: &str = "SELECT request_id, output FROM entries WHERE output > 0 AND cost = 0 \
    AND borne = 0 AND price_version IN (SELECT price_version FROM entries WHERE cost > 0 \
    AND output > 0 AND searches = 0 AND output_image = 0 GROUP BY price_version) \
    ORDER BY request_id LIMIT $1";
const UNPRICED: &str = "SELECT request_id FROM entries \
    WHERE price_version = '' AND (cost > 0 OR held > 0) ORDER BY request_id LIMIT $1";
const GUARDS: &str = "SELECT name FROM entry_guards";
const GUARDED_BY: [&str; 2] = ["entries_stay", "entries_stay_as_they_are"];

type Above = (String, i64, i64, i64);
type Tried = (String, i64, String, Option<i64>, String);

/// Whether the tries that are told are the tries there were.
fn tries_told(attempts: i64, lane: &str, answered: bool, failed: &[Try]) -> bool {
    let failed = i64::try_from(failed.len()).unwrap_or(i64::MAX);
    if answered {
        attempts == failed.saturating_add(1) && !lane.is_empty()
    } else {
        failed <= attempts && attempts <= failed.saturating_add(1)
    }
}

fn by_owner(rows: Vec<SumRow>) -> Sums {
    rows.into_iter().map(|(owner, a, b, c, d, e)| (owner, [a, b, c, d, e])).collect()
}

/// Where usage does not add up to the calls.
fn differ(calls: &Sums, usage: &Sums, what: &str) -> Vec<String> {
    let owners: std::collections::BTreeSet<&String> = calls.keys().chain(usage.keys()).collect();
    let nothing = [0; 5];
    let differ = owners.into_iter().filter_map(|owner| {
        let (said, told) = (calls.get(owner), usage.get(owner));
        let (said, told) = (said.unwrap_or(&nothing), told.unwrap_or(&nothing));
        (said != told).then(|| {
            let [calls, cost, ..] = said;
            let [usage, added, ..] = told;
            format!(
                "{what} {owner}: {calls} calls for {} USD are on the books, but {usage} for {} \
                 USD added up, or their tokens differ",
                Money::nanos(*cost),
                Money::nanos(*added)
            )
        })
    });
    differ.take(NAMED as usize).collect()
}

impl Store {
    /// Proves the eight laws, in their order, and tells how many calls there are.
    pub async fn prove(&self) -> Result<(Vec<Proof>, i64), StoreError> {
        let mut conservation = Proof::new(
            "L1",
            "conservation",
            "what a key has spent and leased is the sum of its calls and leases, and usage adds up",
        );
        let mut cap = Proof::new("L2", "cap", "spent and leased together are never above a cap");
        let mut once =
            Proof::new("L3", "one settlement", "every admitted call is settled once, and soon");
        let mut bounded =
            Proof::new("L4", "bounded charge", "no call pays more than was set aside for it");
        let mut told =
            Proof::new("L5", "attribution", "every try of a lane is told, every charge has a lane");
        let mut fair = Proof::new(
            "L6",
            "no charge without output, no free output",
            "what failed costs nothing, what was answered at a price costs something",
        );
        let mut kept =
            Proof::new("L7", "immutable", "the database itself keeps settled calls as they are");
        let mut pinned =
            Proof::new("L8", "price pinning", "every charge names the prices it was admitted at");
        let calls = in_snapshot!(&self.db, tx: Kind => {
            let keys: Vec<(String, i64, i64, i64)> =
                sqlx::query_as(crate::entries::TOTALS).fetch_all(&mut *tx).await?;
            conservation.find(keys.iter().filter(|(_, _, cost, spent)| cost != spent).map(
                |(key_id, _, cost, spent)| format!(
                    "key {key_id}: its calls cost {} USD, but {} USD are booked as spent",
                    Money::nanos(*cost),
                    Money::nanos(*spent)
                ),
            ));
            let leases: Vec<(String, Option<i64>, i64, i64, i64)> =
                sqlx::query_as(crate::leases::TOTALS).fetch_all(&mut *tx).await?;
            conservation.find(leases.iter().filter(|(.., leased, leases)| leased != leases).map(
                |(key_id, .., leased, leases)| format!(
                    "key {key_id}: its leases hold {} USD, but {} USD are booked as leased",
                    Money::nanos(*leases),
                    Money::nanos(*leased)
                ),
            ));
            let of_keys = by_owner(sqlx::query_as(BY_KEY).fetch_all(&mut *tx).await?);
            let of_accounts = by_owner(sqlx::query_as(BY_ACCOUNT).fetch_all(&mut *tx).await?);
            let mut all = [0_i64; 5];
            for sums in of_keys.values() {
                for (sum, more) in all.iter_mut().zip(sums) {
                    *sum = sum.saturating_add(*more);
                }
            }
            let of_all = if of_keys.is_empty() {
                Sums::new()
            } else {
                Sums::from([(String::new(), all)])
            };
            for step in crate::Step::ALL {
                for scope in Scope::ALL.into_iter().filter(|scope| scope.has(step)) {
                    let sums = match scope {
                        Scope::Key | Scope::KeySum => &of_keys,
                        Scope::Account | Scope::AccountSum => &of_accounts,
                        Scope::All | Scope::AllSum => &of_all,
                    };
                    let usage = sqlx::query_as(USAGE).bind(step.word()).bind(scope.word());
                    let usage = by_owner(usage.fetch_all(&mut *tx).await?);
                    let what = format!("usage by {}, {}", step.word(), scope.word());
                    conservation.find(differ(sums, &usage, &what).into_iter());
                }
            }

            for (what, query) in [("key", ABOVE_CAP), ("account", ACCOUNTS_ABOVE)] {
                let above: Vec<Above> =
                    sqlx::query_as(query).bind(SETTLES).bind(NAMED).fetch_all(&mut *tx).await?;
                cap.find(above.into_iter().map(|(id, cap, spent, leased)| format!(
                    "{what} {id}: {} USD are spent and {} USD leased, above its cap of {} USD",
                    Money::nanos(spent),
                    Money::nanos(leased),
                    Money::nanos(cap)
                )));
            }

            let open: Vec<(String, String)> = sqlx::query_as(LEFT_OPEN)
                .bind(SETTLED)
                .bind(ALIVE)
                .bind(NAMED)
                .fetch_all(&mut *tx)
                .await?;
            once.find(open.into_iter().map(|(request_id, node)| format!(
                "call {request_id}: its node {node} is gone, and nobody settled it"
            )));

            let unbounded: Vec<(String, i64, Option<i64>)> =
                sqlx::query_as(UNBOUNDED).bind(NAMED).fetch_all(&mut *tx).await?;
            bounded.find(unbounded.into_iter().map(|(request_id, cost, held)| format!(
                "call {request_id}: it pays {} USD, of {} USD set aside",
                Money::nanos(cost),
                Money::nanos(held.unwrap_or_default())
            )));

            let mut after = String::new();
            loop {
                let page: Vec<Tried> =
                    sqlx::query_as(TRIED).bind(&after).bind(PAGE).fetch_all(&mut *tx).await?;
                let Some((last, ..)) = page.last() else { break };
                last.clone_into(&mut after);
                for (request_id, attempts, lane, first_byte, failed) in page {
                    let failed: Vec<Try> = from_json(&failed)?;
                    if !tries_told(attempts, &lane, first_byte.is_some(), &failed)
                        && told.broken.len() < NAMED as usize
                    {
                        told.broken.push(format!(
                            "call {request_id}: {attempts} tries are counted, {} of them told as \
                             failed",
                            failed.len()
                        ));
                    }
                }
            }
            let nobodys: Vec<String> =
                sqlx::query_scalar(NOBODYS).bind(NAMED).fetch_all(&mut *tx).await?;
            told.find(nobodys.into_iter().map(|request_id| {
                format!("call {request_id}: it is paid for, but no lane is named")
            }));

            let nothing: Vec<(String, i64)> =
                sqlx::query_as(FOR_NOTHING).bind(NAMED).fetch_all(&mut *tx).await?;
            fair.find(nothing.into_iter().map(|(request_id, cost)| {
                format!("call {request_id}: it pays {} USD for nothing", Money::nanos(cost))
            }));
            let free: Vec<(String, i64)> =
                sqlx::query_as(FREE).bind(NAMED).fetch_all(&mut *tx).await?;
            fair.find(free.into_iter().map(|(request_id, output)| {
                format!("call {request_id}: {output} tokens came out, and nobody pays for them")
            }));

            let guards: Vec<String> = sqlx::query_scalar(GUARDS).fetch_all(&mut *tx).await?;
            kept.find(GUARDED_BY.iter().filter(|name| !guards.iter().any(|g| g == *name)).map(
                |name| format!("the database's guard `{name}` is gone: settled calls can be changed"),
            ));

            let unpriced: Vec<String> =
                sqlx::query_scalar(UNPRICED).bind(NAMED).fetch_all(&mut *tx).await?;
            pinned.find(unpriced.into_iter().map(|request_id| {
                format!("call {request_id}: it names no prices")
            }));
            keys.iter().map(|(_, rows, ..)| *rows).sum()
        });
        Ok((vec![conservation, cap, once, bounded, told, fair, kept, pinned], calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_told_when_those_that_failed_and_the_one_that_answered_are_all() {
        let failed = |count| vec![Try::default(); count];
        for (attempts, answered, failures, told) in [
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
            let found = tries_told(attempts, "lane", answered, &failed(failures));
            assert_eq!(found, told, "{attempts} {answered} {failures}");
        }
        assert!(!tries_told(1, "", true, &[]));
    }
}
