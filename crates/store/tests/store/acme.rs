//! Certificates of ACME: one order at a time, and sealed keys.

use std::sync::Arc;

use canon::Micros;
use store::{AcmeAccount, ChallengeAnswer, IssuedCertificate, Store, Vault};
use tokio::task::JoinSet;

use crate::on_both;
use crate::test_database::TestDatabase;

on_both!(
    one_node_orders_at_a_time,
    a_node_that_lost_its_claim_changes_nothing,
    a_claim_that_is_given_back_counts_no_failure,
    the_next_order_waits_after_an_issued_certificate,
    keys_are_sealed_and_sealed_again,
    answers_to_challenges_end_by_time,
);

const ID: &str = "https://ca.example.com/dir a.example.com";
const CLAIM: Micros = Micros::from_secs(60);
const LATER: Micros = Micros::from_secs(300);

fn with_vault(store: Store) -> (Store, Arc<Vault>) {
    let name = format!("portunus-acme-vault-{}", uuid::Uuid::now_v7());
    let vault = Arc::new(Vault::new(std::env::temp_dir().join(name), None, false));
    (store.with_vault(Arc::clone(&vault)), vault)
}

fn issued(end: i64) -> IssuedCertificate {
    IssuedCertificate {
        chain: "chain".to_owned(),
        key: "private".to_owned(),
        begins: Micros::new(1),
        ends: Micros::new(end),
    }
}

async fn claim(store: &Store, version: i64, holder: &str) -> bool {
    store.claim_acme_order(ID, version, holder, CLAIM, Micros::ZERO).await.unwrap()
}

async fn one_node_orders_at_a_time(database: Arc<TestDatabase>) {
    let (store, _) = with_vault(database.open().await);
    let row = store.acme_certificate(ID).await.unwrap();
    assert_eq!((row.version, row.failures, row.is_held), (0, 0, false));
    assert!(row.issued.is_none());
    let mut claims = JoinSet::new();
    for number in 0..8 {
        let store = store.clone();
        claims.spawn(async move { claim(&store, 0, &format!("node{number}")).await });
    }
    assert_eq!(claims.join_all().await.into_iter().filter(|got| *got).count(), 1);
    assert!(store.acme_certificate(ID).await.unwrap().is_held);
}

async fn a_node_that_lost_its_claim_changes_nothing(database: Arc<TestDatabase>) {
    let (store, _) = with_vault(database.open().await);
    store.acme_certificate(ID).await.unwrap();
    assert!(store.claim_acme_order(ID, 0, "a", Micros::ZERO, Micros::ZERO).await.unwrap());
    assert!(!store.keep_acme_claim(ID, "a", CLAIM).await.unwrap(), "it has ended by time");
    assert!(claim(&store, 0, "b").await);
    assert!(store.keep_acme_claim(ID, "b", CLAIM).await.unwrap());
    assert!(!store.put_acme_certificate(ID, "a", &issued(9), LATER).await.unwrap());
    store.fail_acme_order(ID, "a", LATER, "late").await.unwrap();
    assert_eq!(store.acme_certificate(ID).await.unwrap().failures, 0);
    store.fail_acme_order(ID, "b", LATER, "no answer").await.unwrap();
    let row = store.acme_certificate(ID).await.unwrap();
    assert_eq!((row.failures, row.last_error.as_deref()), (1, Some("no answer")));
    assert!(row.next_attempt > Micros::ZERO && !row.is_held);
    assert!(!claim(&store, 0, "a").await, "it is too early");
    // A node that vanishes keeps others from trying at once, too.
    let other = "https://ca.example.com/dir b.example.com";
    store.acme_certificate(other).await.unwrap();
    assert!(store.claim_acme_order(other, 0, "a", Micros::ZERO, LATER).await.unwrap());
    assert!(!store.claim_acme_order(other, 0, "b", CLAIM, LATER).await.unwrap());
}

