//! Tests of the embedded models and of the upstream made of them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, in its helpers too"
)]

mod faults;
mod upstream;
