//! Cached contents: kept by the gateway, and inserted into the requests that name them on every lane.

use canon::Micros;
use http::Method;
use serde_json::{Value, json};
use sqlx::Connection as _;
use std::sync::Arc;
use testkit::{ScriptedProvider, ShiftedClock, TestGateway, TestResponse, reply, sse};

use crate::key_objects::share;
use crate::money::{key, receipt};

const CACHES: &str = "/v1beta/cachedContents";
const LANES: [&str; 4] = ["demo-native", "demo-chat", "demo-responses", "demo-messages"];

/// Content with turns, an instruction and a tool.
fn content(model: &str) -> Value {
    json!({
        "model": format!("models/{model}"),
        "displayName": "The story",
        "contents": [
            { "role": "user", "parts": [{ "text": "The tale of a heron." }] },
            { "role": "model", "parts": [{ "text": "Noted." }] },
        ],
        "systemInstruction": { "parts": [{ "text": "Speak of birds." }] },
        "tools": [{ "functionDeclarations": [{ "name": "fly", "parameters": { "type": "OBJECT" } }] }],
        "toolConfig": { "functionCallingConfig": { "mode": "AUTO" } },
    })
}

async fn kept(gateway: &TestGateway, content: &Value) -> String {
    let got = gateway.post(CACHES, content).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    got.json()["name"].as_str().unwrap().to_owned()
}

fn ask(name: &str) -> Value {
    json!({ "contents": [{ "role": "user", "parts": [{ "text": "Who is it about?" }] }],
            "cachedContent": name })
}

fn generate(model: &str) -> String {
    format!("/v1beta/models/{model}:generateContent")
}

/// The path that an error names.
fn refused_field(got: &TestResponse) -> String {
    let error = &got.json()["error"];
    let mut fields = error["details"].as_array().into_iter().flatten();
    let field = fields.find_map(|detail| detail["fieldViolations"][0]["field"].as_str());
    field.unwrap_or_default().to_owned()
}

fn is_not_found(got: &TestResponse) {
    assert_eq!(got.status, 404, "{}", got.text());
    let error = got.json()["error"].clone();
    assert_eq!(error["status"], "NOT_FOUND");
    assert_eq!(error["message"], "CachedContent not found (or permission denied)");
}

