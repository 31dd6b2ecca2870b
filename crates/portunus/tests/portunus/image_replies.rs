//! Fields of image replies that a provider leaves out.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, reply};

use crate::images::{GENERATIONS, events, in_front_of, json_reply, plain, receipt};

/// Checks the documented fields of a reply or of the event with a finished image.
fn check_fields(body: &Value, case: &str) {
    for name in ["background", "output_format", "quality", "size"] {
        assert!(body[name].is_string(), "{case}: {name} of {body:.300}");
    }
    let usage = &body["usage"];
    for name in ["input_tokens", "output_tokens", "total_tokens"] {
        assert!(usage[name].is_u64(), "{case}: {name} of {usage}");
    }
    for details in ["input_tokens_details", "output_tokens_details"] {
        for name in ["image_tokens", "text_tokens"] {
            assert!(usage[details][name].is_u64(), "{case}: {details}.{name} of {usage}");
        }
    }
}

#[tokio::test]
async fn every_family_gives_the_documented_fields() {
    let gateway = TestGateway::start().await;
    for model in ["demo-image", "demo-image-native", "demo-image-url"] {
        for more in [json!({}), json!({ "response_format": "url" }), json!({ "stream": true })] {
            let mut ask = json!({ "model": model, "prompt": "a pier" });
            ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let got = gateway.post(GENERATIONS, &ask).send().await;
            assert_eq!(got.status, 200, "{ask}: {}", got.text());
            let body = if more["stream"] == true { events(&got).remove(0) } else { got.json() };
            check_fields(&body, &ask.to_string());
            let told = (&body["size"], &body["output_format"]);
            assert_eq!(told, (&json!("1024x1024"), &json!("png")), "{ask}");
            assert!(body["created"].is_i64() || body["created_at"].is_i64(), "{ask}");
        }
    }
}

#[tokio::test]
async fn a_property_that_was_lost_is_not_told_as_the_images() {
    let gateway = TestGateway::start().await;
    for model in ["demo-image-native", "demo-image-url"] {
        for stream in [false, true] {
            let ask = json!({ "model": model, "prompt": "a pier", "quality": "high",
                "background": "transparent", "stream": stream });
            let got = gateway.post(GENERATIONS, &ask).send().await;
            let losses = got.header("x-portunus-loss");
            assert!(losses.contains("quality") && losses.contains("background"), "{losses}");
            let body = if stream { events(&got).remove(0) } else { got.json() };
            assert_eq!(body["quality"], "auto", "{ask}");
            assert_ne!(body["background"], "transparent", "{ask}");
        }
    }
    let ask = json!({ "model": "demo-image", "prompt": "a pier", "quality": "high",
        "background": "transparent" });
    let body = gateway.post(GENERATIONS, &ask).send().await.json();
    assert_eq!((&body["quality"], &body["background"]), (&json!("high"), &json!("transparent")));
}

#[tokio::test]
async fn a_sparse_reply_of_the_gpt_family_is_completed_around_its_bytes() {
    let data = media::encode_base64(plain(8, [1, 2, 3, 255]));
    let own = format!("\"x\":[],\n\"data\":[{{\"b64_json\":\"{data}\"}}],\"usage\":null }}");
    let answer = reply(200, "application/json", &format!("{{ {own}"));
    let counted = json!({ "data": [{ "b64_json": data }], "size": "9x9",
        "usage": { "input_tokens": 4, "output_tokens": 6 } });
    let provider = ScriptedProvider::start(vec![answer, json_reply(&counted)]).await;
    let gateway = in_front_of(&provider, "gpt").await;
    let ask = json!({ "model": "m", "prompt": "a pier", "quality": "low" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    let body = got.json();
    check_fields(&body, "sparse");
    assert_eq!((&body["size"], &body["quality"]), (&json!("8x8"), &json!("low")));
    assert!(body["created"].is_i64());
    let (front, _) = own.split_once("null").unwrap();
    assert!(got.text().contains(front), "the provider's bytes are kept: {}", got.text());
    gateway.wait_until_settled().await;
    let receipt = receipt(&gateway, &got).await;
    assert_eq!(receipt["tokens"]["output"], body["usage"]["output_tokens"], "{receipt}");
    assert_eq!(receipt["estimated"], true, "{receipt}");

    let body = gateway.post(GENERATIONS, &ask).send().await.json();
    assert_eq!(body["size"], "9x9", "what the provider tells is kept");
    let usage = &body["usage"];
    assert_eq!((&usage["input_tokens"], &usage["total_tokens"]), (&json!(4), &json!(10)));
    assert_eq!(usage["output_tokens_details"]["image_tokens"], 6);
}

#[tokio::test]
async fn a_sparse_event_of_the_gpt_family_is_completed() {
    let data = media::encode_base64(plain(8, [1, 2, 3, 255]));
    let event = json!({ "type": "image_generation.completed", "b64_json": data });
    let stream = format!("event: image_generation.completed\ndata: {event}\n\n");
    let provider = ScriptedProvider::start(vec![reply(200, "text/event-stream", &stream)]).await;
    let gateway = in_front_of(&provider, "gpt").await;
    let ask = json!({ "model": "m", "prompt": "a pier", "stream": true, "quality": "low" });
    let got = gateway.post(GENERATIONS, &ask).send().await;
    let seen = events(&got);
    assert_eq!((got.status.as_u16(), seen.len()), (200, 1), "{}", got.text());
    check_fields(&seen[0], "event");
    assert_eq!((&seen[0]["size"], &seen[0]["quality"]), (&json!("8x8"), &json!("low")));
    assert!(seen[0]["created_at"].is_i64());
}
