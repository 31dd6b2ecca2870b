//! Alerts about the gateway, and statements by mail: each told once, with its end, to those who asked for it.

use std::sync::Arc;

use canon::Micros;
use http::Method;
use serde_json::{Value, json};
use store::{Account, AccountRole, AlertFilter};
use testkit::{
    ScriptedProvider, ShiftedClock, TestGateway, TestResponse, chat_reply, reply, until,
};

use crate::alerts::Site;
use crate::mail_sink::MailSink;
use crate::money::{CHAT, key};
use crate::tasks::webhooks::is_signed;

const SETTINGS: &str = "/api/admin/settings/alerts";
const MINUTE: Micros = Micros::from_secs(60);

/// A gateway with a provider that fails, a mail server and a listener for messages.
struct Troubled {
    gateway: TestGateway,
    provider: ScriptedProvider,
    listener: ScriptedProvider,
    sink: MailSink,
    clock: Arc<ShiftedClock>,
}

impl Troubled {
    async fn start(status: u16) -> Self {
        let provider = ScriptedProvider::start(vec![reply(status, "application/json", "{}")]).await;
        let listener = ScriptedProvider::start(vec![reply(204, "text/plain", "")]).await;
        let sink = MailSink::start().await;
        let place = listener.url.strip_prefix("http://").unwrap();
        let config = format!(
            "[providers.p]\nspeaks = \"chat\"\nbase = \"{}\"\n\
             auth = {{ bearer = {{ text = \"word\" }} }}\n[models.m]\nlanes = [\"p/up\"]\n\
             [media]\nallow = [\"{place}\"]\n\
             [mail]\nurl = \"{}\"\nfrom = \"gateway@example.com\"\n",
            provider.url, sink.url
        );
        let clock = Arc::new(ShiftedClock::default());
        let gateway = TestGateway::with_clock(&config, Arc::<ShiftedClock>::clone(&clock)).await;
        let site = Self { gateway, provider, listener, sink, clock };
        site.person("anna", AccountRole::Admin, false).await;
        site.person("bert", AccountRole::Member, false).await;
        site.person("cleo", AccountRole::Owner, true).await;
        site
    }

    async fn person(&self, name: &str, role: AccountRole, disabled: bool) -> Account {
        let now = self.gateway.app.clock.now();
        let account = Account {
            id: uuid::Uuid::now_v7().to_string(),
            username: name.to_owned(),
            email: Some(format!("{name}@example.com")),
            role,
            password_hash: None,
            disabled,
            created: now,
            changed: now,
        };
        self.gateway.app.store.add_account(&account).await.unwrap();
        account
    }

    async fn settings(&self, change: &Value) -> TestResponse {
        let admin = self.gateway.admin_key().await.to_owned();
        let request = self.gateway.request(Method::PATCH, SETTINGS).key(&admin);
        request.body(change.to_string()).send().await
    }

    async fn ask(&self) -> u16 {
        let ask = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
        self.gateway.post(CHAT, &ask).send().await.status.as_u16()
    }

    /// Looks at the health as the schedule does for a while, and tells what was found.
    async fn look(&self) {
        // The clock goes faster than the calls are posted.
        self.gateway.wait_until_settled().await;
        for _ in 0..8 {
            self.gateway.app.admin.watch_health().await;
            self.clock.step(Micros::from_secs(10));
        }
        self.gateway.app.admin.watch_health().await;
        self.gateway.app.run_alerts().await.unwrap();
    }

    /// Looks until the list has so many alerts, and returns them, the newest first.
    async fn alerts(&self, count: usize) -> Vec<Value> {
        let admin = self.gateway.admin_key().await.to_owned();
        let mut found = Vec::new();
        until("the alerts are found", async || {
            self.look().await;
            let got = self.gateway.get("/api/admin/alerts").key(&admin).send().await;
            found = got.json()["data"].as_array().unwrap().clone();
            found.len() >= count
        })
        .await;
        assert_eq!(found.len(), count, "{found:?}");
        found
    }

    /// Waits for so many messages to the listener, and returns the last.
    async fn message(&self, count: usize) -> Value {
        until("the messages are sent", async || {
            self.gateway.app.run_alerts().await.unwrap();
            self.listener.requests().len() >= count
        })
        .await;
        let all = self.listener.requests();
        assert_eq!(all.len(), count);
        let last = all.last().unwrap();
        let secret = self.gateway.app.api.alert_secret("gateway");
        assert!(is_signed(last, &secret), "{}", last.head);
        last.json()
    }

