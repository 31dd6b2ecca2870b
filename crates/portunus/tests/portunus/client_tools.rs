//! Tools that callers run, on the embedded models of every format.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, reply};

const MODELS: [&str; 4] = ["demo-chat", "demo-responses", "demo-messages", "demo-native"];

/// Sends a request that nothing is lost of.
async fn ask(gateway: &TestGateway, path: &str, body: &Value) -> Value {
    let got = gateway.post(path, body).header("x-portunus-strict", "true").send().await;
    assert_eq!(got.status, 200, "{body}: {}", got.text());
    got.json()
}

#[tokio::test]
async fn a_shell_call_of_every_model_is_an_item() {
    let gateway = TestGateway::start().await;
    let question =
        json!({ "role": "user", "content": "Use the shell tool with {\"commands\":[\"ls\"]}" });
    let tools = json!([{ "type": "shell", "environment": { "type": "local" } }]);
    for model in MODELS {
        let body = json!({ "model": model, "input": [question], "tools": tools, "tool_choice": { "type": "shell" } });
        let answer = ask(&gateway, "/v1/responses", &body).await;
        let mut items = answer["output"].as_array().cloned().unwrap_or_default();
        let call = items.iter().find(|item| item["type"] == "shell_call").cloned();
        let call = call.unwrap_or_else(|| panic!("{model}: {answer}"));
        assert_eq!(call["action"]["commands"], json!(["ls"]), "{model}");
        items.insert(0, question.clone());
        let outcome = json!({ "type": "exit", "exit_code": 0 });
        items.push(json!({ "type": "shell_call_output", "call_id": call["call_id"],
            "output": [{ "stdout": "harbour.txt", "stderr": "", "outcome": outcome }] }));
        let body = json!({ "model": model, "input": items, "tools": tools });
        let answer = ask(&gateway, "/v1/responses", &body).await;
        assert!(answer.to_string().contains("harbour.txt"), "{model}: {answer}");
    }
}

#[tokio::test]
async fn a_member_of_a_toolset_is_called_on_every_model() {
    let gateway = TestGateway::start().await;
    let content = "Use the computer_left_click tool with {\"coordinate\":[3,4]}";
    let tools = json!([{ "type": "computer_toolset_20260801" }, { "type": "bash_20250124", "name": "bash" }]);
    for model in MODELS {
        let body = json!({ "model": model, "max_tokens": 99, "tools": tools,
            "messages": [{ "role": "user", "content": content }] });
        let answer = ask(&gateway, "/v1/messages", &body).await;
        assert_eq!(answer["stop_reason"], "tool_use", "{model}: {answer}");
        let blocks = answer["content"].as_array().cloned().unwrap_or_default();
        let call = blocks.iter().find(|block| block["type"] == "tool_use").cloned();
        let call = call.unwrap_or_else(|| panic!("{model}: {answer}"));
        assert_eq!(
            (&call["name"], &call["toolset_name"]),
            (&json!("left_click"), &json!("computer"))
        );
        assert_eq!(call["input"], json!({ "coordinate": [3, 4] }), "{model}");
    }
}

/// The head of a PNG file of 1600 by 1200 pixels, in base64.
const SCREENSHOT: &str = "iVBORw0KGgoAAAANSUhEUgAABkAAAASwCAIAAAAAAAAA";

fn screen_config(format: &str, base: &str) -> String {
    format!(
        "[providers.p]\nspeaks = \"{format}\"\nbase = \"{base}\"\nauth = \"none\"\n\
         quirks = {{ {format} = {{ client_tools = [\"computer-use\"] }} }}\n\
         [models.m]\nlanes = [\"p/m\"]\nprice = {{ input = \"1\", output = \"1\" }}\n"
    )
}

