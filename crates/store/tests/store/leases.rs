//! Leases: no cap is passed whoever asks at once, what comes late is paid as far as there is room,
//! and what a node left behind is settled by others.

use std::collections::BTreeMap;
use std::sync::Arc;

use canon::{Money, Usage};
use ledger::{
    Ask, Bank, BankError, Book, Entry, Exposed, GiveBack, Granted, Held, MemoryDisk, Node,
    OpenCall, Outcome, Purse, Reached, Refused, Report, Settled, SystemClock, Teller, Token,
};
use store::{KeyRecord, LeaseTotal, Store};
use tokio::task::JoinSet;

use crate::on_both;
use crate::place::Place;
use crate::samples::{account, entry, id, key};

on_both!(
    nodes_that_ask_at_once_never_get_more_than_the_cap,
    a_slice_given_back_is_free_again_and_a_message_out_of_date_does_nothing,
    calls_are_paid_from_their_lease_and_late_ones_as_far_as_there_is_room,
    what_a_dead_node_left_is_settled_once_whoever_comes_first,
    what_a_dead_node_may_have_used_stays_set_aside_for_its_journal,
    a_name_belongs_to_who_entered_last,
    who_goes_short_is_heard_by_the_others,
    a_key_stands_the_same_seen_from_every_node,
    three_tellers_spend_a_cap_to_its_end_and_not_beyond,
);

async fn capped(store: &Store, cap: i64) -> KeyRecord {
    let owner = account(&id());
    store.add_account(&owner).await.unwrap();
    let record = KeyRecord { cap: Some(Money::nanos(cap)), ..key(&owner.id) };
    store.add_key(&record).await.unwrap();
    record
}

async fn enter(store: &Store, name: &str) -> Node {
    Bank::enter(store, name).await.unwrap()
}

fn ask(node: &Node, key: &KeyRecord, full: i64, wish: i64) -> Ask {
    let (full, wish) = (Money::nanos(full), Money::nanos(wish));
    let (node, key_id) = (node.clone(), key.id.clone());
    Ask {
        node,
        key_id,
        least: full,
        full,
        hold: full,
        wish,
        exposed: Money::ZERO,
        seq: 1,
        ahead: false,
    }
}

/// Asks and gets.
async fn lease(store: &Store, ask: &Ask) -> (Token, i64, i64) {
    match store.grant(ask).await.unwrap() {
        Granted::Lease { token, version, amount } => (token, version, amount.as_nanos()),
        other => panic!("{other:?}"),
    }
}

async fn tidings(store: &Store, node: &Node, calls: Vec<OpenCall>) -> ledger::Tidings {
    store.tend(&Report { node: node.clone(), calls, exposed: vec![], seq: 2 }).await.unwrap()
}

fn settled(request_id: &str, key: &KeyRecord, cost: i64, lease: Option<Token>) -> Settled {
    Settled { entry: Arc::new(entry(request_id, key, cost, 50)), lease, shown: true }
}

/// Spent and leased of a key; fails when its word and its leases disagree, or the cap is passed.
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

