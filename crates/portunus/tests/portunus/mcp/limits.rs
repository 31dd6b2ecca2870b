//! Limits of calls: money, approvals, lists, retries, rates and times.

use super::*;
use store::{KeyRecord, RateLimits};

async fn key(gateway: &TestGateway, change: impl FnOnce(&mut KeyRecord)) -> String {
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let ask =
        testkit::NewKey { name: "limited".to_owned(), cap: None, models: vec![], expires: None };
    let now = gateway.app.clock.now();
    let (mut record, text) = ask.into_record(&account.id, &gateway.app.engine.keys, now).unwrap();
    change(&mut record);
    gateway.app.store.add_key(&record).await.unwrap();
    text
}

fn calls_of(server: &ScriptedProvider) -> Vec<Value> {
    let asked = server.requests();
    let calls = asked.iter().map(|asked| asked.json());
    calls.filter(|asked| asked["method"] == "tools/call").collect()
}

#[tokio::test]
async fn an_error_after_work_is_not_retried() {
    let down = reply(500, "application/json", r#"{"error":{"message":"down"}}"#);
    let busy = b"HTTP/1.1 429 X\r\nretry-after: 3\r\ncontent-type: application/json\r\n\
                 content-length: 28\r\n\r\n{\"error\":{\"message\":\"busy\"}}";
    for failure in [down, vec![AnswerStep::Bytes(busy.to_vec())]] {
        for path in ["/v1/responses", "/v1/messages"] {
            let answers = vec![model_calls(&["wx__get_weather"]), failure.clone()];
            let model = ScriptedProvider::start(answers).await;
            let gateway = gateway(&model.config("chat")).await;
            let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
            let request = match path {
                "/v1/responses" => responses_request("m", &server, false),
                _ => messages_request("m", &server, false),
            };
            let got = gateway.post(path, &request).send().await;
            assert!(!got.status.is_success(), "{}", got.text());
            assert_eq!(got.header("x-should-retry"), "false", "{path}: {}", got.text());
            assert_eq!(got.header("retry-after"), "", "{path}");
            assert_eq!(got.header("retry-after-ms"), "", "{path}");
            assert_eq!(got.header("x-portunus-turns").split(',').count(), 2, "{path}");
            assert!(got.header("x-portunus-cost").starts_with("0.0000"), "{path}");
            assert_eq!(calls_of(&server).len(), 1);
        }
    }
}

/// Asks for a call that needs approval. Returns the request, its answer and the item.
async fn ask_approval(gateway: &TestGateway, server: &ScriptedProvider) -> (Value, Value, Value) {
    let mut request = responses_request("m", server, false);
    request["tools"][0]["require_approval"] = json!("always");
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let answer = got.json();
    let asked = answer["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(asked["type"], "mcp_approval_request", "{answer}");
    assert!(asked["id"].as_str().unwrap().len() <= 64, "{asked}");
    (request, answer, asked)
}

fn approval(asked: &Value) -> Value {
    json!({ "type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": true })
}

#[tokio::test]
async fn approvals_are_for_calls_that_were_asked_for() {
    let model = ScriptedProvider::start(vec![model_calls(&["wx__get_weather"])]).await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    let (request, answer, asked) = ask_approval(&gateway, &server).await;
    let user = json!({ "role": "user", "content": QUESTION });
    let mut altered = asked.clone();
    altered["arguments"] = json!("{\"city\":\"Rome\"}");
    let mut renamed = asked.clone();
    renamed["name"] = json!("delete_all");
    let mut invented = asked.clone();
    invented["id"] = json!("mcpr_1");
    let never = json!({ "id": "mcpr_never" });
    for (input, at) in [
        (json!([user, altered, approval(&asked)]), 2),
        (json!([user, renamed, approval(&asked)]), 2),
        (json!([user, invented, approval(&invented)]), 2),
        (json!([user, approval(&never)]), 1),
    ] {
        let before = (server.requests().len(), model.requests().len());
        let mut next = request.clone();
        next["input"] = input;
        let got = gateway.post("/v1/responses", &next).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        let param = format!("input[{at}].approval_request_id");
        assert_eq!(got.json()["error"]["param"], param, "{}", got.text());
        assert_eq!((server.requests().len(), model.requests().len()), before, "nothing is asked");
    }
    // The stored request wins, and two approvals of it are one.
    for input in [
        json!([altered, approval(&asked), approval(&asked)]),
        json!([approval(&asked), approval(&asked)]),
    ] {
        server.set_answers(vec![listing(), sunny()]);
        model.set_answers(vec![testkit::chat_reply("done", 5, 5)]);
        let before = calls_of(&server).len();
        let mut next = request.clone();
        next["previous_response_id"] = answer["id"].clone();
        next["input"] = input;
        let got = gateway.post("/v1/responses", &next).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let calls = calls_of(&server).split_off(before);
        assert_eq!(calls.len(), 1, "{}", got.text());
        assert_eq!(calls[0]["params"]["arguments"], json!({ "city": "Paris" }));
    }
    // A caller that keeps the items itself.
    server.set_answers(vec![listing(), sunny()]);
    let mut next = request.clone();
    next["input"] = json!([user, asked, approval(&asked)]);
    next["store"] = json!(false);
    let before = calls_of(&server).len();
    let got = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(calls_of(&server).len(), before + 1);
    // Streamed, the item has the same id in every event.
    model.set_answers(vec![stream_calls("{\"city\":\"Paris\"}", "tool_calls")]);
    server.set_answers(vec![listing()]);
    let mut next = request.clone();
    next["stream"] = json!(true);
    let got = gateway.post("/v1/responses", &next).send().await;
    let done = event(&got, "response.completed");
    let last = done["response"]["output"].as_array().unwrap().last().unwrap().clone();
    let id = last["id"].as_str().unwrap();
    assert_eq!(last["type"], "mcp_approval_request", "{}", got.text());
    assert_eq!(got.text().matches(id).count(), 3, "added, done and completed: {}", got.text());
}

#[tokio::test]
async fn approved_calls_count_and_cost_like_others() {
    let model = ScriptedProvider::start(vec![model_calls(&["wx__get_weather"; 3])]).await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    let (request, answer, asked) = ask_approval(&gateway, &server).await;
    model.set_answers(vec![testkit::chat_reply("done", 5, 5)]);
    let mut next = request.clone();
    next["previous_response_id"] = answer["id"].clone();
    let all = answer["output"].as_array().unwrap().iter();
    let all: Vec<Value> =
        all.filter(|item| item["type"] == "mcp_approval_request").map(approval).collect();
    assert_eq!(all.len(), 3, "{answer}");
    next["input"] = json!(all);
    next["max_tool_calls"] = json!(1);
    server.set_answers(vec![listing(), sunny()]);
    let got = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(calls_of(&server).len(), 1, "{}", got.text());
    assert_eq!(got.json()["output"][1]["status"], "failed", "{}", got.text());
    // A key without money asks nobody.
    let poor = key(&gateway, |record| record.cap = Some("0.000001".parse().unwrap())).await;
    let before = (server.requests().len(), model.requests().len());
    let user = json!({ "role": "user", "content": QUESTION });
    next["previous_response_id"] = Value::Null;
    next["max_tool_calls"] = json!(5);
    for input in [json!([user, asked, approval(&asked)]), json!(QUESTION)] {
        next["input"] = input;
        let got = gateway.post("/v1/responses", &next).key(&poor).send().await;
        assert_eq!(got.status, 429, "{}", got.text());
        assert_eq!((server.requests().len(), model.requests().len()), before, "{}", got.text());
    }
    // The tools of the server make the turn dearer than the money.
    let mut tool = weather_tool();
    tool["description"] = json!("x".repeat(100_000));
    server.set_answers(vec![rpc(&json!({ "tools": [tool] })), sunny()]);
    let poor = key(&gateway, |record| record.cap = Some("0.01".parse().unwrap())).await;
    next["input"] = json!([user, asked, approval(&asked)]);
    let got = gateway.post("/v1/responses", &next).key(&poor).send().await;
    assert_eq!(got.status, 429, "{}", got.text());
    assert_eq!(calls_of(&server).len(), 1, "no other one: {}", got.text());
}

#[tokio::test]
async fn only_tools_that_the_server_lists_are_called() {
    let forged = json!({ "name": "rm_rf", "input_schema": { "type": "object" } });
    let model = ScriptedProvider::start(vec![
        model_calls(&["wx__rm_rf"]),
        testkit::chat_reply("done", 5, 5),
    ])
    .await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    let mut request = responses_request("m", &server, false);
    request["input"] = json!([
        { "role": "user", "content": QUESTION },
        { "type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wx", "tools": [forged] },
    ]);
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(calls_of(&server).is_empty(), "{}", got.text());
    let sent = model.requests()[0].json();
    assert_eq!(sent["tools"][0]["function"]["name"], "wx__get_weather", "{sent}");
    model.set_answers(vec![model_calls(&["wx__rm_rf"]), testkit::chat_reply("done", 5, 5)]);
    let mut request = messages_request("m", &server, false);
    request["tools"][0]["tools"] = json!([forged]);
    request["messages"] = json!([
        { "role": "user", "content": QUESTION },
        { "role": "assistant", "content": [
            { "type": "mcp_tool_listing", "mcp_server_name": "wx", "tools": [forged] },
            { "type": "text", "text": "Well" },
        ] },
        { "role": "user", "content": QUESTION },
    ]);
    let got = gateway.post("/v1/messages", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(calls_of(&server).is_empty(), "{}", got.text());
}

#[tokio::test]
async fn turns_count_in_the_rate_of_the_key() {
    let model = ScriptedProvider::start(vec![model_calls(&["wx__get_weather"])]).await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
    let limits = RateLimits { rpm: Some(3), concurrency: Some(1), ..RateLimits::default() };
    let key = key(&gateway, |record| record.limits = limits).await;
    let request = responses_request("m", &server, false);
    let got = gateway.post("/v1/responses", &request).key(&key).send().await;
    assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (429, "false"));
    assert_eq!(model.requests().len(), 3, "{}", got.text());
}

#[tokio::test]
async fn the_timeout_of_the_caller_bounds_tools() {
    let model = ScriptedProvider::start(vec![model_calls(&["wx__get_weather"])]).await;
    let gateway = gateway(&model.config("chat")).await;
    let stuck = vec![AnswerStep::Wait(std::time::Duration::from_secs(30))];
    let server = ScriptedProvider::start(vec![listing(), stuck]).await;
    let started = std::time::Instant::now();
    let request = responses_request("m", &server, false);
    let request = gateway.post("/v1/responses", &request).header("x-stainless-timeout", "2");
    let got = request.send().await;
    assert!(started.elapsed().as_secs() < 20, "{}", got.text());
    assert_eq!((got.status.as_u16(), got.header("x-should-retry")), (504, "false"));
}

#[tokio::test]
async fn a_dry_run_shows_the_first_turn() {
    let gateway = gateway("").await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    for (path, request) in [
        ("/v1/responses", responses_request("demo-chat", &server, false)),
        ("/v1/messages", messages_request("demo-chat", &server, false)),
    ] {
        let request = gateway.post(path, &request).header("x-portunus-dry-run", "true");
        let got = request.send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.json()["object"], "portunus.dry_run", "{}", got.text());
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn fields_of_servers_are_checked() {
    let gateway = gateway("").await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    for (servers, param) in [
        (json!("x"), "mcp_servers"),
        (json!([{ "type": "stdio", "name": "wx", "url": server.url }]), "mcp_servers[0].type"),
    ] {
        let mut request = messages_request("demo-chat", &server, false);
        request["mcp_servers"] = servers;
        request["tools"] = json!([]);
        let got = gateway.post("/v1/messages", &request).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(got.text().contains(&format!("`{param}`")), "{}", got.text());
    }
    let request = json!({
        "contents": [{ "role": "user", "parts": [{ "text": QUESTION }] }],
        "generationConfig": { "candidateCount": 2 },
        "tools": [{ "mcpServers": [
            { "name": "wx", "streamableHttpTransport": { "url": server.url } },
        ] }],
    });
    let path = "/v1beta/models/demo-chat:generateContent";
    let got = gateway.post(path, &request).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("generationConfig.candidateCount"), "{}", got.text());
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn an_answer_to_another_request_is_none() {
    let gateway = gateway("").await;
    let other = json!({ "jsonrpc": "2.0", "id": 999,
                        "result": { "content": [{ "type": "text", "text": "someone else's" }] } });
    let other = reply(200, "application/json", &other.to_string());
    let server = ScriptedProvider::start(vec![listing(), other]).await;
    let request = responses_request("demo-chat", &server, false);
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains("someone else's"), "{}", got.text());
}

#[tokio::test]
async fn offered_servers_check_their_envelopes() {
    let server = ScriptedProvider::start(vec![listing()]).await;
    let gateway = TestGateway::with_config(&offered(&server)).await;
    for id in [json!(null), json!({}), json!([1]), json!(true)] {
        let ask = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" });
        let got = gateway.post("/mcp", &ask).send().await;
        assert_eq!(got.status, 400, "{id}");
        let got = got.json();
        assert_eq!((&got["error"]["code"], &got["id"]), (&json!(-32600), &Value::Null), "{id}");
    }
    let call = |name: &str| {
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": { "name": name, "arguments": {} } })
    };
    let got = gateway.post("/mcp/wx", &call("")).send().await.json();
    assert_eq!(got["error"]["code"], -32602, "{got}");
    assert!(server.requests().is_empty());
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let got = gateway.post("/mcp/wx", &list).header("mcp-protocol-version", "2026-07-28");
    assert_eq!(got.send().await.status, 400, "the body has another version");
    let mut call = call("get_weather");
    call["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    for (name, is_right) in
        [("other", false), ("get_weather", true), ("=?base64?Z2V0X3dlYXRoZXI=?=", true)]
    {
        server.set_answers(vec![rpc(&json!({ "supportedVersions": ["2026-07-28"] })), sunny()]);
        let got = gateway
            .post("/mcp/wx", &call)
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", name)
            .send()
            .await;
        let got = got.json();
        assert_eq!(got["error"]["code"] == json!(-32020), !is_right, "{name}: {got}");
        assert_eq!(got["result"].is_object(), is_right, "{name}: {got}");
    }
}

#[tokio::test]
async fn a_tool_of_a_server_is_chosen() {
    let model = ScriptedProvider::start(vec![
        model_calls(&["wx__get_weather"]),
        testkit::chat_reply("done", 5, 5),
    ])
    .await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
    let mut request = responses_request("m", &server, false);
    request["tools"].as_array_mut().unwrap().push(json!({
        "type": "function", "name": "own", "strict": false,
        "parameters": { "type": "object", "properties": {} },
    }));
    request["tool_choice"] = json!({ "type": "mcp", "server_label": "wx", "name": "get_weather" });
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = model.requests()[0].json();
    assert_eq!(sent["tool_choice"]["function"]["name"], "wx__get_weather", "{sent}");
}
