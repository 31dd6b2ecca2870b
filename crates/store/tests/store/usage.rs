//! Usage: summed as calls are posted, equal to the calls at every instant.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{CallOutcome, LedgerEntry};
use proptest::prelude::*;
use store::{
    Account, CallFilter, EntryFilter, GroupBy, GroupOrder, KeyRecord, LatencyTotals, ReportTotals,
    StatusFilter, Store, SumGroup, UsageFilter, UsagePoint, UsageReport, UsageRequest, UsageStep,
};

use crate::archive::archive;
use crate::expected_usage::{BEGIN, DAY, HOUR, call, expected, fits, full_call};
use crate::on_both;
use crate::samples::{account, check, entry, id, key, some_key};
use crate::test_database::{OldSchema, TestDatabase};

on_both!(
    usage_of_any_batches_equals_the_calls,
    a_call_cut_by_its_cap_adds_the_paid_amount,
    the_migration_sums_earlier_calls,
    rows_of_an_earlier_schema_become_blocks,
    groups_are_ranked,
    a_divided_hour_without_its_calls_counts_whole,
    absurd_values_do_not_block_posting,
    every_invariant_is_verified_and_every_violation_is_found,
    a_settled_call_cannot_be_changed_or_deleted,
);

fn told(points: &[UsagePoint]) -> BTreeMap<(Micros, String), (i64, i64, Micros)> {
    let told = points.iter().map(|UsagePoint { begun, group, used }| {
        ((*begun, group.clone()), (used.calls, used.cost.as_nanos(), used.took))
    });
    told.collect()
}

/// Makes a report with two groups, one of them over time.
async fn look(
    store: &Store,
    range: Range<Micros>,
    steps: Vec<Micros>,
    by: GroupBy,
    filter: &CallFilter,
) -> UsageReport {
    let filter = filter.clone();
    let rank = GroupOrder::Cost;
    let tag = Some("team".to_owned());
    let request = UsageRequest { range, steps, by, tag, rank, filter, listed: 2, with_series: 1 };
    store.usage_view(&request).await.unwrap()
}

/// Checks that the series of the report add up to its total.
fn adds_up(view: &UsageReport) {
    let over = view.series.iter().map(|point| &point.used);
    let all: Vec<&ReportTotals> = over.chain(view.others.iter().map(|(_, used)| used)).collect();
    assert_eq!(all.iter().map(|used| used.calls).sum::<i64>(), view.all.calls, "{view:?}");
    assert_eq!(all.iter().map(|used| used.cost).sum::<Money>(), view.all.cost, "{view:?}");
    assert_eq!(all.iter().map(|used| used.output).sum::<i64>(), view.all.output, "{view:?}");
    let count = |(_, latencies): &(Micros, LatencyTotals)| latencies.took.count();
    assert_eq!(view.latency_series.iter().map(count).sum::<i64>(), view.all.calls, "{view:?}");
    assert_eq!(view.latencies.took.count(), view.all.calls, "{view:?}");
}

/// The dimensions of the sums, with those of a report.
fn groups() -> Vec<(Option<SumGroup>, Option<GroupBy>)> {
    let groups = SumGroup::ALL.map(|by| {
        let group = match by {
            SumGroup::Account => GroupBy::Account,
            SumGroup::Key => GroupBy::Key,
            SumGroup::Model => GroupBy::Model,
            SumGroup::Lane => GroupBy::Lane,
            SumGroup::Status => GroupBy::Status,
        };
        (Some(by), Some(group))
    });
    groups.into_iter().chain([(None, None)]).collect()
}

async fn proved(store: &Store) {
    let (proofs, _) = store.verify().await.unwrap();
    for proof in proofs {
        assert!(proof.violations.is_empty(), "{proof:?}");
    }
}

