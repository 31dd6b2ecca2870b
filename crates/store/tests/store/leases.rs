//! Leases: no cap is exceeded by concurrent requests, late calls pay as far as there is room, and
//! other nodes settle the calls of a dead one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canon::{Micros, Money, Usage};
use ledger::{
    BoundState, CallOutcome, HeartbeatReport, HoldRecord, HoldRefusal, KeyBalance, LeaseClient,
    LeaseGrant, LeaseRequest, LeaseReturn, LeaseStore, LeaseStoreError, LeaseToken, LedgerEntry,
    MarkRaise, MemoryDisk, MoneyBounds, Node, OpenCall, OpenCalls, PostedMark, ProgressRecord,
    SettledCall, StoreRollback, SystemClock, UnleasedCost, UnreportedSpend,
};
use store::{KeyRecord, LeaseTotal, Store};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, entry, id, key};
use crate::test_database::TestDatabase;

on_both!(
    concurrent_nodes_never_lease_more_than_the_cap,
    returned_money_is_free_and_an_outdated_message_has_no_effect,
    calls_pay_from_their_lease_and_late_ones_as_far_as_there_is_room,
    a_lease_that_does_not_cover_a_call_pays_a_part_of_it,
    cost_of_calls_without_a_lease_is_not_leased,
    cost_of_calls_without_a_lease_at_another_node_is_not_leased,
    calls_of_a_dead_node_are_settled_once,
    unreported_spending_of_a_dead_node_stays_reserved,
    a_restored_database_and_a_forgotten_node_keep_no_money_aside,
    marks_only_rise_and_tokens_are_random,
    a_name_belongs_to_the_last_registered_process,
    a_shortage_recalls_leases_of_other_nodes,
    a_key_has_the_same_status_on_every_node,
    three_clients_spend_a_whole_cap_and_no_more,
    a_request_for_money_ends_while_another_process_keeps_a_lock,
);

async fn capped(store: &Store, cap: i64) -> KeyRecord {
    let owner = account(&id());
    store.add_account(&owner).await.unwrap();
    let record = KeyRecord { cap: Some(Money::from_nanos(cap)), ..key(&owner.id) };
    store.add_key(&record).await.unwrap();
    record
}

async fn enter(store: &Store, name: &str) -> Node {
    LeaseStore::enter(store, name).await.unwrap()
}

fn ask(node: &Node, key: &KeyRecord, full: i64, wish: i64) -> LeaseRequest {
    let (full, wish) = (Money::from_nanos(full), Money::from_nanos(wish));
    let (node, key_id) = (node.clone(), key.id.clone());
    LeaseRequest {
        node,
        key_id,
        least: full,
        full,
        hold: full,
        wish,
        unleased: UnleasedCost::default(),
        unreported: Money::ZERO,
        seq: 1,
        ahead: false,
    }
}

async fn a_lease_that_does_not_cover_a_call_pays_a_part_of_it(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 100).await;
    let node = enter(&store, "node").await;
    let (token, _, all) = lease(&store, &ask(&node, &key, 100, 100)).await;
    assert_eq!(all, 100);
    let calls = [settled("first", &key, 80, Some(token)), settled("second", &key, 60, Some(token))];
    LeaseStore::post(&store, &calls, None).await.unwrap();
    let second = store.entry("second").await.unwrap().unwrap();
    assert_eq!((second.cost.as_nanos(), second.absorbed.as_nanos()), (20, 40), "{second:?}");
    assert_eq!(sums(&store, &key).await, (100, 0));
    store.close().await;
}

/// A frozen process keeps its locks. What waits for them must not keep a connection for ever.
async fn a_request_for_money_ends_while_another_process_keeps_a_lock(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let node = enter(&store, "node").await;
    let frozen = database.lock_keys().await;
    // More than there are connections. Nobody waits for these any more.
    for _ in 0..20 {
        let left = Duration::from_millis(20);
        let request = ask(&node, &key, 1, 1);
        assert!(tokio::time::timeout(left, store.grant(&request)).await.is_err());
    }
    let refused = store.grant(&ask(&node, &key, 1, 1)).await;
    assert!(matches!(refused, Err(LeaseStoreError::Unreachable(_))), "{refused:?}");
    frozen.close().await;
    assert_eq!(lease(&store, &ask(&node, &key, 1, 1)).await.2, 1_000);
    store.close().await;
}

