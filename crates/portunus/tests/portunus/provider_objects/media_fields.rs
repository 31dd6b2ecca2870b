//! Fields of the chat and responses formats, and of their imitations, in which a provider takes a URL:
//! none of them is a way around the guard.

use serde_json::{Value, json};
use testkit::{ScriptedProvider, TestGateway};

use super::{fetching, send, shared};

const PRIVATE: &str = "http://10.1.2.3/x";
const GOOGLES: &str = "https://generativelanguage.googleapis.com/v1beta/files/x";

/// Parts of a chat message with a URL, each with its path in the part.
fn chat_parts(url: &str) -> Vec<(Value, &'static str)> {
    let nested = json!({ "url": url });
    vec![
        (json!({ "type": "image_url", "image_url": nested }), "image_url.url"),
        (json!({ "type": "video_url", "video_url": nested }), "video_url.url"),
        (json!({ "type": "audio_url", "audio_url": nested }), "audio_url.url"),
        (json!({ "type": "document_url", "document_url": url }), "document_url"),
        (json!({ "type": "file_url", "file_url": nested }), "file_url.url"),
        (json!({ "type": "image", "image": url }), "image"),
        (json!({ "type": "video", "video": url }), "video"),
        (json!({ "type": "audio", "audio": url }), "audio"),
        (json!({ "type": "image", "url": url }), "url"),
        (json!({ "type": "image", "source": { "type": "url", "url": url } }), "source.url"),
        (
            json!({ "type": "file", "file": { "file_data": url, "filename": "a" } }),
            "file.file_data",
        ),
    ]
}

/// Parts of an item of the responses format with a URL, each with its path in the part.
fn responses_parts(url: &str) -> Vec<(Value, &'static str)> {
    let nested = json!({ "url": url });
    vec![
        (json!({ "type": "input_image", "image_url": url }), "image_url"),
        (json!({ "type": "input_file", "file_url": url }), "file_url"),
        (json!({ "type": "input_file", "file_data": url, "filename": "a" }), "file_data"),
        (json!({ "type": "input_video", "video_url": url }), "video_url"),
        (json!({ "type": "input_video", "video_url": nested }), "video_url.url"),
        (json!({ "type": "audio_url", "audio_url": nested }), "audio_url.url"),
    ]
}

fn chat(part: &Value) -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": [part] }] })
}

#[tokio::test]
async fn a_private_address_is_refused_in_every_media_field() {
    for (format, path) in [("chat", "/v1/chat/completions"), ("responses", "/v1/responses")] {
        let provider = ScriptedProvider::start(Vec::new()).await;
        let config = fetching(&provider.config(format));
        let gateway = TestGateway::with_config(&config).await;
        let mut requests = Vec::new();
        if format == "chat" {
            for (part, field) in chat_parts(PRIVATE) {
                requests.push((chat(&part), format!("messages[0].content[0].{field}")));
            }
        } else {
            for (part, field) in responses_parts(PRIVATE) {
                let input = json!([{ "role": "user", "content": [part] }]);
                let body = json!({ "model": "m", "input": input });
                requests.push((body, format!("input[0].content[0].{field}")));
            }
        }
        for (body, field) in requests {
            let got = send(&gateway, "call", path, &body).await;
            assert_eq!(got.status, 400, "{field}: {}", got.text());
            assert_eq!(got.json()["error"]["param"], field, "{}", got.text());
        }
        assert_eq!(provider.requests().len(), 0, "{format}");
    }
}

