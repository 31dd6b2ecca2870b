//! Tests of outgoing connections against real sockets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops when its setup fails"
)]

mod fetch;
mod identity;
mod outbound;
mod provider_heads;
mod support;
