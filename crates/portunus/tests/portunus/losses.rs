//! Losses of translations and of lane changes as reported to callers, and estimated usage.

use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, TestResponse, sse};

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";

async fn receipt(gateway: &TestGateway, got: &TestResponse) -> Value {
    gateway.wait_until_settled().await;
    gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await.json()
}

/// The history a client sends after a call of the weather tool by a model of another format.
async fn moved(gateway: &TestGateway, from: &str, to: &str) -> Value {
    let tools = json!([{ "name": "get_weather", "description": "The weather of a city",
        "input_schema": { "type": "object", "properties": { "city": { "type": "string" } },
                          "required": ["city"] } }]);
    let asked =
        json!({ "role": "user", "content": "Use get_weather to tell the weather in Paris." });
    let mut body = json!({ "model": from, "max_tokens": 3000, "tools": tools,
        "tool_choice": { "type": "tool", "name": "get_weather" }, "messages": [asked] });
    let first = gateway.post(MESSAGES, &body).send().await;
    assert_eq!(first.status, 200, "{}", first.text());
    let content = first.json()["content"].clone();
    let call = content.as_array().unwrap().iter().find(|b| b["type"] == "tool_use").unwrap();
    let result = json!([{ "type": "tool_result", "tool_use_id": call["id"], "content": "21" }]);
    body["model"] = json!(to);
    body.as_object_mut().unwrap().remove("tool_choice");
    body["messages"] = json!([asked, { "role": "assistant", "content": content },
        { "role": "user", "content": result }]);
    body
}

