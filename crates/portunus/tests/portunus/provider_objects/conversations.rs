//! Ids that replies hand out and callers send back.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, reply, sse};

use super::{message, response, whole_reply};
use crate::key_objects::share;
use crate::money::key;

/// A first request, the reply that hands out an id, and a request that sends it back.
fn conversations() -> Vec<(&'static str, &'static str, Value, Vec<AnswerStep>, Value)> {
    let hi = json!([{ "role": "user", "content": "Hi" }]);
    let run = json!([{ "type": "code_interpreter_call", "id": "ci_1", "status": "completed",
        "code": "1", "container_id": "cntr_1", "outputs": [] }, message()]);
    let tools = json!([{ "type": "code_interpreter", "container": { "type": "auto" } }]);
    let responses = json!({ "model": "m", "input": "Hi", "tools": tools });
    let next = json!({ "model": "m", "input": "And?",
        "tools": [{ "type": "code_interpreter", "container": "cntr_1" }] });
    let refer =
        json!({ "model": "m", "input": [{ "type": "item_reference", "id": "msg_1" }, hi[0]] });
    let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let unstored = json!({ "model": "m", "input": "Hi", "store": false });
    let again = json!({ "model": "m", "input": [thought, message(), hi[0]], "store": false });
    let completed = |output: Value| {
        let mut created = response(json!([]));
        created["status"] = json!("in_progress");
        sse(&[
            &json!({ "type": "response.created", "sequence_number": 0, "response": created }).to_string(),
            &json!({ "type": "response.completed", "sequence_number": 1, "response": response(output) })
                .to_string(),
        ])
    };
    let streamed = |body: &Value| {
        let mut body = body.clone();
        body["stream"] = json!(true);
        body
    };
    let whole = |body: Value| reply(200, "application/json", &body.to_string());
    let code = json!([{ "type": "code_execution_20250825", "name": "code_execution" }]);
    let messages = json!({ "model": "m", "max_tokens": 9, "messages": hi, "tools": code });
    let mut kept = messages.clone();
    kept["container"] = json!("container_1");
    let answer = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
        "content": [{ "type": "text", "text": "Ho" }], "stop_reason": "end_turn", "stop_sequence": null,
        "container": { "id": "container_1", "expires_at": "2030-01-01T00:00:00Z" },
        "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let mut begun = answer.clone();
    (begun["content"], begun["stop_reason"]) = (json!([]), Value::Null);
    let events = sse(&[
        &json!({ "type": "message_start", "message": begun }).to_string(),
        &json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn", "stop_sequence": null },
            "usage": { "output_tokens": 1 } })
        .to_string(),
        &json!({ "type": "message_stop" }).to_string(),
    ]);
    let spoken = json!({ "model": "m", "messages": hi, "modalities": ["text", "audio"],
        "audio": { "voice": "alloy", "format": "mp3" } });
    let mut heard = spoken.clone();
    heard["messages"] = json!([hi[0], { "role": "assistant", "content": "Ho", "audio": { "id": "audio_1" } }, hi[0]]);
    let audio = json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant",
            "content": null, "audio": { "id": "audio_1", "data": "AA==", "expires_at": 9, "transcript": "Ho" } } }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } });
    let ask = |id: Value| {
        json!({ "model": "m", "max_tokens": 9, "messages": hi,
            "diagnostics": { "previous_message_id": id } })
    };
    let compared = json!({ "model": "m", "input": "Hi",
        "prompt_cache_options": { "comparison_response_id": "resp_1" } });
    vec![
        ("messages", "/v1/messages", ask(Value::Null), whole(answer.clone()), ask(json!("msg_1"))),
        (
            "messages",
            "/v1/messages",
            streamed(&ask(Value::Null)),
            events.clone(),
            ask(json!("msg_1")),
        ),
        (
            "responses",
            "/v1/responses",
            json!({ "model": "m", "input": "Hi" }),
            whole(response(json!([message()]))),
            compared,
        ),
        (
            "responses",
            "/v1/responses",
            responses.clone(),
            whole(response(run.clone())),
            next.clone(),
        ),
        ("responses", "/v1/responses", streamed(&responses), completed(run.clone()), next),
        ("responses", "/v1/responses", responses, whole(response(run)), refer),
        (
            "responses",
            "/v1/responses",
            unstored,
            whole(response(json!([thought, message()]))),
            again,
        ),
        ("messages", "/v1/messages", messages.clone(), whole(answer), kept.clone()),
        ("messages", "/v1/messages", streamed(&messages), events, kept),
        ("chat", "/v1/chat/completions", spoken, whole(audio), heard),
    ]
}