#[tokio::test]
async fn a_file_of_googles_service_is_not_left_to_a_chat_provider() {
    let provider = ScriptedProvider::start(Vec::new()).await;
    let config = fetching(&provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    // True if the provider gets the URL. The gateway fetches what it reads, and refuses the rest.
    let is_left = async |part: &Value, field: &str| {
        let got = send(&gateway, "dry run", "/v1/chat/completions", &chat(part)).await;
        if got.status == 400 {
            let path = format!("messages[0].content[0].{field}");
            assert_eq!(got.json()["error"]["param"], path, "{}", got.text());
            return false;
        }
        assert_eq!(got.status, 200, "{field}: {}", got.text());
        got.json().get("fetches").is_none()
    };
    for url in [GOOGLES, "https://Generativelanguage.Googleapis.com/v1beta/files/x"] {
        for (part, field) in chat_parts(url) {
            assert!(!is_left(&part, field).await, "{field}");
        }
    }
    for (part, field) in chat_parts("https://e.example/files/x.png") {
        assert!(is_left(&part, field).await, "{field}");
    }
    gateway.reload(&shared(&config));
    for (part, field) in chat_parts(GOOGLES) {
        assert!(is_left(&part, field).await, "{field}");
    }
}

/// A provider in a private network could be sent anywhere in it.
#[tokio::test]
async fn a_provider_in_a_private_network_gets_no_url_in_any_media_field() {
    let provider = ScriptedProvider::start(Vec::new()).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    for (part, field) in chat_parts("https://e.example/files/x.png") {
        let got = send(&gateway, "dry run", "/v1/chat/completions", &chat(&part)).await;
        let is_fetched = got.status == 200 && got.json().get("fetches").is_some();
        assert!(is_fetched || got.status == 400, "{field}: {}", got.text());
    }
}

/// The same holds for addresses that a tool of the provider asks.
#[tokio::test]
async fn a_provider_in_a_private_network_gets_no_address_of_a_tool() {
    const URL: &str = "https://e.example/mcp";
    let hi = json!([{ "role": "user", "content": "Hi" }]);
    let contents = json!([{ "role": "user", "parts": [{ "text": "Hi" }] }]);
    let mcp = json!([{ "type": "mcp", "server_label": "x", "server_url": URL }]);
    let transport = json!([{ "mcpServers": [{ "name": "x",
        "streamableHttpTransport": { "url": URL } }] }]);
    let index = json!([{ "retrieval": { "externalApi": { "endpoint": URL } } }]);
    let servers = json!([{ "type": "url", "name": "x", "url": URL }]);
    for (format, path, body, field) in [
        (
            "chat",
            "/v1/chat/completions",
            json!({ "model": "m", "messages": hi, "tools": mcp }),
            "tools[0].server_url",
        ),
        (
            "responses",
            "/v1/responses",
            json!({ "model": "m", "input": "Hi", "tools": mcp }),
            "tools[0].server_url",
        ),
        (
            "messages",
            "/v1/messages",
            json!({ "model": "m", "max_tokens": 9, "messages": hi, "mcp_servers": servers }),
            "mcp_servers[0].url",
        ),
        (
            "native",
            "/v1beta/models/m:generateContent",
            json!({ "contents": contents, "tools": transport }),
            "tools[0].mcpServers[0].streamableHttpTransport.url",
        ),
        (
            "native",
            "/v1beta/models/m:generateContent",
            json!({ "contents": contents, "tools": index }),
            "tools[0].retrieval.externalApi.endpoint",
        ),
    ] {
        let provider = ScriptedProvider::start(Vec::new()).await;
        let gateway = TestGateway::with_config(&provider.config(format)).await;
        for way in ["call", "dry run"] {
            let got = send(&gateway, way, path, &body).await;
            assert_eq!(got.status, 400, "{format} {way}: {}", got.text());
            assert!(got.text().contains(field), "{format} {way}: {}", got.text());
        }
        assert_eq!(provider.requests().len(), 0, "{format}");
        gateway.reload(&fetching(&provider.config(format)));
        let got = send(&gateway, "dry run", path, &body).await;
        assert_eq!(got.status, 200, "{format}: {}", got.text());
        assert!(got.text().contains(URL), "{format}: {}", got.text());
    }
}

/// No table lists what a server opens, so any address outside of the texts is refused.
#[tokio::test]
async fn a_provider_in_a_private_network_gets_no_address_in_any_other_field() {
    const URL: &str = "https://e.example/x";
    const DATA: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let hi = json!([{ "role": "user", "content": "Hi" }]);
    let with = |messages: &Value, field: &str, value: Value| {
        let mut body = json!({ "model": "m", "max_tokens": 99, "messages": messages });
        body[field] = value;
        body
    };
    let beside = |field: &str, value: Value| {
        let mut message = json!({ "role": "user", "content": "Hi" });
        message[field] = value;
        json!({ "model": "m", "messages": [message] })
    };
    let function =
        json!({ "type": "function", "function": { "name": "f", "parameters": { "$ref": URL } } });
    let mut asked = function.clone();
    asked["function"]["name"] = json!("g");
    asked["server_url"] = json!(URL);
    let image = json!({ "type": "image", "source": { "type": "url", "url": URL } });
    let document = |inner: Value| {
        json!({ "type": "document",
        "source": { "type": "content", "content": [inner] } })
    };
    let nested = document(document(document(image)));
    let mask = json!([{ "type": "image_generation", "input_image_mask": { "image_url": URL } }]);
    let chat_path = "/v1/chat/completions";
    for (format, path, body, field) in [
        ("chat", chat_path, beside("images", json!([{ "url": URL }])), "messages[0].images[0].url"),
        (
            "chat",
            chat_path,
            beside("images", json!([{ "type": "image_url", "image_url": { "url": URL } }])),
            "messages[0].images[0].image_url.url",
        ),
        ("chat", chat_path, beside("VIDEOS", json!([URL])), "messages[0].VIDEOS[0]"),
        ("chat", chat_path, with(&hi, "tools", json!([function, asked])), "tools[1].server_url"),
        (
            "chat",
            chat_path,
            with(&hi, "mcp_servers", json!([{ "url": URL }])),
            "mcp_servers[0].url",
        ),
        (
            "chat",
            chat_path,
            chat(&json!({ "type": "image", "image": { "url": URL } })),
            "messages[0].content[0].image.url",
        ),
        (
            "chat",
            chat_path,
            chat(&json!({ "type": "image_url", "image_url": { "url": DATA, "URL": URL } })),
            "messages[0].content[0].image_url.URL",
        ),
        (
            "responses",
            "/v1/responses",
            json!({ "model": "m", "input": "Hi", "tools": mask }),
            "tools[0].input_image_mask.image_url",
        ),
        (
            "messages",
            "/v1/messages",
            with(&json!([{ "role": "user", "content": [nested] }]), "top_k", json!(1)),
            "source.content[0].source.content[0].source.content[0].source.url",
        ),
        (
            "messages",
            "/v1/messages",
            with(&hi, "mcp_servers", json!([{ "type": "url", "name": "x", "URL": URL }])),
            "mcp_servers[0].URL",
        ),
    ] {
        let provider = ScriptedProvider::start(Vec::new()).await;
        let gateway = TestGateway::with_config(&provider.config(format)).await;
        for way in ["call", "dry run"] {
            let got = send(&gateway, way, path, &body).await;
            assert_eq!(got.status, 400, "{field} {way}: {}", got.text());
            assert!(got.text().contains(field), "{field} {way}: {}", got.text());
        }
        assert_eq!(provider.requests().len(), 0, "{format}");
        gateway.reload(&fetching(&provider.config(format)));
        let got = send(&gateway, "dry run", path, &body).await;
        assert_eq!(got.status, 200, "{field}: {}", got.text());
        assert!(got.text().contains(URL), "{field}: {}", got.text());
    }
}

/// Texts, schemas and arguments with addresses reach a provider in a private network.
#[tokio::test]
async fn addresses_in_texts_and_schemas_pass() {
    const URL: &str = "https://e.example/x";
    let provider = ScriptedProvider::start(Vec::new()).await;
    let gateway = TestGateway::with_config(&provider.config("chat")).await;
    let function = json!({ "name": "f", "description": URL,
        "parameters": { "type": "object", "properties": { "url": { "type": "string",
            "default": URL } }, "$schema": URL } });
    let body = json!({ "model": "m", "stop": URL, "user": URL, "messages": [
        { "role": "user", "content": [{ "type": "text", "text": URL }] },
        { "role": "assistant", "content": URL, "tool_calls": [{ "id": "c", "type": "function",
            "function": { "name": "f", "arguments": json!({ "url": URL }).to_string() } }] },
        { "role": "tool", "tool_call_id": "c", "content": URL },
    ], "tools": [{ "type": "function", "function": function }] });
    let got = send(&gateway, "dry run", "/v1/chat/completions", &body).await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert_eq!(got.text().matches(URL).count(), 9, "{}", got.text());
}

#[tokio::test]
async fn a_provider_in_a_private_network_gets_no_address_to_embed() {
    const URL: &str = "https://e.example/x.png";
    let provider = ScriptedProvider::start(Vec::new()).await;
    let config = format!("{}kind = \"embedding\"\n", provider.config("chat"));
    let gateway = TestGateway::with_config(&config).await;
    let part = json!([{ "role": "user", "content": [{ "type": "image_url",
        "image_url": { "url": URL } }] }]);
    for (name, value, shown) in [
        ("images", json!([URL]), "images[0]"),
        ("image_url", json!(URL), "image_url"),
        ("messages", part, "messages[0].content[0].image_url.url"),
    ] {
        let mut body = json!({ "model": "m", "input": URL });
        body[name] = value;
        for way in ["call", "dry run"] {
            let got = send(&gateway, way, "/v1/embeddings", &body).await;
            assert_eq!(got.status, 400, "{shown} {way}: {}", got.text());
            assert_eq!(got.json()["error"]["param"], shown, "{way}: {}", got.text());
        }
    }
    assert_eq!(provider.requests().len(), 0);
    let body = json!({ "model": "m", "input": [URL, "a"] });
    let got = send(&gateway, "dry run", "/v1/embeddings", &body).await;
    assert_eq!(got.status, 200, "{}", got.text());
}
