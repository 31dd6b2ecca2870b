//! Administration: keys, accounts, teams, providers, models, settings.
//!
//! Each use case is one typed function with its rights, its checks and its line in the audit log.
//! The command line, the JSON API and the console call these functions.

mod account_admin;
mod account_terms;
mod accounts;
mod actor;
mod agent_codes;
mod agent_sign_in;
mod alert_page;
mod alert_search;
mod alert_view;
mod alerts;
mod amount;
mod audit_log;
mod config_edit;
mod credential_check;
mod credentials;
mod directory;
mod erasure;
mod error;
mod factors;
mod gateway_alerts;
mod gateway_conditions;
mod health_check;
mod identity_groups;
mod imports;
mod invites;
mod journal_damage;
mod key_bounds;
pub mod keys;
mod managed_settings;
mod mcp_servers;
mod members;
mod models;
pub mod names;
mod node_health;
pub mod one_time_link;
mod own_account;
mod part_checks;
pub mod password;
mod provider_view;
mod providers;
pub mod random;
mod refresh;
mod request_origin;
mod restored_store;
mod rights;
mod scim;
mod serving_checks;
mod settings;
mod setup;
mod signup;
mod statements;
mod stored_config;
mod teams;
mod time_text;
mod vault;
mod version;
mod watched_checks;

pub use access::keys::{key_front, key_id_in};
pub use account_admin::AccountAdmin;
pub use account_terms::TermsView;
pub use accounts::{AccountChange, AccountDraft, CreatedAccount, user_json};
pub use actor::Actor;
pub use agent_codes::{AskingAgent, POLL_INTERVAL};
pub use agent_sign_in::{
    CodeRequest, DEVICE_CODE_LIFE, DeviceCodes, DevicePoll, PendingDevice, SignInApproval,
};
pub use alert_page::{AlertCursor, AlertPage, AlertQuery};
pub use alert_view::{AlertView, dollars};
pub use alerts::{AlertChange, AlertSettingsView, AlertWebhook, QuietDraft, WebhookDraft};
pub use amount::parse_amount;
pub use audit_log::{AuditCursor, AuditEntry, AuditPage, AuditQuery};
pub use credential_check::{CredentialCheck, check_credentials};
pub use credentials::{AddedCredential, CredentialDraft, CredentialSecret, DeletedCredential};
pub use directory::{
    DirectoryContext, DirectoryStatus, DirectoryUpdate, RemovedDirectory, check_bundle,
};
pub use error::AdminError;
pub use factors::{
    MAX_PASSKEYS, VerifiedPasskey, is_second_factor, open_totp_secret, passkey_name_error,
};
pub use gateway_alerts::{GatewayAlertsChange, GatewayAlertsView};
pub use health_check::{CheckName, CheckState, HealthCheck, HealthReport};
pub use imports::{ImportEffect, ImportedAccount, ImportedKey, ImportedTeam, OpeningSpend};
pub use invites::InviteDraft;
pub use keys::{IssuedKey, KeyChange, KeyDraft, key_version};
pub use managed_settings::{ManagedSettings, parse_managed_settings};
pub use mcp_servers::{McpConnection, McpServerView, McpSignInStart, PendingMcpSignIn};
pub use members::MemberKeys;
pub use models::{DeletedModel, ModelFacts, ModelView, SavedModel};
pub use node_health::{
    ClusterNode, DatabaseHealth, JournalHealth, LaneCounts, NodeHealth, PLAIN_BODIES_WARNING,
    ValkeyHealth,
};
pub use part_checks::{
    certificate_check, clock_check, configuration_check, descriptor_check, disk_check, files_check,
    journal_damage, probed_store_check, valkey_check, vault_check, vault_file_check,
};
pub use password::{HashedPassword, NewPassword, WeakPassword};
pub use provider_view::{
    CredentialTrouble, CredentialView, EntrySource, LaneView, ProviderDetail, ProviderView,
};
pub use providers::{DeletedProvider, DirectoryProvider, ProviderDraft, SavedProvider};
pub use refresh::{ACCESS_LIFE, REFRESH_LIFE, TokenGrant};
pub use request_origin::RequestOrigin;
pub use rights::{TeamAction, is_gateway_admin, may_change, may_grant_role, may_in_team};
pub use scim::{
    IssuedScimToken, MAX_EMAILS, MAX_GROUP_MEMBERS, ScimClient, ScimEmail, ScimErrorKind,
    ScimGroupDraft, ScimPersonName, ScimProblem, ScimUserDraft,
};
pub use serving_checks::HealthMonitor;
pub use settings::{GatewaySettings, SettingsChange};
pub use setup::{OwnerClaim, SETUP_TOKEN_SETTING};
pub use signup::{IdentityClaims, IdentitySignUp, SignUpMode};
pub use statements::{MonthStatement, StatementLine, StatementMonth, StatementOwner};
pub use stored_config::{EntryIssue, StoredConfig};
pub use teams::{TeamChange, TeamSummary, TeamView};
pub use vault::{RekeyReport, VaultStatus};
pub use version::{ReadVersion, version_of};
pub use watched_checks::refused_credentials;

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
    pub vault: Arc<Vault>,
    /// Providers and models that administrators stored.
    pub stored: StoredConfig,
    /// Rate limits of keys and accounts.
    pub limiter: Arc<RateLimiter>,
    /// Results of health checks that are kept between probes.
    pub health: HealthMonitor,
}
