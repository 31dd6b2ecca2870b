//! One suite, run on SQLite always and on PostgreSQL with the feature `postgres-tests`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod accounts;
mod acme;
mod alert_events;
mod alerts;
mod archive;
mod attempt_counters;
mod bulk_roles;
mod cached_contents;
mod cancelled;
mod conversations;
#[cfg(feature = "postgres-tests")]
mod cutting_proxy;
mod data_keys;
mod erasure;
mod expected_usage;
mod fault_sweep;
mod idempotent;
mod key_pages;
mod keys;
mod leases;
mod limits;
mod links;
mod mcp_grants;
mod month_sums;
mod opening;
mod people;
mod person_pages;
mod posting;
mod provider_objects;
mod reading;
mod refresh_tokens;
mod replaced_file;
mod samples;
mod scim;
mod settings;
mod stored_responses;
#[cfg(feature = "postgres-tests")]
mod table_dump;
mod tasks;
mod teams;
mod test_database;
mod usage;
mod vault;

/// Makes each named function a test on every database. `run_empty:` before the names leaves the schema to the test.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        on_both!(run: $($name),+);
    };
    ($run:ident: $($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                crate::test_database::$run(crate::test_database::TestDatabase::sqlite(), super::$name);
            })+
        }
        #[cfg(feature = "postgres-tests")]
        mod postgres {
            $(#[test]
            fn $name() {
                crate::test_database::$run(crate::test_database::TestDatabase::postgres(), super::$name);
            })+
        }
    };
}
use on_both;
