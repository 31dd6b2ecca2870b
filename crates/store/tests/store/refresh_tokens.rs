//! Refresh tokens, and keys that were made by signing in.

use std::sync::Arc;

use canon::Micros;
use store::{AccountRole, KeyRecord, RefreshToken, Store};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, key};
use crate::test_database::TestDatabase;

on_both!(
    a_refresh_token_is_used_once,
    refresh_tokens_end_with_their_key_and_by_time,
    a_sign_in_has_ended_when_nothing_renews_it,
    a_key_for_which_a_locked_person_signed_in_is_revoked,
);

fn token(key: &KeyRecord, n: u8) -> RefreshToken {
    RefreshToken {
        hash: vec![n; 32],
        key_id: key.id.clone(),
        issued: Micros::new(1),
        expires: Micros::new(100 + i64::from(n)),
        used: None,
        used_from: None,
    }
}

/// A key of that owner for which that person signed in.
async fn signed_in(store: &Store, owner: &str, person: &str) -> KeyRecord {
    let key = KeyRecord {
        created_by: Some(person.to_owned()),
        surface: Some("claude_code".to_owned()),
        expires: Some(Micros::new(50)),
        ..key(owner)
    };
    store.add_key(&key).await.unwrap();
    key
}

async fn a_refresh_token_is_used_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = account("anna");
    store.add_account(&anna).await.unwrap();
    let key = signed_in(&store, &anna.id, &anna.id).await;
    assert_eq!(store.key(&key.id).await.unwrap().as_ref(), Some(&key));
    let first = token(&key, 1);
    store.add_refresh_token(&first).await.unwrap();
    assert!(store.add_refresh_token(&first).await.is_err(), "a hash is there once");
    assert_eq!(store.refresh_token(&first.hash).await.unwrap(), Some(first.clone()));
    let mut attempts = JoinSet::new();
    for n in 0..8 {
        let (store, hash) = (store.clone(), first.hash.clone());
        attempts.spawn(async move {
            store.use_refresh_token(&hash, Micros::new(n), "home").await.unwrap()
        });
    }
    let used = attempts.join_all().await.into_iter().filter(|used| *used).count();
    assert_eq!(used, 1);
    let used = store.refresh_token(&first.hash).await.unwrap().unwrap();
    assert!(used.used.is_some() && used.used_from.as_deref() == Some("home"));
    assert!(!store.use_refresh_token(&[9; 32], Micros::new(1), "home").await.unwrap());
    let orphan = RefreshToken { key_id: "none".to_owned(), ..token(&key, 2) };
    assert!(store.add_refresh_token(&orphan).await.is_err());
    store.close().await;
}

async fn refresh_tokens_end_with_their_key_and_by_time(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = account("anna");
    store.add_account(&anna).await.unwrap();
    let [one, other] =
        [signed_in(&store, &anna.id, &anna.id).await, signed_in(&store, &anna.id, &anna.id).await];
    for token in [token(&one, 1), token(&one, 2), token(&other, 3)] {
        store.add_refresh_token(&token).await.unwrap();
    }
    assert_eq!(store.drop_expired_refresh_tokens(Micros::new(101)).await.unwrap(), 1);
    assert_eq!(store.drop_refresh_tokens_of(&one.id).await.unwrap(), 1);
    assert!(store.refresh_token(&[3; 32]).await.unwrap().is_some());
    store.close().await;
}

async fn a_sign_in_has_ended_when_nothing_renews_it(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let anna = account("anna");
    store.add_account(&anna).await.unwrap();
    let signed_in = signed_in(&store, &anna.id, &anna.id).await;
    let other = KeyRecord { expires: Some(Micros::new(50)), ..key(&anna.id) };
    store.add_key(&other).await.unwrap();
    let renews = token(&signed_in, 1);
    store.add_refresh_token(&renews).await.unwrap();
    let ended = async |now| store.ended_sign_ins(&anna.id, Micros::new(now)).await.unwrap();
    assert!(ended(49).await.is_empty() && ended(60).await.is_empty());
    assert_eq!(ended(101).await, std::slice::from_ref(&signed_in.id), "its token has expired");
    store.use_refresh_token(&renews.hash, Micros::new(2), "home").await.unwrap();
    assert!(ended(49).await.is_empty(), "the key itself is not expired");
    assert_eq!(ended(60).await, std::slice::from_ref(&signed_in.id), "its token was used");
    store.revoke_key(&signed_in.id, Micros::new(3)).await.unwrap();
    assert!(ended(60).await.is_empty());
    store.close().await;
}

async fn a_key_for_which_a_locked_person_signed_in_is_revoked(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let [anna, bert] = ["anna", "bert"].map(account);
    for person in [&anna, &bert] {
        store.add_account(person).await.unwrap();
    }
    assert_eq!(bert.role, AccountRole::Member);
    let own = signed_in(&store, &bert.id, &bert.id).await;
    let for_anna = signed_in(&store, &anna.id, &bert.id).await;
    // A key that bert made for anna by hand stays hers.
    let made = KeyRecord { created_by: Some(bert.id.clone()), ..key(&anna.id) };
    store.add_key(&made).await.unwrap();
    let revoked = async || {
        let mut all = Vec::new();
        for id in [&own.id, &for_anna.id, &made.id] {
            all.push(store.key(id).await.unwrap().unwrap().revoked.is_some());
        }
        all
    };
    assert_eq!(revoked().await, [false, false, false]);
    store.set_disabled(&bert.id, true, Micros::new(7)).await.unwrap();
    assert_eq!(revoked().await, [true, true, false]);
    let changed = store.keys_changed_since(Micros::new(7)).await.unwrap();
    let changed: Vec<&str> = changed.iter().map(|key| key.id.as_str()).collect();
    assert!(changed.contains(&own.id.as_str()) && changed.contains(&for_anna.id.as_str()));
    assert!(!changed.contains(&made.id.as_str()));
    store.set_disabled(&bert.id, false, Micros::new(8)).await.unwrap();
    assert_eq!(revoked().await, [false, false, false]);
    store.close().await;
}