async fn cost_of_calls_without_a_lease_is_not_leased(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 100).await;
    let node = enter(&store, "node").await;
    // The calls of other keys of the account count against limits of the account only.
    let (own, all) = (Money::from_nanos(60), Money::from_nanos(5_000));
    let unleased = UnleasedCost { key: own, account: all };
    let (_, _, got) = lease(&store, &LeaseRequest { unleased, ..ask(&node, &key, 10, 10) }).await;
    assert_eq!(got, 40);
    let short = LeaseRequest { unleased, ..ask(&node, &key, 10, 10) };
    assert!(matches!(store.grant(&short).await.unwrap(), LeaseGrant::Short(_)));
    store.post(&[entry("late", &key, 60, 50)]).await.unwrap();
    assert_eq!(sums(&store, &key).await, (60, 40));
    store.close().await;
}

async fn cost_of_calls_without_a_lease_at_another_node_is_not_leased(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let (node, other) = (enter(&store, "node").await, enter(&store, "other").await);
    // It began before the key had a cap.
    let reply = heartbeat(&store, &other, vec![open_call("running", &key, None, None)]).await;
    assert!(reply.now > Micros::from_secs(1), "{reply:?}");
    let short = store.grant(&ask(&node, &key, 900, 900)).await.unwrap();
    assert!(matches!(short, LeaseGrant::Short(_)), "{short:?}");
    let (_, _, got) = lease(&store, &ask(&node, &key, 800, 800)).await;
    assert_eq!(got, 800);
    store.post(&[entry("running", &key, 200, 50)]).await.unwrap();
    assert_eq!(sums(&store, &key).await, (200, 800));
    store.close().await;
}

/// Requests a lease that must be granted.
async fn lease(store: &Store, ask: &LeaseRequest) -> (LeaseToken, i64, i64) {
    match store.grant(ask).await.unwrap() {
        LeaseGrant::Lease { token, version, amount } => (token, version, amount.as_nanos()),
        other => panic!("{other:?}"),
    }
}

async fn heartbeat(store: &Store, node: &Node, calls: Vec<OpenCall>) -> ledger::HeartbeatReply {
    store
        .heartbeat(&HeartbeatReport { node: node.clone(), calls, unreported: vec![], seq: 2 })
        .await
        .unwrap()
}

fn settled(request_id: &str, key: &KeyRecord, cost: i64, lease: Option<LeaseToken>) -> SettledCall {
    SettledCall { entry: Arc::new(entry(request_id, key, cost, 50)), lease, shown: true }
}

/// Returns the money spent by and leased to a key. Fails if the sum of its leases differs or its
/// cap is exceeded.
async fn sums(store: &Store, key: &KeyRecord) -> (i64, i64) {
    for total in store.totals().await.unwrap() {
        assert_eq!(total.cost, total.spent, "{total:?}");
    }
    let mut found = None;
    for total in store.lease_totals().await.unwrap() {
        let LeaseTotal { key_id, cap, spent, leased, leases } = total;
        assert_eq!(leased, leases, "key {key_id}");
        assert!(cap.is_none_or(|cap| spent.saturating_add(leased) <= cap), "key {key_id}");
        if key_id == key.id {
            found = Some((spent.as_nanos(), leased.as_nanos()));
        }
    }
    found.expect("a capped key is listed")
}

