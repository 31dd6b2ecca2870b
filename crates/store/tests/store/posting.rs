//! Posting: exactly once, atomically, with sums that always agree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{
    BudgetPeriod, CallError, CallOutcome, ChargeReason, Clock as _, LedgerEntry,
    SettlementKnowledge, SystemClock,
};
use proptest::prelude::*;
use store::{
    BudgetTerms, CallFilter, CallPosting, EntryFilter, KeyRecord, KeyTotal, ObjectOwner, Store,
    SumGroup, UsageFilter, UsageStep,
};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{any_entry, check, entry, id, some_key};
use crate::test_database::{TestDatabase, run};

on_both!(
    any_entry_is_stored_completely,
    texts_that_are_stored_alike_are_one_owner,
    calls_with_the_same_number_are_different_calls,
    any_overlapping_batches_charge_every_call_once,
    eight_concurrent_overlapping_batches_charge_every_call_once,
    eight_batches_in_opposite_orders_never_deadlock,
    sums_agree_at_every_instant,
    a_batch_larger_than_one_statement_is_posted_whole,
    of_equal_knowledge_the_first_record_is_kept,
    better_knowledge_corrects_in_any_order_and_any_number_of_times,
    a_correction_moves_usage_and_keeps_the_cap,
    a_correction_keeps_the_budget_of_the_day_of_its_call,
    corrections_cannot_be_changed_and_are_verified,
    a_failed_batch_has_no_effect,
    a_call_of_an_unknown_key_is_recorded_and_shown,
);

/// Returns the sums of every key by id. Fails if a key's record and its rows disagree.
async fn agreed(store: &Store) -> BTreeMap<String, (i64, Money)> {
    let totals = store.totals().await.unwrap();
    let mut sums = BTreeMap::new();
    for KeyTotal { key_id, rows, cost, spent } in totals {
        assert_eq!(cost, spent, "key {key_id}");
        assert_eq!(sums.insert(key_id, (rows, cost)), None, "a key is listed once");
    }
    sums
}

async fn any_entry_is_stored_completely(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let clean = |text: &str| text.replace('\0', "\u{fffd}");
    check(96, any_entry(), |posted| async {
        assert_eq!(store.post(std::slice::from_ref(&posted)).await.unwrap(), 1);
        let found = store.entry(&posted.request_id).await.unwrap().unwrap();
        let error = posted.error.as_deref().map(|CallError { code, field, message }| {
            let [code, field, message] = [code, field, message].map(|text| clean(text));
            Box::new(CallError { code, field, message })
        });
        // NUL is the only character that is not stored.
        let expected = LedgerEntry {
            key_id: clean(&posted.key_id).into(),
            account_id: clean(&posted.account_id).into(),
            dialect: clean(&posted.dialect).into(),
            model: clean(&posted.model).into(),
            lane: clean(&posted.lane).into(),
            price_version: clean(&posted.price_version).into(),
            service: clean(&posted.service).into(),
            session: clean(&posted.session).into(),
            end_user: clean(&posted.end_user).into(),
            error,
            ..posted
        };
        assert_eq!(found, expected);
    });
    assert_eq!(store.entry("none").await.unwrap(), None);
    store.close().await;
}

async fn texts_that_are_stored_alike_are_one_owner(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let of = |id: &str, model: &str| LedgerEntry { model: model.into(), ..entry(id, &key, 1, 5) };
    store.post(&[of("a", "m\0"), of("b", "m\u{fffd}"), of("c", "m")]).await.unwrap();
    for (model, ids) in [("m\0", &["b", "a"][..]), ("m\u{fffd}", &["b", "a"]), ("m", &["c"])] {
        let filter = CallFilter { model: Some(model.to_owned()), ..CallFilter::default() };
        let page = store.entries(&filter.into(), 5).await.unwrap();
        assert!(page.iter().map(|call| &call.request_id).eq(ids), "{page:?}");
    }
    is_proved(&store).await;
    store.close().await;
}