async fn usage_of_any_batches_equals_the_calls(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let batches = prop::collection::vec(prop::collection::vec(0..60_usize, 0..30), 1..6);
    let filter = (
        prop::option::of(0..3_usize),
        prop::option::of(0..3_usize),
        prop::option::of("m[0-3]"),
        prop::option::of("p[0-2](/l[0-3])?"),
        prop::option::of(prop::sample::select(vec!["200", "503", "5xx", "4xx"])),
    );
    let later = (
        prop::option::of(prop::sample::select(vec!["chat", "native", "images"])),
        prop::option::of(prop::sample::select(vec!["run", "none"])),
        prop::option::of(prop::sample::select(vec!["timeout", "none"])),
        prop::option::of(0..200_i64),
        prop::option::of(prop::sample::select(vec![0, 700_000, 3_600_000_000_i64])),
        prop::option::of(prop::sample::select(vec!["done", "failed"])),
        prop::option::of(prop::sample::select(vec!["ann", "bob"])),
        prop::option::of(prop::sample::select(vec!["team", "team=t1", "beta", "beta=1"])),
    );
    // Within an hour there are calls before and after some of these times.
    let within = prop::sample::select(vec![0, 1, 17, 30, 1_800_000_000, 2_700_000_000_i64]);
    let range = (0..80_i64, 1..80_i64, within);
    let store = &store;
    check(10, (batches, filter, later, range), |(batches, filter, later, range)| async move {
        let keys = [some_key(store).await, some_key(store).await, some_key(store).await];
        let run = id();
        let mut posted = BTreeSet::new();
        for batch in &batches {
            let calls: Vec<LedgerEntry> =
                batch.iter().map(|n| full_call(&run, *n, &keys)).collect();
            store.post(&calls).await.unwrap();
            posted.extend(batch.iter().copied());
        }
        let calls: Vec<LedgerEntry> = posted.iter().map(|n| full_call(&run, *n, &keys)).collect();
        let (of_account, of_key, model, lane, status) = filter;
        let (format, session, error, min_cost, min_took, end, end_user, tag) = later;
        let offset = range.2;
        // Other runs share the tables, so queries are restricted to keys of this one.
        for which in 0..keys.len() {
            let key = &keys[of_key.unwrap_or(which)];
            let filter = CallFilter {
                account_id: of_account.map(|_| key.account_id.clone()),
                key_id: (of_account.is_none() || of_key.is_some()).then(|| key.id.clone()),
                model: model.clone(),
                lane: lane.clone(),
                status: status.and_then(StatusFilter::by_word),
                ..CallFilter::default()
            };
            let sums = filter.on_sums().unwrap();
            for step in UsageStep::ALL {
                for (by, group) in groups() {
                    let range = BEGIN..BEGIN + 3 * DAY;
                    let points = store.usage_over(range.clone(), step, by, &sums).await.unwrap();
                    let paces = store.latencies_over(range, step, by, &sums).await.unwrap();
                    assert_eq!(paces.len(), points.len());
                    for (point, pace) in points.iter().zip(paces) {
                        assert_eq!((pace.begun, &pace.group), (point.begun, &point.group));
                        assert_eq!(pace.used.took.count(), point.used.calls);
                        assert!(pace.used.waited.count() <= point.used.calls);
                    }
                    let wanted = expected(&calls, |at| step.begin(at), group, &filter);
                    assert_eq!(told(&points), wanted, "{step:?} {by:?}");
                }
            }
            let narrow = CallFilter {
                format: format.map(str::to_owned),
                session: session.map(str::to_owned),
                end_user: end_user.map(str::to_owned),
                tag: tag.map(str::to_owned),
                error: error.map(str::to_owned),
                min_cost: min_cost.map(Money::from_nanos),
                min_took: min_took.map(Micros::new),
                status: end.and_then(StatusFilter::by_word).or(filter.status),
                ..filter.clone()
            };
            // Sums by hour, day and month agree for every grouping, and with the calls themselves.
            let whole = BEGIN + Micros::new(1)..BEGIN + 40 * DAY;
            let first = BEGIN - DAY + range.0 * HOUR + Micros::new(range.2);
            let part = first..first + range.1 * HOUR;
            for filter in [&filter, &narrow] {
                for range in [&whole, &part] {
                    reports_equal_the_calls(store, &calls, filter, range, Micros::new(offset))
                        .await;
                }
            }
        }
    });
    proved(store).await;
    let everyone = CallFilter::default();
    let used =
        look(store, Micros::ZERO..BEGIN + 400 * DAY, vec![Micros::ZERO], GroupBy::Key, &everyone)
            .await
            .all;
    let rows = store.totals().await.unwrap();
    assert_eq!(used.calls, rows.iter().map(|row| row.rows).sum::<i64>());
    assert_eq!(used.cost, rows.iter().map(|row| row.cost).sum::<Money>());
    store.close().await;
}

