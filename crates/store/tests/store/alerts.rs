//! Alerts: spending against every limit, each level once, and the state of deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;

use canon::{Micros, Money};
use ledger::BudgetPeriod;
use proptest::prelude::*;
use store::{
    AccountTerms, Alert, AlertDelivery, AlertFilter, AlertKind, AlertSettings, AlertWay,
    BudgetTerms, ClusterTurn, DeliveryState, EndingKey, KeyRecord, LimitKind, LimitStanding,
    QuietHours, SealedSecret, SealedWebhook, Store, WebhookForm,
};

use crate::on_both;
use crate::samples::{self, account, check, entry, id, some_key};
use crate::test_database::TestDatabase;

on_both!(
    standings_are_those_of_the_calls,
    limits_that_nobody_uses_are_left_out,
    budgets_of_the_period_before_have_its_spending,
    a_level_is_told_once_for_each_limit,
    a_forecast_is_known_for_its_budget_and_period,
    keys_that_expire_are_found_with_what_was_told,
    deliveries_are_due_until_they_end,
    settings_are_kept_and_erased_with_their_account,
    turns_of_different_work_are_independent,
);

/// A Wednesday, in the middle of its month.
const NOW: Micros = Micros::from_secs(1_763_550_000);
const DAY: Micros = Micros::from_days(1);
const LONG_AGO: Micros = Micros::ZERO;

fn budget(limit: i64, period: BudgetPeriod) -> BudgetTerms {
    BudgetTerms { limit: Money::from_nanos(limit), period }
}

fn period() -> impl Strategy<Value = BudgetPeriod> {
    prop::sample::select(BudgetPeriod::ALL.to_vec())
}

/// Limits of a key or an account.
#[derive(Clone, Debug)]
struct Limits {
    cap: Option<i64>,
    budget: Option<(i64, BudgetPeriod)>,
}

fn limits() -> impl Strategy<Value = Limits> {
    let (cap, limit) = (prop::option::of(0..5_000_i64), 0..5_000_i64);
    (cap, prop::option::of((limit, period()))).prop_map(|(cap, budget)| Limits { cap, budget })
}

async fn set_terms(store: &Store, account_id: &str, limits: &Limits) {
    let terms = AccountTerms {
        cap: limits.cap.map(Money::from_nanos),
        budget: limits.budget.map(|(limit, period)| budget(limit, period)),
        ..AccountTerms::default()
    };
    store.set_account_terms(account_id, &terms).await.unwrap();
}

async fn standings_are_those_of_the_calls(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let keys = prop::collection::vec((0..3_usize, limits()), 1..5);
    // The key, the days before now, and the cost.
    let calls = prop::collection::vec((0..5_usize, 0..40_i64, 0..2_000_i64), 0..12);
    let accounts = prop::collection::vec(limits(), 3);
    check(24, (accounts, keys, calls), |(accounts, keys, calls)| {
        let store = &store;
        async move {
            let mut owners = Vec::new();
            for limits in &accounts {
                let owner = account(&id());
                store.add_account(&owner).await.unwrap();
                set_terms(store, &owner.id, limits).await;
                owners.push(owner.id);
            }
            let mut records: Vec<KeyRecord> = Vec::new();
            for (owner, limits) in &keys {
                let record = KeyRecord {
                    cap: limits.cap.map(Money::from_nanos),
                    budget: limits.budget.map(|(limit, period)| budget(limit, period)),
                    ..samples::key(&owners[*owner])
                };
                store.add_key(&record).await.unwrap();
                records.push(record);
            }
            let mut spent: BTreeMap<usize, Vec<(Micros, Money)>> = BTreeMap::new();
            for (number, days, cost) in calls {
                let number = number % records.len();
                let began = NOW - DAY * days;
                let mut call = entry(&id(), &records[number], cost, began.get());
                call.started = began;
                store.post(std::slice::from_ref(&call)).await.unwrap();
                // A call without a lease is charged as far as its limits have room.
                let charged = store.entry(&call.request_id).await.unwrap().unwrap().cost;
                spent.entry(number).or_default().push((began, charged));
            }
            let of = |numbers: &[usize], since: Micros| -> Money {
                let calls = numbers.iter().filter_map(|number| spent.get(number)).flatten();
                calls.filter(|(began, _)| *began >= since).map(|(_, cost)| *cost).sum()
            };
            let mut wanted = Vec::new();
            let mut want = |account: usize, key: Option<usize>, limits: &Limits, own: &[usize]| {
                let is_used = own.iter().any(|number| spent.contains_key(number));
                let cap = limits.cap.map(|cap| (LimitKind::Cap, cap));
                let budget = limits.budget.map(|(limit, each)| (LimitKind::Budget(each), limit));
                for (kind, amount) in cap.into_iter().chain(budget).filter(|_| is_used) {
                    wanted.push(LimitStanding {
                        account_id: owners[account].clone(),
                        key_id: key.map(|key| records[key].id.clone()),
                        kind,
                        begun: kind.begun(NOW),
                        amount: Money::from_nanos(amount),
                        spent: of(own, kind.begun(NOW)),
                        told: 0,
                        is_forecast_told: false,
                    });
                }
            };
            for (number, (owner, limits)) in keys.iter().enumerate() {
                want(*owner, Some(number), limits, &[number]);
            }
            for (number, limits) in accounts.iter().enumerate() {
                let own: Vec<usize> =
                    (0..keys.len()).filter(|key| keys[*key].0 == number).collect();
                want(number, None, limits, &own);
            }
            let order =
                |one: &LimitStanding| (one.account_id.clone(), one.key_id.clone(), one.kind.word());
            let found = store.limit_standings(NOW, LONG_AGO).await.unwrap();
            let mut found: Vec<LimitStanding> =
                found.into_iter().filter(|one| owners.contains(&one.account_id)).collect();
            found.sort_by_key(order);
            wanted.sort_by_key(order);
            assert_eq!(found, wanted);
        }
    });
}