async fn nodes_that_ask_at_once_never_get_more_than_the_cap(place: Arc<Place>) {
    let stores = [place.open().await, place.open().await];
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
                    Granted::Lease { amount, .. } => got += amount.as_nanos(),
                    Granted::Short { .. } => {}
                    Granted::Unlimited => panic!("it has a cap"),
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

async fn a_slice_given_back_is_free_again_and_a_message_out_of_date_does_nothing(
    place: Arc<Place>,
) {
    let store = place.open().await;
    let key = capped(&store, 1_000).await;
    let node = enter(&store, "a").await;
    let (token, version, amount) = lease(&store, &ask(&node, &key, 10, 0)).await;
    assert_eq!((version, amount), (1, 1_000), "one alone gets everything");
    let back = |version, keep| GiveBack { token, version, keep: Money::nanos(keep) };
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
    assert!(other > token, "a token is never given twice");
    Bank::leave(&store, &node).await.unwrap();
    assert_eq!(sums(&store, &key).await, (0, 0));
    store.close().await;
}

async fn calls_are_paid_from_their_lease_and_late_ones_as_far_as_there_is_room(place: Arc<Place>) {
    let store = place.open().await;
    let key = capped(&store, 1_000).await;
    let node = enter(&store, "a").await;
    let (token, ..) = lease(&store, &ask(&node, &key, 10, 0)).await;
    let batch = [settled("1", &key, 100, Some(token)), settled("2", &key, 50, Some(token))];
    assert_eq!(Bank::post(&store, &batch).await.unwrap(), 2);
    assert_eq!(sums(&store, &key).await, (150, 850));
    let more = [batch[1].clone(), settled("3", &key, 25, Some(token))];
    assert_eq!(Bank::post(&store, &more).await.unwrap(), 1, "one of them is known");
    assert_eq!(sums(&store, &key).await, (175, 825));
    // A call without a lease, while everything is leased: nothing is left for it.
    assert_eq!(Bank::post(&store, &[settled("4", &key, 5, None)]).await.unwrap(), 1);
    let four = store.entry("4").await.unwrap().unwrap();
    assert_eq!((four.cost, four.borne), (Money::ZERO, Money::nanos(5)));
    Bank::leave(&store, &node).await.unwrap();
    let late = [settled("5", &key, 800, Some(token)), settled("6", &key, 100, Some(token))];
    assert_eq!(Bank::post(&store, &late).await.unwrap(), 2);
    assert_eq!(sums(&store, &key).await, (1_000, 0));
    let six = store.entry("6").await.unwrap().unwrap();
    assert_eq!((six.cost, six.borne), (Money::nanos(25), Money::nanos(75)));
    assert_eq!(Bank::post(&store, &late).await.unwrap(), 0, "and only once");
    assert_eq!(sums(&store, &key).await, (1_000, 0));
    store.close().await;
}

fn open_call(
    request_id: &str,
    key: &KeyRecord,
    lease: Option<Token>,
    cost: Option<i64>,
) -> OpenCall {
    let held = Held {
        request_id: request_id.to_owned(),
        key_id: key.id.clone(),
        account_id: key.account_id.clone(),
        at: 7,
        amount: Money::nanos(200),
        dialect: "chat".to_owned(),
        model: "m".to_owned(),
        stream: true,
        price_version: "p".to_owned(),
        lease,
    };
    let reached = cost.map(|cost| Reached {
        request_id: request_id.to_owned(),
        at: 8,
        lane: "l".to_owned(),
        usage: Usage { output: 3, ..Usage::default() },
        cost: Money::nanos(cost),
    });
    OpenCall { held, reached }
}

async fn what_a_dead_node_left_is_settled_once_whoever_comes_first(place: Arc<Place>) {
    let store = place.open().await;
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
    tidings(&store, &dead, calls).await;
    tidings(&store, &dead, vec![open_call("far", &key, Some(token), Some(70))]).await;
    Bank::post(&store, &[settled("ended", &key, 40, Some(token))]).await.unwrap();
    let survivor = enter(&store, "survivor").await;
    let closed = store.close_gone(99).await.unwrap();
    assert_eq!((closed.leases, closed.calls), (0, 0), "nobody is gone yet");
    // A minute passes for the dead one.
    place.meddle("UPDATE leases SET expires = expires - 60000000").await;
    place.meddle("UPDATE nodes SET seen = seen - 60000000 WHERE id = 'dead'").await;
    let (one, two) = tokio::join!(store.close_gone(99), store.close_gone(99));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.leases + two.leases, one.calls + two.calls), (1, 3));
    assert_eq!(sums(&store, &key).await, (110, 0));
    let far = store.entry("far").await.unwrap().unwrap();
    assert_eq!((far.cost, far.outcome, far.ended), (Money::nanos(70), Outcome::Recovered, 99));
    assert_eq!(store.entry("begun").await.unwrap().unwrap().cost, Money::ZERO);
    assert_eq!(store.entry("free").await.unwrap().unwrap().cost, Money::nanos(9));
    // It was only slow. Its lease is no good any more; its calls are on the books already, but for
    // one nobody knew of.
    assert_eq!(tidings(&store, &dead, vec![]).await.leases, []);
    let back = [settled("far", &key, 90, Some(token)), settled("unknown", &key, 30, Some(token))];
    assert_eq!(Bank::post(&store, &back).await.unwrap(), 1);
    assert_eq!(sums(&store, &key).await, (140, 0));
    assert_eq!(store.entry("far").await.unwrap().unwrap(), far, "written once, never changed");
    // Nothing is left of it but its name.
    assert_eq!(
        store.standing(&key.id, &survivor).await.unwrap().unwrap().held_elsewhere,
        Money::ZERO
    );
    store.close().await;
}

