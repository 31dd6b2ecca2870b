//! Tokens of identity providers.

use super::*;
use crate::transport::raw_client::Caller;
use std::sync::Arc;
use testkit::ShiftedClock;

async fn admin(gateway: &TestGateway, method: Method, path: &str, body: Value) -> TestResponse {
    let key = gateway.admin_key().await.to_owned();
    let ask = gateway.request(method, &format!("/api/admin/scim/tokens{path}")).key(&key);
    ask.header("content-type", "application/json").body(body.to_string()).send().await
}

#[tokio::test]
async fn two_tokens_are_valid_at_a_time_and_each_is_revoked_alone() {
    let provider = ScimStage::open().await;
    let gateway = &provider.gateway;
    let second = new_token(gateway, "corp").await;
    let wish = json!({ "identity": "corp", "expires_in": "1d" });
    let third = admin(gateway, Method::POST, "", wish).await;
    assert_eq!(third.status, 400, "{}", third.text());
    assert!(third.text().contains("revoke the one"), "{}", third.text());
    let works = async |token: &str| {
        ask(gateway, token, Method::GET, "/Users", Value::Null).await.status.as_u16()
    };
    assert_eq!((works(&provider.token).await, works(&second).await), (200, 200));
    let listed = admin(gateway, Method::GET, "", json!({})).await;
    assert!(!listed.text().contains(&provider.token), "{}", listed.text());
    let listed = listed.json();
    assert_eq!(listed["total"], 2);
    assert!(listed["data"][0]["last_used_at"].is_string(), "{listed}");
    let id = provider.token.split('-').nth(2).unwrap();
    assert_eq!(admin(gateway, Method::DELETE, &format!("/{id}"), json!({})).await.status, 200);
    assert_eq!(admin(gateway, Method::DELETE, &format!("/{id}"), json!({})).await.status, 404);
    assert_eq!((works(&provider.token).await, works(&second).await), (401, 200));
    // Only a hash is stored.
    let stored = gateway.app.store.scim_tokens().await.unwrap();
    assert!(stored.iter().all(|token| token.hash.len() == 32));
    let lines = gateway.app.store.audits(20).await.unwrap();
    for action in ["scim.create_token", "scim.revoke_token"] {
        assert!(lines.iter().any(|line| line.action == action), "{action}");
    }
    assert!(lines.iter().all(|line| !line.detail.contains(&second)));
}

#[tokio::test]
async fn wrong_expired_and_foreign_tokens_are_refused() {
    let clock = Arc::new(ShiftedClock::default());
    let gateway = TestGateway::with_clock(CONFIG, Arc::clone(&clock) as _).await;
    let token = new_token(&gateway, "corp").await;
    let mut wrong = token.clone();
    let last = if wrong.ends_with('0') { '1' } else { '0' };
    wrong.pop();
    wrong.push(last);
    let key = gateway.key.clone();
    let admin_key = gateway.admin_key().await.to_owned();
    for bad in ["", "x", "scim-pt-", "scim-pt-0123456789ab-x", &wrong, &key, &admin_key] {
        let got = ask(&gateway, bad, Method::GET, "/Users", Value::Null).await;
        is_refusal(&got, 401, "", bad);
        assert!(got.header("www-authenticate").starts_with("Bearer"), "{bad}");
    }
    let none = gateway.get("/scim/v2/Users").without_key().send().await;
    is_refusal(&none, 401, "", "no token");
    // The token opens nothing else.
    for path in ["/v1/key", "/api/admin/users", "/v1/models"] {
        assert_eq!(gateway.get(path).key(&token).send().await.status, 401, "{path}");
    }
    assert_eq!(ask(&gateway, &token, Method::GET, "/Users", Value::Null).await.status, 200);
    clock.step(canon::Micros::from_secs(2 * 86_400));
    is_refusal(
        &ask(&gateway, &token, Method::GET, "/Users", Value::Null).await,
        401,
        "",
        "expired",
    );
}

