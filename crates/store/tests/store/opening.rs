//! Opening: migrations, concurrent starts, a newer schema, error messages.

use std::sync::Arc;

use ledger::LeaseStore;
use std::collections::BTreeMap;
use store::{MigrationKind, ProbedSchema, Store, StoreError, probe_store};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::on_both;
use crate::samples::{account, id};
use crate::test_database::{TestDatabase, run};

on_both!(run_empty:
    data_survives_reopening,
    eight_processes_can_open_a_new_database,
    a_newer_schema_below_its_floor_is_refused_and_not_changed,
    a_newer_schema_that_only_expands_is_used,
    a_database_of_the_version_before_is_checked_and_migrated,
    a_schema_of_another_build_is_refused,
    a_closed_store_is_unreachable,
    a_look_at_a_database_changes_nothing,
    nodes_read_the_facts_of_each_other,
);

async fn data_survives_reopening(database: Arc<TestDatabase>) {
    let store = database.open().await;
    store.ping().await.unwrap();
    store.put_setting("name", "value").await.unwrap();
    store.close().await;
    let store = database.open().await;
    assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("value"));
    store.close().await;
}

/// Opens the address eight times concurrently, and each time adds an account.
async fn open_eight_times(url: String) -> Store {
    let start = Arc::new(Barrier::new(8));
    let mut tasks = JoinSet::new();
    for n in 0..8 {
        let (url, start) = (url.clone(), start.clone());
        tasks.spawn(async move {
            start.wait().await;
            let store = Store::open(&url).await.unwrap();
            store.add_account(&account(&format!("user{n}"))).await.unwrap();
            store.close().await;
        });
    }
    tasks.join_all().await;
    Store::open(&url).await.unwrap()
}

async fn eight_processes_can_open_a_new_database(database: Arc<TestDatabase>) {
    let store = open_eight_times(database.url()).await;
    assert_eq!(store.account_count().await.unwrap(), 8);
    store.close().await;
}

/// A migration that this program does not know.
const FUTURE: &str = "INSERT INTO _sqlx_migrations \
    (version, description, success, checksum, execution_time) \
    SELECT 9999, 'future', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1";

async fn a_newer_schema_below_its_floor_is_refused_and_not_changed(database: Arc<TestDatabase>) {
    let store = database.open().await;
    store.put_setting("name", "value").await.unwrap();
    store.close().await;
    database.execute_raw(FUTURE).await;
    database.execute_raw("UPDATE schema_floor SET least = 9000").await;
    let error = Store::open(&database.url()).await.unwrap_err();
    let is_newer = matches!(error, StoreError::Newer { found: 9999, least: 9000, known: 10.. });
    assert!(is_newer, "{error}");
    assert_eq!(Store::schema_state(&database.url()).await.unwrap_err(), error);
    // A program from before has no floor to read.
    database.execute_raw("DELETE FROM schema_floor").await;
    let error = Store::open(&database.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 9999, least: 9999, .. }), "{error}");
    database.execute_raw("DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    let store = database.open().await;
    assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("value"));
    store.close().await;
}

async fn a_newer_schema_that_only_expands_is_used(database: Arc<TestDatabase>) {
    database.open().await.close().await;
    database.execute_raw(FUTURE).await;
    database.execute_raw("ALTER TABLE settings ADD COLUMN future INTEGER").await;
    let state = Store::schema_state(&database.url()).await.unwrap();
    assert_eq!((state.found, &state.pending[..]), (Some(9999), &[][..]));
    let store = database.open().await;
    store.put_setting("name", "value").await.unwrap();
    assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("value"));
    store.close().await;
    // It lacks a migration that a later one may rely on.
    database.execute_raw("DELETE FROM _sqlx_migrations WHERE version = 36").await;
    let error = Store::open(&database.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 9999, .. }), "{error}");
}

async fn a_database_of_the_version_before_is_checked_and_migrated(database: Arc<TestDatabase>) {
    let state = Store::schema_state(&database.url()).await.unwrap();
    assert_eq!((state.found, state.live_nodes), (None, 0));
    assert!(state.pending.len() > 20);
    database.migrate_to(33).await;
    let state = Store::schema_state(&database.url()).await.unwrap();
    assert_eq!(state.found, Some(33));
    assert!(state.known >= 36 && state.is_compatible(), "{state:?}");
    let last = state.pending.last().unwrap();
    assert_eq!((last.version, last.kind), (state.known, MigrationKind::Expand));
    // Nothing was changed by the check.
    assert_eq!(Store::schema_state(&database.url()).await.unwrap(), state);
    let store = database.open().await;
    LeaseStore::enter(&store, "node").await.unwrap();
    let state = Store::schema_state(&database.url()).await.unwrap();
    assert_eq!((state.found, state.pending.len()), (Some(state.known), 0));
    assert_eq!(state.live_nodes, 1);
    store.close().await;
}

async fn a_schema_of_another_build_is_refused(database: Arc<TestDatabase>) {
    database.open().await.close().await;
    database.execute_raw("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1").await;
    let error = Store::open(&database.url()).await.unwrap_err();
    assert!(error.to_string().contains("another build"), "{error}");
}

async fn a_closed_store_is_unreachable(database: Arc<TestDatabase>) {
    let store = database.open().await;
    store.close().await;
    assert!(matches!(store.ping().await, Err(StoreError::Unreachable(_))));
}