async fn what_a_dead_node_may_have_used_stays_set_aside_for_its_journal(place: Arc<Place>) {
    let store = place.open().await;
    let key = capped(&store, 1_000).await;
    let (dead, survivor) = (enter(&store, "dead").await, enter(&store, "survivor").await);
    let exposed =
        |amount, seq| Ask { exposed: Money::nanos(amount), seq, ..ask(&dead, &key, 600, 0) };
    let (token, ..) = lease(&store, &exposed(250, 3)).await;
    let report = |amount, seq| Report {
        node: dead.clone(),
        calls: vec![open_call("told", &key, Some(token), Some(60))],
        exposed: vec![Exposed { token, amount: Money::nanos(amount) }],
        seq,
    };
    store.tend(&report(100, 4)).await.unwrap();
    store.tend(&report(20, 3)).await.unwrap();
    place.meddle("UPDATE leases SET expires = expires - 60000000").await;
    assert_eq!(store.close_gone(99).await.unwrap().leases, 1);
    assert_eq!(sums(&store, &key).await, (60, 100), "by the latest word, not the last to come");
    // Nobody can use it, the node itself included; it pays for what comes late.
    let told = tidings(&store, &dead, vec![]).await;
    assert!(told.leases[0].closed);
    assert_eq!(lease(&store, &ask(&survivor, &key, 500, 0)).await.2, 500);
    let (again, ..) = lease(&store, &ask(&dead, &key, 340, 0)).await;
    assert!(again > token);
    let late = [settled("late", &key, 70, Some(token)), settled("told", &key, 90, Some(token))];
    assert_eq!(Bank::post(&store, &late).await.unwrap(), 1);
    assert_eq!(store.entry("late").await.unwrap().unwrap().borne, Money::ZERO);
    assert_eq!(sums(&store, &key).await, (130, 870));
    enter(&store, "dead").await;
    assert_eq!(sums(&store, &key).await, (130, 500), "back, it needs nothing of before");
    store.close().await;
}

async fn a_name_belongs_to_who_entered_last(place: Arc<Place>) {
    let store = place.open().await;
    let key = capped(&store, 1_000).await;
    let first = enter(&store, "name").await;
    let (token, ..) = lease(&store, &ask(&first, &key, 10, 0)).await;
    tidings(&store, &first, vec![open_call("lost", &key, Some(token), Some(20))]).await;
    let second = enter(&store, "name").await;
    assert!(second.epoch > first.epoch);
    assert_eq!(sums(&store, &key).await, (20, 0), "what no journal told of is settled");
    let report = Report { node: first.clone(), calls: vec![], exposed: vec![], seq: 9 };
    assert_eq!(store.tend(&report).await, Err(BankError::Fenced));
    assert_eq!(store.grant(&ask(&first, &key, 10, 0)).await, Err(BankError::Fenced));
    lease(&store, &ask(&second, &key, 10, 0)).await;
    Bank::leave(&store, &first).await.unwrap();
    assert_eq!(tidings(&store, &second, vec![]).await.leases.len(), 1, "it is not the first's");
    store.close().await;
}

