//! Providers as data: what switches them on, how they are convinced of us, how requests are made to
//! fit them and how their answers come back.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where its ground gives way"
)]

mod account;
mod auth;
mod bedrock;
mod google;
mod switched_on;
mod ways;