async fn calls_with_the_same_number_are_different_calls(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    // The time and the last digits are the same.
    let id = |n: i64| format!("req_0065f0a1b2c3d00000000000{n:02}800");
    let calls: Vec<LedgerEntry> = (0..6).map(|n| entry(&id(n), &key, 1 << n, 5)).collect();
    for batch in [&calls[..1], &calls[1..2], &calls[..4], &calls[2..]] {
        store.post(batch).await.unwrap();
        assert_eq!(store.post(batch).await.unwrap(), 0, "each is posted once");
    }
    for call in &calls {
        assert_eq!(store.entry(&call.request_id).await.unwrap().as_ref(), Some(call));
    }
    assert_eq!(store.entry(&id(7)).await.unwrap(), None);
    assert_eq!(agreed(&store).await[&key.id], (6, Money::from_nanos(63)));
    is_proved(&store).await;
    store.close().await;
}

async fn any_overlapping_batches_charge_every_call_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = (0..40_usize, 0..3_usize);
    let batches = prop::collection::vec(prop::collection::vec(call, 0..30), 1..8);
    check(24, batches, |batches| async {
        let keys = [some_key(&store).await, some_key(&store).await, some_key(&store).await];
        let run = id();
        let (mut seen, mut expected) = (BTreeSet::new(), BTreeMap::new());
        for batch in batches {
            let entries: Vec<LedgerEntry> = batch
                .iter()
                .map(|&(n, k)| {
                    entry(&format!("{run}-{k}-{n}"), &keys[k], n as i64, 1000 - n as i64)
                })
                .collect();
            let new: BTreeSet<_> = batch.iter().filter(|call| !seen.contains(*call)).collect();
            assert_eq!(store.post(&entries).await.unwrap(), new.len());
            for &&(n, k) in &new {
                let (cost, last) = expected.entry(k).or_insert((0, 0));
                *cost += n as i64;
                *last = 1000_i64.saturating_sub(n as i64).max(*last);
            }
            let new: Vec<_> = new.into_iter().copied().collect();
            seen.extend(new);
        }
        for (k, key) in keys.iter().enumerate() {
            let stored = store.key(&key.id).await.unwrap().unwrap();
            let (cost, last) = match expected.get(&k) {
                Some(&(cost, last)) => (cost, Some(last)),
                None => (0, None),
            };
            assert_eq!(
                (stored.spent, stored.last_used),
                (Money::from_nanos(cost), last.map(Micros::new))
            );
        }
        agreed(&store).await;
    });
    store.close().await;
}

/// Returns the calls `from..to`, spread over the keys. Call `n` costs `n`.
fn calls(keys: &[KeyRecord], from: usize, to: usize) -> Vec<LedgerEntry> {
    (from..to)
        .map(|n| entry(&format!("call-{n:05}"), &keys[n % keys.len()], n as i64, n as i64))
        .collect()
}

async fn eight_concurrent_overlapping_batches_charge_every_call_once(database: Arc<TestDatabase>) {
    // Two stores act as two nodes, or as a server and a command.
    let stores = [database.open().await, database.open().await];
    let mut keys = Vec::new();
    for _ in 0..7 {
        keys.push(some_key(&stores[0]).await);
    }
    let mut tasks = JoinSet::new();
    for task in 0..8_usize {
        let (store, keys) = (stores[task % 2].clone(), keys.clone());
        tasks.spawn(async move {
            let mut new = 0;
            for step in 0..10 {
                // Every task posts the same calls, from another start and in another order.
                let from = (step * 137 + task * 61) % 900;
                let mut batch = calls(&keys, from, from + 100);
                if task % 2 == 1 {
                    batch.reverse();
                }
                new += store.post(&batch).await.unwrap();
            }
            new + store.post(&calls(&keys, task * 125, task * 125 + 125)).await.unwrap()
        });
    }
    let new: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(new, 1000, "each call was new to exactly one");
    let sums = agreed(&stores[1]).await;
    for (k, key) in keys.iter().enumerate() {
        let mine = || (0..1000).filter(|n| n % keys.len() == k);
        let cost = mine().sum::<usize>() as i64;
        assert_eq!(sums[&key.id], (mine().count() as i64, Money::from_nanos(cost)));
        let stored = stores[0].key(&key.id).await.unwrap().unwrap();
        assert_eq!(stored.last_used, mine().max().map(|n| n as i64).map(Micros::new));
    }
    for store in stores {
        store.close().await;
    }
}

