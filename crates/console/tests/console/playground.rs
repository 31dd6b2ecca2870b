//! The playground: the paying key, and the forwarded request.

use http::{Method, StatusCode};
use store::AccountRole;

use crate::gateway::ConsoleGateway;

const CALL: &str = "/console/playground/call/v1/chat/completions";

#[tokio::test]
async fn calls_use_only_the_users_own_keys() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Owner).await;
    let ben = gateway.account("ben", AccountRole::Member).await;
    let own = gateway.key_of(&anna, "abc", "website").await;
    let foreign = gateway.key_of(&ben, "def", "elsewhere").await;
    let cookie = gateway.sign_in("anna").await;
    let call = |path: &'static str, key: &str| {
        let ask = gateway.ask(Method::POST, path).cookie(&cookie);
        ask.with("sec-fetch-site", "same-origin").with("x-playground-key", key)
    };
    let got = call(CALL, &own.id).send().await;
    assert_eq!(got.status, StatusCode::OK);
    got.assert_contains("abc asked for /v1/chat/completions");
    for (path, key) in [
        (CALL, foreign.id.as_str()),
        (CALL, "none"),
        ("/console/playground/call/v1/key", own.id.as_str()),
        ("/console/playground/call/metrics", own.id.as_str()),
        ("/console/playground/call//v1/chat/completions", own.id.as_str()),
    ] {
        assert_eq!(call(path, key).send().await.status, StatusCode::NOT_FOUND, "{path} {key}");
    }
    let nobody = gateway.ask(Method::POST, CALL).cookie(&cookie).send().await;
    assert_eq!(nobody.status, StatusCode::BAD_REQUEST, "no key is named");
}

#[tokio::test]
async fn other_sites_and_viewers_cannot_spend() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Viewer).await;
    let key = gateway.key_of(&anna, "abc", "website").await;
    let cookie = gateway.sign_in("anna").await;
    let ask = || gateway.ask(Method::POST, CALL).cookie(&cookie).with("x-playground-key", &key.id);
    let got = ask().with("sec-fetch-site", "same-origin").send().await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    let got = ask().with("sec-fetch-site", "cross-site").send().await;
    assert_eq!(got.status, StatusCode::FORBIDDEN);
    got.assert_contains("another site");
}

#[tokio::test]
async fn page_offers_models_and_keys_or_shows_what_is_missing() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    let page = gateway.get("/console/playground").cookie(&cookie).send().await;
    page.assert_contains("Make one");
    gateway.key_of(&anna, "abc", "website").await;
    let page = gateway.get("/console/playground?model=demo-chat").cookie(&cookie).send().await;
    assert_eq!(page.status, StatusCode::OK);
    page.assert_contains("website");
    page.assert_lacks("Make one");
    page.assert_lacks("<script>alert");
}

/// The script shows the controls that the record of a model has.
#[tokio::test]
async fn page_has_the_record_of_every_model() {
    let gateway = ConsoleGateway::new().await;
    let anna = gateway.account("anna", AccountRole::Member).await;
    let cookie = gateway.sign_in("anna").await;
    gateway.key_of(&anna, "abc", "website").await;
    let page = gateway.get("/console/playground").cookie(&cookie).send().await;
    page.assert_contains("data-kind=\"embedding\"");
    page.assert_contains("&quot;thinking&quot;:false");
    page.assert_contains("&quot;ratios&quot;:[&quot;1:1&quot;");
    for control in ["size", "ratio", "quality", "file-format"] {
        page.assert_contains(&format!("<select id=\"{control}\""));
    }
}
