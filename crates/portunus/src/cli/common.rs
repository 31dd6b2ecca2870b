//! Options and output shared by the commands.

use access::keys::KeyCache;
use access::limits::SharedLimits;
use admin::{AccountAdmin, AdminError};
use clap::Args;
use config::{Config, LoadOptions};
use ledger::{Clock, SystemClock};
use relay::NodeFolder;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::task::TaskTracker;

use super::output::print_line;
use crate::app::{key_pepper, missing_database, open_store, refuse_lost_database};
use crate::node_journal::posted_elsewhere;
use store::Store;

/// Database that is empty and gone with the process.
const EMPTY_STORE: &str = "sqlite::memory:";

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(super) struct CommonArgs {
    /// Configuration file
    #[arg(long, global = true, value_name = "FILE", env = "PORTUNUS_CONFIG")]
    config: Option<PathBuf>,
    /// Data folder
    #[arg(long, global = true, value_name = "DIR", default_value = "data", env = "PORTUNUS_DATA")]
    data: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
}

impl CommonArgs {
    /// Returns the options to load the configuration with.
    pub(super) fn load_options(&self, listen: Option<String>) -> LoadOptions {
        LoadOptions {
            file: self.config.clone(),
            listen_address: listen,
            data_folder: self.data.clone(),
        }
    }

    /// Loads the configuration.
    pub(super) fn load(&self) -> anyhow::Result<Config> {
        Ok(Config::load(&self.load_options(None))?)
    }
}

/// Opens the administration of accounts, teams and keys. It works beside a running gateway. The first command makes
/// the database.
pub(super) async fn open_accounts(config: &Config) -> anyhow::Result<AccountAdmin> {
    refuse_lost_database(config)?;
    accounts_of(config, open_store(config).await?).await
}

/// Opens the database for a command that needs what is in it.
pub(super) async fn open_existing(config: &Config) -> anyhow::Result<Store> {
    refuse_lost_database(config)?;
    if let Some(file) = missing_database(config) {
        anyhow::bail!(
            "there is no database at {} yet; `portunus serve` or `portunus migrate` makes it",
            file.display()
        );
    }
    open_store(config).await
}

/// Fails if calls of this data folder were posted to another database.
pub(super) async fn refuse_other_store(config: &Config, store: &Store) -> anyhow::Result<()> {
    for node in NodeFolder::existing(&config.data_folder) {
        if let Some((node_id, posted)) = posted_elsewhere(&node, store).await? {
            anyhow::bail!(
                "{posted} calls of the node {node_id} were posted to another database than this one: put that one \
                 back or correct `store.url`; the next start of the gateway takes this one for its own"
            );
        }
    }
    Ok(())
}

/// Opens the same for a command that changes nothing. Without a database it gets an empty one in memory, and
/// a database of an earlier version is an error, because it would be migrated.
pub(super) async fn inspect_accounts(config: &Config) -> anyhow::Result<AccountAdmin> {
    let state = Store::schema_state(&config.store_url).await?;
    let url = match state.found {
        None => EMPTY_STORE,
        Some(_) if !state.pending.is_empty() => anyhow::bail!(
            "the database is of an earlier version and would be changed; run `portunus migrate` first"
        ),
        Some(_) => config.store_url.as_str(),
    };
    accounts_of(config, Store::open(url).await?).await
}

async fn accounts_of(config: &Config, store: Store) -> anyhow::Result<AccountAdmin> {
    let pepper = key_pepper(config, &store).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(AccountAdmin {
        keys: Arc::new(KeyCache::load(store.clone(), Arc::clone(&clock), &pepper).await?),
        store,
        clock,
        shared: None,
        tasks: TaskTracker::new(),
    })
}

/// Closes the store. After a change, announces it, so that running gateways apply it at once.
pub(super) async fn close_accounts(
    config: &Config,
    accounts: &AccountAdmin,
    changed: bool,
) -> anyhow::Result<()> {
    accounts.store.close().await;
    if let Some(valkey) = config.valkey.as_ref().filter(|_| changed) {
        let tasks = accounts.tasks.clone();
        SharedLimits::open(valkey, "cli".to_owned(), Arc::new(SystemClock), tasks)?
            .publish_key_change()
            .await;
    }
    Ok(())
}

/// Error of administration without the field, because options have other names than fields.
pub(super) fn without_field(error: AdminError) -> anyhow::Error {
    match error {
        AdminError::Invalid { message, .. } => anyhow::anyhow!(message),
        AdminError::Forbidden(_)
        | AdminError::NotFound(_)
        | AdminError::Stale
        | AdminError::Concurrent
        | AdminError::Conflict(_)
        | AdminError::Store(_)
        | AdminError::Internal(_) => error.into(),
    }
}

/// Asks the operator to confirm what cannot be undone. Without a terminal the answer is an error.
pub(super) fn confirm(what: &str) -> anyhow::Result<bool> {
    anyhow::ensure!(
        std::io::stdin().is_terminal(),
        "{what} Confirm it with --yes, because there is no terminal to ask"
    );
    print_line(&format!("{what}\nWrite yes to go on:"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    let is_confirmed = answer.trim() == "yes";
    if !is_confirmed {
        print_line("nothing was changed");
    }
    Ok(is_confirmed)
}
