//! Doors: a request that its model cannot serve is a 400 in the caller's own path, before a lane is chosen.
//! Media are never dropped unless the caller asks for that.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, chat_reply};

use crate::money::CHAT;

const LANES: [&str; 4] = ["demo-native", "demo-chat", "demo-responses", "demo-messages"];

fn generate(model: &str, is_stream: bool) -> String {
    let operation = if is_stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    format!("/v1beta/models/{model}:{operation}")
}

fn native(config: &Value) -> Value {
    json!({ "contents": [{ "parts": [{ "text": "hello" }] }], "generationConfig": config })
}

/// Checks that a request is refused at that path, and that it costs nothing.
async fn is_refused(gateway: &TestGateway, path: &str, body: &Value, at: &str) {
    for dry_run in ["false", "true"] {
        let got = gateway.post(path, body).header("x-portunus-dry-run", dry_run).send().await;
        assert_eq!(got.status, 400, "{path} {body}: {}", got.text());
        assert!(got.text().contains(at), "{path} {at}: {}", got.text());
    }
}

#[tokio::test]
async fn what_a_model_cannot_do_is_refused_at_every_lane() {
    let gateway = TestGateway::start().await;
    for model in LANES {
        for is_stream in [false, true] {
            let path = generate(model, is_stream);
            for (config, at) in [
                (
                    json!({ "imageConfig": { "aspectRatio": "1:1" } }),
                    "generationConfig.imageConfig",
                ),
                (
                    json!({ "responseModalities": ["TEXT", "IMAGE"] }),
                    "generationConfig.responseModalities[1]",
                ),
                (
                    json!({ "responseModalities": ["AUDIO"] }),
                    "generationConfig.responseModalities[0]",
                ),
                (
                    json!({ "thinkingConfig": { "thinkingBudget": 999_999_999 } }),
                    "generationConfig.thinkingConfig.thinkingBudget",
                ),
            ] {
                is_refused(&gateway, &path, &native(&config), at).await;
            }
            let fine = native(&json!({ "thinkingConfig": { "thinkingBudget": 512 } }));
            let got = gateway.post(&path, &fine).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
        }
        let body = json!({ "model": model, "modalities": ["text", "audio"],
            "messages": [{ "role": "user", "content": "hello" }] });
        is_refused(&gateway, CHAT, &body, "modalities[1]").await;
    }
    let ratio = native(&json!({ "imageConfig": { "aspectRatio": "1:4" } }));
    let at = "generationConfig.imageConfig.aspectRatio";
    is_refused(&gateway, &generate("demo-image-native", false), &ratio, at).await;
    gateway.wait_until_settled().await;
    let rows = gateway.app.store.export(None, 100).await.unwrap();
    assert_eq!(rows.len(), 2 * LANES.len(), "only the calls that were answered: {rows:?}");
}

