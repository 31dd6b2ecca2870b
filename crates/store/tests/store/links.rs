//! Single-use links, identities and second factors, and the events that end them.

use std::sync::Arc;

use canon::{Micros, Money};
use store::{
    Account, AccountTerms, Factor, FactorKind, Identity, Link, LinkPurpose, Session, Store,
    StoreError,
};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, id};
use crate::test_database::TestDatabase;

on_both!(
    a_link_is_used_once_and_for_its_purpose,
    a_new_password_ends_sessions_and_links_to_choose_one,
    a_lock_ends_sessions_and_links,
    an_identity_belongs_to_one_account,
    an_account_and_its_identity_are_added_atomically,
    a_code_counts_once,
    factors_are_removed_by_their_owner_only,
    challenges_without_an_account_are_trimmed_by_their_data,
);

async fn challenges_without_an_account_are_trimmed_by_their_data(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    for n in 1..=6 {
        let link = link(LinkPurpose::Challenge, None, n);
        store.add_link(&Link { created: Micros::new(n.into()), ..link }).await.unwrap();
    }
    store.add_link(&link(LinkPurpose::Challenge, Some(&anna), 7)).await.unwrap();
    store.add_link(&link(LinkPurpose::Invite, None, 8)).await.unwrap();
    let other = Link { data: "other".to_owned(), ..link(LinkPurpose::Challenge, None, 9) };
    store.add_link(&other).await.unwrap();
    assert_eq!(store.trim_challenges("{}", 2).await.unwrap(), 4);
    for (n, is_left) in (1..=9).zip([false, false, false, false, true, true, true, true, true]) {
        assert_eq!(store.link(&[n; 32]).await.unwrap().is_some(), is_left, "{n}");
    }
    store.close().await;
}

fn link(purpose: LinkPurpose, account: Option<&Account>, n: u8) -> Link {
    Link {
        hash: vec![n; 32],
        purpose,
        account_id: account.map(|account| account.id.clone()),
        data: "{}".to_owned(),
        created: Micros::new(1),
        expires: Micros::new(10 + i64::from(n)),
    }
}

async fn with_account(database: &TestDatabase) -> (Store, Account) {
    let store = database.open().await;
    let anna = account("anna");
    store.add_account(&anna).await.unwrap();
    (store, anna)
}

async fn a_link_is_used_once_and_for_its_purpose(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    let reset = link(LinkPurpose::Reset, Some(&anna), 1);
    let invite = link(LinkPurpose::Invite, None, 2);
    for link in [&reset, &invite] {
        store.add_link(link).await.unwrap();
        assert_eq!(store.link(&link.hash).await.unwrap().as_ref(), Some(link));
    }
    assert_eq!(store.links_for(LinkPurpose::Invite).await.unwrap(), std::slice::from_ref(&invite));
    assert_eq!(store.take_link(&reset.hash, LinkPurpose::Invite).await.unwrap(), None);
    let mut tries = JoinSet::new();
    for _ in 0..20 {
        let (store, hash) = (store.clone(), reset.hash.clone());
        tries.spawn(async move { store.take_link(&hash, LinkPurpose::Reset).await.unwrap() });
    }
    let got: Vec<Link> = tries.join_all().await.into_iter().flatten().collect();
    assert_eq!(got, [reset]);
    assert_eq!(store.sweep_links(invite.expires - Micros::new(1)).await.unwrap(), 0);
    assert_eq!(store.sweep_links(invite.expires).await.unwrap(), 1);
    let nobodys =
        Link { account_id: Some("nobody".to_owned()), ..link(LinkPurpose::Reset, None, 3) };
    assert_eq!(store.add_link(&nobodys).await, Err(StoreError::Missing("account")));
    store.close().await;
}

