//! Stored responses.

use std::sync::Arc;

use canon::Micros;
use store::{ObjectOwner, StoredResponse};

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(
    a_response_belongs_to_its_account_until_it_is_deleted,
    a_response_belongs_to_its_key_unless_the_account_is_asked,
);

async fn a_response_belongs_to_its_account_until_it_is_deleted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (ada, bob) = (account("ada"), account("bob"));
    store.add_account(&ada).await.unwrap();
    store.add_account(&bob).await.unwrap();
    let kept = |id: &str, reply: &str, expires| StoredResponse {
        id: id.to_owned(),
        account_id: ada.id.clone(),
        key_id: None,
        request: r#"{"input":"\u0000é"}"#.to_owned(),
        reply: reply.to_owned(),
        created: Micros::new(1),
        expires,
    };
    store.store_response(&kept("r1", "{}", Micros::new(10))).await.unwrap();
    let newer = kept("r1", r#"{"status":"completed"}"#, Micros::new(20));
    store.store_response(&newer).await.unwrap();
    assert_eq!(
        store.stored_response("r1", &ObjectOwner::account(&ada.id)).await.unwrap(),
        Some(newer.clone())
    );
    assert_eq!(store.stored_response("r1", &ObjectOwner::account(&bob.id)).await.unwrap(), None);

    let stolen =
        StoredResponse { account_id: bob.id.clone(), reply: "stolen".to_owned(), ..newer.clone() };
    store.store_response(&stolen).await.unwrap();
    assert_eq!(
        store.stored_response("r1", &ObjectOwner::account(&ada.id)).await.unwrap(),
        Some(newer)
    );
    assert!(!store.drop_response("r1", &ObjectOwner::account(&bob.id)).await.unwrap());
    assert!(store.drop_response("r1", &ObjectOwner::account(&ada.id)).await.unwrap());
    assert!(!store.drop_response("r1", &ObjectOwner::account(&ada.id)).await.unwrap());

    store.store_response(&kept("r2", "{}", Micros::new(10))).await.unwrap();
    store.store_response(&kept("r3", "{}", Micros::new(30))).await.unwrap();
    assert_eq!(store.sweep_responses(Micros::new(10)).await.unwrap(), 1);
    assert!(store.stored_response("r3", &ObjectOwner::account(&ada.id)).await.unwrap().is_some());
    store.close().await;
}

async fn a_response_belongs_to_its_key_unless_the_account_is_asked(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    let kept = |id: &str, key_id: Option<&str>| StoredResponse {
        id: id.to_owned(),
        account_id: ada.id.clone(),
        key_id: key_id.map(str::to_owned),
        request: "{}".to_owned(),
        reply: "{}".to_owned(),
        created: Micros::new(1),
        expires: Micros::new(10),
    };
    let (own, old) = (kept("own", Some("k1")), kept("old", None));
    store.store_response(&own).await.unwrap();
    store.store_response(&old).await.unwrap();
    let [first, second] = ["k1", "k2"].map(|key| ObjectOwner::key(&ada.id, key));
    let all = ObjectOwner::account(&ada.id);
    for (owner, sees) in [(&first, true), (&second, false), (&all, true)] {
        let found = store.stored_response("own", owner).await.unwrap();
        assert_eq!(found, sees.then(|| own.clone()), "{owner:?}");
        let found = store.stored_response("old", owner).await.unwrap();
        assert_eq!(found.as_ref(), Some(&old), "{owner:?}");
    }
    let stolen = StoredResponse { reply: "stolen".to_owned(), ..kept("own", Some("k2")) };
    store.store_response(&stolen).await.unwrap();
    assert_eq!(store.stored_response("own", &all).await.unwrap(), Some(own));
    assert!(!store.drop_response("own", &second).await.unwrap());
    assert!(store.drop_response("own", &first).await.unwrap());
    assert!(store.drop_response("old", &second).await.unwrap());
    store.close().await;
}
