//! Administration: keys, accounts, teams, providers, models, settings.
//!
//! Each use case is one typed function with its rights, its checks and its line in the audit log.
//! The command line, the JSON API and the console call these functions.

mod account_admin;
mod account_links;
mod actor;
mod error;
pub mod keys;
pub mod names;
mod new_key;
pub mod one_time_link;
pub mod password;
pub mod random;
mod rights;
mod stored_config;
mod version;

pub use account_admin::AccountAdmin;
pub use account_links::{account_names_error, hash_password, invite_link, reset_link};
pub use actor::Actor;
pub use error::AdminError;
pub use keys::{IssuedKey, KeyChange, KeyDraft};
pub use new_key::NewKey;
pub use rights::{TeamAction, is_gateway_admin, may_change, may_grant_role, may_in_team};
pub use stored_config::StoredConfig;
pub use version::{ReadVersion, version_of};

use access::limits::RateLimiter;
use relay::Engine;
use std::sync::Arc;
use store::{Store, Vault};

/// The parts administration works on.
pub struct Admin {
    /// Accounts, teams, keys.
    pub accounts: AccountAdmin,
    /// The part of the gateway that serves calls.
    pub engine: Arc<Engine>,
    /// Accounts, keys, usage, settings.
    pub store: Store,
    /// Seals secrets in the store.
    pub vault: Vault,
    /// Providers and models that administrators stored.
    pub stored: StoredConfig,
    /// Rate limits of keys and accounts.
    pub limiter: Arc<RateLimiter>,
}
