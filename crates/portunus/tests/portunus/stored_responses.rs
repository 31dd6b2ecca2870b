//! Stored conversations: continued responses, background runs and threads, on any upstream.

use http::Method;
use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, reply, until};

const RESPONSES: &str = "/v1/responses";

fn said(reply: &Value) -> String {
    let items = reply["output"].as_array().cloned().unwrap_or_default();
    let parts = items.iter().filter_map(|item| item["content"].as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

async fn other_account_key(gateway: &TestGateway) -> String {
    let now = gateway.app.clock.now();
    let account = store::Account {
        id: "other".to_owned(),
        username: "other".to_owned(),
        email: None,
        role: store::AccountRole::Member,
        password_hash: None,
        disabled: false,
        created: now,
        changed: now,
    };
    gateway.app.store.add_account(&account).await.unwrap();
    let ask = testkit::NewKey { name: "o".to_owned(), cap: None, models: vec![], expires: None };
    let (record, key) = ask.into_record("other", &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    key
}

#[tokio::test]
async fn a_response_goes_on_from_another_on_every_upstream_and_can_be_read_back_at_once() {
    let gateway = TestGateway::start().await;
    for model in ["demo-chat", "demo-responses", "demo-messages", "demo-native", "demo-echo"] {
        let first = json!({ "model": model, "input": "My name is Ada." });
        let first = gateway.post(RESPONSES, &first).send().await;
        assert_eq!(first.status, 200, "{}", first.text());
        let id = first.json()["id"].as_str().unwrap().to_owned();
        let back = gateway.get(&format!("{RESPONSES}/{id}")).send().await;
        assert_eq!((back.status.as_u16(), back.json()), (200, first.json()), "{model}");

        let next = json!({ "model": model, "input": "And now?", "previous_response_id": id, "stream": true });
        let next = gateway.post(RESPONSES, &next).send().await;
        assert_eq!(next.status, 200, "{}", next.text());
        let last: Value = serde_json::from_str(next.events().last().unwrap()).unwrap();
        assert_eq!(last["type"], "response.completed", "{model}");
        let second = last["response"]["id"].as_str().unwrap().to_owned();
        let items =
            gateway.get(&format!("{RESPONSES}/{second}/input_items?order=asc")).send().await.json();
        let roles: Vec<_> =
            items["data"].as_array().unwrap().iter().map(|i| i["role"].clone()).collect();
        assert_eq!(roles, ["user", "assistant", "user"], "{model}: {items}");
        let third = json!({ "model": model, "input": "Third", "previous_response_id": second });
        assert_eq!(gateway.post(RESPONSES, &third).send().await.status, 200);
    }
}

#[tokio::test]
async fn unstored_and_foreign_responses_are_not_found() {
    let gateway = TestGateway::start().await;
    let fleeting = json!({ "model": "demo-chat", "input": "hi", "store": false });
    let id =
        gateway.post(RESPONSES, &fleeting).send().await.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(gateway.get(&format!("{RESPONSES}/{id}")).send().await.status, 404);

    let kept = json!({ "model": "demo-chat", "input": "hi" });
    let id = gateway.post(RESPONSES, &kept).send().await.json()["id"].as_str().unwrap().to_owned();
    let other = other_account_key(&gateway).await;
    assert_eq!(gateway.get(&format!("{RESPONSES}/{id}")).key(&other).send().await.status, 404);
    let steal = json!({ "model": "demo-chat", "input": "x", "previous_response_id": id });
    let got = gateway.post(RESPONSES, &steal).key(&other).send().await;
    assert_eq!(
        (got.status.as_u16(), &got.json()["error"]["code"]),
        (404, &json!("previous_response_not_found"))
    );
    let got =
        gateway.request(Method::DELETE, &format!("{RESPONSES}/{id}")).key(&other).send().await;
    assert_eq!(got.status, 404);
    let got = gateway.request(Method::DELETE, &format!("{RESPONSES}/{id}")).send().await;
    assert_eq!(got.json(), json!({ "id": id, "object": "response", "deleted": true }));
    assert_eq!(gateway.get(&format!("{RESPONSES}/{id}")).send().await.status, 404);
}

#[tokio::test]
async fn a_background_run_is_polled_streamed_again_and_settled() {
    let gateway = TestGateway::start().await;
    let ask =
        json!({ "model": "demo-native", "input": "Tell me a short story", "background": true });
    let queued = gateway.post(RESPONSES, &ask).send().await;
    assert_eq!(queued.status, 200, "{}", queued.text());
    let queued = queued.json();
    assert!(matches!(queued["status"].as_str(), Some("queued" | "in_progress")), "{queued}");
    let id = queued["id"].as_str().unwrap().to_owned();
    let mut done = Value::Null;
    until("the background run is completed", async || {
        done = gateway.get(&format!("{RESPONSES}/{id}")).send().await.json();
        done["status"] == "completed"
    })
    .await;
    assert_eq!(
        (&done["status"], &done["background"], &done["id"]),
        (&json!("completed"), &json!(true), &json!(id))
    );
    assert!(!said(&done).is_empty());
    let all = gateway.get(&format!("{RESPONSES}/{id}?stream=true")).send().await.events();
    let rest = gateway
        .get(&format!("{RESPONSES}/{id}?stream=true&starting_after=2"))
        .send()
        .await
        .events();
    assert_eq!(rest, all[3..], "a resumed stream goes on where it was left");
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.export(None, 10).await.unwrap().len(), 1);

    let cancelled =
        gateway.post(&format!("{RESPONSES}/{id}/cancel"), &json!({})).send().await.json();
    assert_eq!(cancelled["status"], "completed", "what is done stays done");
    let unkept = json!({ "model": "demo-chat", "input": "x", "background": true, "store": false });
    assert_eq!(gateway.post(RESPONSES, &unkept).send().await.status, 400);
    let wrong = json!({ "model": "nope", "input": "x", "background": true });
    assert_eq!(gateway.post(RESPONSES, &wrong).send().await.status, 404);
}

#[tokio::test]
async fn a_compacted_conversation_can_be_gone_on_with() {
    let gateway = TestGateway::start().await;
    let long = json!({ "model": "demo-messages", "input": [
        { "role": "user", "content": "Remember the number 7." },
        { "role": "assistant", "content": [{ "type": "output_text", "text": "I will." }] },
    ]});
    let short = gateway.post("/v1/responses/compact", &long).send().await;
    assert_eq!(short.status, 200, "{}", short.text());
    let short = short.json();
    let kinds: Vec<_> =
        short["output"].as_array().unwrap().iter().map(|i| i["type"].clone()).collect();
    assert_eq!(kinds.last(), Some(&json!("compaction")));
    assert_eq!(short["output"][0]["content"][0]["text"], "Remember the number 7.");
    let mut input = short["output"].as_array().unwrap().clone();
    input.push(json!({ "role": "user", "content": "Go on" }));
    let next =
        gateway.post(RESPONSES, &json!({ "model": "demo-native", "input": input })).send().await;
    assert_eq!(next.status, 200, "{}", next.text());
}

#[tokio::test]
async fn a_compaction_item_leaves_all_other_bytes_as_they_are() {
    let answer = json!({ "id": "resp_1", "object": "response", "status": "completed", "output": [],
        "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 } });
    let answer = reply(200, "application/json", &answer.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = provider.config("responses").replace("[models.m]", "[models.up]");
    let gateway = TestGateway::with_config(&config).await;
    // The provider's own item, and plain text next to it.
    let body = |item: &str| {
        format!(
            r#"{{ "model":"up", "store":false,
  "input" : [ {{"role":"user","content":"Hi"}},{item}, {{"content":"Go on","role":"user"}} ] }}"#
        )
    };
    let theirs = r#"{"type":"compaction", "id":"cmp_1","encrypted_content":"gAAA"}"#;
    let send = |text: String| gateway.post(RESPONSES, &json!({})).body(text).send();
    let got = send(body(theirs)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = provider.requests().pop().unwrap().body;
    assert_eq!(String::from_utf8(sent).unwrap(), body(theirs));
    // A summary of the gateway becomes a message; no other item changes.
    let ours = r#"{"type":"compaction","id":"cmp_2","encrypted_content":"portunus:1:U2V2ZW4u"}"#;
    let got = send(body(ours)).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = String::from_utf8(provider.requests().pop().unwrap().body).unwrap();
    let message = r#"{"type":"message","role":"developer","content":[{"type":"input_text","text":"Summary of the conversation so far:\nSeven."}]}"#;
    assert_eq!(sent, body(message));
}

#[tokio::test]
async fn a_thread_of_messages_needs_only_what_is_new() {
    let gateway = TestGateway::start().await;
    let tool = json!({ "name": "get_weather", "description": "Weather of a city",
        "input_schema": { "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] } });
    for stream in [false, true] {
        let create = json!({ "model": "demo-native", "max_tokens": 500, "tools": [tool], "stream": stream,
            "tool_choice": { "type": "any" }, "thread": { "type": "create" },
            "messages": [{ "role": "user", "content": "Weather in Paris?" }] });
        let got = gateway.post("/v1/messages", &create).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let (id, call) = if stream {
            let events: Vec<Value> =
                got.events().iter().map(|e| serde_json::from_str(e).unwrap()).collect();
            let id = events[0]["message"]["id"].clone();
            let call = events.iter().find_map(|e| {
                (e["content_block"]["type"] == "tool_use").then(|| e["content_block"]["id"].clone())
            });
            (id, call.unwrap())
        } else {
            let message = got.json();
            let blocks = message["content"].as_array().unwrap();
            let call = blocks.iter().find(|b| b["type"] == "tool_use").unwrap()["id"].clone();
            (message["id"].clone(), call)
        };
        let go_on = json!({ "model": "demo-native", "max_tokens": 500, "tool_choice": { "type": "auto" },
            "thread": { "type": "continue", "previous_message_id": id },
            "messages": [{ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": call, "content": "21 degrees" }] }] });
        let got = gateway.post("/v1/messages", &go_on).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert!(got.text().contains("21"), "the answer knows the result: {}", got.text());
    }
    let lost = json!({ "model": "demo-chat", "max_tokens": 5, "messages": [{ "role": "user", "content": "x" }],
        "thread": { "type": "continue", "previous_message_id": "msg_gone" } });
    let got = gateway.post("/v1/messages", &lost).send().await;
    assert_eq!(
        (got.status.as_u16(), &got.json()["error"]["details"]),
        (404, &json!({ "error_code": "thread_not_found" }))
    );
}

#[tokio::test]
async fn a_deleted_background_answer_is_not_streamed_again() {
    let gateway = TestGateway::start().await;
    let body = json!({ "model": "demo-chat", "input": "Hello!", "background": true });
    let id = gateway.post("/v1/responses", &body).send().await.json();
    let path = format!("/v1/responses/{}", id["id"].as_str().unwrap());
    until("the run is completed", async || {
        gateway.get(&path).send().await.json()["status"] == "completed"
    })
    .await;
    assert_eq!(gateway.get(&format!("{path}?stream=true")).send().await.status, 200);
    assert_eq!(gateway.request(Method::DELETE, &path).send().await.status, 200);
    assert_eq!(gateway.get(&path).send().await.status, 404);
    assert_eq!(gateway.get(&format!("{path}?stream=true")).send().await.status, 404);
}

#[tokio::test]
async fn a_websocket_is_refused_at_once() {
    let gateway = TestGateway::start().await;
    let got = gateway
        .get(RESPONSES)
        .header("upgrade", "websocket")
        .header("connection", "upgrade")
        .send()
        .await;
    assert_eq!(got.status, 426);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_background_run_is_decided_once() {
    let gateway = TestGateway::start().await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0).id;
    let body = json!({ "model": "demo-chat", "input": "Hello!", "background": true });
    for round in 0..60_u64 {
        let made = gateway.post("/v1/responses", &body).send().await.json();
        let id = made["id"].as_str().unwrap();
        // The cancellation meets the run at a different moment in every round.
        tokio::time::sleep(std::time::Duration::from_micros(round * 200)).await;
        let path = format!("/v1/responses/{id}");
        let cancel = format!("{path}/cancel");
        let told = gateway.post(&cancel, &json!({})).send().await.json();
        let status = told["status"].as_str().unwrap().to_owned();
        assert!(["cancelled", "completed"].contains(&status.as_str()), "{told}");
        for _ in 0..2 {
            assert_eq!(gateway.get(&path).send().await.json()["status"], status);
            assert_eq!(gateway.post(&cancel, &json!({})).send().await.json()["status"], status);
        }
        // The store has the same end, once all writes have arrived there.
        let mut stored = Value::Null;
        until("the end of the run is stored", async || {
            let owner = store::ObjectOwner::account(&account);
            let stored_response = gateway.app.store.stored_response(id, &owner).await.unwrap();
            stored = stored_response.map_or(Value::Null, |stored_response| {
                serde_json::from_str(&stored_response.reply).unwrap()
            });
            !stored.is_null() && stored["status"] != "queued"
        })
        .await;
        assert_eq!(stored["status"], status, "round {round}");
    }
}