#[tokio::test]
async fn losses_from_a_change_of_lanes_are_reported() {
    let gateway = TestGateway::start().await;
    // The native model's signature is useless to the model of the caller's own format.
    let body = moved(&gateway, "demo-native", "demo-messages").await;
    let got = gateway.post(MESSAGES, &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-loss"), "part.seal");
    assert_eq!(receipt(&gateway, &got).await["losses"], json!(["part.seal"]));

    let strict = gateway.post(MESSAGES, &body).header("x-portunus-strict", "true").send().await;
    assert_eq!(strict.status, 400);
    assert!(strict.text().contains("part.seal"), "{}", strict.text());

    // Without a loss no header is sent.
    let body = moved(&gateway, "demo-messages", "demo-messages").await;
    let got = gateway.post(MESSAGES, &body).header("x-portunus-strict", "true").send().await;
    assert_eq!((got.status.as_u16(), got.header("x-portunus-loss")), (200, ""), "{}", got.text());
}

/// A messages stream whose provider leaves out the event that counts the prompt.
fn headless() -> [String; 5] {
    [
        json!({ "type": "content_block_start", "index": 0,
                "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 0,
                "delta": { "type": "text_delta", "text": "Hello there, my friend." } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" },
                "usage": { "output_tokens": 7 } }),
        json!({ "type": "message_stop" }),
    ]
    .map(|event| event.to_string())
}

fn hello() -> Value {
    json!({ "model": "m", "stream": true, "max_tokens": 100,
            "messages": [{ "role": "user", "content": "Hello, who are you?" }] })
}

#[tokio::test]
async fn a_prompt_the_provider_did_not_count_is_estimated_and_paid() {
    let events = headless();
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let provider = ScriptedProvider::start(vec![sse(&events)]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let bytes = hello().to_string().len() as u64;
    for path in [MESSAGES, CHAT] {
        let got = gateway.post(path, &hello()).send().await;
        assert_eq!((got.status.as_u16(), got.is_truncated), (200, false), "{path}: {}", got.text());
        let receipt = receipt(&gateway, &got).await;
        assert_eq!((&receipt["outcome"], &receipt["estimated"]), (&json!("done"), &json!(true)));
        let input = bytes.div_ceil(4);
        assert_eq!(receipt["tokens"]["input"], input, "{path}: {receipt}");
        assert_eq!(receipt["tokens"]["output"], 7, "{path}: {receipt}");
        // A dollar per million in, two out.
        let cost = format!("{:.9}", (input + 2 * 7) as f64 / 1e6);
        assert_eq!(receipt["cost_usd"], cost, "{path}: {receipt}");
    }
}

#[tokio::test]
async fn a_prompt_the_provider_did_not_count_is_paid_when_the_answer_breaks_off() {
    let events = headless();
    let mut steps = sse(&events[..4].iter().map(String::as_str).collect::<Vec<_>>());
    *steps.last_mut().unwrap() = AnswerStep::Close;
    let provider = ScriptedProvider::start(vec![steps]).await;
    let gateway = TestGateway::with_config(&provider.config("messages")).await;
    let got = gateway.post(MESSAGES, &hello()).send().await;
    let receipt = receipt(&gateway, &got).await;
    assert_eq!(receipt["tokens"]["output"], 7, "{receipt}");
    assert_eq!(receipt["tokens"]["input"], hello().to_string().len().div_ceil(4), "{receipt}");
    assert_eq!(receipt["estimated"], true);
}

#[tokio::test]
async fn thinking_is_asked_for_as_the_directory_says_the_lanes_model_takes_it() {
    let gateway = TestGateway::with_config(
        "[providers.p]\nspeaks = \"native\"\nbase = \"http://127.0.0.1:9\"\nauth = \"none\"\n\
         [models.budget]\nlanes = [\"p/gemini-2.5-flash\"]\nprice = { input = \"1.00\" }\n\
         [models.level]\nlanes = [\"p/gemini-pro-latest\"]\nprice = { input = \"1.00\" }\n",
    )
    .await;
    for (model, effort, said) in [
        ("budget", "max", json!({ "thinkingBudget": 24_576 })),
        ("budget", "none", json!({ "thinkingBudget": 0 })),
        ("level", "max", json!({ "thinkingLevel": "HIGH" })),
        ("level", "none", json!({ "thinkingLevel": "LOW" })),
    ] {
        let body = json!({ "model": model, "reasoning_effort": effort,
            "messages": [{ "role": "user", "content": "Hello!" }] });
        let got = gateway.post(CHAT, &body).header("x-portunus-dry-run", "true").send().await;
        let mut sent = got.json()["body"]["generationConfig"]["thinkingConfig"].clone();
        let config = sent.as_object_mut().unwrap_or_else(|| panic!("{}", got.text()));
        config.remove("includeThoughts");
        assert_eq!(sent, said, "{model} {effort}");
    }
}

/// A model that its record says does not think is not asked to, in whatever words a caller does.
#[tokio::test]
async fn a_model_that_does_not_think_gets_no_fields_of_thinking() {
    let mut config = String::new();
    for format in ["chat", "responses", "messages", "native"] {
        config += &format!(
            "[providers.{format}]\nspeaks = \"{format}\"\nbase = \"http://127.0.0.1:9\"\nauth = \"none\"\n\
             [models.to-{format}]\nlanes = [\"{format}/up\"]\nthinking = false\nprice = {{ input = \"1.00\" }}\n"
        );
    }
    let gateway = TestGateway::with_config(&config).await;
    let turn = json!([{ "role": "user", "content": "Hello!" }]);
    for (own, path, body) in [
        ("chat", CHAT, json!({ "messages": turn, "reasoning_effort": "high" })),
        (
            "responses",
            "/v1/responses",
            json!({ "input": "Hello!", "reasoning": { "effort": "high", "summary": "auto" } }),
        ),
        (
            "messages",
            MESSAGES,
            json!({ "messages": turn, "max_tokens": 9_000, "thinking": { "type": "enabled", "budget_tokens": 4_096 } }),
        ),
    ] {
        for other in ["chat", "responses", "messages", "native"] {
            if other == own {
                continue;
            }
            let mut body = body.clone();
            body["model"] = json!(format!("to-{other}"));
            let got = gateway.post(path, &body).header("x-portunus-dry-run", "true").send().await;
            assert_eq!(got.status, 200, "{own} {other}: {}", got.text());
            let sent = &got.json()["body"];
            for field in ["reasoning_effort", "reasoning", "thinking", "output_config"] {
                assert!(sent.get(field).is_none(), "{own} {other}: {sent}");
            }
            assert!(sent["generationConfig"]["thinkingConfig"].is_null(), "{own} {other}: {sent}");
        }
    }
}

/// An answer of a native model with signatures on the end of its text and on its call.
fn sealed(parts: &Value) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "index": 0,
                             "finishReason": "STOP" }],
            "usageMetadata": { "promptTokenCount": 3, "candidatesTokenCount": 4,
                               "totalTokenCount": 7 } })
}

