//! Calls with an idempotency key: one claimant runs the call, the others get its reply.

use std::sync::Arc;

use canon::Micros;
use store::{CallClaim, CallName, ClaimResult, ClaimSight, Store, StoredReply};

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(
    one_of_many_concurrent_claims_succeeds,
    a_reply_is_replayed_until_it_expires,
    an_abandoned_claim_is_taken_over_and_its_old_owner_is_rejected,
    a_running_claim_does_not_expire_by_the_clock,
    an_expired_claim_of_a_dead_node_is_deleted,
    a_failed_call_releases_its_claim,
);

async fn call(store: &Store) -> CallName {
    let account = account("ada");
    store.add_account(&account).await.unwrap();
    CallName { account_id: account.id, name: "order 7 \0é".to_owned() }
}

fn claim(call: &CallName, owner: &str) -> CallClaim {
    CallClaim {
        call: call.clone(),
        hash: vec![7; 32],
        owner: owner.to_owned(),
        lifetime: Micros::from_hours(1),
    }
}

fn answer(body: Option<&[u8]>) -> StoredReply {
    StoredReply {
        status: 200,
        headers: r#"{"content-type":"application/json"}"#.to_owned(),
        body: body.map(<[u8]>::to_vec),
    }
}

/// Returns the running claim of a call.
async fn sight(store: &Store, call: &CallName) -> ClaimSight {
    match store.claim(&claim(call, "looks")).await.unwrap() {
        ClaimResult::Running(seen) => seen,
        other => panic!("{other:?}"),
    }
}

async fn one_of_many_concurrent_claims_succeeds(database: Arc<TestDatabase>) {
    // Two stores act as two nodes.
    let (one, other) = (database.open().await, database.open().await);
    let call = call(&one).await;
    let tries: Vec<_> = (0..64)
        .map(|number| {
            let store = if number % 2 == 0 { one.clone() } else { other.clone() };
            let claim = claim(&call, &number.to_string());
            tokio::spawn(async move { store.claim(&claim).await.unwrap() })
        })
        .collect();
    let mut ours = 0;
    let mut seen = Vec::new();
    for one in tries {
        match one.await.unwrap() {
            ClaimResult::Ours => ours += 1,
            ClaimResult::Running(claim) => seen.push(claim),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ours, 1);
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    one.close().await;
    other.close().await;
}

async fn a_reply_is_replayed_until_it_expires(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    assert_eq!(store.claim(&claim(&call, "a")).await.unwrap(), ClaimResult::Ours);
    let body: &[u8] = b"{\"n\":\"\0\xff\"}";
    assert!(store.finish_claim(&call, "a", &answer(Some(body))).await.unwrap());
    assert!(!store.release_claim(&call, "a").await.unwrap(), "what is over stays over");
    let again = claim(&call, "b");
    let told = store.claim(&again).await.unwrap();
    assert_eq!(told, ClaimResult::Over(answer(Some(body))));
    let other = CallClaim { hash: vec![8; 32], ..again.clone() };
    assert_eq!(store.claim(&other).await.unwrap(), ClaimResult::Different);

    // An hour passes, and this call is forgotten.
    database.execute_raw("UPDATE idempotent SET expires = expires - 3600000000").await;
    let elsewhere = account("bob");
    store.add_account(&elsewhere).await.unwrap();
    let elsewhere = CallName { account_id: elsewhere.id, name: call.name.clone() };
    let theirs = claim(&elsewhere, "c");
    assert_eq!(store.claim(&theirs).await.unwrap(), ClaimResult::Ours, "another's name");
    assert_eq!(store.claim(&claim(&call, "d")).await.unwrap(), ClaimResult::Ours);
    assert!(store.finish_claim(&call, "d", &answer(None)).await.unwrap());
    let told = store.claim(&again).await.unwrap();
    assert_eq!(told, ClaimResult::Over(answer(None)), "too large to be kept, but over");
    assert_eq!(store.sweep_claims().await.unwrap(), 0);
    database
        .execute_raw("UPDATE idempotent SET expires = expires - 3600000000 WHERE status = 200")
        .await;
    assert_eq!(store.sweep_claims().await.unwrap(), 1, "the other account's runs");
    store.close().await;
}

async fn a_running_claim_does_not_expire_by_the_clock(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    assert_eq!(store.claim(&claim(&call, "a")).await.unwrap(), ClaimResult::Ours);
    let step = || {
        // Two hours in the life of a claim of one hour.
        database.execute_raw(
            "UPDATE idempotent SET expires = expires - 7200000000, \
             held_until = held_until - 7200000000",
        )
    };
    step().await;
    let seen = sight(&store, &call).await;
    let other = CallClaim { hash: vec![8; 32], ..claim(&call, "b") };
    assert_eq!(store.claim(&other).await.unwrap(), ClaimResult::Running(seen.clone()));
    assert_eq!(store.sweep_claims().await.unwrap(), 0);
    assert_eq!(store.expired_claims().await.unwrap().len(), 1);
    // Its runner lives, and the claim with it.
    assert!(store.renew_claim(&call, "a").await.unwrap());
    assert_eq!(store.expired_claims().await.unwrap(), []);
    assert!(!store.drop_claim(&call, &seen).await.unwrap());
    assert_eq!(store.claim(&other).await.unwrap(), ClaimResult::Different);
    step().await;
    assert!(store.finish_claim(&call, "a", &answer(Some(b"once"))).await.unwrap());
    let told = store.claim(&claim(&call, "c")).await.unwrap();
    assert_eq!(told, ClaimResult::Over(answer(Some(b"once"))), "its hour begins now");
    store.close().await;
}

async fn an_expired_claim_of_a_dead_node_is_deleted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    for owner in ["dead", "dead too"] {
        assert_eq!(store.claim(&claim(&call, owner)).await.unwrap(), ClaimResult::Ours);
        assert_eq!(store.expired_claims().await.unwrap(), []);
        database.execute_raw("UPDATE idempotent SET expires = expires - 3600000000").await;
        let [(found, seen)] = &store.expired_claims().await.unwrap()[..] else { panic!("one") };
        if owner == "dead" {
            assert!(store.drop_claim(found, seen).await.unwrap());
            assert!(!store.drop_claim(found, seen).await.unwrap());
        } else {
            let other = CallClaim { hash: vec![8; 32], ..claim(&call, "b") };
            assert!(store.take_over_claim(&other, seen).await.unwrap(), "the name is free");
            let told = store.claim(&claim(&call, "c")).await.unwrap();
            assert_eq!(told, ClaimResult::Different);
        }
    }
    store.close().await;
}

