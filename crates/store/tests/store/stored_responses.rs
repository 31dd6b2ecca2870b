//! Stored responses.

use std::sync::Arc;

use canon::Micros;
use store::StoredResponse;

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

on_both!(a_response_belongs_to_its_account_until_it_is_deleted);

async fn a_response_belongs_to_its_account_until_it_is_deleted(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let (ada, bob) = (account("ada"), account("bob"));
    store.add_account(&ada).await.unwrap();
    store.add_account(&bob).await.unwrap();
    let kept = |id: &str, reply: &str, expires| StoredResponse {
        id: id.to_owned(),
        account_id: ada.id.clone(),
        request: r#"{"input":"\u0000é"}"#.to_owned(),
        reply: reply.to_owned(),
        created: Micros::new(1),
        expires,
    };
    store.store_response(&kept("r1", "{}", Micros::new(10))).await.unwrap();
    let newer = kept("r1", r#"{"status":"completed"}"#, Micros::new(20));
    store.store_response(&newer).await.unwrap();
    assert_eq!(store.stored_response("r1", &ada.id).await.unwrap(), Some(newer.clone()));
    assert_eq!(store.stored_response("r1", &bob.id).await.unwrap(), None);

    let stolen =
        StoredResponse { account_id: bob.id.clone(), reply: "stolen".to_owned(), ..newer.clone() };
    store.store_response(&stolen).await.unwrap();
    assert_eq!(store.stored_response("r1", &ada.id).await.unwrap(), Some(newer));
    assert!(!store.drop_response("r1", &bob.id).await.unwrap());
    assert!(store.drop_response("r1", &ada.id).await.unwrap());
    assert!(!store.drop_response("r1", &ada.id).await.unwrap());

    store.store_response(&kept("r2", "{}", Micros::new(10))).await.unwrap();
    store.store_response(&kept("r3", "{}", Micros::new(30))).await.unwrap();
    assert_eq!(store.sweep_responses(Micros::new(10)).await.unwrap(), 1);
    assert!(store.stored_response("r3", &ada.id).await.unwrap().is_some());
    store.close().await;
}
