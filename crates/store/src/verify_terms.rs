//! Verification of caps and budgets against the terms that were in force when calls were admitted.
//!
//! A lowered limit cancels nothing: running calls are paid from their reservations. But two seconds
//! later no call may be admitted beyond it. At its admission a call is counted with its whole hold, so
//! the cost of all calls up to the last one that was admitted under a cap is at most that cap.

use std::collections::BTreeMap;

use canon::{Micros, Money};
use ledger::{BudgetTerms, CallOutcome, LEASE_DURATION};

use crate::block_decoding::{CallSelection, decode_selected};
use crate::call_writes::OwnerKind;
use crate::compact_text::compact;
use crate::db::in_snapshot;
use crate::entries::OWNED;
use crate::keys::budget;
use crate::rollup::Scope;
use crate::row::row;
use crate::{Store, StoreError};

/// Time within which changed terms take effect on every node that reaches the store.
const EFFECT_TIME: Micros = Micros::from_secs(2);
/// Maximum number of listed violations, and of listed changes.
const MAX_LISTED: usize = 20;

const CHANGES: &str = "SELECT at, scope, owner, cap, budget, budget_period FROM term_changes \
    ORDER BY scope, owner, id";
const KEY_SUMS: &str = "SELECT id AS owner, spent, leased FROM keys";
// PostgreSQL returns NUMERIC for a sum of BIGINTs.
const ACCOUNT_SUMS: &str = "SELECT account_id AS owner, CAST(SUM(spent) AS BIGINT) AS spent, \
    CAST(SUM(leased) AS BIGINT) AS leased FROM keys GROUP BY account_id";
const DAYS: &str = "SELECT begun, CAST(SUM(cost) AS BIGINT) FROM usage \
    WHERE span = 'day' AND scope = $1 AND owner = $2 AND begun >= $3 GROUP BY begun";
const UNRECORDED: &str = "SELECT k.id FROM keys k LEFT JOIN term_changes t ON t.id = (SELECT MAX(o.id) \
    FROM term_changes o WHERE o.scope = 'key' AND o.owner = k.id) WHERE t.id IS NULL \
    OR COALESCE(t.cap, -1) <> COALESCE(k.cap, -1) OR COALESCE(t.budget, -1) <> COALESCE(k.budget, -1) \
    ORDER BY 1 LIMIT $1";

const CORRECTED_COST: &str = "SELECT CAST(COALESCE(SUM(cost), 0) AS BIGINT) FROM corrections \
    WHERE request_id = $1";
/// Blocks that are read at once.
const PAGE_BLOCKS: i64 = 20;

/// Runs a body for each call of an owner, for either driver.
macro_rules! each_call {
    ($tx:ident, ($kind:expr, $owner:expr), $call:ident => $body:expr) => {{
        let (mut ended, mut block) = (i64::MIN, 0_i64);
        loop {
            let page: Vec<(i64, i64, Vec<u8>)> = sqlx::query_as(OWNED)
                .bind($kind.number())
                .bind(compact($owner))
                .bind(ended)
                .bind(block)
                .bind(PAGE_BLOCKS)
                .fetch_all(&mut *$tx)
                .await?;
            let Some(last) = page.last() else { break };
            (ended, block) = (last.0, last.1);
            let owners = vec![($kind, $owner.as_str())];
            let selection = CallSelection { owners, ..CallSelection::default() };
            for (_, _, body) in &page {
                for $call in decode_selected(body, &selection)? {
                    $body
                }
            }
        }
    }};
}

/// The calls of an owner in a stretch of time.
#[derive(Clone, Copy, Default)]
struct StretchCalls {
    calls: i64,
    cost: Money,
}

row! {
    struct ChangeRow {
        at: Micros,
        scope: String,
        owner: String,
        cap: Option<Money>,
        budget: Option<Money>,
        budget_period: Option<String>,
    }
}

row! {
    struct OwnerSums {
        owner: String,
        spent: Money,
        leased: Money,
    }
}

/// Terms from one change to the next.
#[derive(Clone, Copy)]
struct TermInterval {
    begin: Micros,
    end: Micros,
    cap: Option<Money>,
    budget: Option<BudgetTerms>,
}

impl TermInterval {
    /// Returns true if these terms allow less than the ones before.
    fn is_tighter_than(&self, before: &Self) -> bool {
        let lower = |now: Option<Money>, then: Option<Money>| {
            now.is_some_and(|now| then.is_none_or(|then| now < then))
        };
        lower(self.cap, before.cap)
            || lower(self.budget.map(|terms| terms.limit), before.budget.map(|terms| terms.limit))
    }
}

/// A key or an account with the history of its terms.
struct TermHistory {
    /// The word for it in messages.
    noun: &'static str,
    scope: Scope,
    kind: OwnerKind,
    owner: String,
    intervals: Vec<TermInterval>,
    spent: Money,
    leased: Money,
}

/// Violations of caps and budgets, and changes of terms.
#[derive(Default)]
pub(crate) struct TermFindings {
    pub(crate) violations: Vec<String>,
    pub(crate) notes: Vec<String>,
}

