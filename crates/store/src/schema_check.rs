//! The schema of a database beside the one that this program knows.

use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migrator};

use crate::error::{StoreError, one_line};
use crate::migration_kind::MigrationKind;

/// Reads the oldest schema that a program has to know; `None` if the database does not say it.
macro_rules! read_floor {
    ($connection:expr) => {{
        let floor = sqlx::query_scalar("SELECT least FROM schema_floor");
        let floor: Option<i64> = floor.fetch_optional($connection).await.ok().flatten();
        floor
    }};
}
pub(crate) use read_floor;

/// A migration that this program knows and the database does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingMigration {
    /// Its number.
    pub version: i64,
    /// Its name.
    pub description: String,
    /// Its effect on programs that do not know it.
    pub kind: MigrationKind,
}

/// The schema of a database, compared with the one that this program knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaState {
    /// Newest migration of the database; `None` if it is empty.
    pub found: Option<i64>,
    /// Newest migration that this program knows.
    pub known: i64,
    /// Migrations that this program would apply.
    pub pending: Vec<PendingMigration>,
    /// Number of nodes that used the database in the last seconds.
    pub live_nodes: i64,
}

impl SchemaState {
    /// Returns true if nodes of the version that the database was set up by go on after the migrations.
    pub fn is_compatible(&self) -> bool {
        self.pending.iter().all(|one| one.kind == MigrationKind::Expand)
    }

    pub(crate) fn compare(
        migrator: &Migrator,
        applied: &[AppliedMigration],
        floor: Option<i64>,
        live_nodes: i64,
    ) -> Result<Self, StoreError> {
        let (found, known) = (newest(applied), newest_known(migrator));
        let find = |version: i64| applied.iter().find(|done| done.version == version);
        for done in applied {
            let same = migrator.iter().find(|one| one.version == done.version);
            let later = found.filter(|_| done.version > known && same.is_none());
            match (same, later) {
                (Some(one), _) if one.checksum == done.checksum => {}
                (None, Some(found)) if floor.is_none_or(|least| least > known) => {
                    return Err(newer(found, floor, known));
                }
                (None, Some(_)) => {}
                (Some(_) | None, _) => return Err(other_build(done.version)),
            }
        }
        let pending = migrator.iter().filter(|one| find(one.version).is_none());
        let pending: Vec<PendingMigration> = pending
            .map(|one| PendingMigration {
                version: one.version,
                description: one.description.to_string(),
                kind: MigrationKind::of(one.sql.as_str()),
            })
            .collect();
        if let (Some(found), Some(first)) = (found.filter(|found| *found > known), pending.first())
        {
            // A later migration may rely on one that is missing.
            let least = first.version.max(floor.unwrap_or_default());
            return Err(newer(found, Some(least), known));
        }
        Ok(Self { found, known, pending, live_nodes })
    }
}

fn newest(applied: &[AppliedMigration]) -> Option<i64> {
    applied.iter().map(|done| done.version).max()
}

fn newest_known(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or(0)
}

fn newer(found: i64, floor: Option<i64>, known: i64) -> StoreError {
    // A database that does not say it needs a program that knows all of it.
    StoreError::Newer { found, least: floor.unwrap_or(found), known }
}

fn other_build(version: i64) -> StoreError {
    StoreError::Other(format!(
        "its schema {version} was made by another build; start that build or restore a backup"
    ))
}

/// Returns true if there is nothing to migrate and this program can work with the database. The check
/// takes no lock, so a start never waits for a writer.
pub(crate) async fn is_usable<C: Migrate>(
    migrator: &Migrator,
    connection: &mut C,
    floor: Option<i64>,
) -> bool {
    // Fails on a new database, which has no table of migrations.
    let Ok(applied) = connection.list_applied_migrations(&migrator.table_name).await else {
        return false;
    };
    SchemaState::compare(migrator, &applied, floor, 0).is_ok_and(|state| state.pending.is_empty())
}

/// Returns the reason that migrations were not applied.
pub(crate) fn migration_error(
    migrator: &Migrator,
    error: MigrateError,
    floor: Option<i64>,
) -> StoreError {
    let known = newest_known(migrator);
    match error {
        MigrateError::VersionMissing(found) if found > known => newer(found, floor, known),
        MigrateError::VersionMissing(found) | MigrateError::VersionMismatch(found) => {
            other_build(found)
        }
        MigrateError::Execute(error) => error.into(),
        other => StoreError::Other(one_line(&other)),
    }
}