async fn eight_batches_in_opposite_orders_never_deadlock(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = [some_key(&store).await, some_key(&store).await, some_key(&store).await];
    for round in 0..6 {
        let start = Arc::new(Barrier::new(8));
        let mut tasks = JoinSet::new();
        for task in 0..8 {
            let (store, start) = (store.clone(), start.clone());
            let mut batch = calls(&keys, round * 300, round * 300 + 300);
            if task % 2 == 1 {
                batch.reverse();
            }
            tasks.spawn(async move {
                start.wait().await;
                store.post(&batch).await.unwrap()
            });
        }
        assert_eq!(tasks.join_all().await.into_iter().sum::<usize>(), 300);
    }
    assert_eq!(agreed(&store).await.values().map(|(rows, _)| rows).sum::<i64>(), 1800);
    store.close().await;
}

async fn sums_agree_at_every_instant(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = [some_key(&store).await, some_key(&store).await];
    let poster = tokio::spawn({
        let (store, keys) = (store.clone(), keys.clone());
        async move {
            for step in 0..40 {
                store.post(&calls(&keys, step * 10, step * 10 + 20)).await.unwrap();
            }
        }
    });
    while !poster.is_finished() {
        agreed(&store).await;
    }
    poster.await.unwrap();
    assert_eq!(agreed(&store).await.values().map(|(rows, _)| rows).sum::<i64>(), 410);
    store.close().await;
}

async fn a_batch_larger_than_one_statement_is_posted_whole(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = [some_key(&store).await];
    assert_eq!(store.post(&calls(&keys, 0, 1000)).await.unwrap(), 1000);
    assert_eq!(store.post(&calls(&keys, 500, 2500)).await.unwrap(), 1500);
    assert_eq!(store.post::<LedgerEntry>(&[]).await.unwrap(), 0);
    let sums = agreed(&store).await;
    assert_eq!(sums[&keys[0].id], (2500, Money::from_nanos((0..2500).sum())));
    store.close().await;
}

async fn of_equal_knowledge_the_first_record_is_kept(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (a, b) = (some_key(&store).await, some_key(&store).await);
    let first = entry("call", &a, 5, 50);
    assert_eq!(store.post(std::slice::from_ref(&first)).await.unwrap(), 1);
    assert_eq!(store.post(&[entry("call", &b, 9, 90)]).await.unwrap(), 0);
    assert_eq!(store.entry("call").await.unwrap(), Some(first));
    let sums = agreed(&store).await;
    assert_eq!(sums[&a.id], (1, Money::from_nanos(5)));
    assert_eq!(sums[&b.id], (0, Money::ZERO));
    store.close().await;
}

/// The settlements of one call: by another node, by its own journal, by its process.
fn settlements(request_id: &str, key: &KeyRecord) -> [LedgerEntry; 3] {
    let settled = LedgerEntry {
        held: Some(Money::from_nanos(100)),
        session: request_id.into(),
        ..entry(request_id, key, 70, 50)
    };
    let guess = |cost: i64, lane: &str, knowledge| LedgerEntry {
        cost: Money::from_nanos(cost),
        lane: lane.into(),
        status: 503,
        outcome: CallOutcome::Recovered,
        usage: canon::Usage { input: 1, output: cost as u64, ..canon::Usage::default() },
        estimated: true,
        ended: Micros::new(900),
        knowledge,
        ..settled.clone()
    };
    let reported = guess(5, "demo/other", SettlementKnowledge::Reported);
    [reported, guess(90, "demo/chat", SettlementKnowledge::Journal), settled]
}

async fn is_proved(store: &Store) {
    let (proofs, _) = store.verify().await.unwrap();
    for proof in proofs {
        assert!(proof.violations.is_empty(), "{proof:?}");
    }
}

