//! Spending of agents: headers, dollars, and the answer when a limit is reached. Their telemetry.

use testkit::{ScriptedProvider, reply, until};

use super::*;

const PREFIX: &str = "anthropic-ratelimit-unified-";

impl Harbour {
    /// Sets the terms of a person's account.
    async fn terms(&self, person: &Person<'_>, terms: Value) {
        let path = format!("/api/admin/users/{}/terms", person.account.id);
        let got = self.gateway.request(Method::PUT, &path).body(terms.to_string()).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        self.gateway.app.engine.keys.refresh().await.unwrap();
    }

    async fn usage(&self, token: &str) -> Value {
        self.gateway.wait_until_settled().await;
        let got = self.gateway.get("/api/oauth/usage").key(token).send().await;
        assert_eq!((got.status.as_u16(), got.header("cache-control")), (200, "no-store"));
        got.json()
    }
}

#[tokio::test]
async fn an_agent_sees_its_spending_against_its_limit() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let tokens = harbour.sign_in(&mia, &mia.account.id).await;
    let plain = harbour.call(&tokens.access).await;
    assert!(!plain.text().is_empty() && plain.header(&format!("{PREFIX}status")).is_empty());
    let told = harbour.usage(&tokens.access).await;
    let extra = &told["extra_usage"];
    assert_eq!((&told["limits"], &extra["monthly_limit"]), (&json!([]), &json!(null)));
    assert_eq!(
        (&extra["daily"]["limit"], &extra["weekly"]["utilization"]),
        (&json!(null), &json!(null))
    );
    assert!(extra["used_credits"].is_i64() && extra["daily"]["used_credits"].is_i64());
    let budget = json!({ "budget": { "most_usd": "500", "per": "month" } });
    harbour.terms(&mia, budget).await;
    // No answer waits for the standing, so the first one may be without it.
    harbour.usage(&tokens.access).await;
    let got = harbour.call(&tokens.access).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let header = |name: &str| got.header(&format!("{PREFIX}{name}")).to_owned();
    assert_eq!((header("status"), header("overage-status")), ("allowed".into(), "allowed".into()));
    assert_eq!(header("representative-claim"), "overage");
    assert_eq!(header("overage-utilization"), "0.00");
    assert_eq!(header("overage-surpassed-threshold"), "");
    assert_eq!(header("reset"), header("overage-reset"));
    let told = harbour.usage(&tokens.access).await;
    assert_eq!(told["extra_usage"]["monthly_limit"], 50_000);
    let row = &told["limits"][0];
    assert_eq!(
        (&row["kind"], &row["group"], &row["is_active"]),
        (&json!("spend"), &json!("monthly"), &json!(true))
    );
    let resets: jiff::Timestamp = row["resets_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(resets.as_second().to_string(), header("reset"), "clients compare the two");
    // Other keys of the account cause no work and get no headers.
    let own = json!({ "name": "k", "cap_usd": "5", "account_id": mia.account.id });
    let made = harbour.gateway.post("/api/admin/keys", &own).send().await.json();
    let plain = harbour.call(&text(&made, "key")).await;
    assert_eq!((plain.status.as_u16(), plain.header(&format!("{PREFIX}status"))), (200, ""));
}

#[tokio::test]
async fn a_limit_that_is_nearly_reached_is_a_warning() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let tokens = harbour.sign_in(&mia, &mia.account.id).await;
    assert_eq!(harbour.call(&tokens.access).await.status, 200);
    harbour.gateway.wait_until_settled().await;
    let spent = harbour.key_of(&tokens.access).await.spent.as_nanos();
    assert!(spent > 0);
    // The limit is 25 times the spending of one call, of which 20 are spent.
    for _ in 1..20 {
        assert_eq!(harbour.call(&tokens.access).await.status, 200);
    }
    harbour.gateway.wait_until_settled().await;
    let limit = canon::Money::from_nanos(spent * 25).to_string();
    harbour.terms(&mia, json!({ "budget": { "most_usd": limit, "per": "day" } })).await;
    harbour.usage(&tokens.access).await;
    let got = harbour.call(&tokens.access).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let header = |name: &str| got.header(&format!("{PREFIX}{name}")).to_owned();
    assert_eq!(
        (header("status"), header("overage-surpassed-threshold")),
        ("allowed_warning".into(), "0.75".into())
    );
    let told = harbour.usage(&tokens.access).await;
    assert_eq!(told["limits"][0]["severity"], "warning", "{told}");
}

