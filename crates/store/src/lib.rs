//! Accounts, keys, ledger rows, settings and sessions in SQLite or PostgreSQL.
//!
//! One [`Store`], two databases, one SQL text for both. Times are microseconds since 1970, money is
//! whole nanodollars, and both are plain integers in the database. The clock is the caller's:
//! whatever needs a time takes it as an argument; only leases, which several machines must agree
//! on, run by the database's own. Nothing here knows HTTP or wire formats.

mod account_caps;
mod accounts;
mod audit;
mod bank;
mod configured;
mod db;
mod entries;
mod error;
mod factors;
mod idempotent;
mod identities;
mod kept;
mod keys;
mod leases;
mod limits;
mod links;
mod migrations;
mod nodes;
mod open;
mod post;
mod prove;
mod rekey;
mod rollup;
mod sessions;
mod settings;
mod sums;
mod tallies;
mod tasks;
mod teams;
mod usage;
mod vault;

pub use account_caps::{AccountTerms, AccountTotal};
pub use accounts::{Account, Role};
pub use audit::{Audit, AuditFilter};
pub use configured::{AllConfigured, Change, Configured, ConfiguredKind, StoredCredential};
pub use entries::{EntryFilter, KeyTotal};
pub use error::StoreError;
pub use factors::{Factor, FactorKind};
pub use idempotent::{CallName, Claim, Claimed, KeptAnswer};
pub use identities::Identity;
pub use kept::Kept;
pub use keys::{KeyRecord, KeyScope};
pub use leases::LeaseTotal;
pub use ledger::Micros;
pub use limits::{BudgetTerms, Limits};
pub use links::{Link, Purpose};
pub use prove::Proof;
pub use rekey::Rekeyed;
pub use rollup::Step;
pub use sessions::Session;
pub use sums::{Pace, Shown, Times, Used};
pub use tallies::Tally;
pub use tasks::{NewTask, Task, TaskBody, TaskClaim, TaskEnd, TaskState, Told, Webhook};
pub use teams::{Member, Owner, Seat, Seated, Team, TeamRole, TeamTotal};
pub use usage::{By, Rank, UsageFilter, UsagePoint, UsageView, UsageWish};
pub use vault::{Sealed, Sealer, Vault, VaultError, VaultKeys};

use db::{Db, on_reader};

/// The database. Cheap to clone; all clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    db: Db,
}

impl Store {
    /// Whether the database answers.
    pub async fn ping(&self) -> Result<(), StoreError> {
        on_reader!(&self.db, pool => {
            sqlx::query("SELECT 1").execute(pool).await?;
        });
        Ok(())
    }

    /// Which of the two databases it is.
    pub const fn kind(&self) -> &'static str {
        match &self.db {
            Db::Sqlite { .. } => "SQLite",
            Db::Pg(_) => "PostgreSQL",
        }
    }

    /// Waits for running work and closes every connection; SQLite folds its write-ahead file back.
    pub async fn close(&self) {
        match &self.db {
            Db::Sqlite { reader, writer } => {
                // The writer goes last: only the last connection of all, and only one that may
                // write, folds the write-ahead file into the database.
                reader.close().await;
                writer.close().await;
            }
            Db::Pg(pool) => pool.close().await,
        }
    }
}
