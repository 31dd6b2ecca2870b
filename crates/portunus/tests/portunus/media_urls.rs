//! Media named by address: checked in every field of every format, fetched for lanes that cannot.

#[path = "../../../upstream/tests/upstream/support/mod.rs"]
pub(crate) mod support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{StreamExt as _, iter};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::sync::Arc;
use support::{
    CanaryServer, INNER_ADDRESSES, PNG, ScriptedResolver, TestAuthority, TestServer,
    forbidden_urls, png_response,
};
use testkit::NewKey;
use testkit::{
    AnswerStep, ScriptedProvider, TestGateway, TestResponse, chat_reply, chat_stream, reply, sse,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

const FORMATS: [&str; 4] = ["chat", "responses", "messages", "native"];
const PDF: &[u8] = b"%PDF-1.7\n1 0 obj<<>>endobj\ntrailer<<>>\n%%EOF\n";

/// Kind of file behind an address in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Picture,
    Paper,
    Film,
}
use Thing::{Film, Paper, Picture};

/// Every field of every format in which an address can stand.
const FIELDS: [(&str, &str, Thing); 12] = [
    ("chat", "messages[0].content[1].image_url.url", Picture),
    ("chat", "messages[0].content[1].video_url.url", Film),
    ("chat", "messages[0].content[1].file.file_data", Paper),
    ("responses", "input[0].content[1].image_url", Picture),
    ("responses", "input[0].content[1].file_url", Paper),
    ("responses", "input[2].output[0].image_url", Picture),
    ("messages", "messages[0].content[1].source.url", Picture),
    ("messages", "messages[0].content[1].source.url", Paper),
    ("messages", "messages[2].content[0].content[0].source.url", Picture),
    ("native", "contents[0].parts[1].fileData.fileUri", Picture),
    ("native", "contents[0].parts[1].fileData.fileUri", Paper),
    ("native", "contents[2].parts[0].functionResponse.parts[0].fileData.fileUri", Picture),
];

/// The path and the body of a request that names that address in that field.
fn request(model: &str, field: usize, url: &str) -> (String, Value) {
    let chat = |part: Value| {
        let text = json!({ "type": "text", "text": "look" });
        let messages = json!([{ "role": "user", "content": [text, part] }]);
        ("/v1/chat/completions".to_owned(), json!({ "model": model, "messages": messages }))
    };
    let responses =
        |items: Value| ("/v1/responses".to_owned(), json!({ "model": model, "input": items }));
    let asked = |part: Value| {
        responses(json!([{ "role": "user",
            "content": [{ "type": "input_text", "text": "look" }, part] }]))
    };
    let messages = |turns: Value| {
        let body = json!({ "model": model, "max_tokens": 64, "messages": turns });
        ("/v1/messages".to_owned(), body)
    };
    let block = |kind: &str| json!({ "type": kind, "source": { "type": "url", "url": url } });
    let shown = |kind: &str| {
        messages(json!([{ "role": "user",
            "content": [{ "type": "text", "text": "look" }, block(kind)] }]))
    };
    let native = |contents: Value| {
        let path = format!("/v1beta/models/{model}:generateContent");
        (path, json!({ "contents": contents }))
    };
    let file = json!({ "fileData": { "fileUri": url } });
    let image = json!({ "fileData": { "mimeType": "image/png", "fileUri": url } });
    match field {
        0 => chat(json!({ "type": "image_url", "image_url": { "url": url } })),
        1 => chat(json!({ "type": "video_url", "video_url": { "url": url } })),
        2 => chat(json!({ "type": "file", "file": { "file_data": url, "filename": "a.pdf" } })),
        3 => asked(json!({ "type": "input_image", "image_url": url })),
        4 => asked(json!({ "type": "input_file", "file_url": url })),
        5 => responses(json!([
            { "role": "user", "content": "look" },
            { "type": "function_call", "call_id": "c1", "name": "see", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c1",
              "output": [{ "type": "input_image", "image_url": url }] },
        ])),
        6 => shown("image"),
        7 => shown("document"),
        8 => messages(json!([
            { "role": "user", "content": "look" },
            { "role": "assistant",
              "content": [{ "type": "tool_use", "id": "c1", "name": "see", "input": {} }] },
            { "role": "user",
              "content": [{ "type": "tool_result", "tool_use_id": "c1", "content": [block("image")] }] },
        ])),
        9 => native(json!([{ "role": "user", "parts": [{ "text": "look" }, image] }])),
        10 => native(json!([{ "role": "user", "parts": [{ "text": "look" }, file] }])),
        _ => native(json!([
            { "role": "user", "parts": [{ "text": "look" }] },
            { "role": "model", "parts": [{ "functionCall": { "name": "see", "args": {} } }] },
            { "role": "user", "parts": [{ "functionResponse":
                { "name": "see", "response": { "result": "this" }, "parts": [image] } }] },
        ])),
    }
}