#[tokio::test]
async fn tokens_are_made_by_owners_for_known_providers() {
    let gateway = TestGateway::with_config(CONFIG).await;
    let wish = json!({ "identity": "nobody", "expires_in": "1d" });
    assert_eq!(admin(&gateway, Method::POST, "", wish).await.status, 400);
    // An admin key ends, and so does a token that it makes.
    let endless = admin(&gateway, Method::POST, "", json!({ "identity": "corp" })).await;
    assert_eq!(endless.status, 403, "{}", endless.text());
    let owner = gateway.app.store.accounts().await.unwrap().remove(0);
    let account = store::Account {
        id: "account-admin".to_owned(),
        username: "second".to_owned(),
        role: store::AccountRole::Admin,
        ..owner
    };
    gateway.app.store.add_account(&account).await.unwrap();
    let key = gateway.admin_key_of(&account.id).await;
    let ask = gateway.request(Method::POST, "/api/admin/scim/tokens").key(&key);
    let body = json!({ "identity": "corp", "expires_in": "1d" }).to_string();
    let got = ask.header("content-type", "application/json").body(body).send().await;
    assert_eq!(got.status, 403, "{}", got.text());
}

#[tokio::test]
async fn a_token_of_a_provider_that_is_gone_is_refused() {
    let provider = ScimStage::open().await;
    provider.gateway.reload("");
    let got = provider.send(Method::GET, "/Users", Value::Null).await;
    is_refusal(&got, 401, "", "no such provider");
}

#[tokio::test]
async fn a_token_that_is_revoked_while_its_body_is_on_the_way_changes_nothing() {
    let provider = ScimStage::open().await;
    let store = &provider.gateway.app.store;
    let id = provider.token.split('-').nth(2).unwrap();
    let judged = async || {
        testkit::until("the head was judged", async || {
            store.scim_token(id).await.unwrap().unwrap().last_used.is_some()
        })
        .await;
    };
    let body = user("anna").to_string();
    let mut caller = Caller::to(&provider.gateway).await;
    let head = format!(
        "POST /scim/v2/Users HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         content-type: application/scim+json\r\ncontent-length: {}\r\n\r\n",
        provider.token,
        body.len()
    );
    let (begin, end) = body.split_at(5);
    caller.send(format!("{head}{begin}")).await;
    judged().await;
    let revoked =
        admin(&provider.gateway, Method::DELETE, &format!("/{id}"), json!({})).await.status;
    assert_eq!(revoked, 200);
    caller.send(end).await;
    let answer = caller.answer().await.unwrap();
    assert_eq!(answer.status, 401, "{}", answer.text());
    assert_eq!(store.scim_user_count("corp", &[]).await.unwrap(), 0);
    // A body is not even read for a token that is wrong at its head.
    let mut caller = Caller::to(&provider.gateway).await;
    caller.send(head).await;
    assert_eq!(caller.answer().await.unwrap().status, 401);
}

#[tokio::test]
async fn a_token_that_is_revoked_while_its_change_waits_changes_nothing() {
    let provider = ScimStage::open().await;
    let store = provider.gateway.app.store.clone();
    let id = provider.token.split('-').nth(2).unwrap().to_owned();
    let mut revocation = store.begin_change().await.unwrap();
    let creation = provider.send(Method::POST, "/Users", user("anna"));
    let revoking = async {
        testkit::until("the token was judged", async || {
            store.scim_token(&id).await.unwrap().unwrap().last_used.is_some()
        })
        .await;
        assert!(revocation.drop_scim_token(&id).await.unwrap());
        revocation.commit_unaudited().await.unwrap();
    };
    let (got, ()) = tokio::join!(creation, revoking);
    is_refusal(&got, 401, "", "a revoked token");
    assert_eq!(store.scim_user_count("corp", &[]).await.unwrap(), 0);
}
