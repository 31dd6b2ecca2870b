//! MCP servers: asked by the gateway for lanes that cannot, and offered to callers at `/mcp`.

mod limits;
mod secrets;
mod turn_ends;

use serde_json::{Value, json};
use std::sync::Arc;
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, reply, sse};
use tokio::sync::Semaphore;

const QUESTION: &str = "What is the weather in Paris?";

fn rpc(result: &Value) -> Vec<AnswerStep> {
    vec![AnswerStep::RpcResult(result.clone())]
}

fn weather_tool() -> Value {
    json!({
        "name": "get_weather", "description": "Tells the weather of a city",
        "inputSchema": {
            "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"],
        },
    })
}

fn listing() -> Vec<AnswerStep> {
    rpc(&json!({ "resultType": "complete", "tools": [weather_tool()] }))
}

fn sunny() -> Vec<AnswerStep> {
    rpc(&json!({ "content": [{ "type": "text", "text": "It is sunny in Paris" }] }))
}

/// A gateway that may ask servers on this machine.
async fn gateway(more: &str) -> TestGateway {
    TestGateway::with_config(&format!("{more}\n[media]\nallow = [\"127.0.0.1\"]\n")).await
}

fn responses_request(model: &str, server: &ScriptedProvider, stream: bool) -> Value {
    json!({
        "model": model, "input": QUESTION, "stream": stream,
        "tools": [{
            "type": "mcp", "server_label": "wx", "server_url": server.url,
            "authorization": "token-1", "require_approval": "never",
        }],
    })
}

fn messages_request(model: &str, server: &ScriptedProvider, stream: bool) -> Value {
    json!({
        "model": model, "max_tokens": 500, "stream": stream,
        "messages": [{ "role": "user", "content": QUESTION }],
        "mcp_servers": [{ "type": "url", "name": "wx", "url": server.url }],
        "tools": [{ "type": "mcp_toolset", "mcp_server_name": "wx" }],
    })
}

fn types(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(|item| item["type"].as_str()).collect()
}

/// Data of the event of this type.
fn event(got: &TestResponse, kind: &str) -> Value {
    let events = got.events().into_iter().filter_map(|data| serde_json::from_str(&data).ok());
    let mut found = events.filter(|event: &Value| event["type"] == kind);
    found.next().unwrap_or_else(|| panic!("no {kind} in {}", got.text()))
}

#[tokio::test]
async fn every_model_uses_the_tools_of_a_server() {
    for model in ["demo-chat", "demo-responses", "demo-messages", "demo-native"] {
        let gateway = gateway("").await;
        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let got =
            gateway.post("/v1/responses", &responses_request(model, &server, false)).send().await;
        assert_eq!(got.status, 200, "{model}: {}", got.text());
        let answer = got.json();
        let kinds = types(&answer["output"]);
        assert!(kinds.starts_with(&["mcp_list_tools"]), "{model}: {kinds:?}");
        assert!(kinds.ends_with(&["message"]), "{model}: {kinds:?}");
        let call = answer["output"].as_array().unwrap().iter().find(|i| i["type"] == "mcp_call");
        let call = call.unwrap();
        assert_eq!(call["output"], "It is sunny in Paris", "{model}");
        assert_eq!((&call["name"], &call["status"]), (&json!("get_weather"), &json!("completed")));
        assert_eq!(answer["tools"][0]["type"], "mcp", "the request is repeated as it was");
        let asked = server.requests();
        assert_eq!(asked.len(), 2, "{model}");
        assert!(asked.iter().all(|asked| asked.head.contains("authorization: Bearer token-1")));
        assert_eq!(asked[1].json()["params"]["name"], "get_weather");
        // Every turn has its own receipt.
        let turns: Vec<_> = got.header("x-portunus-turns").split(',').collect();
        assert_eq!(turns.len(), 2, "{model}");
        gateway.wait_until_settled().await;
        for turn in turns {
            assert_eq!(gateway.get(&format!("/v1/usage/{turn}")).send().await.status, 200);
        }

        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let got =
            gateway.post("/v1/responses", &responses_request(model, &server, true)).send().await;
        let done = event(&got, "response.completed");
        assert_eq!(types(&done["response"]["output"]), kinds, "{model}: {}", got.text());
        event(&got, "response.mcp_list_tools.completed");
        event(&got, "response.mcp_call_arguments.done");
        event(&got, "response.mcp_call.completed");
        let numbers: Vec<u64> = got
            .events()
            .iter()
            .filter_map(|data| {
                serde_json::from_str::<Value>(data).ok()?["sequence_number"].as_u64()
            })
            .collect();
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{model}: {numbers:?}");
    }
}