async fn concurrent_nodes_never_lease_more_than_the_cap(database: Arc<TestDatabase>) {
    let stores = [database.open().await, database.open().await];
    let key = capped(&stores[0], 10_000).await;
    let mut tasks = JoinSet::new();
    for task in 0..6_usize {
        let (store, key) = (stores[task % 2].clone(), key.clone());
        tasks.spawn(async move {
            let node = enter(&store, &format!("node{task}")).await;
            let mut got = 0;
            for step in 0..30_i64 {
                let wanted = ask(&node, &key, 37 + step * task as i64 % 90, 2_000);
                match store.grant(&wanted).await.unwrap() {
                    LeaseGrant::Lease { amount, .. } => got += amount.as_nanos(),
                    LeaseGrant::Short(_) => {}
                    LeaseGrant::Unlimited => panic!("it has a cap"),
                }
            }
            got
        });
    }
    let mut got = 0;
    while !tasks.is_empty() {
        sums(&stores[0], &key).await;
        while let Some(done) = tasks.try_join_next() {
            got += done.unwrap();
        }
    }
    let (spent, leased) = sums(&stores[1], &key).await;
    assert_eq!((spent, leased), (0, got));
    assert!((9_800..=10_000).contains(&leased), "{leased}");
    for store in stores {
        store.close().await;
    }
}

async fn returned_money_is_free_and_an_outdated_message_has_no_effect(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let node = enter(&store, "a").await;
    let (token, version, amount) = lease(&store, &ask(&node, &key, 10, 0)).await;
    assert_eq!((version, amount), (1, 1_000), "one alone gets everything");
    let back = |version, keep| LeaseReturn { token, version, keep: Money::from_nanos(keep) };
    store.take_back(&back(7, 0)).await.unwrap();
    store.take_back(&back(1, 2_000)).await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 1_000), "out of date, or nothing to give");
    store.take_back(&back(1, 300)).await.unwrap();
    store.take_back(&back(1, 300)).await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 300));
    let (again, version, amount) = lease(&store, &ask(&node, &key, 10, 0)).await;
    assert_eq!((again, version, amount), (token, 2, 700), "the same lease grows");
    store.take_back(&back(1, 0)).await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 1_000));
    store.take_back(&back(2, 0)).await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 0));
    let (other, ..) = lease(&store, &ask(&node, &key, 10, 0)).await;
    assert_ne!(other, token, "a token is never given twice");
    LeaseStore::leave(&store, &node).await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 0));
    store.close().await;
}

async fn calls_pay_from_their_lease_and_late_ones_as_far_as_there_is_room(
    database: Arc<TestDatabase>,
) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let node = enter(&store, "a").await;
    let (token, ..) = lease(&store, &ask(&node, &key, 10, 0)).await;
    let batch = [settled("1", &key, 100, Some(token)), settled("2", &key, 50, Some(token))];
    assert_eq!(store.post(&batch).await.unwrap(), 2);
    assert_eq!(sums(&store, &key).await, (150, 850));
    let more = [batch[1].clone(), settled("3", &key, 25, Some(token))];
    assert_eq!(store.post(&more).await.unwrap(), 1, "one of them is known");
    assert_eq!(sums(&store, &key).await, (175, 825));
    // A call without a lease while the whole cap is leased: it pays nothing.
    assert_eq!(store.post(&[settled("4", &key, 5, None)]).await.unwrap(), 1);
    let four = store.entry("4").await.unwrap().unwrap();
    assert_eq!((four.cost, four.absorbed), (Money::ZERO, Money::from_nanos(5)));
    LeaseStore::leave(&store, &node).await.unwrap();
    let late = [settled("5", &key, 800, Some(token)), settled("6", &key, 100, Some(token))];
    assert_eq!(store.post(&late).await.unwrap(), 2);
    assert_eq!(sums(&store, &key).await, (1_000, 0));
    let six = store.entry("6").await.unwrap().unwrap();
    assert_eq!((six.cost, six.absorbed), (Money::from_nanos(25), Money::from_nanos(75)));
    assert_eq!(store.post(&late).await.unwrap(), 0, "and only once");
    assert_eq!(sums(&store, &key).await, (1_000, 0));
    store.close().await;
}

fn open_call(
    request_id: &str,
    key: &KeyRecord,
    lease: Option<LeaseToken>,
    cost: Option<i64>,
) -> OpenCall {
    let held = HoldRecord {
        request_id: request_id.into(),
        key_id: key.id.clone().into(),
        account_id: key.account_id.clone().into(),
        at: Micros::new(7),
        amount: Money::from_nanos(200),
        dialect: "chat".into(),
        model: "m".into(),
        stream: true,
        price_version: "p".into(),
        lease,
        ..HoldRecord::default()
    };
    let reached = cost.map(|cost| ProgressRecord {
        attempt: None,
        request_id: request_id.to_owned(),
        at: Micros::new(8),
        lane: "l".to_owned(),
        usage: Usage { output: 3, ..Usage::default() },
        cost: Money::from_nanos(cost),
    });
    OpenCall { held, reached }
}

