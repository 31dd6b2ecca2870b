//! Keys: stored completely, edited without reverting anything, found by the time of their change.

use std::sync::Arc;

use canon::{Micros, Money};
use store::{KeyRecord, KeyScope, RateLimits, StoreError};

use crate::on_both;
use crate::samples::{account, any_key, check, entry, id, key, some_key};
use crate::test_database::TestDatabase;

on_both!(
    any_key_is_stored_completely,
    keys_are_listed_in_all_and_by_account,
    a_key_needs_a_unique_id_and_an_account,
    a_new_key_has_spent_nothing,
    a_key_is_revoked_once,
    a_rotated_key_keeps_the_previous_secret,
    an_edit_from_an_old_copy_reverts_nothing,
    only_edits_count_as_changes,
    an_edit_with_a_slow_clock_is_found,
    keys_from_before_scopes_make_calls,
    an_admin_key_ends_and_keeps_its_scope,
    bounds_of_a_key_are_kept_and_edited,
    a_hash_is_replaced_only_as_long_as_it_is_stored,
    spending_from_before_a_key_counts_like_that_of_calls,
);

async fn any_key_is_stored_completely(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let account = account("ada");
    store.add_account(&account).await.unwrap();
    check(64, any_key(account.id.clone()), |key| async {
        store.add_key(&key).await.unwrap();
        assert_eq!(store.key(&key.id).await.unwrap(), Some(key));
    });
    store.close().await;
}

async fn keys_are_listed_in_all_and_by_account(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (a, b) = (some_key(&store).await, some_key(&store).await);
    let c = KeyRecord { created: Micros::ZERO, ..key(&a.account_id) };
    store.add_key(&c).await.unwrap();
    let mut all = vec![a.clone(), b.clone(), c.clone()];
    all.sort_by_key(|key| (key.created, key.id.clone()));
    assert_eq!(store.keys().await.unwrap(), all);
    assert_eq!(store.keys_of(&a.account_id).await.unwrap(), [c, a]);
    assert_eq!(store.keys_of(&b.account_id).await.unwrap(), [b]);
    assert_eq!(store.keys_of("nobody").await.unwrap(), []);
    assert_eq!(store.key("none").await.unwrap(), None);
    store.close().await;
}

async fn a_key_needs_a_unique_id_and_an_account(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    assert_eq!(store.add_key(&key).await.unwrap_err(), StoreError::Conflict("key id"));
    let orphan = KeyRecord { id: id(), account_id: id(), ..key };
    assert_eq!(store.add_key(&orphan).await.unwrap_err(), StoreError::Missing("account"));
    store.close().await;
}

async fn a_new_key_has_spent_nothing(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut key = KeyRecord { id: id(), ..some_key(&store).await };
    key.spent = Money::from_nanos(5);
    key.last_used = Some(Micros::new(5));
    store.add_key(&key).await.unwrap();
    let stored = store.key(&key.id).await.unwrap().unwrap();
    assert_eq!((stored.spent, stored.last_used), (Money::ZERO, None));
    store.close().await;
}

async fn a_key_is_revoked_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    assert!(store.revoke_key(&key.id, Micros::new(10)).await.unwrap());
    assert!(!store.revoke_key(&key.id, Micros::new(20)).await.unwrap());
    assert!(!store.revoke_key("none", Micros::new(20)).await.unwrap());
    let stored = store.key(&key.id).await.unwrap().unwrap();
    assert_eq!(
        stored,
        KeyRecord { revoked: Some(Micros::new(10)), changed: Micros::new(10), ..key }
    );
    store.close().await;
}

async fn a_rotated_key_keeps_the_previous_secret(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let mut key = some_key(&store).await;
    assert!(store.rotate_key(&key.id, b"second", Micros::new(100), Micros::new(10)).await.unwrap());
    key = KeyRecord {
        old_hash: Some(key.hash),
        hash: b"second".to_vec(),
        old_until: Some(Micros::new(100)),
        changed: Micros::new(10),
        ..key
    };
    assert_eq!(store.key(&key.id).await.unwrap(), Some(key.clone()));
    assert!(store.rotate_key(&key.id, b"third", Micros::new(200), Micros::new(20)).await.unwrap());
    let stored = store.key(&key.id).await.unwrap().unwrap();
    assert_eq!(stored.old_hash.as_deref(), Some(&b"second"[..]));
    store.revoke_key(&key.id, Micros::new(30)).await.unwrap();
    assert!(
        !store.rotate_key(&key.id, b"fourth", Micros::new(300), Micros::new(40)).await.unwrap()
    );
    assert!(!store.rotate_key("none", b"fourth", Micros::new(300), Micros::new(40)).await.unwrap());
    store.close().await;
}

