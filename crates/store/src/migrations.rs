//! The migrations of both databases, embedded in the binary.
//!
//! `sqlx::migrate!` does the same, but its procedural macro makes cargo compile both drivers, the
//! TLS stack and SQLite's C a second time for the build host. `migrations/README.md` has the rules for new ones.

use std::sync::LazyLock;

use sqlx::SqlStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Expands to version, description and SQL of every file in the folder.
macro_rules! embedded {
    ($folder:literal) => {
        &[
            (1, "begin", include_str!(concat!($folder, "0001_begin.sql"))),
            (2, "kept", include_str!(concat!($folder, "0002_kept.sql"))),
            (3, "tries", include_str!(concat!($folder, "0003_tries.sql"))),
            (4, "limits", include_str!(concat!($folder, "0004_limits.sql"))),
            (5, "leases", include_str!(concat!($folder, "0005_leases.sql"))),
            (6, "usage", include_str!(concat!($folder, "0006_usage.sql"))),
            (7, "tasks", include_str!(concat!($folder, "0007_tasks.sql"))),
            (8, "people", include_str!(concat!($folder, "0008_people.sql"))),
            (10, "money", include_str!(concat!($folder, "0010_money.sql"))),
            (11, "places", include_str!(concat!($folder, "0011_places.sql"))),
            (12, "teams", include_str!(concat!($folder, "0012_teams.sql"))),
            (14, "sums and tallies", include_str!(concat!($folder, "0014_sums_and_tallies.sql"))),
            (15, "key scopes", include_str!(concat!($folder, "0015_key_scopes.sql"))),
            (16, "audit keys", include_str!(concat!($folder, "0016_audit_keys.sql"))),
            (17, "key objects", include_str!(concat!($folder, "0017_key_objects.sql"))),
            (18, "audit origins", include_str!(concat!($folder, "0018_audit_origins.sql"))),
            (19, "known devices", include_str!(concat!($folder, "0019_known_devices.sql"))),
            (20, "data keys", include_str!(concat!($folder, "0020_data_keys.sql"))),
            (21, "open tasks", include_str!(concat!($folder, "0021_open_tasks.sql"))),
            (22, "provider objects", include_str!(concat!($folder, "0022_provider_objects.sql"))),
            (23, "refusals", include_str!(concat!($folder, "0023_refusals.sql"))),
            (24, "node marks", include_str!(concat!($folder, "0024_node_marks.sql"))),
            (25, "postings", include_str!(concat!($folder, "0025_postings.sql"))),
            (26, "adopted marks", include_str!(concat!($folder, "0026_adopted_marks.sql"))),
            (27, "cached contents", include_str!(concat!($folder, "0027_cached_contents.sql"))),
            (28, "cache copies", include_str!(concat!($folder, "0028_cache_copies.sql"))),
            (29, "call blocks", include_str!(concat!($folder, "0029_call_blocks.sql"))),
            (30, "conversations", include_str!(concat!($folder, "0030_conversations.sql"))),
            (31, "sign ins", include_str!(concat!($folder, "0031_sign_ins.sql"))),
            (32, "call sessions", include_str!(concat!($folder, "0032_call_sessions.sql"))),
            (33, "mcp grants", include_str!(concat!($folder, "0033_mcp_grants.sql"))),
            (34, "node facts", include_str!(concat!($folder, "0034_node_facts.sql"))),
            (36, "schema floor", include_str!(concat!($folder, "0036_schema_floor.sql"))),
            (39, "archive", include_str!(concat!($folder, "0039_archive.sql"))),
            (40, "acme", include_str!(concat!($folder, "0040_acme.sql"))),
            (41, "scim", include_str!(concat!($folder, "0041_scim.sql"))),
            (42, "scim state", include_str!(concat!($folder, "0042_scim_state.sql"))),
            (43, "owner index", include_str!(concat!($folder, "0043_owner_index.sql"))),
            (44, "block begins", include_str!(concat!($folder, "0044_block_begins.sql"))),
            (45, "alerts", include_str!(concat!($folder, "0045_alerts.sql"))),
            (46, "alert kinds", include_str!(concat!($folder, "0046_alert_kinds.sql"))),
            (47, "alert events", include_str!(concat!($folder, "0047_alert_events.sql"))),
        ]
    };
}

