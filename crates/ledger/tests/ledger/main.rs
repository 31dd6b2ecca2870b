//! Invariants of the ledger: on one node under random work, and on several nodes with faults.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod administration;
mod budgets;
mod cluster;
mod deaths;
mod fault_sweep;
mod journal_damage;
mod laws;
mod lease_slices;
mod lost_folders;
mod memory_store;
mod offline_service;
mod rollbacks;
mod seeded_random;
mod simulation;
mod store_line;
