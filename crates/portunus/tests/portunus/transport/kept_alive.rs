//! Changes of a key between two requests of one connection, whose heads are the same bytes.
//!
//! A connection keeps what followed from its last head. None of it may outlive a change of the key.

use super::raw_client::{Caller, call, hello};
use admin::{Actor, KeyChange};
use testkit::TestGateway;

/// Sends the same bytes again, and returns the status of their answer.
async fn repeat(caller: &mut Caller, request: &[u8]) -> u16 {
    caller.send(request).await;
    caller.answer().await.expect("an open connection").status
}

#[tokio::test]
async fn a_changed_key_is_judged_anew_on_an_open_connection() {
    let gateway = TestGateway::start().await;
    let body = hello("demo-chat", false);
    let request = call(&gateway, &format!("content-length: {}\r\n", body.len()), &body);
    let id = gateway.key.split('-').nth(2).unwrap().to_owned();
    let accounts = &gateway.app.admin.accounts;
    let change = async |change: KeyChange| {
        accounts.change_key(&Actor::Operator, &id, <_>::default(), change).await.unwrap();
    };
    let mut caller = Caller::to(&gateway).await;
    for _ in 0..3 {
        assert_eq!(repeat(&mut caller, &request).await, 200);
    }
    let narrowed = vec!["demo-echo".to_owned()];
    change(KeyChange { models: Some(narrowed), ..<_>::default() }).await;
    assert_eq!(repeat(&mut caller, &request).await, 403, "models");
    change(KeyChange { models: Some(vec![]), ..<_>::default() }).await;
    assert_eq!(repeat(&mut caller, &request).await, 200, "all models");
    change(KeyChange { ips: Some(vec!["192.0.2.1".to_owned()]), ..<_>::default() }).await;
    assert_eq!(repeat(&mut caller, &request).await, 403, "addresses");
    change(KeyChange { ips: Some(vec![]), ..<_>::default() }).await;
    assert_eq!(repeat(&mut caller, &request).await, 200, "all addresses");
    let now = gateway.app.clock.now();
    let rotated = accounts.rotate_key(&Actor::Operator, &id, now).await.unwrap();
    assert_eq!(repeat(&mut caller, &request).await, 401, "the value before the rotation");
    let text = String::from_utf8(request).unwrap();
    let renewed = text.replace(&gateway.key, &rotated.secret).into_bytes();
    for _ in 0..2 {
        assert_eq!(repeat(&mut caller, &renewed).await, 200, "the new value");
    }
    accounts.revoke_key(&Actor::Operator, &id, <_>::default()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(repeat(&mut caller, &renewed).await, 401, "revoked");
    }
}