/// The headers come from memory: the first call begins to read the standing, later ones have it with
/// what was spent since, and new terms make it useless.
#[tokio::test]
async fn headers_follow_the_spending_without_a_question_to_the_store() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let tokens = harbour.sign_in(&mia, &mia.account.id).await;
    assert_eq!(harbour.call(&tokens.access).await.status, 200);
    harbour.gateway.wait_until_settled().await;
    let spent = harbour.key_of(&tokens.access).await.spent.as_nanos();
    let limit = canon::Money::from_nanos(spent * 50).to_string();
    harbour.terms(&mia, json!({ "cap_usd": limit })).await;
    let told = async || {
        let got = harbour.call(&tokens.access).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.header(&format!("{PREFIX}overage-utilization")).to_owned()
    };
    until("a call begins to read the standing", async || !told().await.is_empty()).await;
    let first: f64 = told().await.parse().unwrap();
    // Calls of this node count at once, although the standing is as old as before.
    for _ in 0..5 {
        told().await;
    }
    let later: f64 = told().await.parse().unwrap();
    assert!((0.08..=0.14).contains(&(later - first)), "{first} {later}");
    let limit = canon::Money::from_nanos(spent * 5_000).to_string();
    harbour.terms(&mia, json!({ "cap_usd": limit })).await;
    until("the new limit counts", async || told().await == "0.00").await;
}

#[tokio::test]
async fn a_limit_that_is_reached_says_when_it_resets_and_whom_to_ask() {
    let harbour = Harbour::open().await;
    let mia = harbour.person("mia", AccountRole::Member).await;
    let tokens = harbour.sign_in(&mia, &mia.account.id).await;
    let budget = json!({ "budget": { "most_usd": "0.000000001", "per": "week" } });
    harbour.terms(&mia, budget).await;
    let got = harbour.call(&tokens.access).await;
    assert_eq!(got.status, 429, "{}", got.text());
    let error = &got.json()["error"];
    assert_eq!(error["type"], "billing_error");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("it resets at") && message.contains("ask an administrator"),
        "{message}"
    );
    assert_eq!(got.header("x-should-retry"), "false");
    let wait: i64 = got.header("retry-after").parse().unwrap();
    assert!((1..=7 * 86_400).contains(&wait), "{wait}");
    let header = |name: &str| got.header(&format!("{PREFIX}{name}")).to_owned();
    assert_eq!((header("status"), header("overage-period")), ("rejected".into(), "weekly".into()));
    assert_eq!(header("overage-disabled-reason"), "org_spend_cap_reached");
    assert_eq!(
        (header("representative-claim"), header("overage-status")),
        (String::new(), String::new())
    );
    // Other formats have their own word.
    let body =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "hello" }] });
    let chat = harbour.gateway.post("/v1/chat/completions", &body).key(&tokens.access).send().await;
    assert_eq!(chat.json()["error"]["code"], "insufficient_quota", "{}", chat.text());
}

#[tokio::test]
async fn telemetry_of_agents_reaches_the_collector_as_it_was_sent() {
    let collector = ScriptedProvider::start(vec![reply(200, "application/json", "{}")]).await;
    let config = format!(
        "[telemetry]\notlp = \"{}\"\nheaders = {{ x-key = {{ text = \"k\" }} }}\n",
        collector.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let report = json!({ "resourceLogs": [{ "scopeLogs": [] }], "harbour": 1 });
    let got = gateway.post("/v1/logs", &report).send().await;
    assert_eq!((got.status.as_u16(), got.text()), (200, "{}".to_owned()));
    let find = || {
        let all = collector.requests().into_iter();
        all.filter(|one| one.head.contains("/v1/logs")).find(|one| one.head.contains("x-key: k"))
    };
    until("the collector has the report", async || find().is_some()).await;
    let asked = find().unwrap();
    assert_eq!(asked.body, report.to_string().as_bytes());
    assert!(!asked.head.contains("sk-pt-"), "the key stays here: {}", asked.head);
    // Without a collector the answer is the same. Protobuf gets protobuf.
    let gateway = TestGateway::start().await;
    for path in ["/v1/metrics", "/v1/logs", "/v1/traces"] {
        let ask = gateway.request(Method::POST, path).body(vec![10, 0]);
        let got = ask.header("content-type", "application/x-protobuf").send().await;
        assert_eq!(
            (got.status.as_u16(), got.header("content-type")),
            (200, "application/x-protobuf")
        );
        let ask = gateway.request(Method::POST, path).without_key();
        assert_eq!(ask.send().await.status, 401);
    }
}

/// Claude Code runs its safety check itself if the 400 names the field.
#[tokio::test]
async fn a_safety_check_is_never_lost_silently() {
    let gateway = TestGateway::start().await;
    for (model, status) in [("demo-messages", 200), ("demo-chat", 400), ("demo-native", 400)] {
        let body = json!({
            "model": model, "max_tokens": 20, "safeguards": { "auto_mode": true },
            "messages": [{ "role": "user", "content": "hello" }],
        });
        let got = gateway.post("/v1/messages", &body).send().await;
        assert_eq!(got.status.as_u16(), status, "{model}: {}", got.text());
        let error = got.json()["error"].clone();
        if status == 400 {
            assert_eq!(error["type"], "invalid_request_error");
            assert!(text(&error, "message").contains("safeguards"), "{error}");
        }
    }
}
