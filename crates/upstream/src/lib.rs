//! Providers of models: address, credentials, health, and one [`Provider::send`].
//!
//! A provider is data, not a module: an address, a credential, a framing and timeouts. Nothing here
//! knows wire formats or accounts.

mod aws_credentials;
mod aws_metadata;
mod aws_signer;
mod aws_sts;
mod breaker;
mod clock;
mod credential;
mod entra_auth;
mod error_chain;
mod fetch;
mod google_auth;
mod google_federation;
mod health;
mod host_identity;
mod in_flight;
mod lane_order;
mod media_type;
mod output_speed;
mod private_key;
mod provider;
mod provider_credentials;
mod renewed_secret;
mod retry_budget;
mod retry_hint;
mod secret_filter;
mod sent_secrets;
mod session_lanes;
mod sigv4;
mod token_endpoint;

pub use aws_credentials::{AwsCredentials, AwsIdentityError, AwsRole};
pub use aws_signer::SigV4Signer;
pub use clock::ClockFn;
pub use credential::Credential;
pub use entra_auth::{EntraApplication, EntraAuth, EntraAuthError};
pub use fetch::{FetchAllowance, FetchError, FetchLimits, FetchReply, FetchedMedia, MediaFetcher};
pub use google_auth::{GoogleAuth, GoogleAuthError};
pub use health::{
    AttemptFailure, AttemptGuard, CredentialHealth, HealthSnapshot, HealthTracker, LaneState,
};
pub use host_identity::HostIdentity;
pub use in_flight::{InFlight, InFlightSlot};
pub use lane_order::{LaneCandidate, LaneDraw, order_lanes};
pub use provider::{Provider, ProviderError, SendOptions, Timeouts, shown_address};
pub use retry_budget::RetryBudget;
pub use retry_hint::suggested_wait;
pub use secret_filter::hide_sent;
pub use sent_secrets::SentSecrets;
pub use session_lanes::{LaneMark, SessionLanes};
pub use sigv4::SigV4Error;