    /// Waits for so many mails, and returns the last.
    async fn mail(&self, count: usize) -> String {
        until("the mails are sent", async || {
            self.gateway.app.run_alerts().await.unwrap();
            self.sink.mails().len() >= count
        })
        .await;
        let mut all = self.sink.mails();
        assert_eq!(all.len(), count, "{all:?}");
        all.pop().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_is_down_is_told_once_and_so_is_its_end() {
    let site = Troubled::start(500).await;
    let webhook = json!({ "form": "signed", "url": site.listener.url });
    let got = site.settings(&json!({ "webhook": webhook })).await;
    assert_eq!(got.status, 200, "{}", got.text());
    for _ in 0..6 {
        assert_eq!(site.ask().await, 503);
    }
    let alert = site.alerts(1).await.remove(0);
    assert_eq!((&alert["kind"], &alert["subject"]), (&json!("lane"), &json!("p/up")));
    assert_eq!((&alert["account_id"], &alert["ended_at"]), (&json!(null), &json!(null)));
    let text = alert["text"].as_str().unwrap();
    assert!(text.starts_with("The lane p/up is down since 2"), "{text}");
    let message = site.message(1).await;
    assert_eq!(message["type"], "alert.lane");
    assert_eq!(message["data"]["id"], alert["id"]);
    let mail = site.mail(1).await;
    assert!(mail.contains("Subject: The gateway needs somebody"), "{mail}");
    assert!(
        mail.contains("To: anna@example.com") && mail.contains("The lane p/up is down"),
        "{mail}"
    );
    // It goes on, and is no news.
    site.ask().await;
    site.alerts(1).await;
    site.message(1).await;
    // The end is told too, by mail ten minutes after the mail before.
    site.provider.set_answers(vec![chat_reply("hi", 3, 5)]);
    until("the lane answers", async || site.ask().await == 200).await;
    until("the event has ended", async || !site.alerts(1).await[0]["ended_at"].is_null()).await;
    let message = site.message(2).await;
    assert_eq!(message["data"]["id"], alert["id"]);
    let text = message["data"]["text"].as_str().unwrap();
    assert!(text.starts_with("The lane p/up was down from 2"), "{text}");
    site.clock.step(MINUTE * 10);
    let mail = site.mail(2).await;
    assert!(mail.contains("Subject: A trouble of the gateway is over"), "{mail}");
    // A further failure is a further event.
    site.provider.set_answers(vec![reply(500, "application/json", "{}")]);
    for _ in 0..6 {
        site.ask().await;
    }
    let all = site.alerts(2).await;
    assert_eq!((&all[0]["kind"], &all[0]["ended_at"]), (&json!("lane"), &json!(null)));
    site.message(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_credential_is_no_lane_that_is_down() {
    let site = Troubled::start(401).await;
    for _ in 0..3 {
        assert_eq!(site.ask().await, 503);
    }
    let alert = site.alerts(1).await.remove(0);
    assert_eq!((&alert["kind"], &alert["subject"]), (&json!("credential"), &json!("p/1")));
    let mail = site.mail(1).await;
    assert!(mail.contains("`p` refuses its credential 1"), "{mail}");
    // Events of a kind that is turned off end without a word.
    assert_eq!(site.settings(&json!({ "credentials": false })).await.status, 200);
    until("the event has ended", async || !site.alerts(1).await[0]["ended_at"].is_null()).await;
    site.clock.step(MINUTE * 30);
    site.mail(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_calls_above_the_percent_are_told() {
    let site = Troubled::start(500).await;
    let quiet = json!({ "lanes": false, "mail": false, "error_percent": 50 });
    assert_eq!(site.settings(&quiet).await.status, 200);
    for _ in 0..40 {
        assert_eq!(site.ask().await, 503);
    }
    site.gateway.wait_until_settled().await;
    let alert = site.alerts(1).await.remove(0);
    assert_eq!((&alert["kind"], &alert["subject"]), (&json!("error_rate"), &json!(null)));
    assert_eq!((&alert["level_percent"], &alert["mail"]), (&json!(100), &json!(null)));
    // Two hours later they are out of sight.
    site.clock.step(Micros::from_hours(2));
    until("the event has ended", async || !site.alerts(1).await[0]["ended_at"].is_null()).await;
    assert!(site.sink.mails().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_of_the_gateway_are_for_its_administrators() {
    let site = Troubled::start(500).await;
    let admin = site.gateway.admin_key().await.to_owned();
    let before = site.gateway.get(SETTINGS).key(&admin).send().await;
    let usual = json!({
        "lanes": true, "credentials": true, "health": true, "error_percent": 10, "mail": true,
        "quiet_hours": null, "webhook": null,
    });
    assert_eq!(before.json(), usual);
    for (wrong, field) in [
        (json!({ "error_percent": 0 }), "error_percent"),
        (json!({ "error_percent": 101 }), "error_percent"),
        (json!({ "quiet_hours": { "from": "late", "to": "07:00" } }), "quiet_hours.from"),
        (json!({ "webhook": { "form": "signed" } }), "webhook.url"),
        (json!({ "webhook": { "form": "signed", "url": "http://127.0.0.1:1/" } }), "webhook.url"),
    ] {
        let got = site.settings(&wrong).await;
        assert_eq!(
            (got.status.as_u16(), &got.json()["field"]),
            (400, &json!(field)),
            "{}",
            got.text()
        );
    }
    let change = json!({ "error_percent": null, "quiet_hours": { "from": "22:00", "to": "07:00" },
        "webhook": { "form": "slack", "url": format!("{}/secret", site.listener.url) } });
    let tag = before.header("etag").to_owned();
    for status in [200, 412] {
        let request = site.gateway.request(Method::PATCH, SETTINGS).key(&admin);
        let request = request.header("if-match", &tag).body(change.to_string());
        assert_eq!(request.send().await.status, status);
    }
    let after = site.gateway.get(SETTINGS).key(&admin).send().await;
    assert_eq!(after.json()["error_percent"], json!(null));
    assert_eq!(after.json()["quiet_hours"]["time_zone"], "UTC");
    assert!(!after.text().contains("secret"), "{}", after.text());
    let lines = site.gateway.app.store.audits(10).await.unwrap();
    let line = lines.iter().find(|line| line.action == "alerts.change").unwrap();
    assert_eq!(line.subject, "gateway");
    assert!(
        line.detail.contains("errors off") && !line.detail.contains("secret"),
        "{}",
        line.detail
    );
    let call_key = key(&site.gateway, |_| ()).await;
    assert_eq!(site.gateway.get(SETTINGS).key(&call_key).send().await.status, 403);
    // A key of a member is no admin key.
    let bert = site.person("berta", AccountRole::Member, false).await;
    let member = site.gateway.admin_key_of(&bert.id).await;
    assert_eq!(site.gateway.get(SETTINGS).key(&member).send().await.status, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_statement_of_a_month_is_one_mail_in_the_next() {
    let sink = MailSink::start().await;
    let mail = format!("[mail]\nurl = \"{}\"\nfrom = \"gateway@example.com\"", sink.url);
    let site = Site::with(vec![204], &mail).await;
    let app = &site.gateway.app;
    let now = app.clock.now();
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
    app.store.add_account(&anna).await.unwrap();
    let text = key(&site.gateway, |key| key.account_id.clone_from(&anna.id)).await;
    site.spend(&text, 3, 0).await;
    let month = admin::StatementMonth::of(app.clock.now()).unwrap();
    let next = month.end() + Micros::from_hours(2);
    site.clock.step(next - app.clock.now());
    app.run_alerts().await.unwrap();
    assert_eq!(sink.mails(), [""; 0], "nobody has asked for it");
    let path = format!("/api/admin/users/{}/alerts", anna.id);
    let admin = site.gateway.admin_key().await.to_owned();
    let request = site.gateway.request(Method::PATCH, &path).key(&admin);
    // It does not depend on the mails about alerts.
    let got = request.body(json!({ "statement": true, "mail": false }).to_string()).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["statement"]), (200, &json!(true)));
    until("the mail is sent", async || {
        app.run_alerts().await.unwrap();
        sink.mails().len() == 1
    })
    .await;
    let mail = sink.mails().remove(0);
    for part in [
        &format!("Subject: Statement of {}", month.title()),
        "3 calls of anna cost $0.003, exactly $0.003000000",
        "- m: $0.003 (3 calls)",
        "- a test's own: $0.003 (3 calls)",
        &format!("/console/statements?month={}&account={}", month.word(), anna.id)
            .replace('=', "=3D"),
    ] {
        assert!(mail.contains(part), "{part}: {mail}");
    }
    let told = site.alerts().await;
    assert_eq!((told.len(), &told[0]["kind"]), (1, &json!("statement")));
    assert_eq!((&told[0]["month"], &told[0]["webhook"]), (&json!(month.word()), &json!(null)));
    // Once, also on later days.
    for days in [0, 1, 2, 20] {
        site.clock.step(Micros::from_days(days));
        app.run_alerts().await.unwrap();
    }
    let kept = app.store.alerts(&AlertFilter::default(), 10).await.unwrap();
    assert_eq!((sink.mails().len(), kept.len()), (1, 1));
}
