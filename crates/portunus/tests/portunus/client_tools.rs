//! Tools that callers run, on the embedded models of every format.

use serde_json::{Value, json};
use testkit::TestGateway;

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