async fn give_all(store: &Store, anna: &Account) {
    let session = Session {
        hash: vec![9; 32],
        account_id: anna.id.clone(),
        created: Micros::new(1),
        expires: Micros::new(9),
        seen: Micros::new(1),
    };
    store.add_session(&session).await.unwrap();
    for (purpose, n) in [(LinkPurpose::Reset, 1), (LinkPurpose::Second, 2), (LinkPurpose::Email, 3)]
    {
        store.add_link(&link(purpose, Some(anna), n)).await.unwrap();
    }
}

async fn left(store: &Store) -> Vec<bool> {
    let mut left = vec![store.session(&[9; 32]).await.unwrap().is_some()];
    for n in 1..=3 {
        left.push(store.link(&[n; 32]).await.unwrap().is_some());
    }
    left
}

async fn a_new_password_ends_sessions_and_links_to_choose_one(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    let bert = account("bert");
    store.add_account(&bert).await.unwrap();
    give_all(&store, &anna).await;
    assert!(store.set_password(&bert.id, Some("new"), Micros::new(2)).await.unwrap());
    assert_eq!(left(&store).await, [true; 4], "another's password ends nothing");
    assert!(store.set_password(&anna.id, Some("new"), Micros::new(2)).await.unwrap());
    assert_eq!(left(&store).await, [false, false, false, true]);
    store.close().await;
}

async fn a_lock_ends_sessions_and_links(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    give_all(&store, &anna).await;
    assert!(store.set_disabled(&anna.id, false, Micros::new(2)).await.unwrap());
    assert_eq!(left(&store).await, [true; 4]);
    assert!(store.set_disabled(&anna.id, true, Micros::new(2)).await.unwrap());
    assert_eq!(left(&store).await, [false; 4]);
    store.close().await;
}

fn identity(account: &Account, issuer: &str, subject: &str) -> Identity {
    Identity {
        issuer: issuer.to_owned(),
        subject: subject.to_owned(),
        account_id: account.id.clone(),
        label: "anna@example.com".to_owned(),
        object_id: None,
        created: Micros::new(1),
    }
}

async fn an_identity_belongs_to_one_account(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    let bert = account("bert");
    store.add_account(&bert).await.unwrap();
    let one = identity(&anna, "https://a.example", "7");
    store.add_identity(&one).await.unwrap();
    let stolen = identity(&bert, "https://a.example", "7");
    assert_eq!(store.add_identity(&stolen).await, Err(StoreError::Conflict("identity")));
    store.add_identity(&identity(&bert, "https://b.example", "7")).await.unwrap();
    let found = store.account_by_identity("https://a.example", "7").await.unwrap();
    assert_eq!(found.unwrap().id, anna.id);
    let other = store.account_by_identity("https://b.example", "7").await.unwrap();
    assert_eq!(other.unwrap().id, bert.id);
    assert_eq!(store.identities_of(&anna.id).await.unwrap(), [one]);
    // Both the subject and the id in the directory find the account, the subject first.
    let by_id = async |issuer: &str, id: &str| {
        let found = store.account_by_provider_id(issuer, id).await.unwrap();
        found.map(|account| account.username)
    };
    let directory =
        Identity { object_id: Some("o".to_owned()), ..identity(&bert, "https://a.example", "8") };
    store.add_identity(&directory).await.unwrap();
    assert_eq!(by_id("https://a.example", "7").await.as_deref(), Some("anna"));
    assert_eq!(by_id("https://a.example", "o").await.as_deref(), Some("bert"));
    assert_eq!(by_id("https://b.example", "o").await, None);
    let mut change = store.begin_change().await.unwrap();
    change.set_object_id("https://a.example", "8", "7").await.unwrap();
    change.commit_unaudited().await.unwrap();
    assert_eq!(by_id("https://a.example", "7").await.as_deref(), Some("anna"));
    assert_eq!(by_id("https://a.example", "o").await, None);
    assert!(!store.drop_identity(&bert.id, "https://a.example", "7").await.unwrap());
    assert!(store.drop_identity(&anna.id, "https://a.example", "7").await.unwrap());
    store.close().await;
}