#[tokio::test]
async fn an_id_that_a_reply_handed_out_is_its_keys_alone() {
    for (format, path, first, answer, next) in conversations() {
        let provider = ScriptedProvider::start(vec![answer]).await;
        let config = provider.config(format);
        let gateway = TestGateway::with_config(&config).await;
        let name = format!("{format} {next}");
        let got = gateway.post(path, &next).send().await;
        assert_eq!(got.status, 404, "before it is made: {name}: {}", got.text());
        let got = gateway.post(path, &first).send().await;
        assert_eq!(got.status, 200, "{name}: {}", got.text());
        let asked = provider.requests().len();
        provider.set_answers(vec![whole_reply(format)]);
        // Items are recorded in the background, like the answers they belong to.
        gateway.wait_until_settled().await;
        let second = key(&gateway, |_| ()).await;
        let got = gateway.post(path, &next).key(&second).send().await;
        assert_eq!(got.status, 404, "another key: {name}: {}", got.text());
        assert_eq!(provider.requests().len(), asked, "{name}");
        let got = gateway.post(path, &next).send().await;
        assert_eq!(got.status, 200, "the same key: {name}: {}", got.text());
        let node = gateway.start_second_node(&config).await;
        let found = async || node.post(path, &next).send().await.status == 200;
        testkit::until("the other node knows the id", found).await;
        share(&gateway).await;
        let got = gateway.post(path, &next).key(&second).send().await;
        assert_eq!(got.status, 200, "a shared account: {name}: {}", got.text());
        let sent = provider.requests().pop().unwrap().body;
        let own = next.to_string().replace("\"model\":\"m\"", "\"model\":\"up\"");
        assert_eq!(String::from_utf8(sent).unwrap(), own, "{name}");
    }
}