/// Checks the reports on a selection with every step and group, and its list. Steps of UTC are tried, and days that
/// begin so much later.
async fn reports_equal_the_calls(
    store: &Store,
    calls: &[LedgerEntry],
    filter: &CallFilter,
    range: &Range<Micros>,
    offset: Micros,
) {
    let began: Vec<LedgerEntry> =
        calls.iter().filter(|call| range.contains(&call.started)).cloned().collect();
    let all = expected(&began, |_| Micros::ZERO, None, filter);
    let all = all.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let first = UsageStep::Day.begin(range.start) - DAY + offset;
    let days = (0..43).map(|day| first + day * DAY).collect();
    for steps in UsageStep::ALL.map(|step| step.begins(range)).into_iter().chain([days]) {
        let step_of = |at: Micros| *steps.iter().rfind(|step| **step <= at).unwrap();
        for by in GroupBy::ALL {
            let view = look(store, range.clone(), steps.clone(), by, filter).await;
            let told = (view.all.calls, view.all.cost.as_nanos());
            assert_eq!(told, all, "{by:?} {filter:?} {range:?} {offset}");
            assert_eq!(view.whole_hours, [] as [Micros; 0]);
            adds_up(&view);
            let wanted = expected(&began, step_of, Some(by), filter);
            for UsagePoint { begun, group, used } in view.series {
                let sum = wanted.get(&(begun, group)).map(|sum| (sum.0, sum.1));
                assert_eq!(sum, Some((used.calls, used.cost.as_nanos())), "{by:?} {offset}");
            }
        }
    }
    let selected = EntryFilter { began: Some(range.clone()), ..EntryFilter::from(filter.clone()) };
    let listed = store.export_of(&selected, None, 1_000).await.unwrap();
    let ids: BTreeSet<&str> = listed.iter().map(|call| &*call.request_id).collect();
    let wanted = began.iter().filter(|call| fits(filter, call));
    assert_eq!(ids, wanted.map(|call| &*call.request_id).collect(), "{filter:?} {range:?}");
    let newest = store.entries(&selected, 1_000).await.unwrap();
    assert!(newest.iter().rev().eq(&listed), "{filter:?} {range:?}");
}

async fn a_call_cut_by_its_cap_adds_the_paid_amount(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let capped =
        KeyRecord { cap: Some(Money::from_nanos(10)), changed: Micros::new(2), ..key.clone() };
    assert!(store.update_key(&capped).await.unwrap());
    let calls = [entry("a", &key, 8, BEGIN.get()), entry("b", &key, 8, BEGIN.get())];
    assert_eq!(store.post(&calls).await.unwrap(), 2);
    assert_eq!(store.post(&calls).await.unwrap(), 0);
    let range = BEGIN - DAY..BEGIN + DAY;
    let used =
        look(&store, range.clone(), vec![range.start], GroupBy::Model, &CallFilter::default())
            .await
            .all;
    assert_eq!(
        (used.calls, used.cost, used.absorbed),
        (2, Money::from_nanos(10), Money::from_nanos(6))
    );
    store.close().await;
}

