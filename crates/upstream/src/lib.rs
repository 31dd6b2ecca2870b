//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate and limits of time. Nothing here knows wire formats or accounts.

mod address;
mod body;
mod client;
mod fetch;
mod guard;
mod health;
mod names;
mod outbound;
mod provider;
mod sniff;

pub use address::is_public;
pub use body::{Body, BodyError, Pieces};
pub use client::{Answer, Client, Local, LocalBody};
pub use fetch::{Allowance, FetchError, FetchLimits, Fetched, Fetcher};
pub use guard::{Guard, NotPublic, Target};
pub use health::Health;
pub use names::{Finding, Names, SystemNames};
pub use outbound::{Outbound, OutboundError, Proxies};
pub use provider::{Credential, Provider, ProviderError, Timeouts};