#[tokio::test]
async fn the_history_of_a_translated_reply_goes_on_with_a_provider_of_the_format() {
    let thinking = json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "up",
        "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant",
            "content": "Ho", "reasoning_content": "Hm" } }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } });
    let translator =
        ScriptedProvider::start(vec![reply(200, "application/json", &thinking.to_string())]).await;
    let first = TestGateway::with_config(&translator.config("chat")).await;
    let provider = ScriptedProvider::start(vec![whole_reply("responses")]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;

    let ask = json!({ "model": "m", "input": "Hi" });
    let got = first.post("/v1/responses", &ask).send().await;
    let output = got.json()["output"].as_array().unwrap().clone();
    assert_eq!(output[0]["type"], "reasoning", "{}", got.text());
    let ran = json!({ "type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1",
        "container_id": output[0]["id"].as_str().unwrap().replace("rs_", "cntr_"), "outputs": [] });
    let question = json!({ "role": "user", "content": "And?" });
    let next = json!({ "model": "m", "input": [output[0], output[1], ran, question] });
    let got = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let losses = got.header("x-portunus-loss");
    assert!(losses.contains("thought") && losses.contains("code"), "{losses}");
    let sent = provider.requests().pop().unwrap().json();
    assert_eq!(sent["input"], json!([output[1], question]));
    // The id is made up anywhere else.
    let mut shell = ran.clone();
    shell["type"] = json!("shell_call");
    let next = json!({ "model": "m", "input": [shell, question] });
    let got = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(got.status, 404, "{}", got.text());
    assert_eq!(provider.requests().len(), 1);

    let provider = ScriptedProvider::start(vec![whole_reply("messages")]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let mut ask = json!({ "model": "m", "max_tokens": 9, "messages": [question] });
    let made = first.post("/v1/messages", &ask).send().await;
    ask["diagnostics"] = json!({ "previous_message_id": made.json()["id"] });
    let got = gateway.post("/v1/messages", &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn a_stored_conversation_keeps_its_container() {
    let run = json!([{ "type": "code_interpreter_call", "id": "ci_1", "status": "completed",
        "code": "1", "container_id": "cntr_1", "outputs": [] }, message()]);
    let answer = reply(200, "application/json", &response(run).to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let tools = json!([{ "type": "code_interpreter", "container": { "type": "auto" } }]);
    let first = json!({ "model": "m", "input": "Hi", "tools": tools });
    let got = gateway.post("/v1/responses", &first).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let id = &got.json()["id"];
    let next = json!({ "model": "m", "input": "And?", "tools": tools, "previous_response_id": id });
    let got = gateway.post("/v1/responses", &next).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = provider.requests().pop().unwrap();
    assert!(String::from_utf8_lossy(&sent.body).contains("cntr_1"), "{}", sent.json());
}

#[tokio::test]
async fn an_item_of_the_same_name_in_the_body_opens_nothing() {
    let provider = ScriptedProvider::start(vec![whole_reply("responses")]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    let decoy = json!({ "type": "message", "id": "msg_9", "role": "user", "content": "Hi" });
    let body =
        json!({ "model": "m", "input": [decoy, { "type": "item_reference", "id": "msg_9" }] });
    let got = gateway.post("/v1/responses", &body).send().await;
    assert_eq!(got.status, 404, "{}", got.text());
    assert_eq!(provider.requests().len(), 0);
}

#[tokio::test]
async fn another_spelling_of_a_field_opens_no_answer_of_the_operator() {
    let provider = ScriptedProvider::start(vec![whole_reply("responses")]).await;
    let gateway = TestGateway::with_config(&provider.config("responses")).await;
    for fields in [
        r#""input":"x","store":null,"store":true,"previous_response_id":"resp_9""#,
        r#""input":"x","background":null,"background":false,"previous_response_id":"resp_9""#,
        r#""input":null,"input":"x","previous_response_id":"resp_9""#,
        r#""input":"x","previous_response_id":null,"previous_response_id":"resp_9""#,
        r#""input":"x","background":null,"background":true"#,
    ] {
        let body = format!("{{\"model\":\"m\",{fields}}}");
        let got = gateway.post("/v1/responses", &json!({})).body(body).send().await;
        assert_eq!(got.status, 400, "{fields}: {}", got.text());
        assert!(got.text().contains("is there twice"), "{fields}: {}", got.text());
    }
    assert_eq!(provider.requests().len(), 0);
}

#[tokio::test]
async fn a_url_of_the_providers_own_files_is_fetched_without_its_credential() {
    let provider = ScriptedProvider::start(vec![whole_reply("native")]).await;
    let config = provider.config("native").replace("auth = ", "fetches = \"all\"\nauth = ");
    let gateway = TestGateway::with_config(&config).await;
    let ask = |url: &str| {
        json!({ "model": "m", "messages": [{ "role": "user", "content": [
            { "type": "image_url", "image_url": { "url": url } }] }] })
    };
    for (url, fetched) in [
        ("https://generativelanguage.googleapis.com/v1beta/files/x", true),
        ("https://example.com/x.png", false),
    ] {
        let dry =
            gateway.post("/v1/chat/completions", &ask(url)).header("x-portunus-dry-run", "true");
        let got = dry.send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(got.text().contains("\"fetches\""), fetched, "{url}: {}", got.text());
    }
}