/// The sealed parts of the last request a native provider got.
fn sealed_parts(provider: &ScriptedProvider) -> Vec<Value> {
    let asked = provider.requests().last().unwrap().json();
    let turns = asked["contents"].as_array().unwrap().clone();
    let parts = turns.iter().flat_map(|turn| turn["parts"].as_array().unwrap().clone());
    parts.filter(|part| part.get("thoughtSignature").is_some()).collect()
}

#[tokio::test]
async fn the_seal_on_the_end_of_a_text_comes_back_and_vouches_for_no_other_words() {
    let parts = json!([{ "text": "It is in Köln" },
        { "text": ", I think.", "thoughtSignature": "dGFpbDE=" },
        { "text": "", "thoughtSignature": "ZW5kMTE=" }]);
    let expected: Vec<Value> = parts.as_array().unwrap().iter().skip(1).cloned().collect();
    let whole = sealed(&parts).to_string();
    for stream in [false, true] {
        for path in [MESSAGES, CHAT] {
            let answer = || match stream {
                true => sse(&[&whole]),
                false => testkit::reply(200, "application/json", &whole),
            };
            let provider = ScriptedProvider::start(vec![answer(), answer(), answer()]).await;
            let gateway = TestGateway::with_config(&provider.config("native")).await;
            let mut body = hello();
            body["stream"] = json!(stream);
            let got = gateway.post(path, &body).send().await;
            assert_eq!((got.status.as_u16(), got.header("x-portunus-loss")), (200, ""));
            let losses = receipt(&gateway, &got).await["losses"].clone();
            assert_eq!(losses, json!([]), "{path} {stream}");
            // A client that keeps only the text.
            let said = json!([body["messages"][0],
                { "role": "assistant", "content": "It is in Köln, I think." },
                { "role": "user", "content": "Sure?" }]);
            body["messages"] = said;
            let got = gateway.post(path, &body).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
            assert_eq!(sealed_parts(&provider), expected, "{path} {stream}");
            // Changed text gets no signature.
            body["messages"][1]["content"] = json!("It is in Bonn, I think.");
            gateway.post(path, &body).send().await;
            assert_eq!(sealed_parts(&provider), Vec::<Value>::new(), "{path} {stream}");
        }
    }
}

/// A chat request with that many fields no format knows.
fn with_unknown(count: usize) -> String {
    let fields: String = (0..count).map(|n| format!(",\"unknown_{n}\":1")).collect();
    format!(
        "{{\"model\":\"demo-messages\",\"max_completion_tokens\":20,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"Hello!\"}}],\"fü, r\":1,\"{}\":1{fields}}}",
        "long".repeat(1_000)
    )
}

