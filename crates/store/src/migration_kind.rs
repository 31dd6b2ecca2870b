//! The kind of a migration: one that programs of the version before work with, or one that they do not.
//!
//! The rules are in `migrations/README.md`. The kind is recognised by the statements, on the safe side: a
//! statement that is not known to expand counts as a contraction, unless the first line of the migration says
//! why it expands.

use std::collections::BTreeSet;

/// Begin of a migration that expands although its statements do not show it. The reason follows.
const EXPANDS: &str = "-- expands: ";

/// Effect of a migration on programs that do not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationKind {
    /// Adds to the schema. Programs of the version before go on.
    Expand,
    /// Changes or removes what programs of the version before may use.
    Contract,
}

impl MigrationKind {
    /// Returns the kind of a migration with these statements.
    pub(crate) fn of(sql: &str) -> Self {
        if sql.starts_with(EXPANDS) {
            return Self::Expand;
        }
        let statements = statements(sql);
        let new_tables: BTreeSet<&str> =
            statements.iter().filter_map(|words| created_table(words)).collect();
        if statements.iter().all(|words| expands(words, &new_tables)) {
            Self::Expand
        } else {
            Self::Contract
        }
    }
}

/// Splits a text into statements, each a list of words in capitals, without comments. A text with a
/// semicolon, and the body of a trigger, are split as well, which makes them contractions.
fn statements(sql: &str) -> Vec<Vec<String>> {
    let lines = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    let code = lines.collect::<Vec<_>>().join(" ").to_uppercase();
    let words = |statement: &str| -> Vec<String> {
        let spaced = statement.replace('(', " ( ").replace(')', " ) ").replace(',', " , ");
        spaced.split_whitespace().map(str::to_owned).collect()
    };
    code.split(';').map(words).filter(|words| !words.is_empty()).collect()
}

/// Returns the name of the table that a statement creates.
fn created_table(words: &[String]) -> Option<&str> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["CREATE", "TABLE", "IF", "NOT", "EXISTS", name, ..] | ["CREATE", "TABLE", name, ..] => {
            Some(name)
        }
        _ => None,
    }
}

/// Returns true if programs that do not know a statement go on after it.
fn expands(words: &[String], new_tables: &BTreeSet<&str>) -> bool {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["CREATE", "TABLE" | "VIEW" | "INDEX", ..] => true,
        ["CREATE", "UNIQUE", "INDEX", _, "ON", table, ..] => new_tables.contains(table),
        ["INSERT", "INTO", table, ..] => new_tables.contains(table),
        ["ALTER", "TABLE", _, "ADD", "COLUMN", column @ ..] => adds_optional(column),
        _ => false,
    }
}

/// Returns true if rows can be inserted without naming a new column.
fn adds_optional(column: &[&str]) -> bool {
    let follow = |first: &str, second: &str| {
        column.windows(2).any(|pair| pair.first() == Some(&first) && pair.last() == Some(&second))
    };
    let is_alone = !column.contains(&"ADD") && !follow(",", "ALTER") && !follow(",", "DROP");
    let is_bound = column.contains(&"UNIQUE") || column.contains(&"REFERENCES");
    is_alone && !is_bound && (!follow("NOT", "NULL") || column.contains(&"DEFAULT"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrations::{POSTGRES, SQLITE};

    /// The migration since which a database names the oldest program that it works with.
    const FLOOR_SINCE: i64 = 36;

    #[test]
    fn only_known_additions_expand() {
        for sql in [
            "CREATE TABLE t (a TEXT NOT NULL, b TEXT UNIQUE); CREATE UNIQUE INDEX i ON t (a);",
            "-- DROP TABLE t;\nCREATE INDEX i ON t (a);\n",
            "ALTER TABLE t ADD COLUMN a TEXT;",
            "alter table t add column a bigint not null default 0 check (a >= 0);",
            "CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1);",
            "CREATE VIEW v AS SELECT 1 AS one;",
        ] {
            assert_eq!(MigrationKind::of(sql), MigrationKind::Expand, "{sql}");
        }
        for sql in [
            "DROP TABLE t;",
            "CREATE TABLE a (x TEXT); DROP VIEW v;",
            "ALTER TABLE t RENAME TO u;",
            "ALTER TABLE t RENAME COLUMN a TO b;",
            "ALTER TABLE t DROP COLUMN a;",
            "ALTER TABLE t ALTER COLUMN a SET NOT NULL;",
            "ALTER TABLE t ADD COLUMN a TEXT NOT NULL;",
            "ALTER TABLE t ADD COLUMN a TEXT, DROP COLUMN b;",
            "ALTER TABLE t ADD COLUMN a TEXT, ADD COLUMN b TEXT NOT NULL;",
            "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0);",
            "CREATE UNIQUE INDEX i ON t (a);",
            "UPDATE t SET a = 1;",
            "DELETE FROM t;",
            "INSERT INTO t VALUES (1);",
            "CREATE TRIGGER g BEFORE UPDATE ON t BEGIN SELECT RAISE(ABORT, 'no'); END;",
        ] {
            assert_eq!(MigrationKind::of(sql), MigrationKind::Contract, "{sql}");
        }
    }

    /// The rule of `migrations/README.md`. A program before the floor cannot be helped.
    #[test]
    fn a_contracting_migration_raises_the_floor() {
        for migrator in [&*SQLITE, &*POSTGRES] {
            for migration in migrator.iter().filter(|one| one.version > FLOOR_SINCE) {
                let sql = migration.sql.as_str();
                let version = migration.version;
                if MigrationKind::of(sql) == MigrationKind::Expand {
                    continue;
                }
                let raise = statements(sql).into_iter().find_map(|words| {
                    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                        ["UPDATE", "SCHEMA_FLOOR", "SET", "LEAST", "=", number] => {
                            number.parse::<i64>().ok()
                        }
                        _ => None,
                    }
                });
                assert!(
                    raise.is_some_and(|floor| floor > FLOOR_SINCE && floor <= version),
                    "migration {version} contracts the schema and does not raise its floor; see \
                     migrations/README.md"
                );
            }
        }
    }

    /// Programs of the version before work beside nodes that apply these.
    #[test]
    fn the_kinds_of_known_migrations() {
        let contracts = |version: i64| {
            let found = POSTGRES.iter().find(|one| one.version == version).unwrap();
            MigrationKind::of(found.sql.as_str()) == MigrationKind::Contract
        };
        assert!(contracts(29), "it renames a table");
        for version in [26, 32, FLOOR_SINCE] {
            assert!(!contracts(version), "{version}");
        }
    }
}