impl TermHistory {
    /// Returns the highest cap that was ever in force; `None` if there was none for a while.
    fn highest_cap(&self) -> Option<Money> {
        let caps = self.intervals.iter().map(|interval| interval.cap);
        caps.collect::<Option<Vec<Money>>>()?.into_iter().max()
    }

    /// Returns a text for the money that is spent beyond every cap that was ever in force.
    fn above_every_cap(&self) -> Option<String> {
        let Self { noun, owner, spent, leased, .. } = self;
        let cap = self.highest_cap().filter(|cap| spent.saturating_add(*leased) > *cap)?;
        Some(format!(
            "{noun} {owner}: {spent} USD are spent and {leased} USD leased, above its cap of {cap} USD"
        ))
    }

    /// Returns the intervals whose cap is less than what is spent by now.
    fn passed_caps(&self) -> impl Iterator<Item = (TermInterval, Money)> {
        self.intervals.iter().filter_map(|interval| {
            interval.cap.filter(|cap| *cap < self.spent).map(|cap| (*interval, cap))
        })
    }

    /// Returns texts for the periods in which more was spent than every budget in force allowed.
    /// `days` are the costs by begin of the day.
    fn passed_budgets(&self, days: &BTreeMap<Micros, Money>) -> Vec<String> {
        let mut periods: BTreeMap<(&str, Micros), (Micros, BudgetTerms)> = BTreeMap::new();
        for interval in &self.intervals {
            let Some(terms) = interval.budget else { continue };
            for day in days.keys().filter(|day| **day < interval.end) {
                let (begin, end) = terms.period.bounds(*day);
                if end > interval.begin {
                    periods.insert((terms.period.word(), begin), (end, terms));
                }
            }
        }
        let passed = periods.into_iter().filter_map(|((word, begin), (end, terms))| {
            let in_force = self.intervals.iter().filter(|one| one.begin < end && one.end > begin);
            let limits = in_force.map(|one| {
                one.budget.filter(|budget| budget.period == terms.period).map(|budget| budget.limit)
            });
            // Without a limit for a part of the period nothing can be said about it.
            let limit = limits.collect::<Option<Vec<Money>>>()?.into_iter().max()?;
            let spent: Money = days.range(begin..end).map(|(_, cost)| *cost).sum();
            let Self { noun, owner, .. } = self;
            (spent > limit).then(|| {
                let begin = time_text(begin);
                format!(
                    "{noun} {owner}: {spent} USD are spent in the {word} from {begin}, above its \
                     budget of {limit} USD"
                )
            })
        });
        passed.collect()
    }
}

/// Returns a time as RFC 3339 text.
fn time_text(at: Micros) -> String {
    jiff::Timestamp::from_microsecond(at.get()).map(|time| time.to_string()).unwrap_or_default()
}