async fn better_knowledge_corrects_in_any_order_and_any_number_of_times(
    database: Arc<TestDatabase>,
) {
    let store = database.open().await;
    let order = prop::collection::vec((0..3_usize, any::<bool>()), 1..8);
    let used = &store;
    check(48, order, |order| async move {
        let store = used;
        let (key, run) = (some_key(store).await, id());
        let all = settlements(&run, &key);
        let mut new = 0;
        let mut batch = Vec::new();
        for (which, is_last) in &order {
            batch.push(all[*which].clone());
            if *is_last {
                new += store.post(&std::mem::take(&mut batch)).await.unwrap();
            }
        }
        new += store.post(&batch).await.unwrap();
        assert_eq!(new, 1, "one call");
        // The best informed one decides, whatever came before and after.
        let best = &all[order.iter().map(|(which, _)| *which).max().unwrap()];
        let found = store.entry(&run).await.unwrap().unwrap();
        assert_eq!(found, LedgerEntry { ended: found.ended, ..best.clone() });
        assert_eq!(store.key(&key.id).await.unwrap().unwrap().spent, best.cost);
        let filter = CallFilter { key_id: Some(key.id.clone()), ..CallFilter::default() };
        let filter = EntryFilter::from(filter);
        assert_eq!(store.entries(&filter, 10).await.unwrap(), std::slice::from_ref(&found));
        assert_eq!(store.export_of(&filter, None, 10).await.unwrap(), std::slice::from_ref(&found));
        let mut postings = store.postings_of(std::slice::from_ref(&found)).await.unwrap();
        let postings = postings.remove(&run).unwrap_or_else(|| vec![CallPosting::first(&found)]);
        assert!(postings.is_sorted_by(|a, b| a.knowledge < b.knowledge), "{postings:?}");
        assert_eq!(postings.iter().map(|posting| posting.cost).sum::<Money>(), best.cost);
        assert_eq!(postings.last().map(|last| last.knowledge), Some(best.knowledge));
        // So do the sums of its session, at the lane of the best informed one alone.
        let owner = ObjectOwner::key(&key.account_id, &key.id);
        let parts = store.session_parts(Some(&owner), &run).await.unwrap();
        let parts: Vec<_> = parts
            .iter()
            .map(|part| (part.lane.as_str(), part.totals.calls, part.totals.cost))
            .collect();
        assert_eq!(parts, [(best.lane.as_str(), 1, best.cost)]);
        let listed = store.sessions_since(Some(&owner), Micros::new(i64::MIN), 10).await.unwrap();
        let listed: Vec<_> = listed.iter().map(|one| (&*one.session, one.totals.cost)).collect();
        assert_eq!(listed, [(run.as_str(), best.cost)]);
        let other = ObjectOwner::key(&key.account_id, "another key");
        assert!(store.session_parts(Some(&other), &run).await.unwrap().is_empty());
        let other = ObjectOwner::account("another account");
        assert!(store.session_parts(Some(&other), &run).await.unwrap().is_empty());
    });
    agreed(&store).await;
    is_proved(&store).await;
    store.close().await;
}

async fn a_correction_moves_usage_and_keeps_the_cap(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let capped = KeyRecord { cap: Some(Money::from_nanos(60)), changed: Micros::new(2), ..key };
    assert!(store.update_key(&capped).await.unwrap());
    let [reported, _, settled] = settlements("call", &capped);
    store.post(&[reported]).await.unwrap();
    store.post(&[settled]).await.unwrap();
    let found = store.entry("call").await.unwrap().unwrap();
    // The cap leaves 55 of the 65 that the call turned out to be dearer.
    assert_eq!((found.cost, found.absorbed), (Money::from_nanos(60), Money::from_nanos(10)));
    assert_eq!(found.reasons, [ChargeReason::BeyondCap]);
    let range = Micros::ZERO..Micros::from_days(1);
    let all = UsageFilter::default();
    for step in UsageStep::ALL {
        let used = store.usage_over(range.clone(), step, Some(SumGroup::Lane), &all).await.unwrap();
        let used: Vec<_> = used
            .iter()
            .map(|point| (&*point.group, point.used.calls, point.used.cost, point.used.output))
            .collect();
        assert_eq!(used, [("demo/chat", 1, Money::from_nanos(60), 20)], "{step:?}");
    }
    // One that turns out to be cheaper is refunded, and the cap has room again.
    let [_, journal, settled] = settlements("other", &capped);
    let journal = LedgerEntry { cost: Money::from_nanos(30), ..journal };
    let raised = KeyRecord { cap: Some(Money::from_nanos(95)), changed: Micros::new(3), ..capped };
    assert!(store.update_key(&raised).await.unwrap());
    store.post(&[journal]).await.unwrap();
    store.post(&[LedgerEntry { cost: Money::from_nanos(12), ..settled }]).await.unwrap();
    assert_eq!(agreed(&store).await[&raised.id], (2, Money::from_nanos(72)));
    is_proved(&store).await;
    store.close().await;
}

