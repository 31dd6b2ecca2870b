//! Reservations for a prompt that is larger than the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Money;
use serde_json::{Value, json};
use testkit::{AnswerStep, ScriptedProvider, TestGateway, chat_reply, reply};

use crate::money::{CHAT, capped};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";
const NATIVE: &str = "/v1beta/models/m:generateContent";

/// 100,000 tokens at one dollar per million.
const WINDOW_NANOS: i64 = 100_000_000;

/// A gateway in front of one provider with shared objects. `extra` is the model's.
async fn gateway(format: &str, extra: &str) -> (ScriptedProvider, TestGateway) {
    let provider = ScriptedProvider::start(vec![chat_reply("never", 1, 1)]).await;
    let config = provider.config(format);
    let shared = "auth = \"none\"\nobjects = \"shared\"\nfetches = \"all\"";
    let config = config.replace("auth = \"none\"", shared);
    let gateway = TestGateway::with_config(&format!("{config}{extra}")).await;
    (provider, gateway)
}

/// The reservation of a call, as a dry run tells it.
async fn reservation(gateway: &TestGateway, path: &str, body: &Value) -> Money {
    let got = gateway.post(path, body).header("x-portunus-dry-run", "true").send().await;
    assert_eq!(got.status, 200, "{body}: {}", got.text());
    got.json()["quote"]["at_most_usd"].as_str().unwrap().parse().unwrap()
}

fn with(mut body: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("an object") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

fn plain_body(path: &str) -> Value {
    match path {
        CHAT => json!({ "model": "m", "max_tokens": 50,
                        "messages": [{ "role": "user", "content": "Hi" }] }),
        RESPONSES => json!({ "model": "m", "max_output_tokens": 50, "input": "Hi" }),
        MESSAGES => json!({ "model": "m", "max_tokens": 50,
                            "messages": [{ "role": "user", "content": "Hi" }] }),
        _ => json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hi" }] }],
                     "generationConfig": { "maxOutputTokens": 50 } }),
    }
}

/// Requests whose prompt is not in the body: path, format and the fields that refer to it.
fn references() -> Vec<(&'static str, &'static str, Value)> {
    let user = |part: Value| json!([{ "role": "user", "content": [part] }]);
    let chat_file = user(json!({ "type": "file", "file": { "file_id": "file-1" } }));
    let file = user(json!({ "type": "document",
                            "source": { "type": "file", "file_id": "file_1" } }));
    let uri = json!({ "fileData": { "fileUri": "files/1", "mimeType": "application/pdf" } });
    let tool = |tool: Value| json!({ "tools": [tool] });
    let mcp = json!({ "type": "mcp", "server_label": "s", "server_url": "https://mcp.example" });
    let server = json!({ "type": "url", "url": "https://mcp.example", "name": "s" });
    vec![
        (CHAT, "chat", json!({ "messages": chat_file })),
        (CHAT, "chat", tool(json!({ "type": "mcp", "server_label": "s" }))),
        (CHAT, "chat", json!({ "plugins": [{ "id": "file-parser" }] })),
        (RESPONSES, "responses", json!({ "plugins": [{ "id": "file-parser" }] })),
        (MESSAGES, "messages", json!({ "plugins": [{ "id": "file-parser" }] })),
        (RESPONSES, "responses", json!({ "prompt": { "id": "pmpt_1" } })),
        (
            RESPONSES,
            "responses",
            json!({ "input": [{ "role": "user", "content":
            [{ "type": "input_file", "file_id": "file-1" }] }] }),
        ),
        (RESPONSES, "responses", tool(mcp.clone())),
        (RESPONSES, "responses", tool(json!({ "type": "namespace", "name": "n", "tools": [mcp] }))),
        (
            RESPONSES,
            "responses",
            tool(json!({ "type": "file_search", "vector_store_ids": ["vs_1"] })),
        ),
        (
            RESPONSES,
            "responses",
            tool(json!({ "type": "code_interpreter", "container": { "type": "auto" } })),
        ),
        (MESSAGES, "messages", json!({ "messages": file })),
        (MESSAGES, "messages", tool(json!({ "type": "web_fetch_20250910", "name": "web_fetch" }))),
        (MESSAGES, "messages", json!({ "mcp_servers": [server] })),
        (NATIVE, "native", json!({ "cachedContent": "cachedContents/1" })),
        (NATIVE, "native", json!({ "contents": [{ "role": "user", "parts": [uri] }] })),
        (NATIVE, "native", tool(json!({ "urlContext": {} }))),
        (NATIVE, "native", tool(json!({ "url_context": {} }))),
        (
            NATIVE,
            "native",
            tool(json!({ "fileSearch": { "fileSearchStoreNames": ["fileSearchStores/1"] } })),
        ),
        (NATIVE, "native", tool(json!({ "mcpServers": [{ "name": "s" }] }))),
    ]
}

