//! Calls of a connection: the same as over HTTP.

use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, until};

use super::{HANDSHAKE, SocketClient, handshake};

const MODELS: [&str; 4] = ["demo-chat", "demo-responses", "demo-messages", "demo-native"];

fn texts(value: &Value) -> String {
    let items = value["output"].as_array().cloned().unwrap_or_default();
    let parts = items.iter().filter_map(|item| item["content"].as_array()).flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

#[tokio::test]
async fn events_are_those_of_the_stream_on_every_upstream() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    for (count, model) in MODELS.into_iter().enumerate() {
        let body = json!({ "model": model, "input": "Tell me of the harbour." });
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let streamed = gateway.post("/v1/responses", &streamed).send().await.events();
        let streamed: Vec<Value> =
            streamed.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
        socket.create(body).await;
        let events = socket.response().await;
        let kinds = |events: &[Value]| -> Vec<(Value, Value)> {
            let kind = |event: &Value| (event["type"].clone(), event["sequence_number"].clone());
            events.iter().map(kind).collect()
        };
        assert_eq!(kinds(&events), kinds(&streamed), "{model}");
        let (last, other) = (&events[events.len() - 1], &streamed[streamed.len() - 1]);
        assert_eq!(texts(&last["response"]), texts(&other["response"]), "{model}");
        assert!(events.iter().skip(1).all(|event| event.get("headers").is_none()));
        // One call, with a receipt under the id in the first event.
        let id = events[0]["headers"]["x-request-id"].as_str().unwrap();
        gateway.wait_until_settled().await;
        let receipt = gateway.get(&format!("/v1/usage/{id}")).send().await;
        assert_eq!(receipt.status, 200, "{}", receipt.text());
        assert_eq!(receipt.json()["model"], model);
        let rows = gateway.app.store.export(None, 100).await.unwrap();
        assert_eq!(rows.len(), 2 * (count + 1));
    }
}

#[tokio::test]
async fn a_response_goes_on_without_being_stored_on_its_connection_alone() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let mut socket = SocketClient::open(&gateway).await;
        let first = json!({ "model": model, "input": "My name is Ada.", "store": false });
        let first = socket.ask(first).await["response"]["id"].as_str().unwrap().to_owned();
        let next = json!({ "model": model, "input": "And now?", "store": false,
            "previous_response_id": first });
        let second = socket.ask(next.clone()).await;
        assert_eq!(second["type"], "response.completed", "{model}: {second}");
        assert_eq!(second["response"]["previous_response_id"], first.as_str());
        let tokens = |event: &Value| event["response"]["usage"]["input_tokens"].as_u64().unwrap();
        let alone = json!({ "model": model, "input": "And now?", "store": false });
        assert!(
            tokens(&second) > tokens(&socket.ask(alone).await),
            "{model}: it has the first turn"
        );
        assert_eq!(gateway.get(&format!("/v1/responses/{first}")).send().await.status, 404);
        let mut other = SocketClient::open(&gateway).await;
        let missing = other.ask(next).await;
        assert_eq!(missing["error"]["code"], "previous_response_not_found");
        assert_eq!(missing["error"]["param"], "previous_response_id");
        // The connection goes on after an error.
        assert_eq!(
            other.ask(json!({ "model": model, "input": "Hi" })).await["type"],
            "response.completed"
        );
    }
}

#[tokio::test]
async fn a_stored_response_goes_on_over_both_ways() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    let first = socket.ask(json!({ "model": "demo-chat", "input": "My name is Ada." })).await;
    let id = first["response"]["id"].as_str().unwrap();
    let next = json!({ "model": "demo-messages", "input": "And?", "previous_response_id": id });
    let next = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(next.status, 200, "{}", next.text());
    let last = json!({ "model": "demo-native", "input": "And?",
        "previous_response_id": next.json()["id"] });
    assert_eq!(socket.ask(last).await["type"], "response.completed");
}

#[tokio::test]
async fn a_prepared_response_costs_nothing_and_is_continued() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    for (store, input) in [(false, json!([])), (true, json!("My name is Ada."))] {
        let body = json!({ "model": "demo-messages", "instructions": "Be brief.", "input": input,
            "store": store, "generate": false });
        socket.create(body).await;
        let events = socket.response().await;
        let kinds: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["response.created", "response.completed"], "{events:?}");
        let response = &events[1]["response"];
        assert_eq!(response["output"], json!([]));
        assert_eq!(response["usage"]["total_tokens"], 0);
        assert_eq!(response["status"], "completed");
        let next = json!({ "model": "demo-messages", "input": "Hi", "store": false,
            "previous_response_id": response["id"] });
        assert_eq!(socket.ask(next).await["type"], "response.completed");
    }
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.export(None, 10).await.unwrap().len(), 2, "of four");
    let unknown = json!({ "model": "no-such-model", "input": [], "generate": false });
    assert_eq!(socket.ask(unknown).await["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn streams_with_names_run_beside_each_other_and_one_stream_in_order() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    for (stream, input) in [("a", "one"), ("a", "two"), ("b", "three"), ("a", "four")] {
        let body = json!({ "model": "demo-chat", "input": input, "stream_id": stream });
        socket.create(body).await;
    }
    let mut ended = Vec::new();
    let mut open: Vec<(String, String)> = Vec::new();
    while ended.len() < 4 {
        let event = socket.next().await.unwrap();
        let stream = event["stream_id"].as_str().unwrap().to_owned();
        let id = event["response"]["id"].as_str().unwrap_or_default().to_owned();
        match event["type"].as_str().unwrap() {
            "response.created" => {
                assert!(!open.iter().any(|(own, _)| *own == stream), "one response at a time");
                open.push((stream, id));
            }
            "response.completed" => {
                open.retain(|own| *own != (stream.clone(), id.clone()));
                ended.push(stream);
            }
            _ => {}
        }
    }
    assert_eq!(ended.iter().filter(|stream| *stream == "a").count(), 3);
}

