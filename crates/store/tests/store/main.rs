//! One suite, run on SQLite always and on PostgreSQL with the feature `postgres-tests`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that meets the unexpected should stop right there"
)]

mod accounts;
#[cfg(feature = "postgres-tests")]
mod cut;
mod idempotent;
mod kept;
mod keys;
mod leases;
mod limits;
mod links;
mod opening;
mod people;
mod place;
mod posting;
mod reading;
mod samples;
mod settings;
mod sweep;
mod tallies;
mod tasks;
mod teams;
mod usage;
mod vault;

/// Makes each named function a test on every database.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                crate::place::run(crate::place::Place::sqlite(), super::$name);
            })+
        }
        #[cfg(feature = "postgres-tests")]
        mod postgres {
            $(#[test]
            fn $name() {
                crate::place::run(crate::place::Place::postgres(), super::$name);
            })+
        }
    };
}
use on_both;