async fn the_migration_sums_earlier_calls(database: Arc<TestDatabase>) {
    // Before sums were kept. The calls are summed by migrations.
    database.migrate_to(5).await;
    let keys = ["early 1", "early 2"];
    let keys = keys.map(|id| KeyRecord { id: id.to_owned(), ..key("early account") });
    let calls: Vec<LedgerEntry> = (0..300).map(|n| call("early", n, &keys)).collect();
    database.insert_old_rows(&calls, OldSchema::First).await;
    let store = database.open().await;
    // The same calls of other keys are summed as they are posted.
    let later = [some_key(&store).await, some_key(&store).await];
    let posted: Vec<LedgerEntry> = (0..300).map(|n| call("later", n, &later)).collect();
    store.post(&posted).await.unwrap();
    let range = BEGIN - 300 * DAY..BEGIN + 65 * DAY;
    for (early, later) in keys.iter().zip(&later) {
        for step in UsageStep::ALL {
            for by in [None, Some(SumGroup::Model), Some(SumGroup::Lane), Some(SumGroup::Status)] {
                let filters = [early, later].map(|key| UsageFilter {
                    key_id: Some(key.id.clone()),
                    ..UsageFilter::default()
                });
                let [early, later] = &filters;
                let used = store.usage_over(range.clone(), step, by, early).await.unwrap();
                assert!(!used.is_empty());
                let again = store.usage_over(range.clone(), step, by, later).await.unwrap();
                assert_eq!(used, again);
                let paces = store.latencies_over(range.clone(), step, by, early).await.unwrap();
                let again = store.latencies_over(range.clone(), step, by, later).await.unwrap();
                assert_eq!(paces, again);
            }
        }
    }
    // The books balance once the keys are there.
    let owner = account("early");
    store.add_account(&Account { id: "early account".to_owned(), ..owner }).await.unwrap();
    for key in &keys {
        store.add_key(key).await.unwrap();
    }
    let totals = store.totals().await.unwrap();
    for total in totals.iter().filter(|total| total.key_id.starts_with("early")) {
        let spent = total.cost.as_nanos();
        let sql = format!("UPDATE keys SET spent = {spent} WHERE id = '{}'", total.key_id);
        database.execute_text(sql).await;
    }
    proved(&store).await;
    store.close().await;
}

async fn rows_of_an_earlier_schema_become_blocks(database: Arc<TestDatabase>) {
    database.migrate_to(28).await;
    let key = key("an account");
    let mut calls: Vec<LedgerEntry> =
        (0..700).map(|n| call("row", n, std::slice::from_ref(&key))).collect();
    let full = LedgerEntry {
        failed: vec![ledger::FailedAttempt { lane: "l'9".into(), ..Default::default() }],
        losses: vec!["part.seal".to_owned()],
        service: "flex".into(),
        told: Some(Box::new(canon::Usage { output: 4, ..canon::Usage::default() })),
        reasons: ledger::ChargeReason::ALL.to_vec(),
        knowledge: ledger::SettlementKnowledge::Journal,
        ended_by: ledger::EndedBy::Deadline,
        held: None,
        ..calls[7].clone()
    };
    calls[7] = full;
    let (rows, later) = calls.split_at(600);
    database.insert_old_rows(rows, OldSchema::Last).await;
    let store = database.open().await;
    let filter = CallFilter { key_id: Some(key.id.clone()), ..CallFilter::default() };
    let filter = EntryFilter::from(filter);
    let in_order = |calls: &[LedgerEntry]| {
        let mut calls = calls.to_vec();
        calls.sort_by(|a, b| (a.ended, &a.request_id).cmp(&(b.ended, &b.request_id)));
        calls
    };
    assert_eq!(store.export_of(&filter, None, 1_000).await.unwrap(), in_order(rows));
    for row in rows.iter().step_by(50) {
        assert_eq!(store.entry(&row.request_id).await.unwrap().as_ref(), Some(row));
    }
    // No call is posted again.
    let known: Vec<LedgerEntry> =
        rows.iter().filter(|row| row.knowledge.is_final()).cloned().collect();
    assert_eq!(store.post(&known).await.unwrap(), 0);
    store.close().await;
    // A process that was killed meanwhile left some rows.
    database.insert_old_rows(later, OldSchema::Left).await;
    let store = database.open().await;
    assert_eq!(store.export(None, 1_000).await.unwrap(), in_order(&calls));
    store.close().await;
}