/// A caller of `computer` on a provider of messages: its tool, its header, and the call that comes back.
#[tokio::test]
async fn a_computer_is_that_of_the_provider() {
    let call = json!({ "type": "tool_use", "id": "t2", "name": "computer",
        "input": { "action": "left_click", "coordinate": [800, 600] } });
    let whole = json!({ "id": "m", "type": "message", "role": "assistant", "model": "m",
        "content": [call], "stop_reason": "tool_use", "stop_sequence": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let provider =
        ScriptedProvider::start(vec![reply(200, "application/json", &whole.to_string())]).await;
    let gateway = TestGateway::with_config(&screen_config("messages", &provider.url)).await;
    let body = json!({ "contents": [
        { "role": "user", "parts": [{ "text": "Go." }] },
        { "role": "model", "parts": [{ "functionCall": { "name": "click_at", "args": { "x": 0, "y": 999 } } }] },
        { "role": "user", "parts": [{ "functionResponse": { "name": "click_at",
            "response": { "url": "https://example.com" },
            "parts": [{ "inlineData": { "mimeType": "image/png", "data": SCREENSHOT } }] } }] },
    ], "tools": [{ "computerUse": { "environment": "ENVIRONMENT_BROWSER" } }] });
    let answer = gateway.post("/v1beta/models/m:generateContent", &body).send().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-portunus-loss"), "");
    let asked = &provider.requests()[0];
    assert!(asked.head.contains("anthropic-beta: computer-use-2025-01-24"), "{}", asked.head);
    let sent = asked.json();
    assert_eq!(
        sent["tools"][0],
        json!({ "type": "computer_20250124", "name": "computer", "display_width_px": 1600,
            "display_height_px": 1200 })
    );
    let past = &sent["messages"][1]["content"][0]["input"];
    assert_eq!(*past, json!({ "action": "left_click", "coordinate": [0, 1199] }), "{sent}");
    let parts = &answer.json()["candidates"][0]["content"]["parts"];
    assert_eq!(parts[0]["functionCall"]["name"], "click_at");
    assert_eq!(parts[0]["functionCall"]["args"], json!({ "x": 500, "y": 500 }));
}

/// A chat provider that numbers the calls of every answer anew.
#[tokio::test]
async fn a_tool_loop_goes_on_where_ids_return() {
    let call = json!({ "id": "call_0", "type": "function",
        "function": { "name": "bash", "arguments": "{\"command\":\"ls\"}" } });
    let message = json!({ "role": "assistant", "content": null, "tool_calls": [call] });
    let whole = json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "x",
        "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8 } });
    let answers = vec![reply(200, "application/json", &whole.to_string())];
    let provider = ScriptedProvider::start(answers).await;
    let config = format!(
        "[providers.a]\nspeaks = \"chat\"\nbase = \"{}\"\n[models.m]\nlanes = [\"a/x\"]\n\
         price = {{ input = \"1\", output = \"2\" }}\n",
        provider.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let tools = json!([{ "type": "bash_20250124", "name": "bash" }]);
    let mut turns = vec![json!({ "role": "user", "content": "go" })];
    for _ in 0..4 {
        let body = json!({ "model": "m", "max_tokens": 60, "messages": turns, "tools": tools });
        let answer = ask(&gateway, "/v1/messages", &body).await;
        let id = &answer["content"][0]["id"];
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": "ok" });
        turns.push(json!({ "role": "assistant", "content": answer["content"] }));
        turns.push(json!({ "role": "user", "content": [result] }));
    }
    let function = json!({ "type": "function", "function": { "name": "bash" } });
    let mut messages = vec![json!({ "role": "user", "content": "go" })];
    for _ in 0..4 {
        let body = json!({ "model": "m", "messages": messages, "tools": [function] });
        let answer = ask(&gateway, "/v1/chat/completions", &body).await;
        messages.push(answer["choices"][0]["message"].clone());
        messages.push(json!({ "role": "tool", "tool_call_id": "call_0", "content": "ok" }));
    }
    // The caller's own history goes out as it is.
    let sent = provider.requests().last().unwrap().json();
    assert_eq!(sent["messages"].as_array().map(Vec::len), Some(7));
    assert_eq!(sent["messages"][6]["tool_call_id"], "call_0");
    messages.push(json!({ "role": "tool", "tool_call_id": "call_0", "content": "again" }));
    let got = gateway.post("/v1/chat/completions", &json!({ "model": "m", "messages": messages }));
    let got = got.send().await;
    assert_eq!(
        (got.status.as_u16(), got.json()["error"]["param"].clone()),
        (400, json!("messages[9].tool_call_id"))
    );
}