/// A whole answer in that format.
fn answer(format: &str) -> Vec<AnswerStep> {
    let body = match format {
        "chat" => return chat_reply("seen", 1, 1),
        "responses" => {
            json!({ "id": "resp_1", "object": "response", "created_at": 1, "model": "up",
            "status": "completed", "output": [{ "type": "message", "id": "msg_1",
                "role": "assistant", "status": "completed",
                "content": [{ "type": "output_text", "text": "seen", "annotations": [] }] }],
            "usage": { "input_tokens": 1, "output_tokens": 1, "total_tokens": 2 } })
        }
        "messages" => json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": "up",
            "content": [{ "type": "text", "text": "seen" }], "stop_reason": "end_turn",
            "stop_sequence": null, "usage": { "input_tokens": 1, "output_tokens": 1 } }),
        _ => json!({ "candidates": [{ "index": 0, "finishReason": "STOP",
                "content": { "role": "model", "parts": [{ "text": "seen" }] } }],
            "usageMetadata": { "promptTokenCount": 1, "candidatesTokenCount": 1,
                "totalTokenCount": 2 } }),
    };
    reply(200, "application/json", &body.to_string())
}

/// A gateway with one provider for every format, each serving a model of the format's name.
async fn gateway(
    fetches: &str,
    media: &str,
    names: &Arc<ScriptedResolver>,
) -> (TestGateway, Vec<ScriptedProvider>) {
    let mut providers = Vec::new();
    let mut config = format!("[media]\n{media}\n");
    for format in FORMATS {
        let provider = ScriptedProvider::start(vec![answer(format)]).await;
        config += &format!(
            "[providers.{format}]\nspeaks = \"{format}\"\nbase = \"{}\"\nauth = \"none\"\n\
             fetches = \"{fetches}\"\n[models.{format}]\nlanes = [\"{format}/up\"]\n\
             price = {{ input = \"1.00\", output = \"2.00\" }}\n",
            provider.url
        );
        providers.push(provider);
    }
    (TestGateway::with_names(&config, Arc::clone(names) as _).await, providers)
}

/// A host that has a picture, a paper and a film.
async fn host() -> TestServer {
    TestServer::start("127.0.0.1", None, |request: &Request<Incoming>| {
        let (kind, bytes) = match request.uri().path() {
            "/Paper" => ("application/pdf", PDF),
            "/Film" => ("video/mp4", &b"\0\0\0\x18ftypisom and so on"[..]),
            _ => return png_response(),
        };
        let body = Full::new(Bytes::from_static(bytes));
        Response::builder().header("content-type", kind).body(body).unwrap()
    })
    .await
}

fn bytes_of(thing: Thing) -> &'static [u8] {
    match thing {
        Picture => PNG,
        Paper => PDF,
        Film => b"\0\0\0\x18ftypisom and so on",
    }
}

async fn send(gateway: &TestGateway, model: &str, field: usize, url: &str) -> TestResponse {
    let (path, body) = request(model, field, url);
    gateway.post(&path, &body).send().await
}

fn names() -> Arc<ScriptedResolver> {
    let names = Arc::new(ScriptedResolver::default());
    names.set_answers("media.test", &[&["127.0.0.1"]]);
    names
}

