//! Providers of models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: an address, a credential, a framing and timeouts. Nothing here
//! knows wire formats or accounts.

mod breaker;
mod credential;
mod fetch;
mod google_auth;
mod health;
mod in_flight;
mod lane_order;
mod media_type;
mod output_speed;
mod provider;
mod retry_budget;
mod retry_hint;
mod secret_filter;
mod session_lanes;
mod sigv4;

pub use credential::{ClockFn, Credential};
pub use fetch::{FetchAllowance, FetchError, FetchLimits, FetchReply, FetchedMedia, MediaFetcher};
pub use google_auth::{GoogleAuth, GoogleAuthError};
pub use health::{
    AttemptFailure, AttemptGuard, CredentialHealth, HealthSnapshot, HealthTracker, LaneState,
};
pub use in_flight::{InFlight, InFlightSlot};
pub use lane_order::{LaneCandidate, LaneDraw, order_lanes};
pub use provider::{Provider, ProviderError, SendOptions, Timeouts};
pub use retry_budget::RetryBudget;
pub use retry_hint::suggested_wait;
pub use session_lanes::{LaneMark, SessionLanes};
pub use sigv4::{SigV4Error, SigV4Signer};
