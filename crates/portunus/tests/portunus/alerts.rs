//! Alerts about spending: each level once, signed messages, attempts after failures, and who may change them.

use canon::Micros;
use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{ReceivedRequest, ScriptedProvider, ShiftedClock, TestGateway, reply, until};

use crate::money::{capped, key};
use crate::tasks::harness::{config, picture};
use crate::tasks::webhooks::is_signed;

/// A gateway whose pictures cost $0.001, and whose alerts may be sent to that listener.
pub(crate) struct Site {
    pub(crate) gateway: TestGateway,
    pub(crate) listener: ScriptedProvider,
    pub(crate) clock: Arc<ShiftedClock>,
    _provider: ScriptedProvider,
    pub(crate) account_id: String,
}

impl Site {
    pub(crate) async fn start(answers: Vec<u16>) -> Self {
        Self::with(answers, "").await
    }

    /// The same with more configuration.
    pub(crate) async fn with(answers: Vec<u16>, more: &str) -> Self {
        let provider = ScriptedProvider::start(vec![picture()]).await;
        let answers = answers.into_iter().map(|status| reply(status, "text/plain", "")).collect();
        let listener = ScriptedProvider::start(answers).await;
        let place = listener.url.strip_prefix("http://").unwrap();
        let allowed = format!("[media]\nallow = [\"{place}\"]\n{more}");
        let clock = Arc::new(ShiftedClock::default());
        let config = config(&provider.url, &allowed);
        let gateway = TestGateway::with_clock(&config, Arc::<ShiftedClock>::clone(&clock)).await;
        let account_id = gateway.app.store.accounts().await.unwrap().remove(0).id;
        Self { gateway, listener, clock, _provider: provider, account_id }
    }

    pub(crate) async fn settings(&self, change: &Value) -> testkit::TestResponse {
        let path = format!("/api/admin/users/{}/alerts", self.account_id);
        let admin = self.gateway.admin_key().await.to_owned();
        let request = self.gateway.request(http::Method::PATCH, &path).key(&admin);
        request.body(change.to_string()).send().await
    }