async fn an_abandoned_claim_is_taken_over_and_its_old_owner_is_rejected(
    database: Arc<TestDatabase>,
) {
    let store = database.open().await;
    let call = call(&store).await;
    assert_eq!(store.claim(&claim(&call, "dead")).await.unwrap(), ClaimResult::Ours);
    let before = sight(&store, &call).await;
    assert_eq!(sight(&store, &call).await, before, "looking changes nothing");
    assert!(store.renew_claim(&call, "dead").await.unwrap());
    let next = claim(&call, "next");
    assert!(!store.take_over_claim(&next, &before).await.unwrap(), "it was renewed since");
    let seen = sight(&store, &call).await;
    assert_ne!(seen, before);
    // An earlier version renews without counting.
    database.execute_raw("UPDATE idempotent SET held_until = held_until + 1").await;
    assert!(!store.take_over_claim(&next, &seen).await.unwrap());
    let seen = sight(&store, &call).await;
    let other = CallClaim { hash: vec![8; 32], ..next.clone() };
    assert!(!store.take_over_claim(&other, &seen).await.unwrap(), "another request");
    let third = claim(&call, "third");
    let (one, two) =
        tokio::join!(store.take_over_claim(&next, &seen), store.take_over_claim(&third, &seen));
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one != two, "one of them has it");
    assert!(!store.renew_claim(&call, "dead").await.unwrap());
    assert!(!store.finish_claim(&call, "dead", &answer(Some(b"stale"))).await.unwrap());
    assert!(!store.release_claim(&call, "dead").await.unwrap());
    assert_ne!(sight(&store, &call).await, seen);
    store.close().await;
}

async fn a_failed_call_releases_its_claim(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let call = call(&store).await;
    assert_eq!(store.claim(&claim(&call, "a")).await.unwrap(), ClaimResult::Ours);
    assert!(store.release_claim(&call, "a").await.unwrap());
    let other = CallClaim { hash: vec![8; 32], ..claim(&call, "b") };
    assert_eq!(store.claim(&other).await.unwrap(), ClaimResult::Ours);
    store.close().await;
}