async fn an_edit_from_an_old_copy_reverts_nothing(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let old = some_key(&store).await;
    store.rotate_key(&old.id, b"second", Micros::new(100), Micros::new(10)).await.unwrap();
    store.revoke_key(&old.id, Micros::new(20)).await.unwrap();
    store.post(&[entry(&id(), &old, 7, 70)]).await.unwrap();
    let edited = KeyRecord {
        name: "another".to_owned(),
        cap: Some(Money::from_nanos(99)),
        models: vec!["m".to_owned()],
        expires: Some(Micros::new(1000)),
        limits: RateLimits { rpm: Some(u32::MAX), tpm: None, concurrency: Some(0) },
        ips: vec!["10.0.0.0/8".to_owned()],
        changed: Micros::new(30),
        ..old.clone()
    };
    assert!(store.update_key(&edited).await.unwrap());
    let stored = store.key(&old.id).await.unwrap().unwrap();
    let expected = KeyRecord {
        hash: b"second".to_vec(),
        old_hash: Some(old.hash),
        old_until: Some(Micros::new(100)),
        revoked: Some(Micros::new(20)),
        spent: Money::from_nanos(7),
        last_used: Some(Micros::new(70)),
        ..edited
    };
    assert_eq!(stored, expected);
    assert!(!store.update_key(&KeyRecord { id: id(), ..expected }).await.unwrap());
    store.close().await;
}

