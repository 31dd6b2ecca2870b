//! Caps of accounts: they limit all keys together under concurrent requests, and late calls pay as
//! far as there is room.

use std::sync::Arc;

use canon::Money;
use ledger::{
    BudgetPeriod, LeaseGrant, LeaseRequest, LeaseStore, MoneyBounds, Node, SettledCall,
    UnleasedCost,
};
use store::{AccountTerms, AccountTotal, BudgetTerms, KeyRecord, ObjectSharing, Store};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, entry, id, key};
use crate::test_database::TestDatabase;

on_both!(
    sharing_and_models_of_an_account_are_kept,
    concurrent_keys_never_exceed_the_cap_of_their_account,
    a_key_without_a_cap_leases_money_of_its_account,
    late_calls_pay_as_far_as_the_account_has_room,
    a_key_without_money_recalls_leases_of_the_others,
    a_lowered_cap_recalls_leases_of_keys_with_caps_of_their_own,
    account_terms_are_stored,
);

async fn family(store: &Store, cap: i64, caps: &[Option<i64>]) -> Vec<KeyRecord> {
    let owner = account(&id());
    store.add_account(&owner).await.unwrap();
    let terms = AccountTerms { cap: Some(Money::from_nanos(cap)), ..AccountTerms::default() };
    store.set_account_terms(&owner.id, &terms).await.unwrap();
    let mut keys = Vec::new();
    for cap in caps {
        let record = KeyRecord { cap: cap.map(Money::from_nanos), ..key(&owner.id) };
        store.add_key(&record).await.unwrap();
        keys.push(record);
    }
    keys
}

fn ask(node: &Node, key: &KeyRecord, full: i64) -> LeaseRequest {
    let full = Money::from_nanos(full);
    LeaseRequest {
        node: node.clone(),
        key_id: key.id.clone(),
        least: full,
        full,
        hold: full,
        wish: Money::from_nanos(2_000),
        unleased: UnleasedCost::default(),
        unreported: Money::ZERO,
        seq: 1,
        ahead: false,
    }
}

/// Returns the money spent by and leased to the account of a key. Fails if its cap is exceeded.
async fn total(store: &Store, key: &KeyRecord) -> (i64, i64) {
    let totals = store.account_totals().await.unwrap();
    let own = totals.into_iter().find(|total| total.account_id == key.account_id).unwrap();
    let AccountTotal { cap, spent, leased, .. } = &own;
    assert!(cap.is_some_and(|cap| spent.saturating_add(*leased) <= cap), "{own:?}");
    (spent.as_nanos(), leased.as_nanos())
}

async fn concurrent_keys_never_exceed_the_cap_of_their_account(database: Arc<TestDatabase>) {
    let stores = [database.open().await, database.open().await];
    let keys = family(&stores[0], 10_000, &[None, Some(6_000), Some(50_000)]).await;
    let mut tasks = JoinSet::new();
    for task in 0..6_usize {
        let (store, key) = (stores[task % 2].clone(), keys[task % 3].clone());
        tasks.spawn(async move {
            let node = LeaseStore::enter(&store, &format!("family{task}")).await.unwrap();
            let mut got = 0;
            for step in 0..30_i64 {
                match store.grant(&ask(&node, &key, 37 + step * task as i64 % 90)).await.unwrap() {
                    LeaseGrant::Lease { amount, .. } => got += amount.as_nanos(),
                    LeaseGrant::Short(_) => {}
                    LeaseGrant::Unlimited => panic!("its account has a cap"),
                }
                total(&store, &key).await;
            }
            got
        });
    }
    let got: i64 = tasks.join_all().await.into_iter().sum();
    let (spent, leased) = total(&stores[0], &keys[0]).await;
    assert_eq!((spent, leased), (0, got));
    assert!(got > 9_000, "nearly all of it can be had: {got}");
    for store in stores {
        store.close().await;
    }
}

async fn a_key_without_a_cap_leases_money_of_its_account(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = family(&store, 100, &[None, None]).await;
    let node = LeaseStore::enter(&store, "alone").await.unwrap();
    let granted = store.grant(&ask(&node, &keys[0], 80)).await.unwrap();
    assert!(matches!(granted, LeaseGrant::Lease { amount, .. } if amount == Money::from_nanos(80)));
    let granted = store.grant(&ask(&node, &keys[1], 80)).await.unwrap();
    assert!(
        matches!(granted, LeaseGrant::Short(MoneyBounds { key_cap: None, account_cap: Some(state), .. })
            if state.left() == Money::from_nanos(20) && state.leased == Money::from_nanos(80)),
        "{granted:?}"
    );
    store.set_account_terms(&keys[0].account_id, &AccountTerms::default()).await.unwrap();
    assert_eq!(store.grant(&ask(&node, &keys[1], 80)).await.unwrap(), LeaseGrant::Unlimited);
    store.close().await;
}