async fn calls_of_a_dead_node_are_settled_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let free = crate::samples::some_key(&store).await;
    let dead = enter(&store, "dead").await;
    let (token, ..) = lease(&store, &ask(&dead, &key, 10, 0)).await;
    let calls = vec![
        open_call("far", &key, Some(token), Some(60)),
        open_call("begun", &key, Some(token), None),
        open_call("free", &free, None, Some(9)),
        open_call("ended", &key, Some(token), Some(1)),
    ];
    heartbeat(&store, &dead, calls).await;
    heartbeat(&store, &dead, vec![open_call("far", &key, Some(token), Some(70))]).await;
    store.post(&[settled("ended", &key, 40, Some(token))]).await.unwrap();
    let survivor = enter(&store, "survivor").await;
    let closed = store.close_gone(Micros::new(99)).await.unwrap();
    assert_eq!((closed.leases, closed.calls), (0, 0), "no node is dead yet");
    // A minute passes for the dead node.
    database.execute_raw("UPDATE leases SET expires = expires - 60000000").await;
    database.execute_raw("UPDATE nodes SET seen = seen - 60000000 WHERE id = 'dead'").await;
    let (one, two) =
        tokio::join!(store.close_gone(Micros::new(99)), store.close_gone(Micros::new(99)));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.leases + two.leases, one.calls + two.calls), (1, 3));
    assert_eq!(sums(&store, &key).await, (110, 0));
    let far = store.entry("far").await.unwrap().unwrap();
    assert_eq!(
        (far.cost, far.outcome, far.ended),
        (Money::from_nanos(70), CallOutcome::Recovered, Micros::new(99))
    );
    assert_eq!(store.entry("begun").await.unwrap().unwrap().cost, Money::ZERO);
    assert_eq!(store.entry("free").await.unwrap().unwrap().cost, Money::from_nanos(9));
    // The node was only slow. Its lease is closed, and its calls are recorded already except for
    // one that it had not reported. It knows better what the others cost.
    assert_eq!(heartbeat(&store, &dead, vec![]).await.leases, []);
    let back = [settled("far", &key, 90, Some(token)), settled("unknown", &key, 30, Some(token))];
    assert_eq!(store.post(&back).await.unwrap(), 1);
    assert_eq!(sums(&store, &key).await, (160, 0));
    let corrected = store.entry("far").await.unwrap().unwrap();
    assert_eq!((corrected.cost, corrected.outcome), (Money::from_nanos(90), CallOutcome::Done));
    assert_eq!(store.post(&back).await.unwrap(), 0);
    assert_eq!(sums(&store, &key).await, (160, 0), "and only once");
    // Only its name is left.
    assert_eq!(
        store.key_status(&key.id, &survivor).await.unwrap().unwrap().held_elsewhere,
        Money::ZERO
    );
    store.close().await;
}