async fn only_edits_count_as_changes(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (a, b) = (some_key(&store).await, some_key(&store).await);
    let changed = async |since| {
        let keys = store.keys_changed_since(since).await.unwrap();
        keys.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    assert_eq!(changed(Micros::new(1)).await.len(), 2);
    assert_eq!(changed(Micros::new(2)).await, [""; 0]);
    store.post(&[entry(&id(), &a, 7, 70)]).await.unwrap();
    assert_eq!(changed(Micros::new(2)).await, [""; 0], "spending is no edit");
    store.revoke_key(&b.id, Micros::new(10)).await.unwrap();
    assert_eq!(changed(Micros::new(10)).await, [&*b.id]);
    assert_eq!(changed(Micros::new(11)).await, [""; 0]);
    store.rotate_key(&a.id, b"second", Micros::new(100), Micros::new(20)).await.unwrap();
    assert_eq!(changed(Micros::new(10)).await, [&*b.id, &*a.id]);
    store.update_key(&KeyRecord { changed: Micros::new(30), ..b.clone() }).await.unwrap();
    assert_eq!(changed(Micros::new(10)).await, [&*a.id, &*b.id]);
    store.close().await;
}

async fn an_edit_with_a_slow_clock_is_found(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    store.rotate_key(&key.id, b"second", Micros::new(100), Micros::new(50)).await.unwrap();
    store.revoke_key(&key.id, Micros::new(40)).await.unwrap();
    let stored = store.keys_changed_since(Micros::new(51)).await.unwrap();
    assert_eq!(
        stored.first().map(|key| (key.changed, key.revoked)),
        Some((Micros::new(51), Some(Micros::new(40))))
    );
    store.close().await;
}

async fn keys_from_before_scopes_make_calls(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let old = some_key(&store).await;
    store.close().await;
    // The database as an older build left it.
    database.execute_raw("ALTER TABLE keys DROP COLUMN scope").await;
    database.execute_raw("DELETE FROM _sqlx_migrations WHERE version = 15").await;
    let store = database.open().await;
    assert_eq!(old.scope, KeyScope::Call);
    assert_eq!(store.keys().await.unwrap(), [old]);
    store.close().await;
}

async fn an_admin_key_ends_and_keeps_its_scope(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = some_key(&store).await.account_id;
    let mut admin = key(&owner);
    admin.make_admin(Micros::new(7));
    assert_eq!(
        (admin.cap, admin.expires),
        (Some(Money::ZERO), Some(Micros::new(7) + Micros::from_days(30)))
    );
    store.add_key(&admin).await.unwrap();
    assert_eq!(store.key(&admin.id).await.unwrap(), Some(admin.clone()));
    let edited = KeyRecord { scope: KeyScope::Call, changed: Micros::new(9), ..admin.clone() };
    assert!(store.update_key(&edited).await.unwrap());
    let stored = store.key(&admin.id).await.unwrap().unwrap();
    assert_eq!(stored, KeyRecord { changed: Micros::new(9), ..admin.clone() }, "the scope stays");
    let endless = KeyRecord { expires: None, ..admin.clone() };
    assert!(store.update_key(&endless).await.is_err());
    assert!(store.add_key(&KeyRecord { id: id(), ..endless }).await.is_err());
    store.close().await;
}

async fn bounds_of_a_key_are_kept_and_edited(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let owner = some_key(&store).await.account_id;
    let bounds = store::KeyBounds {
        cap: Some(Money::from_nanos(5)),
        models: vec!["a \0".to_owned()],
        ips: vec!["10.0.0.0/8".to_owned()],
        ..store::KeyBounds::default()
    };
    let bound = KeyRecord { bounds, ..key(&owner) };
    store.add_key(&bound).await.unwrap();
    assert_eq!(store.key(&bound.id).await.unwrap(), Some(bound.clone()));
    let free = KeyRecord { bounds: store::KeyBounds::default(), changed: Micros::new(9), ..bound };
    assert!(store.update_key(&free).await.unwrap());
    assert_eq!(store.key(&free.id).await.unwrap(), Some(free));
    store.close().await;
}

async fn a_hash_is_replaced_only_as_long_as_it_is_stored(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let key = some_key(&store).await;
    let rehash = async |old: &[u8], new: &[u8]| {
        let mut change = store.begin_change().await.unwrap();
        let changed = change.rehash_key(&key.id, old, new, Micros::new(9)).await.unwrap();
        change.commit_unaudited().await.unwrap();
        changed
    };
    assert!(rehash(&key.hash, b"new").await);
    assert!(!rehash(&key.hash, b"newer").await);
    let found = store.key(&key.id).await.unwrap().unwrap();
    assert_eq!(found.hash, b"new");
    assert!(found.changed > key.changed, "other nodes must find it");
    store.close().await;
}

async fn spending_from_before_a_key_counts_like_that_of_calls(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let account = account("ada");
    store.add_account(&account).await.unwrap();
    let key = KeyRecord { cap: Some(Money::from_nanos(10)), ..key(&account.id) };
    let spent = |word: &str, cost: i64| ledger::LedgerEntry {
        request_id: format!("imported-{word}").into(),
        key_id: key.id.as_str().into(),
        account_id: account.id.as_str().into(),
        model: "imported".into(),
        lane: "imported/other".into(),
        price_version: "imported".into(),
        attempts: 1,
        status: 200,
        outcome: ledger::CallOutcome::Done,
        cost: Money::from_nanos(cost),
        held: Some(Money::from_nanos(cost)),
        ..ledger::LedgerEntry::default()
    };
    let mut change = store.begin_change().await.unwrap();
    change.add_key(&key).await.unwrap();
    change.add_opening_spend(&[spent("a", 3), spent("b", 4)]).await.unwrap();
    change.commit_unaudited().await.unwrap();
    let found = store.key(&key.id).await.unwrap().unwrap();
    assert_eq!((found.spent, found.last_used), (Money::from_nanos(7), None));
    assert_eq!(store.account_spending(&account.id).await.unwrap().0, Money::from_nanos(7));
    let (checks, calls) = store.verify().await.unwrap();
    assert_eq!(calls, 2);
    for check in checks {
        assert_eq!(check.violations, Vec::<String>::new(), "{}", check.law);
    }
    // Without the key nothing is stored.
    let mut change = store.begin_change().await.unwrap();
    let stray = ledger::LedgerEntry { key_id: id().into(), ..spent("c", 1) };
    assert!(change.add_opening_spend(&[stray]).await.is_err());
    drop(change);
    assert_eq!(store.verify().await.unwrap().1, 2);
    store.close().await;
}
