//! `/v1/embeddings`, `:embedContent` and `:batchEmbedContents`.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway, TestResponse, reply};

const LIST: &str = "/v1/embeddings";
const ONE: &str = "/v1beta/models/m:embedContent";
const BATCH: &str = "/v1beta/models/m:batchEmbedContents";

fn content(text: &str) -> Value {
    json!({ "content": { "parts": [{ "text": text }] } })
}

/// The numbers of a list; none of anything else.
fn floats(value: &Value) -> Vec<f32> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_f64).map(|number| number as f32).collect()
}

/// Base64 as clients undo it, written out here so that nothing of ours vouches for itself.
fn unpacked(value: &Value) -> Vec<f32> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut bytes) = (0, 0, Vec::new());
    let text = value.as_str().unwrap_or_default().trim_end_matches('=');
    for digit in text.chars().filter_map(|letter| LETTERS.find(letter)) {
        bits = (bits << 6) | digit;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    let (fours, rest) = bytes.as_chunks::<4>();
    assert!(rest.is_empty(), "a vector ends in the middle of a number");
    fours.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

/// A gateway whose embedding model `m` is `up` at the provider.
async fn in_front_of(provider: &ScriptedProvider, speaks: &str) -> TestGateway {
    TestGateway::with_config(&format!("{}kind = \"embedding\"\n", provider.config(speaks))).await
}

async fn answering(speaks: &str, body: &str) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(vec![reply(200, "application/json", body)]).await;
    let gateway = in_front_of(&provider, speaks).await;
    (provider, gateway)
}

async fn receipt(gateway: &TestGateway, got: &TestResponse) -> Value {
    gateway.get(&format!("/v1/usage/{}", got.header("x-request-id"))).send().await.json()
}

#[tokio::test]
async fn a_demo_model_gives_the_same_vectors_in_every_shape() {
    let gateway = TestGateway::start().await;
    let ask = |encoding: &str| {
        json!({ "model": "demo-embed", "input": ["a red harbour", "quantum flux"],
                "dimensions": 8, "encoding_format": encoding })
    };
    let got = gateway.post(LIST, &ask("float")).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let plain = got.json();
    assert_eq!((&plain["object"], &plain["model"]), (&json!("list"), &json!("demo-embed")));
    assert_eq!(
        (&plain["data"][1]["index"], &plain["data"][1]["object"]),
        (&json!(1), &json!("embedding"))
    );
    assert_eq!(plain["usage"]["prompt_tokens"], plain["usage"]["total_tokens"]);
    let expected: Vec<Vec<f32>> =
        (0..2).map(|at| floats(&plain["data"][at]["embedding"])).collect();
    assert_eq!(expected[0].len(), 8);
    assert_ne!(expected[0], expected[1]);

    let packed = gateway.post(LIST, &ask("base64")).send().await.json();
    for (at, vector) in expected.iter().enumerate() {
        assert_eq!(&unpacked(&packed["data"][at]["embedding"]), vector);
    }

    let mut one = content("a red harbour");
    one["outputDimensionality"] = json!(8);
    one["taskType"] = json!("RETRIEVAL_DOCUMENT");
    let mut two = content("quantum flux");
    two["model"] = json!("models/demo-embed");
    two["output_dimensionality"] = json!("8");
    for front in ["/v1beta", "/v1"] {
        let path = format!("{front}/models/demo-embed:embedContent");
        let got = gateway.post(&path, &one).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        assert_eq!(floats(&got.json()["embedding"]["values"]), expected[0]);
        let path = format!("{front}/models/demo-embed:batchEmbedContents");
        let got = gateway.post(&path, &json!({ "requests": [one, two] })).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let all = got.json();
        for (at, vector) in expected.iter().enumerate() {
            assert_eq!(&floats(&all["embeddings"][at]["values"]), vector);
        }
    }
}

