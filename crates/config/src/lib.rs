//! Configuration: read once, checked once; after that it cannot be wrong.
//!
//! The file is parsed into [`raw::RawConfig`], overridden by `PORTUNUS_…` variables, and checked
//! into [`Config`], in which every address, limit, secret and lane is resolved. Providers and
//! models that administrators stored are laid over it ([`StoredEntries`]).

mod admin_auth;
mod auth;
mod bucket_client;
mod config;
mod error;
mod files;
mod identity;
mod inherit;
mod listener;
mod mail;
mod models;
mod ip_range;
mod outbound;
mod overlay;
mod overrides;
mod providers;
mod raw;
mod routes;
mod secret;
mod valkey;
mod stored;
mod tasks;
mod telemetry;
mod timeouts;
mod units;
mod watch;

pub use admin_auth::{auth_from_json, auth_from_secret};
pub use config::{Config, LoadOptions};
pub use error::ConfigError;
pub use files::{FileStorage, BlobStore};
pub use identity::IdentityProvider;
pub use mail::{MailMessage, Mailer};
pub use ip_range::IpRange;
pub use outbound::MediaSettings;
pub use overlay::{EntryName, CheckMode, MergedConfig, ConfigIssues};
pub use providers::{DEMO_PROVIDER, default_auth};
pub use raw::RawAuth;
pub use routes::{LaneHealth, LiveLane, LaneOrder, Route, CredentialSlot};
pub use valkey::ValkeySettings;
pub use stored::{StoredEntries, StoredAuth, StoredModel, StoredProvider, FieldError};
pub use tasks::TaskLimits;
pub use telemetry::OtlpTarget;
pub use units::{parse_duration, nearest_word};
pub use watch::watch_config;