/// A model reads what its record says: one that reads text is given no media.
#[tokio::test]
async fn media_that_a_model_does_not_read_is_refused_in_every_format() {
    let gateway = TestGateway::start().await;
    let data = media::encode_base64(crate::images::plain(8, [1, 2, 3, 255]));
    let url = format!("data:image/png;base64,{data}");
    let text = json!({ "type": "text", "text": "look" });
    let image = json!({ "type": "image_url", "image_url": { "url": url } });
    let chat = json!({ "model": "demo-echo", "messages": [
        { "role": "user", "content": "before" }, { "role": "user", "content": [text, image] }] });
    is_refused(&gateway, CHAT, &chat, "messages[1].content[1]").await;
    let responses = json!({ "model": "demo-echo", "input": [{ "role": "user", "content": [
        { "type": "input_image", "image_url": url }] }] });
    is_refused(&gateway, "/v1/responses", &responses, "input[0].content[0]").await;
    let source = json!({ "type": "base64", "media_type": "image/png", "data": data });
    let block = json!({ "type": "image", "source": source });
    let messages = json!({ "model": "demo-echo", "max_tokens": 50, "messages": [
        { "role": "user", "content": "use it" },
        { "role": "assistant", "content": [
            { "type": "tool_use", "id": "t1", "name": "look", "input": {} }] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": [text, block] }] }] });
    is_refused(&gateway, "/v1/messages", &messages, "messages[2].content[0].content[1]").await;
    let part = json!({ "inlineData": { "mimeType": "image/png", "data": data } });
    let native = json!({ "contents": [{ "parts": [{ "text": "look" }, part] }] });
    let path = generate("demo-echo", false);
    is_refused(&gateway, &path, &native, "contents[0].parts[1]").await;
}

const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

/// A lane whose format has no field for the media is skipped for one that has.
#[tokio::test]
async fn media_go_to_a_lane_that_carries_them() {
    let [deaf, hearing] = [
        ScriptedProvider::start(vec![]).await,
        ScriptedProvider::start(vec![chat_reply("heard", 9, 2)]).await,
    ];
    let body = json!({ "contents": [{ "parts": [{ "text": "listen" },
        { "inlineData": { "mimeType": "audio/wav", "data": SOUND } }] }] });
    let config = format!(
        "[providers.p]\nspeaks = \"responses\"\nbase = \"{}\"\nauth = \"none\"\n\
         [providers.q]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"p/up\", \"q/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n\
         [models.deaf]\nlanes = [\"p/up\"]\nprice = {{ input = \"1.00\", output = \"2.00\" }}\n",
        deaf.url, hearing.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let got = gateway.post(&generate("m", false), &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!((deaf.requests().len(), hearing.requests().len()), (0, 1));
    assert!(!got.header("x-portunus-loss").contains("media"), "{}", got.header("x-portunus-loss"));

    is_refused(&gateway, &generate("deaf", false), &body, "contents[0].parts[1]").await;
    assert_eq!(deaf.requests().len(), 0);
    let ask = gateway.post(&generate("deaf", false), &body).header("x-portunus-lossy", "true");
    let got = ask.header("x-portunus-dry-run", "true").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.text().contains("media.audio"), "{}", got.text());
}

/// Requests with media in every place of every format, each with the path of its call.
fn requests_with_media(model: &str, image: &str) -> Vec<(String, Value)> {
    let url = format!("data:image/png;base64,{image}");
    let chat_image = json!({ "type": "image_url", "image_url": { "url": url } });
    let sound = json!({ "data": SOUND, "format": "wav" });
    let chat = |messages: Value| (CHAT.to_owned(), json!({ "model": model, "messages": messages }));
    let user = json!({ "role": "user", "content": "go on" });
    let responses =
        |input: Value| ("/v1/responses".to_owned(), json!({ "model": model, "input": input }));
    let source = json!({ "type": "base64", "media_type": "image/png", "data": image });
    let block = json!({ "type": "image", "source": source });
    let messages = |content: Value| {
        let turns = json!([{ "role": "user", "content": content }]);
        let body = json!({ "model": model, "max_tokens": 50, "messages": turns });
        ("/v1/messages".to_owned(), body)
    };
    let part = json!({ "inlineData": { "mimeType": "IMAGE/PNG", "data": image } });
    let native = |contents: Value| (generate(model, false), json!({ "contents": contents }));
    vec![
        chat(json!([{ "role": "system", "content": [chat_image] }, user])),
        chat(
            json!([user, { "role": "assistant", "content": "see", "images": [chat_image] }, user]),
        ),
        chat(json!([user, { "role": "assistant", "content": null, "images": [chat_image] }, user])),
        chat(json!([{ "role": "user", "content": "look", "images": [image] }])),
        chat(json!([{ "role": "user", "content": [
            { "type": "input_audio", "input_audio": sound }] }])),
        responses(json!([{ "role": "developer", "content": [
            { "type": "input_image", "image_url": url }] }, user])),
        responses(json!([{ "role": "user", "content": [
            { "type": "input_audio", "input_audio": sound }] }])),
        responses(json!([{ "role": "user", "content": [
            { "type": "input_video", "video_url": format!("data:video/mp4;base64,{image}") }] }])),
        responses(json!([user,
            { "type": "computer_call", "id": "cu_1", "call_id": "c1", "status": "completed",
              "action": { "type": "screenshot" }, "pending_safety_checks": [] },
            { "type": "computer_call_output", "call_id": "c1",
              "output": { "type": "computer_screenshot", "image_url": url } }])),
        messages(json!([{ "type": "document", "source": {
            "type": "content", "content": [{ "type": "text", "text": "t" }, block] } }])),
        native(json!([{ "role": "user", "parts": [{ "text": "draw" }] },
            { "role": "model", "parts": [{ "text": "see" }, part] },
            { "role": "user", "parts": [{ "text": "again" }] }])),
    ]
}

/// An answer has seen all media, or there is none.
#[tokio::test]
async fn no_media_are_dropped_unless_the_caller_asks_for_it() {
    let gateway = TestGateway::start().await;
    let image = media::encode_base64(crate::images::plain(8, [1, 2, 3, 255]));
    let ask = async |path: &str, body: &Value, lossy: &str| {
        let ask = gateway.post(path, body).header("x-portunus-dry-run", "true");
        ask.header("x-portunus-lossy", lossy).send().await
    };
    let mut carried = 0;
    for model in LANES {
        for (path, body) in requests_with_media(model, &image) {
            let got = ask(&path, &body, "false").await;
            let holds = |text: &str| text.contains(&image) || text.contains(SOUND);
            match got.status.as_u16() {
                200 => assert!(holds(&got.text()), "{model} {body}: {}", got.text()),
                400 => assert!(!got.text().contains("\"param\":null"), "{body}: {}", got.text()),
                _ => panic!("{model} {body}: {}", got.text()),
            }
            carried += usize::from(got.status == 200);
            let lossy = ask(&path, &body, "true").await;
            if lossy.status == 200 && !holds(&lossy.text()) {
                let losses = lossy.json()["losses"].as_array().map(Vec::len);
                assert!(losses > Some(0), "{model} {body}: {}", lossy.text());
            }
        }
    }
    assert!(carried > 20, "{carried}");
    // Providers of the chat format have no images in messages of the model, and would ignore them.
    let with_images = requests_with_media("demo-chat", &image).into_iter().nth(1);
    let (path, body) = with_images.unwrap();
    let sent = ask(&path, &body, "false").await.json();
    let messages = &sent["body"]["messages"];
    assert_eq!(messages[1]["images"], Value::Null, "{sent}");
    assert_eq!(messages[2]["content"][0]["type"], "image_url", "{sent}");
}

/// Media that the record of the model does not have are left out and told, in its own format too.
#[tokio::test]
async fn a_lossy_call_leaves_out_what_the_model_does_not_read() {
    let gateway = TestGateway::start().await;
    let image = media::encode_base64(crate::images::plain(8, [1, 2, 3, 255]));
    let part = json!({ "inlineData": { "mimeType": "image/png", "data": image } });
    let body = json!({ "contents": [{ "parts": [{ "text": "look" }, part] }] });
    let ask = || {
        let ask = gateway.post(&generate("demo-echo", false), &body);
        ask.header("x-portunus-lossy", "true").header("x-portunus-dry-run", "true")
    };
    let got = ask().send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains(&image), "{}", got.text());
    assert!(got.text().contains("does not read"), "{}", got.text());
    let strict = ask().header("x-portunus-strict", "true").send().await;
    assert_eq!(strict.status, 400, "{}", strict.text());
    // A file may hold an image, and nothing else may be left.
    let data = format!("data:image/png;base64,{image}");
    let file = json!({ "type": "file", "file": { "filename": "a.png", "file_data": data } });
    let body = json!({ "model": "demo-echo", "messages": [{ "role": "user", "content": [file] }] });
    is_refused(&gateway, CHAT, &body, "messages[0].content[0]").await;
    let ask = gateway.post(CHAT, &body).header("x-portunus-lossy", "true");
    let got = ask.header("x-portunus-dry-run", "true").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!got.text().contains(&image), "{}", got.text());
    assert!(got.text().contains("(media left out)"), "{}", got.text());
}

/// Returns the status and text of a request that is judged and not sent.
async fn dry(gateway: &TestGateway, path: &str, body: &Value) -> (u16, String) {
    let got = gateway.post(path, body).header("x-portunus-dry-run", "true").send().await;
    (got.status.as_u16(), got.text())
}

/// A list of tools without `other` is complete. Without a list only a provider of the caller's format may know
/// more tools than the gateway.
#[tokio::test]
async fn tools_are_judged_by_the_record_of_the_model() {
    let gateway = TestGateway::with_config(
        "[providers.r]\nspeaks = \"responses\"\nbase = \"http://127.0.0.1:9\"\nauth = \"none\"\n\
         [providers.c]\nspeaks = \"chat\"\nbase = \"http://127.0.0.1:9\"\nauth = \"none\"\n\
         [models.same]\nlanes = [\"r/up\"]\nprice = { input = \"1.00\", output = \"2.00\" }\n\
         [models.other]\nlanes = [\"c/up\"]\nprice = { input = \"1.00\", output = \"2.00\" }\n\
         [models.both]\nlanes = [\"c/up\", \"r/up\"]\nprice = { input = \"1.00\", output = \"2.00\" }\n\
         [models.open]\nlanes = [\"r/up\"]\ntools = [\"function\", \"other\"]\n\
         price = { input = \"1.00\", output = \"2.00\" }\n\
         [models.closed]\nlanes = [\"r/up\"]\ntools = [\"function\"]\nthinking = false\n\
         structured_output = []\ninput = [\"text\"]\nparameters = { logprobs = false }\n\
         price = { input = \"1.00\", output = \"2.00\" }\n",
    )
    .await;
    let ask = |model: &str, tool: Value| json!({ "model": model, "input": "hi", "tools": [tool] });
    let path = "/v1/responses";
    for (model, kind, status) in [
        ("same", "smell", 200),
        ("other", "smell", 400),
        ("open", "smell", 200),
        ("open", "image_generation", 200),
        ("closed", "smell", 400),
        ("closed", "image_generation", 400),
        // The caller runs it, or every agent sends it.
        ("closed", "apply_patch", 200),
        ("closed", "tool_search", 200),
        ("closed", "web_search", 200),
    ] {
        let (got, text) = dry(&gateway, path, &ask(model, json!({ "type": kind }))).await;
        assert_eq!(got, status, "{model} {kind}: {text}");
        assert!(status == 200 || text.contains("tools[0].type"), "{text}");
    }
    // The lane of the caller's format is asked, and not the first one.
    let (status, text) = dry(&gateway, path, &ask("both", json!({ "type": "smell" }))).await;
    assert!(status == 200 && text.contains("\"r/up\""), "{text}");
    let schema = json!({ "model": "closed", "input": "hi", "text": { "format": {
        "type": "json_schema", "name": "x", "schema": { "type": "object" } } } });
    is_refused(&gateway, path, &schema, "text.format").await;
    let logprobs = json!({ "model": "closed", "input": "hi", "top_logprobs": 3 });
    is_refused(&gateway, path, &logprobs, "top_logprobs").await;
    // Agents ask every model to think, whatever its record says.
    let effort = json!({ "model": "closed", "input": "hi", "reasoning": { "effort": "high" } });
    assert_eq!(dry(&gateway, path, &effort).await.0, 200);
    let budget = json!({ "model": "closed", "max_tokens": 32_000,
        "thinking": { "type": "enabled", "budget_tokens": 31_999 },
        "messages": [{ "role": "user", "content": "hi" }] });
    assert_eq!(dry(&gateway, "/v1/messages", &budget).await.0, 200);
    for (config, field) in [
        (json!({ "thinkingLevel": "HIGH" }), "thinkingLevel"),
        (json!({ "thinkingBudget": 8_192 }), "thinkingBudget"),
    ] {
        let ask = native(&json!({ "thinkingConfig": config }));
        let at = format!("generationConfig.thinkingConfig.{field}");
        is_refused(&gateway, &generate("closed", false), &ask, &at).await;
    }
    for config in [
        json!({ "thinkingBudget": -1 }),
        json!({ "thinkingBudget": 0 }),
        json!({ "includeThoughts": true }),
    ] {
        let ask = native(&json!({ "thinkingConfig": config }));
        let (status, text) = dry(&gateway, &generate("closed", false), &ask).await;
        assert_eq!(status, 200, "{config}: {text}");
    }
}

/// The lists of models in each shape show the record.
#[tokio::test]
async fn lists_of_models_show_the_record() {
    let gateway = TestGateway::start().await;
    let got = gateway.get("/v1beta/models/demo-native").send().await.json();
    assert_eq!(got["temperature"], 1.0, "{got}");
    assert_eq!(got["maxTemperature"], 2.0, "{got}");
    assert_eq!((&got["topP"], &got["thinking"]), (&json!(1.0), &json!(true)), "{got}");
    assert!(got.get("topK").is_none(), "{got}");
    let ask = gateway.get("/v1/models/demo-messages").header("anthropic-version", "2023-06-01");
    let got = ask.send().await.json();
    let can = &got["capabilities"];
    assert_eq!(can["image_input"]["supported"], true, "{got}");
    assert_eq!(can["server_tools"]["web_search"]["supported"], true, "{got}");
    assert_eq!(can["effort"]["high"]["supported"], true, "{got}");
    assert_eq!(can["effort"]["max"]["supported"], false, "{got}");
    assert_eq!((&got["lifecycle"], &got["retires_at"]), (&json!("active"), &Value::Null), "{got}");
}

/// An edit without its mask would change the whole image.
#[tokio::test]
async fn a_mask_is_never_left_out_silently() {
    let gateway = TestGateway::start().await;
    let image = media::encode_base64(crate::images::plain(8, [1, 2, 3, 0]));
    let image = json!({ "image_url": format!("data:image/png;base64,{image}") });
    let body = |model: &str| json!({ "model": model, "prompt": "by night", "images": [image], "mask": image });
    let path = "/v1/images/edits";
    assert_eq!(dry(&gateway, path, &body("demo-image")).await.0, 200);
    is_refused(&gateway, path, &body("demo-image-native"), "takes no masks").await;
    let ask = gateway.post(path, &body("demo-image-native")).header("x-portunus-lossy", "true");
    let got = ask.header("x-portunus-dry-run", "true").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.json()["losses"][0]["what"], "mask", "{}", got.text());
}