#[tokio::test]
async fn the_call_is_on_the_books_with_its_exact_cost() {
    let gateway = TestGateway::start().await;
    let ask = json!({ "model": "demo-embed", "input": "one two three four five" });
    let got = gateway.post(LIST, &ask).send().await;
    let tokens = got.json()["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(tokens > 0);
    let receipt = receipt(&gateway, &got).await;
    assert_eq!(
        receipt["tokens"],
        json!({ "input": tokens, "cached_input": 0, "cache_write": 0,
        "cache_write_long": 0, "output": 0, "thinking": 0, "input_audio": 0, "input_image": 0, "output_audio": 0,
        "output_image": 0, "total": tokens })
    );
    assert_eq!(
        (&receipt["lane"], &receipt["dialect"]),
        (&json!("demo/demo-embed"), &json!("chat"))
    );
    assert_eq!((&receipt["outcome"], &receipt["estimated"]), (&json!("done"), &json!(false)));
    // Two cents a million tokens are twenty nanodollars each.
    let cost = format!("0.{:09}", tokens * 20);
    assert_eq!(
        (&receipt["cost_usd"], got.header("x-portunus-cost")),
        (&json!(cost), cost.as_str())
    );
    gateway.wait_until_settled().await;
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!((&key["spent_usd"], &key["held_usd"]), (&json!(cost), &json!("0.000000000")));
}

#[tokio::test]
async fn bytes_of_the_same_shape_go_through_unchanged() {
    let list = r#"{ "model" : "m",  "input":["é \u00e9"],"odd":{"b":1,"a":2}}"#;
    let listed = r#"{"data":[{"embedding":[0.10,1e-7],"index":0}], "usage":{"prompt_tokens":3,"total_tokens":3},"odd":1 }"#;
    let one = r#"{"content": {"parts":[{"text":"é"}],"odd":1} }"#;
    let embedding = r#"{ "embedding":{"values":[1,2.50]},"usageMetadata":{"promptTokenCount":3} }"#;
    let batch = r#"{"requests":[ {"model":"models/m","content":{"parts":{"text":"a"}},"odd":1} ]}"#;
    let embeddings =
        r#"{"embeddings":[ {"values":[1.0]} ],"usageMetadata":{"promptTokenCount":3}}"#;
    let cases = [
        ("chat", LIST, list, list.replace("\"m\"", "\"up\""), listed, LIST),
        ("native", ONE, one, one.to_owned(), embedding, "/v1beta/models/up:embedContent"),
        (
            "native",
            BATCH,
            batch,
            batch.replace("models/m", "models/up"),
            embeddings,
            "/v1beta/models/up:batchEmbedContents",
        ),
    ];
    for (speaks, path, ask, sent, answer, to) in cases {
        let (provider, gateway) = answering(speaks, answer).await;
        let got = gateway.post(path, &Value::Null).body(ask).send().await;
        assert_eq!((got.status.as_u16(), got.text().as_str()), (200, answer), "{path}");
        assert_eq!(got.header("x-portunus-lane"), "p/up");
        assert_eq!(got.header("x-portunus-cost"), "0.000003000");
        assert_eq!(got.header("x-portunus-loss"), "");
        let asked = &provider.requests()[0];
        assert_eq!(String::from_utf8_lossy(&asked.body), sent);
        assert!(asked.head.starts_with(&format!("POST {to} HTTP/1.1\r\n")), "{}", asked.head);
        assert!(!asked.head.to_lowercase().contains("sk-pt"), "our key stays with us");
    }
}

#[tokio::test]
async fn a_list_is_served_by_a_lane_that_knows_only_batches() {
    let answer = r#"{"embeddings":[{"values":[1,-0.5]},{"values":[0.25,2]}]}"#;
    let (provider, gateway) = answering("native", answer).await;
    let ask = json!({ "model": "m", "input": ["abcd", "efghi"], "dimensions": 2, "user": "u",
        "encoding_format": "base64" });
    let got = gateway.post(LIST, &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let told = got.json();
    assert_eq!(told["model"], "m");
    assert_eq!(unpacked(&told["data"][0]["embedding"]), [1.0, -0.5]);
    assert_eq!(unpacked(&told["data"][1]["embedding"]), [0.25, 2.0]);
    let request = |text: &str| {
        json!({ "model": "models/up", "content": { "parts": [{ "text": text }] },
                "outputDimensionality": 2 })
    };
    let asked = &provider.requests()[0];
    assert_eq!(asked.json(), json!({ "requests": [request("abcd"), request("efghi")] }));
    assert!(asked.head.starts_with("POST /v1beta/models/up:batchEmbedContents HTTP/1.1\r\n"));

    // The provider reported no usage: nine bytes are estimated as three tokens.
    assert_eq!(told["usage"], json!({ "prompt_tokens": 3, "total_tokens": 3 }));
    let receipt = receipt(&gateway, &got).await;
    assert_eq!((&receipt["input_tokens"], &receipt["estimated"]), (&json!(3), &json!(true)));
    assert_eq!(
        (&receipt["cost_usd"], &receipt["losses"]),
        (&json!("0.000003000"), &json!(["user"]))
    );
    assert_eq!(got.header("x-portunus-loss"), "user");

    let strict = gateway.post(LIST, &ask).header("x-portunus-strict", "true").send().await;
    assert_eq!(strict.status, 400);
    assert_eq!(strict.json()["error"]["code"], "translation_loss");
    let tokens = json!({ "model": "m", "input": [1, 2, 3] });
    let got = gateway.post(LIST, &tokens).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["param"]), (400, &json!("input")));
    assert_eq!(provider.requests().len(), 1, "neither was sent");
}

