//! HTTP over real sockets: what is let in, what is refused and how, and how it all ends.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops where its ground gives way"
)]

mod bodies;
mod busy;
mod caller;
mod drain;
mod framing;
mod h2;
mod limits;
mod signals;
mod streams;
mod tls;
