//! A stored secret appears in no answer, log, metric or file.

use super::*;
use crate::thread_log::ThreadLog;

/// Any twelve letters of the secret, as they are, in base64 or in hex.
fn traces(bytes: &[u8]) -> Option<String> {
    use base64::Engine as _;
    let encode = |part: &str| base64::engine::general_purpose::STANDARD.encode(part);
    let hex = |part: &str| part.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let pieces = SECRET.as_bytes().windows(12).map(|w| String::from_utf8(w.to_vec()).unwrap());
    pieces
        .flat_map(|piece| [encode(&piece), hex(&piece), piece])
        .find(|piece| memchr::memmem::find(bytes, piece.as_bytes()).is_some())
}

#[tokio::test]
async fn a_secret_is_nowhere_but_where_it_belongs() {
    let log = ThreadLog::new(tracing::Level::TRACE);
    let refuse = testkit::reply(401, "application/json", "{\"error\":{\"message\":\"no\"}}");
    let provider = ScriptedProvider::start(vec![chat_reply("hi", 1, 1), refuse]).await;
    let gateway = TestGateway::with_config(OPEN).await;
    furnish(&gateway, &provider.url).await;
    let mut said = Vec::new();
    for _ in 0..2 {
        said.push(gateway.post(CHAT, &hello("m")).send().await);
    }
    for path in ["/providers", "/providers/house", "/models", "/models/m", "/audit", "/health"] {
        said.push(admin(&gateway, Method::GET, path, Value::Null).await);
    }
    said.push(admin(&gateway, Method::GET, "/vault", Value::Null).await);
    said.push(admin(&gateway, Method::POST, "/providers/house/check", json!({})).await);
    // A secret in the wrong place is not repeated either.
    for wrong in [
        json!({ "name": "k", "auth": SECRET }),
        json!({ "name": "k", "value": { "env": SECRET } }),
        json!({ "name": "k", "auth": { "bearer": [SECRET] } }),
        json!({ "name": "k", "auth": { "header": "x y", "value": SECRET } }),
        json!({ "name": "k", "auth": { "sigv4": SECRET } }),
        json!({ "name": "k", "auth": { "google": { "private_key": SECRET, "type": "no" } } }),
    ] {
        let got = admin(&gateway, Method::POST, "/providers/house/credentials", wrong).await;
        assert_eq!(got.status, 400, "{}", got.text());
        said.push(got);
    }
    said.push(gateway.get("/metrics").send().await);
    assert_eq!(admin(&gateway, Method::POST, "/vault/rekey", json!({})).await.status, 200);
    for got in &said {
        assert_eq!(traces(&got.body), None, "{}", got.text());
        assert_eq!(traces(format!("{:?}", got.headers).as_bytes()), None);
    }
    gateway.wait_until_settled().await;
    assert_eq!(shown(&provider).first().map(String::as_str), Some(SECRET), "it does work");
    let debug = format!("{:?}", gateway.app.config());
    assert_eq!(traces(debug.as_bytes()), None);
    let logged = log.take();
    assert!(!logged.is_empty());
    assert_eq!(traces(&logged), None);
    // The database on disk with its side files, and every other file in the folder.
    let mut files = 0;
    let mut folders = vec![gateway.data_folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                let bytes = std::fs::read(&path).unwrap();
                assert_eq!(traces(&bytes), None, "{}", path.display());
            }
        }
    }
    assert!(files >= 2, "the database and the key at least");
}
