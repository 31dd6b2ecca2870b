//! Limits of accounts, budgets of keys, and the spending of a period.

use std::sync::Arc;

use canon::{Micros, Money};
use ledger::{BudgetPeriod, LedgerEntry};
use store::{BudgetTerms, KeyRecord, RateLimits};

use crate::on_both;
use crate::samples::{account, entry, key, some_key};
use crate::test_database::TestDatabase;

on_both!(
    account_limits_are_set_changed_and_removed,
    a_key_budget_is_stored_and_edited,
    a_period_sums_the_calls_admitted_in_it,
);

const DAY: Micros = Micros::from_days(1);

async fn account_limits_are_set_changed_and_removed(database: Arc<TestDatabase>) {
    let store = database.open().await;
    assert_eq!(store.account_limits().await.unwrap(), vec![]);
    store.put_setting("limits", "no account's").await.unwrap();
    store.put_setting("limitsx", "no account's").await.unwrap();
    let some = RateLimits { rpm: Some(u32::MAX), tpm: Some(0), concurrency: None };
    store.set_account_limits("a", some).await.unwrap();
    assert_eq!(store.account_limits().await.unwrap(), vec![("a".to_owned(), some)]);
    store.set_account_limits("a", RateLimits::default()).await.unwrap();
    assert_eq!(
        store.account_limits().await.unwrap(),
        vec![("a".to_owned(), RateLimits::default())]
    );
    store.close().await;
}

async fn a_key_budget_is_stored_and_edited(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    let weekly = BudgetTerms { limit: Money::from_nanos(5), period: BudgetPeriod::Week };
    let made = KeyRecord { budget: Some(weekly), ..key(&ada.id) };
    store.add_key(&made).await.unwrap();
    assert_eq!(store.key(&made.id).await.unwrap().unwrap().budget, Some(weekly));
    let edited = KeyRecord { budget: None, changed: Micros::new(9), ..made.clone() };
    assert!(store.update_key(&edited).await.unwrap());
    assert_eq!(store.key(&made.id).await.unwrap(), Some(edited));
    store.close().await;
}

async fn a_period_sums_the_calls_admitted_in_it(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (ours, other) = (some_key(&store).await, some_key(&store).await);
    // 2026-11-01 was a Sunday and day 20758 since 1970.
    let november = 20_758 * DAY;
    let call = |id: &str, key: &KeyRecord, cost, started: Micros| LedgerEntry {
        started,
        ..entry(id, key, cost, (started + DAY).get())
    };
    let calls = [
        call("october", &ours, 1, november - Micros::new(1)),
        call("first", &ours, 10, november),
        call("monday", &ours, 100, november + DAY),
        call("tuesday", &ours, 1_000, november + 2 * DAY),
        call("theirs", &other, 10_000, november + 2 * DAY),
    ];
    store.post(&calls).await.unwrap();
    // Posted again with one new call: each counts once.
    let more = call("tuesday too", &ours, 5_000, november + 2 * DAY + Micros::new(1));
    store.post(&[&calls[..], std::slice::from_ref(&more)].concat()).await.unwrap();
    let tuesday = november + 2 * DAY + Micros::new(5);
    for (period, first, sum) in [
        (BudgetPeriod::Day, 20_760, 6_000),
        (BudgetPeriod::Week, 20_759, 6_100),
        (BudgetPeriod::Month, 20_758, 6_110),
    ] {
        let told = store.spent_in(&ours.id, period, tuesday).await.unwrap();
        assert_eq!(told, (first, Money::from_nanos(sum)), "{period:?}");
    }
    let told = store.spent_in("nobody", BudgetPeriod::Day, tuesday).await.unwrap();
    assert_eq!(told.1, Money::ZERO);
    store.close().await;
}
