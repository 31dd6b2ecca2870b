//! Records of lanes: each lane is judged by the model behind it, with the values and limits that it states.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, chat_reply};

use crate::money::CHAT;

const PRICE: &str = "price = { input = \"1.00\", output = \"2.00\" }\n";
const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

fn generate(model: &str) -> String {
    format!("/v1beta/models/{model}:generateContent")
}

fn part(mime: &str, data: &str) -> Value {
    json!({ "inlineData": { "mimeType": mime, "data": data } })
}

fn contents(parts: &[Value]) -> Value {
    json!({ "contents": [{ "parts": parts }] })
}

fn image() -> String {
    media::encode_base64(crate::images::plain(8, [1, 2, 3, 255]))
}

/// Returns the status and body of a call.
async fn ask(gateway: &TestGateway, path: &str, body: &Value) -> (u16, Value) {
    let got = gateway.post(path, body).send().await;
    (got.status.as_u16(), got.json())
}

/// Checks that the request is refused at that path, in a body of the chat or responses format.
async fn is_refused(gateway: &TestGateway, path: &str, body: &Value, at: &str) {
    let (status, got) = ask(gateway, path, body).await;
    assert_eq!((status, &got["error"]["param"]), (400, &json!(at)), "{body}: {got}");
}

/// Checks that the message of a refusal begins with that path. Two formats have no field for it.
async fn is_refused_in_words(gateway: &TestGateway, path: &str, body: &Value, at: &str) {
    let (status, got) = ask(gateway, path, body).await;
    assert_eq!(status, 400, "{body}: {got}");
    let message = got["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with(&format!("`{at}` ")), "{body}: {got}");
}

async fn ledger_rows(gateway: &TestGateway) -> usize {
    gateway.wait_until_settled().await;
    gateway.app.store.export(None, 1000).await.unwrap().len()
}

/// A lane whose own record rules out what a request needs is skipped for one that can do it.
#[tokio::test]
async fn lanes_of_different_models_are_judged_by_their_own_records() {
    let own = ScriptedProvider::start(vec![chat_reply("seen", 9, 2)]).await;
    let gateway = TestGateway::with_config(&format!(
        "[providers.p]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.mixed]\nlanes = [\"demo/demo-echo\", \"demo/demo-messages\", \"demo/demo-native\"]\n{PRICE}\
         [models.blind]\nlanes = [\"demo/demo-echo\", \"demo/demo-messages\"]\n{PRICE}\
         [models.own]\nlanes = [\"demo/demo-echo\", \"p/up\"]\n{PRICE}\
         [models.written]\nlanes = [\"demo/demo-echo\", \"demo/demo-native\"]\ninput = [\"text\"]\n{PRICE}",
        own.url
    ))
    .await;
    let text = json!({ "text": "look" });
    let picture = part("image/png", &image());
    let video = part("video/mp4", "AAAA");
    let tool = json!([{ "functionDeclarations": [{ "name": "f" }] }]);
    let mut with_tool = contents(std::slice::from_ref(&text));
    with_tool["tools"] = tool;
    let cases = [
        ("mixed", contents(std::slice::from_ref(&text)), "demo/demo-echo"),
        ("mixed", contents(&[text.clone(), picture.clone()]), "demo/demo-messages"),
        ("mixed", contents(&[text.clone(), video.clone()]), "demo/demo-native"),
        ("mixed", with_tool.clone(), "demo/demo-messages"),
        ("own", contents(&[text.clone(), picture.clone()]), "p/up"),
    ];
    for (model, body, lane) in cases {
        let got = gateway.post(&generate(model), &body).send().await;
        assert_eq!(got.status, 200, "{model} {body}: {}", got.text());
        assert_eq!(got.header("x-portunus-lane"), lane, "{model} {body}");
    }
    let rows = ledger_rows(&gateway).await;
    let path = "contents[0].parts[1]";
    for (model, body) in [("blind", &video), ("written", &picture)] {
        let body = contents(&[text.clone(), body.clone()]);
        is_refused_in_words(&gateway, &generate(model), &body, path).await;
    }
    // Neither lane draws: the error is that of the first one.
    let drawing =
        json!({ "model": "mixed", "input": "hi", "tools": [{ "type": "image_generation" }] });
    let (status, got) = ask(&gateway, RESPONSES, &drawing).await;
    assert_eq!(status, 400, "{got}");
    assert!(got["error"]["message"].as_str().unwrap().contains("it uses no tools"), "{got}");
    assert_eq!(ledger_rows(&gateway).await, rows, "no refusal is a call");
    // Media that are left out are not needed, and all other needs hold.
    let mut lossy = contents(&[text.clone(), video.clone()]);
    lossy["tools"] = with_tool["tools"].clone();
    let got = gateway.post(&generate("blind"), &lossy).header("x-portunus-lossy", "true");
    let got = got.send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-lane"), "demo/demo-messages");
    assert!(
        got.header("x-portunus-loss").contains("media.video"),
        "{}",
        got.header("x-portunus-loss")
    );
    // The list of models says nothing of what its lanes do not share.
    let listed = gateway.get("/api/models").send().await.json();
    let all = listed["data"].as_array().unwrap();
    let mixed = all.iter().find(|model| model["id"] == "mixed").unwrap();
    for field in ["input", "tools", "thinking"] {
        assert!(mixed["capabilities"][field].is_null(), "{field}: {mixed}");
    }
}

/// A value outside of the stated range is refused. A parameter that the model does not take is none of it:
/// agents send some to every model.
#[tokio::test]
async fn parameters_are_judged_by_the_stated_range() {
    let gateway = TestGateway::with_config(&format!(
        "[models.m]\nlanes = [\"demo/demo-chat\"]\n{PRICE}\
         parameters = {{ temperature = {{ min = 0.1, max = 0.5 }}, top_p = {{ max = 0.5 }}, \
         top_k = {{ min = 2 }}, presence_penalty = {{ max = 1 }}, frequency_penalty = {{ min = 0 }}, \
         seed = {{ max = 9 }}, stop_sequences = {{ max = 1 }}, logprobs = {{ max = 3 }} }}\n\
         [models.none]\nlanes = [\"demo/demo-chat\"]\n{PRICE}\
         parameters = {{ temperature = false, top_k = false, seed = false, stop_sequences = false }}\n"
    ))
    .await;
    let with = |fields: &Value, more: Value| {
        let mut body = fields.clone();
        let all = body.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        body
    };
    let chat = json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    for (fields, at) in [
        (json!({ "temperature": 0.6 }), "temperature"),
        (json!({ "temperature": 0 }), "temperature"),
        (json!({ "top_p": 0.6 }), "top_p"),
        (json!({ "top_k": 1 }), "top_k"),
        (json!({ "presence_penalty": 1.1 }), "presence_penalty"),
        (json!({ "frequency_penalty": -0.1 }), "frequency_penalty"),
        (json!({ "seed": 10 }), "seed"),
        (json!({ "stop": ["a", "b"] }), "stop"),
        (json!({ "logprobs": true, "top_logprobs": 4 }), "top_logprobs"),
    ] {
        is_refused(&gateway, CHAT, &with(&chat, fields), at).await;
    }
    let responses = json!({ "model": "m", "input": "hi" });
    for (fields, at) in [
        (json!({ "temperature": 0.6 }), "temperature"),
        (json!({ "top_p": 0.6 }), "top_p"),
        (json!({ "top_logprobs": 4 }), "top_logprobs"),
    ] {
        is_refused(&gateway, RESPONSES, &with(&responses, fields), at).await;
    }
    let messages = json!({ "model": "m", "max_tokens": 50,
        "messages": [{ "role": "user", "content": "hi" }] });
    for (fields, at) in [
        (json!({ "temperature": 0.6 }), "temperature"),
        (json!({ "top_k": 1 }), "top_k"),
        (json!({ "stop_sequences": ["a", "b"] }), "stop_sequences"),
    ] {
        is_refused_in_words(&gateway, MESSAGES, &with(&messages, fields), at).await;
    }
    // A native caller may write either spelling, and both in one request.
    for (config, at) in [
        (json!({ "generationConfig": { "temperature": 0.6 } }), "generationConfig.temperature"),
        (json!({ "generationConfig": { "topK": 1 } }), "generationConfig.topK"),
        (json!({ "generation_config": { "topK": 1 } }), "generation_config.topK"),
        (
            json!({ "generationConfig": { "stop_sequences": ["a", "b"] } }),
            "generationConfig.stop_sequences",
        ),
        (
            json!({ "generation_config": { "response_logprobs": true, "logprobs": 4 } }),
            "generation_config.logprobs",
        ),
    ] {
        let body = with(&contents(&[json!({ "text": "hi" })]), config);
        is_refused_in_words(&gateway, &generate("m"), &body, at).await;
    }
    let fine = json!({ "temperature": 0.5, "top_p": 0.5, "top_k": 2, "seed": 9, "stop": "a" });
    assert_eq!(ask(&gateway, CHAT, &with(&chat, fine)).await.0, 200);
    let other = json!({ "model": "none", "temperature": 1.5, "top_k": 3, "seed": 1, "stop": "a" });
    assert_eq!(ask(&gateway, CHAT, &with(&chat, other)).await.0, 200);
}

/// Numbers and sizes of media are compared with the limits, in every format.
#[tokio::test]
async fn limits_of_media_are_judged() {
    let image = image();
    let size = media::decode_base64(&image).unwrap().len();
    let config = |name: &str, count: usize, bytes: usize| {
        format!(
            "[models.{name}]\nlanes = [\"demo/demo-chat\"]\n{PRICE}\
             media_limits = {{ image = {{ max_count = {count}, max_bytes = {bytes} }} }}\n"
        )
    };
    let gateway =
        TestGateway::with_config(&(config("few", 1, size) + &config("small", 9, size - 1))).await;
    let url = format!("data:image/png;base64,{image}");
    let requests = |model: &str, count: usize| {
        let source = json!({ "type": "base64", "media_type": "image/png", "data": image });
        let chat = json!({ "type": "image_url", "image_url": { "url": url } });
        let item = json!({ "type": "input_image", "image_url": url });
        let block = json!({ "type": "image", "source": source });
        let turn = |part: Value| json!([{ "role": "user", "content": vec![part; count] }]);
        [
            (
                CHAT.to_owned(),
                json!({ "model": model, "messages": turn(chat) }),
                "messages[0].content[0]",
            ),
            (
                RESPONSES.to_owned(),
                json!({ "model": model, "input": turn(item) }),
                "input[0].content[0]",
            ),
            (
                MESSAGES.to_owned(),
                json!({ "model": model, "max_tokens": 50, "messages": turn(block) }),
                "messages[0].content[0]",
            ),
            (
                generate(model),
                contents(&vec![part("image/png", &image); count]),
                "contents[0].parts[0]",
            ),
        ]
    };
    for (path, body, _) in requests("few", 1) {
        let (status, got) = ask(&gateway, &path, &body).await;
        assert_eq!(status, 200, "{path}: {got}");
    }
    for (path, body, at) in requests("few", 2).into_iter().chain(requests("small", 1)) {
        is_refused_in_words(&gateway, &path, &body, at).await;
    }
}

/// Native callers say exactly how a model is to think.
#[tokio::test]
async fn options_of_thinking_are_judged_for_native_callers() {
    let gateway = TestGateway::with_config(&format!(
        "[models.m]\nlanes = [\"demo/demo-native\"]\n{PRICE}\
         thinking = {{ min = 100, max = 2000, levels = [\"low\", \"high\"] }}\n"
    ))
    .await;
    let body = |config: Value| {
        let mut body = contents(&[json!({ "text": "hi" })]);
        body["generationConfig"] = json!({ "thinkingConfig": config });
        body
    };
    let at = |name: &str| format!("generationConfig.thinkingConfig.{name}");
    for (config, name) in [
        (json!({ "thinkingBudget": 0 }), "thinkingBudget"),
        (json!({ "thinkingBudget": -1 }), "thinkingBudget"),
        (json!({ "thinkingBudget": 99 }), "thinkingBudget"),
        (json!({ "thinking_budget": 99 }), "thinking_budget"),
        (json!({ "thinkingLevel": "MEDIUM" }), "thinkingLevel"),
        (json!({ "thinking_level": "minimal" }), "thinking_level"),
    ] {
        is_refused_in_words(&gateway, &generate("m"), &body(config), &at(name)).await;
    }
    for config in [
        json!({ "thinkingBudget": 100 }),
        json!({ "thinkingLevel": "HIGH" }),
        json!({ "thinkingLevel": "THINKING_LEVEL_UNSPECIFIED" }),
        json!({ "includeThoughts": true }),
    ] {
        let (status, got) = ask(&gateway, &generate("m"), &body(config)).await;
        assert_eq!(status, 200, "{got}");
    }
}

/// Thinking becomes the nearest that the model does if no lane has the native format.
#[tokio::test]
async fn thinking_of_native_callers_is_lowered_for_other_formats() {
    let gateway = TestGateway::with_config(&format!(
        "[models.m]\nlanes = [\"demo/demo-messages\"]\n{PRICE}\
         thinking = {{ min = 1024, max = 2000, levels = [\"low\", \"high\"] }}\n\
         [models.two]\nlanes = [\"demo/demo-native\", \"demo/demo-messages\"]\n{PRICE}\
         thinking = {{ min = 1024, max = 2000, levels = [\"low\", \"high\"] }}\n\
         [models.none]\nlanes = [\"demo/demo-chat\"]\n{PRICE}thinking = false\n"
    ))
    .await;
    let body = |config: &Value| {
        let mut body = contents(&[json!({ "text": "hi" })]);
        body["generationConfig"] = json!({ "thinkingConfig": config });
        body
    };
    for config in [
        json!({ "thinkingBudget": 0 }),
        json!({ "thinkingBudget": -1 }),
        json!({ "thinkingBudget": 512 }),
        json!({ "thinkingLevel": "MEDIUM" }),
        json!({ "thinkingLevel": "MINIMAL" }),
    ] {
        let (status, got) = ask(&gateway, &generate("m"), &body(&config)).await;
        assert_eq!(status, 200, "{config}: {got}");
        // A model that does not think is not asked to.
        let asks = config["thinkingBudget"].as_i64().is_none_or(|tokens| tokens > 0);
        let (status, got) = ask(&gateway, &generate("none"), &body(&config)).await;
        assert_eq!(status, if asks { 400 } else { 200 }, "{config}: {got}");
        // A lane of the caller's format takes its words, so that only the lowest one moves on.
        let got = gateway.post(&generate("two"), &body(&config)).send().await;
        match config["thinkingLevel"] == "MINIMAL" {
            true => assert_eq!(got.header("x-portunus-lane"), "demo/demo-messages"),
            false => assert_eq!(got.status, 400, "{config}: {}", got.text()),
        }
    }
    let absurd = body(&json!({ "thinkingBudget": 999_999_999 }));
    let at = "generationConfig.thinkingConfig.thinkingBudget";
    is_refused_in_words(&gateway, &generate("m"), &absurd, at).await;
}

/// A refusal that is known without a provider is no call: the ledger has no entry of it.
#[tokio::test]
async fn refusals_before_a_lane_is_asked_are_not_in_the_ledger() {
    let gateway = TestGateway::start().await;
    let image = image();
    let blob = json!({ "content": { "parts": [{ "text": "a" }, part("image/png", &image)] } });
    let path = "/v1beta/models/demo-embed:embedContent";
    is_refused_in_words(&gateway, path, &blob, "content.parts[1]").await;
    // Embeddings leave nothing out.
    let got = gateway.post(path, &blob).header("x-portunus-lossy", "true").send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    let batch = json!({ "requests": [{ "model": "models/demo-embed", "content": { "parts": [
        { "inline_data": { "mime_type": "image/png", "data": image } }] } }] });
    let path = "/v1beta/models/demo-embed:batchEmbedContents";
    is_refused_in_words(&gateway, path, &batch, "requests[0].content.parts[0]").await;
    let got = gateway.post(path, &batch).header("x-portunus-lossy", "true").send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    let user = json!({ "role": "user", "content": "go on" });
    let video = json!({ "model": "demo-chat", "input": [{ "role": "user", "content": [
        { "type": "input_video", "video_url": format!("data:video/mp4;base64,{image}") }] }] });
    assert_eq!(ask(&gateway, RESPONSES, &video).await.0, 400);
    let document = json!({ "model": "demo-chat", "max_tokens": 50, "messages": [
        { "role": "user", "content": [{ "type": "document", "source": { "type": "content", "content": [
            { "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": image } }
        ] } }] }] });
    assert_eq!(ask(&gateway, MESSAGES, &document).await.0, 400);
    let strict = json!({ "model": "demo-messages", "messages": [user], "seed": 5 });
    let got = gateway.post(CHAT, &strict).header("x-portunus-strict", "true").send().await;
    assert_eq!(got.status, 400, "{}", got.text());
    assert_eq!(ledger_rows(&gateway).await, 0);
    let fine = json!({ "model": "demo-messages", "messages": [user] });
    let got = gateway.post(CHAT, &fine).header("x-portunus-strict", "true").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(ledger_rows(&gateway).await, 1);
}