async fn a_claim_that_is_given_back_counts_no_failure(database: Arc<TestDatabase>) {
    let (store, _) = with_vault(database.open().await);
    store.acme_certificate(ID).await.unwrap();
    assert!(store.claim_acme_order(ID, 0, "a", CLAIM, LATER).await.unwrap());
    store.release_acme_order(ID, "b").await.unwrap();
    assert!(store.acme_certificate(ID).await.unwrap().is_held, "it is the claim of another node");
    store.release_acme_order(ID, "a").await.unwrap();
    let row = store.acme_certificate(ID).await.unwrap();
    assert_eq!((row.failures, row.is_held, row.last_error), (0, false, None));
    assert!(claim(&store, 0, "b").await);
}

async fn the_next_order_waits_after_an_issued_certificate(database: Arc<TestDatabase>) {
    let (store, _) = with_vault(database.open().await);
    store.acme_certificate(ID).await.unwrap();
    assert!(claim(&store, 0, "a").await);
    // It is due already, by whatever clock.
    assert!(store.put_acme_certificate(ID, "a", &issued(2), LATER).await.unwrap());
    assert!(store.acme_certificate(ID).await.unwrap().next_attempt > Micros::ZERO);
    assert!(!claim(&store, 1, "a").await, "orders have pauses");
}

async fn keys_are_sealed_and_sealed_again(database: Arc<TestDatabase>) {
    let (store, vault) = with_vault(database.open().await);
    store.acme_certificate(ID).await.unwrap();
    assert!(claim(&store, 0, "a").await);
    let end = Micros::from_days(40_000);
    let issued = issued(end.get());
    assert!(store.put_acme_certificate(ID, "a", &issued, Micros::ZERO).await.unwrap());
    let account = AcmeAccount { contacts: "mailto:a@b.c".to_owned(), secret: "{}".to_owned() };
    store.put_acme_account("ca", &account).await.unwrap();
    let row = store.acme_certificate(ID).await.unwrap();
    assert_eq!((row.version, row.is_held, row.last_error), (1, false, None));
    let sealed = row.issued.unwrap();
    assert!(!sealed.key.bytes.windows(7).any(|part| part == b"private"));
    assert_eq!(store.open_acme_key(ID, &sealed).unwrap(), "private");
    assert!(store.open_acme_key("another", &sealed).is_err());
    assert_eq!(store.sealed().await.unwrap().get(&sealed.key.by), Some(&2));
    assert!(!claim(&store, 0, "b").await, "a later one is there");
    let found = store.other_acme_certificate("changed").await.unwrap().unwrap();
    assert_eq!(found.id, ID);
    assert!(store.other_acme_certificate(ID).await.unwrap().is_none());
    let counts = vault.rekey(&store).await.unwrap();
    assert_eq!(counts.left, 0);
    let again = store.acme_certificate(ID).await.unwrap().issued.unwrap();
    assert_ne!(again.key.by, sealed.key.by);
    assert_eq!(store.open_acme_key(ID, &again).unwrap(), "private");
    assert!(store.acme_account("ca").await.unwrap() == Some(account));
    store.drop_acme_account("ca").await.unwrap();
    assert!(store.acme_account("ca").await.unwrap().is_none());
}

async fn answers_to_challenges_end_by_time(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let answer = |name: &str| ChallengeAnswer {
        kind: "http-01",
        name: name.to_owned(),
        answer: format!("{name}.thumb"),
    };
    store.put_challenge(&answer("one"), CLAIM).await.unwrap();
    store.put_challenge(&answer("old"), Micros::ZERO).await.unwrap();
    let get = async |kind: &str, name: &str| store.challenge_answer(kind, name).await.unwrap();
    assert_eq!(get("http-01", "one").await.as_deref(), Some("one.thumb"));
    assert_eq!(get("http-01", "old").await, None);
    assert_eq!(get("tls-alpn-01", "one").await, None);
    store.drop_challenge("http-01", "one").await.unwrap();
    assert_eq!(get("http-01", "one").await, None);
}