/// Tokens of a prediction that the reply does not have are billed as output.
#[tokio::test]
async fn a_prediction_may_be_output() {
    let (_provider, gateway) = gateway("chat", "context = 100000\n").await;
    let text = "word ".repeat(200);
    let body = plain_body(CHAT);
    let plain = reservation(&gateway, CHAT, &body).await;
    let body = with(body, json!({ "prediction": { "type": "content", "content": text } }));
    let held = reservation(&gateway, CHAT, &body).await;
    // A thousand bytes more of prompt, and as much output at two dollars per million.
    assert!(
        held >= plain.saturating_add(Money::from_nanos(1_000 * 1_000 + 1_000 * 2_000)),
        "{held}"
    );
}

/// A video that is declared as a picture is a video.
#[tokio::test]
async fn a_video_site_is_no_picture() {
    let (_provider, gateway) = gateway("native", "context = 100000\n").await;
    let at = |url: &str| {
        let file = json!({ "fileData": { "fileUri": url, "mimeType": "image/png" } });
        with(plain_body(NATIVE), json!({ "contents": [{ "role": "user", "parts": [file] }] }))
    };
    let held = async |url: &str| reservation(&gateway, NATIVE, &at(url)).await;
    let least = Money::from_nanos(WINDOW_NANOS);
    for film in ["https://www.youtube.com/watch?v=x", "https://m.youtube.com/watch?v=x"] {
        assert!(held(film).await >= least, "{film}");
    }
    assert!(held("https://pictures.example/x.png").await < least);
}

#[tokio::test]
async fn content_that_only_the_provider_sees_reserves_the_window() {
    for (path, format, fields) in references() {
        let (provider, gateway) = gateway(format, "context = 100000\n").await;
        let body = with(plain_body(path), fields);
        let least = Money::from_nanos(WINDOW_NANOS);
        let held = reservation(&gateway, path, &body).await;
        let most = least.saturating_add(Money::from_nanos(1_000_000));
        assert!((least..most).contains(&held), "{format} {body}: {held}");
        let key = capped(&gateway, "0.05").await;
        let got = gateway.post(path, &body).key(&key).send().await;
        assert_eq!(got.status, 429, "{format} {body}: {}", got.text());
        assert!(provider.requests().is_empty(), "{format} {body}");
    }
}

#[tokio::test]
async fn what_the_caller_runs_itself_reserves_no_window() {
    let tool = |tool: Value| json!({ "tools": [tool] });
    for (path, format, fields) in [
        (
            RESPONSES,
            "responses",
            tool(json!({ "type": "shell",
            "environment": { "type": "local" } })),
        ),
        (RESPONSES, "responses", tool(json!({ "type": "apply_patch" }))),
        (MESSAGES, "messages", tool(json!({ "type": "bash_20250124", "name": "bash" }))),
        (NATIVE, "native", tool(json!({ "computerUse": {} }))),
        (MESSAGES, "messages", tool(json!({ "type": "computer_toolset_20260801" }))),
    ] {
        let (_provider, gateway) = gateway(format, "context = 100000\n").await;
        let body = with(plain_body(path), fields);
        let held = reservation(&gateway, path, &body).await;
        // Their schemas are part of the prompt.
        let (least, most) = (Money::from_nanos(500_000), Money::from_nanos(20_000_000));
        assert!((least..most).contains(&held), "{format} {body}: {held}");
    }
}

