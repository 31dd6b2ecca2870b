//! Limits of accounts, budgets of keys, and what was spent in a period.

use std::sync::Arc;

use canon::Money;
use ledger::{Entry, Period};
use store::{BudgetTerms, KeyRecord, Limits};

use crate::on_both;
use crate::place::Place;
use crate::samples::{account, entry, key, some_key};

on_both!(
    an_accounts_limits_are_set_changed_and_taken_away,
    a_keys_budget_is_kept_and_edited,
    a_period_has_spent_what_was_admitted_in_it,
);

const DAY: i64 = 86_400_000_000;

async fn an_accounts_limits_are_set_changed_and_taken_away(place: Arc<Place>) {
    let store = place.open().await;
    assert_eq!(store.account_limits().await.unwrap(), vec![]);
    store.put_setting("limits", "no account's").await.unwrap();
    store.put_setting("limitsx", "no account's").await.unwrap();
    let some = Limits { rpm: Some(u32::MAX), tpm: Some(0), concurrency: None };
    store.set_account_limits("a", some).await.unwrap();
    assert_eq!(store.account_limits().await.unwrap(), vec![("a".to_owned(), some)]);
    store.set_account_limits("a", Limits::default()).await.unwrap();
    assert_eq!(store.account_limits().await.unwrap(), vec![("a".to_owned(), Limits::default())]);
    store.close().await;
}

async fn a_keys_budget_is_kept_and_edited(place: Arc<Place>) {
    let store = place.open().await;
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    let weekly = BudgetTerms { most: Money::nanos(5), period: Period::Week };
    let made = KeyRecord { budget: Some(weekly), ..key(&ada.id) };
    store.add_key(&made).await.unwrap();
    assert_eq!(store.key(&made.id).await.unwrap().unwrap().budget, Some(weekly));
    let edited = KeyRecord { budget: None, changed: 9, ..made.clone() };
    assert!(store.update_key(&edited).await.unwrap());
    assert_eq!(store.key(&made.id).await.unwrap(), Some(edited));
    store.close().await;
}

async fn a_period_has_spent_what_was_admitted_in_it(place: Arc<Place>) {
    let store = place.open().await;
    let (ours, other) = (some_key(&store).await, some_key(&store).await);
    // The 1st of November 2026 was a Sunday, the 20758th day since 1970.
    let november = 20_758 * DAY;
    let call = |id: &str, key: &KeyRecord, cost, started| Entry {
        started,
        ..entry(id, key, cost, started + DAY)
    };
    let calls = [
        call("october", &ours, 1, november - 1),
        call("first", &ours, 10, november),
        call("monday", &ours, 100, november + DAY),
        call("tuesday", &ours, 1_000, november + 2 * DAY),
        call("theirs", &other, 10_000, november + 2 * DAY),
    ];
    store.post(&calls).await.unwrap();
    // Again, with one new among them: each counts once.
    let more = call("tuesday too", &ours, 5_000, november + 2 * DAY + 1);
    store.post(&[&calls[..], std::slice::from_ref(&more)].concat()).await.unwrap();
    let tuesday = november + 2 * DAY + 5;
    for (period, first, sum) in [
        (Period::Day, 20_760, 6_000),
        (Period::Week, 20_759, 6_100),
        (Period::Month, 20_758, 6_110),
    ] {
        let told = store.spent_in(&ours.id, period, tuesday).await.unwrap();
        assert_eq!(told, (first, Money::nanos(sum)), "{period:?}");
    }
    let told = store.spent_in("nobody", Period::Day, tuesday).await.unwrap();
    assert_eq!(told.1, Money::ZERO);
    store.close().await;
}
