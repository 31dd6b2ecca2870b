//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate, a framing and limits of time. Nothing here knows wire formats or accounts.

mod address;
mod body;
mod breaker;
mod budget;
mod choice;
mod client;
mod coding;
mod credential;
mod dial;
mod event_stream;
mod fetch;
mod framing;
mod google;
mod guard;
mod h1;
mod h1_head;
mod health;
mod hint;
mod names;
mod outbound;
mod pool;
mod provider;
mod sigv4;
mod sniff;
mod used;

pub use address::is_public;
pub use body::{Body, BodyError, NetBody, Pieces};
pub use budget::Budget;
pub use choice::{Contender, order};
pub use client::{Answer, Client, Local, LocalBody, Lost, Net};
pub use coding::{CODINGS, Coding, Decoder, Undecodable};
pub use credential::{Credential, Now};
pub use fetch::{Allowance, FetchError, FetchLimits, Fetched, Fetcher};
pub use framing::{Chunked, Framing, Nonsense, Step};
pub use google::Google;
pub use guard::{Guard, NotPublic, Target};
pub use h1::Flow;
pub use health::{Account, Failure, Health, Snapshot, Standing, Turn};
pub use hint::wait_hint;
pub use names::{Finding, Names, SystemNames};
pub use outbound::{Outbound, OutboundError, Proxies};
pub use provider::{Provider, ProviderError, Sending, Timeouts};
pub use sigv4::SigV4;