#[tokio::test]
async fn an_unknown_window_is_a_large_one() {
    let (_provider, gateway) = gateway("chat", "").await;
    let body = with(plain_body(CHAT), json!({ "plugins": [] }));
    let held = reservation(&gateway, CHAT, &body).await;
    assert!(held >= Money::from_nanos((1 << 20) * 1_000), "{held}");
}

/// A prompt is at most as long as the window, however many bytes it has.
#[tokio::test]
async fn a_long_text_reserves_at_most_the_window() {
    let (_provider, gateway) = gateway("chat", "context = 1000\n").await;
    let text = "word ".repeat(10_000);
    let body = with(plain_body(CHAT), json!({ "messages": [{ "role": "user", "content": text }] }));
    let held = reservation(&gateway, CHAT, &body).await;
    assert!(held <= Money::from_nanos(1_100_000), "{held}");
}

/// A document whose page is named a hundred times.
fn document(pages: usize) -> Vec<u8> {
    let kids = "3 0 R ".repeat(pages);
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!("<< /Type /Pages /Count {pages} /Kids [{kids}] >>"),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>".to_owned(),
        "<< /Length 40 >>\nstream\nBT (A quiet harbour.) Tj ET\nendstream".to_owned(),
    ];
    let mut file = b"%PDF-1.7\n".to_vec();
    for (at, object) in objects.iter().enumerate() {
        file.extend_from_slice(format!("{} 0 obj\n{object}\nendobj\n", at + 1).as_bytes());
    }
    file.extend_from_slice(b"trailer << /Root 1 0 R >>\n%%EOF");
    file
}

/// The head of a picture of that size, and bytes behind it.
fn picture(side: u32, bytes: usize) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend_from_slice(&side.to_be_bytes());
    file.extend_from_slice(&side.to_be_bytes());
    file.extend_from_slice(b"\x08\x02\0\0\0");
    file.resize(bytes.max(64), 7);
    file
}

/// A video whose header and samples tell so many seconds.
fn video(seconds: u32) -> Vec<u8> {
    let part = |kind: &[u8; 4], content: &[u8]| {
        let length = u32::try_from(content.len() + 8).unwrap().to_be_bytes();
        [&length[..], kind, content].concat()
    };
    let (scale, length) = (1_u32.to_be_bytes(), seconds.to_be_bytes());
    let header = part(b"mvhd", &[&[0; 12][..], &scale, &length, &[0; 80]].concat());
    [part(b"ftyp", b"isom\0\0\0\0"), part(b"moov", &header), part(b"mdat", &[0; 64])].concat()
}

/// A request with a file in it, in the words of a format.
fn with_file(path: &str, mime: &str, file: &[u8]) -> Value {
    let data = STANDARD.encode(file);
    let url = format!("data:{mime};base64,{data}");
    let is_image = mime.starts_with("image/");
    let user = |part: Value| json!([{ "role": "user", "content": [part] }]);
    let fields = match (path, is_image) {
        (CHAT, true) => {
            json!({ "messages": user(json!({ "type": "image_url", "image_url": { "url": url } })) })
        }
        (CHAT, false) => json!({ "messages": user(json!({ "type": "file",
            "file": { "filename": "a.pdf", "file_data": url } })) }),
        (RESPONSES, true) => {
            json!({ "input": user(json!({ "type": "input_image", "image_url": url })) })
        }
        (RESPONSES, false) => json!({ "input": user(json!({ "type": "input_file",
            "filename": "a.pdf", "file_data": url })) }),
        (MESSAGES, _) => json!({ "messages": user(json!({
            "type": if is_image { "image" } else { "document" },
            "source": { "type": "base64", "media_type": mime, "data": data } })) }),
        _ => json!({ "contents": [{ "role": "user", "parts": [
            { "inlineData": { "mimeType": mime, "data": data } }] }] }),
    };
    with(plain_body(path), fields)
}