async fn who_goes_short_is_heard_by_the_others(place: Arc<Place>) {
    let store = place.open().await;
    let key = capped(&store, 1_000).await;
    let (a, b) = (enter(&store, "a").await, enter(&store, "b").await);
    let told = tidings(&store, &a, vec![]).await;
    assert_eq!((told.nodes, told.leases.len()), (2, 0));
    assert_eq!(lease(&store, &ask(&a, &key, 700, 700)).await.2, 700);
    assert!(!tidings(&store, &a, vec![]).await.leases[0].wanted);
    let short = store.grant(&ask(&b, &key, 400, 400)).await.unwrap();
    assert_eq!(short, Granted::Short { left: Money::nanos(300), elsewhere: Money::nanos(700) });
    let told = tidings(&store, &a, vec![]).await;
    assert!(told.leases[0].wanted);
    // A cap that was lowered below what is leased wants it back as well.
    place.meddle("UPDATE keys SET wanted = 0").await;
    assert!(!tidings(&store, &a, vec![]).await.leases[0].wanted);
    let lowered = KeyRecord { cap: Some(Money::nanos(600)), changed: 5, ..key.clone() };
    assert!(store.update_key(&lowered).await.unwrap());
    assert!(tidings(&store, &a, vec![]).await.leases[0].wanted);
    let unlimited = KeyRecord { cap: None, changed: 6, ..key.clone() };
    assert!(store.update_key(&unlimited).await.unwrap());
    assert_eq!(store.grant(&ask(&b, &key, 400, 400)).await.unwrap(), Granted::Unlimited);
    store.close().await;
}

async fn a_key_stands_the_same_seen_from_every_node(place: Arc<Place>) {
    let store = place.open().await;
    let key = capped(&store, 1_000).await;
    let (a, b) = (enter(&store, "a").await, enter(&store, "b").await);
    let (token, ..) = lease(&store, &ask(&a, &key, 300, 0)).await;
    tidings(&store, &a, vec![open_call("runs", &key, Some(token), None)]).await;
    Bank::post(&store, &[settled("done", &key, 40, Some(token))]).await.unwrap();
    let seen = |node: Node| {
        let (store, key) = (store.clone(), key.clone());
        async move { store.standing(&key.id, &node).await.unwrap().unwrap() }
    };
    let (from_a, from_b) = (seen(a).await, seen(b).await);
    assert_eq!((from_a.spent, from_b.spent), (Money::nanos(40), Money::nanos(40)));
    assert_eq!((from_a.held_elsewhere, from_b.held_elsewhere), (Money::ZERO, Money::nanos(200)));
    assert_eq!(from_b.cap, Some(Money::nanos(1_000)));
    store.close().await;
}

async fn three_tellers_spend_a_cap_to_its_end_and_not_beyond(place: Arc<Place>) {
    const CALLS: i64 = 300;
    const PRICE: Money = Money::nanos(1_000);
    let store = place.open().await;
    let key = capped(&store, CALLS * 1_000).await;
    let mut tasks = JoinSet::new();
    for node in 0..3 {
        let clock = Arc::new(SystemClock);
        let opened = Book::open(clock.clone(), Arc::new(MemoryDisk::default())).unwrap();
        let (bank, name) = (place.open().await, format!("n{node}"));
        let teller = Arc::new(Teller::open(opened, bank, clock, &name).await.unwrap());
        let purse = Purse::new(&key.id, key.cap, Money::ZERO);
        for caller in 0..4 {
            let (teller, purse, key) = (teller.clone(), purse.clone(), key.clone());
            tasks.spawn(async move {
                let mut admitted = 0;
                for number in 0.. {
                    let request_id = format!("{node}-{caller}-{number}");
                    let held = open_call(&request_id, &key, None, None).held;
                    match teller.hold(&purse, Arc::new(held), PRICE, PRICE).await {
                        Ok(ticket) => {
                            admitted += 1;
                            let done = entry(&request_id, &key, 1_000, 50);
                            ticket.settle(Entry { request_id, ..done });
                        }
                        Err(Refused::Elsewhere { .. }) => {}
                        Err(Refused::Cap { .. }) => break,
                        Err(other) => panic!("{other:?}"),
                    }
                    // In life a second passes between two of these.
                    if number % 7 == caller {
                        teller.tend().await.unwrap();
                        teller.post().await.unwrap();
                    }
                }
                while teller.post().await.unwrap() > 0 {}
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