async fn limits_that_nobody_uses_are_left_out(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("anna");
    store.add_account(&owner).await.unwrap();
    let capped = || KeyRecord { cap: Some(Money::from_nanos(10)), ..samples::key(&owner.id) };
    let (used, old, unused) = (capped(), capped(), capped());
    let expired = KeyRecord { expires: Some(NOW), ..capped() };
    let revoked = KeyRecord { revoked: Some(NOW), ..capped() };
    for key in [&used, &old, &unused, &expired, &revoked] {
        store.add_key(key).await.unwrap();
    }
    for (key, at) in [(&used, NOW), (&old, NOW - DAY * 3), (&expired, NOW), (&revoked, NOW)] {
        store.post(&[entry(&id(), key, 9, at.get())]).await.unwrap();
    }
    let found = store.limit_standings(NOW, NOW - DAY).await.unwrap();
    let found: Vec<Option<String>> = found.into_iter().map(|one| one.key_id).collect();
    assert_eq!(found, [Some(used.id)]);
}

async fn budgets_of_the_period_before_have_its_spending(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("anna");
    store.add_account(&owner).await.unwrap();
    let with = |period| KeyRecord { budget: Some(budget(10, period)), ..samples::key(&owner.id) };
    let keys = BudgetPeriod::ALL.map(with);
    for key in &keys {
        store.add_key(key).await.unwrap();
    }
    let cap = KeyRecord { cap: Some(Money::from_nanos(10)), ..samples::key(&owner.id) };
    store.add_key(&cap).await.unwrap();
    let monday = BudgetPeriod::Week.bounds(NOW).0;
    for key in keys.iter().chain([&cap]) {
        for (at, cost) in [(monday - DAY * 2, 1), (monday - Micros::new(20), 7), (monday + DAY, 9)]
        {
            store.post(&[entry(&id(), key, cost, at.get() + 15)]).await.unwrap();
        }
    }
    let minute = Micros::from_secs(60);
    for (now, wanted) in [
        (monday + minute, &[(BudgetPeriod::Day, 7), (BudgetPeriod::Week, 8)][..]),
        (monday + DAY + minute, &[(BudgetPeriod::Day, 0)]),
        (monday + DAY * 2 + minute, &[(BudgetPeriod::Day, 9)]),
        // The spending counts for the day before.
        (monday + Micros::from_secs(1), &[]),
    ] {
        let found = store.ended_standings(now, LONG_AGO).await.unwrap();
        let mut found: Vec<_> =
            found.iter().map(|one| (one.kind.word(), one.begun, one.spent.as_nanos())).collect();
        found.sort_unstable();
        let last = BudgetPeriod::Day.bounds(now).0 - Micros::new(1);
        let wanted = wanted.iter();
        let wanted = wanted.map(|(period, spent)| (period.word(), period.bounds(last).0, *spent));
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{now}");
    }
}

