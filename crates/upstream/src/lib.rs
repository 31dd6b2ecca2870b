//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate, a framing and limits of time. Nothing here knows wire formats or accounts.

mod address;
mod body;
mod client;
mod credential;
mod event_stream;
mod fetch;
mod google;
mod guard;
mod health;
mod names;
mod outbound;
mod provider;
mod sigv4;
mod sniff;

pub use address::is_public;
pub use body::{Body, BodyError, Pieces};
pub use client::{Answer, Client, Local, LocalBody};
pub use credential::{Credential, Now};
pub use fetch::{Allowance, FetchError, FetchLimits, Fetched, Fetcher};
pub use google::Google;
pub use guard::{Guard, NotPublic, Target};
pub use health::Health;
pub use names::{Finding, Names, SystemNames};
pub use outbound::{Outbound, OutboundError, Proxies};
pub use provider::{Provider, ProviderError, Timeouts};
pub use sigv4::SigV4;
