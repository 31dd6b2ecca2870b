//! Forecasts, keys that expire, quiet hours, and the bounds of a round.

use std::time::Duration;

use canon::{Micros, Money};
use ledger::{BudgetPeriod, BudgetTerms};
use serde_json::{Value, json};
use store::{
    Account, AccountRole, Alert, AlertDelivery, AlertKind, AlertWay, ClusterTurn, DeliveryState,
    LimitKind,
};
use testkit::until;

use crate::alerts::Site;
use crate::mail_sink::MailSink;
use crate::money::key;

const DAY: Micros = Micros::from_days(1);

/// Looks until there are so many alerts, and returns the newest.
async fn newest(site: &Site, count: usize) -> Value {
    until("the alerts are found", async || {
        site.gateway.app.run_alerts().await.unwrap();
        site.alerts().await.len() >= count
    })
    .await;
    let mut all = site.alerts().await;
    assert_eq!(all.len(), count, "{all:?}");
    all.remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_told_before_each_of_its_ends_once() {
    let site = Site::start(vec![204]).await;
    site.listen("signed").await;
    let now = site.gateway.app.clock.now();
    let expires = now + DAY * 20;
    key(&site.gateway, |key| key.expires = Some(expires)).await;
    site.gateway.app.run_alerts().await.unwrap();
    assert_eq!(site.alerts().await, [json!(null); 0]);
    let mut told = Vec::new();
    for (step, level) in [(DAY * 27 / 2, "7 days"), (DAY * 6, "a day")] {
        site.clock.step(step);
        let alert = newest(&site, told.len() + 1).await;
        let text = alert["text"].as_str().unwrap();
        assert!(text.contains(&format!(" expires within {level}, on ")), "{text}");
        assert_eq!(alert["kind"], "key_expiry");
        told.push(alert["id"].clone());
        for _ in 0..2 {
            site.gateway.app.run_alerts().await.unwrap();
        }
    }
    let messages = site.messages(2).await;
    for (message, id) in messages.iter().zip(&told) {
        let body = message.json();
        assert_eq!((&body["type"], &body["data"]["id"]), (&json!("alert.key_expiry"), id));
    }
    // Another end is told again, from its first level on.
    let store = &site.gateway.app.store;
    let keys = store.keys_of(&site.account_id).await.unwrap();
    let record = keys.into_iter().find(|key| key.expires == Some(expires)).unwrap();
    let path = format!("/api/admin/keys/{}", record.id);
    let admin = site.gateway.admin_key().await.to_owned();
    let change = json!({ "expires_in": "3d" }).to_string();
    let request = site.gateway.request(http::Method::PATCH, &path).key(&admin);
    let got = request.body(change).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let again = newest(&site, 3).await;
    assert_eq!(again["key_id"], json!(record.id));
    assert!(again["text"].as_str().unwrap().contains(" within 7 days"), "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_will_not_last_is_told_once() {
    let site = Site::start(vec![204]).await;
    site.listen("signed").await;
    // The pace of a day is known after a quarter of it.
    let (begun, end) = BudgetPeriod::Day.bounds(site.gateway.app.clock.now());
    let tomorrow = end + (end - begun) / 3;
    site.clock.step(tomorrow - site.gateway.app.clock.now());
    let limit: Money = "0.005".parse().unwrap();
    let terms = BudgetTerms { limit, period: BudgetPeriod::Day };
    let text = key(&site.gateway, |key| key.budget = Some(terms)).await;
    // A third of the day and two fifths of the budget, which is below every level.
    site.spend(&text, 2, 1).await;
    let alert = newest(&site, 1).await;
    assert_eq!(alert["kind"], "forecast");
    assert_eq!(
        (&alert["spent_usd"], &alert["level_percent"]),
        (&json!("0.002000000"), &json!(null))
    );
    let forecast: Money = alert["forecast_usd"].as_str().unwrap().parse().unwrap();
    assert!(forecast > limit && forecast <= "0.006".parse().unwrap(), "{forecast}");
    let messages = site.messages(1).await;
    assert_eq!(messages[0].json()["type"], "alert.forecast");
    // More of the same is no news, but a level is.
    site.spend(&text, 2, 2).await;
    assert_eq!(newest(&site, 2).await["kind"], "spending");
    site.messages(2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_is_spent_at_the_end_of_its_period_is_told() {
    let site = Site::start(vec![204]).await;
    site.listen("signed").await;
    let (_, end) = BudgetPeriod::Day.bounds(site.gateway.app.clock.now());
    site.clock.step(end + DAY - Micros::from_secs(120) - site.gateway.app.clock.now());
    let terms = BudgetTerms { limit: "0.002".parse().unwrap(), period: BudgetPeriod::Day };
    let text = key(&site.gateway, |key| key.budget = Some(terms)).await;
    for _ in 0..2 {
        let order = json!({ "model": "m", "prompt": "a dot" });
        let got = site.gateway.post("/v1/images/generations", &order).key(&text).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    site.gateway.wait_until_settled().await;
    // Nobody looked before midnight.
    site.clock.step(Micros::from_secs(180));
    let alert = newest(&site, 1).await;
    assert_eq!((&alert["kind"], &alert["level_percent"]), (&json!("spending"), &json!(100)));
    assert_eq!(alert["spent_usd"], "0.002000000");
    site.gateway.app.run_alerts().await.unwrap();
    site.messages(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mails_of_quiet_hours_are_one_mail_after_them() {
    let sink = MailSink::start().await;
    let mail = format!("[mail]\nurl = \"{}\"\nfrom = \"gateway@example.com\"", sink.url);
    let site = Site::with(vec![204], &mail).await;
    let now = site.gateway.app.clock.now();
    let anna = Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: "anna".to_owned(),
        email: Some("anna@example.com".to_owned()),
        role: AccountRole::Member,
        password_hash: None,
        disabled: false,
        created: now,
        changed: now,
    };
    site.gateway.app.store.add_account(&anna).await.unwrap();
    let clock = |at: Micros| {
        let time = jiff::Timestamp::from_microsecond(at.get()).unwrap();
        time.strftime("%H:%M").to_string()
    };
    let hours = Micros::from_hours(1);
    let quiet =
        json!({ "from": clock(now - hours), "to": clock(now + hours * 2), "time_zone": "UTC" });
    let path = format!("/api/admin/users/{}/alerts", anna.id);
    let admin = site.gateway.admin_key().await.to_owned();
    let request = site.gateway.request(http::Method::PATCH, &path).key(&admin);
    let change = json!({ "quiet_hours": quiet, "levels_percent": [50, 100] });
    let got = request.body(change.to_string()).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let cap = Some("0.002".parse().unwrap());
    let text = key(&site.gateway, |key| {
        key.account_id.clone_from(&anna.id);
        key.cap = cap;
    })
    .await;
    for alerts in [1, 2] {
        site.spend(&text, 1, alerts).await;
        let store = &site.gateway.app.store;
        until("the mail waits", async || {
            site.gateway.app.run_alerts().await.unwrap();
            let now = site.gateway.app.clock.now();
            store.due_alerts(AlertWay::Mail, now, 10).await.unwrap().is_empty()
        })
        .await;
    }
    assert_eq!(sink.mails(), [""; 0]);
    for alert in site.alerts().await {
        assert_eq!(alert["mail"], json!({ "state": "pending", "tries": 0, "status": null }));
    }
    site.clock.step(hours * 2);
    until("the mail is noted", async || {
        site.gateway.app.run_alerts().await.unwrap();
        let alerts = site.alerts().await;
        alerts.iter().all(|alert| alert["mail"]["state"] == "delivered")
    })
    .await;
    let mails = sink.mails();
    assert_eq!(mails.len(), 1, "{mails:?}");
    assert!(mails[0].contains("Subject: Spending is near a limit"), "{}", mails[0]);
    for sentence in ["which is 50 % of its cap of $0.002", "has spent its cap of $0.002"] {
        assert!(mails[0].contains(sentence), "{sentence}: {}", mails[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_sends_twenty_messages_of_an_account_and_none_after_its_time() {
    let site = Site::start(vec![204]).await;
    site.listen("signed").await;
    let now = site.gateway.app.clock.now();
    let due =
        AlertDelivery { state: Some(DeliveryState::Pending), at: now, ..AlertDelivery::default() };
    let alert = |level| Alert {
        id: uuid::Uuid::now_v7().to_string(),
        account_id: site.account_id.clone(),
        key_id: None,
        kind: AlertKind::Spending(LimitKind::Cap),
        begun: Micros::ZERO,
        amount: Money::from_nanos(100),
        level,
        spent: Money::from_nanos(99),
        at: now,
        event: None,
        mail: AlertDelivery::default(),
        webhook: due,
    };
    // The schedule of the gateway tells nothing meanwhile.
    let store = &site.gateway.app.store;
    until("the test has the turn", async || {
        store.take_turn(ClusterTurn::Alerts, "a test", Micros::from_hours(1)).await.unwrap()
    })
    .await;
    store.add_alerts((1..=25).map(alert).collect()).await.unwrap();
    let tell = async |time| site.gateway.app.tell_alerts(AlertWay::Webhook, time).await.unwrap();
    let long = Duration::from_secs(600);
    tell(Duration::ZERO).await;
    assert_eq!(site.listener.requests().len(), 0, "the time was over");
    tell(long).await;
    assert_eq!(site.listener.requests().len(), 20);
    let waiting = || async {
        let now = site.gateway.app.clock.now();
        store.due_alerts(AlertWay::Webhook, now + Micros::from_secs(15), 100).await.unwrap().len()
    };
    assert_eq!(waiting().await, 5);
    site.clock.step(Micros::from_secs(15));
    tell(long).await;
    assert_eq!(site.listener.requests().len(), 25);
    assert_eq!(waiting().await, 0);
}