async fn late_calls_pay_as_far_as_the_account_has_room(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = family(&store, 100, &[None, Some(1_000)]).await;
    let late = |name: &str, key: &KeyRecord, cost| SettledCall {
        entry: Arc::new(entry(&format!("{name}-{}", key.id), key, cost, 50)),
        lease: None,
        shown: true,
    };
    let batch = [late("a", &keys[0], 70), late("b", &keys[1], 70)];
    assert_eq!(store.post(&batch).await.unwrap(), 2);
    assert_eq!(total(&store, &keys[0]).await, (100, 0));
    let mut paid = Vec::new();
    for settled in &batch {
        let found = store.entry(&settled.entry.request_id).await.unwrap().unwrap();
        assert_eq!(found.cost.saturating_add(found.absorbed), Money::from_nanos(70), "{found:?}");
        paid.push(found.cost.as_nanos());
    }
    paid.sort_unstable();
    assert_eq!(paid, [30, 70]);
    store.close().await;
}

async fn a_lowered_cap_recalls_leases_of_keys_with_caps_of_their_own(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = family(&store, 100, &[Some(1_000)]).await;
    let node = LeaseStore::enter(&store, "lowered").await.unwrap();
    store.grant(&ask(&node, &keys[0], 90)).await.unwrap();
    let report =
        ledger::HeartbeatReport { node: node.clone(), calls: vec![], unreported: vec![], seq: 2 };
    assert!(!store.heartbeat(&report).await.unwrap().leases[0].above);
    let cap = Some(Money::from_nanos(10));
    let terms = AccountTerms { cap, ..AccountTerms::default() };
    store.set_account_terms(&keys[0].account_id, &terms).await.unwrap();
    assert!(store.heartbeat(&report).await.unwrap().leases[0].above);
    let announcement = LeaseRequest { full: Money::ZERO, ..ask(&node, &keys[0], 0) };
    let granted = store.grant(&announcement).await.unwrap();
    assert!(matches!(granted, LeaseGrant::Short(_)), "{granted:?}");
    store.close().await;
}

async fn a_key_without_money_recalls_leases_of_the_others(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = family(&store, 100, &[None, None]).await;
    let node = LeaseStore::enter(&store, "wanting").await.unwrap();
    store.grant(&ask(&node, &keys[0], 90)).await.unwrap();
    let report =
        ledger::HeartbeatReport { node: node.clone(), calls: vec![], unreported: vec![], seq: 2 };
    let wanted = |tidings: ledger::HeartbeatReply| tidings.leases[0].wanted;
    assert!(!wanted(store.heartbeat(&report).await.unwrap()));
    let granted = store.grant(&ask(&node, &keys[1], 50)).await.unwrap();
    assert!(matches!(granted, LeaseGrant::Short(_)));
    assert!(
        wanted(store.heartbeat(&report).await.unwrap()),
        "the other key's lease is wanted back"
    );
    store.close().await;
}

async fn account_terms_are_stored(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = family(&store, 7, &[None]).await;
    let budget = Some(BudgetTerms { limit: Money::from_nanos(5), period: BudgetPeriod::Week });
    let terms = AccountTerms { budget, ..AccountTerms::default() };
    assert_eq!(terms.to_string(), "no cap, budget 0.000000005 USD per week");
    let id = &keys[0].account_id;
    store.set_account_terms(id, &terms).await.unwrap();
    let all = store.account_terms().await.unwrap();
    assert!(all.contains(&(id.clone(), terms)), "{all:?}");
    store.post(&[entry("week", &keys[0], 3, 50)]).await.unwrap();
    let started = store.entry("week").await.unwrap().unwrap().started;
    let (_, spent) = store.account_spent_in(id, BudgetPeriod::Week, started).await.unwrap();
    assert_eq!(spent, Money::from_nanos(3));
    store.close().await;
}

async fn sharing_and_models_of_an_account_are_kept(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("ada");
    store.add_account(&owner).await.unwrap();
    let shared = AccountTerms { share: ObjectSharing::Account, ..AccountTerms::default() };
    let listed = AccountTerms { models: vec!["a".to_owned()], ..AccountTerms::default() };
    for terms in [shared, listed] {
        store.set_account_terms(&owner.id, &terms).await.unwrap();
        assert_eq!(store.account_terms().await.unwrap(), [(owner.id.clone(), terms)]);
    }
    store.set_account_terms(&owner.id, &AccountTerms::default()).await.unwrap();
    assert_eq!(store.account_terms().await.unwrap(), []);
    assert_eq!(store.account_totals().await.unwrap(), []);
    store.close().await;
}
