//! Contents of a receipt: the billed tier, the charges, and which side ended the call.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, reply};

use crate::money::{CHAT, capped, receipt};

const PRICES: &str = r#"
price = { input = "1.00", output = "2.00", cached_input = "0.10", per_request = "0.001",
  per_search = "0.01", thinking = "3.00",
  flex = { rates = { input = "0.50", output = "1.00" } },
  priority = { rates = { input = "2.00", output = "4.00" } } }
"#;

async fn gateway(
    answer: Vec<AnswerStep>,
    speaks: &str,
    price: &str,
) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = format!(
        "[providers.p]\nspeaks = \"{speaks}\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\"]\n{price}",
        provider.url
    );
    let gateway = TestGateway::with_config(&config).await;
    (provider, gateway)
}

fn answer(tier: Option<&str>) -> Vec<AnswerStep> {
    let mut body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "stop",
                      "message": { "role": "assistant", "content": "Here." } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 30,
                   "prompt_tokens_details": { "cached_tokens": 40 },
                   "completion_tokens_details": { "reasoning_tokens": 10 } },
    });
    if let Some(tier) = tier {
        body["service_tier"] = tier.into();
    }
    reply(200, "application/json", &body.to_string())
}

fn ask(tier: Option<&str>) -> Value {
    let mut body = json!({ "model": "m", "max_tokens": 50,
        "messages": [{ "role": "user", "content": "Tell me of the harbour, at some length." }] });
    if let Some(tier) = tier {
        body["service_tier"] = tier.into();
    }
    body
}

#[tokio::test]
async fn the_tier_billed_is_the_one_the_answer_tells() {
    // 0.001 per call, and 60 + 40 cached + 20 + 10 of thinking, in millionths of a dollar: plain
    // 60 + 4 + 40 + 30, flex half of it (cached as input), priority the double.
    for (asked, told, tier, cost) in [
        (None, None, "standard", "0.001134000"),
        (Some("auto"), Some("default"), "standard", "0.001134000"),
        (Some("auto"), Some("priority"), "priority", "0.001340000"),
        (Some("priority"), Some("default"), "standard", "0.001134000"),
        (Some("flex"), Some("flex"), "flex", "0.001085000"),
        (Some("flex"), None, "flex", "0.001085000"),
    ] {
        let (_provider, gateway) = gateway(answer(told), "chat", PRICES).await;
        let got = gateway.post(CHAT, &ask(asked)).send().await;
        let receipt = receipt(&gateway, &got).await;
        let case = format!("{asked:?} {told:?}: {receipt}");
        assert_eq!(
            (&receipt["service_tier"], &receipt["cost_usd"]),
            (&json!(tier), &json!(cost)),
            "{case}"
        );
        assert_eq!(got.header("x-portunus-cost"), cost, "{case}");
    }
}

#[tokio::test]
async fn a_hold_covers_the_dearest_tier_that_may_be_given() {
    let (_provider, gateway) = gateway(answer(None), "chat", PRICES).await;
    let quote = |body: Value| {
        let gateway = &gateway;
        async move {
            let dry = gateway.post(CHAT, &body).header("x-portunus-dry-run", "true").send().await;
            let at_most = dry.json()["quote"]["at_most_usd"].as_str().unwrap().to_owned();
            at_most.parse::<f64>().unwrap() - 0.001
        }
    };
    let plain = quote(ask(None)).await;
    assert!(quote(ask(Some("auto"))).await > 1.9 * plain, "as dear as priority");
    assert!(quote(ask(Some("flex"))).await < 1.4 * plain, "no dearer than the plain one");
    let mut search = ask(None);
    search["web_search_options"] = json!({});
    assert!(quote(search).await > plain + 0.1, "ten searches of a cent");
}

#[tokio::test]
async fn a_receipt_has_the_parts_of_its_cost() {
    let (_provider, gateway) = gateway(answer(None), "chat", PRICES).await;
    let got = gateway.post(CHAT, &ask(None)).send().await;
    let receipt = receipt(&gateway, &got).await;
    let part = |word: &str, count: u64, price: &str, usd: &str| json!({ "for": word, "count": count, "price_usd": price, "usd": usd });
    assert_eq!(
        receipt["charges"],
        json!([
            part("cached_input", 40, "0.0000001", "0.000004000000"),
            part("input", 60, "0.000001", "0.000060000000"),
            part("thinking", 10, "0.000003", "0.000030000000"),
            part("output", 20, "0.000002", "0.000040000000"),
            part("request", 1, "0.001", "0.001000000000"),
        ])
    );
    assert_eq!((&receipt["ended_by"], &receipt["outcome"]), (&json!("provider"), &json!("done")));
    assert!(receipt["price_version"].as_str().unwrap().starts_with("p-"));
    assert_eq!(receipt["tries"][0]["outcome"], "answered");
    gateway.wait_until_settled().await;
    let stored = gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await;
    assert_eq!(stored.json(), receipt, "the store says what the book said");
}

#[tokio::test]
async fn time_is_billed_by_the_begun_second() {
    let price = "price = { per_second = \"0.5\" }\ntimeouts = { total = \"8s\" }\n";
    let (_provider, gateway) = gateway(answer(None), "chat", price).await;
    // Eight seconds plus the tolerated overrun, at half a dollar.
    let poor = capped(&gateway, "5.4").await;
    assert_eq!(gateway.post(CHAT, &ask(None)).key(&poor).send().await.status, 429);
    let got = gateway.post(CHAT, &ask(None)).send().await;
    let receipt = receipt(&gateway, &got).await;
    let seconds = receipt["seconds"].as_u64().unwrap();
    assert!((1..=8).contains(&seconds), "{receipt}");
    assert_eq!(receipt["charges"][0]["for"], "second");
    assert_eq!(receipt["charges"][0]["count"], seconds);
}