#[tokio::test]
async fn a_lane_that_cannot_fetch_is_given_the_very_bytes() {
    let (names, host) = (names(), host().await);
    let (gateway, providers) = gateway("nothing", "allow = [\"media.test\"]", &names).await;
    let mut given = 0;
    for (field, (format, place, thing)) in FIELDS.into_iter().enumerate() {
        for (upstream, provider) in FORMATS.iter().zip(&providers) {
            let url = format!("http://media.test:{}/{thing:?}", host.at.port());
            let got = send(&gateway, upstream, field, &url).await;
            if thing == Film && matches!(*upstream, "messages" | "responses") {
                // The format has no field for videos, so none is fetched.
                continue;
            }
            assert_eq!(got.status, 200, "{format} {place} to {upstream}: {}", got.text());
            let asked =
                String::from_utf8(provider.requests().last().unwrap().body.clone()).unwrap();
            let encoded = STANDARD.encode(bytes_of(thing));
            assert!(asked.contains(&encoded), "{format} {place} to {upstream}: {asked}");
            assert!(!asked.contains("media.test"), "{format} {place} to {upstream}: {asked}");
            assert!(!got.header("x-portunus-loss").contains("media.url"), "{field} {upstream}");
            given += 1;
        }
    }
    assert_eq!((given, host.requests().len()), (46, 46));
}

#[tokio::test]
async fn a_body_that_is_written_anew_keeps_what_else_it_says() {
    let (names, host) = (names(), host().await);
    let url = format!("http://media.test:{}/Picture", host.at.port());
    let events = chat_stream(&["se", "en"], 7, 2);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let provider = ScriptedProvider::start(vec![sse(&events)]).await;
    let config = provider.config("chat").replace("auth =", "fetches = \"nothing\"\nauth =");
    let config = format!("{config}[media]\nallow = [\"media.test\"]\n");
    let gateway = TestGateway::with_names(&config, Arc::clone(&names) as _).await;
    let (path, mut body) = request("m", 0, &url);
    body["stream"] = json!(true);
    body["temperature"] = json!(0.5);
    body["only_known_to_the_provider"] = json!({ "a": [1] });
    let got = gateway.post(&path, &body).send().await;
    let asked = provider.requests()[0].json();
    let data = format!("data:image/png;base64,{}", STANDARD.encode(PNG));
    body["model"] = json!("up");
    body["messages"][0]["content"][1]["image_url"]["url"] = json!(data);
    body["stream_options"] = json!({ "include_usage": true });
    assert_eq!(asked, body);
    let events = got.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    assert!(events.iter().all(|event| !event.contains("total_tokens")), "{events:?}");
}

#[tokio::test]
async fn a_provider_in_a_private_network_is_given_bytes_and_never_an_address() {
    let (names, host) = (names(), host().await);
    names.set_answers("inner.example.com", &[&["127.0.0.1"]]);
    for (field, (format, place, thing)) in FIELDS.into_iter().enumerate() {
        let provider = ScriptedProvider::start(vec![answer(format)]).await;
        let config = format!("{}[media]\nallow = [\"media.test\"]\n", provider.config(format));
        let gateway = TestGateway::with_names(&config, Arc::clone(&names) as _).await;
        let got = send(&gateway, "m", field, "https://inner.example.com/Picture").await;
        assert_eq!(got.status, 400, "{format} {place}: {}", got.text());
        assert_eq!(provider.requests().len(), 0, "{format} {place}");
        let url = format!("http://media.test:{}/{thing:?}", host.at.port());
        let got = send(&gateway, "m", field, &url).await;
        assert_eq!(got.status, 200, "{format} {place}: {}", got.text());
        let sent = String::from_utf8(provider.requests().remove(0).body).unwrap();
        assert!(sent.contains(&STANDARD.encode(bytes_of(thing))), "{format} {place}: {sent}");
        assert!(!sent.contains("media.test"), "{format} {place}: {sent}");
    }
    assert_eq!(host.requests().len(), FIELDS.len());
}

#[tokio::test]
async fn a_native_file_of_no_told_type_is_what_its_bytes_are() {
    let (names, host) = (names(), host().await);
    let (gateway, providers) = gateway("nothing", "allow = [\"media.test\"]", &names).await;
    for (thing, kind) in [(Picture, "image"), (Paper, "document")] {
        let url = format!("http://media.test:{}/{thing:?}", host.at.port());
        assert_eq!(send(&gateway, "messages", 10, &url).await.status, 200);
        let asked = providers[2].requests().last().unwrap().json();
        let block = &asked["messages"][0]["content"][1];
        assert_eq!(block["type"], kind, "{asked}");
        assert_eq!(block["source"]["data"], STANDARD.encode(bytes_of(thing)));
    }
}

