//! Accounts, keys, ledger rows, settings and sessions in SQLite or PostgreSQL.
//!
//! One [`Store`], two databases, one SQL text for both. Times are microseconds since 1970 and money
//! is whole nanodollars; both are plain integers in the database. Callers pass the time as an
//! argument. Only leases, on which several machines must agree, use the clock of the database.
//! Nothing here knows HTTP or wire formats.

mod account_caps;
mod accounts;
mod acme;
mod alert_kind;
mod alert_settings;
mod alerts;
mod archive;
mod archived_ids;
mod attempt_counters;
mod audit;
mod audited_change;
mod backup;
mod block_decoding;
mod bulk_roles;
mod cache_copies;
mod cached_contents;
mod call_audit;
mod call_block;
mod call_filter;
mod call_sessions;
mod call_writes;
mod compact_text;
mod conversations;
mod corrections;
mod data_keys;
mod db;
mod direct_writes;
mod ending_keys;
mod entries;
mod erased_names;
mod erasure;
mod error;
mod factors;
mod gateway_alerts;
mod hour_errors;
mod idempotent;
mod identities;
mod key_bounds;
mod key_page;
mod key_scope;
mod keys;
mod known_devices;
mod large_work;
mod late_charges;
mod lease_bounds;
mod lease_store;
mod leases;
mod limit_standings;
mod limits;
mod links;
mod mcp_grants;
mod migration_kind;
mod migrations;
mod month_sums;
mod node_facts;
mod node_marks;
mod nodes;
mod object_owner;
mod old_entries;
mod open;
mod open_files;
mod opening_spend;
mod own_rows;
mod person_page;
mod post;
mod probe;
mod provider_objects;
mod quiet_hours;
mod refresh_tokens;
mod refusals;
mod rekey;
mod retention;
mod rollup;
mod row;
mod row_statement;
mod schema_check;
mod schema_look;
mod scim_groups;
mod scim_standings;
mod scim_tokens;
mod scim_users;
mod sealed_body;
mod session_audit;
mod sessions;
mod settings;
mod sqlite_database;
mod sqlite_pools;
mod store_times;
mod stored_config;
mod stored_responses;
mod sums;
mod table_dump;
mod task_bodies;
mod task_state;
mod tasks;
mod teams;
mod temp_folder;
mod text_hash;
mod text_search;
mod turns;
mod usage;
mod usage_query;
mod usage_search;
mod vault;
mod verify;
mod verify_terms;

