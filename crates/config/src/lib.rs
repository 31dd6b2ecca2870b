//! Configuration of the gateway, checked once when it is read.
//!
//! The file is parsed into `raw::RawConfig`, overridden by `PORTUNUS_…` variables, and checked
//! into [`Config`], in which every address, limit, secret and lane is resolved. Providers and
//! models that administrators stored are merged into it ([`StoredEntries`]).

mod acme;
mod admin_auth;
mod auth;
mod auth_aws;
mod auth_entra;
mod bucket_client;
mod certificate;
mod config;
mod directory_keys;
mod entry;
mod error;
mod file_version;
mod files;
mod identity;
mod identity_groups;
mod inherit;
mod ip_range;
mod lane_counters;
mod listener;
mod listener_tls;
mod mail;
mod mcp;
mod models;
mod outbound;
mod overlay;
mod overrides;
mod providers;
mod raw;
mod retention;
mod revocation_lists;
mod routes;
mod schema;
mod secret;
mod sections;
mod stored;
mod stored_directory;
mod tasks;
mod telemetry;
mod timeouts;
mod tls_files;
mod units;
mod valkey;
mod watch;
mod wildcards;

pub use acme::{AcmeAccountKey, AcmeChallenge, AcmeSettings};
pub use admin_auth::{auth_from_json, auth_from_secret};
pub use certificate::{CertificateValidity, ListenerCertificate};
pub use config::{Config, LoadOptions};
pub use directory_keys::{
    BundleSignatureError, DirectoryKey, DirectoryKeyError, DirectorySigner, SignedBundle,
};
pub use entry::EntryName;
pub use error::{ConfigError, FieldError};
pub use files::{BlobStore, FileStorage};
pub use identity::IdentityProvider;
pub use identity_groups::GroupMapping;
pub use ip_range::{IpRange, IpRangeError};
pub use lane_counters::{CallEnd, CountedCall, LaneCounters};
pub use listener::GateLimits;
pub use listener_tls::{AcmeState, ListenerTls, TlsLook};
pub use mail::{MailError, MailMessage, Mailer};
pub use mcp::{GrantHolder, McpOAuthSettings, McpServerSettings, McpSettings};
pub use outbound::MediaSettings;
pub use overlay::{CheckMode, ConfigIssues, MergedConfig};
pub use providers::{DEMO_PROVIDER, OWN_OBJECTS, SHARED_OBJECTS, default_auth};
pub use raw::RawAuth;
pub use retention::{ArchivePlace, RetentionSettings};
pub use routes::{
    CredentialSlot, LaneCalls, LaneHealth, LaneOrder, LiveLane, Route, RoutesByModel,
};
pub use schema::json_schema;
pub use sections::SectionDigests;
pub use stored::{CredentialIssue, StoredAuth, StoredEntries, StoredModel, StoredProvider};
pub use stored_directory::{DirectoryRecord, InstalledDirectory};
pub use tasks::TaskLimits;
pub use telemetry::OtlpTarget;
pub use tls_files::{CertificateError, certified_key};
pub use units::{UnitError, nearest_word, parse_duration};
pub use valkey::ValkeySettings;
pub use watch::{ReloadStep, watch_config};
