//! Conversations and their items.

use std::sync::Arc;

use canon::Micros;
use store::{
    ConversationItem, ConversationLimits, ItemAdmission, ItemPage, ObjectOwner, Store,
    StoredConversation,
};
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

const ROOM: ConversationLimits = ConversationLimits { bytes: 10_000, key_bytes: 100_000 };
const NOW: Micros = Micros::new(5);

on_both!(
    a_conversation_belongs_to_its_key_unless_the_account_is_asked,
    items_keep_their_order_in_pages_of_both_directions,
    additions_at_once_keep_their_items_together,
    the_limits_hold_and_a_refused_addition_leaves_nothing,
    a_conversation_ends_by_expiry_and_by_deletion,
);

fn conversation(account_id: &str, id: &str) -> StoredConversation {
    StoredConversation {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        key_id: "k1".to_owned(),
        metadata: r#"{"a":"\u0000é"}"#.to_owned(),
        bytes: 0,
        created: Micros::new(1),
        expires: Micros::new(100),
    }
}

fn items(ids: &[&str]) -> Vec<ConversationItem> {
    let item =
        |id: &&str| ConversationItem { id: (*id).to_owned(), body: format!("{{\"id\":\"{id}\"}}") };
    ids.iter().map(item).collect()
}

fn page<'a>(after: Option<&'a str>, ascending: bool, limit: u64) -> ItemPage<'a> {
    ItemPage { after, ascending, limit }
}

async fn store_with(database: &TestDatabase) -> (Store, String) {
    let store = database.open().await;
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    (store, ada.id)
}

async fn a_conversation_belongs_to_its_key_unless_the_account_is_asked(
    database: Arc<TestDatabase>,
) {
    let (store, ada) = store_with(&database).await;
    let own = conversation(&ada, "c1");
    assert_eq!(store.add_conversation(&own, &[], ROOM).await.unwrap(), ItemAdmission::Added);
    for (owner, sees) in [
        (ObjectOwner::key(&ada, "k1"), true),
        (ObjectOwner::account(&ada), true),
        (ObjectOwner::key(&ada, "k2"), false),
        (ObjectOwner::account("bob"), false),
    ] {
        let found = store.conversation("c1", &owner, NOW).await.unwrap();
        assert_eq!(found.as_ref().map(|found| &found.metadata), sees.then_some(&own.metadata));
        let changed = store.set_conversation_metadata(&own, &owner, NOW).await.unwrap();
        assert_eq!(changed, sees, "{owner:?}");
        let more = items(&[if sees { owner.key_id().unwrap_or("all") } else { "x" }]);
        let added = store.append_items(&own, &owner, &more, Some(ROOM), NOW).await.unwrap();
        let expected = if sees { ItemAdmission::Added } else { ItemAdmission::NotFound };
        assert_eq!(added, expected, "{owner:?}");
    }
    let stranger = ObjectOwner::key(&ada, "k2");
    assert!(!store.drop_conversation("c1", &stranger, NOW).await.unwrap());
    assert_eq!(store.all_items(&own).await.unwrap(), items(&["k1", "all"]));
}

async fn items_keep_their_order_in_pages_of_both_directions(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let own = conversation(&ada, "c1");
    let owner = ObjectOwner::account(&ada);
    store.add_conversation(&own, &items(&["b", "a"]), ROOM).await.unwrap();
    store.append_items(&own, &owner, &items(&["d", "c"]), None, NOW).await.unwrap();
    assert_eq!(store.all_items(&own).await.unwrap(), items(&["b", "a", "d", "c"]));
    assert!(store.drop_item(&own, "a").await.unwrap());
    assert!(!store.drop_item(&own, "a").await.unwrap());
    let list = async |page| store.list_items(&own, page).await.unwrap();
    assert_eq!(list(page(None, true, 2)).await, Some(items(&["b", "d"])));
    assert_eq!(list(page(Some("d"), true, 2)).await, Some(items(&["c"])));
    assert_eq!(list(page(None, false, 2)).await, Some(items(&["c", "d"])));
    assert_eq!(list(page(Some("d"), false, 9)).await, Some(items(&["b"])));
    assert_eq!(list(page(Some("b"), false, 9)).await, Some(vec![]));
    assert_eq!(list(page(Some("a"), false, 9)).await, None);
    assert_eq!(store.conversation_item(&own, "d").await.unwrap(), items(&["d"]).pop());
    assert_eq!(store.conversation_item(&own, "a").await.unwrap(), None);
    let found = store.conversation("c1", &owner, NOW).await.unwrap().unwrap();
    for id in ["b", "d", "c"] {
        assert!(store.drop_item(&own, id).await.unwrap());
    }
    let empty = store.conversation("c1", &owner, NOW).await.unwrap().unwrap();
    assert!(empty.bytes < found.bytes);
}