#[tokio::test]
async fn messages_have_uses_and_results_of_servers() {
    for model in ["demo-chat", "demo-responses", "demo-messages", "demo-native"] {
        let gateway = gateway("").await;
        for stream in [false, true] {
            let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
            let request = messages_request(model, &server, stream);
            let got = gateway.post("/v1/messages", &request).send().await;
            assert_eq!(got.status, 200, "{model}: {}", got.text());
            let text = got.text();
            for word in ["mcp_tool_use", "mcp_tool_result", "mcptoolu_", "It is sunny in Paris"] {
                assert!(text.contains(word), "{model} {word}: {text}");
            }
            if stream {
                assert_eq!(text.matches("event: message_start").count(), 1, "{text}");
                assert_eq!(text.matches("event: message_stop").count(), 1, "{text}");
                assert_eq!(event(&got, "message_delta")["delta"]["stop_reason"], "end_turn");
                continue;
            }
            let answer = got.json();
            assert_eq!(answer["stop_reason"], "end_turn");
            // The answer comes back as history.
            let server = ScriptedProvider::start(vec![listing()]).await;
            let mut next = messages_request(model, &server, false);
            next["messages"] = json!([
                { "role": "user", "content": QUESTION },
                { "role": "assistant", "content": answer["content"] },
                { "role": "user", "content": "Thanks." },
            ]);
            let got = gateway.post("/v1/messages", &next).send().await;
            assert_eq!(got.status, 200, "{model}: {}", got.text());
        }
    }
}

#[tokio::test]
async fn a_call_is_approved_before_it_is_made() {
    let gateway = gateway("").await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    let mut request = responses_request("demo-chat", &server, false);
    request["tools"][0]["require_approval"] = json!("always");
    let first = gateway.post("/v1/responses", &request).send().await.json();
    let asked = first["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(asked["type"], "mcp_approval_request", "{first}");
    assert_eq!(server.requests().len(), 1, "nothing is called before");
    for (approve, calls) in [(false, 0), (true, 1)] {
        server.set_answers(vec![listing(), sunny()]);
        let before = server.requests().len();
        let mut next = request.clone();
        next["previous_response_id"] = first["id"].clone();
        next["input"] = json!([{
            "type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": approve,
        }]);
        let got = gateway.post("/v1/responses", &next).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let made: Vec<_> = server.requests().split_off(before);
        let made = made.iter().filter(|asked| asked.json()["method"] == "tools/call").count();
        assert_eq!(made, calls, "{}", got.text());
        let answer = got.json();
        assert_eq!(types(&answer["output"]).contains(&"mcp_call"), approve, "{answer}");
    }
}

fn model_calls(names: &[&str]) -> Vec<AnswerStep> {
    let calls: Vec<Value> = names
        .iter()
        .enumerate()
        .map(|(at, name)| {
            json!({ "id": format!("call_{at}"), "type": "function",
                    "function": { "name": name, "arguments": "{\"city\":\"Paris\"}" } })
        })
        .collect();
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "tool_calls",
                      "message": { "role": "assistant", "content": null, "tool_calls": calls } }],
        "usage": { "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10 },
    });
    reply(200, "application/json", &body.to_string())
}