#[tokio::test]
async fn content_is_created_shown_listed_changed_and_deleted() {
    let gateway = TestGateway::start().await;
    for collection in [CACHES, "/v1/cachedContents"] {
        let made = gateway.post(collection, &content("demo-native")).send().await;
        assert_eq!(made.status, 200, "{}", made.text());
        assert_eq!(made.header("x-portunus-cost"), "", "keeping is free");
        let made = made.json();
        let name = made["name"].as_str().unwrap();
        assert!(name.starts_with("cachedContents/cache_"), "{made}");
        assert_eq!(
            (&made["model"], &made["displayName"]),
            (&json!("models/demo-native"), &json!("The story"))
        );
        assert!(made["usageMetadata"]["totalTokenCount"].as_u64().unwrap() > 5, "{made}");
        let time = |field: &str| made[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
        assert_eq!(time("createTime"), time("updateTime"));
        assert_eq!(time("expireTime").as_second() - time("createTime").as_second(), 3_600);
        for field in ["contents", "systemInstruction", "tools", "toolConfig", "ttl"] {
            assert!(made.get(field).is_none(), "{field}: {made}");
        }
        let path = format!("{}{name}", collection.trim_end_matches("cachedContents"));
        assert_eq!(gateway.get(&path).send().await.json(), made);
        let listed = gateway.get(collection).send().await.json();
        assert_eq!(listed, json!({ "cachedContents": [made] }));
        let longer = gateway.request(Method::PATCH, &format!("{path}?updateMask=ttl"));
        let longer = longer.body(r#"{"ttl":"7200s"}"#).send().await;
        assert_eq!(longer.status, 200, "{}", longer.text());
        let longer = longer.json();
        assert!(longer["expireTime"].as_str() > made["expireTime"].as_str(), "{longer}");
        assert!(longer["updateTime"].as_str() > made["updateTime"].as_str(), "{longer}");
        let gone = gateway.request(Method::DELETE, &path).send().await;
        assert_eq!((gone.status.as_u16(), gone.json()), (200, json!({})));
        is_not_found(&gateway.get(&path).send().await);
        is_not_found(&gateway.request(Method::DELETE, &path).send().await);
        let change = gateway.request(Method::PATCH, &path).body(r#"{"ttl":"9s"}"#).send().await;
        is_not_found(&change);
        is_not_found(&gateway.post(&generate("demo-native"), &ask(name)).send().await);
    }
}

#[tokio::test]
async fn lists_have_pages() {
    let gateway = TestGateway::start().await;
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(kept(&gateway, &content("demo-native")).await);
    }
    let (mut seen, mut token) = (Vec::new(), String::new());
    loop {
        let page = gateway.get(&format!("{CACHES}?pageSize=1&pageToken={token}")).send().await;
        let page = page.json();
        seen.extend(
            page["cachedContents"].as_array().unwrap().iter().map(|one| one["name"].clone()),
        );
        match page["nextPageToken"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(json!(seen), json!(names));
    for (query, field) in [
        ("pageSize=0", "pageSize"),
        ("pageSize=1001", "pageSize"),
        ("pageSize=x", "pageSize"),
        ("pageToken=x", "pageToken"),
    ] {
        let got = gateway.get(&format!("{CACHES}?{query}")).send().await;
        assert_eq!((got.status.as_u16(), refused_field(&got).as_str()), (400, field));
    }
}

#[tokio::test]
async fn wrong_content_is_refused_with_its_field() {
    let gateway = TestGateway::with_config("[limits]\nkeep_answers = \"2h\"\n").await;
    let cases = [
        (json!({ "contents": "A" }), 400, "contents"),
        (json!({ "contents": [{ "parts": [{ "text": 5 }] }] }), 400, "contents[0].parts[0].text"),
        (
            json!({ "contents": [{ "parts": [{ "inlineData": { "mimeType": "image/png", "data": "?" } }] }] }),
            400,
            "contents[0].parts[0].inlineData.data",
        ),
        (json!({ "tools": [{}] }), 400, "tools[0]"),
        (
            json!({ "toolConfig": { "functionCallingConfig": { "mode": "?" } } }),
            400,
            "toolConfig.functionCallingConfig.mode",
        ),
        (json!({ "generationConfig": {} }), 400, "generationConfig"),
        (json!({ "cachedContent": "cachedContents/x" }), 400, "cachedContent"),
        (json!({ "displayName": "x".repeat(129) }), 400, "displayName"),
        (json!({ "ttl": "0s" }), 400, "ttl"),
        (json!({ "ttl": "7201s" }), 400, "ttl"),
        (json!({ "expireTime": "2020-01-01T00:00:00Z" }), 400, "expireTime"),
        (json!({ "expireTime": "2120-01-01T00:00:00Z" }), 400, "expireTime"),
        (json!({ "model": "models/none" }), 404, ""),
        (
            json!({ "contents": [{ "parts": [{ "fileData": { "fileUri": "files/x", "mimeType": "image/png" } }] }] }),
            404,
            "contents[0].parts[0].fileData.fileUri",
        ),
    ];
    for (fields, status, at) in cases {
        let mut body = content("demo-native");
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let got = gateway.post(CACHES, &body).send().await;
        assert_eq!(got.status, status, "{fields}: {}", got.text());
        assert_eq!(refused_field(&got), at, "{fields}: {}", got.text());
    }
    let picture = json!({ "model": "demo-echo", "contents": [{ "parts": [{ "inlineData":
        { "mimeType": "image/png", "data": "iVBORw0KGgo=" } }] }] });
    let got = gateway.post(CACHES, &picture).send().await;
    assert_eq!((got.status.as_u16(), refused_field(&got).as_str()), (400, "contents[0].parts[0]"));
    let other = key(&gateway, |record| record.models = vec!["demo-chat".to_owned()]).await;
    let got = gateway.post(CACHES, &content("demo-native")).key(&other).send().await;
    assert_eq!(got.status, 403, "{}", got.text());
    assert_eq!(gateway.get(CACHES).send().await.json(), json!({ "cachedContents": [] }));

    let name = kept(&gateway, &content("demo-native")).await;
    let path = format!("/v1beta/{name}");
    for (query, body, field) in [
        ("", "{}", "ttl"),
        ("", r#"{"displayName":"x"}"#, "displayName"),
        ("", r#"{"ttl":"1s","expireTime":"2120-01-01T00:00:00Z"}"#, "expireTime"),
        ("?updateMask=displayName", r#"{"ttl":"1s"}"#, "updateMask"),
    ] {
        let got = gateway.request(Method::PATCH, &format!("{path}{query}")).body(body).send().await;
        assert_eq!((got.status.as_u16(), refused_field(&got).as_str()), (400, field), "{body}");
    }
}

#[tokio::test]
async fn content_is_inserted_on_every_lane() {
    let gateway = TestGateway::start().await;
    for model in LANES {
        let name = kept(&gateway, &content(model)).await;
        let path = generate(model);
        let dry =
            gateway.post(&path, &ask(&name)).header("x-portunus-dry-run", "true").send().await;
        assert_eq!(dry.status, 200, "{model}: {}", dry.text());
        for text in ["heron", "Noted.", "birds", "fly", "Who is it about?"] {
            assert!(dry.text().contains(text), "{model} {text}: {}", dry.text());
        }
        assert!(!dry.text().contains("cachedContent"), "{model}: {}", dry.text());
        let place = |text: &str| dry.text().find(text).unwrap();
        assert!(place("heron") < place("Who is it"), "{model}: {}", dry.text());

        let counted = async |body: &Value| {
            let got =
                gateway.post(&path.replace("generateContent", "countTokens"), body).send().await;
            got.json()["totalTokens"].as_u64().unwrap()
        };
        let mut alone = ask(&name);
        alone.as_object_mut().unwrap().remove("cachedContent");
        let count = counted(&ask(&name)).await;
        assert!(count > counted(&alone).await + 5, "{model}");
        let wrapped = json!({ "generateContentRequest": ask(&name) });
        assert_eq!(counted(&wrapped).await, count, "{model}");
        let whole = gateway.post(&path, &ask(&name)).send().await;
        assert_eq!(whole.status, 200, "{model}: {}", whole.text());
        let prompt = whole.json()["usageMetadata"]["promptTokenCount"].as_u64().unwrap();
        let less = gateway.post(&path, &alone).send().await;
        let less = less.json()["usageMetadata"]["promptTokenCount"].as_u64().unwrap();
        assert!(prompt > less + 5, "{model}: {prompt} {less}");
        let stream = path.replace("generateContent", "streamGenerateContent?alt=sse");
        let stream = gateway.post(&stream, &ask(&name)).send().await;
        assert_eq!(stream.status, 200, "{model}: {}", stream.text());
        let prompt_text = format!("\"promptTokenCount\":{prompt}");
        assert!(stream.text().contains(&prompt_text), "{model}: {}", stream.text());
        gateway.wait_until_settled().await;
        let told = receipt(&gateway, &whole).await;
        assert_eq!(told["tokens"]["input"].as_u64(), Some(prompt), "{model}: {told}");
        assert_eq!(told["losses"], json!([]), "{model}: {told}");
    }
}

#[tokio::test]
async fn a_native_provider_gets_the_callers_own_fields_unchanged() {
    let text = json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": "A heron." }] },
        "finishReason": "STOP" }], "usageMetadata": { "promptTokenCount": 9, "candidatesTokenCount": 2 } });
    let answer = reply(200, "application/json", &text.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let gateway = TestGateway::with_config(&provider.config("native")).await;
    let kept_fields = content("m");
    let name = kept(&gateway, &kept_fields).await;
    let mut body = ask(&name);
    body["generationConfig"] = json!({ "topK": 3, "unknown": [1.50] });
    body["labels"] = json!({ "a": "b" });
    let got = gateway.post(&generate("m"), &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let sent = provider.requests().last().unwrap().json();
    let mut turns = kept_fields["contents"].as_array().unwrap().clone();
    turns.push(body["contents"][0].clone());
    let expected = json!({
        "systemInstruction": kept_fields["systemInstruction"],
        "tools": kept_fields["tools"],
        "toolConfig": kept_fields["toolConfig"],
        "contents": turns,
        "generationConfig": body["generationConfig"],
        "labels": body["labels"],
    });
    assert_eq!(sent, expected);
    // The name is not the provider's, whoever asks.
    let names = |sent: &str| sent.contains(&name);
    assert!(provider.requests().iter().all(|one| !names(&one.json().to_string())));
}

#[tokio::test]
async fn a_request_beside_its_content_is_judged_in_its_own_paths() {
    let gateway = TestGateway::start().await;
    let name = kept(&gateway, &content("demo-native")).await;
    let part = |part: Value| json!([{ "parts": [{ "text": "A" }] }, { "parts": [part] }]);
    let cases = [
        (json!({ "tools": [{ "googleSearch": {} }] }), "tools"),
        (json!({ "toolConfig": {} }), "toolConfig"),
        (json!({ "system_instruction": { "parts": [{ "text": "B" }] } }), "systemInstruction"),
        (json!({ "contents": [] }), "contents"),
        (json!({ "contents": null }), "contents"),
        (json!({ "contents": part(json!({ "text": 5 })) }), "contents[1].parts[0].text"),
        (
            json!({ "contents": part(json!({ "functionResponse": { "name": "fly", "response": {} } })) }),
            "contents[1].parts[0].functionResponse",
        ),
        (json!({ "generationConfig": { "topP": 2 } }), "generationConfig.topP"),
    ];
    for (fields, at) in cases {
        let mut body = ask(&name);
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        for operator in ["generateContent", "streamGenerateContent", "countTokens"] {
            let path = format!("/v1beta/models/demo-native:{operator}");
            let got = gateway.post(&path, &body).send().await;
            assert_eq!(got.status, 400, "{operator} {fields}: {}", got.text());
            let field = refused_field(&got);
            assert!(field.starts_with(at), "{operator} {fields}: {}", got.text());
        }
    }
    let got = gateway.post(&generate("demo-chat"), &ask(&name)).send().await;
    assert_eq!((got.status.as_u16(), refused_field(&got).as_str()), (400, "cachedContent"));
    let got = gateway.post(&generate("none"), &ask(&name)).send().await;
    assert_eq!(got.status, 404, "{}", got.text());
    let wrapped = json!({ "generateContentRequest": ask("cachedContents/none") });
    let got = gateway.post("/v1beta/models/demo-native:countTokens", &wrapped).send().await;
    assert_eq!(got.status, 404, "{}", got.text());
    assert_eq!(refused_field(&got), "generateContentRequest.cachedContent");
}

#[tokio::test]
async fn content_ends_at_its_time_and_is_swept() {
    let clock = Arc::new(ShiftedClock::default());
    let gateway = TestGateway::with_clock("", Arc::<ShiftedClock>::clone(&clock)).await;
    let mut short = content("demo-native");
    short["ttl"] = json!("60s");
    let (short, long) =
        (kept(&gateway, &short).await, kept(&gateway, &content("demo-native")).await);
    clock.step(Micros::from_secs(61));
    is_not_found(&gateway.get(&format!("/v1beta/{short}")).send().await);
    let got = gateway.post(&generate("demo-native"), &ask(&short)).send().await;
    is_not_found(&got);
    assert_eq!(refused_field(&got), "cachedContent");
    assert_eq!(gateway.post(&generate("demo-native"), &ask(&long)).send().await.status, 200);
    gateway.app.sweep().await;
    let left = gateway.app.store.sweep_cached_contents(gateway.app.clock.now()).await.unwrap();
    assert_eq!(left, 0, "it was swept");
    assert_eq!(gateway.get(&format!("/v1beta/{long}")).send().await.status, 200);
}

#[tokio::test]
async fn content_belongs_to_its_key_unless_the_account_shares() {
    let gateway = TestGateway::start().await;
    let name = kept(&gateway, &content("demo-native")).await;
    let (path, second) = (format!("/v1beta/{name}"), key(&gateway, |_| ()).await);
    let ways = |key: &str| {
        [
            gateway.get(&path).key(key),
            gateway.post(&generate("demo-native"), &ask(&name)).key(key),
            gateway.post("/v1beta/models/demo-native:countTokens", &ask(&name)).key(key),
            gateway.request(Method::PATCH, &path).body(r#"{"ttl":"60s"}"#).key(key),
            gateway.request(Method::DELETE, &path).key(key),
        ]
    };
    for request in ways(&second) {
        is_not_found(&request.send().await);
    }
    let listed = async |key: &str| {
        let list = gateway.get(CACHES).key(key).send().await.json();
        list["cachedContents"].as_array().unwrap().len()
    };
    assert_eq!((listed(&second).await, listed(&gateway.key).await), (0, 1));
    share(&gateway).await;
    let second = key(&gateway, |_| ()).await;
    assert_eq!(listed(&second).await, 1);
    for request in ways(&second) {
        let got = request.send().await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
}

#[tokio::test]
async fn a_key_keeps_a_bounded_amount() {
    let gateway = TestGateway::with_config("[limits]\nbody = \"2KiB\"\n").await;
    let of = |length: usize| {
        json!({ "model": "demo-native", "ttl": "60s",
        "contents": [{ "role": "user", "parts": [{ "text": "x".repeat(length) }] }] })
    };
    let mut names = Vec::new();
    for _ in 0..4 {
        names.push(kept(&gateway, &of(1_500)).await);
    }
    kept(&gateway, &of(1_500)).await;
    let full = gateway.post(CACHES, &of(1_500)).send().await;
    assert_eq!(full.status, 429, "{}", full.text());
    assert!(full.text().contains("8192 bytes") && full.text().contains("RESOURCE_EXHAUSTED"));
    assert_eq!(full.header("x-should-retry"), "false");
    // The whole must fit into a body.
    let mut long = ask(&names[0]);
    long["contents"][0]["parts"][0]["text"] = json!("y".repeat(600));
    let got = gateway.post(&generate("demo-native"), &long).send().await;
    assert_eq!(got.status, 413, "{}", got.text());
    assert!(got.text().contains("2048"), "{}", got.text());
    assert_eq!(gateway.post(&generate("demo-native"), &ask(&names[0])).send().await.status, 200);
    let second = key(&gateway, |_| ()).await;
    for _ in 0..100 {
        let got = gateway.post(CACHES, &of(1)).key(&second).send().await;
        assert_eq!(got.status, 200, "{}", got.text());
    }
    let full = gateway.post(CACHES, &of(1)).key(&second).send().await;
    assert_eq!(full.status, 429, "{}", full.text());
    assert!(full.text().contains("100 cached contents"), "{}", full.text());
}

/// The name decides about a replay, and not what it stood for at the time.
#[tokio::test]
async fn a_replay_is_known_by_the_callers_bytes() {
    let gateway = TestGateway::start().await;
    let name = kept(&gateway, &content("demo-native")).await;
    let named = || {
        let request = gateway.post(&generate("demo-native"), &ask(&name));
        request.header("idempotency-key", "once").send()
    };
    let first = named().await;
    assert_eq!(first.status, 200, "{}", first.text());
    let path = format!("/v1beta/{name}");
    assert_eq!(gateway.request(Method::DELETE, &path).send().await.status, 200);
    let again = named().await;
    assert_eq!((again.header("idempotent-replayed"), again.text()), ("true", first.text()));
}

#[tokio::test]
async fn content_is_judged_by_its_row_before_it_is_read() {
    let gateway = TestGateway::start().await;
    let name = kept(&gateway, &content("demo-native")).await;
    let url = format!("sqlite:{}", gateway.data_folder().join("portunus.db").display());
    let mut database = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let spoil = "UPDATE cached_contents SET sealed = x'00', body = ''";
    sqlx::raw_sql(spoil).execute(&mut database).await.unwrap();
    let used = async |model: &str| gateway.post(&generate(model), &ask(&name)).send().await;
    // A body that cannot be opened shows who reads it.
    assert_eq!(used("demo-native").await.status, 503);
    assert_eq!(refused_field(&used("demo-chat").await), "cachedContent");
    let grow = "UPDATE cached_contents SET bytes = 1099511627776";
    sqlx::raw_sql(grow).execute(&mut database).await.unwrap();
    assert_eq!(used("demo-native").await.status, 413);
    assert_eq!(used("demo-chat").await.status, 400);
}

#[tokio::test]
async fn an_address_that_nobody_fetches_is_refused_when_it_is_kept_and_counted() {
    let gateway = TestGateway::start().await;
    for address in ["http://127.0.0.1:9/a.png", "https://169.254.169.254/x", "file:///etc/passwd"] {
        let part = json!({ "fileData": { "mimeType": "image/png", "fileUri": address } });
        let contents = json!([{ "role": "user", "parts": [{ "text": "A" }, part] }]);
        for model in LANES {
            let own = json!({ "contents": contents });
            let count = generate(model).replace("generateContent", "countTokens");
            let create = json!({ "model": format!("models/{model}"), "contents": contents });
            for (path, body) in
                [(generate(model), &own), (count, &own), (CACHES.to_owned(), &create)]
            {
                let got = gateway.post(&path, body).send().await;
                assert_eq!(got.status, 400, "{path} {address}: {}", got.text());
                let field = refused_field(&got);
                assert_eq!(field, "contents[0].parts[1].fileData.fileUri", "{path} {address}");
            }
        }
    }
}

#[tokio::test]
async fn an_empty_instruction_is_none_on_every_lane() {
    let gateway = TestGateway::start().await;
    for model in LANES {
        let empty = json!({ "parts": [] });
        let mut request = json!({ "contents": [{ "role": "user", "parts": [{ "text": "A" }] }] });
        request["systemInstruction"] = empty.clone();
        let got = gateway.post(&generate(model), &request).send().await;
        assert_eq!(got.status, 200, "{model}: {}", got.text());
        request["model"] = json!(format!("models/{model}"));
        let name = kept(&gateway, &request).await;
        let got = gateway.post(&generate(model), &ask(&name)).send().await;
        assert_eq!(got.status, 200, "{model}: {}", got.text());
    }
}

#[tokio::test]
async fn a_count_refuses_a_key_that_is_there_twice() {
    let gateway = TestGateway::start().await;
    let name = kept(&gateway, &content("demo-native")).await;
    let contents = r#""contents":[{"parts":[{"text":"A"}]}]"#;
    let inner = format!("{{{contents}}}");
    let cases = [
        (format!("{{{contents},{contents}}}"), "contents"),
        (
            format!(r#"{{{contents},"cachedContent":"{name}","cachedContent":"{name}"}}"#),
            "cachedContent",
        ),
        (
            format!(r#"{{{contents},"cachedContent":"{name}","cached_content":"x"}}"#),
            "cachedContent",
        ),
        (
            format!(r#"{{"generateContentRequest":{inner},"generate_content_request":{inner}}}"#),
            "generateContentRequest",
        ),
        (
            format!(r#"{{"generate_content_request":{{{contents},{contents}}}}}"#),
            "generateContentRequest.contents",
        ),
    ];
    for (body, field) in cases {
        let path = "/v1beta/models/demo-native:countTokens";
        let got = gateway.request(Method::POST, path).body(body.clone()).send().await;
        assert_eq!(got.status, 400, "{body}: {}", got.text());
        assert_eq!(refused_field(&got), field, "{body}");
    }
}

#[tokio::test]
async fn an_error_within_a_stream_names_the_callers_own_path() {
    let chunk =
        json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": "A" }] } }] });
    let failure = |field: &str| {
        json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT",
            "message": format!("`{field}` is bad"),
            "details": [{ "@type": "type.googleapis.com/google.rpc.BadRequest",
                          "fieldViolations": [{ "field": field, "description": "bad" }] }] } })
    };
    let provider = ScriptedProvider::start(vec![reply(404, "application/json", "{}")]).await;
    let gateway = TestGateway::with_config(&provider.config("native")).await;
    let name = kept(&gateway, &content("m")).await;
    for (sent, own) in [
        ("contents[2].parts[0]", "contents[0].parts[0]"),
        ("contents[1].parts[0]", "cachedContent"),
        ("tools[0]", "cachedContent"),
    ] {
        for query in ["?alt=sse", ""] {
            let events = [chunk.to_string(), failure(sent).to_string()];
            provider.set_answers(vec![sse(&[&events[0], &events[1]])]);
            let path = format!("/v1beta/models/m:streamGenerateContent{query}");
            let got = gateway.post(&path, &ask(&name)).send().await;
            assert_eq!(got.status, 200, "{}", got.text());
            let text = got.text();
            assert!(text.contains(&format!("\"field\":\"{own}\"")), "{sent}: {text}");
            assert!(!text.contains(sent), "{sent}: {text}");
        }
    }
}