async fn unreported_spending_of_a_dead_node_stays_reserved(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let (dead, survivor) = (enter(&store, "dead").await, enter(&store, "survivor").await);
    let exposed = |amount, seq| LeaseRequest {
        unreported: Money::from_nanos(amount),
        seq,
        ..ask(&dead, &key, 600, 0)
    };
    let (token, ..) = lease(&store, &exposed(250, 3)).await;
    let report = |amount, seq| HeartbeatReport {
        node: dead.clone(),
        calls: vec![open_call("told", &key, Some(token), Some(60))],
        unreported: vec![UnreportedSpend { token, amount: Money::from_nanos(amount) }],
        seq,
    };
    store.heartbeat(&report(100, 4)).await.unwrap();
    store.heartbeat(&report(20, 3)).await.unwrap();
    database.execute_raw("UPDATE leases SET expires = expires - 60000000").await;
    assert_eq!(store.close_gone(Micros::new(99)).await.unwrap().leases, 1);
    assert_eq!(sums(&store, &key).await, (60, 100), "by the latest word, not the last to come");
    // No node can use the reserve. It pays for late calls.
    let reply = heartbeat(&store, &dead, vec![]).await;
    assert!(reply.leases[0].closed);
    assert_eq!(lease(&store, &ask(&survivor, &key, 500, 0)).await.2, 500);
    let (again, ..) = lease(&store, &ask(&dead, &key, 340, 0)).await;
    assert_ne!(again, token);
    let late = [settled("late", &key, 70, Some(token)), settled("told", &key, 90, Some(token))];
    assert_eq!(store.post(&late).await.unwrap(), 1);
    assert_eq!(store.entry("late").await.unwrap().unwrap().absorbed, Money::ZERO);
    let told = store.entry("told").await.unwrap().unwrap();
    assert_eq!((told.cost.as_nanos(), told.absorbed.as_nanos()), (60, 30), "no room is left");
    assert_eq!(sums(&store, &key).await, (130, 870));
    enter(&store, "dead").await;
    assert_eq!(sums(&store, &key).await, (130, 500), "back, it needs nothing of before");
    store.close().await;
}

async fn a_restored_database_and_a_forgotten_node_keep_no_money_aside(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let (first, second) = (enter(&store, "first").await, enter(&store, "second").await);
    let unreported = Money::from_nanos(250);
    let all = LeaseRequest { unreported, ..ask(&first, &key, 300, 0) };
    let (token, ..) = lease(&store, &all).await;
    let own = LeaseRequest { unreported, ..ask(&second, &key, 300, 0) };
    lease(&store, &own).await;
    heartbeat(&store, &first, vec![open_call("told", &key, Some(token), Some(60))]).await;
    let refused = store.require_no_nodes().await.unwrap_err().to_string();
    assert!(refused.contains("first") || refused.contains("second"), "{refused}");
    store.forget_node("second").await.unwrap_err();
    database.execute_raw("UPDATE nodes SET seen = seen - 60000000 WHERE id = 'second'").await;
    store.forget_node("second").await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 300), "the other one goes on");
    database.execute_raw("UPDATE nodes SET seen = seen - 60000000").await;
    store.require_no_nodes().await.unwrap();
    let adopted = store.adopt().await.unwrap();
    assert_eq!((adopted.leases, adopted.calls), (1, 1));
    assert_eq!(sums(&store, &key).await, (60, 0));
    assert_eq!(store.nodes().await.unwrap(), []);
    // A process that still runs is fenced, and must register again.
    let report = HeartbeatReport { node: first.clone(), calls: vec![], unreported: vec![], seq: 9 };
    assert_eq!(store.heartbeat(&report).await, Err(LeaseStoreError::Fenced));
    let new = enter(&store, "new").await;
    assert_eq!(lease(&store, &ask(&new, &key, 940, 0)).await.2, 940);
    store.close().await;
}

