//! Prices of calls of tools: reservation, receipt, caps, and calls that cost nothing.

use canon::Money;
use serde_json::{Value, json};
use testkit::{AnswerStep, NewKey, ScriptedProvider, TestGateway, TestResponse, reply};

fn rpc(result: &Value) -> Vec<AnswerStep> {
    vec![AnswerStep::RpcResult(result.clone())]
}

fn discovered() -> Vec<AnswerStep> {
    rpc(&json!({ "supportedVersions": ["2026-07-28"] }))
}

fn sunny() -> Vec<AnswerStep> {
    rpc(&json!({ "content": [{ "type": "text", "text": "It is sunny in Paris" }] }))
}

async fn start(server: &ScriptedProvider, price: &str) -> TestGateway {
    let url = &server.url;
    let config = format!("[mcp.servers.wx]\nurl = \"{url}\"\nprice = \"{price}\"\n");
    TestGateway::with_config(&config).await
}

async fn key_with(gateway: &TestGateway, cap: &str, rpm: Option<u32>) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let cap: Option<Money> = Some(cap.parse().unwrap());
    let key = NewKey { name: "k".to_owned(), cap, models: Vec::new(), expires: None };
    let now = gateway.app.clock.now();
    let (mut record, text) = key.into_record(&account, &gateway.app.engine.keys, now).unwrap();
    record.limits.rpm = rpm;
    gateway.app.store.add_key(&record).await.unwrap();
    text
}

async fn call(gateway: &TestGateway, key: &str) -> TestResponse {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                       "params": { "name": "wx__get_weather", "arguments": { "city": "Paris" } } });
    gateway.post("/mcp", &body).key(key).header("x-portunus-session", "s-1").send().await
}

async fn spent(gateway: &TestGateway, key: &str) -> Value {
    gateway.wait_until_settled().await;
    gateway.get("/v1/key").key(key).send().await.json()["spent_usd"].clone()
}

#[tokio::test]
async fn a_call_costs_its_price_within_the_cap() {
    let server = ScriptedProvider::start(Vec::new()).await;
    let gateway = start(&server, "0.001").await;
    let key = key_with(&gateway, "0.0025", None).await;
    for number in 1..=2 {
        server.set_answers(vec![discovered(), sunny()]);
        let got = call(&gateway, &key).await;
        assert_eq!(got.json()["result"]["content"][0]["text"], "It is sunny in Paris");
        assert_eq!(got.header("x-portunus-cost"), "0.001000000");
        assert_eq!(spent(&gateway, &key).await, format!("0.00{number}000000"));
        let id = got.header("x-request-id").to_owned();
        let receipt = gateway.get(&format!("/v1/usage/{id}")).key(&key).send().await.json();
        assert_eq!(receipt["model"], "mcp/wx", "{receipt}");
        assert_eq!(receipt["lane"], "mcp/wx", "{receipt}");
        assert_eq!(receipt["dialect"], "mcp", "{receipt}");
        assert_eq!(receipt["cost_usd"], "0.001000000", "{receipt}");
        assert_eq!(receipt["session"], "s-1", "{receipt}");
        assert!(receipt.to_string().contains("\"request\""), "the charge is shown: {receipt}");
    }
    let before = server.requests().len();
    let got = call(&gateway, &key).await;
    assert_eq!(got.status, 429, "{}", got.text());
    assert_eq!(got.json()["code"], "insufficient_quota", "{}", got.text());
    assert_eq!(server.requests().len(), before, "no server is asked");
    assert_eq!(spent(&gateway, &key).await, "0.002000000");
    let (checks, _) = gateway.app.store.verify().await.unwrap();
    assert!(checks.iter().all(|check| check.violations.is_empty()), "{checks:?}");
}

#[tokio::test]
async fn a_call_that_fails_costs_nothing() {
    let server = ScriptedProvider::start(Vec::new()).await;
    let gateway = start(&server, "0.001").await;
    let key = key_with(&gateway, "1", None).await;
    let failed = json!({ "content": [{ "type": "text", "text": "no city" }], "isError": true });
    for answers in [
        vec![discovered(), rpc(&failed)],
        vec![discovered(), reply(500, "text/plain", "")],
        vec![reply(503, "text/plain", "")],
    ] {
        server.set_answers(answers);
        let got = call(&gateway, &key).await;
        assert_eq!(got.header("x-portunus-cost"), "0.000000000", "{}", got.text());
        let id = got.header("x-request-id").to_owned();
        let receipt = gateway.get(&format!("/v1/usage/{id}")).key(&key).send().await.json();
        assert_eq!(receipt["status"], 502, "{receipt}");
    }
    assert_eq!(spent(&gateway, &key).await, "0.000000000");
}

#[tokio::test]
async fn calls_of_tools_count_against_the_rate_and_lists_do_not() {
    let server = ScriptedProvider::start(Vec::new()).await;
    let gateway = start(&server, "0").await;
    let key = key_with(&gateway, "1", Some(1)).await;
    for _ in 0..3 {
        server.set_answers(vec![rpc(&json!({ "tools": [] }))]);
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        assert_eq!(gateway.post("/mcp", &list).key(&key).send().await.status, 200);
    }
    server.set_answers(vec![discovered(), sunny()]);
    assert_eq!(call(&gateway, &key).await.status, 200);
    assert_eq!(call(&gateway, &key).await.status, 429);
}

#[tokio::test]
async fn a_call_of_a_model_costs_the_same() {
    let tool = json!({
        "name": "get_weather", "description": "Tells the weather of a city",
        "inputSchema": { "type": "object", "properties": { "city": { "type": "string" } },
                         "required": ["city"] },
    });
    let listing = rpc(&json!({ "resultType": "complete", "tools": [tool] }));
    let server = ScriptedProvider::start(Vec::new()).await;
    let gateway = start(&server, "0.5").await;
    let request = json!({
        "model": "demo-chat", "input": "What is the weather in Paris?",
        "tools": [{ "type": "mcp", "server_label": "wx", "connector_id": "wx",
                    "require_approval": "never" }],
    });
    for (cap, is_paid) in [("1", true), ("0.4", false)] {
        let key = key_with(&gateway, cap, None).await;
        server.set_answers(vec![listing.clone(), sunny()]);
        let got = gateway.post("/v1/responses", &request).key(&key).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.text().contains("It is sunny in Paris"), is_paid, "{}", got.text());
        let cost: f64 = got.header("x-portunus-cost").parse().unwrap();
        assert_eq!(cost > 0.5, is_paid, "{cost}");
        gateway.wait_until_settled().await;
        let ids = got.headers.get("x-portunus-tool-calls").map(|ids| ids.to_str().unwrap());
        assert_eq!(ids.is_some(), is_paid);
        if let Some(id) = ids {
            let receipt = gateway.get(&format!("/v1/usage/{id}")).key(&key).send().await.json();
            assert_eq!(receipt["cost_usd"], "0.500000000", "{receipt}");
        }
    }
}