const FORMATS: [(&str, &str); 4] =
    [(CHAT, "chat"), (RESPONSES, "responses"), (MESSAGES, "messages"), (NATIVE, "native")];

#[tokio::test]
async fn files_reserve_by_their_pages_pixels_and_seconds() {
    let docx = [b"PK\x03\x04".to_vec(), vec![0; 200]].concat();
    for (path, format) in FORMATS {
        let (_provider, gateway) = gateway(format, "context = 2000000\n").await;
        let is_google = format == "native";
        let page = if is_google { 2_560 } else { 5_120 };
        for (mime, file, tokens) in [
            ("application/pdf", document(100), 100 * page..101 * page),
            ("application/pdf", document(1), page..page + 1_000),
            // Many bytes of few pixels, and few bytes of many pixels.
            ("image/png", picture(512, 1 << 20), 2_304..3_000),
            ("image/png", picture(8_000, 64), 16_384..34_000),
            ("application/vnd.openxmlformats", docx.clone(), 2_000_000..2_001_000),
        ] {
            let body = with_file(path, mime, &file);
            let held = reservation(&gateway, path, &body).await.as_nanos() / 1_000;
            // Fifty tokens of output at twice the price.
            let held = u64::try_from(held).unwrap() - 100;
            assert!(tokens.contains(&held), "{format} {mime} of {}: {held}", file.len());
        }
    }
    let (_provider, gateway) = gateway("native", "context = 2000000\n").await;
    let mut body = with_file(NATIVE, "video/mp4", &video(3_600));
    let held = reservation(&gateway, NATIVE, &body).await;
    assert!(held >= Money::from_nanos(3_600 * 320 * 1_000), "{held}");
    assert!(held < Money::from_nanos(3_600 * 330 * 1_000), "{held}");
    body["contents"][0]["parts"][0]["videoMetadata"] = json!({ "fps": 24 });
    let held = reservation(&gateway, NATIVE, &body).await;
    assert!(held >= Money::from_nanos(2_000_000 * 1_000), "{held}");
}

/// A conversation with a call of a tool whose result has a file.
fn with_result(path: &str, mime: &str, file: &[u8]) -> Value {
    let data = STANDARD.encode(file);
    let url = format!("data:{mime};base64,{data}");
    let fields = match path {
        CHAT => json!({ "messages": [
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": "c_1",
              "type": "function", "function": { "name": "f", "arguments": "{}" } }] },
            { "role": "tool", "tool_call_id": "c_1", "content": [
              { "type": "file", "file": { "filename": "a.pdf", "file_data": url } }] }] }),
        RESPONSES => json!({ "input": [
            { "type": "function_call", "call_id": "c_1", "name": "f", "arguments": "{}" },
            { "type": "function_call_output", "call_id": "c_1", "output": [
              { "type": "input_file", "filename": "a.pdf", "file_data": url }] }] }),
        MESSAGES => json!({ "messages": [
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "content": [
              { "type": "tool_use", "id": "c_1", "name": "f", "input": {} }] },
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c_1",
              "content": [{ "type": "document",
                "source": { "type": "base64", "media_type": mime, "data": data } }] }] }] }),
        _ => json!({ "contents": [
            { "role": "user", "parts": [{ "text": "Hi" }] },
            { "role": "model", "parts": [{ "functionCall": { "name": "f", "args": {} } }] },
            { "role": "user", "parts": [{ "functionResponse": { "name": "f", "response": {},
              "parts": [{ "inlineData": { "mimeType": mime, "data": data } }] } }] }] }),
    };
    with(plain_body(path), fields)
}

