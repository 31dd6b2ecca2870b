//! Ends of turns: failed streams, calls that are cut off, and words of providers.

use super::*;

/// A chunk of a chat stream.
fn chunk(delta: &Value, finish: Option<&str>) -> String {
    json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "up",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
    .to_string()
}

/// A stream that breaks off.
fn broken() -> Vec<AnswerStep> {
    let mut steps = sse(&[&chunk(&json!({ "role": "assistant", "content": "hello" }), None)]);
    steps.pop();
    steps.extend([AnswerStep::Wait(std::time::Duration::from_millis(50)), AnswerStep::Close]);
    steps
}

#[tokio::test]
async fn a_failed_native_stream_ends_as_a_plain_one() {
    let down = || reply(500, "application/json", r#"{"error":{"message":"down"}}"#);
    for (end, is_array) in [("?alt=sse", false), ("", true)] {
        for (answers, has_servers) in [
            (vec![broken()], false),
            (vec![stream_calls("{}", "tool_calls"), broken()], true),
            (vec![stream_calls("{}", "tool_calls"), down()], true),
        ] {
            let model = ScriptedProvider::start(answers).await;
            let gateway = gateway(&model.config("chat")).await;
            let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
            let mut request =
                json!({ "contents": [{ "role": "user", "parts": [{ "text": QUESTION }] }] });
            if has_servers {
                let transport = json!({ "url": server.url });
                request["tools"] = json!([{ "mcpServers": [
                    { "name": "wx", "streamableHttpTransport": transport },
                ] }]);
            }
            let path = format!("/v1beta/models/m:streamGenerateContent{end}");
            let got = gateway.post(&path, &request).read_until(|_| false).await.rest().await;
            let text = got.text();
            assert!(got.is_truncated, "{text}");
            assert_eq!(text.matches("\"error\"").count(), 1, "{text}");
            if is_array {
                let all: Value = serde_json::from_str(&format!("{text}]")).expect(&text);
                assert!(all.as_array().unwrap().last().unwrap()["error"].is_object(), "{text}");
            } else {
                assert!(text.starts_with("data: {"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn a_call_that_is_cut_off_is_closed() {
    let model = ScriptedProvider::start(vec![stream_calls("{\"city\":\"Pa", "length")]).await;
    let gateway = gateway(&model.config("chat")).await;
    let server = ScriptedProvider::start(vec![listing()]).await;
    let request = responses_request("m", &server, true);
    let got = gateway.post("/v1/responses", &request).send().await;
    let end = event(&got, "response.incomplete");
    let call = end["response"]["output"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&call["type"], &call["status"]), (&json!("mcp_call"), &json!("incomplete")));
    let count = |kind: &str| got.text().matches(&format!("event: {kind}\n")).count();
    assert_eq!(count("response.output_item.added"), count("response.output_item.done"));
    assert_eq!(server.requests().len(), 1, "nothing was called");
    // The answer goes on.
    model.set_answers(vec![testkit::chat_reply("done", 5, 5)]);
    let mut next = responses_request("m", &server, false);
    next["previous_response_id"] = end["response"]["id"].clone();
    next["input"] = json!("Go on.");
    let got = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = model.requests().last().unwrap().json();
    let arguments = sent.pointer("/messages/1/tool_calls/0/function/arguments").unwrap();
    assert_eq!(arguments, "{}", "{sent}");
    // A request for approval without its arguments is none.
    model.set_answers(vec![stream_calls("{\"city\":\"Pa", "length")]);
    let mut request = responses_request("m", &server, true);
    request["tools"][0]["require_approval"] = json!("always");
    let got = gateway.post("/v1/responses", &request).send().await;
    assert!(!got.text().contains("mcp_approval_request"), "{}", got.text());
    event(&got, "response.incomplete");
}

#[tokio::test]
async fn a_use_without_a_result_gets_one_in_the_history() {
    for format in ["chat", "messages", "native", "responses"] {
        let model = ScriptedProvider::start(vec![reply(500, "text/plain", "")]).await;
        let config = format!("{}tools = [\"function\"]\n", model.config(format));
        let gateway = gateway(&config).await;
        let server = ScriptedProvider::start(vec![listing()]).await;
        let mut request = messages_request("m", &server, false);
        let used = |id: &str| {
            json!({ "type": "mcp_tool_use", "id": id, "name": "get_weather", "server_name": "wx",
                    "input": {} })
        };
        request["messages"] = json!([
            { "role": "user", "content": QUESTION },
            { "role": "assistant", "content": [
                { "type": "text", "text": "Wait" }, used("mcptoolu_1"), used("mcptoolu_2"),
            ] },
            { "role": "user", "content": "Go on." },
        ]);
        gateway.post("/v1/messages", &request).send().await;
        let sent = model.requests()[0].json().to_string();
        assert_eq!(sent.matches("was not made").count(), 2, "{format}: {sent}");
    }
}

#[tokio::test]
async fn calls_are_made_whatever_word_ends_the_turn() {
    let message = |stop: &str| {
        let body = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
            "content": [{ "type": "tool_use", "id": "toolu_1", "name": "wx__get_weather",
                          "input": { "city": "Paris" } }],
            "stop_reason": stop, "stop_sequence": null,
            "usage": { "input_tokens": 5, "output_tokens": 5 },
        });
        reply(200, "application/json", &body.to_string())
    };
    let done = json!({
        "id": "msg_2", "type": "message", "role": "assistant", "model": "up",
        "content": [{ "type": "text", "text": "done" }], "stop_reason": "end_turn",
        "stop_sequence": null, "usage": { "input_tokens": 5, "output_tokens": 5 },
    })
    .to_string();
    for (stop, made) in [("end_turn", 1), ("tool_use", 1), ("max_tokens", 0)] {
        for path in ["/v1/messages", "/v1/responses", "/v1beta/models/m:generateContent"] {
            let answers = vec![message(stop), reply(200, "application/json", &done)];
            let model = ScriptedProvider::start(answers).await;
            let config = format!("{}tools = [\"function\"]\n", model.config("messages"));
            let gateway = gateway(&config).await;
            let server = ScriptedProvider::start(vec![listing(), sunny()]).await;
            let request = match path {
                "/v1/messages" => messages_request("m", &server, false),
                "/v1/responses" => responses_request("m", &server, false),
                _ => json!({
                    "contents": [{ "role": "user", "parts": [{ "text": QUESTION }] }],
                    "tools": [{ "mcpServers": [
                        { "name": "wx", "streamableHttpTransport": { "url": server.url } },
                    ] }],
                }),
            };
            let got = gateway.post(path, &request).send().await;
            assert_eq!(got.status, 200, "{path} {stop}: {}", got.text());
            assert_eq!(server.requests().len(), 1 + made, "{path} {stop}: {}", got.text());
        }
    }
}
