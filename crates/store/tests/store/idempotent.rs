//! Calls with an idempotency key: one claimant runs the call, the others get its reply.

use std::sync::Arc;

use canon::Micros;
use store::{CallClaim, CallName, ClaimResult, Store, StoredReply};

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(
    one_of_many_concurrent_claims_succeeds,
    a_reply_is_replayed_until_it_expires,
    an_expired_claim_is_taken_over_and_its_old_owner_is_rejected,
    a_failed_call_releases_its_claim,
);

const MINUTE: Micros = Micros::from_secs(60);
const START: Micros = Micros::from_millis(1);

async fn call(store: &Store) -> CallName {
    let account = account("ada");
    store.add_account(&account).await.unwrap();
    CallName { account_id: account.id, name: "order 7 \0é".to_owned() }
}

fn claim(call: &CallName, owner: &str, now: Micros) -> CallClaim {
    CallClaim {
        call: call.clone(),
        hash: vec![7; 32],
        owner: owner.to_owned(),
        held_until: now + MINUTE,
        expires: now + 100 * MINUTE,
    }
}

fn answer(body: Option<&[u8]>) -> StoredReply {
    StoredReply {
        status: 200,
        headers: r#"{"content-type":"application/json"}"#.to_owned(),
        body: body.map(<[u8]>::to_vec),
    }
}

async fn one_of_many_concurrent_claims_succeeds(database: Arc<TestDatabase>) {
    // Two stores act as two nodes.
    let (one, other) = (database.open().await, database.open().await);
    let call = call(&one).await;
    let tries: Vec<_> = (0..64)
        .map(|number| {
            let store = if number % 2 == 0 { one.clone() } else { other.clone() };
            let claim = claim(&call, &number.to_string(), START);
            tokio::spawn(async move { store.claim(&claim, START).await.unwrap() })
        })
        .collect();
    let mut ours = 0;
    for one in tries {
        match one.await.unwrap() {
            ClaimResult::Ours => ours += 1,
            ClaimResult::Running(until) => assert_eq!(until, START + MINUTE),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ours, 1);
    one.close().await;
    other.close().await;
}

async fn a_reply_is_replayed_until_it_expires(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    let first = claim(&call, "a", Micros::ZERO);
    assert_eq!(store.claim(&first, Micros::ZERO).await.unwrap(), ClaimResult::Ours);
    let body: &[u8] = b"{\"n\":\"\0\xff\"}";
    assert!(store.finish_claim(&call, "a", &answer(Some(body))).await.unwrap());
    assert!(!store.release_claim(&call, "a").await.unwrap(), "what is over stays over");
    let again = claim(&call, "b", MINUTE);
    let told = store.claim(&again, MINUTE).await.unwrap();
    assert_eq!(told, ClaimResult::Over(answer(Some(body))));
    let other = CallClaim { hash: vec![8; 32], ..again.clone() };
    assert_eq!(store.claim(&other, MINUTE).await.unwrap(), ClaimResult::Different);

    let elsewhere = account("bob");
    store.add_account(&elsewhere).await.unwrap();
    let elsewhere = CallName { account_id: elsewhere.id, name: call.name.clone() };
    let theirs = claim(&elsewhere, "c", MINUTE);
    assert_eq!(store.claim(&theirs, MINUTE).await.unwrap(), ClaimResult::Ours, "another's name");

    let late = 100 * MINUTE;
    assert_eq!(store.claim(&claim(&call, "d", late), late).await.unwrap(), ClaimResult::Ours);
    assert!(store.finish_claim(&call, "d", &answer(None)).await.unwrap());
    let told = store.claim(&again, late).await.unwrap();
    assert_eq!(told, ClaimResult::Over(answer(None)), "too large to be kept, but over");
    assert_eq!(store.sweep_claims(late + MINUTE).await.unwrap(), 1, "the other account's");
    store.close().await;
}

async fn an_expired_claim_is_taken_over_and_its_old_owner_is_rejected(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    assert_eq!(
        store.claim(&claim(&call, "dead", Micros::ZERO), Micros::ZERO).await.unwrap(),
        ClaimResult::Ours
    );
    assert!(store.hold_claim(&call, "dead", 3 * MINUTE).await.unwrap());
    let early = claim(&call, "next", 2 * MINUTE);
    let told = store.claim(&early, 2 * MINUTE).await.unwrap();
    assert_eq!(told, ClaimResult::Running(3 * MINUTE), "it said that it is still at work");
    let late = claim(&call, "next", 3 * MINUTE);
    let other = CallClaim { hash: vec![8; 32], ..late.clone() };
    assert_eq!(store.claim(&other, 3 * MINUTE).await.unwrap(), ClaimResult::Different);
    assert_eq!(store.claim(&late, 3 * MINUTE).await.unwrap(), ClaimResult::Ours);
    assert!(!store.hold_claim(&call, "dead", 9 * MINUTE).await.unwrap());
    assert!(!store.finish_claim(&call, "dead", &answer(Some(b"stale"))).await.unwrap());
    assert!(!store.release_claim(&call, "dead").await.unwrap());
    let told = store.claim(&claim(&call, "third", 3 * MINUTE), 3 * MINUTE).await.unwrap();
    assert_eq!(told, ClaimResult::Running(4 * MINUTE));
    store.close().await;
}

async fn a_failed_call_releases_its_claim(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    assert_eq!(
        store.claim(&claim(&call, "a", Micros::ZERO), Micros::ZERO).await.unwrap(),
        ClaimResult::Ours
    );
    assert!(store.release_claim(&call, "a").await.unwrap());
    let other = CallClaim { hash: vec![8; 32], ..claim(&call, "b", Micros::ZERO) };
    assert_eq!(store.claim(&other, Micros::ZERO).await.unwrap(), ClaimResult::Ours);
    store.close().await;
}