async fn groups_are_ranked(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = [some_key(&store).await, some_key(&store).await, some_key(&store).await];
    let calls: Vec<LedgerEntry> = (0..50).map(|n| call("top", n * n, &keys)).collect();
    store.post(&calls).await.unwrap();
    let range = BEGIN..BEGIN + 3 * DAY;
    let all = CallFilter::default();
    for by in GroupBy::ALL {
        for rank in [GroupOrder::Cost, GroupOrder::Calls, GroupOrder::Tokens] {
            let wish = UsageRequest {
                range: range.clone(),
                steps: UsageStep::Hour.begins(&range),
                by,
                tag: None,
                rank,
                filter: all.clone(),
                listed: 2,
                with_series: 1,
            };
            let view = store.usage_view(&wish).await.unwrap();
            adds_up(&view);
            assert!(view.series.iter().all(|point| point.group == view.top[0].0));
            let top = view.top;
            let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
            for ((_, group), (calls, cost, _)) in expected(&calls, |_| BEGIN, Some(by), &all) {
                let sum = sums.entry(group).or_default();
                *sum = (sum.0 + calls, sum.1 + cost);
            }
            let of = |used: &ReportTotals| match rank {
                GroupOrder::Cost => used.cost.as_nanos(),
                GroupOrder::Calls => used.calls,
                GroupOrder::Tokens => used.input + used.output,
            };
            assert!(top.len() == sums.len().min(2) && top.is_sorted_by_key(|(_, used)| -of(used)));
            for (name, used) in &top {
                assert_eq!(
                    sums.get(name),
                    Some(&(used.calls, used.cost.as_nanos())),
                    "{by:?} {name}"
                );
            }
        }
        assert_eq!(GroupBy::by_word(by.word()), Some(by));
    }
    for range in [Micros::ZERO..DAY, DAY..DAY] {
        let none = look(&store, range.clone(), vec![range.start], GroupBy::Key, &all).await;
        assert_eq!(none, UsageReport::default());
    }
    store.close().await;
}

async fn a_divided_hour_without_its_calls_counts_whole(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let half = Micros::from_secs(1_800);
    // Each one took ten microseconds.
    let calls: Vec<LedgerEntry> = [0, 1_799, 1_800, 3_599, 3_600, 7_100]
        .into_iter()
        .map(|second| {
            entry(&format!("part {second}"), &key, 1, BEGIN.get() + second * 1_000_000 + 10)
        })
        .collect();
    store.post(&calls).await.unwrap();
    let filter = CallFilter { key_id: Some(key.id.clone()), ..CallFilter::default() };
    let report = |range: Range<Micros>, steps| look(&store, range, steps, GroupBy::Key, &filter);
    let (late, steps) = (BEGIN + half..BEGIN + 3 * HOUR, vec![BEGIN + half, BEGIN + 3 * half]);
    let by_step = |view: &UsageReport| -> Vec<(Micros, i64)> {
        view.series.iter().map(|point| (point.begun, point.used.calls)).collect()
    };
    let view = report(late.clone(), steps.clone()).await;
    assert_eq!((view.all.calls, view.whole_hours.len()), (4, 0));
    assert_eq!(by_step(&view), [(BEGIN + half, 3), (BEGIN + 3 * half, 1)]);
    adds_up(&view);
    assert_eq!(archive(&store, (BEGIN + DAY).get(), 100).await, 6);
    let view = report(late, steps).await;
    assert_eq!(view.whole_hours, [BEGIN + HOUR, BEGIN]);
    assert_eq!(view.all.calls, 6);
    assert_eq!(by_step(&view), [(BEGIN + half, 6)]);
    adds_up(&view);
    // Whole hours need no calls.
    let view = report(BEGIN + HOUR..BEGIN + 3 * HOUR, vec![BEGIN + HOUR]).await;
    assert_eq!((view.all.calls, view.whole_hours.len()), (2, 0));
    store.close().await;
}

