//! The laws of the ledger: on one node under random work, on several with everything going wrong.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where its ground gives way"
)]

mod budgets;
mod dice;
mod laws;
mod shares;
mod simulation;
mod sweep;
mod vault;
mod world;
