//! Bodies at rest: sealed in every table, readable after a restart and a re-keying.

use std::sync::Arc;

use canon::Micros;
use store::{
    CacheAdmission, CacheLimits, CachedContent, CallClaim, CallName, ClaimResult, ConversationItem,
    ConversationLimits, ItemAdmission, NewTask, ObjectOwner, Store, StoreError, StoredConversation,
    StoredReply, StoredResponse, TaskBody, TaskClaim, TaskEnd, TaskState, Vault, VaultKeys,
};

use crate::on_both;
use crate::samples::account;
use crate::test_database::TestDatabase;

const CANARY: &str = "canary-7f3a-conversation";
const OLD: &str = "old:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const NEW: &str = "new:ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
const NEVER: Micros = Micros::new(1 << 60);

on_both!(
    bodies_are_sealed_in_every_table,
    bodies_open_after_restart_and_rekeying,
    rows_from_before_stay_readable,
    a_missing_key_is_an_error_with_its_name,
    a_sealed_body_opens_in_its_own_row_only,
    a_shared_database_without_keys_stores_bodies_as_they_are,
);

fn vault(keys: &[&str]) -> Arc<Vault> {
    let keys = (!keys.is_empty()).then(|| VaultKeys::read(&keys.join("\n")).unwrap());
    Arc::new(Vault::new(std::env::temp_dir().join("portunus-no-such.key"), keys, true))
}

async fn open(database: &TestDatabase, keys: &[&str]) -> Store {
    database.open().await.with_vault(vault(keys))
}

fn response(account_id: &str, id: &str) -> StoredResponse {
    StoredResponse {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        key_id: None,
        request: format!("{{\"input\":\"{CANARY} request of {id}\"}}"),
        reply: format!("{{\"output\":\"{CANARY} reply of {id}\"}}"),
        created: Micros::new(1),
        expires: NEVER,
    }
}

fn cached(account_id: &str) -> (CachedContent, String) {
    let content = CachedContent {
        id: "cache_1".to_owned(),
        account_id: account_id.to_owned(),
        key_id: "key".to_owned(),
        model: "m".to_owned(),
        display_name: Some(format!("{CANARY} \"name\"")),
        bytes: 1,
        tokens: 2,
        created: Micros::new(1),
        updated: Micros::new(1),
        expires: NEVER,
    };
    (content, format!("{{\"contents\":\"{CANARY}\"}}"))
}

fn call(account_id: &str) -> CallClaim {
    CallClaim {
        call: CallName::new(&ObjectOwner::account(account_id), "name"),
        hash: vec![1],
        owner: "me".to_owned(),
        lifetime: Micros::from_hours(1),
    }
}

fn replay() -> StoredReply {
    StoredReply {
        status: 200,
        headers: format!("{{\"x-loss\":\"{CANARY}\"}}"),
        body: Some(format!("{CANARY} replay\0").into_bytes()),
    }
}

fn request() -> TaskBody {
    TaskBody {
        head: format!("{{\"h\":\"{CANARY}\"}}"),
        body: Some(format!("{CANARY} body\0").into_bytes()),
        file: None,
    }
}

fn webhook() -> String {
    format!("https://hooks.example/{CANARY}")
}

fn task(account_id: &str, id: &str) -> NewTask {
    NewTask {
        id: id.to_owned(),
        account_id: account_id.to_owned(),
        key_id: "key".to_owned(),
        path: "/v1/images/generations".to_owned(),
        model: "m".to_owned(),
        provider: "p".to_owned(),
        request: request(),
        webhook: Some(webhook()),
        created: Micros::new(1),
        max_open: 100,
        expires: NEVER,
    }
}

fn conversation(account_id: &str) -> StoredConversation {
    StoredConversation {
        id: "conv_1".to_owned(),
        account_id: account_id.to_owned(),
        key_id: "key".to_owned(),
        metadata: format!("{{\"m\":\"{CANARY}\"}}"),
        bytes: 0,
        created: Micros::new(1),
        expires: NEVER,
    }
}

fn item() -> ConversationItem {
    ConversationItem { id: "msg_1".to_owned(), body: format!("{{\"i\":\"{CANARY}\"}}") }
}

fn end() -> TaskEnd {
    TaskEnd {
        state: TaskState::Failed,
        result: Some(format!("{{\"r\":\"{CANARY}\"}}")),
        error: Some(format!("{{\"e\":\"{CANARY}\"}}")),
        ended: Micros::new(2),
        expires: NEVER,
    }
}