async fn marks_only_rise_and_tokens_are_random(database: Arc<TestDatabase>) {
    let stores = [database.open().await, database.open().await];
    let [one, other] = &stores;
    let mark = one.posted_mark("n").await.unwrap();
    assert_eq!((mark.posted, mark.store_id.len()), (0, 32));
    for (node_id, before, posted, expected) in [
        ("n", 0, 5, true),
        ("n", 0, 3, true),
        ("m", 0, 9, true),
        // The database went back once more.
        ("n", 6, 8, false),
        ("unknown", 6, 8, false),
    ] {
        let raise = MarkRaise { node_id: node_id.to_owned(), before };
        assert_eq!(one.mark_posted(&raise, posted).await.unwrap(), expected, "{raise:?}");
    }
    assert_eq!(other.posted_mark("n").await.unwrap(), PostedMark { posted: 5, ..mark });
    let found = StoreRollback { missing: 7, reposted: 4 };
    one.note_rollback("n", found, false).await.unwrap();
    one.note_rollback("m", found, true).await.unwrap();
    assert_eq!(other.rollbacks().await.unwrap(), [("n".to_owned(), found)]);
    // An operator sets the database back; each node hears of it until it has posted again.
    let is_adopted = async |node: &str| other.posted_mark(node).await.unwrap().is_adopted;
    assert!(!is_adopted("n").await && !is_adopted("m").await);
    one.adopt().await.unwrap();
    assert!(is_adopted("n").await && is_adopted("m").await);
    let raise = MarkRaise { node_id: "m".to_owned(), before: 0 };
    one.mark_posted(&raise, 9).await.unwrap();
    assert!(is_adopted("n").await && !is_adopted("m").await);

    let key = capped(one, 1_000).await;
    for (id, node_id, before, expected) in [
        ("1", "n", 5, Some(6)),
        // Its answer was lost.
        ("1", "n", 5, Some(6)),
        // The call is known, and another one is not.
        ("2", "n", 6, Some(7)),
        ("3", "new", 0, Some(1)),
        // The node had a higher mark than the database has now: it must notice that.
        ("4", "n", 9, None),
        ("5", "unknown", 6, None),
    ] {
        let raise = MarkRaise { node_id: node_id.to_owned(), before };
        let calls = [settled(id, &key, 1, None), settled("1", &key, 1, None)];
        let posted = LeaseStore::post(one, &calls, Some(&raise)).await.unwrap();
        assert_eq!(posted.mark, expected, "{raise:?}");
        assert!(!is_adopted(node_id).await);
        let known = one.posted_mark(node_id).await.unwrap().posted;
        assert_eq!(known, expected.unwrap_or(if node_id == "n" { 7 } else { 0 }));
    }
    let (first, second) = (enter(one, "first").await, enter(one, "second").await);
    let (a, ..) = lease(one, &ask(&first, &key, 10, 0)).await;
    let (b, ..) = lease(one, &ask(&second, &key, 10, 0)).await;
    // A counter would begin with small numbers, also after the database was set back.
    assert!(a.abs_diff(b) > 1 << 20 && a > 1 << 30 && b > 1 << 30, "{a} {b}");
    for store in stores {
        store.close().await;
    }
}

async fn a_name_belongs_to_the_last_registered_process(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let first = enter(&store, "name").await;
    let (token, ..) = lease(&store, &ask(&first, &key, 10, 0)).await;
    heartbeat(&store, &first, vec![open_call("lost", &key, Some(token), Some(20))]).await;
    let second = enter(&store, "name").await;
    assert!(second.epoch > first.epoch);
    assert_eq!(sums(&store, &key).await, (20, 0), "calls without a journal are settled");
    let report = HeartbeatReport { node: first.clone(), calls: vec![], unreported: vec![], seq: 9 };
    assert_eq!(store.heartbeat(&report).await, Err(LeaseStoreError::Fenced));
    assert_eq!(store.grant(&ask(&first, &key, 10, 0)).await, Err(LeaseStoreError::Fenced));
    lease(&store, &ask(&second, &key, 10, 0)).await;
    LeaseStore::leave(&store, &first).await.unwrap();
    assert_eq!(
        heartbeat(&store, &second, vec![]).await.leases.len(),
        1,
        "it belongs to the second process"
    );
    store.close().await;
}

async fn a_shortage_recalls_leases_of_other_nodes(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let (a, b) = (enter(&store, "a").await, enter(&store, "b").await);
    let reply = heartbeat(&store, &a, vec![]).await;
    assert_eq!((reply.nodes, reply.leases.len()), (2, 0));
    assert_eq!(lease(&store, &ask(&a, &key, 700, 700)).await.2, 700);
    assert!(!heartbeat(&store, &a, vec![]).await.leases[0].wanted);
    let short = store.grant(&ask(&b, &key, 400, 400)).await.unwrap();
    let [limit, spent, leased] = [1_000, 0, 700].map(Money::from_nanos);
    let key_cap = Some(BoundState { limit, spent, leased, resets: None });
    assert_eq!(short, LeaseGrant::Short(MoneyBounds { key_cap, ..MoneyBounds::default() }));
    let reply = heartbeat(&store, &a, vec![]).await;
    assert!(reply.leases[0].wanted);
    // A cap that was lowered below the leased amount recalls it as well.
    database.execute_raw("UPDATE keys SET wanted = 0").await;
    assert!(!heartbeat(&store, &a, vec![]).await.leases[0].wanted);
    let lowered =
        KeyRecord { cap: Some(Money::from_nanos(600)), changed: Micros::new(5), ..key.clone() };
    assert!(!heartbeat(&store, &a, vec![]).await.leases[0].above);
    assert!(store.update_key(&lowered).await.unwrap());
    let told = heartbeat(&store, &a, vec![]).await.leases.remove(0);
    assert!(told.wanted && told.above, "{told:?}");
    let unlimited = KeyRecord { cap: None, changed: Micros::new(6), ..key.clone() };
    assert!(store.update_key(&unlimited).await.unwrap());
    assert_eq!(store.grant(&ask(&b, &key, 400, 400)).await.unwrap(), LeaseGrant::Unlimited);
    store.close().await;
}

