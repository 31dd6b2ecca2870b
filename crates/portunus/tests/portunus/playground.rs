//! The console's playground on the real gateway: a call charged to a selected key, and its receipt.

use canon::Micros;
use http::Method;
use serde_json::json;
use store::Session;
use testkit::TestGateway;

const WORD: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[tokio::test]
async fn a_picked_key_pays_and_its_limits_hold() {
    let gateway = TestGateway::start().await;
    let store = &gateway.app.store;
    let now = gateway.app.clock.now();
    let account = store.accounts().await.unwrap().remove(0);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, WORD.as_bytes());
    let session = Session {
        hash: digest.as_ref().to_vec(),
        account_id: account.id.clone(),
        created: now,
        expires: now + Micros::from_hours(1),
        seen: now,
    };
    store.add_session(&session).await.unwrap();
    let id = gateway.key.split('-').nth(2).unwrap().to_owned();
    let cookie = format!("portunus_session={WORD}");
    let ask = |method: Method, path: &str| {
        let path = format!("/console/playground/call{path}");
        let ask = gateway.request(method, &path).without_key().header("cookie", &cookie);
        ask.header("sec-fetch-site", "same-origin").header("x-playground-key", &id)
    };
    let hello =
        json!({ "model": "demo-chat", "messages": [{ "role": "user", "content": "Hello!" }] });
    let call = ask(Method::POST, "/v1/chat/completions").body(hello.to_string());
    let got = call.header("content-type", "application/json").send().await;
    assert_eq!(got.status, 200, "{}", got.text());
    assert!(got.json()["choices"][0]["message"]["content"].is_string());
    let request = got.header("x-request-id").to_owned();
    let receipt = ask(Method::GET, &format!("/v1/usage/{request}")).send().await;
    assert_eq!(receipt.status, 200, "{}", receipt.text());
    assert_eq!(receipt.json()["key_id"], id.as_str());
    assert!(store.revoke_key(&id, now).await.unwrap());
    gateway.app.engine.keys.refresh().await.unwrap();
    let call = ask(Method::POST, "/v1/chat/completions").body(hello.to_string());
    assert_eq!(call.send().await.status, 401);
}