/// Stores one body of every kind: a waiting task and one that ended.
async fn fill(store: &Store) -> String {
    let ada = account("ada");
    store.add_account(&ada).await.unwrap();
    store.store_response(&response(&ada.id, "r1")).await.unwrap();
    assert_eq!(store.claim(&call(&ada.id)).await.unwrap(), ClaimResult::Ours);
    assert!(store.finish_claim(&call(&ada.id).call, "me", &replay()).await.unwrap());
    store.add_task(&task(&ada.id, "task_1")).await.unwrap();
    store.add_task(&task(&ada.id, "task_2")).await.unwrap();
    let ((content, body), limits) = (cached(&ada.id), CacheLimits { count: 9, bytes: 99 });
    let added = store.add_cached_content(&content, &body, limits).await.unwrap();
    assert_eq!(added, CacheAdmission::Added);
    let (talk, items) = (conversation(&ada.id), [item()]);
    let limits = ConversationLimits { bytes: 999, key_bytes: 9_999 };
    let added = store.add_conversation(&talk, &items, limits).await.unwrap();
    assert_eq!(added, ItemAdmission::Added);
    let hold = Micros::from_hours(1);
    let claim = TaskClaim { owner: "node", request_id: "req", hold, per_provider: 9 };
    let taken = store.claim_task(&claim).await.unwrap().unwrap();
    assert!(store.end_task(&taken.id, taken.runs, &end()).await.unwrap());
    ada.id
}

/// Reads all of them back.
async fn check(store: &Store, ada: &str) {
    let owner = ObjectOwner::account(ada);
    let kept = store.stored_response("r1", &owner).await.unwrap();
    assert_eq!(kept, Some(response(ada, "r1")));
    let again = store.claim(&call(ada)).await.unwrap();
    assert_eq!(again, ClaimResult::Over(replay()));
    assert_eq!(store.task_body("task_2").await.unwrap(), Some(request()));
    let ended = store.task("task_1", &owner, Micros::new(3)).await.unwrap().unwrap();
    assert_eq!((ended.result, ended.error), (end().result, end().error));
    assert_eq!(ended.webhook.unwrap().url, webhook());
    assert_eq!(store.tasks(&owner, None, None, 9, Micros::new(3)).await.unwrap().len(), 2);
    let found = store.cached_content_body("cache_1", &owner, Micros::new(3)).await.unwrap();
    assert_eq!(found, Some(cached(ada).1));
    let talk = store.conversation("conv_1", &owner, Micros::new(3)).await.unwrap().unwrap();
    assert_eq!(talk.metadata, conversation(ada).metadata);
    assert_eq!(store.all_items(&talk).await.unwrap(), [item()]);
}

async fn bodies_are_sealed_in_every_table(database: Arc<TestDatabase>) {
    let plain = database.open().await;
    let ada = fill(&plain).await;
    check(&plain, &ada).await;
    assert!(database.holds(CANARY).await, "without a vault it is found");
    plain.close().await;
    database.execute_raw("DELETE FROM kept").await;
    database.execute_raw("DELETE FROM idempotent").await;
    database.execute_raw("DELETE FROM tasks").await;
    database.execute_raw("DELETE FROM cached_contents").await;
    database.execute_raw("DELETE FROM conversation_items").await;
    database.execute_raw("DELETE FROM conversations").await;
    database.execute_raw("DELETE FROM accounts").await;
    database.compact().await;
    assert!(!database.holds(CANARY).await);

    let store = open(&database, &[OLD]).await;
    let ada = fill(&store).await;
    check(&store, &ada).await;
    assert!(!database.holds(CANARY).await);
    assert_eq!(store.sealed().await.unwrap(), [("old".to_owned(), 1)].into());
    store.close().await;
    assert!(!database.holds(CANARY).await);
}

async fn bodies_open_after_restart_and_rekeying(database: Arc<TestDatabase>) {
    let store = open(&database, &[OLD]).await;
    let ada = fill(&store).await;
    let first = *store.sealing_key().await.unwrap().unwrap().id();
    store.close().await;
    let both = vault(&[NEW, OLD]);
    let store = database.open().await.with_vault(Arc::clone(&both));
    check(&store, &ada).await;
    assert_eq!(*store.sealing_key().await.unwrap().unwrap().id(), first, "it is found again");
    assert_eq!(both.rekey(&store).await.unwrap().sealed, 1, "one data key, and no body");
    let second = *store.sealing_key().await.unwrap().unwrap().id();
    assert_ne!(first, second, "what follows has another data key");
    check(&store, &ada).await;
    store.close().await;
    let store = open(&database, &[NEW]).await;
    check(&store, &ada).await;
    assert_eq!(*store.sealing_key().await.unwrap().unwrap().id(), second);
    store.close().await;
}

