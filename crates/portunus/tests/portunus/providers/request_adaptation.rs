//! Requests are adapted to a provider, in the same format and translated, and dropped fields are
//! reported.

use serde_json::{Value, json};
use testkit::{
    ReceivedRequest, ScriptedProvider, TestGateway, TestResponse, chat_reply, chat_stream, reply,
    sse,
};

fn config(provider: &str, base: &str, model: &str, more: &str) -> String {
    format!(
        "[providers.{provider}]\nbase = \"{base}\"\nauth = \"none\"\n{more}\n\
         [models.m]\nlanes = [\"{provider}/{model}\"]\nprice = {{ input = \"1\", output = \"1\" }}\n"
    )
}

fn line(asked: &ReceivedRequest) -> &str {
    asked.head.lines().next().unwrap()
}

async fn chat(gateway: &TestGateway, more: Value) -> TestResponse {
    let mut body = json!({ "model": "m", "messages": [
        { "role": "developer", "content": "Be brief." }, { "role": "user", "content": "Hi" } ] });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    gateway.post("/v1/chat/completions", &body).send().await
}

#[tokio::test]
async fn quirks_hold_for_the_callers_own_bytes() {
    let events = chat_stream(&["Hi"], 3, 1);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let mistral =
        ScriptedProvider::start(vec![chat_reply("Hi", 3, 1), chat_reply("Hi", 3, 1), sse(&events)])
            .await;
    let gateway = TestGateway::with_config(&config("mistral", &mistral.url, "mistral-x", "")).await;

    let more = json!({ "max_completion_tokens": 9, "store": false, "seed": 5 });
    let got = chat(&gateway, more).await;
    assert_eq!((got.status.as_u16(), got.header("x-portunus-loss")), (200, ""), "{}", got.text());
    let sent = mistral.requests()[0].json();
    assert_eq!(
        sent,
        json!({ "model": "mistral-x", "max_tokens": 9, "random_seed": 5, "messages": [
            { "role": "system", "content": "Be brief." }, { "role": "user", "content": "Hi" } ] })
    );

    let got = chat(&gateway, json!({ "store": true, "user": "ada" })).await;
    let mut lost: Vec<&str> = got.header("x-portunus-loss").split(", ").collect();
    lost.sort_unstable();
    assert_eq!((got.status.as_u16(), lost), (200, vec!["store", "user"]), "{}", got.text());
    assert!(mistral.requests()[1].json().get("store").is_none());

    let got = chat(&gateway, json!({ "stream": true })).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = mistral.requests()[2].json();
    assert!(sent.get("stream_options").is_none() && sent["stream"] == true, "{sent}");

    let body =
        json!({ "model": "m", "store": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let strict = gateway.post("/v1/chat/completions", &body).header("x-portunus-strict", "true");
    let got = strict.send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert!(got.text().contains("store"), "{}", got.text());
    assert_eq!(mistral.requests().len(), 3, "a strict caller's request does not leave");
}

#[tokio::test]
async fn quirks_hold_for_a_translation() {
    let mistral = ScriptedProvider::start(vec![chat_reply("Hi", 3, 1)]).await;
    let gateway = TestGateway::with_config(&config("mistral", &mistral.url, "mistral-x", "")).await;
    let body = json!({ "model": "m", "max_output_tokens": 20, "top_logprobs": 2, "input": [
        { "role": "developer", "content": "Be brief." }, { "role": "user", "content": "Hi" } ] });
    let got = gateway.post("/v1/responses", &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = mistral.requests()[0].json();
    assert_eq!(sent["max_tokens"], 20, "{sent}");
    assert!(
        sent.get("max_completion_tokens").is_none() && sent.get("logprobs").is_none(),
        "{sent}"
    );
    assert_eq!(sent["messages"][0]["role"], "system", "{sent}");
    let lost = got.header("x-portunus-loss");
    assert!(lost.split(", ").any(|what| what == "top_logprobs" || what == "logprobs"), "{lost}");
}

#[tokio::test]
async fn a_limit_lowered_for_a_cap_is_one_the_provider_obeys() {
    let ollama = ScriptedProvider::start(vec![chat_reply("Hi", 3, 1)]).await;
    let gateway =
        TestGateway::with_config(&config("ollama", &ollama.url, "any", "speaks = \"chat\"")).await;
    let now = gateway.app.clock.now();
    let owner = gateway.app.store.keys().await.unwrap()[0].account_id.clone();
    let cap = Some(canon::Money::from_nanos(200_000));
    let ask = testkit::NewKey { name: "c".to_owned(), cap, models: vec![], expires: None };
    let (record, key) = ask.into_record(&owner, &gateway.app.engine.keys, now).unwrap();
    gateway.app.store.add_key(&record).await.unwrap();
    gateway.app.engine.keys.refresh().await.unwrap();
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    let got = gateway.post("/v1/chat/completions", &body).key(&key).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = ollama.requests()[0].json();
    assert!(sent["max_tokens"].as_u64().is_some_and(|limit| limit <= 200), "{sent}");
    assert!(sent.get("max_completion_tokens").is_none(), "{sent}");
}

#[tokio::test]
async fn messages_on_vertex_name_the_model_in_the_path() {
    const WHOLE: &str =
        include_str!("../../../../dialects/tests/fixtures/messages/hello.reply.json");
    const STREAM: &str = include_str!("../../../../dialects/tests/fixtures/messages/hello.sse");
    let events: Vec<&str> = STREAM.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let vertex =
        ScriptedProvider::start(vec![reply(200, "application/json", WHOLE), sse(&events)]).await;
    let fill = "fill = { region = \"global\", project = \"ours\" }";
    let model = "claude-opus-4-6";
    let gateway = TestGateway::with_config(&config("vertex", &vertex.url, model, fill)).await;
    let body = r#"{ "model":"m","max_tokens":5, "messages":[{"role":"user","content":"Hi"}]}"#;
    let got = gateway.request(http::Method::POST, "/v1/messages").body(body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let body = body.replace("\"max", "\"stream\":true,\"max");
    let got = gateway.request(http::Method::POST, "/v1/messages").body(body).send().await;
    assert!(got.text().contains("message_stop"), "{}", got.text());

    let asked = vertex.requests();
    let place = "/v1/projects/ours/locations/global/publishers/anthropic/models/claude-opus-4-6";
    assert_eq!(line(&asked[0]), format!("POST {place}:rawPredict HTTP/1.1"));
    assert_eq!(line(&asked[1]), format!("POST {place}:streamRawPredict HTTP/1.1"));
    let sent = String::from_utf8(asked[0].body.clone()).unwrap();
    assert_eq!(
        sent,
        r#"{"anthropic_version":"vertex-2023-10-16", "max_tokens":5, "messages":[{"role":"user","content":"Hi"}]}"#
    );
    assert_eq!(asked[1].json()["stream"], true);
}

#[tokio::test]
async fn paths_are_the_providers_own() {
    let cases = [
        ("zai", "glm-5.3", "", "/chat/completions"),
        ("perplexity", "sonar", "", "/chat/completions"),
        (
            "vertex",
            "grok-4.6",
            "speaks = \"chat\"\nfill = { region = \"eu\", project = \"p\" }",
            "/v1/projects/p/locations/eu/endpoints/openapi/chat/completions",
        ),
        ("azure", "gpt-4.1", "", "/v1/chat/completions"),
        (
            "azure",
            "mine",
            "paths = { chat = \"/deployments/{model}/chat/completions?api-version=2024-10-21\" }",
            "/deployments/mine/chat/completions?api-version=2024-10-21",
        ),
        ("bedrock", "openai.gpt-oss-20b", "", "/v1/chat/completions"),
    ];
    for (provider, model, more, path) in cases {
        let place = ScriptedProvider::start(vec![chat_reply("Hi", 3, 1)]).await;
        let gateway = TestGateway::with_config(&config(provider, &place.url, model, more)).await;
        let got = chat(&gateway, json!({})).await;
        assert_eq!(got.status, 200, "{provider}: {}", got.text());
        assert_eq!(line(&place.requests()[0]), format!("POST {path} HTTP/1.1"), "{provider}");
    }
}

#[tokio::test]
async fn embeddings_stand_beside_the_chat_path() {
    let body = json!({ "object": "list", "model": "e", "usage": { "prompt_tokens": 1, "total_tokens": 1 },
                       "data": [{ "object": "embedding", "index": 0, "embedding": [0.5] }] });
    let place =
        ScriptedProvider::start(vec![reply(200, "application/json", &body.to_string())]).await;
    let text = config("zai", &place.url, "embedding-x", "") + "kind = \"embedding\"\n";
    let gateway = TestGateway::with_config(&text).await;
    let got = gateway.post("/v1/embeddings", &json!({ "model": "m", "input": "x" })).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(line(&place.requests()[0]), "POST /embeddings HTTP/1.1");
}

#[tokio::test]
async fn a_dry_run_shows_what_would_really_leave() {
    let gateway =
        TestGateway::with_config(&config("mistral", "http://127.0.0.1:9", "mistral-x", "")).await;
    let body = json!({ "model": "m", "store": true, "max_completion_tokens": 5,
                       "messages": [{ "role": "user", "content": "Hi" }] });
    let ask = gateway.post("/v1/chat/completions", &body).header("x-portunus-dry-run", "true");
    let told = ask.send().await.json();
    assert_eq!(told["body"]["max_tokens"], 5, "{told}");
    assert!(told["body"].get("store").is_none(), "{told}");
    assert_eq!(told["losses"][0]["what"], "store", "{told}");
}

#[tokio::test]
async fn the_third_image_family_has_a_provider_in_the_directory() {
    let config = "[providers.byteplus]\nauth = { bearer = { text = \"x\" } }\n";
    let gateway = TestGateway::with_config(config).await;
    let body = json!({ "model": "seedream-4.5", "prompt": "a pier", "size": "2K", "n": 2 });
    let dry = gateway.post("/v1/images/generations", &body).header("x-portunus-dry-run", "true");
    let told = dry.send().await.json();
    assert_eq!(told["path"], "/images/generations", "{told}");
    assert_eq!(told["body"]["model"], "seedream-4-5-251128", "{told}");
    assert_eq!(told["body"]["sequential_image_generation"], "auto", "{told}");
    assert_eq!(told["quote"]["at_most_usd"], "0.080000000", "{told}");
    let small = json!({ "model": "seedream-4.5", "prompt": "a pier", "size": "1K" });
    let got = gateway.post("/v1/images/generations", &small).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["param"]), (400, &json!("size")));
}