#[test]
fn a_missing_folder_is_named() {
    run(TestDatabase::sqlite(), async |_| {
        let error = Store::open("sqlite:/no/such/folder/test.db").await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
        assert!(error.to_string().contains("`/no/such/folder`"), "{error}");
    });
}

#[test]
fn an_unknown_url_scheme_is_refused() {
    run(TestDatabase::sqlite(), async |_| {
        for url in ["", "mysql://x", "test.db", "sqlite:", "sqlite:x.db?mode=ro"] {
            let error = Store::open(url).await.unwrap_err();
            assert!(error.to_string().contains("`store.url`"), "{url}: {error}");
        }
    });
}

#[test]
fn no_error_message_contains_the_password() {
    run(TestDatabase::sqlite(), async |_| {
        for url in [
            "postgres://user:hunter2@127.0.0.1:1/db",
            "postgres://user:hunter2@127.0.0.1:notaport/db",
            "postgres://user:hunter2@[::1/db",
            "postgres://user:hunter2@no.such.host.invalid/db",
            "postgres://127.0.0.1:1/db?user=user&password=hunter2",
            "mysql://user:hunter2@127.0.0.1/db",
        ] {
            let error = Store::open(url).await.unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    });
}

#[test]
fn a_database_in_memory_works() {
    run(TestDatabase::sqlite(), async |_| {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let account = account(&id());
        store.add_account(&account).await.unwrap();
        assert_eq!(store.account(&account.id).await.unwrap(), Some(account));
        store.close().await;
    });
}

#[test]
fn closing_sqlite_leaves_one_file() {
    run(TestDatabase::sqlite(), async |database| {
        let store = database.open().await;
        store.put_setting("name", "value").await.unwrap();
        store.setting("name").await.unwrap();
        store.close().await;
        let TestDatabase::Sqlite { folder } = &*database else { panic!("made as SQLite above") };
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    });
}

#[test]
fn eight_processes_can_open_a_new_file_repeatedly() {
    run(TestDatabase::sqlite(), async |database| {
        for round in 0..25 {
            let store = open_eight_times(format!("{}.{round}", database.url())).await;
            assert_eq!(store.account_count().await.unwrap(), 8);
            store.close().await;
        }
    });
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    run(TestDatabase::sqlite(), async |database| {
        let store = database.open().await;
        store.put_setting("name", "value").await.unwrap();
        let TestDatabase::Sqlite { folder } = &*database else { panic!("made as SQLite above") };
        for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", file.path().display());
        }
        store.close().await;
    });
}

async fn a_look_at_a_database_changes_nothing(database: Arc<TestDatabase>) {
    let probe = async || probe_store(&database.url()).await.unwrap().schema;
    assert_eq!(probe().await, ProbedSchema::Missing);
    assert_eq!(probe().await, ProbedSchema::Missing, "nothing was created");
    database.open().await.close().await;
    assert_eq!(probe().await, ProbedSchema::Current);
    database
        .execute_raw(
            "INSERT INTO _sqlx_migrations \
             (version, description, success, checksum, execution_time) \
             SELECT 9999, description, success, checksum, 0 \
             FROM _sqlx_migrations WHERE version = 1",
        )
        .await;
    assert_eq!(probe().await, ProbedSchema::NewerCompatible(9_999), "as opening decides");
    database.open().await.close().await;
    database.execute_raw("UPDATE schema_floor SET least = 9000").await;
    assert_eq!(probe().await, ProbedSchema::Newer(9_999));
    assert!(Store::open(&database.url()).await.is_err());
    database.execute_raw("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1").await;
    let error = probe_store(&database.url()).await.unwrap_err();
    assert!(error.to_string().contains("another build"), "{error}");
}

async fn nodes_read_the_facts_of_each_other(database: Arc<TestDatabase>) {
    let store = database.open().await;
    let facts = |value: &str| BTreeMap::from([("models".to_owned(), value.to_owned())]);
    store.enter("a").await.unwrap();
    store.enter("b").await.unwrap();
    store.put_node_facts("a", &facts("1")).await.unwrap();
    store.put_node_facts("b", &facts("2")).await.unwrap();
    store.put_node_facts("b", &facts("3")).await.unwrap();
    store.put_node_facts("unknown", &facts("4")).await.unwrap();
    let read = store.node_facts().await.unwrap();
    let read: Vec<_> = read.into_iter().map(|node| (node.id, node.sections)).collect();
    assert_eq!(read, [("a".to_owned(), facts("1")), ("b".to_owned(), facts("3"))]);
    store.enter("a").await.unwrap();
    assert_eq!(store.node_facts().await.unwrap().len(), 2, "a restart keeps them");
    store.close().await;
}

#[tokio::test]
async fn a_file_that_is_no_database_or_cannot_be_written_is_named() {
    let folder = std::env::temp_dir().join(format!("portunus-probe-{}", id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("p.db");
    std::fs::write(&file, vec![b'x'; 8_192]).unwrap();
    let url = format!("sqlite:{}", file.display());
    let found = probe_store(&url).await;
    assert!(matches!(found, Err(StoreError::Unreachable(_))), "{found:?}");
    assert_eq!(std::fs::read(&file).unwrap(), vec![b'x'; 8_192]);
    std::fs::remove_dir_all(folder).unwrap();
}
