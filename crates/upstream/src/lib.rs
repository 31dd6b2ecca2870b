//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate, a framing and limits of time. Nothing here knows wire formats or accounts.

mod body;
mod client;
mod credential;
mod event_stream;
mod google;
mod health;
mod provider;
mod sigv4;

pub use body::{Body, BodyError, Pieces};
pub use client::{Answer, Client, Local, LocalBody};
pub use credential::{Credential, Now};
pub use google::Google;
pub use health::Health;
pub use provider::{Provider, ProviderError, Timeouts};
pub use sigv4::SigV4;
