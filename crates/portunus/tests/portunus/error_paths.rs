//! Errors name the caller's own field, and objects that nobody holds are not found.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, TestResponse, reply};

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";

fn error_of(got: &TestResponse) -> Value {
    got.json()["error"].clone()
}

#[tokio::test]
async fn a_field_that_a_lane_refuses_is_named_as_the_caller_wrote_it() {
    let refusal = json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT",
        "message": "Unsupported MIME type at 'contents[0].parts[1].inline_data.mime_type'",
        "details": [{ "@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations":
            [{ "field": "contents[0].parts[1].inline_data.mime_type", "description": "no" }] }] } });
    let answer = || reply(400, "application/json", &refusal.to_string());
    let provider = ScriptedProvider::start(vec![answer(), answer(), answer()]).await;
    let gateway = TestGateway::with_config(&provider.config("native")).await;

    let url = "data:image/bmp;base64,Qk0=";
    let body = json!({ "model": "m", "messages": [
        { "role": "system", "content": "Look." },
        { "role": "user", "content": [{ "type": "text", "text": "What is it?" },
            { "type": "image_url", "image_url": { "url": url } }] }] });
    let got = gateway.post(CHAT, &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(error_of(&got)["param"], "messages[1].content[1]", "{}", got.text());
    let message = "Unsupported MIME type at 'messages[1].content[1]'";
    assert_eq!(error_of(&got)["message"], message);

    let body = json!({ "model": "m", "instructions": "Look.", "input": [
        { "role": "user", "content": "What is it?" },
        { "role": "user", "content": [{ "type": "input_image", "image_url": url }] }] });
    let got = gateway.post(RESPONSES, &body).send().await;
    assert_eq!(error_of(&got)["param"], "input[1].content[0]", "{}", got.text());

    let source = json!({ "type": "base64", "media_type": "image/bmp", "data": "Qk0=" });
    let body = json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user",
        "content": [{ "type": "text", "text": "What is it?" },
                    { "type": "image", "source": source }] }] });
    let got = gateway.post("/v1/messages", &body).send().await;
    let message = error_of(&got)["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("'messages[0].content[1].source.media_type'"), "{}", got.text());
    assert!(!message.contains("contents"), "{message}");
}

