//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate, a framing and limits of time. Nothing here knows wire formats or accounts.

mod breaker;
mod budget;
mod choice;
mod credential;
mod fetch;
mod google;
mod health;
mod hint;
mod in_flight;
mod provider;
mod sigv4;
mod sniff;

pub use budget::Budget;
pub use choice::{Contender, order};
pub use credential::{Credential, Now};
pub use fetch::{Allowance, FetchError, FetchLimits, Fetched, Fetcher};
pub use google::Google;
pub use health::{Account, Failure, Health, Snapshot, Standing, Turn};
pub use hint::wait_hint;
pub use in_flight::{InFlight, InFlightSlot};
pub use provider::{Provider, ProviderError, Sending, Timeouts};
pub use sigv4::SigV4;
