//! Tests of the gateway as a whole: in process, over sockets and as a program.
//!
//! One binary, because each further one links the whole gateway once more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    reason = "a test stops when its setup fails"
)]

mod admin;
mod attacks;
mod away;
mod carriers;
mod chat;
mod cli;
mod config;
mod doors;
mod embeddings;
mod ends;
mod faults;
mod fidelity;
mod idempotency;
mod images;
mod lanes;
mod limits;
mod media;
mod memory;
mod money;
#[cfg(feature = "node-tests")]
mod nodes;
mod office;
mod places;
mod playground;
mod providers;
#[cfg(feature = "node-tests")]
mod shared;
mod tasks;
mod teams;
mod telemetry;
mod transport;