async fn a_key_has_the_same_status_on_every_node(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = capped(&store, 1_000).await;
    let (a, b) = (enter(&store, "a").await, enter(&store, "b").await);
    let (token, ..) = lease(&store, &ask(&a, &key, 300, 0)).await;
    heartbeat(&store, &a, vec![open_call("runs", &key, Some(token), None)]).await;
    store.post(&[settled("done", &key, 40, Some(token))]).await.unwrap();
    let seen = |node: Node| {
        let (store, key) = (store.clone(), key.clone());
        async move { store.key_status(&key.id, &node).await.unwrap().unwrap() }
    };
    let (from_a, from_b) = (seen(a).await, seen(b).await);
    assert_eq!((from_a.spent, from_b.spent), (Money::from_nanos(40), Money::from_nanos(40)));
    assert_eq!(
        (from_a.held_elsewhere, from_b.held_elsewhere),
        (Money::ZERO, Money::from_nanos(200))
    );
    assert_eq!(from_b.cap, Some(Money::from_nanos(1_000)));
    store.close().await;
}

async fn three_clients_spend_a_whole_cap_and_no_more(database: Arc<TestDatabase>) {
    const CALLS: i64 = 300;
    const PRICE: Money = Money::from_nanos(1_000);
    let store = database.open().await;
    let key = capped(&store, CALLS * 1_000).await;
    let mut tasks = JoinSet::new();
    for node in 0..3 {
        let clock = Arc::new(SystemClock);
        let opened = OpenCalls::open(clock.clone(), Arc::new(MemoryDisk::default())).unwrap();
        let (lease_store, name) = (database.open().await, format!("n{node}"));
        let client = Arc::new(LeaseClient::open(opened, lease_store, clock, &name).await.unwrap());
        let balance = KeyBalance::new(&key.id, key.cap, Money::ZERO);
        for caller in 0..4 {
            let (client, balance, key) = (client.clone(), balance.clone(), key.clone());
            tasks.spawn(async move {
                let mut admitted = 0;
                for number in 0.. {
                    let request_id = format!("{node}-{caller}-{number}");
                    let held = open_call(&request_id, &key, None, None).held;
                    match client.hold(&balance, Arc::new(held), PRICE, PRICE).await {
                        Ok(ticket) => {
                            admitted += 1;
                            let done = entry(&request_id, &key, 1_000, 50);
                            ticket.settle(LedgerEntry { request_id: request_id.into(), ..done });
                        }
                        Err(HoldRefusal::Held(_)) => {}
                        Err(HoldRefusal::Spent(_)) => break,
                        Err(other) => panic!("{other:?}"),
                    }
                    // In production a second passes between two heartbeats.
                    if number % 7 == caller {
                        client.heartbeat().await.unwrap();
                        client.post().await.unwrap();
                    }
                }
                while client.post().await.unwrap() > 0 {}
                (node, admitted)
            });
        }
    }
    let mut by_node: BTreeMap<i32, i64> = BTreeMap::new();
    for (node, admitted) in tasks.join_all().await {
        *by_node.entry(node).or_default() += admitted;
    }
    let admitted: i64 = by_node.values().sum();
    assert!(admitted <= CALLS && admitted * 100 >= CALLS * 95, "{by_node:?}");
    assert_eq!(sums(&store, &key).await.0, admitted * 1_000);
    store.close().await;
}
