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
mod device;
mod factors;
mod gateway;
mod guards;
mod identity;
mod keys;
mod office;
mod pages;
mod people;
mod places;
mod playground;
mod provider;
mod recovery;
mod rights;
mod setup;
mod signin;
mod teams;
mod usage;