#[tokio::test]
async fn receipts_say_which_side_ended_a_call_early() {
    let slow = vec![AnswerStep::Wait(std::time::Duration::from_secs(600))];
    let price = "price = { input = \"1\", output = \"1\" }\ntimeouts = { first_byte = \"1s\" }\n";
    let (_provider, gateway) = gateway(slow, "chat", price).await;
    let got = gateway.post(CHAT, &ask(None)).send().await;
    assert_eq!(got.status, 504, "{}", got.text());
    assert_eq!(receipt(&gateway, &got).await["ended_by"], "deadline");
}

/// A whole answer with these counts.
fn counted(usage: &Value) -> Vec<AnswerStep> {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "stop",
                      "message": { "role": "assistant", "content": "Here." } }],
        "usage": usage,
    });
    reply(200, "application/json", &body.to_string())
}

#[tokio::test]
async fn a_receipt_tells_what_the_provider_told_and_why_the_charge_differs() {
    let price = "price = { input = \"1.00\", output = \"2.00\" }\n";
    for (usage, input, reasons) in [
        (json!({ "prompt_tokens": 9, "completion_tokens": 5 }), json!(9), json!([])),
        (Value::Null, Value::Null, json!(["not_told"])),
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 1_u64 << 62 }),
            json!(9),
            json!(["impossible"]),
        ),
        (json!({ "prompt_tokens": 0, "completion_tokens": 5 }), json!(0), json!(["incomplete"])),
        (
            json!({ "prompt_tokens": 9, "completion_tokens": 90_000 }),
            json!(9),
            json!(["beyond_hold"]),
        ),
    ] {
        let (_provider, gateway) = gateway(counted(&usage), "chat", price).await;
        let got = gateway.post(CHAT, &ask(None)).send().await;
        let receipt = receipt(&gateway, &got).await;
        assert_eq!(receipt["told"]["input"], input, "{usage}: {receipt}");
        assert_eq!(receipt["reasons"], reasons, "{usage}: {receipt}");
        assert_eq!(receipt["charged_usd"], receipt["cost_usd"], "{receipt}");
        let postings = receipt["postings"].as_array().unwrap();
        assert_eq!(postings.len(), 1, "{receipt}");
        assert_eq!(
            (&postings[0]["kind"], &postings[0]["why"]),
            (&json!("final"), &json!("settled"))
        );
        assert_eq!(postings[0]["cost_usd"], receipt["cost_usd"]);
        // The operator's part is not the caller's business.
        assert!(!receipt.to_string().contains("absorbed"), "{receipt}");
    }
}

#[tokio::test]
async fn a_corrected_call_lists_its_postings() {
    let price = "price = { input = \"1.00\", output = \"2.00\" }\n";
    let usage = json!({ "prompt_tokens": 9, "completion_tokens": 5 });
    let (_provider, gateway) = gateway(counted(&usage), "chat", price).await;
    let got = gateway.post(CHAT, &ask(None)).send().await;
    gateway.wait_until_settled().await;
    let id = got.header("x-request-id");
    let settled = gateway.app.store.entry(id).await.unwrap().unwrap();
    // The same call as another node would have settled it, and its own node after that.
    let guess = ledger::LedgerEntry {
        request_id: "req_guess".into(),
        cost: canon::Money::from_nanos(4_000),
        absorbed: canon::Money::from_nanos(700),
        outcome: ledger::CallOutcome::Recovered,
        knowledge: ledger::SettlementKnowledge::Reported,
        ..settled.clone()
    };
    let truth = ledger::LedgerEntry { request_id: "req_guess".into(), ..settled };
    gateway.app.store.post(&[guess]).await.unwrap();
    gateway.app.store.post(std::slice::from_ref(&truth)).await.unwrap();
    let receipt = gateway.get("/v1/usage/req_guess").send().await.json();
    assert_eq!(receipt["charged_usd"], "0.000019000", "{receipt}");
    let lines: Vec<(&str, &str, &str)> = receipt["postings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| ["kind", "why", "cost_usd"].map(|name| line[name].as_str().unwrap()).into())
        .collect();
    assert_eq!(
        lines,
        [("provisional", "reported", "0.000004000"), ("correction", "settled", "0.000015000")]
    );
    let postings = gateway.app.store.postings_of(std::slice::from_ref(&truth)).await.unwrap();
    let line = api::export_json(&truth, &postings["req_guess"]);
    assert_eq!(line["postings"][1]["absorbed_usd"], "-0.000000700", "{line}");
}

#[tokio::test]
async fn a_receipt_has_the_error_that_ended_the_call() {
    let refusal = json!({ "error": { "type": "invalid_request_error", "code": "bad_words",
        "message": "these words are bad: Tell me of the harbour, at some length." } });
    let failure = json!({ "error": { "message": "out of order" } });
    for (status, body, code) in [(400, refusal, "invalid_request"), (500, failure, "unavailable")] {
        let answer = reply(status, "application/json", &body.to_string());
        let (_provider, gateway) = gateway(answer, "chat", PRICES).await;
        let got = gateway.post(CHAT, &ask(None)).send().await;
        let receipt = receipt(&gateway, &got).await;
        let error = &receipt["error"];
        assert_eq!(error["code"], code, "{receipt}");
        assert_eq!(error["field"], Value::Null, "{receipt}");
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.contains("harbour"), "{receipt}");
    }
    let (_provider, gateway) = gateway(answer(None), "chat", PRICES).await;
    let got = gateway.post(CHAT, &ask(None)).send().await;
    assert_eq!(receipt(&gateway, &got).await["error"], Value::Null);
}