#[tokio::test]
async fn a_lane_that_wants_types_is_given_bytes_where_none_is_told() {
    let (names, host) = (names(), host().await);
    let (gateway, providers) = gateway("typed", "allow = [\"media.test\"]", &names).await;
    names.set_answers("public.example.com", &[&["127.0.0.1"]]);
    let url = "https://public.example.com/a.png";
    // A caller of the same format knows what it may leave out; another's address has no type.
    for (field, passes) in [(9, true), (10, true), (0, false), (3, false), (6, false)] {
        let got = send(&gateway, "native", field, url).await;
        assert_eq!(got.status == 200, passes, "{field}: {}", got.text());
    }
    let asked = providers[3].requests();
    assert!(asked.iter().all(|asked| asked.body.ends_with(b"}") && {
        String::from_utf8_lossy(&asked.body).contains(url)
    }));
    let film = "https://www.youtube.com/watch?v=x";
    assert_eq!(send(&gateway, "native", 1, film).await.status, 200);
    assert!(String::from_utf8_lossy(&providers[3].requests().last().unwrap().body).contains(film));
    let url = format!("http://media.test:{}/Picture", host.at.port());
    assert_eq!(send(&gateway, "native", 0, &url).await.status, 200);
    let data = &providers[3].requests().last().unwrap().json()["contents"][0]["parts"][1];
    assert_eq!(
        data["inlineData"],
        json!({ "mimeType": "image/png", "data": STANDARD.encode(PNG) })
    );
}

#[tokio::test]
async fn a_lane_that_can_fetch_is_given_the_address() {
    let names = Arc::new(ScriptedResolver::default());
    let (gateway, providers) = gateway("all", "", &names).await;
    let url = "https://pictures.example.com/a.png?b=c";
    for (field, (format, place, thing)) in FIELDS.into_iter().enumerate() {
        for (upstream, provider) in FORMATS.iter().zip(&providers) {
            let takes = match *upstream {
                "chat" => thing != Paper || format == "chat",
                "native" => true,
                _ => thing != Film,
            };
            if !takes {
                continue;
            }
            let (path, body) = request(upstream, field, url);
            let got = gateway.post(&path, &body).send().await;
            assert_eq!(got.status, 200, "{format} {place} to {upstream}: {}", got.text());
            let asked =
                String::from_utf8(provider.requests().last().unwrap().body.clone()).unwrap();
            assert!(asked.contains(url), "{format} {place} to {upstream}: {asked}");
            if format == *upstream {
                let model = format!("\"model\":\"{format}\"");
                let own = body.to_string().replace(&model, "\"model\":\"up\"");
                assert_eq!(asked, own, "the caller's own bytes");
            }
        }
    }
    assert_eq!(names.lookups(), 0);
}

#[tokio::test]
async fn chat_lanes_get_papers_inline_because_the_format_has_no_address_for_them() {
    let (names, authority) = (names(), TestAuthority::new());
    let config = authority.server("papers.example.com", false, &[]);
    let host = TestServer::start("127.0.0.1", Some(config), |_| {
        let body = Full::new(Bytes::from_static(PDF));
        Response::builder().header("content-type", "application/pdf").body(body).unwrap()
    })
    .await;
    names.set_answers("papers.example.com", &[&["127.0.0.1"]]);
    let file = std::env::temp_dir().join(format!("portunus-test-ca-{}.pem", std::process::id()));
    std::fs::write(&file, &authority.pem[0]).unwrap();
    let more =
        format!("allow = [\"papers.example.com\"]\n[outbound]\nca = \"{}\"\n", file.display());
    let (gateway, providers) = gateway("all", &more, &names).await;
    std::fs::remove_file(&file).unwrap();
    for (field, (format, _, thing)) in FIELDS.into_iter().enumerate() {
        if thing == Paper && format != "chat" {
            let url = format!("https://papers.example.com:{}/", host.at.port());
            let got = send(&gateway, "chat", field, &url).await;
            assert_eq!(got.status, 200, "{}", got.text());
            let asked = providers[0].requests().last().unwrap().json();
            let data = &asked["messages"][0]["content"][1]["file"]["file_data"];
            let data = data.as_str().unwrap().strip_prefix("data:application/pdf;base64,").unwrap();
            assert_eq!(STANDARD.decode(data).unwrap(), PDF);
        }
    }
    assert_eq!(host.requests().len(), 3);
}