/// Combines the changes of each owner to a history.
fn histories(
    changes: Vec<ChangeRow>,
    sums: &BTreeMap<(&'static str, String), (Money, Money)>,
) -> Result<Vec<TermHistory>, sqlx::Error> {
    let mut histories: Vec<TermHistory> = Vec::new();
    for ChangeRow { at, scope, owner, cap, budget: limit, budget_period } in changes {
        let interval = TermInterval {
            begin: at,
            end: Micros::MAX,
            cap,
            budget: budget(limit, budget_period)?,
        };
        let (noun, scope, kind) = match scope.as_str() {
            "key" => ("key", Scope::KeySum, OwnerKind::Key),
            _ => ("account", Scope::AccountSum, OwnerKind::Account),
        };
        let is_known = |last: &&mut TermHistory| last.scope == scope && last.owner == owner;
        match histories.last_mut().filter(is_known) {
            Some(history) => {
                if let Some(before) = history.intervals.last_mut() {
                    before.end = at;
                }
                history.intervals.push(interval);
            }
            None => {
                let found = sums.get(&(noun, owner.clone())).copied();
                let (spent, leased) = found.unwrap_or_default();
                let intervals = vec![interval];
                histories.push(TermHistory { noun, scope, kind, owner, intervals, spent, leased });
            }
        }
    }
    Ok(histories)
}

impl Store {
    /// Verifies that caps and budgets were kept, with the terms in force at the time.
    pub(crate) async fn verify_terms(&self) -> Result<TermFindings, StoreError> {
        let mut findings = TermFindings::default();
        let mut changes: Vec<(Micros, String)> = Vec::new();
        in_snapshot!(&self.db, tx: Kind => {
            let mut sums = BTreeMap::new();
            for (noun, query) in [("key", KEY_SUMS), ("account", ACCOUNT_SUMS)] {
                let rows: Vec<OwnerSums> = sqlx::query_as(query).fetch_all(&mut *tx).await?;
                sums.extend(rows.into_iter().map(|OwnerSums { owner, spent, leased }| {
                    ((noun, owner), (spent, leased))
                }));
            }
            let unrecorded = sqlx::query_scalar(UNRECORDED).bind(MAX_LISTED as i64);
            let unrecorded: Vec<String> = unrecorded.fetch_all(&mut *tx).await?;
            findings.violations.extend(unrecorded.into_iter().map(|id| {
                format!("key {id}: its terms are not those of its last recorded change")
            }));
            let rows: Vec<ChangeRow> = sqlx::query_as(CHANGES).fetch_all(&mut *tx).await?;
            for history in histories(rows, &sums)? {
                let TermHistory { noun, scope, kind, owner, intervals, .. } = &history;
                findings.violations.extend(history.above_every_cap());
                let passed: Vec<(TermInterval, Money)> = history.passed_caps().collect();
                let pairs = intervals.iter().zip(intervals.iter().skip(1));
                let tighter: Vec<TermInterval> = pairs
                    .filter(|(before, now)| now.is_tighter_than(before))
                    .map(|(_, now)| *now)
                    .collect();
                // The last call that was admitted under each passed cap, and the calls just after each
                // tighter one. Calls of a node that died, the only ones with corrections, are paid from
                // later room too, so the first leaves them out. The sums of keys and usage, on which the
                // other checks rest, have the corrections in them.
                let mut lasts: Vec<Option<Micros>> = vec![None; passed.len()];
                let mut after_change = vec![StretchCalls::default(); tighter.len()];
                if !passed.is_empty() || !tighter.is_empty() {
                    each_call!(tx, (*kind, owner), call => {
                        let is_within = |begin: Micros, end: Micros| {
                            call.ended > begin && call.started > begin && call.started <= end
                        };
                        if call.cost > Money::ZERO && call.outcome != CallOutcome::Recovered {
                            for ((interval, _), last) in passed.iter().zip(&mut lasts) {
                                if is_within(interval.begin + EFFECT_TIME, interval.end) {
                                    *last = (*last).max(Some(call.started));
                                }
                            }
                        }
                        for (interval, sum) in tighter.iter().zip(&mut after_change) {
                            if is_within(interval.begin, interval.begin + EFFECT_TIME) {
                                let corrected = if call.knowledge.is_final() {
                                    0
                                } else {
                                    let cost = sqlx::query_scalar(CORRECTED_COST);
                                    cost.bind(&*call.request_id).fetch_one(&mut *tx).await?
                                };
                                let cost = call.cost.saturating_add(Money::from_nanos(corrected));
                                sum.calls += 1;
                                sum.cost = sum.cost.saturating_add(cost);
                            }
                        }
                    });
                }
                // Their cost up to that call.
                let mut sums = vec![Money::ZERO; passed.len()];
                if lasts.iter().any(Option::is_some) {
                    each_call!(tx, (*kind, owner), call => {
                        for (last, sum) in lasts.iter().zip(&mut sums) {
                            if call.outcome != CallOutcome::Recovered
                                && last.is_some_and(|last| call.started <= last)
                            {
                                *sum = sum.saturating_add(call.cost);
                            }
                        }
                    });
                }
                for (((TermInterval { begin, .. }, cap), last), sum) in
                    passed.into_iter().zip(lasts).zip(sums)
                {
                    let Some(last) = last.filter(|_| sum > cap) else { continue };
                    let text = format!(
                        "{noun} {owner}: a call was admitted at {}, when {sum} USD were spent or \
                         reserved, above the cap of {cap} USD that is in force since {}",
                        time_text(last),
                        time_text(begin)
                    );
                    if last <= begin + LEASE_DURATION {
                        // Only a node that did not reach the store uses a lease for so long.
                        findings.notes.push(format!("{text}, by a node that was cut off"));
                    } else {
                        findings.violations.push(text);
                    }
                }
                let budgets = intervals.iter().filter(|one| one.budget.is_some());
                if let Some(first) = budgets.map(|one| one.begin).min() {
                    // A month may have begun before the first change.
                    let since = first - Micros::from_days(31);
                    let days: Vec<(i64, i64)> = sqlx::query_as(DAYS)
                        .bind(scope.word())
                        .bind(owner)
                        .bind(since.get())
                        .fetch_all(&mut *tx)
                        .await?;
                    let days = days.into_iter();
                    let days = days.map(|(begun, cost)| (Micros::new(begun), Money::from_nanos(cost)));
                    findings.violations.extend(history.passed_budgets(&days.collect()));
                }
                for (tighter, StretchCalls { calls, cost }) in tighter.iter().zip(after_change) {
                    changes.push((tighter.begin, format!(
                        "{noun} {owner}: its terms were lowered at {}; in the two seconds after that \
                         {calls} calls for {cost} USD were admitted",
                        time_text(tighter.begin)
                    )));
                }
            }
        });
        findings.violations.truncate(MAX_LISTED);
        // The latest changes.
        changes.sort();
        let listed = changes.into_iter().rev().take(MAX_LISTED).map(|(_, text)| text);
        findings.notes.extend(listed);
        Ok(findings)
    }
}
