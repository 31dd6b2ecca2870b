//! Configuration: read once, checked once; after that it cannot be wrong.
//!
//! The file is parsed into [`raw::RawConfig`], overridden by `PORTUNUS_…` variables, and checked
//! into [`Config`], in which every address, limit, secret and lane is resolved. Providers and
//! models that administrators stored are laid over it ([`Stored`]).

mod admin_auth;
mod auth;
mod bucket;
mod config;
mod error;
mod files;
mod identity;
mod inherit;
mod listener;
mod mail;
mod models;
mod net;
mod outbound;
mod overlay;
mod overrides;
mod providers;
mod raw;
mod routes;
mod secret;
mod shared;
mod stored;
mod tasks;
mod telemetry;
mod timeouts;
mod units;
mod watch;

pub use admin_auth::{of_auth, of_value};
pub use config::{Config, Given};
pub use error::ConfigError;
pub use files::{KeptFiles, Shelf};
pub use identity::IdentityProvider;
pub use mail::{Mail, Post};
pub use net::Net;
pub use outbound::Media;
pub use overlay::{Entry, Look, Places, Troubles};
pub use providers::{DEMO, usual_auth};
pub use raw::RawAuth;
pub use routes::{LaneHealth, LiveLane, Order, Route, Seat};
pub use shared::Valkey;
pub use stored::{Stored, StoredAuth, StoredModel, StoredProvider, WrongField};
pub use tasks::TaskTerms;
pub use telemetry::Collector;
pub use units::{duration, nearest};
pub use watch::watch;