/// A stream that calls the tool of the server with these arguments.
fn stream_calls(arguments: &str, finish: &str) -> Vec<AnswerStep> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up",
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
        .to_string()
    };
    let call = json!({ "index": 0, "id": "call_0", "type": "function",
                       "function": { "name": "wx__get_weather", "arguments": "" } });
    let piece = json!({ "index": 0, "function": { "arguments": arguments } });
    let usage = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1,
                        "model": "up", "choices": [],
                        "usage": { "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10 } });
    sse(&[
        &chunk(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), None),
        &chunk(json!({ "tool_calls": [piece] }), None),
        &chunk(json!({}), Some(finish)),
        &usage.to_string(),
        "[DONE]",
    ])
}

#[tokio::test]
async fn a_call_of_the_callers_own_tool_ends_the_answer() {
    let own = json!({ "type": "function", "name": "wx__get_weather", "strict": false,
                      "parameters": { "type": "object", "properties": {} } });
    // The caller's function has the name that the server's tool would have. `nothing` is listed nowhere.
    for (called, made) in [("wx__get_weather", 0), ("wx__nothing", 0), ("wx__get_weather_2", 1)] {
        let model = ScriptedProvider::start(vec![
            model_calls(&[called]),
            testkit::chat_reply("done", 5, 5),
        ])
        .await;
        let gateway = gateway(&model.config("chat")).await;
        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let mut request = responses_request("m", &server, false);
        request["tools"].as_array_mut().unwrap().push(own.clone());
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let answer = got.json();
        assert_eq!(server.requests().len(), 1 + made, "{called}: {answer}");
        let is_own = types(&answer["output"]).contains(&"function_call");
        assert_eq!(is_own, made == 0, "{called}: {answer}");
        assert_eq!(model.requests().len(), 1 + made, "{called}");
    }
}

#[tokio::test]
async fn calls_end_at_their_limit() {
    let model = ScriptedProvider::start(vec![model_calls(&["wx__get_weather"])]).await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
    let mut request = responses_request("m", &server, false);
    request["max_tool_calls"] = json!(3);
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(server.requests().len(), 4, "{}", got.text());
    let last = model.requests().last().unwrap().json();
    assert_eq!(last["tool_choice"], "none", "{last}");
    assert_eq!(model.requests().len(), 4, "three turns with a call, and one that must not call");
    assert_eq!(got.status, 200, "{}", got.text());
    let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
    let got = gateway.post("/v1/messages", &messages_request("m", &server, false)).send().await;
    assert_eq!(got.json()["stop_reason"], "pause_turn", "{}", got.text());
    assert_eq!(server.requests().len(), 17, "16 calls by default");
}