#[tokio::test]
async fn a_long_list_is_cut_into_batches_and_put_together_again() {
    let answer = |count: usize, first: usize| {
        let vectors: Vec<Value> =
            (first..first + count).map(|n| json!({ "values": [n] })).collect();
        let body = json!({ "embeddings": vectors, "usageMetadata": { "promptTokenCount": count } });
        reply(200, "application/json", &body.to_string())
    };
    let provider = ScriptedProvider::start(vec![answer(100, 0), answer(50, 100)]).await;
    let gateway = in_front_of(&provider, "native").await;
    let ask = json!({ "model": "m", "input": vec!["x"; 150] });
    let got = gateway.post(LIST, &ask).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let told = got.json();
    assert_eq!(told["data"].as_array().unwrap().len(), 150);
    assert_eq!(
        (&told["data"][149]["index"], &told["data"][149]["embedding"]),
        (&json!(149), &json!([149.0]))
    );
    assert_eq!(told["usage"]["prompt_tokens"], 150);
    assert_eq!(provider.requests().len(), 2);
}

#[tokio::test]
async fn native_callers_are_served_by_a_lane_that_knows_only_lists() {
    let answer = r#"{"object":"list","model":"up","data":[{"index":1,"embedding":[2,3]},{"index":0,"embedding":[0.5,1]}],"usage":{"prompt_tokens":4,"total_tokens":4}}"#;
    let (provider, gateway) = answering("chat", answer).await;
    let mut one = content("a");
    one["taskType"] = json!("CLUSTERING");
    one["outputDimensionality"] = json!(2);
    let mut two = content("b");
    two["outputDimensionality"] = json!(2);
    let got = gateway.post(BATCH, &json!({ "requests": [one, two] })).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(
        got.json(),
        json!({ "embeddings": [{ "values": [0.5, 1.0] }, { "values": [2.0, 3.0] }],
                "usageMetadata": { "promptTokenCount": 4, "totalTokenCount": 4 } })
    );
    assert_eq!(got.header("x-portunus-loss"), "task");
    assert_eq!(got.header("x-portunus-cost"), "0.000004000");
    assert_eq!(receipt(&gateway, &got).await["dialect"], "native");
    let asked = &provider.requests()[0];
    assert_eq!(asked.json(), json!({ "model": "up", "input": ["a", "b"], "dimensions": 2 }));
    assert!(asked.head.starts_with("POST /v1/embeddings HTTP/1.1\r\n"));

    // Two vectors for one text are a broken answer.
    let got = gateway.post(ONE, &content("a")).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["status"]), (503, &json!("UNAVAILABLE")));

    let single = r#"{"data":[{"index":0,"embedding":"AACAPw=="}],"usage":{"prompt_tokens":1}}"#;
    let (_provider, gateway) = answering("chat", single).await;
    let got = gateway.post(ONE, &content("a")).send().await;
    assert_eq!(got.json()["embedding"], json!({ "values": [1.0] }), "{}", got.text());
}

#[tokio::test]
async fn the_next_lane_answers_when_the_first_cannot_whatever_its_shape() {
    let bad = ScriptedProvider::start(vec![reply(500, "text/html", "<h1>oops</h1>")]).await;
    let answer = r#"{"embeddings":[{"values":[1]}],"usageMetadata":{"promptTokenCount":2}}"#;
    let good = ScriptedProvider::start(vec![reply(200, "application/json", answer)]).await;
    let config = format!(
        "[providers.deaf]\nspeaks=\"messages\"\nbase=\"{0}\"\n\
         [providers.bad]\nspeaks=\"chat\"\nbase=\"{0}\"\n\
         [providers.good]\nspeaks=\"native\"\nbase=\"{1}\"\n\
         [models.m]\nkind=\"embedding\"\nlanes=[\"deaf/w\",\"bad/x\",\"good/y\"]\n\
         price={{input=\"1\",output=\"1\"}}\n",
        bad.url, good.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let got = gateway.post(LIST, &json!({ "model": "m", "input": "x" })).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.header("x-portunus-lane"), "good/y");
    assert_eq!((bad.requests().len(), good.requests().len()), (1, 1));
    assert_eq!(receipt(&gateway, &got).await["attempts"], 2);
}

