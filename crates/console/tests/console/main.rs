//! The console through its router, on a real database in a folder of its own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on says so by panicking"
)]

mod account;
mod attacks;
mod fake_passkey;
mod factors;
mod gateway;
mod guards;
mod identity;
mod keys;
mod fake_admin_api;
mod pages;
mod people;
mod admin_pages;
mod playground;
mod fake_identity_provider;
mod recovery;
mod rights;
mod setup;
mod signin;
mod teams;
mod usage;
