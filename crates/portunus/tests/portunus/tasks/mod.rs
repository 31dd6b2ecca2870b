//! Asynchronous image tasks: they survive crashes, are charged once, and expire.

#[cfg(feature = "node-tests")]
mod cluster;
mod crash;
pub(crate) mod harness;
mod lifecycle;
mod result_links;
mod waiting;
pub(crate) mod webhooks;
