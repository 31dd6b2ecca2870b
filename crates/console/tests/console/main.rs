//! Tests of the console through its router, on a real database in a temporary folder.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on says so by panicking"
)]

mod account;
mod activity;
mod admin_pages;
mod admin_parts;
mod agents;
mod alerts;
mod attacks;
mod audit_origins;
mod factors;
mod fake_identity_provider;
mod fake_passkey;
mod gateway;
mod guards;
mod identity;
mod identity_groups;
mod keys;
mod known_devices;
mod model_pages;
mod pages;
mod people;
mod playground;
mod provider_server;
mod recovery;
mod required_factor;
mod rights;
mod setup;
mod signin;
mod statements;
mod teams;
mod zones;
