//! Tests of the use cases against a store, without a surface around them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod accounts;
mod bounds;
mod configuration;
mod fixture;
mod own_account;
mod teams;
