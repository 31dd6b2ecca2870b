//! Objects of providers: each belongs to the key that it was made for, until it expires.

use std::sync::Arc;

use canon::Micros;
use store::{ObjectOwner, ProviderObject, Store};

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(an_object_belongs_to_its_key_until_it_expires, many_objects_are_found_at_once);

const NOW: Micros = Micros::from_secs(1_000);

fn object(account_id: &str, key_id: &str, number: u16, expires: Micros) -> ProviderObject {
    let hash = number.to_be_bytes().repeat(16);
    ProviderObject { hash, account_id: account_id.to_owned(), key_id: key_id.to_owned(), expires }
}

async fn find(store: &Store, owner: &ObjectOwner, number: u16, now: Micros) -> Vec<ProviderObject> {
    store.provider_objects(owner, &[number.to_be_bytes().repeat(16)], now).await.unwrap()
}

async fn an_object_belongs_to_its_key_until_it_expires(database: Arc<TestDatabase>) {
    // Two stores act as two nodes.
    let (one, other) = (database.open().await, database.open().await);
    let (ada, bob) = (account("ada"), account("bob"));
    one.add_account(&ada).await.unwrap();
    one.add_account(&bob).await.unwrap();
    let end = NOW + Micros::from_secs(60);
    let (first, again) = (object(&ada.id, "k1", 1, end), object(&ada.id, "k1", 1, NOW));
    let foreign = object(&bob.id, "k3", 1, end);
    one.record_objects(&[first.clone(), again, foreign.clone()]).await.unwrap();
    let key = |id: &str| ObjectOwner::key(&ada.id, id);
    assert_eq!(find(&other, &key("k1"), 1, NOW).await, std::slice::from_ref(&first));
    assert_eq!(find(&other, &key("k2"), 1, NOW).await, []);
    assert_eq!(find(&other, &key("k1"), 2, NOW).await, []);
    assert_eq!(find(&other, &ObjectOwner::account(&ada.id), 1, NOW).await, [first]);
    assert_eq!(find(&other, &ObjectOwner::key(&bob.id, "k1"), 1, NOW).await, []);
    assert_eq!(find(&other, &ObjectOwner::account(&bob.id), 1, NOW).await, [foreign]);
    assert_eq!(find(&other, &key("k1"), 1, end).await, []);
    assert_eq!(one.sweep_objects(end - Micros::from_secs(1)).await.unwrap(), 0);
    assert_eq!(one.sweep_objects(end).await.unwrap(), 2);
    assert_eq!(find(&other, &key("k1"), 1, NOW).await, []);
}

async fn many_objects_are_found_at_once(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    let objects: Vec<_> =
        (0..1_200).map(|number| object(&ada.id, "k", number, NOW + Micros::from_secs(1))).collect();
    store.record_objects(&objects).await.unwrap();
    let hashes: Vec<Vec<u8>> = objects.iter().map(|object| object.hash.clone()).collect();
    let owner = ObjectOwner::key(&ada.id, "k");
    assert_eq!(store.provider_objects(&owner, &hashes, NOW).await.unwrap().len(), 1_200);
    assert_eq!(store.provider_objects(&owner, &[], NOW).await.unwrap(), []);
}