async fn a_correction_keeps_the_budget_of_the_day_of_its_call(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let (limit, period) = (Money::from_nanos(60), BudgetPeriod::Day);
    let budget = Some(BudgetTerms { limit, period });
    let limited = KeyRecord { budget, changed: Micros::new(2), ..key };
    assert!(store.update_key(&limited).await.unwrap());
    let today = SystemClock.now();
    for (id, day) in [("today", today), ("yesterday", today - Micros::from_days(1))] {
        let [reported, journal, settled] = settlements(id, &limited)
            .map(|settlement| LedgerEntry { started: day, ended: day, ..settlement });
        store.post(&[reported]).await.unwrap();
        // 60 of 90 can be paid, and 60 of 70.
        store.post(&[journal]).await.unwrap();
        store.post(&[settled]).await.unwrap();
        let found = store.entry(id).await.unwrap().unwrap();
        assert_eq!((found.cost, found.absorbed), (limit, Money::from_nanos(10)), "{id}");
        assert_eq!(found.reasons, [ChargeReason::BeyondCap]);
        assert_eq!(found.knowledge, SettlementKnowledge::Settled);
    }
    is_proved(&store).await;
    store.close().await;
}

async fn corrections_cannot_be_changed_and_are_verified(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    for settlement in settlements("call", &key) {
        store.post(&[settlement]).await.unwrap();
    }
    for sql in ["UPDATE corrections SET cost = 0", "DELETE FROM corrections"] {
        let said = database.try_execute_raw(sql).await.unwrap_err().to_string();
        assert!(said.contains("a settled call is never"), "{said}");
    }
    match &*database {
        TestDatabase::Sqlite { .. } => {
            database.execute_raw("DROP TRIGGER corrections_stay_as_they_are").await;
        }
        TestDatabase::Postgres { .. } => {
            let sql = "ALTER TABLE corrections DISABLE TRIGGER corrections_stay_as_they_are";
            database.execute_raw(sql).await;
        }
    }
    database.execute_raw("UPDATE corrections SET cost = cost + 1 WHERE number = 2").await;
    let (proofs, _) = store.verify().await.unwrap();
    let broken: Vec<&str> =
        proofs.iter().filter(|proof| !proof.violations.is_empty()).map(|proof| proof.law).collect();
    assert_eq!(broken, ["L1", "L7"]);
    store.close().await;
}

async fn a_failed_batch_has_no_effect(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (a, b) = (some_key(&store).await, some_key(&store).await);
    let both = [entry("a", &a, i64::MAX, 1), entry("b", &a, 1, 2), entry("c", &b, 1, 3)];
    assert!(store.post(&both).await.is_err(), "no such sum fits");
    assert_eq!(store.export(None, 10).await.unwrap(), []);
    store.post(&both[..1]).await.unwrap();
    assert!(store.post(&both).await.is_err(), "nor does it fit the key");
    let sums = agreed(&store).await;
    assert_eq!(sums[&a.id], (1, Money::from_nanos(i64::MAX)));
    assert_eq!(sums[&b.id], (0, Money::ZERO));
    store.close().await;
}

async fn a_call_of_an_unknown_key_is_recorded_and_shown(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let stranger = KeyRecord { id: "stranger".to_owned(), ..key.clone() };
    let batch = [entry("a", &stranger, 5, 1), entry("b", &key, 7, 2)];
    assert_eq!(store.post(&batch).await.unwrap(), 2);
    let totals = store.totals().await.unwrap();
    let total = |key_id: &str, cost, spent| KeyTotal {
        key_id: key_id.to_owned(),
        rows: 1,
        cost: Money::from_nanos(cost),
        spent: Money::from_nanos(spent),
    };
    let mut expected = [total("stranger", 5, 0), total(&key.id, 7, 7)];
    expected.sort_by(|a, b| a.key_id.cmp(&b.key_id));
    assert_eq!(totals, expected);
    store.close().await;
}

#[test]
fn a_transaction_that_sqlite_ended_itself_does_not_stop_later_ones() {
    run(TestDatabase::sqlite(), async |database| {
        let store = database.open().await;
        let key = some_key(&store).await;
        let batch = [entry("a", &key, 7, 1)];
        // SQLite ends the transaction, as it does when the disk is full.
        let trigger = "CREATE TRIGGER full BEFORE INSERT ON call_blocks \
                       BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END";
        database.execute_raw(trigger).await;
        for _ in 0..3 {
            let error = store.post(&batch).await.unwrap_err();
            assert!(error.to_string().contains("disk is full"), "{error}");
        }
        database.execute_raw("DROP TRIGGER full").await;
        assert_eq!(store.post(&batch).await.unwrap(), 1);
        assert_eq!(agreed(&store).await[&key.id], (1, Money::from_nanos(7)));
        store.close().await;
    });
}