/// Texts that some reader takes for the file: other alphabets, blanks, odd heads.
fn disguises(file: &[u8]) -> Vec<String> {
    let data = STANDARD.encode(file);
    let broken: String = data
        .char_indices()
        .map(|(at, letter)| format!("{letter}{}", ["", " "][at % 9 / 8]))
        .collect();
    let percent: String = file.iter().map(|byte| format!("%{byte:02x}")).collect();
    vec![
        data.replace('+', "-").replace('/', "_"),
        data.trim_end_matches('=').to_owned(),
        format!("{data}="),
        broken.clone(),
        broken.replace(' ', "\r\n"),
        broken.replace(' ', "*"),
        format!("data:application/pdf;name=a.pdf;charset=\"x\";BASE64,{data}"),
        format!("data:;base64,{broken}"),
        format!("data:application/pdf,{percent}"),
    ]
}

/// However a document is written and wherever it stands, it reserves for its pages, or it is refused.
#[tokio::test]
async fn a_document_in_disguise_reserves_for_its_pages() {
    let (file, least) = (document(100), Money::from_nanos(100 * 2_560 * 1_000));
    for (path, format) in FORMATS {
        let (_provider, gateway) = gateway(format, "context = 2000000\n").await;
        let mut bodies = vec![with_result(path, "application/pdf", &file)];
        bodies.extend(disguises(&file).into_iter().map(|text| {
            let place = match path {
                CHAT => "/messages/0/content/0/file/file_data",
                RESPONSES => "/input/0/content/0/file_data",
                MESSAGES => "/messages/0/content/0/source/data",
                _ => "/contents/0/parts/0/inlineData/data",
            };
            let mut body = with_file(path, "application/pdf", &file);
            *body.pointer_mut(place).unwrap() = json!(text);
            body
        }));
        let mut held_bodies = 0;
        for body in bodies {
            let got = gateway.post(path, &body).header("x-portunus-dry-run", "true").send().await;
            if got.status == 400 {
                continue;
            }
            assert_eq!(got.status, 200, "{format} {body}: {}", got.text());
            let held: Money = got.json()["quote"]["at_most_usd"].as_str().unwrap().parse().unwrap();
            assert!(held >= least, "{format} {body}: {held}");
            held_bodies += 1;
        }
        assert!(held_bodies >= 3, "{format}");
    }
}

/// A file is what its declared type says: a long text may begin like a picture.
#[tokio::test]
async fn a_text_that_begins_like_a_picture_reserves_for_its_letters() {
    let text = b"A quiet harbour at dawn. ".repeat(4_000);
    let file = [b"GIF89a\x01\0\x01\0\0\0\0".to_vec(), text].concat();
    let least = Money::from_nanos(100_000 * 1_000);
    for (path, format) in [(CHAT, "chat"), (RESPONSES, "responses"), (NATIVE, "native")] {
        let (_provider, gateway) = gateway(format, "context = 2000000\n").await;
        let body = with_file(path, "text/plain", &file);
        assert!(reservation(&gateway, path, &body).await >= least, "{format}");
        let body = with_file(path, "image/gif", &file);
        assert!(reservation(&gateway, path, &body).await < least, "{format}");
    }
    // A text that looks like base64 of a picture.
    let (_provider, gateway) = gateway("messages", "context = 2000000\n").await;
    let mut body = with_file(MESSAGES, "application/pdf", &file);
    body["messages"][0]["content"][0]["source"]["type"] = json!("text");
    body["messages"][0]["content"][0]["source"]["media_type"] = json!("text/plain");
    assert!(reservation(&gateway, MESSAGES, &body).await >= least);
}