/// Images in items that only one format has, inside documents and in earlier turns are images too.
#[tokio::test]
async fn images_are_found_wherever_they_stand() {
    let gateway = TestGateway::start().await;
    let image = image();
    let user = json!({ "role": "user", "content": "go on" });
    let drawn = json!({ "model": "demo-echo", "input": [user,
        { "type": "image_generation_call", "id": "ig_1", "status": "completed", "result": image }, user] });
    is_refused(&gateway, RESPONSES, &drawn, "input[1].result").await;
    let url = format!("data:image/png;base64,{image}");
    let screenshot = json!({ "model": "demo-echo", "input": [user,
        { "type": "computer_call_output", "call_id": "c1",
          "output": { "type": "computer_screenshot", "image_url": url } }] });
    is_refused(&gateway, RESPONSES, &screenshot, "input[1].output").await;
    let block = json!({ "type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": image } });
    let document = json!({ "model": "demo-echo", "max_tokens": 50, "messages": [{ "role": "user",
        "content": [{ "type": "document", "source": { "type": "content", "content": [
            { "type": "text", "text": "t" }, block] } }] }] });
    let at = "messages[0].content[0].source.content[1]";
    is_refused_in_words(&gateway, MESSAGES, &document, at).await;

    let result = json!({ "type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": false,
        "content": [{ "type": "text", "text": "t" }, block] });
    let fetched = json!({ "model": "demo-echo", "max_tokens": 50, "messages": [
        { "role": "user", "content": "look" },
        { "role": "assistant", "content": [{ "type": "mcp_tool_use", "id": "mcptoolu_1",
          "name": "f", "server_name": "s", "input": {} }, result] },
        { "role": "user", "content": "again" }] });
    let at = "messages[1].content[1].content[1]";
    is_refused_in_words(&gateway, MESSAGES, &fetched, at).await;

    let earlier = json!({ "model": "demo-chat", "input": [{ "role": "user", "content": [
        { "type": "input_text", "text": "look" }, { "type": "input_image", "image_url": url }] }] });
    let (status, got) = ask(&gateway, RESPONSES, &earlier).await;
    assert_eq!(status, 200, "{got}");
    let next = json!({ "model": "demo-echo", "input": "again", "previous_response_id": got["id"] });
    is_refused(&gateway, RESPONSES, &next, "previous_response_id").await;

    let create = json!({ "model": "demo-messages", "max_tokens": 50, "thread": { "type": "create" },
        "messages": [{ "role": "user", "content": [block] }] });
    let (status, got) = ask(&gateway, MESSAGES, &create).await;
    assert_eq!(status, 200, "{got}");
    let thread = json!({ "type": "continue", "previous_message_id": got["id"] });
    let next = json!({ "model": "demo-echo", "max_tokens": 50, "thread": thread,
        "messages": [{ "role": "user", "content": "again" }] });
    is_refused_in_words(&gateway, MESSAGES, &next, "thread.previous_message_id").await;
    let next = json!({ "model": "demo-echo", "max_tokens": 50, "messages": [
        { "role": "user", "content": "a" }, { "role": "user", "content": [block] }] });
    is_refused_in_words(&gateway, MESSAGES, &next, "messages[1].content[0]").await;
}

