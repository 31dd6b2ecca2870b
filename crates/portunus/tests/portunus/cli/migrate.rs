//! `portunus migrate` and its check.

use sqlx::{Connection as _, SqliteConnection};

use super::{Folder, fails};

fn execute(folder: &Folder, statements: &[&'static str]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("sqlite:{}", folder.0.join("data/portunus.db").display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        for &statement in statements {
            sqlx::query(statement).execute(&mut db).await.unwrap();
        }
        db.close().await.unwrap();
    });
}

#[test]
fn a_check_tells_what_an_upgrade_would_do_and_changes_nothing() {
    let folder = Folder::new("migrate-check");
    let check = |code: i32, words: &str| {
        let checked = folder.run(&["migrate", "--check"]);
        let said = String::from_utf8(checked.stdout.clone()).unwrap();
        assert_eq!(checked.status.code(), Some(code), "{checked:?}");
        assert!(said.contains(words), "{said}");
        said
    };
    check(3, "the database is empty");
    assert!(!folder.0.join("data/portunus.db").exists());
    assert!(folder.run(&["migrate"]).status.success());
    check(0, "the database is up to date");

    // The version before.
    execute(
        &folder,
        &["DROP TABLE schema_floor", "DELETE FROM _sqlx_migrations WHERE version = 36"],
    );
    let said = check(3, "nodes of the version before go on");
    assert!(said.contains("migration 36 (schema floor) would run: expand"), "{said}");
    check(3, "migration 36");
    fails(&folder.run(&["backup", "copy"]), 1, "back it up with the version that runs");
    let said = folder.run(&["migrate"]).stdout;
    assert!(String::from_utf8(said).unwrap().contains("migration 36 (schema floor) is applied"));

    // A later version, which this one works with, and then not any more.
    execute(
        &folder,
        &[
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
           SELECT 9999, 'future', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1",
        ],
    );
    check(0, "the database has schema 9999");
    assert!(folder.run(&["keys", "list"]).status.success());
    execute(&folder, &["UPDATE schema_floor SET least = 9999"]);
    let words = "schema 9999, for programs that know schema 9999 or later; this one knows";
    fails(&folder.run(&["migrate", "--check"]), 1, words);
    fails(&folder.run(&["keys", "list"]), 1, words);
}