#[tokio::test]
async fn a_failing_tool_is_a_result() {
    let failures = [
        reply(500, "text/plain", "no"),
        reply(
            200,
            "application/json",
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":-1,"message":"x"}}"#,
        ),
        rpc(&json!({ "isError": true, "content": [{ "type": "text", "text": "broken" }] })),
        vec![AnswerStep::Close],
    ];
    for failure in failures {
        let gateway = gateway("").await;
        let server = ScriptedProvider::start(vec![listing(), failure]).await;
        let request = responses_request("demo-chat", &server, false);
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let answer = got.json();
        let call = answer["output"].as_array().unwrap().iter().find(|i| i["type"] == "mcp_call");
        let call = call.unwrap();
        assert_eq!(call["status"], "failed", "{answer}");
        assert!(call["error"]["type"].is_string(), "{answer}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_list_its_tools_is_named() {
    let many: Vec<Value> =
        (0..100_000).map(|at| json!({ "name": format!("t{at}"), "inputSchema": {} })).collect();
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                 content-length: 200000000\r\n\r\n{\"jsonrpc\":\"2.0\",\"x\":\"";
    let redirect = "HTTP/1.1 307 X\r\nlocation: http://169.254.169.254/latest/meta-data\r\n\
                    content-length: 0\r\n\r\n";
    let attacks = [
        vec![AnswerStep::Wait(std::time::Duration::from_secs(60))],
        vec![AnswerStep::Bytes(head.to_vec()), AnswerStep::Flood(vec![b'x'; 65_536])],
        vec![AnswerStep::Bytes(redirect.as_bytes().to_vec())],
        rpc(&json!({ "tools": many })),
        rpc(&json!({ "tools": [], "nextCursor": "again" })),
        sse(&["{\"method\":\"notifications/progress\"}"]),
        reply(401, "text/plain", ""),
    ];
    for (at, attack) in attacks.into_iter().enumerate() {
        let gateway = gateway("[mcp]\ntime = \"2s\"\n").await;
        let server = ScriptedProvider::start(vec![attack]).await;
        let request = responses_request("demo-chat", &server, true);
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 400, "{at}: {}", got.text());
        let error = &got.json()["error"];
        assert_eq!(error["param"], "tools[0].server_url", "{at}: {error}");
        assert_eq!(error["code"], "mcp_list_tools_failed", "{at}: {error}");
    }
}

#[tokio::test]
async fn servers_in_private_networks_are_not_asked() {
    let gateway = TestGateway::start().await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    for url in [&*server.url, "https://169.254.169.254/mcp", "https://10.0.0.1/", "file:///etc"] {
        let mut request = responses_request("demo-chat", &server, false);
        request["tools"][0]["server_url"] = json!(url);
        let got = gateway.post("/v1/responses", &request).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert_eq!(got.json()["error"]["param"], "tools[0].server_url");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn a_revoked_key_has_no_next_turn() {
    let gateway = gateway("").await;
    let (reached, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let mut slow =
        vec![AnswerStep::Reached(Arc::clone(&reached)), AnswerStep::WaitFor(Arc::clone(&go_on))];
    slow.extend(sunny());
    let server = ScriptedProvider::start(vec![listing(), slow]).await;
    let request = responses_request("demo-chat", &server, false);
    let revoke = async {
        reached.acquire().await.unwrap().forget();
        let admin = gateway.admin_key().await.to_owned();
        let id = gateway.get("/v1/key").send().await.json()["id"].as_str().unwrap().to_owned();
        let path = format!("/api/admin/keys/{id}");
        let got = gateway.request(http::Method::DELETE, &path).key(&admin).send().await;
        assert!(got.status.is_success(), "{}", got.text());
        go_on.add_permits(1);
    };
    let (got, ()) = tokio::join!(gateway.post("/v1/responses", &request).send(), revoke);
    assert_eq!(got.status, 401, "{}", got.text());
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_loop() {
    let gateway = gateway("").await;
    let reached = Arc::new(Semaphore::new(0));
    let stuck = vec![
        AnswerStep::Reached(Arc::clone(&reached)),
        AnswerStep::WaitFor(Arc::new(Semaphore::new(0))),
    ];
    let server = ScriptedProvider::start(vec![listing(), stuck]).await;
    let request = responses_request("demo-chat", &server, true);
    let open = gateway
        .post("/v1/responses", &request)
        .read_until(|bytes| bytes.windows(21).any(|part| part == b"mcp_call_arguments.do"))
        .await;
    reached.acquire().await.unwrap().forget();
    drop(open);
    gateway.wait_until_settled().await;
}

fn offered(server: &ScriptedProvider) -> String {
    format!(
        "[mcp.servers.wx]\nurl = \"{0}/mcp\"\nbearer = {{ text = \"own-token\" }}\n\
         [mcp.servers.hidden]\nurl = \"{0}/mcp\"\nteams = [\"nobody\"]\n",
        server.url
    )
}

#[tokio::test]
async fn offered_servers_are_joined_at_one_address() {
    let server = ScriptedProvider::start(vec![listing()]).await;
    let gateway = TestGateway::with_config(&offered(&server)).await;
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    let got = gateway.post("/mcp", &list).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let got = got.json();
    assert_eq!(got["id"], 7);
    assert_eq!(got["result"]["tools"].as_array().unwrap().len(), 1, "{got}");
    assert_eq!(got["result"]["tools"][0]["name"], "wx__get_weather");
    assert!(server.requests()[0].head.contains("authorization: Bearer own-token"));
    assert!(!server.requests()[0].head.contains(&gateway.key), "the caller's key stays here");
    let got = gateway.post("/mcp/wx", &list).send().await.json();
    assert_eq!(got["result"]["tools"][0]["name"], "get_weather");
    assert_eq!(gateway.post("/mcp/hidden", &list).send().await.status, 404);

    server.set_answers(vec![rpc(&json!({ "supportedVersions": ["2026-07-28"] })), sunny()]);
    let call = |name: &str| {
        json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/call",
                "params": { "name": name, "arguments": { "city": "Paris" } } })
    };
    let got = gateway.post("/mcp", &call("wx__get_weather")).send().await.json();
    assert_eq!(got["result"]["content"][0]["text"], "It is sunny in Paris", "{got}");
    for name in ["hidden__get_weather", "get_weather", "wx", ""] {
        let got = gateway.post("/mcp", &call(name)).send().await.json();
        assert_eq!(got["error"]["code"], -32602, "{name}: {got}");
    }
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(gateway.post("/mcp", &note).send().await.status, 202);
    assert_eq!(gateway.get("/mcp").send().await.status, 405);
}

#[tokio::test]
async fn a_client_without_a_key_finds_the_authorization_server() {
    let gateway = TestGateway::start().await;
    let got = gateway.post("/mcp", &json!({})).without_key().send().await;
    assert_eq!(got.status, 401);
    let challenge = got.header("www-authenticate").to_owned();
    let own = gateway.app.config().public_url.clone();
    let place = format!("{own}/.well-known/oauth-protected-resource/mcp");
    assert_eq!(challenge, format!("Bearer resource_metadata=\"{place}\""));
    let path = place.strip_prefix(&own).unwrap();
    let told = gateway.get(path).without_key().send().await.json();
    assert_eq!(told["resource"], format!("{own}/mcp"));
    assert_eq!(told["authorization_servers"][0], own);
}

#[tokio::test]
async fn an_earlier_answer_with_servers_is_history_for_every_model() {
    let gateway = gateway("").await;
    for (model, stream) in [("demo-chat", true), ("demo-responses", false), ("demo-messages", true)]
    {
        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let request = responses_request(model, &server, stream);
        let first = gateway.post("/v1/responses", &request).send().await;
        let id = match stream {
            true => event(&first, "response.completed")["response"]["id"].clone(),
            false => first.json()["id"].clone(),
        };
        for has_tools in [true, false] {
            let mut next = responses_request(model, &server, false);
            next["previous_response_id"] = id.clone();
            next["input"] = json!("Thanks.");
            if !has_tools {
                next.as_object_mut().unwrap().remove("tools");
            }
            server.set_answers(vec![listing()]);
            let before = server.requests().len();
            let got = gateway.post("/v1/responses", &next).send().await;
            assert_eq!(got.status, 200, "{model}: {}", got.text());
            assert_eq!(server.requests().len(), before + usize::from(has_tools), "{model}");
            let kinds = got.json();
            let kinds = types(&kinds["output"]);
            assert!(!kinds.contains(&"mcp_list_tools"), "the caller has the list: {kinds:?}");
        }
    }
}

#[tokio::test]
async fn native_callers_see_what_the_model_says_in_the_end() {
    for model in ["demo-chat", "demo-native"] {
        let gateway = gateway("").await;
        let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
        let transport = json!({ "url": server.url, "headers": { "authorization": "Bearer x" } });
        let request = json!({
            "contents": [{ "role": "user", "parts": [{ "text": QUESTION }] }],
            "tools": [{ "mcpServers": [{ "name": "wx", "streamableHttpTransport": transport }] }],
        });
        let path = format!("/v1beta/models/{model}:generateContent");
        let got = gateway.post(&path, &request).send().await;
        assert_eq!(got.status, 200, "{model}: {}", got.text());
        assert!(got.text().contains("sunny"), "{}", got.text());
        assert!(!got.text().contains("functionCall"), "{}", got.text());
        for (end, is_array) in [("?alt=sse", false), ("", true)] {
            server.set_answers(vec![listing(), sunny()]);
            let path = format!("/v1beta/models/{model}:streamGenerateContent{end}");
            let got = gateway.post(&path, &request).send().await;
            assert_eq!(got.text().matches("finishReason").count(), 1, "{}", got.text());
            if is_array {
                assert!(got.json().as_array().is_some_and(|all| all.len() > 2), "{}", got.text());
            }
        }
    }
}

#[tokio::test]
async fn a_server_of_an_earlier_version_gets_a_handshake() {
    let refusal = json!({ "jsonrpc": "2.0", "id": "server-error",
                          "error": { "code": -32600, "message": "Missing session ID" } });
    let hello = json!({ "jsonrpc": "2.0", "id": 2, "result": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "serverInfo": { "name": "s", "version": "1" } } })
    .to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: s-1\r\n\
         content-length: {}\r\n\r\n",
        hello.len()
    );
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": {} });
    let events = |id: u64, result: Value| {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        sse(&[&note.to_string(), &answer.to_string()])
    };
    let server = ScriptedProvider::start(vec![
        reply(400, "application/json", &refusal.to_string()),
        vec![AnswerStep::Bytes(format!("{head}{hello}").into_bytes())],
        reply(202, "text/plain", ""),
        events(3, json!({ "tools": [weather_tool()] })),
        events(4, json!({ "content": [{ "type": "text", "text": "It is sunny in Paris" }] })),
    ])
    .await;
    let gateway = gateway("").await;
    let request = responses_request("demo-chat", &server, false);
    let got = gateway.post("/v1/responses", &request).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.text().contains("It is sunny in Paris"), "{}", got.text());
    let asked = server.requests();
    let methods: Vec<_> = asked.iter().map(|asked| asked.json()["method"].clone()).collect();
    let want =
        ["tools/list", "initialize", "notifications/initialized", "tools/list", "tools/call"];
    assert_eq!(methods, want);
    for later in asked.iter().skip(2) {
        assert!(later.head.contains("mcp-session-id: s-1"), "{}", later.head);
        assert!(later.head.contains("mcp-protocol-version: 2025-06-18"), "{}", later.head);
    }
}

/// A picture of one point.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[tokio::test]
async fn images_of_results_are_shown_to_models_that_take_them() {
    let picture = rpc(&json!({ "content": [
        { "type": "text", "text": "The map" },
        { "type": "image", "mimeType": "image/png", "data": PICTURE },
        { "type": "image", "mimeType": "image/tiff", "data": PICTURE },
        { "type": "audio", "mimeType": "audio/wav", "data": PICTURE },
    ] }));
    for (input, is_shown) in [("[\"text\", \"image\"]", true), ("[\"text\"]", false)] {
        let model = ScriptedProvider::start(Vec::new()).await;
        let config =
            model.config("chat").replace("[models.m]", &format!("[models.m]\ninput = {input}"));
        let gateway = gateway(&config).await;
        let server = ScriptedProvider::start(Vec::new()).await;
        let transport = json!({ "url": server.url });
        let native = json!({
            "contents": [{ "role": "user", "parts": [{ "text": QUESTION }] }],
            "tools": [{ "mcpServers": [{ "name": "wx", "streamableHttpTransport": transport }] }],
        });
        for (path, request) in [
            ("/v1/responses", responses_request("m", &server, false)),
            ("/v1/messages", messages_request("m", &server, false)),
            ("/v1beta/models/m:generateContent", native),
        ] {
            model.set_answers(vec![
                model_calls(&["wx__get_weather"]),
                testkit::chat_reply("done", 5, 5),
            ]);
            server.set_answers(vec![listing(), picture.clone()]);
            let got = gateway.post(path, &request).send().await;
            assert_eq!(got.status, 200, "{path}: {}", got.text());
            let asked = model.requests().last().unwrap().json().to_string();
            assert_eq!(asked.matches(PICTURE).count(), usize::from(is_shown), "{path}: {asked}");
            assert!(asked.contains("The map"), "{path}: {asked}");
            let hidden = if is_shown { 2 } else { 3 };
            assert_eq!(asked.matches("not shown]").count(), hidden, "{path}: {asked}");
        }
    }
}
