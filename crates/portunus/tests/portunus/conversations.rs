//! `/v1/conversations`, and responses that belong to one.

use http::Method;
use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, reply, until};

use crate::key_objects::share;
use crate::money::key;

const PATH: &str = "/v1/conversations";
const RESPONSES: &str = "/v1/responses";

async fn create(gateway: &TestGateway, body: Value) -> String {
    let got = gateway.post(PATH, &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()["id"].as_str().unwrap().to_owned()
}

/// The items of a conversation as roles or types, the oldest first.
async fn kinds(gateway: &TestGateway, id: &str) -> Vec<String> {
    let path = format!("{PATH}/{id}/items?order=asc&limit=100");
    let got = gateway.get(&path).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let list = got.json();
    let kind = |item: &Value| {
        item["role"].as_str().or(item["type"].as_str()).unwrap_or_default().to_owned()
    };
    list["data"].as_array().unwrap().iter().map(kind).collect()
}

#[tokio::test]
async fn a_conversation_is_made_changed_and_deleted() {
    let gateway = TestGateway::start().await;
    let got = gateway.post(PATH, &json!({})).send().await.json();
    assert_eq!(got["object"], "conversation");
    assert_eq!(got["metadata"], json!({}));
    assert!(got["created_at"].as_u64().unwrap() > 1_700_000_000);
    let id = got["id"].as_str().unwrap();
    assert!(id.starts_with("conv_"));
    let path = format!("{PATH}/{id}");
    assert_eq!(gateway.get(&path).send().await.json(), got);
    let changed = gateway.post(&path, &json!({ "metadata": { "topic": "harbour" } })).send().await;
    assert_eq!(changed.json()["metadata"], json!({ "topic": "harbour" }));
    assert_eq!(gateway.get(&path).send().await.json(), changed.json());
    let cleared = gateway.post(&path, &json!({ "metadata": null })).send().await.json();
    assert_eq!(cleared["metadata"], json!({}));
    let gone = gateway.request(Method::DELETE, &path).send().await.json();
    assert_eq!(gone, json!({ "id": id, "object": "conversation.deleted", "deleted": true }));
    for path in [path.clone(), format!("{path}/items"), format!("{path}/items/msg_1")] {
        assert_eq!(gateway.get(&path).send().await.status, 404, "{path}");
    }
    assert_eq!(gateway.request(Method::DELETE, &path).send().await.status, 404);
}

#[tokio::test]
async fn items_are_added_listed_in_pages_and_deleted() {
    let gateway = TestGateway::start().await;
    let items: Vec<Value> =
        (0..5).map(|n| json!({ "role": "user", "content": format!("n{n}") })).collect();
    let id = create(&gateway, json!({ "items": items })).await;
    let path = format!("{PATH}/{id}/items");
    let more = json!({ "items": [{ "type": "message", "id": "msg_mine", "role": "assistant",
        "content": [{ "type": "output_text", "text": "n5", "annotations": [] }] }] });
    let added = gateway.post(&path, &more).send().await.json();
    assert_eq!(added["data"][0]["id"], "msg_mine");
    assert_eq!((&added["first_id"], &added["has_more"]), (&json!("msg_mine"), &json!(false)));
    let again = gateway.post(&path, &more).send().await;
    assert_eq!((again.status.as_u16(), &again.json()["error"]["param"]), (400, &json!("items")));
    // Pages in both directions visit each item once, in order.
    for (order, first) in [("asc", "n0"), ("desc", "n5")] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let query = if after.is_empty() { String::new() } else { format!("&after={after}") };
            let page =
                gateway.get(&format!("{path}?limit=2&order={order}{query}")).send().await.json();
            for item in page["data"].as_array().unwrap() {
                assert_eq!(item["status"], "completed");
                seen.push(item["content"][0]["text"].as_str().unwrap().to_owned());
            }
            after = page["last_id"].as_str().unwrap().to_owned();
            if page["has_more"] == false {
                break;
            }
        }
        let mut expected: Vec<String> = (0..6).map(|n| format!("n{n}")).collect();
        if order == "desc" {
            expected.reverse();
        }
        assert_eq!((seen[0].as_str(), &seen), (first, &expected));
    }
    let one = gateway.get(&format!("{path}/msg_mine")).send().await.json();
    assert_eq!(one["content"][0]["text"], "n5");
    let left = gateway.request(Method::DELETE, &format!("{path}/msg_mine")).send().await.json();
    assert_eq!((&left["id"], &left["object"]), (&json!(id), &json!("conversation")));
    assert_eq!(kinds(&gateway, &id).await.len(), 5);
    assert_eq!(gateway.get(&format!("{path}?after=msg_mine")).send().await.status, 404);
    for query in ["limit=0", "limit=101", "limit=x", "order=up"] {
        assert_eq!(gateway.get(&format!("{path}?{query}")).send().await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn wrong_input_names_its_field() {
    let gateway = TestGateway::start().await;
    let message = json!({ "role": "user", "content": "x" });
    let many = vec![message.clone(); 21];
    let pairs: serde_json::Map<String, Value> =
        (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    for (body, param) in [
        (json!({ "items": 7 }), "items"),
        (json!({ "items": many }), "items"),
        (json!({ "items": [message, { "role": "user", "content": 7 }] }), "items[1].content"),
        (json!({ "items": [{ "type": "item_reference", "id": "msg_1" }] }), "items[0]"),
        (json!({ "items": [{ "role": "user", "content": "x", "id": "" }] }), "items[0].id"),
        (json!({ "metadata": pairs }), "metadata"),
        (json!({ "metadata": { "a": 7 } }), "metadata"),
        (json!({ "metadata": "x" }), "metadata"),
    ] {
        let got = gateway.post(PATH, &body).send().await;
        assert_eq!(got.status, 400, "{body}: {}", got.text());
        let shown = got.json()["error"]["param"].as_str().unwrap().to_owned();
        assert!(shown.starts_with(param), "{body}: {shown}");
    }
    let id = create(&gateway, json!({})).await;
    let path = format!("{PATH}/{id}");
    assert_eq!(gateway.post(&path, &json!({})).send().await.status, 400);
    assert_eq!(
        gateway.post(&format!("{path}/items"), &json!({ "items": [] })).send().await.status,
        400
    );
}

#[tokio::test]
async fn a_response_reads_and_continues_its_conversation_on_every_upstream() {
    let gateway = TestGateway::start().await;
    for model in ["demo-chat", "demo-responses", "demo-messages", "demo-native"] {
        let first = json!({ "items": [{ "role": "user", "content": "My name is Ada." }] });
        let id = create(&gateway, first).await;
        let ask = |fields: Value| {
            let mut body = json!({ "model": model, "input": "And now?", "conversation": id });
            body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            body
        };
        let whole = gateway.post(RESPONSES, &ask(json!({}))).send().await;
        assert_eq!(whole.status, 200, "{}", whole.text());
        assert_eq!(whole.json()["conversation"], json!({ "id": id }), "{model}");
        assert_eq!(kinds(&gateway, &id).await, ["user", "user", "assistant"], "{model}");
        let streamed = json!({ "stream": true, "store": false, "conversation": { "id": id } });
        let streamed = gateway.post(RESPONSES, &ask(streamed)).send().await;
        let last: Value = serde_json::from_str(streamed.events().last().unwrap()).unwrap();
        assert_eq!(last["response"]["conversation"], json!({ "id": id }), "{model}");
        assert_eq!(kinds(&gateway, &id).await.len(), 5, "{model}");
        let tokens = |reply: &Value| reply["usage"]["input_tokens"].as_u64().unwrap();
        assert!(tokens(&last["response"]) > tokens(&whole.json()), "{model}");
        let run = gateway.post(RESPONSES, &ask(json!({ "background": true }))).send().await;
        assert_eq!(run.status, 200, "{}", run.text());
        until("the run has ended", async || kinds(&gateway, &id).await.len() == 7).await;
    }
}

#[tokio::test]
async fn a_conversation_never_reaches_a_provider_and_unknown_ones_are_refused() {
    let answer = json!({ "id": "resp_1", "object": "response", "created_at": 1, "status": "completed",
        "model": "up", "output": [{ "type": "message", "id": "msg_1", "role": "assistant",
            "status": "completed", "content": [{ "type": "output_text", "text": "Ho", "annotations": [] }] }],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 } });
    let answer = reply(200, "application/json", &answer.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let id = create(&gateway, json!({})).await;
    for turn in 0..3 {
        let body = json!({ "model": "m", "input": format!("turn {turn}"), "conversation": id });
        let got = gateway.post(RESPONSES, &body).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let sent = provider.requests();
    assert!(sent.iter().all(|sent| sent.json().get("conversation").is_none_or(Value::is_null)));
    assert_eq!(sent[2].json()["input"].as_array().unwrap().len(), 5);
    // The provider repeats the id of its item; every item has its own here.
    assert_eq!(kinds(&gateway, &id).await.len(), 6);
    for (body, status) in [
        (json!({ "model": "m", "input": "x", "conversation": "conv_none" }), 404),
        (json!({ "model": "m", "input": "x", "conversation": { "id": "conv_none" } }), 404),
        (json!({ "model": "m", "input": "x", "conversation": 7 }), 400),
        (
            json!({ "model": "m", "input": "x", "conversation": id, "previous_response_id": "resp_1" }),
            400,
        ),
    ] {
        let got = gateway.post(RESPONSES, &body).send().await;
        assert_eq!(got.status, status, "{body}: {}", got.text());
        assert_eq!(got.json()["error"]["param"], "conversation", "{body}");
    }
    assert_eq!(provider.requests().len(), 3);
    // A failed response adds nothing.
    provider.set_answers(vec![reply(400, "application/json", r#"{"error":{"message":"no"}}"#)]);
    let body = json!({ "model": "m", "input": "x", "conversation": id });
    assert_eq!(gateway.post(RESPONSES, &body).send().await.status, 400);
    assert_eq!(kinds(&gateway, &id).await.len(), 6);
}

#[tokio::test]
async fn a_conversation_belongs_to_its_key_unless_the_account_shares() {
    let gateway = TestGateway::start().await;
    let id = create(&gateway, json!({ "items": [{ "role": "user", "content": "x" }] })).await;
    let other = key(&gateway, |_| ()).await;
    let path = format!("{PATH}/{id}");
    let ask = json!({ "model": "demo-chat", "input": "x", "conversation": id });
    let statuses = async || {
        [
            gateway.get(&path).key(&other).send().await.status.as_u16(),
            gateway.get(&format!("{path}/items")).key(&other).send().await.status.as_u16(),
            gateway.post(RESPONSES, &ask).key(&other).send().await.status.as_u16(),
        ]
    };
    assert_eq!(statuses().await, [404, 404, 404]);
    share(&gateway).await;
    until("it is shared", async || statuses().await == [200, 200, 200]).await;
}

#[tokio::test]
async fn responses_at_once_all_add_their_turns() {
    let gateway = TestGateway::start().await;
    let id = create(&gateway, json!({})).await;
    let body = json!({ "model": "demo-chat", "input": "x", "conversation": id });
    let calls = (0..8).map(|_| gateway.post(RESPONSES, &body).send());
    for got in futures_util::future::join_all(calls).await {
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let kinds = kinds(&gateway, &id).await;
    assert_eq!(kinds.len(), 16);
    assert!(kinds.chunks(2).all(|turn| turn == ["user", "assistant"]), "{kinds:?}");
}

#[tokio::test]
async fn a_conversation_that_fits_no_request_is_refused() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"64KiB\"\n").await;
    let long = "x".repeat(40_000);
    let id = create(&gateway, json!({ "items": [{ "role": "user", "content": long }] })).await;
    let more = json!({ "items": [{ "role": "user", "content": long }] });
    let got = gateway.post(&format!("{PATH}/{id}/items"), &more).send().await;
    assert_eq!(got.status, 413, "{}", got.text());
    let ask = json!({ "model": "demo-chat", "input": long, "conversation": id });
    assert_eq!(gateway.post(RESPONSES, &ask).send().await.status, 413);
    assert_eq!(kinds(&gateway, &id).await, ["user"]);
}