/// Answer of a provider that bills 2,320 tokens for each page of a document.
fn bill(format: &str, pages: u64) -> Vec<AnswerStep> {
    let input = pages * 2_320;
    let body = match format {
        "chat" => return chat_reply("Read.", input, 5),
        "responses" => json!({ "id": "resp_1", "object": "response", "created_at": 1,
            "status": "completed", "model": "up", "output": [{ "type": "message", "id": "msg_1",
            "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": "Read.", "annotations": [] }] }],
            "usage": { "input_tokens": input, "output_tokens": 5, "total_tokens": input + 5 } }),
        "messages" => json!({ "id": "msg_1", "type": "message", "role": "assistant",
            "model": "up", "content": [{ "type": "text", "text": "Read." }],
            "stop_reason": "end_turn", "stop_sequence": null,
            "usage": { "input_tokens": input, "output_tokens": 5 } }),
        _ => json!({ "candidates": [{ "index": 0, "finishReason": "STOP",
            "content": { "role": "model", "parts": [{ "text": "Read." }] } }],
            "usageMetadata": { "promptTokenCount": input, "candidatesTokenCount": 5,
                               "totalTokenCount": input + 5 } }),
    };
    reply(200, "application/json", &body.to_string())
}

/// A small file of many pages: the provider bills no more than the key pays, and the key no more than
/// its cap.
#[tokio::test]
async fn a_small_document_of_many_pages_stays_below_the_cap() {
    let file = document(100);
    assert!(file.len() < 1_400, "{}", file.len());
    let price = Money::from_nanos(232_000 * 1_000 + 5 * 2_000);
    for (path, format) in FORMATS {
        // A page is reserved by 5,120 tokens, and by 2,560 at Google.
        let calls = if format == "native" { 3 } else { 2 };
        for (cap, calls) in [("0.05", 0), ("0.75", calls)] {
            let provider = ScriptedProvider::start(vec![bill(format, 100)]).await;
            let config = format!("{}context = 1000000\n", provider.config(format));
            let gateway = TestGateway::with_config(&config).await;
            let key = capped(&gateway, cap).await;
            let body = with_file(path, "application/pdf", &file);
            let mut refused = 0;
            for _ in 0..5 {
                let got = gateway.post(path, &body).key(&key).send().await;
                refused += usize::from(got.status == 429);
                gateway.wait_until_settled().await;
            }
            let rows = gateway.app.store.export(None, 100).await.unwrap();
            let sum = |of: fn(&ledger::LedgerEntry) -> Money| {
                rows.iter().map(of).fold(Money::ZERO, Money::saturating_add)
            };
            let billed = provider.requests().len();
            let meter = (0..billed).fold(Money::ZERO, |sum, _| sum.saturating_add(price));
            assert_eq!((billed, refused), (calls, 5 - calls), "{format} {cap}");
            assert_eq!(sum(|row| row.cost), meter, "{format} {cap}");
            assert_eq!(sum(|row| row.absorbed), Money::ZERO, "{format} {cap}");
            assert!(meter <= cap.parse().unwrap(), "{format} {cap}: {meter}");
        }
    }
}

