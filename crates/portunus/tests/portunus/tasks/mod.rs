//! Pictures nobody waits for: they survive whatever happens, cost once, and can be fetched until
//! they die.

mod crash;
mod ground;
mod life;
mod links;
#[cfg(feature = "node-tests")]
mod shared;
mod webhooks;
