//! Pictures nobody waits for: they survive whatever happens, cost once, and can be fetched until
//! they die.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where its ground gives way"
)]

mod crash;
mod ground;
mod life;
mod links;
#[cfg(feature = "node-tests")]
mod shared;
mod webhooks;