/// Tools of a provider are reserved by their most uses and charged by those in the answer.
#[tokio::test]
async fn tools_of_the_provider_are_reserved_and_charged() {
    let answer = json!({ "id": "resp_1", "object": "response", "created_at": 1,
        "status": "completed", "model": "up", "output": [
            { "type": "file_search_call", "id": "fs_1", "status": "completed", "queries": [] },
            { "type": "code_interpreter_call", "id": "ci_1", "container_id": "c_1", "code": "1" },
            { "type": "image_generation_call", "id": "ig_1", "result": "AA==" },
            { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
              "content": [{ "type": "output_text", "text": "Done.", "annotations": [] }] }],
        "tool_usage": { "image_gen": { "input_tokens": 5, "output_tokens": 1_000 } },
        "usage": { "input_tokens": 300, "output_tokens": 5, "total_tokens": 305 } });
    let answer = reply(200, "application/json", &answer.to_string());
    let provider = ScriptedProvider::start(vec![answer]).await;
    let config = provider.config("responses").replace(
        "output = \"2.00\"",
        "output = \"2.00\", per_file_search = \"0.0025\", per_code_run = \"0.03\", tool_image = \"30.00\"",
    );
    let gateway = TestGateway::with_config(&format!("{config}context = 1000\n")).await;
    let tools = json!([{ "type": "file_search" }, { "type": "image_generation" },
                       { "type": "code_interpreter", "container": { "type": "auto" } }]);
    let body = with(plain_body(RESPONSES), json!({ "tools": tools, "max_tool_calls": 2 }));
    let got = gateway.post(RESPONSES, &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let row = crate::money::row(&gateway).await;
    // The window and fifty tokens; two uses of each tool, the images of 6,240 tokens.
    let held = 1_000_000 + 100_000 + 5_000_000 + 60_000_000 + 2 * 6_240 * 30_000;
    assert_eq!(row.held, Some(Money::from_nanos(held)));
    let cost = 300_000 + 10_000 + 2_500_000 + 30_000_000 + 30_000_000;
    assert_eq!((row.cost, row.absorbed), (Money::from_nanos(cost), Money::ZERO), "{row:?}");
    let told = crate::money::receipt(&gateway, &got).await;
    assert!(told.to_string().contains("code_run"), "{told}");
}

/// A container costs by its memory, which only the request tells.
#[tokio::test]
async fn containers_are_reserved_and_charged_by_their_memory() {
    let answer = json!({ "id": "resp_1", "object": "response", "created_at": 1,
        "status": "completed", "model": "up", "output": [
            { "type": "code_interpreter_call", "id": "ci_1", "container_id": "c_1", "code": "1" },
            { "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
              "content": [{ "type": "output_text", "text": "Done.", "annotations": [] }] }],
        "usage": { "input_tokens": 300, "output_tokens": 5, "total_tokens": 305 } });
    let provider =
        ScriptedProvider::start(vec![reply(200, "application/json", &answer.to_string())]).await;
    let config = provider
        .config("responses")
        .replace("output = \"2.00\"", "output = \"2.00\", per_code_run = \"0.03\"");
    let gateway = TestGateway::with_config(&format!("{config}context = 1000\n")).await;
    let container = json!({ "type": "auto", "memory_limit": "64g" });
    let tools = json!([{ "type": "code_interpreter", "container": container }]);
    let body = with(plain_body(RESPONSES), json!({ "tools": tools, "max_tool_calls": 2 }));
    let got = gateway.post(RESPONSES, &body).send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    let row = crate::money::row(&gateway).await;
    let held = 1_000_000 + 100_000 + 2 * 64 * 30_000_000;
    assert_eq!(row.held, Some(Money::from_nanos(held)));
    let cost = 300_000 + 10_000 + 64 * 30_000_000;
    assert_eq!((row.cost, row.absorbed), (Money::from_nanos(cost), Money::ZERO), "{row:?}");
}

/// A model that searches by itself reserves for it, though no request asks for a search.
#[tokio::test]
async fn a_model_that_always_searches_reserves_its_searches() {
    let provider = ScriptedProvider::start(vec![chat_reply("never", 1, 1)]).await;
    let config = format!(
        "[providers.perplexity]\nbase = \"{}\"\nauth = \"none\"\n[models.m]\nlanes = \
         [\"perplexity/sonar-deep-research\"]\n",
        provider.url
    );
    let gateway = TestGateway::with_config(&config).await;
    let held = reservation(&gateway, CHAT, &plain_body(CHAT)).await;
    // Fifty searches of half a cent, and the window at two dollars per million.
    assert!(held >= Money::from_nanos(250_000_000 + 256_000_000), "{held}");
}
