//! Opening: migrations, two at once, a database from the future, messages.

use std::sync::Arc;

use store::{Store, StoreError};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::on_both;
use crate::place::{Place, run};
use crate::samples::{account, id};

on_both!(
    what_was_written_is_there_after_opening_again,
    eight_can_open_a_new_database_at_once,
    a_newer_database_is_refused_and_left_alone,
    a_schema_of_another_build_is_refused,
    a_closed_store_says_it_is_unreachable,
);

async fn what_was_written_is_there_after_opening_again(place: Arc<Place>) {
    let store = place.open().await;
    store.ping().await.unwrap();
    store.put_setting("name", "value").await.unwrap();
    store.close().await;
    let store = place.open().await;
    assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("value"));
    store.close().await;
}

/// Eight open that address at the same instant and each adds an account.
async fn open_by_eight(url: String) -> Store {
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

async fn eight_can_open_a_new_database_at_once(place: Arc<Place>) {
    let store = open_by_eight(place.url()).await;
    assert_eq!(store.account_count().await.unwrap(), 8);
    store.close().await;
}

async fn a_newer_database_is_refused_and_left_alone(place: Arc<Place>) {
    let store = place.open().await;
    store.put_setting("name", "value").await.unwrap();
    store.close().await;
    place
        .meddle(
            "INSERT INTO _sqlx_migrations \
             (version, description, success, checksum, execution_time) \
             SELECT 9999, 'future', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1",
        )
        .await;
    let error = Store::open(&place.url()).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 9999, known: 10.. }), "{error}");
    place.meddle("DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    let store = place.open().await;
    assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("value"));
    store.close().await;
}

async fn a_schema_of_another_build_is_refused(place: Arc<Place>) {
    place.open().await.close().await;
    place.meddle("UPDATE _sqlx_migrations SET checksum = '' WHERE version = 1").await;
    let error = Store::open(&place.url()).await.unwrap_err();
    assert!(error.to_string().contains("another build"), "{error}");
}

async fn a_closed_store_says_it_is_unreachable(place: Arc<Place>) {
    let store = place.open().await;
    store.close().await;
    assert!(matches!(store.ping().await, Err(StoreError::Unreachable(_))));
}

#[test]
fn a_missing_folder_is_named() {
    run(Place::sqlite(), async |_| {
        let error = Store::open("sqlite:/no/such/folder/test.db").await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable(_)), "{error}");
        assert!(error.to_string().contains("`/no/such/folder`"), "{error}");
    });
}

#[test]
fn an_address_of_no_known_kind_is_refused() {
    run(Place::sqlite(), async |_| {
        for url in ["", "mysql://x", "test.db", "sqlite:", "sqlite:x.db?mode=ro"] {
            let error = Store::open(url).await.unwrap_err();
            assert!(error.to_string().contains("`store.url`"), "{url}: {error}");
        }
    });
}

#[test]
fn no_message_shows_the_password() {
    run(Place::sqlite(), async |_| {
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
fn a_database_in_memory_works_too() {
    run(Place::sqlite(), async |_| {
        let store = Store::open("sqlite::memory:").await.unwrap();
        let account = account(&id());
        store.add_account(&account).await.unwrap();
        assert_eq!(store.account(&account.id).await.unwrap(), Some(account));
        store.close().await;
    });
}

#[test]
fn closing_sqlite_leaves_one_file() {
    run(Place::sqlite(), async |place| {
        let store = place.open().await;
        store.put_setting("name", "value").await.unwrap();
        store.setting("name").await.unwrap();
        store.close().await;
        let Place::Sqlite { folder } = &*place else { panic!("made as SQLite above") };
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    });
}

#[test]
fn eight_can_open_a_new_file_at_once_time_and_again() {
    run(Place::sqlite(), async |place| {
        for round in 0..25 {
            let store = open_by_eight(format!("{}.{round}", place.url())).await;
            assert_eq!(store.account_count().await.unwrap(), 8);
            store.close().await;
        }
    });
}

#[cfg(unix)]
#[test]
fn nobody_else_may_read_the_files() {
    use std::os::unix::fs::PermissionsExt;
    run(Place::sqlite(), async |place| {
        let store = place.open().await;
        store.put_setting("name", "value").await.unwrap();
        let Place::Sqlite { folder } = &*place else { panic!("made as SQLite above") };
        for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{}", file.path().display());
        }
        store.close().await;
    });
}