#[tokio::test]
async fn many_losses_are_named_up_to_a_bound_and_then_counted() {
    let gateway = TestGateway::start().await;
    let ask = || gateway.request(http::Method::POST, CHAT).body(with_unknown(40_000));
    let got = ask().send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let told: Vec<&str> = got.header("x-portunus-loss").split(", ").collect();
    assert_eq!(told.len(), 51, "{told:?}");
    assert!(told.iter().any(|name| name.ends_with("f%C3%BC%2C%20r")), "{told:?}");
    assert!(told.iter().all(|name| name.len() <= 110), "{told:?}");
    let more = *told.last().unwrap();
    assert!(more.starts_with("and 399") && more.ends_with(" more"), "{more}");

    let kept = receipt(&gateway, &got).await["losses"].clone();
    assert_eq!(kept.as_array().unwrap().len(), 51);
    assert_eq!(kept[50], more);

    let dry = ask().header("x-portunus-dry-run", "true").send().await.json();
    assert_eq!(dry["losses"].as_array().unwrap().len(), 51);
    assert_eq!(dry["losses"][50]["what"], more);

    let strict = ask().header("x-portunus-strict", "true").send().await;
    assert_eq!(strict.status, 400);
    assert!(strict.body.len() < 20_000 && strict.text().contains(more), "{}", strict.body.len());
}

#[tokio::test]
async fn losses_of_a_lane_that_failed_are_not_reported() {
    let down = ScriptedProvider::start(vec![testkit::reply(500, "text/plain", "down")]).await;
    let up = ScriptedProvider::start(vec![testkit::chat_reply("Hello!", 5, 5)]).await;
    let config = format!(
        "[providers.down]\nspeaks = \"native\"\nbase = \"{}\"\nauth = \"none\"\n\
         [providers.up]\nspeaks = \"chat\"\nbase = \"{}\"\nauth = \"none\"\n\
         [models.m]\nlanes = [\"down/up\", \"up/up\"]\n\
         price = {{ input = \"1.00\", output = \"2.00\" }}\n",
        down.url, up.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let mut body = json!({ "model": "m", "max_tokens": 20,
                           "messages": [{ "role": "user", "content": "Hello!" }] });
    let unknown = (0..300).map(|number| (format!("unknown_{number}"), json!(1)));
    body.as_object_mut().unwrap().extend(unknown);
    let got = gateway.post(MESSAGES, &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(!down.requests().is_empty());
    assert!(got.header("x-portunus-loss").ends_with(", and 250 more"), "{:?}", got.headers);
}

/// Fields that protect the users of a program are not dropped: a lane of another format refuses them.
#[tokio::test]
async fn protective_fields_are_refused_by_other_formats_and_kept_by_their_own() {
    let gateway = TestGateway::start().await;
    let turns = json!([{ "role": "user", "content": "hi" }]);
    for field in ["safeguards", "guardrails", "moderation", "safe_prompt", "safePrompt"] {
        for (path, own, body) in [
            ("/v1/messages", "demo-messages", json!({ "messages": turns, "max_tokens": 20 })),
            ("/v1/chat/completions", "demo-chat", json!({ "messages": turns })),
            ("/v1/responses", "demo-responses", json!({ "input": "hi", "store": false })),
        ] {
            for model in ["demo-messages", "demo-chat", "demo-responses", "demo-native"] {
                let mut body = body.clone();
                body["model"] = json!(model);
                body[field] = json!({ "level": "strict" });
                let got = gateway.post(path, &body).send().await;
                if model == own {
                    assert_ne!(got.header("x-portunus-loss"), field, "{path} {}", got.text());
                    continue;
                }
                assert_eq!(got.status, 400, "{path} {model}: {}", got.text());
                assert!(got.text().contains(&format!("`{field}`")), "{}", got.text());
                for nothing in [json!(null), json!(false)] {
                    body[field] = nothing;
                    let got = gateway.post(path, &body).send().await;
                    assert_eq!(got.status, 200, "{path} {model}: {}", got.text());
                }
            }
        }
    }
    let contents = json!([{ "role": "user", "parts": [{ "text": "hi" }] }]);
    for field in ["modelArmorConfig", "model_armor_config"] {
        let body = json!({ "contents": contents, field: { "promptTemplateName": "t" } });
        let got = gateway.post("/v1beta/models/demo-chat:generateContent", &body).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert!(got.text().contains(&format!("`{field}`")), "{}", got.text());
    }
}