/// An alert about a limit of a key.
fn alert(key: &KeyRecord, kind: LimitKind, amount: i64, level: u8) -> Alert {
    let due =
        AlertDelivery { state: Some(DeliveryState::Pending), at: NOW, ..AlertDelivery::default() };
    Alert {
        id: id(),
        account_id: key.account_id.clone(),
        key_id: Some(key.id.clone()),
        kind: AlertKind::Spending(kind),
        begun: kind.begun(NOW),
        amount: Money::from_nanos(amount),
        level,
        spent: Money::from_nanos(amount),
        at: NOW,
        event: None,
        mail: due,
        webhook: due,
    }
}

async fn a_level_is_told_once_for_each_limit(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let first = alert(&key, LimitKind::Cap, 100, 80);
    assert_eq!(store.add_alerts(vec![first.clone()]).await.unwrap(), std::slice::from_ref(&first));
    // The same again, from another node at the same time.
    let again = Alert { id: id(), ..first.clone() };
    assert_eq!(store.add_alerts(vec![again]).await.unwrap(), []);
    let month = LimitKind::Budget(BudgetPeriod::Month);
    let others = vec![
        alert(&key, LimitKind::Cap, 100, 100),
        alert(&key, LimitKind::Cap, 200, 80),
        alert(&key, month, 100, 80),
        Alert { begun: month.begun(NOW + DAY * 31), ..alert(&key, month, 100, 80) },
        Alert { key_id: None, ..alert(&key, LimitKind::Cap, 100, 80) },
    ];
    assert_eq!(store.add_alerts(others.clone()).await.unwrap(), others);
    let gone = Alert { account_id: id(), ..alert(&key, LimitKind::Cap, 100, 80) };
    assert_eq!(store.add_alerts(vec![gone]).await.unwrap(), [], "its account is gone");
    // Pages have each alert once.
    let mut all = Vec::new();
    let mut filter = AlertFilter { account_id: Some(key.account_id.clone()), before: None };
    loop {
        let page = store.alerts(&filter, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some((last.at, last.id.clone()));
        all.extend(page);
    }
    let mut wanted: Vec<Alert> = others.into_iter().chain([first]).collect();
    wanted.sort_by(|a, b| b.id.cmp(&a.id));
    assert_eq!(all, wanted);
    // A standing knows the highest level of its own limit.
    let mut change = store.begin_change().await.unwrap();
    let capped = KeyRecord { cap: Some(Money::from_nanos(100)), ..key.clone() };
    assert!(change.update_key(&capped).await.unwrap());
    change.commit_unaudited().await.unwrap();
    store.post(&[entry(&id(), &key, 90, NOW.get())]).await.unwrap();
    let told: Vec<u8> =
        store.limit_standings(NOW, LONG_AGO).await.unwrap().iter().map(|one| one.told).collect();
    assert_eq!(told, [100]);
    assert_eq!(store.drop_alerts(NOW).await.unwrap(), 0);
    assert_eq!(store.drop_alerts(NOW + Micros::new(1)).await.unwrap(), 6);
}

async fn a_forecast_is_known_for_its_budget_and_period(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("anna");
    store.add_account(&owner).await.unwrap();
    let month = BudgetPeriod::Month;
    let record = KeyRecord { budget: Some(budget(100, month)), ..samples::key(&owner.id) };
    store.add_key(&record).await.unwrap();
    let limits = Limits { cap: None, budget: Some((100, month)) };
    set_terms(&store, &owner.id, &limits).await;
    store.post(&[entry(&id(), &record, 60, NOW.get())]).await.unwrap();
    let told = async || {
        let standings = store.limit_standings(NOW, LONG_AGO).await.unwrap();
        let of = |one: LimitStanding| (one.key_id.is_some(), one.told, one.is_forecast_told);
        standings.into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(told().await, [(true, 0, false), (false, 0, false)]);
    let limit = LimitKind::Budget(month);
    let forecast = Alert { kind: AlertKind::Forecast(month), ..alert(&record, limit, 100, 100) };
    let others = vec![
        // Of a level, of another period, another amount and another kind of period.
        alert(&record, limit, 100, 50),
        Alert { id: id(), begun: limit.begun(NOW - DAY * 31), ..forecast.clone() },
        Alert { id: id(), amount: Money::from_nanos(99), ..forecast.clone() },
        Alert { id: id(), kind: AlertKind::Forecast(BudgetPeriod::Week), ..forecast.clone() },
    ];
    assert_eq!(store.add_alerts(others.clone()).await.unwrap(), others);
    assert_eq!(told().await, [(true, 50, false), (false, 0, false)]);
    assert_eq!(
        store.add_alerts(vec![forecast.clone()]).await.unwrap(),
        std::slice::from_ref(&forecast)
    );
    assert_eq!(told().await, [(true, 50, true), (false, 0, false)], "the level stays");
    let whole = Alert { id: id(), key_id: None, ..forecast.clone() };
    assert_eq!(store.add_alerts(vec![whole]).await.unwrap().len(), 1);
    assert_eq!(told().await, [(true, 50, true), (false, 0, true)]);
    let again = Alert { id: id(), ..forecast };
    assert_eq!(store.add_alerts(vec![again]).await.unwrap(), []);
}

async fn keys_that_expire_are_found_with_what_was_told(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("anna");
    let gone = store::Account { disabled: true, ..account("bert") };
    for account in [&owner, &gone] {
        store.add_account(account).await.unwrap();
    }
    let until = NOW + DAY * 7;
    let ends = |expires: Micros| KeyRecord { expires: Some(expires), ..samples::key(&owner.id) };
    let (soon, last) = (ends(NOW + DAY), ends(until));
    let others = [
        samples::key(&owner.id),
        ends(NOW),
        ends(until + Micros::new(1)),
        KeyRecord { revoked: Some(NOW), ..ends(NOW + DAY) },
        KeyRecord { surface: Some("cli".to_owned()), ..ends(NOW + DAY) },
        KeyRecord { account_id: gone.id, ..ends(NOW + DAY) },
    ];
    for key in others.iter().chain([&last, &soon]) {
        store.add_key(key).await.unwrap();
    }
    let ending = |key: &KeyRecord, told| EndingKey {
        account_id: owner.id.clone(),
        key_id: key.id.clone(),
        created: key.created,
        expires: key.expires.unwrap(),
        told,
    };
    let found = async || store.ending_keys(NOW, until).await.unwrap();
    assert_eq!(found().await, [ending(&soon, None), ending(&last, None)]);
    let told = |begun, level| Alert {
        kind: AlertKind::KeyExpiry,
        begun,
        ..alert(&soon, LimitKind::Cap, 0, level)
    };
    // Of another end of the same key.
    store.add_alerts(vec![told(NOW + DAY * 2, 1)]).await.unwrap();
    assert_eq!(found().await, [ending(&soon, None), ending(&last, None)]);
    for level in [7, 1] {
        store.add_alerts(vec![told(NOW + DAY, level)]).await.unwrap();
        assert_eq!(found().await, [ending(&soon, Some(level)), ending(&last, None)]);
    }
    assert_eq!(store.add_alerts(vec![told(NOW + DAY, 1)]).await.unwrap(), []);
}

async fn deliveries_are_due_until_they_end(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (key, other) = (some_key(&store).await, some_key(&store).await);
    let [first, second] = [80, 100].map(|level| alert(&key, LimitKind::Cap, 100, level));
    let third = alert(&other, LimitKind::Cap, 100, 80);
    let silent = Alert {
        mail: AlertDelivery::default(),
        webhook: AlertDelivery::default(),
        ..alert(&other, LimitKind::Cap, 100, 100)
    };
    let all = vec![first.clone(), second.clone(), third.clone(), silent];
    store.add_alerts(all).await.unwrap();
    let due = async |way, now| {
        let due = store.due_alerts(way, now, 10).await.unwrap();
        due.into_iter().map(|one| one.id).collect::<Vec<String>>()
    };
    for way in [AlertWay::Mail, AlertWay::Webhook] {
        assert_eq!(due(way, NOW - Micros::new(1)).await, [""; 0]);
        assert_eq!(due(way, NOW).await, [&*first.id, &*second.id, &*third.id]);
    }
    let later = NOW + Micros::from_secs(30);
    let failed = AlertDelivery {
        state: Some(DeliveryState::Pending),
        tries: 1,
        at: later,
        status: Some(500),
    };
    store.note_alert_delivery(&first.id, AlertWay::Webhook, failed).await.unwrap();
    store.postpone_alerts(&key.account_id, AlertWay::Webhook, later).await.unwrap();
    assert_eq!(due(AlertWay::Webhook, NOW).await, [&*third.id]);
    // The one that waits the longest comes first.
    assert_eq!(due(AlertWay::Webhook, later).await, [&*third.id, &*first.id, &*second.id]);
    assert_eq!(due(AlertWay::Mail, NOW).await.len(), 3, "mails do not wait for webhooks");
    let done = AlertDelivery { state: Some(DeliveryState::Delivered), ..failed };
    store.note_alert_delivery(&first.id, AlertWay::Webhook, done).await.unwrap();
    let sent = AlertDelivery { status: None, at: NOW, ..done };
    store.note_alert_delivery(&first.id, AlertWay::Mail, sent).await.unwrap();
    assert_eq!(due(AlertWay::Webhook, later).await, [&*third.id, &*second.id]);
    assert_eq!(due(AlertWay::Mail, later).await, [&*second.id, &*third.id]);
    store.postpone_alerts(&key.account_id, AlertWay::Mail, later).await.unwrap();
    assert_eq!(due(AlertWay::Mail, NOW).await, [&*third.id]);
    let filter = AlertFilter { account_id: Some(key.account_id.clone()), before: None };
    let kept = store.alerts(&filter, 10).await.unwrap();
    let kept = kept.iter().find(|one| one.id == first.id).unwrap();
    assert_eq!((kept.mail, kept.webhook), (sent, done));
    assert_eq!(store.last_alert_mail(&key.account_id, NOW).await.unwrap(), NOW);
    assert_eq!(store.last_alert_mail(&other.account_id, NOW).await.unwrap(), Micros::ZERO);
}

async fn settings_are_kept_and_erased_with_their_account(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = account("anna");
    store.add_account(&owner).await.unwrap();
    assert_eq!(store.alert_settings(&owner.id).await.unwrap(), AlertSettings::default());
    assert!(store.all_alert_settings().await.unwrap().is_empty());
    let address = SealedSecret { by: "one".to_owned(), bytes: vec![1, 2, 3] };
    let webhook = Some(SealedWebhook { form: WebhookForm::Slack, address });
    let quiet = Some(QuietHours::new("22:00", "07:30", "Europe/Berlin").unwrap());
    let usual = AlertSettings::default();
    let chosen =
        AlertSettings { levels: vec![50, 90], mails: false, quiet, webhook, ..usual.clone() };
    for settings in [
        chosen.clone(),
        AlertSettings { forecasts: false, ..usual.clone() },
        AlertSettings { expiries: false, ..usual.clone() },
        AlertSettings { statements: true, ..usual.clone() },
        usual,
        chosen.clone(),
    ] {
        let mut change = store.begin_change().await.unwrap();
        change.put_alert_settings(&owner.id, &settings, NOW).await.unwrap();
        change.commit_unaudited().await.unwrap();
        assert_eq!(store.alert_settings(&owner.id).await.unwrap(), settings);
    }
    let all = store.all_alert_settings().await.unwrap();
    assert_eq!(all, BTreeMap::from([(owner.id.clone(), chosen)]));
    assert_eq!(store.sealed().await.unwrap(), BTreeMap::from([("one".to_owned(), 1)]));
    let mut change = store.begin_change().await.unwrap();
    assert!(change.put_alert_settings("nobody", &AlertSettings::default(), NOW).await.is_err());
}

async fn turns_of_different_work_are_independent(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let long = Micros::from_secs(60);
    assert!(store.take_turn(ClusterTurn::Retention, "a", long).await.unwrap());
    assert!(store.take_turn(ClusterTurn::Alerts, "b", long).await.unwrap());
    assert!(!store.take_turn(ClusterTurn::Alerts, "a", long).await.unwrap());
    store.end_turn(ClusterTurn::Alerts, "b").await.unwrap();
    assert!(store.take_turn(ClusterTurn::Alerts, "a", long).await.unwrap());
}
