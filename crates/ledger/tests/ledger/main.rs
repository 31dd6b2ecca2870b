//! Invariants of the ledger: on one node under random work, and on several nodes with faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod budgets;
mod cluster;
mod fault_sweep;
mod laws;
mod lease_slices;
mod memory_store;
mod seeded_random;
mod simulation;