/// Migrations of a SQLite database.
pub(crate) static SQLITE: LazyLock<Migrator> =
    LazyLock::new(|| migrator(embedded!("../migrations/sqlite/")));
/// Migrations of a PostgreSQL database.
pub(crate) static POSTGRES: LazyLock<Migrator> =
    LazyLock::new(|| migrator(embedded!("../migrations/postgres/")));

/// Builds the migrator that `sqlx::migrate!` would build: sqlx takes the SHA-384 of the SQL as the
/// checksum, so databases migrated by builds that used the macro open unchanged.
fn migrator(files: &[(i64, &'static str, &'static str)]) -> Migrator {
    let migration = |&(version, description, sql): &(i64, &'static str, &'static str)| {
        let sql = SqlStr::from_static(sql);
        Migration::new(version, description.into(), MigrationType::Simple, sql, false)
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Version and first eight checksum bytes on SQLite and PostgreSQL. Databases in use carry these
    /// checksums: a released migration is never edited, a new one is appended.
    const RELEASED: &[(i64, &str, &str)] = &[
        (1, "a0afdd1a96bec1e3", "b7096da23c58be81"),
        (2, "1785f5e9f139b0b3", "42ca80730847b123"),
        (3, "c5c0676a77616612", "c5c0676a77616612"),
        (4, "cf2f05b1593c7522", "47197c000016b93b"),
        (5, "042d28653a30a237", "9b8221fe0e67af07"),
        (6, "7d14b00086319100", "6477c4bad3c985b9"),
        (7, "f11ad88afb991412", "3cc67d05f82105fe"),
        (8, "fb6f7a4c4ced609b", "5072b688223495df"),
        (10, "6b18ca16544448a9", "68737df4c943b488"),
        (11, "cdfb9c190cf4eff8", "35099aa84208c055"),
        (12, "406f5e51ef0fce14", "673537eccfc4bbd7"),
        (14, "14d9ef95eaa23524", "4e07922d87a4fdb8"),
        (15, "13c6ae35795d6d6d", "13c6ae35795d6d6d"),
    ];

    #[tokio::test]
    async fn embedded_migrations_equal_the_folders() {
        let folders = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
        for (migrator, folder) in [(&*SQLITE, "sqlite"), (&*POSTGRES, "postgres")] {
            let read = Migrator::new(folders.join(folder)).await.unwrap();
            let fields = |migrator: &Migrator| -> Vec<_> {
                let fields = |one: &Migration| {
                    let sql = one.sql.as_str().to_owned();
                    let (description, checksum) = (one.description.clone(), one.checksum.clone());
                    (one.version, description, one.migration_type, sql, checksum, one.no_tx)
                };
                migrator.iter().map(fields).collect()
            };
            assert_eq!(fields(migrator), fields(&read), "{folder}");
            assert_eq!(migrator.table_name, read.table_name);
        }
    }

    #[test]
    fn released_migrations_keep_their_checksums() {
        let begins = |migrator: &Migrator| -> Vec<(i64, String)> {
            let begin = |one: &Migration| {
                let bytes = one.checksum.iter().take(8);
                (one.version, bytes.map(|byte| format!("{byte:02x}")).collect())
            };
            migrator.iter().map(begin).collect()
        };
        let (sqlite, postgres) = (begins(&SQLITE), begins(&POSTGRES));
        for (number, &(version, on_sqlite, on_postgres)) in RELEASED.iter().enumerate() {
            assert_eq!(sqlite[number], (version, on_sqlite.to_owned()));
            assert_eq!(postgres[number], (version, on_postgres.to_owned()));
        }
    }
}
