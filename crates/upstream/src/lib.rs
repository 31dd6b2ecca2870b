//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate and limits of time. Nothing here knows wire formats or accounts.

mod body;
mod breaker;
mod budget;
mod choice;
mod client;
mod health;
mod hint;
mod provider;
mod used;

pub use body::{Body, BodyError, Pieces};
pub use budget::Budget;
pub use choice::{Contender, order};
pub use client::{Answer, Client, Local, LocalBody, Lost, Net};
pub use health::{Account, Failure, Health, Snapshot, Standing, Turn};
pub use hint::wait_hint;
pub use provider::{Credential, Provider, ProviderError, Sending, Timeouts};