#[tokio::test]
async fn a_part_that_cannot_be_written_is_named_as_the_caller_wrote_it() {
    let gateway = TestGateway::start().await;
    let audio =
        json!({ "type": "input_audio", "input_audio": { "data": "UklGRg==", "format": "wav" } });
    let body = json!({ "model": "demo-messages", "messages": [{ "role": "user",
        "content": [{ "type": "text", "text": "Listen." }, audio] }] });
    let got = gateway.post(CHAT, &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(error_of(&got)["param"], "messages[0].content[1]", "{}", got.text());
}

#[tokio::test]
async fn a_damaged_signature_is_named_in_every_format() {
    let gateway = TestGateway::start().await;
    let thinking = json!({ "type": "thinking", "thinking": "Well.", "signature": "AAAA" });
    let body = json!({ "model": "demo-messages", "max_tokens": 2000, "messages": [
        { "role": "user", "content": "Hello." },
        { "role": "assistant", "content": [thinking, { "type": "text", "text": "Hi." }] },
        { "role": "user", "content": "Go on." }] });
    let got = gateway.post("/v1/messages", &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("messages[1].content[0].signature"), "{}", got.text());
    assert!(!got.text().contains("turns"), "{}", got.text());
}

#[tokio::test]
async fn an_object_that_nobody_holds_is_not_found() {
    let gateway = TestGateway::start().await;
    let hello = json!({ "role": "user", "content": "Hello." });
    for model in ["demo-responses", "demo-chat", "demo-messages", "demo-native"] {
        for (field, value, param, message) in [
            (
                "conversation",
                json!("conv_9"),
                "conversation",
                "Conversation with id 'conv_9' not found.",
            ),
            ("prompt", json!({ "id": "pmpt_9" }), "prompt", "Prompt with id 'pmpt_9' not found."),
            (
                "input",
                json!([hello, { "type": "item_reference", "id": "msg_9" }]),
                "input[1].id",
                "Item with id 'msg_9' not found.",
            ),
        ] {
            let mut body = json!({ "model": model, "input": "Hello." });
            body[field] = value;
            let got = gateway.post(RESPONSES, &body).send().await;
            assert_eq!(got.status, 404, "{model} {field}: {}", got.text());
            assert_eq!(error_of(&got)["param"], param, "{model}: {}", got.text());
            assert_eq!(error_of(&got)["message"], message, "{model}: {}", got.text());
        }
        let body = json!({ "contents": [{ "parts": [{ "text": "Hello." }] }],
                           "cachedContent": "cachedContents/nine" });
        let path = format!("/v1beta/models/{model}:generateContent");
        let got = gateway.post(&path, &body).send().await;
        assert_eq!(got.status, 404, "{model}: {}", got.text());
        assert_eq!(error_of(&got)["status"], "NOT_FOUND", "{model}: {}", got.text());
        let details = error_of(&got)["details"].to_string();
        assert!(details.contains("\"field\":\"cachedContent\""), "{model}: {}", got.text());
    }
}

#[tokio::test]
async fn a_conversation_of_which_nothing_is_left_is_refused() {
    let gateway = TestGateway::start().await;
    let body = json!({ "model": "demo-chat", "input": [
        { "type": "reasoning", "id": "rs_1", "summary": [] }] });
    let got = gateway.post(RESPONSES, &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(error_of(&got)["param"], "input", "{}", got.text());
}

#[tokio::test]
async fn an_empty_request_is_refused_by_its_missing_field() {
    let gateway = TestGateway::start().await;
    for model in ["demo-native", "demo-chat"] {
        let path = format!("/v1beta/models/{model}:generateContent");
        let got = gateway.post(&path, &json!({})).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert_eq!(error_of(&got)["message"], "`contents` is required");
    }
    let got = gateway
        .post("/v1/messages/count_tokens", &json!({ "model": "demo-messages" }))
        .send()
        .await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(error_of(&got)["message"], "`messages` is required");
    let body = json!({ "generateContentRequest": { "model": "models/demo-native",
        "contents": [{ "role": "nobody", "parts": [{ "text": "x" }] }] } });
    let got = gateway.post("/v1beta/models/demo-native:countTokens", &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    let field = "generateContentRequest.contents[0].role";
    assert!(got.text().contains(&format!("\"field\":\"{field}\"")), "{}", got.text());
    assert_eq!(
        error_of(&got)["message"],
        format!("`{field}` must be one of `user`, `model`, `function`")
    );
}

#[tokio::test]
async fn an_item_is_counted_in_the_callers_own_input() {
    let gateway = TestGateway::start().await;
    let first = json!({ "model": "demo-responses", "input": "Hello." });
    let first = gateway.post(RESPONSES, &first).send().await;
    assert_eq!(first.status, 200, "{}", first.text());
    let body = json!({ "model": "demo-responses", "previous_response_id": first.json()["id"],
        "input": [{ "role": "user", "content": "Go on." }, { "role": "nobody", "content": "x" }] });
    let got = gateway.post(RESPONSES, &body).send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(error_of(&got)["param"], "input[1].role", "{}", got.text());
    let message = error_of(&got)["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.starts_with("`input[1].role` must be"), "{message}");
}

#[tokio::test]
async fn a_wrong_key_is_refused_in_the_words_that_clients_know() {
    let gateway = TestGateway::start().await;
    let hello =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello." }] });
    for path in [CHAT, RESPONSES] {
        let got = gateway.post(path, &hello).key("sk-wrong").send().await;
        assert_eq!(got.status, 401);
        let message = error_of(&got)["message"].as_str().unwrap_or_default().to_owned();
        assert!(message.starts_with("Incorrect API key provided"), "{message}");
        assert_eq!(error_of(&got)["code"], "invalid_api_key");
    }
    let got = gateway.post(CHAT, &hello).without_key().send().await;
    assert!(!got.text().contains("Incorrect API key"), "{}", got.text());
}
