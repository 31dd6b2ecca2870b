//! The file of a SQLite database that is deleted or replaced while it is open, and the size of its log.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use store::{Store, StoreError};

use crate::test_database::{TestDatabase, run};

/// Generous, because it only decides how long a broken test takes to fail.
const DEADLINE: Duration = Duration::from_secs(60);

fn file_of(database: &TestDatabase) -> PathBuf {
    PathBuf::from(database.url().strip_prefix("sqlite:").unwrap())
}

fn delete(file: &Path) {
    for ending in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{ending}", file.display())));
    }
}

/// Reads, writes, and begins a change: all of them fail for that reason.
async fn fails(store: &Store, why: &str) {
    let mut change = store.begin_change().await.unwrap();
    let failures = [
        store.setting("name").await.map(drop),
        store.put_setting("name", "lost").await,
        change.put_setting("name", "lost").await,
        store.setting_or("name", "lost").await.map(drop),
        store.write_copy(Path::new("/nowhere")).await,
    ];
    for failure in failures {
        let Err(StoreError::Unreachable(text)) = failure else { panic!("{failure:?}") };
        assert!(text.contains(why), "{text}");
    }
    assert!(store.file_loss().unwrap().contains(why));
}

async fn until_it_works(store: &Store) -> Option<String> {
    let begun = Instant::now();
    loop {
        match store.setting("name").await {
            Ok(value) => return value,
            Err(error) => assert!(begun.elapsed() < DEADLINE, "{error}"),
        }
        // A file that can be used is opened with the first attempt.
        let loss = store.file_loss().unwrap_or_default();
        assert!(!loss.contains("cannot be opened"), "{loss}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_lost_for(store: &Store, why: &str) {
    let begun = Instant::now();
    while !store.file_loss().is_some_and(|loss| loss.contains(why)) {
        assert!(begun.elapsed() < DEADLINE, "{:?}", store.file_loss());
        assert!(store.put_setting("name", "lost").await.is_err());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn nothing_is_written_into_a_deleted_file() {
    run(TestDatabase::sqlite(), async |database| {
        let (store, file) = (database.open().await, file_of(&database));
        store.put_setting("name", "value").await.unwrap();
        assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("value"));
        assert_eq!(store.file_loss(), None);
        delete(&file);
        fails(&store, "was deleted").await;
        assert!(!file.exists(), "no empty database is made in its place");
        store.close().await;
        assert!(!file.exists());
    });
}

#[test]
fn a_copy_of_the_same_database_is_used_without_a_restart() {
    run(TestDatabase::sqlite(), async |database| {
        let (store, file) = (database.open().await, file_of(&database));
        let copy = file.with_file_name("copy.db");
        store.put_setting("name", "early").await.unwrap();
        store.write_copy(&copy).await.unwrap();
        store.put_setting("name", "late").await.unwrap();
        delete(&file);
        std::fs::rename(&copy, &file).unwrap();
        fails(&store, "was replaced").await;
        assert_eq!(until_it_works(&store).await.as_deref(), Some("early"));
        assert_eq!(store.file_loss(), None);
        // Both directions go to the new file.
        let other = database.open().await;
        store.put_setting("name", "of the first").await.unwrap();
        assert_eq!(other.setting("name").await.unwrap().as_deref(), Some("of the first"));
        other.put_setting("name", "of the other").await.unwrap();
        assert_eq!(store.setting("name").await.unwrap().as_deref(), Some("of the other"));
        other.close().await;
        store.close().await;
        let again = database.open().await;
        assert_eq!(again.setting("name").await.unwrap().as_deref(), Some("of the other"));
        again.check_file().await.unwrap();
        again.close().await;
    });
}

#[test]
fn a_file_that_was_only_away_is_used_again() {
    run(TestDatabase::sqlite(), async |database| {
        let (store, file) = (database.open().await, file_of(&database));
        store.put_setting("name", "value").await.unwrap();
        let away = file.with_file_name("away.db");
        std::fs::rename(&file, &away).unwrap();
        fails(&store, "was deleted").await;
        std::fs::rename(&away, &file).unwrap();
        assert_eq!(until_it_works(&store).await.as_deref(), Some("value"));
        assert_eq!(store.file_loss(), None);
        store.close().await;
    });
}

#[test]
fn another_database_in_its_place_is_never_used() {
    run(TestDatabase::sqlite(), async |database| {
        let (store, file) = (database.open().await, file_of(&database));
        store.put_setting("name", "value").await.unwrap();
        delete(&file);
        // The command line makes a new one beside the gateway.
        let empty = database.open().await;
        until_lost_for(&store, "of another database").await;
        assert_eq!(empty.setting("name").await.unwrap(), None);
        empty.close().await;
        delete(&file);
        std::fs::write(&file, "no database").unwrap();
        until_lost_for(&store, "cannot be read").await;
        store.close().await;
        assert_eq!(std::fs::read(&file).unwrap(), b"no database");
    });
}

#[test]
fn a_copy_that_was_cut_short_is_never_used() {
    run(TestDatabase::sqlite(), async |database| {
        let (store, file) = (database.open().await, file_of(&database));
        let copy = file.with_file_name("copy.db");
        store.put_setting("name", &"long ".repeat(100_000)).await.unwrap();
        store.write_copy(&copy).await.unwrap();
        let bytes = std::fs::metadata(&copy).unwrap().len();
        let whole = std::fs::read(&copy).unwrap();
        std::fs::OpenOptions::new().write(true).open(&copy).unwrap().set_len(bytes / 2).unwrap();
        delete(&file);
        std::fs::rename(&copy, &file).unwrap();
        until_lost_for(&store, "cannot be read").await;
        // The rest arrives.
        std::fs::write(&file, whole).unwrap();
        assert!(until_it_works(&store).await.is_some());
        store.close().await;
    });
}

/// Files of a database whose log has pages that the file lacks, with a hard link to the file and an earlier copy.
struct Replaceable {
    store: Store,
    file: PathBuf,
    link: PathBuf,
    copy: PathBuf,
}

impl Replaceable {
    async fn new(database: &TestDatabase) -> Self {
        let (store, file) = (database.open().await, file_of(database));
        let (link, copy) = (file.with_file_name("link.db"), file.with_file_name("copy.db"));
        store.put_setting("name", "early").await.unwrap();
        store.write_copy(&copy).await.unwrap();
        // The log begins again, and its later pages stand alone.
        for number in 0..20 {
            store.put_setting(&format!("long {number}"), &"text ".repeat(20_000)).await.unwrap();
        }
        database.execute_raw("PRAGMA wal_checkpoint(RESTART)").await;
        store.put_setting("name", "late").await.unwrap();
        store.put_setting("other", &"text ".repeat(20_000)).await.unwrap();
        std::fs::hard_link(&file, &link).unwrap();
        Self { store, file, link, copy }
    }
}

/// Opens the database at a path, which is sound, and reads the value.
async fn read_sound(file: &Path) -> Option<String> {
    let store = Store::open(&format!("sqlite:{}", file.display())).await.unwrap();
    store.check_file().await.unwrap();
    let value = store.setting("name").await.unwrap();
    store.close().await;
    value
}

#[test]
fn the_log_of_a_replaced_file_is_never_read_into_another_one() {
    run(TestDatabase::sqlite(), async |database| {
        let Replaceable { store, file, link, copy } = Replaceable::new(&database).await;
        std::fs::set_permissions(&copy, Permissions::from_mode(0o644)).unwrap();
        std::fs::rename(&copy, &file).unwrap();
        assert_eq!(until_it_works(&store).await.as_deref(), Some("early"));
        store.check_file().await.unwrap();
        store.put_setting("name", "later").await.unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_sound(&file).await.as_deref(), Some("later"), "beside the gateway");
        store.close().await;
        assert_eq!(read_sound(&file).await.as_deref(), Some("later"));
        // Everything in the log went into the file that it belongs to.
        assert_eq!(read_sound(&link).await.as_deref(), Some("late"));
    });
}

#[test]
fn a_file_comes_back_after_another_one_was_in_its_place() {
    run(TestDatabase::sqlite(), async |database| {
        let Replaceable { store, file, link, copy } = Replaceable::new(&database).await;
        let foreign = TestDatabase::sqlite();
        foreign.open().await.close().await;
        std::fs::copy(file_of(&foreign), &copy).unwrap();
        std::fs::rename(&copy, &file).unwrap();
        until_lost_for(&store, "of another database").await;
        std::fs::rename(&link, &file).unwrap();
        assert_eq!(until_it_works(&store).await.as_deref(), Some("late"));
        store.put_setting("name", "later").await.unwrap();
        store.check_file().await.unwrap();
        store.close().await;
        assert_eq!(read_sound(&file).await.as_deref(), Some("later"));
        foreign.clear().await;
    });
}

#[test]
fn a_gateway_that_stops_leaves_no_log_beside_another_file() {
    run(TestDatabase::sqlite(), async |database| {
        let Replaceable { store, file, link, copy } = Replaceable::new(&database).await;
        std::fs::rename(&copy, &file).unwrap();
        // The loss was not noticed yet.
        store.close().await;
        assert_eq!(read_sound(&file).await.as_deref(), Some("early"));
        assert_eq!(read_sound(&link).await.as_deref(), Some("late"));
    });
}

#[test]
fn a_log_that_cannot_be_emptied_is_put_aside() {
    run(TestDatabase::sqlite(), async |database| {
        use sqlx::{Connection as _, SqliteConnection};
        let Replaceable { store, file, link, copy } = Replaceable::new(&database).await;
        let mut reader = SqliteConnection::connect(&database.url()).await.unwrap();
        let mut read = reader.begin().await.unwrap();
        sqlx::query("SELECT COUNT(*) FROM settings").execute(&mut *read).await.unwrap();
        store.put_setting("name", "later").await.unwrap();
        std::fs::rename(&copy, &file).unwrap();
        store.close().await;
        assert_eq!(read_sound(&file).await.as_deref(), Some("early"));
        read.rollback().await.unwrap();
        reader.close().await.unwrap();
        // The log comes back with its file.
        std::fs::rename(&link, &file).unwrap();
        assert_eq!(read_sound(&file).await.as_deref(), Some("later"));
    });
}

#[test]
fn a_file_that_a_link_leads_to_now_has_its_log_beside_it() {
    run(TestDatabase::sqlite(), async |database| {
        let Replaceable { store, file, .. } = Replaceable::new(&database).await;
        let folder = file.with_file_name("moved");
        std::fs::create_dir(&folder).unwrap();
        let moved = folder.join("moved.db");
        std::fs::rename(&file, &moved).unwrap();
        std::os::unix::fs::symlink(&moved, &file).unwrap();
        assert_eq!(until_it_works(&store).await.as_deref(), Some("late"));
        store.put_setting("name", "later").await.unwrap();
        let other = Store::open(&format!("sqlite:{}", moved.display())).await.unwrap();
        assert_eq!(other.setting("name").await.unwrap().as_deref(), Some("later"));
        other.close().await;
        store.close().await;
        assert_eq!(read_sound(&moved).await.as_deref(), Some("later"));
    });
}

#[test]
fn nothing_is_lost_with_a_deleted_log_or_its_index() {
    for ending in ["-wal", "-shm"] {
        run(TestDatabase::sqlite(), async |database| {
            let Replaceable { store, file, .. } = Replaceable::new(&database).await;
            std::fs::remove_file(format!("{}{ending}", file.display())).unwrap();
            assert_eq!(until_it_works(&store).await.as_deref(), Some("late"));
            store.put_setting("name", "later").await.unwrap();
            // A process that is killed now leaves these files.
            let left = file.with_file_name("left.db");
            for ending in ["", "-wal"] {
                let name = |file: &Path| format!("{}{ending}", file.display());
                std::fs::copy(name(&file), name(&left)).unwrap();
            }
            assert_eq!(read_sound(&left).await.as_deref(), Some("later"));
            store.close().await;
            assert_eq!(read_sound(&file).await.as_deref(), Some("later"));
        });
    }
}

#[test]
fn a_log_that_grew_during_a_long_read_shrinks_again() {
    const MAX_LOG_BYTES: u64 = 17 << 20;
    run(TestDatabase::sqlite(), async |database| {
        use sqlx::{Connection as _, SqliteConnection};
        let (store, file) = (database.open().await, file_of(&database));
        let log = || std::fs::metadata(format!("{}-wal", file.display())).unwrap().len();
        store.put_setting("name", "value").await.unwrap();
        let mut reader = SqliteConnection::connect(&database.url()).await.unwrap();
        let mut read = reader.begin().await.unwrap();
        sqlx::query("SELECT COUNT(*) FROM settings").execute(&mut *read).await.unwrap();
        for number in 0..40 {
            let value = format!("{number}").repeat(1 << 19);
            store.put_setting("name", &value).await.unwrap();
        }
        assert!(log() > MAX_LOG_BYTES, "{}", log());
        read.rollback().await.unwrap();
        reader.close().await.unwrap();
        // The first write moves the pages into the file, the second one begins the log again.
        for value in ["one", "two", "three"] {
            store.put_setting("name", value).await.unwrap();
        }
        assert!(log() <= MAX_LOG_BYTES, "{}", log());
        store.close().await;
    });
}

#[test]
fn an_index_that_is_deleted_while_it_is_made_is_noticed() {
    run(TestDatabase::sqlite(), async |database| {
        let (store, file) = (database.open().await, file_of(&database));
        store.put_setting("name", "value").await.unwrap();
        let index = PathBuf::from(format!("{}-shm", file.display()));
        let mut deleted = 0;
        let begun = Instant::now();
        while deleted < 100 {
            assert!(begun.elapsed() < DEADLINE, "after {deleted} times it was not made again");
            // Opens it again, as soon as it is found missing.
            let using = store.setting("name");
            let deleting = tokio::task::spawn_blocking({
                let index = index.clone();
                move || (0..1_000).filter(|_| std::fs::remove_file(&index).is_ok()).count()
            });
            let (_, times) = tokio::join!(using, deleting);
            deleted += times.unwrap();
        }
        assert_eq!(until_it_works(&store).await.as_deref(), Some("value"));
        assert!(index.exists());
        store.put_setting("name", "other").await.unwrap();
        store.close().await;
        let again = database.open().await;
        assert_eq!(again.setting("name").await.unwrap().as_deref(), Some("other"));
    });
}