    pub(crate) async fn listen(&self, form: &str) {
        let url = format!("{}/hook?word=secret", self.listener.url);
        let webhook = json!({ "form": form, "url": url });
        let change = json!({ "levels_percent": [100, 50, 80], "webhook": webhook });
        let got = self.settings(&change).await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.json()["levels_percent"], json!([50, 80, 100]));
        assert!(!got.text().contains("secret"), "{}", got.text());
    }

    /// Pays for pictures, and looks for alerts until their number is that.
    pub(crate) async fn spend(&self, key: &str, pictures: usize, alerts: usize) {
        for _ in 0..pictures {
            let order = json!({ "model": "m", "prompt": "a dot" });
            let got = self.gateway.post("/v1/images/generations", &order).key(key).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
        }
        self.gateway.wait_until_settled().await;
        // The schedule of the gateway may have the turn.
        until("the alerts are found", async || {
            self.gateway.app.run_alerts().await.unwrap();
            self.alerts().await.len() == alerts
        })
        .await;
    }

    pub(crate) async fn alerts(&self) -> Vec<Value> {
        let admin = self.gateway.admin_key().await.to_owned();
        let got = self.gateway.get("/api/admin/alerts").key(&admin).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let all = got.json()["data"].as_array().unwrap().clone();
        // A slow machine, or a clock that is moved, may be a trouble of the gateway, which has no account.
        all.into_iter().filter(|alert| !alert["account_id"].is_null()).collect()
    }

    /// Waits for the messages to the listener.
    pub(crate) async fn messages(&self, count: usize) -> Vec<ReceivedRequest> {
        until("the messages are sent", async || {
            self.gateway.app.run_alerts().await.unwrap();
            self.listener.requests().len() >= count
        })
        .await;
        assert_eq!(self.listener.requests().len(), count);
        self.listener.requests()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_level_of_a_cap_is_one_signed_message() {
    let site = Site::start(vec![204]).await;
    site.listen("signed").await;
    let key = capped(&site.gateway, "0.005").await;
    site.spend(&key, 2, 0).await;
    // Two levels at once are one alert.
    site.spend(&key, 2, 1).await;
    site.messages(1).await;
    site.spend(&key, 1, 2).await;
    let messages = site.messages(2).await;
    let secret = site.gateway.app.api.alert_secret(&site.account_id);
    for (message, level) in messages.iter().zip([80, 100]) {
        assert!(is_signed(message, &secret), "{}", message.head);
        assert!(message.head.starts_with("POST /hook?word=secret "), "{}", message.head);
        let body = message.json();
        assert_eq!(
            (&body["type"], &body["data"]["level_percent"]),
            (&json!("alert.spending"), &json!(level))
        );
        assert_eq!(
            body["data"]["limit"],
            json!({ "kind": "cap", "per": null, "amount_usd": "0.005000000" })
        );
        assert_eq!(body["data"]["account_id"], site.account_id);
    }
    let text =
        "The key “a test's own” of owner has spent $0.004, which is 80 % of its cap of $0.005.";
    let told = messages[0].json()["data"]["text"].as_str().unwrap().to_owned();
    assert_eq!(told.split_once(" has spent").unwrap().1, text.split_once(" has spent").unwrap().1);
    // Nothing is told twice, also after a restart.
    for _ in 0..3 {
        site.gateway.app.run_alerts().await.unwrap();
    }
    assert_eq!(site.listener.requests().len(), 2);
    let alerts = site.alerts().await;
    let states: Vec<&Value> = alerts.iter().map(|alert| &alert["webhook"]["state"]).collect();
    assert_eq!(states, ["delivered", "delivered"]);
    // There is no mail server.
    assert!(alerts.iter().all(|alert| alert["mail"].is_null()), "{alerts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_failed_is_sent_again_later() {
    let site = Site::start(vec![500, 204]).await;
    site.listen("slack").await;
    let key = capped(&site.gateway, "0.001").await;
    site.spend(&key, 1, 1).await;
    site.messages(1).await;
    for _ in 0..3 {
        site.gateway.app.run_alerts().await.unwrap();
    }
    let waits = site.alerts().await.remove(0);
    assert_eq!(waits["webhook"], json!({ "state": "pending", "tries": 1, "status": 500 }));
    assert_eq!(site.listener.requests().len(), 1, "it waits");
    site.clock.step(Micros::from_secs(31));
    let messages = site.messages(2).await;
    for message in &messages {
        let body = message.json();
        assert_eq!(body.as_object().unwrap().len(), 1);
        assert!(body["text"].as_str().unwrap().contains("has spent its cap of $0.001"), "{body}");
    }
    until("the delivery is noted", async || {
        let told = site.alerts().await.remove(0);
        told["webhook"] == json!({ "state": "delivered", "tries": 2, "status": 204 })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_is_raised_is_told_again() {
    let site = Site::start(vec![204]).await;
    let text = capped(&site.gateway, "0.001").await;
    site.spend(&text, 1, 1).await;
    let store = &site.gateway.app.store;
    let record = store.keys().await.unwrap().into_iter().find(|key| key.cap.is_some()).unwrap();
    let admin = site.gateway.admin_key().await.to_owned();
    let path = format!("/api/admin/keys/{}", record.id);
    let raised = site.gateway.request(http::Method::PATCH, &path).key(&admin);
    let got = raised.body(json!({ "cap_usd": "0.002" }).to_string()).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    site.gateway.app.run_alerts().await.unwrap();
    assert_eq!(site.alerts().await.len(), 1, "half of it is below every level");
    until("the new cap is known", async || {
        let order = json!({ "model": "m", "prompt": "a dot" });
        let got = site.gateway.post("/v1/images/generations", &order).key(&text).send().await;
        got.status == 200
    })
    .await;
    site.spend(&text, 0, 2).await;
    // Nobody listens: it has no webhook.
    assert!(site.alerts().await.iter().all(|alert| alert["webhook"].is_null()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_checked_and_change_only_what_is_sent() {
    let site = Site::start(vec![204]).await;
    for (change, field) in [
        (json!({ "levels_percent": [0] }), "levels_percent"),
        (json!({ "levels_percent": [101] }), "levels_percent"),
        (json!({ "levels_percent": [1, 2, 3, 4, 5, 6, 7, 8, 9] }), "levels_percent"),
        (json!({ "levels_percent": [300] }), "levels_percent[0]"),
        (json!({ "webhook": { "form": "teams", "url": "https://example.com/" } }), "webhook.form"),
        (json!({ "webhook": { "form": "slack" } }), "webhook.url"),
        (json!({ "webhook": { "form": "slack", "url": "https://127.0.0.1/" } }), "webhook.url"),
        (json!({ "webhook": { "form": "slack", "url": "ftp://example.com/" } }), "webhook.url"),
        (json!({ "webhook": { "form": "slack", "url": "x".repeat(3_000) } }), "webhook.url"),
        (json!({ "levels": [80] }), "levels"),
        (json!({ "quiet_hours": { "from": "25:00", "to": "07:00" } }), "quiet_hours.from"),
        (json!({ "quiet_hours": { "from": "07:00", "to": "07:00" } }), "quiet_hours.to"),
        (json!({ "quiet_hours": { "from": "07:00" } }), "quiet_hours"),
        (
            json!({ "quiet_hours": { "from": "22:00", "to": "07:00", "time_zone": "Mars/Olympus" } }),
            "quiet_hours.time_zone",
        ),
    ] {
        let got = site.settings(&change).await;
        assert_eq!(got.status, 400, "{change}: {}", got.text());
        assert_eq!(got.json()["field"], field, "{change}: {}", got.text());
    }
    site.listen("signed").await;
    let kept = site.settings(&json!({ "mail": false })).await.json();
    assert_eq!(kept["levels_percent"], json!([50, 80, 100]));
    assert_eq!((&kept["mail"], &kept["webhook"]["form"]), (&json!(false), &json!("signed")));
    assert_eq!((&kept["forecast"], &kept["key_expiry"]), (&json!(true), &json!(true)));
    let hours = json!({ "from": "22:00", "to": "07:00" });
    let quiet = json!({ "quiet_hours": hours, "forecast": false, "key_expiry": false });
    let quiet = site.settings(&quiet).await.json();
    let utc = json!({ "from": "22:00", "to": "07:00", "time_zone": "UTC" });
    assert_eq!(quiet["quiet_hours"], utc);
    assert_eq!((&quiet["forecast"], &quiet["key_expiry"]), (&json!(false), &json!(false)));
    assert_eq!(site.settings(&json!({ "mail": true })).await.json()["quiet_hours"], utc);
    let loud = site.settings(&json!({ "quiet_hours": null })).await.json();
    assert_eq!(loud["quiet_hours"], Value::Null);
    // Another form for the same address, and none.
    let other = site.settings(&json!({ "webhook": { "form": "slack" } })).await.json();
    assert_eq!(other["webhook"]["form"], "slack");
    let none = site.settings(&json!({ "webhook": null })).await.json();
    assert_eq!(none["webhook"], Value::Null);
    let lines = site.gateway.app.store.audits(100).await.unwrap();
    let changes: Vec<_> = lines.iter().filter(|line| line.action == "alerts.change").collect();
    assert_eq!(changes.len(), 7);
    assert!(changes.iter().all(|line| !line.detail.contains("secret")), "{changes:?}");
    let missing = site.gateway.admin_key().await.to_owned();
    let got = site.gateway.get("/api/admin/users/nobody/alerts").key(&missing).send().await;
    assert_eq!(got.status, 404, "{}", got.text());
    // A key for calls administrates nothing.
    let own = key(&site.gateway, |_| ()).await;
    let got = site.gateway.get("/api/admin/alerts").key(&own).send().await;
    assert_eq!(got.status, 403, "{}", got.text());
}

/// A receiver that is gone is not asked again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_gone_is_asked_once() {
    let site = Site::start(vec![410]).await;
    site.listen("signed").await;
    let key = capped(&site.gateway, "0.001").await;
    site.spend(&key, 1, 1).await;
    site.messages(1).await;
    until("the delivery is noted", async || {
        let told = site.alerts().await.remove(0);
        told["webhook"] == json!({ "state": "failed", "tries": 1, "status": 410 })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_administration_changes_settings_of_its_own_kind_only() {
    let site = Site::start(vec![204]).await;
    let admin = site.gateway.admin_key().await.to_owned();
    let team = site.gateway.post("/api/admin/teams", &json!({ "name": "blue" })).key(&admin);
    let team = team.send().await.json()["id"].as_str().unwrap().to_owned();
    let person = &site.account_id;
    for (kind, id, status) in [
        ("users", person, 200),
        ("teams", person, 404),
        ("teams", &team, 200),
        ("users", &team, 404),
    ] {
        let path = format!("/api/admin/{kind}/{id}/alerts");
        let request = site.gateway.request(http::Method::PATCH, &path).key(&admin);
        let got = request.body(json!({ "mail": false }).to_string()).send().await;
        assert_eq!(got.status, status, "{path}: {}", got.text());
    }
}
