//! Counts of images: missing, zero, and one by one in a stream.

use ledger::LedgerEntry;
use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, reply, sse};

use crate::images::{GENERATIONS, plain};
use crate::money::row;

async fn ask(answer: Vec<AnswerStep>, body: &Value) -> LedgerEntry {
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = provider.config("images") + "kind = \"image\"\n";
    let gateway = TestGateway::with_config(&config).await;
    let got = gateway.post(GENERATIONS, body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    row(&gateway).await
}

fn data() -> String {
    media::encode_base64(plain(8, [1, 2, 3, 255]))
}

/// Images that cost tokens have some, whatever the provider tells.
#[tokio::test]
async fn counts_of_zero_are_missing_counts() {
    let body = json!({ "model": "m", "prompt": "x", "n": 2, "size": "1024x1024" });
    let mut found = Vec::new();
    for usage in [json!(null), json!({ "input_tokens": 9, "output_tokens": 0, "total_tokens": 9 })]
    {
        let image = json!({ "b64_json": data() });
        let answer = json!({ "created": 1, "data": [image, image], "usage": usage });
        let row = ask(reply(200, "application/json", &answer.to_string()), &body).await;
        assert!(row.estimated && row.usage.images == 2 && row.usage.output > 0, "{row:?}");
        found.push(row.usage.output_image);
    }
    assert_eq!(found[0], found[1]);
}

/// Each event of a stream has the counts of its image. One with those of all comes alone.
#[tokio::test]
async fn counts_of_streamed_images_are_summed() {
    let body = json!({ "model": "m", "prompt": "x", "n": 3, "stream": true });
    for (told, output, is_estimated) in
        [([Some(472); 3], 1_416, false), ([None, None, Some(90_000)], 90_000, true)]
    {
        let events = told.map(|output: Option<u64>| {
            let usage = output.map(|output| {
                json!({ "input_tokens": 10, "output_tokens": output, "total_tokens": output + 10 })
            });
            let mut event = json!({ "type": "image_generation.completed", "b64_json": data() });
            if let Some(usage) = usage {
                event["usage"] = usage;
            }
            event.to_string()
        });
        let row = ask(sse(&events.each_ref().map(String::as_str)), &body).await;
        assert_eq!((row.usage.output, row.usage.images), (output, 3), "{row:?}");
        assert_eq!(row.estimated, is_estimated, "{row:?}");
    }
}
