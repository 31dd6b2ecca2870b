//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate and limits of time. Nothing here knows wire formats or accounts.

mod address;
mod body;
mod client;
mod guard;
mod health;
mod provider;

pub use address::is_public;
pub use body::{Body, BodyError, Pieces};
pub use client::{Answer, Client, Local, LocalBody};
pub use guard::{Guard, NotPublic, Target};
pub use health::Health;
pub use provider::{Credential, Provider, ProviderError, Timeouts};