#[tokio::test]
async fn every_bad_answer_is_an_error_in_the_callers_format_and_costs_nothing() {
    let cases = [
        (reply(500, "text/html", "<h1>x</h1>"), 503),
        (reply(401, "application/json", r#"{"error":{"message":"key sk-1"}}"#), 503),
        (reply(400, "application/json", r#"{"error":{"message":"bad","code":400}}"#), 400),
        (reply(200, "text/html", "<html>"), 503),
        (reply(200, "application/json", "{}"), 503),
        (reply(200, "application/json", "[1,"), 503),
    ];
    for (answer, status) in cases {
        for speaks in ["chat", "native"] {
            let provider = ScriptedProvider::start(vec![answer.clone()]).await;
            let gateway = in_front_of(&provider, speaks).await;
            let list = json!({ "model": "m", "input": "x" });
            let got = gateway.post(LIST, &list).send().await;
            assert_eq!(got.status, status, "{speaks} {answer:?}: {}", got.text());
            assert!(got.json()["error"]["type"].is_string() && !got.text().contains("sk-1"));
            let got = gateway.post(ONE, &content("x")).send().await;
            assert_eq!(got.status, status, "{speaks} {answer:?}: {}", got.text());
            assert!(got.json()["error"]["status"].is_string() && !got.text().contains("sk-1"));
            gateway.wait_until_settled().await;
            let key = gateway.get("/v1/key").send().await.json();
            let nothing = json!("0.000000000");
            assert_eq!((&key["spent_usd"], &key["held_usd"]), (&nothing, &nothing));
        }
    }
}

#[tokio::test]
async fn broken_rules_name_their_field_in_the_callers_format() {
    let gateway = TestGateway::start().await;
    let list = |input: Value| json!({ "model": "demo-embed", "input": input });
    let cases = [
        (json!({ "input": "x" }), "model"),
        (json!({ "model": "demo-embed" }), "input"),
        (list(json!("")), "input"),
        (list(json!([])), "input"),
        (list(json!(5)), "input"),
        (list(json!(["x", 5])), "input[1]"),
        (list(json!(vec!["x"; 2_049])), "input"),
        (json!({ "model": "demo-embed", "input": "x", "dimensions": 0 }), "dimensions"),
        (json!({ "model": "demo-embed", "input": "x", "dimensions": 5_000 }), "dimensions"),
        (
            json!({ "model": "demo-embed", "input": "x", "encoding_format": "hex" }),
            "encoding_format",
        ),
    ];
    for (ask, field) in cases {
        let got = gateway.post(LIST, &ask).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        assert_eq!(got.json()["error"]["param"], field);
        assert_eq!(got.json()["error"]["type"], "invalid_request_error");
    }
    let cases = [
        ("embedContent", json!({}), "content"),
        ("embedContent", json!({ "content": { "parts": [{}] } }), "content.parts[0].text"),
        ("batchEmbedContents", json!({ "requests": [] }), "requests"),
        ("batchEmbedContents", json!({ "requests": vec![content("x"); 101] }), "requests"),
        ("batchEmbedContents", json!({ "requests": [{}] }), "requests[0].content"),
    ];
    for (operator, ask, field) in cases {
        let path = format!("/v1beta/models/demo-embed:{operator}");
        let got = gateway.post(&path, &ask).send().await;
        assert_eq!(got.status, 400, "{}", got.text());
        let error = &got.json()["error"];
        assert_eq!(error["status"], "INVALID_ARGUMENT");
        assert!(error.to_string().contains(&format!("\"field\":\"{field}\"")), "{error}");
    }
    let got =
        gateway.post("/v1beta/models/demo-embed:embedContent?alt=sse", &content("x")).send().await;
    assert_eq!(got.status, 400);
}

#[tokio::test]
async fn a_model_of_the_wrong_kind_is_not_found_and_the_right_address_is_named() {
    let gateway = TestGateway::start().await;
    let got = gateway.post(LIST, &json!({ "model": "demo-chat", "input": "x" })).send().await;
    assert_eq!(
        (got.status.as_u16(), &got.json()["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    assert!(got.text().contains("/v1/chat/completions"), "{}", got.text());
    let got = gateway.post("/v1beta/models/demo-chat:embedContent", &content("x")).send().await;
    assert_eq!((got.status.as_u16(), &got.json()["error"]["status"]), (404, &json!("NOT_FOUND")));
    let chat = json!({ "model": "demo-embed", "messages": [{ "role": "user", "content": "x" }] });
    let got = gateway.post("/v1/chat/completions", &chat).send().await;
    assert_eq!(got.status, 404);
    assert!(got.text().contains("/v1/embeddings"), "{}", got.text());
    let got = gateway.post(LIST, &json!({ "model": "nobody", "input": "x" })).send().await;
    assert_eq!(got.status, 404);
}

#[tokio::test]
async fn a_key_gets_no_further_than_it_may() {
    let gateway = TestGateway::start().await;
    let account = gateway.app.store.accounts().await.unwrap().remove(0);
    let key = async |cap: Option<i64>, model: &str| {
        let ask = testkit::NewKey {
            name: "small".to_owned(),
            cap: cap.map(canon::Money::from_nanos),
            models: vec![model.to_owned()],
            expires: None,
        };
        let now = gateway.app.clock.now();
        let (record, key) = ask.into_record(&account.id, &gateway.app.engine.keys, now).unwrap();
        gateway.app.store.add_key(&record).await.unwrap();
        key
    };
    let ask = json!({ "model": "demo-embed", "input": "x" });
    let native = "/v1beta/models/demo-embed:embedContent";
    let other = key(None, "demo-chat").await;
    assert_eq!(gateway.post(LIST, &ask).key(&other).send().await.status, 403);
    let got = gateway.post(native, &content("x")).key(&other).send().await;
    assert_eq!(
        (got.status.as_u16(), &got.json()["error"]["status"]),
        (403, &json!("PERMISSION_DENIED"))
    );
    assert_eq!(gateway.post(LIST, &ask).without_key().send().await.status, 401);
    // The body has more than five bytes, so it could cost more than a hundred nanodollars.
    let poor = key(Some(100), "demo-embed").await;
    let got = gateway.post(LIST, &ask).key(&poor).send().await;
    assert_eq!(
        (got.status.as_u16(), &got.json()["error"]["code"]),
        (429, &json!("insufficient_quota"))
    );
    let rich = key(Some(100_000), "demo-embed").await;
    assert_eq!(gateway.post(LIST, &ask).key(&rich).send().await.status, 200);
}

#[tokio::test]
async fn a_dry_run_tells_what_would_be_sent_and_calls_no_one() {
    let (provider, gateway) = answering("native", "{}").await;
    let ask = json!({ "model": "m", "input": vec!["x"; 101], "user": "u" });
    let got = gateway.post(LIST, &ask).header("x-portunus-dry-run", "true").send().await;
    let told = got.json();
    assert_eq!((&told["lane"], &told["dialect"]), (&json!("p/up"), &json!("native")));
    assert_eq!(told["path"], "/v1beta/models/up:batchEmbedContents");
    assert_eq!(told["body"].as_array().unwrap().len(), 2, "a second batch takes the last one");
    assert_eq!(told["losses"][0]["what"], "user");
    assert!(told["quote"]["at_most_usd"].as_str().unwrap() > "0");
    assert!(provider.requests().is_empty());
}

/// Media go to no lane whose record does not read them, also if the caller has losses allowed.
#[tokio::test]
async fn media_are_not_left_out_of_embeddings() {
    let provider = ScriptedProvider::start(vec![]).await;
    let config = format!("{}kind = \"embedding\"\ninput = [\"text\"]\n", provider.config("native"));
    let gateway = TestGateway::with_config(&config).await;
    let image = json!({ "inlineData": { "mimeType": "image/png", "data": "AAAA" } });
    let one = json!({ "content": { "parts": [{ "text": "a" }, image] } });
    let batch = json!({ "requests": [{ "model": "models/m", "content": { "parts": [image] } }] });
    for (path, ask, at) in
        [(ONE, &one, "content.parts[1]"), (BATCH, &batch, "requests[0].content.parts[0]")]
    {
        for lossy in ["false", "true"] {
            let got = gateway.post(path, ask).header("x-portunus-lossy", lossy).send().await;
            assert_eq!(got.status, 400, "{path} {lossy}: {}", got.text());
            assert!(got.text().contains(at), "{path} {lossy}: {}", got.text());
        }
    }
    assert!(provider.requests().is_empty());
    gateway.wait_until_settled().await;
    assert!(gateway.app.store.export(None, 10).await.unwrap().is_empty());
}