/// An image model is judged by the lane that draws, like every other.
#[tokio::test]
async fn image_lanes_are_judged_by_their_own_records() {
    let gateway = TestGateway::with_config(&format!(
        "[models.draw]\nkind = \"image\"\nlanes = [\"demo/demo-image\", \"demo/demo-image-native\"]\n{PRICE}"
    ))
    .await;
    let path = "/v1/images/generations";
    for (fields, lane) in [
        (json!({}), "demo/demo-image"),
        (json!({ "quality": "low" }), "demo/demo-image"),
        (json!({ "size": "2K" }), "demo/demo-image-native"),
        (json!({ "aspect_ratio": "16:9" }), "demo/demo-image-native"),
    ] {
        let mut body = json!({ "model": "draw", "prompt": "a cat" });
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let got = gateway.post(path, &body).send().await;
        assert_eq!(got.status, 200, "{body}: {}", got.text());
        assert_eq!(got.header("x-portunus-lane"), lane, "{body}");
    }
    let wrong = json!({ "model": "draw", "prompt": "a cat", "size": "9x9" });
    is_refused(&gateway, path, &wrong, "size").await;
    let ratio = json!({ "model": "demo-image", "prompt": "a cat", "aspect_ratio": "16:9" });
    is_refused(&gateway, path, &ratio, "aspect_ratio").await;
}