pub use account_caps::{AccountTerms, AccountTotal};
pub use accounts::{Account, AccountRole, PersonChange};
pub use acme::{
    AcmeAccount, AcmeCertificate, ChallengeAnswer, IssuedCertificate, SealedCertificate,
};
pub use alert_kind::{AlertKind, EventKind};
pub use alert_settings::{
    AlertReceivers, AlertSettings, SealedWebhook, WebhookForm, webhook_label,
};
pub use alerts::{Alert, AlertDelivery, AlertFilter, AlertWay, GATEWAY_OWNER, GatewayEvent};
pub use archive::{ArchiveFile, ArchivePart, ArchiveState};
pub use attempt_counters::AttemptCounter;
pub use audit::{AuditFilter, AuditLine, AuditRecord};
pub use audited_change::AuditedChange;
pub use backup::AdoptedCounts;
pub use cache_copies::CacheCopy;
pub use cached_contents::{CacheAdmission, CacheLimits, CachedContent};
pub use call_filter::{CallFilter, StatusFilter};
pub use call_sessions::{SessionPart, SessionTotals};
pub use conversations::{
    ConversationItem, ConversationLimits, ItemAdmission, ItemPage, StoredConversation,
};
pub use corrections::CallPosting;
pub use data_keys::{DATA_KEY_ID_BYTES, DataKey, DataKeyId};
pub use ending_keys::EndingKey;
pub use entries::{EntryFilter, EntryPage, KeyTotal};
pub use erased_names::NamingLines;
pub use erasure::{ErasedCounts, ErasurePlan};
pub use error::StoreError;
pub use factors::{Factor, FactorKind};
pub use gateway_alerts::GatewayAlertSettings;
pub use hour_errors::HourErrors;
pub use idempotent::{CallClaim, CallName, ClaimResult, ClaimSight, StoredReply};
pub use identities::Identity;
pub use key_bounds::KeyBounds;
pub use key_page::{KeyOrder, KeyPage, KeySelection, KeyStanding};
pub use key_scope::{AdminPart, KeyGrants, KeyScope};
pub use keys::KeyRecord;
pub use known_devices::KnownDevice;
pub use large_work::{is_large, run_in_place};
pub use leases::LeaseTotal;
pub use ledger::BudgetTerms;
pub use limit_standings::{LimitKind, LimitStanding};
pub use limits::RateLimits;
pub use links::{Link, LinkPurpose};
pub use mcp_grants::{McpClientRecord, McpGrant};
pub use migration_kind::MigrationKind;
pub use month_sums::MonthSums;
pub use node_facts::NodeFacts;
pub use object_owner::{ObjectOwner, ObjectSharing};
pub use person_page::{PersonOrder, PersonPage, PersonSelection, PersonSummary};
pub use probe::{ProbedSchema, StoreProbe, probe_store};
pub use provider_objects::ProviderObject;
pub use quiet_hours::{QuietHours, WrongQuietHours};
pub use refresh_tokens::RefreshToken;
pub use refusals::RefusedCalls;
pub use rekey::RekeyCounts;
pub use rollup::UsageStep;
pub use schema_check::{PendingMigration, SchemaState};
pub use scim_groups::{ScimGroup, ScimGroupCondition};
pub use scim_standings::ScimStanding;
pub use scim_tokens::ScimToken;
pub use scim_users::{ScimAddress, ScimUser, ScimUserCondition};
pub use sessions::Session;
pub use store_times::StoreTimes;
pub use stored_config::{
    ConfigChange, ConfigEntry, ConfigEntryKind, ConfigSnapshot, StoredCredential,
};
pub use stored_responses::StoredResponse;
pub use sums::{DurationHistogram, LatencyTotals, ReportTotals, UsageTotals};
pub use table_dump::{DumpSink, DumpSource, DumpedTable};
pub use task_state::{DeliveryState, TaskState};
pub use tasks::{NewTask, Task, TaskBody, TaskClaim, TaskEnd, TaskWebhook};
pub use teams::{KeyOwner, MemberChange, Membership, Team, TeamMember, TeamRole, TeamTotal};
pub use turns::{ClusterTurn, TURN_TIME};
pub use usage::{GroupBy, GroupOrder, SumGroup, UsagePoint, UsageReport, UsageRequest};
pub use usage_query::UsageFilter;
pub use vault::{SealedSecret, SecretSealer, Vault, VaultError, VaultKeyError, VaultKeys};
pub use verify::InvariantCheck;

use db::{Db, on_reader};
use std::sync::Arc;
use tokio::sync::Mutex;

/// The database. Cheap to clone; all clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    db: Db,
    /// Makes changes of administration in this process run one after the other.
    changes: Arc<Mutex<()>>,
    /// Seals bodies; `None` without a vault.
    data_keys: Option<Arc<data_keys::DataKeyring>>,
}

impl Store {
    /// Checks that the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        on_reader!(&self.db, pool => {
            sqlx::query("SELECT 1").execute(pool).await?;
        });
        Ok(())
    }

    /// Returns the name of the database product.
    pub const fn kind(&self) -> &'static str {
        match &self.db {
            Db::Sqlite(_) => "SQLite",
            Db::Pg(_) => "PostgreSQL",
        }
    }

    /// Returns the reason that the database cannot be used, if its file was deleted or replaced while it was
    /// open. SQLite only.
    pub fn file_loss(&self) -> Option<String> {
        match &self.db {
            Db::Sqlite(database) => database.loss(),
            Db::Pg(_) => None,
        }
    }

    /// Waits for running work and closes every connection. SQLite then checkpoints its write-ahead
    /// log.
    pub async fn close(&self) {
        match &self.db {
            Db::Sqlite(database) => database.close().await,
            Db::Pg(pool) => pool.close().await,
        }
    }
}
