//! Cached contents.

use std::sync::Arc;

use canon::Micros;
use store::{CacheAdmission, CacheCopy, CacheLimits, CachedContent, ObjectOwner, Store};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

const ROOM: CacheLimits = CacheLimits { count: 100, bytes: 1_000 };

on_both!(
    content_belongs_to_its_key_unless_the_account_is_asked,
    content_ends_by_expiry_and_by_deletion,
    the_limits_of_a_key_hold_for_additions_at_once,
    a_copy_ends_with_its_content,
);

fn content(account_id: &str, id: &str) -> CachedContent {
    CachedContent {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        key_id: "k1".to_owned(),
        model: "m".to_owned(),
        display_name: None,
        bytes: 10,
        tokens: 3,
        created: Micros::new(1),
        updated: Micros::new(1),
        expires: Micros::new(100),
    }
}

async fn store_with(database: &TestDatabase) -> (Store, String) {
    let store = database.open().await;
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    (store, ada.id)
}

async fn add(store: &Store, content: &CachedContent, limits: CacheLimits) -> CacheAdmission {
    store.add_cached_content(content, r#"{"contents":"\u0000é"}"#, limits).await.unwrap()
}

async fn content_belongs_to_its_key_unless_the_account_is_asked(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let bob = account("bob");
    store.add_account(&bob).await.unwrap();
    // A name that looks sealed is not taken for one.
    let named = CachedContent { display_name: Some("sealed:x".to_owned()), ..content(&ada, "a") };
    let other = CachedContent { key_id: "k2".to_owned(), ..content(&ada, "b") };
    let third = content(&ada, "c");
    for content in [&named, &other, &third] {
        assert_eq!(add(&store, content, ROOM).await, CacheAdmission::Added);
    }
    let now = Micros::new(5);
    let [first, second] = ["k1", "k2"].map(|key| ObjectOwner::key(&ada, key));
    let (all, stranger) = (ObjectOwner::account(&ada), ObjectOwner::account(&bob.id));
    for (owner, expected) in [
        (&first, vec![&named, &third]),
        (&second, vec![&other]),
        (&all, vec![&named, &other, &third]),
        (&stranger, vec![]),
    ] {
        let listed = store.cached_contents(owner, None, 9, now).await.unwrap();
        assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "{owner:?}");
        for content in [&named, &other, &third] {
            let is_seen = expected.contains(&content);
            let found = store.cached_content(&content.id, owner, now).await.unwrap();
            assert_eq!(found.as_ref(), is_seen.then_some(content), "{owner:?}");
            let found = store.cached_content_body(&content.id, owner, now).await.unwrap();
            assert_eq!(found.as_deref(), is_seen.then_some(r#"{"contents":"\u0000é"}"#));
        }
    }
    let page = store.cached_contents(&all, Some("a"), 1, now).await.unwrap();
    assert_eq!(page, [other]);
    assert!(!store.drop_cached_content("a", &second, now).await.unwrap());
    let longer = store.set_cache_expiry("a", &second, Micros::new(900), now).await.unwrap();
    assert_eq!(longer, None);
    assert_eq!(store.cached_content("a", &all, now).await.unwrap(), Some(named));
    store.close().await;
}

async fn content_ends_by_expiry_and_by_deletion(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let owner = ObjectOwner::key(&ada, "k1");
    for id in ["a", "b", "c"] {
        add(&store, &content(&ada, id), ROOM).await;
    }
    let now = Micros::new(50);
    let longer = store.set_cache_expiry("a", &owner, Micros::new(200), now).await.unwrap();
    let expected = CachedContent { updated: now, expires: Micros::new(200), ..content(&ada, "a") };
    assert_eq!(longer, Some(expected));
    assert!(store.drop_cached_content("b", &owner, now).await.unwrap());
    assert!(!store.drop_cached_content("b", &owner, now).await.unwrap());
    // Expired content is gone before it is swept, and nothing brings it back.
    let end = Micros::new(100);
    assert_eq!(store.cached_content("c", &owner, end).await.unwrap(), None);
    assert_eq!(store.cached_content_body("c", &owner, end).await.unwrap(), None);
    assert_eq!(store.set_cache_expiry("c", &owner, Micros::new(300), end).await.unwrap(), None);
    assert!(!store.drop_cached_content("c", &owner, end).await.unwrap());
    assert_eq!(store.cached_contents(&owner, None, 9, end).await.unwrap().len(), 1);
    assert_eq!(store.sweep_cached_contents(end).await.unwrap(), 1);
    assert_eq!(store.sweep_cached_contents(Micros::new(200)).await.unwrap(), 1);
    store.close().await;
}

async fn the_limits_of_a_key_hold_for_additions_at_once(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let few = CacheLimits { count: 3, bytes: 1_000 };
    let mut running = JoinSet::new();
    for n in 0..12 {
        let (store, content) = (store.clone(), content(&ada, &format!("few{n:02}")));
        running.spawn(async move { add(&store, &content, few).await });
    }
    let added = running.join_all().await;
    let count = |wanted| added.iter().filter(|one| **one == wanted).count();
    assert_eq!((count(CacheAdmission::Added), count(CacheAdmission::TooMany)), (3, 9));
    let small = CacheLimits { count: 100, bytes: 45 };
    assert_eq!(add(&store, &content(&ada, "x"), small).await, CacheAdmission::Added);
    assert_eq!(add(&store, &content(&ada, "y"), small).await, CacheAdmission::TooLarge);
    // Another key has room of its own, and expired contents take none.
    let other = CachedContent { key_id: "k2".to_owned(), ..content(&ada, "z") };
    assert_eq!(add(&store, &other, small).await, CacheAdmission::Added);
    let later = CachedContent {
        created: Micros::new(100),
        expires: Micros::new(200),
        ..content(&ada, "later")
    };
    assert_eq!(add(&store, &later, few).await, CacheAdmission::Added);
    store.close().await;
}

async fn a_copy_ends_with_its_content(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    for id in ["a", "b"] {
        assert_eq!(add(&store, &content(&ada, id), ROOM).await, CacheAdmission::Added);
    }
    let copy = |name: &str| CacheCopy {
        slot: "00ff".to_owned(),
        name: name.to_owned(),
        expires: Micros::new(50),
    };
    let found = async |id: &str, now| store.cache_copy(id, Micros::new(now)).await.unwrap();
    assert_eq!(found("a", 5).await, None);
    store.set_cache_copy("a", &copy("first")).await.unwrap();
    store.set_cache_copy("b", &copy("other")).await.unwrap();
    store.set_cache_copy("a", &copy("second")).await.unwrap();
    assert_eq!(found("a", 5).await, Some(copy("second")));
    assert_eq!(found("a", 50).await, None, "it has expired");
    store.drop_cache_copy("a", "first").await.unwrap();
    assert_eq!(found("a", 5).await, Some(copy("second")), "another one took its place");
    store.drop_cache_copy("a", "second").await.unwrap();
    assert_eq!(found("a", 5).await, None);
    let owner = ObjectOwner::account(&ada);
    assert!(store.drop_cached_content("b", &owner, Micros::new(5)).await.unwrap());
    assert_eq!(found("b", 5).await, None);
    assert!(store.set_cache_copy("b", &copy("late")).await.is_err(), "there is no such content");
}