async fn absurd_values_do_not_block_posting(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    for n in 0..3 {
        let mut absurd = entry(&format!("absurd {n}"), &key, 1, BEGIN.get());
        absurd.usage.input = u64::MAX;
        absurd.usage.output = i64::MAX as u64;
        absurd.absorbed = Money::MAX;
        absurd.first_byte_us = Some(Micros::MAX);
        absurd.ended = Micros::MAX;
        assert_eq!(store.post(&[absurd]).await.unwrap(), 1);
    }
    let range = BEGIN - DAY..BEGIN + DAY;
    let used =
        look(&store, range.clone(), vec![range.start], GroupBy::Model, &CallFilter::default())
            .await
            .all;
    assert_eq!((used.calls, used.cost), (3, Money::from_nanos(3)));
    proved(&store).await;
    store.close().await;
}

/// Returns the numbers of the violated invariants.
async fn broken(store: &Store) -> Vec<&'static str> {
    let (proofs, _) = store.verify().await.unwrap();
    assert_eq!(proofs.len(), 8);
    proofs.iter().filter(|proof| !proof.violations.is_empty()).map(|proof| proof.law).collect()
}

async fn every_invariant_is_verified_and_every_violation_is_found(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let plain = |id: &str| entry(id, &key, 5, BEGIN.get());
    let within = LedgerEntry { session: "a session".into(), ..plain("too") };
    store.post(&[plain("fine"), within]).await.unwrap();
    assert_eq!(broken(&store).await, [] as [&str; 0]);
    for (law, sql, undo) in [
        // The sums of sessions, as a whole and in their division.
        (
            "L1",
            "UPDATE call_sessions SET cost = cost + 1",
            "UPDATE call_sessions SET cost = cost - 1",
        ),
        (
            "L1",
            "UPDATE call_sessions SET thinking = thinking + 1",
            "UPDATE call_sessions SET thinking = thinking - 1",
        ),
        (
            "L1",
            "UPDATE call_sessions SET session = 'another session'",
            "UPDATE call_sessions SET session = 'a session'",
        ),
        ("L1", "UPDATE keys SET spent = spent + 1", "UPDATE keys SET spent = spent - 1"),
        ("L1", "UPDATE keys SET leased = 7", "UPDATE keys SET leased = 0"),
        (
            "L1",
            "UPDATE usage SET calls = calls + 1 WHERE span = 'day' AND scope = 'account'",
            "UPDATE usage SET calls = calls - 1 WHERE span = 'day' AND scope = 'account'",
        ),
        (
            "L1",
            "UPDATE usage SET cost = cost + 1 WHERE span = 'month' AND scope = 'key_sum'",
            "UPDATE usage SET cost = cost - 1 WHERE span = 'month' AND scope = 'key_sum'",
        ),
        (
            "L1",
            "UPDATE usage SET output = output + 1 WHERE span = 'hour' AND scope = 'all'",
            "UPDATE usage SET output = output - 1 WHERE span = 'hour' AND scope = 'all'",
        ),
        (
            "L3",
            "INSERT INTO call_owners (kind, owner, ended, block) SELECT kind, owner, 0, 0 \
             FROM call_owners WHERE kind = 1",
            "DELETE FROM call_owners WHERE block = 0",
        ),
        ("L2", "UPDATE term_changes SET cap = 9", "UPDATE term_changes SET cap = NULL"),
        (
            "L2",
            "UPDATE term_changes SET at = 0, budget = 9, budget_period = 'day'",
            "UPDATE term_changes SET budget = NULL, budget_period = NULL",
        ),
        (
            "L3",
            "INSERT INTO holds (request_id, node_id, key_id, amount, body) \
             VALUES ('lost', 'gone', 'k', 1, '')",
            "DELETE FROM holds",
        ),
    ] {
        if law == "L3" && sql.contains("holds") {
            // Only if another node could have settled it.
            database.execute_raw(sql).await;
            assert_eq!(broken(&store).await, [] as [&str; 0]);
            database
                .execute_raw(
                    "INSERT INTO nodes (id, epoch, seen) \
                     VALUES ('lives', 0, (SELECT now FROM store_clock))",
                )
                .await;
        } else {
            database.execute_raw(sql).await;
        }
        assert_eq!(broken(&store).await, [law], "{sql}");
        database.execute_raw(undo).await;
        assert_eq!(broken(&store).await, [] as [&str; 0], "{undo}");
    }
    // A lowered cap violates nothing, because no call was admitted since.
    database.execute_raw("UPDATE keys SET cap = 9").await;
    assert_eq!(broken(&store).await, [] as [&str; 0]);
    let (proofs, _) = store.verify().await.unwrap();
    assert!(proofs[1].notes.iter().any(|note| note.contains("lowered")), "{:?}", proofs[1]);
    // It does if it was lowered before the calls.
    database.execute_raw("UPDATE term_changes SET at = 0 WHERE cap IS NULL").await;
    let earlier = "UPDATE term_changes SET at = (SELECT MIN(ended) FROM call_blocks) - 60000000 \
                   WHERE cap = 9";
    database.execute_raw(earlier).await;
    assert_eq!(broken(&store).await, ["L2"]);
    database.execute_raw("UPDATE keys SET cap = NULL").await;
    database.execute_raw("DELETE FROM term_changes WHERE cap = 9").await;
    assert_eq!(broken(&store).await, [] as [&str; 0]);

    let bad: Vec<(&str, LedgerEntry)> = vec![
        ("L4", LedgerEntry { held: Some(Money::from_nanos(4)), ..plain("beyond") }),
        ("L5", LedgerEntry { attempts: 3, ..plain("untold") }),
        ("L5", LedgerEntry { lane: "".into(), ..plain("nobody's") }),
        ("L6", LedgerEntry { outcome: CallOutcome::Failed, ..plain("for nothing") }),
        ("L6", LedgerEntry { cost: Money::ZERO, ..plain("free") }),
        ("L8", LedgerEntry { price_version: "".into(), ..plain("unpriced") }),
    ];
    let mut found = BTreeSet::new();
    for (law, entry) in bad {
        store.post(&[entry]).await.unwrap();
        found.insert(law);
        assert_eq!(broken(&store).await, found.iter().copied().collect::<Vec<_>>());
    }
    match &*database {
        TestDatabase::Sqlite { .. } => database.execute_raw("DROP TRIGGER call_ids_stay").await,
        TestDatabase::Postgres { .. } => {
            database.execute_raw("ALTER TABLE call_ids DISABLE TRIGGER call_ids_stay").await;
        }
    }
    assert_eq!(broken(&store).await, ["L4", "L5", "L6", "L7", "L8"]);
    store.close().await;
}

async fn a_settled_call_cannot_be_changed_or_deleted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    store.post(&[entry("call", &key, 5, BEGIN.get())]).await.unwrap();
    for sql in [
        "UPDATE call_blocks SET ended = 0",
        "DELETE FROM call_blocks",
        "UPDATE call_ids SET block = 0",
        "DELETE FROM call_ids",
    ] {
        let said = database.try_execute_raw(sql).await.unwrap_err().to_string();
        assert!(said.contains("a settled call is never"), "{said}");
    }
    let page = store.entries(&EntryFilter::default(), 5).await.unwrap();
    assert_eq!(page, [entry("call", &key, 5, BEGIN.get())]);
    store.close().await;
}