#[tokio::test]
async fn nothing_forbidden_is_dialled_in_any_field_by_any_road() {
    let (names, canary) = (names(), CanaryServer::start().await);
    let list = Arc::new(forbidden_urls(canary.port));
    let places = Arc::clone(&list);
    let host = TestServer::start("127.0.0.1", None, move |request: &Request<Incoming>| {
        let (status, place) = request.uri().path().trim_start_matches('/').split_once('/').unwrap();
        let place = place.parse().ok().and_then(|place: usize| places.get(place));
        let place = place.filter(|place| place.parse::<http::HeaderValue>().is_ok());
        let head = Response::builder().status(status.parse().unwrap_or(404));
        match place {
            Some(place) => head.header("location", place).body(Full::default()).unwrap(),
            None => head.status(404).body(Full::default()).unwrap(),
        }
    })
    .await;
    let media = format!("allow = [\"media.test\"]\nports = [443, {}]", canary.port);
    let (gateway, providers) = gateway("nothing", &media, &names).await;
    let mut tries: Vec<(usize, String, bool)> = Vec::new();
    for (inner, address) in INNER_ADDRESSES.iter().enumerate() {
        names.set_answers(&format!("only{inner}.example.com"), &[&[address]]);
        names.set_answers(&format!("also{inner}.example.com"), &[&["8.8.8.8", address]]);
    }
    for (field, (_, place, _)) in FIELDS.into_iter().enumerate() {
        for (at, url) in list.iter().enumerate() {
            // Without a scheme this field holds data, not an address.
            if !place.ends_with("file_data") || url.contains("://") {
                tries.push((field, url.clone(), false));
            }
            for status in [301, 302, 303, 307, 308] {
                let url = format!("http://media.test:{}/{status}/{at}", host.at.port());
                tries.push((field, url, true));
            }
        }
        for inner in 0..INNER_ADDRESSES.len() {
            for name in ["only", "also"] {
                let url = format!("https://{name}{inner}.example.com:{}/", canary.port);
                tries.push((field, url, true));
            }
        }
        tries.push((field, "https://nobody.example.com/".to_owned(), true));
    }
    let count = tries.len();
    assert!(count >= 5_000, "{count}");
    let (gateway, all) = (&gateway, &FIELDS);
    iter(tries)
        .for_each_concurrent(16, |(field, url, fetched)| async move {
            let (_, place, thing) = all[field];
            let got = send(gateway, "chat", field, &url).await;
            assert_eq!(got.status, 400, "{place} {url}: {}", got.text());
            let text = got.text();
            if fetched {
                let thing = match thing {
                    Picture => "a picture",
                    Paper => "a document",
                    Film => "a video",
                };
                let say = format!(
                    "`{place}` could not be fetched: it must be a public HTTPS address that gives \
                     {thing} of at most 20 MiB within 10s"
                );
                assert!(text.contains(&say), "{place} {url}: {text}");
            }
        })
        .await;
    assert_eq!(canary.connection_count().await, 0);
    assert!(providers.iter().all(|provider| provider.requests().is_empty()));
    gateway.wait_until_settled().await;
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(
        (&key["spent_usd"], &key["held_usd"]),
        (&json!("0.000000000"), &json!("0.000000000"))
    );
}

#[tokio::test]
async fn a_dry_run_fetches_nothing_and_says_so() {
    let (names, host) = (names(), host().await);
    let (gateway, _) = gateway("nothing", "allow = [\"media.test\"]", &names).await;
    let url = format!("http://media.test:{}/Picture", host.at.port());
    for (field, (_, place, thing)) in FIELDS.into_iter().enumerate() {
        let (path, body) = request("chat", field, &url);
        let ask = gateway.post(&path, &body).header("x-portunus-dry-run", "true");
        let got = ask.header("x-portunus-strict", "true").send().await;
        assert_eq!(got.status, 200, "{}", got.text());
        let told = got.json();
        assert_eq!((&told["fetches"], &told["fetched"]), (&json!([place]), &json!(false)));
        // A picture has its own upper bound; anything else counts as the whole window.
        let most: f64 = told["quote"]["at_most_usd"].as_str().unwrap().parse().unwrap();
        let at_least = if thing == Picture { 0.016 } else { 1.048 };
        assert!(most > at_least && (thing != Picture || most < 0.1), "{place}: {most}");
    }
    assert!(host.requests().is_empty());
    let (path, body) = request("chat", 0, "data:image/png;base64,AA");
    let got = gateway.post(&path, &body).header("x-portunus-dry-run", "true").send().await;
    assert!(got.json().get("fetches").is_none());
}