#[tokio::test]
async fn errors_are_events_that_name_the_field() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    let cases = [
        (json!({ "type": "response.create", "model": "demo-chat", "input": 7 }), 400, "input"),
        (json!({ "type": "response.create", "input": "Hi" }), 400, "model"),
        (json!({ "type": "response.create", "model": "none", "input": "Hi" }), 404, ""),
        (
            json!({ "type": "response.create", "model": "demo-chat", "input": "Hi", "background": true }),
            400,
            "background",
        ),
        (json!({ "type": "session.update" }), 400, "type"),
    ];
    for (event, status, param) in cases {
        socket.send(&event).await;
        let got = socket.next().await.unwrap();
        assert_eq!(got["type"], "error", "{got}");
        assert_eq!(
            (&got["status"], got["error"]["param"].as_str().unwrap_or_default()),
            (&json!(status), param),
            "{got}"
        );
        assert_eq!(got["error"]["type"], "invalid_request_error");
    }
    let steer =
        json!({ "type": "response.steer", "previous_response_id": "resp_1", "input": "Wait" });
    socket.send(&steer).await;
    let got = socket.next().await.unwrap();
    assert_eq!(got["type"], "response.steer.failed");
    assert_eq!(got["error"]["code"], "steering_not_supported");
    assert_eq!(got["steer"], json!({ "previous_response_id": "resp_1", "input": "Wait" }));
    assert_eq!(
        socket.ask(json!({ "model": "demo-chat", "input": "Hi" })).await["type"],
        "response.completed"
    );
}

#[tokio::test]
async fn a_closed_connection_is_a_caller_that_left() {
    let events = "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\
        \"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"in_progress\",\"output\":[]}}\n\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n",
        events.len()
    );
    let answer = vec![AnswerStep::Bytes(head.into()), AnswerStep::Wait(Duration::from_secs(600))];
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let mut socket = SocketClient::open(&gateway).await;
    socket.create(json!({ "model": "m", "input": "Hi", "max_output_tokens": 50 })).await;
    assert_eq!(socket.next().await.unwrap()["type"], "response.created");
    assert_eq!(gateway.app.engine.funds.open_calls.running_count(), 1);
    drop(socket);
    until("the call is settled", async || gateway.app.engine.funds.open_calls.running_count() == 0)
        .await;
    gateway.wait_until_settled().await;
    assert_eq!(gateway.app.store.export(None, 10).await.unwrap().len(), 1);
    until("the connection is gone", async || gateway.app.engine.connections.count() == 0).await;
}

#[tokio::test]
async fn requests_that_are_no_handshake_are_told_to_use_post() {
    let gateway = TestGateway::start().await;
    let address = gateway.url.trim_start_matches("http://").to_owned();
    let key = format!("Authorization: Bearer {}\r\n", gateway.key);
    let cases = [
        HANDSHAKE.replace("Upgrade: websocket\r\n", ""),
        HANDSHAKE.replace("keep-alive, Upgrade", "keep-alive"),
        HANDSHAKE.replace("Version: 13", "Version: 8"),
        HANDSHAKE.replace("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="),
        HANDSHAKE.replace("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        format!("{HANDSHAKE}Content-Length: 2\r\n"),
    ];
    for lines in cases {
        let (_, head) = handshake(&address, &format!("{lines}{key}")).await;
        assert!(head.starts_with("HTTP/1.1 426 "), "{lines}: {head}");
    }
    let (_, head) = handshake(&address, HANDSHAKE).await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    assert_eq!(gateway.request(Method::GET, "/v1/responses").send().await.status, 426);
    let dry = format!("{HANDSHAKE}{key}x-portunus-dry-run: true\r\n");
    let (_, head) = handshake(&address, &dry).await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    let off = TestGateway::with_config("[server]\nwebsockets = false\n").await;
    let key = format!("Authorization: Bearer {}\r\n", off.key);
    let (_, head) =
        handshake(off.url.trim_start_matches("http://"), &format!("{HANDSHAKE}{key}")).await;
    assert!(head.starts_with("HTTP/1.1 426 "), "{head}");
}

#[tokio::test]
async fn an_idempotency_key_of_the_handshake_does_not_make_all_calls_one() {
    let gateway = TestGateway::start().await;
    let key = gateway.key.clone();
    let mut socket = SocketClient::open_with(&gateway, &key, "Idempotency-Key: one\r\n").await;
    let mut ids = std::collections::HashSet::new();
    for _ in 0..2 {
        let got = socket.ask(json!({ "model": "demo-chat", "input": "Hi" })).await;
        ids.insert(got["response"]["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 2);
}

#[tokio::test]
async fn a_conversation_grows_before_the_last_event() {
    let gateway = TestGateway::start().await;
    let mut socket = SocketClient::open(&gateway).await;
    let made = gateway.post("/v1/conversations", &json!({})).send().await.json();
    let id = made["id"].as_str().unwrap();
    for turn in 1..=3 {
        let body =
            json!({ "model": "demo-messages", "input": "Hi", "conversation": id, "store": false });
        let got = socket.ask(body).await;
        assert_eq!(got["response"]["conversation"], json!({ "id": id }), "{got}");
        let items = gateway.get(&format!("/v1/conversations/{id}/items")).send().await.json();
        assert_eq!(items["data"].as_array().unwrap().len(), 2 * turn);
    }
    let unknown = json!({ "model": "demo-chat", "input": "Hi", "conversation": "conv_none" });
    let got = socket.ask(unknown).await;
    assert_eq!((&got["status"], &got["error"]["param"]), (&json!(404), &json!("conversation")));
}