async fn additions_at_once_keep_their_items_together(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let own = conversation(&ada, "c1");
    store.add_conversation(&own, &[], ROOM).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let (store, own) = (store.clone(), own.clone());
        tasks.spawn(async move {
            let owner = ObjectOwner::key(&own.account_id, "k1");
            let more = items(&[&format!("q{number}"), &format!("a{number}")]);
            store.append_items(&own, &owner, &more, None, NOW).await.unwrap()
        });
    }
    while let Some(added) = tasks.join_next().await {
        assert_eq!(added.unwrap(), ItemAdmission::Added);
    }
    let all = store.all_items(&own).await.unwrap();
    assert_eq!(all.len(), 16);
    for turn in all.chunks(2) {
        assert_eq!(turn[0].id.replace('q', "a"), turn[1].id);
    }
}

async fn the_limits_hold_and_a_refused_addition_leaves_nothing(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let owner = ObjectOwner::account(&ada);
    let own = conversation(&ada, "c1");
    let twice = items(&["a", "b", "a"]);
    let refused = store.add_conversation(&own, &twice, ROOM).await.unwrap();
    assert_eq!(refused, ItemAdmission::Duplicate("a".to_owned()));
    assert_eq!(store.conversation("c1", &owner, NOW).await.unwrap(), None);
    store.add_conversation(&own, &items(&["a"]), ROOM).await.unwrap();
    let before = store.conversation("c1", &owner, NOW).await.unwrap().unwrap();
    let small = ConversationLimits { bytes: 150, ..ROOM };
    let full = ConversationLimits { key_bytes: 700, ..ROOM };
    for (limits, ids, expected) in [
        (ROOM, ["b", "a"], ItemAdmission::Duplicate("a".to_owned())),
        (small, ["b", "c"], ItemAdmission::TooLarge),
        (full, ["b", "c"], ItemAdmission::KeyFull),
    ] {
        let added = store.append_items(&own, &owner, &items(&ids), Some(limits), NOW).await;
        assert_eq!(added.unwrap(), expected);
    }
    let other = conversation(&ada, "c2");
    let refused = store.add_conversation(&other, &[], full).await.unwrap();
    assert_eq!(refused, ItemAdmission::KeyFull);
    assert_eq!(store.all_items(&own).await.unwrap(), items(&["a"]));
    assert_eq!(store.conversation("c1", &owner, NOW).await.unwrap(), Some(before));
}

async fn a_conversation_ends_by_expiry_and_by_deletion(database: Arc<TestDatabase>) {
    let (store, ada) = store_with(&database).await;
    let owner = ObjectOwner::account(&ada);
    for id in ["c1", "c2", "c3"] {
        store.add_conversation(&conversation(&ada, id), &items(&["a"]), ROOM).await.unwrap();
    }
    assert!(store.drop_conversation("c1", &owner, NOW).await.unwrap());
    assert!(!store.drop_conversation("c1", &owner, NOW).await.unwrap());
    assert_eq!(store.all_items(&conversation(&ada, "c1")).await.unwrap(), []);
    let later = StoredConversation { expires: Micros::new(200), ..conversation(&ada, "c2") };
    store.append_items(&later, &owner, &items(&["b"]), None, NOW).await.unwrap();
    let end = Micros::new(100);
    assert_eq!(store.conversation("c3", &owner, end).await.unwrap(), None);
    assert!(store.conversation("c2", &owner, end).await.unwrap().is_some());
    assert_eq!(store.sweep_conversations(end).await.unwrap(), 1);
    assert_eq!(store.sweep_conversations(Micros::new(200)).await.unwrap(), 1);
    assert_eq!(store.all_items(&later).await.unwrap(), []);
}
