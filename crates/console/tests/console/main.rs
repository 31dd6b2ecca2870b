//! The console through its router, on a real database in a folder of its own.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod gateway;
mod guards;
mod keys;
mod pages;
mod playground;
mod setup;
mod signin;
mod usage;