async fn an_account_and_its_identity_are_added_atomically(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    store.add_identity(&identity(&anna, "https://a.example", "7")).await.unwrap();
    let cleo = account("cleo");
    let terms = AccountTerms { cap: Some(Money::from_nanos(5)), ..AccountTerms::default() };
    let add = async |account: &Account, subject: &str| {
        let identity = identity(account, "https://a.example", subject);
        store.add_account_with_identity(account, &identity, &terms).await
    };
    let taken = add(&cleo, "7").await;
    assert_eq!(taken, Err(StoreError::Conflict("identity")));
    assert_eq!(store.account_by_login("cleo").await.unwrap(), None);
    let named = account("Anna");
    let taken = add(&named, "8").await;
    assert_eq!(taken, Err(StoreError::Conflict("username or email")));
    assert_eq!(store.account_terms().await.unwrap(), []);
    add(&cleo, "8").await.unwrap();
    assert_eq!(store.account_by_login("cleo").await.unwrap(), Some(cleo.clone()));
    assert_eq!(store.account_terms().await.unwrap(), [(cleo.id.clone(), terms.clone())]);
    // The account is not created without its spending limits either.
    let (dora, ezra) = (account("dora"), account("ezra"));
    store.add_account_with_terms(&dora, &terms).await.unwrap();
    store.add_account_with_terms(&ezra, &AccountTerms::default()).await.unwrap();
    let again = Account { id: id(), ..dora.clone() };
    assert!(store.add_account_with_terms(&again, &AccountTerms::default()).await.is_err());
    let limited: Vec<String> =
        store.account_terms().await.unwrap().into_iter().map(|(id, _)| id).collect();
    assert!(limited.contains(&dora.id) && limited.len() == 2, "{limited:?}");
    store.close().await;
}

fn factor(account: &Account, kind: FactorKind) -> Factor {
    Factor {
        id: id(),
        account_id: account.id.clone(),
        kind,
        name: "phone".to_owned(),
        secret: vec![1, 2, 3],
        sealed_by: None,
        counter: 0,
        created: Micros::new(1),
        used: None,
    }
}

async fn a_code_counts_once(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    let totp = factor(&anna, FactorKind::Totp);
    store.add_factor(&totp).await.unwrap();
    assert_eq!(store.factor(&totp.id).await.unwrap(), Some(totp.clone()));
    assert!(
        store.use_factor(&totp.id, 0, Micros::new(2)).await.unwrap(),
        "one that counts nothing"
    );
    assert!(store.use_factor(&totp.id, 41, Micros::new(2)).await.unwrap());
    for old in [41, 40, 0] {
        assert!(!store.use_factor(&totp.id, old, Micros::new(3)).await.unwrap(), "{old}");
    }
    assert!(store.use_factor(&totp.id, 42, Micros::new(4)).await.unwrap());
    assert_eq!(store.factor(&totp.id).await.unwrap().unwrap().used, Some(Micros::new(4)));
    store.close().await;
}

async fn factors_are_removed_by_their_owner_only(database: Arc<TestDatabase>) {
    let (store, anna) = with_account(&database).await;
    let bert = account("bert");
    store.add_account(&bert).await.unwrap();
    let totp = factor(&anna, FactorKind::Totp);
    store.add_factor(&totp).await.unwrap();
    assert!(!store.drop_factor(&bert.id, &totp.id).await.unwrap());
    let codes: Vec<Factor> = (0..3).map(|_| factor(&anna, FactorKind::Recovery)).collect();
    store.replace_factors(&anna.id, FactorKind::Recovery, &codes).await.unwrap();
    let fewer: Vec<Factor> = (0..2).map(|_| factor(&anna, FactorKind::Recovery)).collect();
    store.replace_factors(&anna.id, FactorKind::Recovery, &fewer).await.unwrap();
    assert_eq!(store.factors_of(&anna.id).await.unwrap().len(), 3);
    assert!(store.drop_factor(&anna.id, &totp.id).await.unwrap());
    store.close().await;
}
