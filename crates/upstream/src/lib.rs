//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate and limits of time. Nothing here knows wire formats or accounts.

mod body;
mod client;
mod coding;
mod health;
mod provider;

pub use body::{Body, BodyError, Pieces};
pub use client::{Answer, Client, Local, LocalBody};
pub use coding::{CODINGS, Coding, Decoder, Undecodable};
pub use health::Health;
pub use provider::{Credential, Provider, ProviderError, Timeouts};