async fn rows_from_before_stay_readable(database: Arc<TestDatabase>) {
    let plain = database.open().await;
    let ada = fill(&plain).await;
    plain.close().await;
    let store = open(&database, &[OLD]).await;
    check(&store, &ada).await;
    // A newer state of the same answer is sealed.
    store.store_response(&response(&ada, "r1")).await.unwrap();
    check(&store, &ada).await;
    store.close().await;
}

async fn a_missing_key_is_an_error_with_its_name(database: Arc<TestDatabase>) {
    let store = open(&database, &[OLD]).await;
    let ada = fill(&store).await;
    store.close().await;
    let owner = ObjectOwner::account(&ada);
    for keys in [&[NEW][..], &[]] {
        let store = open(&database, keys).await;
        let told = [
            store.stored_response("r1", &owner).await.map(drop).unwrap_err(),
            store.claim(&call(&ada)).await.map(drop).unwrap_err(),
            store.task_body("task_2").await.map(drop).unwrap_err(),
            store
                .cached_content_body("cache_1", &owner, Micros::new(3))
                .await
                .map(drop)
                .unwrap_err(),
        ];
        for error in told {
            assert!(matches!(&error, StoreError::Sealing(why) if why.contains("`old`")), "{error}");
        }
        // A task says so and hides no other.
        let listed = store.tasks(&owner, None, None, 9, Micros::new(3)).await.unwrap();
        let unreadable = listed.iter().filter(|task| task.unreadable.is_some());
        let unreadable: Vec<&str> = unreadable.map(|task| task.id.as_str()).collect();
        assert_eq!((listed.len(), unreadable), (2, vec!["task_1"]));
        let ended = store.task("task_1", &owner, Micros::new(3)).await.unwrap().unwrap();
        assert_eq!((ended.state, ended.result, ended.error), (TaskState::Failed, None, None));
        assert!(ended.unreadable.is_some_and(|why| why.contains("`old`")));
        assert_eq!(ended.webhook.unwrap().url, "");
        // So does cached content.
        let listed = store.cached_contents(&owner, None, 9, Micros::new(3)).await.unwrap();
        assert_eq!(listed, [CachedContent { display_name: None, ..cached(&ada).0 }]);
        // New bodies are stored all the same.
        store.store_response(&response(&ada, "r2")).await.unwrap();
        let kept = store.stored_response("r2", &owner).await.unwrap();
        assert_eq!(kept, Some(response(&ada, "r2")));
        store.close().await;
    }
    let without = database.open().await;
    let error = without.stored_response("r1", &owner).await.unwrap_err();
    assert!(error.to_string().contains("has no vault"), "{error}");
    without.close().await;
}

async fn a_sealed_body_opens_in_its_own_row_only(database: Arc<TestDatabase>) {
    let store = open(&database, &[OLD]).await;
    let ada = fill(&store).await;
    store.store_response(&response(&ada, "r2")).await.unwrap();
    database
        .execute_raw(
            "UPDATE kept SET sealed = (SELECT k.sealed FROM kept k WHERE k.id = 'r1') \
             WHERE id = 'r2'",
        )
        .await;
    database
        .execute_raw(
            "UPDATE tasks SET head = (SELECT t.head FROM tasks t WHERE t.id = 'task_2') \
             WHERE id = 'task_1'",
        )
        .await;
    let owner = ObjectOwner::account(&ada);
    let error = store.stored_response("r2", &owner).await.unwrap_err();
    assert!(matches!(&error, StoreError::Sealing(why) if why.contains("another row")), "{error}");
    assert!(store.task_body("task_1").await.is_err());
    assert!(store.stored_response("r1", &owner).await.is_ok());
    store.close().await;
}

async fn a_shared_database_without_keys_stores_bodies_as_they_are(database: Arc<TestDatabase>) {
    let unset = vault(&[]);
    assert!(unset.is_unset() && !vault(&[OLD]).is_unset());
    assert!(!Vault::new(std::env::temp_dir().join("portunus-no-such.key"), None, false).is_unset());
    let store = database.open().await.with_vault(unset);
    let ada = fill(&store).await;
    check(&store, &ada).await;
    assert!(store.sealed().await.unwrap().is_empty());
    assert!(database.holds(CANARY).await);
    store.close().await;
}
