//! Places that serve models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: what differs between providers is an address, a way to
//! authenticate, a framing and limits of time. Nothing here knows wire formats or accounts.

mod breaker;
mod retry_budget;
mod lane_order;
mod credential;
mod fetch;
mod google_auth;
mod health;
mod retry_hint;
mod in_flight;
mod provider;
mod sigv4;
mod media_type;

pub use retry_budget::RetryBudget;
pub use lane_order::{LaneCandidate, order_lanes};
pub use credential::{Credential, ClockFn};
pub use fetch::{FetchAllowance, FetchError, FetchLimits, FetchedMedia, MediaFetcher};
pub use google_auth::GoogleAuth;
pub use health::{CredentialHealth, AttemptFailure, HealthTracker, HealthSnapshot, LaneState, AttemptGuard};
pub use retry_hint::suggested_wait;
pub use in_flight::{InFlight, InFlightSlot};
pub use provider::{Provider, ProviderError, SendOptions, Timeouts};
pub use sigv4::SigV4Signer;