#[tokio::test]
async fn media_named_by_address_is_covered_by_the_hold() {
    let (names, host) = (names(), host().await);
    let (gateway, providers) = gateway("nothing", "allow = [\"media.test\"]", &names).await;
    let cap = Some(canon::Money::from_nanos(500_000_000));
    let ask = NewKey { name: "half a dollar".to_owned(), cap, models: vec![], expires: None };
    let app = &gateway.app;
    let account = app.store.accounts().await.unwrap().remove(0);
    let (record, key) = ask.into_record(&account.id, &app.engine.keys, app.clock.now()).unwrap();
    app.store.add_key(&record).await.unwrap();
    let url = format!("http://media.test:{}/Paper", host.at.port());
    let (path, body) = request("chat", 4, &url);
    let got = gateway.post(&path, &body).key(&key).send().await;
    assert_eq!(got.status, 429, "{}", got.text());
    assert!(
        host.requests().is_empty() && providers[0].requests().is_empty(),
        "no money, no errand"
    );
    let (path, body) = request("chat", 3, &url.replace("Paper", "Picture"));
    let got = gateway.post(&path, &body).key(&key).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn fetching_can_be_switched_off_and_is_bounded() {
    let (names, host) = (names(), host().await);
    let (off, providers) =
        gateway("nothing", "fetch = false\nallow = [\"media.test\"]", &names).await;
    let url = format!("http://media.test:{}/Picture", host.at.port());
    let got = send(&off, "chat", 0, &url).await;
    assert_eq!(got.status, 400);
    assert!(got.text().contains("must stand in the request itself"), "{}", got.text());
    assert!(providers[0].requests().is_empty());

    let (gateway, _) = gateway("nothing", "allow = [\"media.test\"]", &names).await;
    let image = |url: &str| json!({ "type": "image_url", "image_url": { "url": url } });
    let ask = |parts: Vec<Value>| {
        let body = json!({ "model": "chat", "messages": [{ "role": "user", "content": parts }] });
        gateway.post("/v1/chat/completions", &body).send()
    };
    let got = ask((0..21).map(|at| image(&format!("{url}?{at}"))).collect()).await;
    assert_eq!(got.status, 400);
    assert_eq!(got.json()["error"]["param"], "messages[0].content[20].image_url.url");
    assert!(host.requests().is_empty());
    assert_eq!(ask(vec![image(&url); 30]).await.status, 200);
    assert_eq!(host.requests().len(), 1, "the same address is fetched once");
}

#[tokio::test]
async fn a_caller_that_leaves_ends_the_errand() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let names = names();
    let (gateway, _) = gateway("nothing", "allow = [\"media.test\"]", &names).await;
    let url = format!("http://media.test:{port}/");
    let mut asking = Box::pin(send(&gateway, "chat", 0, &url));
    let mut stream = tokio::select! {
        got = &mut asking => panic!("an answer without a picture: {}", got.text()),
        accepted = listener.accept() => accepted.unwrap().0,
    };
    let mut head = [0; 16];
    tokio::select! {
        got = &mut asking => panic!("an answer without a picture: {}", got.text()),
        read = stream.read_exact(&mut head) => assert!(read.is_ok()),
    }
    drop(asking);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    gateway.wait_until_settled().await;
    let key = gateway.get("/v1/key").send().await.json();
    assert_eq!(
        (&key["spent_usd"], &key["held_usd"]),
        (&json!("0.000000000"), &json!("0.000000000"))
    );
}

#[tokio::test]
async fn a_provider_that_redirects_is_unavailable_and_not_followed() {
    let canary = CanaryServer::start().await;
    for status in [301, 302, 303, 307, 308] {
        let head = format!(
            "HTTP/1.1 {status} X\r\nlocation: http://127.0.0.1:{}/\r\ncontent-length: 0\r\n\r\n",
            canary.port
        );
        let provider =
            ScriptedProvider::start(vec![vec![AnswerStep::Bytes(head.into_bytes())]]).await;
        let gateway = TestGateway::with_config(&provider.config("chat")).await;
        let got = send(&gateway, "m", 0, "data:image/png;base64,AA").await;
        assert_eq!(got.status, 503, "{}", got.text());
        assert_eq!(provider.requests().len(), 1);
    }
    assert_eq!(canary.connection_count().await, 0);
}
