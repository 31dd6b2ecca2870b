//! Wiring of the gateway: opens every part and hands it to the crates that use it.

use access::idempotency::IdempotencyKeys;
use access::keys::KeyCache;
use access::limits::{RateLimiter, SharedLimits};
use admin::{AccountAdmin, Admin, HealthMonitor, SETUP_TOKEN_SETTING, StoredConfig};
use api::{ApiState, ImageTasks, StandingCache, StoredAnswers};
use canon::Micros;
use config::{BlobStore, Config, StoredEntries};
use http::HeaderValue;
use ledger::{Clock, LeaseClient, SystemClock};
use relay::{Engine, EngineParts, EnvelopeKeys, FileStore, NodeFolder, NodeFunds, RequestIds};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Store, Vault};
use telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::{Connections, ShutdownPhase};

use crate::listeners::ListeningSockets;
use crate::node_journal::{self, FolderUse, OwnJournal, log_damage, posted_calls};
use crate::process_limits;
use crate::supervisor::SupervisorLink;

/// Setting that holds the key pepper.
const PEPPER_SETTING: &str = "key_pepper";
/// File in the data folder with the gateway's own vault key.
pub(crate) const VAULT_KEY_FILE: &str = "vault.key";

/// The running gateway.
pub struct App {
    /// Serves calls.
    pub engine: Arc<Engine>,
    /// Changes keys, accounts, providers, models, settings.
    pub admin: Arc<Admin>,
    /// Serves the HTTP API.
    pub api: Arc<ApiState>,
    /// Accounts, keys, usage.
    pub store: Store,
    /// Source of the time.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the process shall stop. Nothing new is accepted, and running calls may
    /// finish.
    pub stop: CancellationToken,
    /// Cancelled when another process accepts the connections of this one.
    pub(crate) handed_over: CancellationToken,
    /// Tells the service manager of this process.
    pub(crate) supervisor: SupervisorLink,
    /// Sockets that another process may ask for.
    pub(crate) sockets: ListeningSockets,
    /// Cancelled when running calls must end before the drain timeout.
    pub(crate) end_calls: CancellationToken,
    /// Connections of the metrics listener. They have room of their own, so that callers cannot keep a
    /// probe out.
    pub(crate) metrics_connections: Arc<Connections>,
    /// Connections of the listener that sends callers to https.
    pub(crate) plain_connections: Arc<Connections>,
    /// Background loops. `calls_ended` is cancelled to end them once all calls have ended.
    pub(crate) background: TaskTracker,
    pub(crate) calls_ended: CancellationToken,
}

/// Result of the very first start, shown once.
#[derive(Debug)]
pub struct FirstStart {
    /// The first key.
    pub key: String,
}

impl App {
    /// Opens everything the configuration names. A journal left by a crash is settled first.
    pub async fn open(config: Config) -> anyhow::Result<(Arc<Self>, Option<FirstStart>)> {
        Self::open_with_clock(config, Arc::new(SystemClock)).await
    }

    /// The same with another clock than that of the machine.
    pub async fn open_with_clock(
        config: Config,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<(Arc<Self>, Option<FirstStart>)> {
        Self::open_in_folder(config, clock, FolderUse::Alone).await
    }

    /// The same, perhaps beside processes that use the data folder until they have drained.
    pub(crate) async fn open_in_folder(
        mut config: Config,
        clock: Arc<dyn Clock>,
        folder_use: FolderUse,
    ) -> anyhow::Result<(Arc<Self>, Option<FirstStart>)> {
        refuse_lost_database(&config)?;
        let store = open_store(&config).await?;
        let journal = node_journal::open_journal(&config, &clock, folder_use).await?;
        let OwnJournal { node: node_folder, opened } = journal;
        let (book, interrupted) = (Arc::clone(&opened.book), opened.found.interrupted);
        book.start_writer()?;
        book.set_sync_writes(config.sync_every_write);
        log_damage(&opened.found);
        let name = node_folder.node_name()?;
        // Before the mark names this database.
        node_journal::report_other_store(&node_folder, &store).await?;
        let teller = LeaseClient::open(opened, store.clone(), Arc::clone(&clock), &name).await?;
        keep_node_name(&node_folder, &name, &teller.node_name())?;
        teller.set_outage_limit(config.store_outage_grace.into());
        for file in book.damaged_files() {
            tracing::error!(
                file,
                "the damaged file {file} of the journal is kept; look at it, and then accept the loss \
                 with `portunus ledger accept-damage {file}`"
            );
        }
        if interrupted > 0 {
            tracing::warn!(
                calls = interrupted,
                "{interrupted} calls were running when the gateway last stopped; they are settled \
                 now"
            );
        }
        node_journal::adopt_journals(&node_folder, &config.data_folder, &store, &clock).await;
        let vault = Arc::new(open_vault(&config, &store));
        let store = store.with_vault(Arc::clone(&vault));
        if vault.is_unset() {
            tracing::warn!("{}", admin::PLAIN_BODIES_WARNING);
        }
        let stored = StoredEntries::open(store.configured().await?, &vault);
        config.overlay(&stored)?;
        let pepper = key_pepper(&config, &store).await?;
        let keys = Arc::new(KeyCache::load(store.clone(), Arc::clone(&clock), &pepper).await?);
        EnvelopeKeys::new(&pepper, Arc::clone(&clock)).install();
        let files = FileStore::open(&config, &pepper, Arc::clone(&clock), store.clone())?;
        if let BlobStore::Folder(folder) = &config.files.store
            && let Err(e) = process_limits::hide_folder(folder)
        {
            tracing::warn!("others may read the folder {}: {e}", folder.display());
        }
        let (tasks, background) = (TaskTracker::new(), TaskTracker::new());
        let calls_ended = CancellationToken::new();
        let telemetry = Telemetry::start(
            config.telemetry.clone(),
            &config.outbound,
            Arc::clone(&clock),
            calls_ended.clone(),
            |reports| drop(background.spawn(reports)),
        );
        let ids = RequestIds::new()?;
        let node = format!("{:016x}", ids.next_word());
        let shared = config
            .valkey
            .as_ref()
            .map(|valkey| SharedLimits::open(valkey, node, Arc::clone(&clock), tasks.clone()));
        let limiter = Arc::new(RateLimiter::new(Arc::clone(&clock), shared.transpose()?));
        limiter.refresh(&store).await?;
        let stop = CancellationToken::new();
        let funds = NodeFunds::new(Arc::clone(&book), teller, store.clone(), node_folder);
        let engine = Arc::new(Engine::new(EngineParts {
            config,
            keys,
            funds,
            clock: Arc::clone(&clock),
            request_ids: ids,
            files,
            telemetry,
            tasks: tasks.clone(),
            instance: HeaderValue::from_str(&access::keys::random_letters(16)?)?,
        }));
        let accounts = AccountAdmin {
            store: store.clone(),
            clock: Arc::clone(&clock),
            keys: Arc::clone(&engine.keys),
            shared: limiter.shared().cloned(),
            tasks: tasks.clone(),
        };
        let admin = Arc::new(Admin {
            accounts,
            engine: Arc::clone(&engine),
            store: store.clone(),
            vault,
            stored: StoredConfig::new(stored),
            limiter: Arc::clone(&limiter),
            health: HealthMonitor::default(),
        });
        let api = Arc::new(ApiState {
            engine: Arc::clone(&engine),
            admin: Arc::clone(&admin),
            store: store.clone(),
            limiter,
            idempotency: IdempotencyKeys::new(
                store.clone(),
                book,
                Arc::clone(&clock),
                tasks.clone(),
            ),
            stored_answers: StoredAnswers::new(store.clone(), tasks),
            image_tasks: ImageTasks::new(&pepper),
            standings: StandingCache::default(),
            stop: stop.clone(),
        });
        let app = Arc::new(Self {
            engine,
            admin,
            api,
            store,
            clock,
            stop,
            handed_over: CancellationToken::new(),
            supervisor: SupervisorLink::start()?,
            sockets: ListeningSockets::default(),
            end_calls: CancellationToken::new(),
            metrics_connections: Arc::new(Connections::replacing_idle()),
            plain_connections: Arc::new(Connections::replacing_idle()),
            background,
            calls_ended,
        });
        app.admin.log_issues(None).await?;
        let first = app.admin.accounts.first_start().await?;
        Ok((app, first.map(|issued| FirstStart { key: issued.secret })))
    }

    /// Returns the current configuration.
    pub fn config(&self) -> Arc<Config> {
        self.engine.config()
    }

    /// Installs a new configuration. The health of lanes is carried over. Changes that need a
    /// restart are logged.
    pub fn reconfigure(&self, config: Config) {
        let old = self.config();
        // A new vault key may open credentials that could not be opened before.
        self.admin.vault.set_operator_keys(config.vault_keys.clone());
        self.admin.stored.mark_stale();
        if old.listen_address != config.listen_address
            || old.http_address != config.http_address
            || old.store_url != config.store_url
            || old.key_hash_secret != config.key_hash_secret
            || old.valkey != config.valkey
            || old.files.url != config.files.url
        {
            tracing::warn!(
                "`listen`, `http_listen`, `store`, `valkey`, `secret` and the file store change only with a \
                 restart"
            );
        }
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        self.engine.funds.lease_client.set_outage_limit(config.store_outage_grace.into());
        self.engine.funds.open_calls.set_sync_writes(config.sync_every_write);
        self.engine.files.reconfigure(&config);
        match self.admin.replace_config(config) {
            true => self.engine.metrics.reloads.note_accepted(self.clock.now().as_secs()),
            false => self.engine.metrics.reloads.note_refused(),
        }
    }

    /// Returns the time since the start on a monotonic clock.
    pub fn ticks(&self) -> Micros {
        self.engine.monotonic_now()
    }

    /// Enters a phase of the shutdown on every listener.
    pub(crate) fn advance(&self, phase: ShutdownPhase) {
        self.engine.connections.advance(phase);
        self.metrics_connections.advance(phase);
        self.plain_connections.advance(phase);
    }

    /// Leaves new connections and free money to another process.
    pub(crate) async fn hand_over(&self) {
        // First, so that a signal does not refuse handshakes on sockets of the other process.
        self.sockets.hand_over();
        self.engine.funds.hand_over().await;
        self.advance(ShutdownPhase::HandOver);
        self.handed_over.cancel();
    }

    /// Stops accepting new work.
    pub fn drain(&self) {
        self.advance(ShutdownPhase::Drain);
    }

    /// Sends a heartbeat with this node's leases to the store. It runs every second; tests call it
    /// directly.
    pub async fn heartbeat(&self) {
        self.engine.funds.heartbeat().await;
    }

    /// Returns the URL of the set-up page until it is used.
    pub async fn setup_link(&self) -> anyhow::Result<Option<String>> {
        let token = self.store.setting(SETUP_TOKEN_SETTING).await?;
        Ok(token.map(|token| format!("{}/console/setup/{token}", self.config().public_url)))
    }
}

/// Opens the vault of the configuration.
pub(crate) fn open_vault(config: &Config, store: &Store) -> Vault {
    vault_for(config, store.is_shared())
}

/// Opens the vault of a gateway whose database other machines may share.
pub(crate) fn vault_for(config: &Config, is_shared: bool) -> Vault {
    let file = config.data_folder.join(VAULT_KEY_FILE);
    Vault::new(file, config.vault_keys.clone(), is_shared)
}

/// Returns the path of the SQLite database; `None` for PostgreSQL.
pub(crate) fn sqlite_file(config: &Config) -> Option<PathBuf> {
    let path = config.store_url.strip_prefix("sqlite:")?;
    Some(PathBuf::from(path.strip_prefix("//").unwrap_or(path)))
}

/// Returns the path of the SQLite database, if there is no file.
pub(crate) fn missing_database(config: &Config) -> Option<PathBuf> {
    sqlite_file(config).filter(|file| !file.exists())
}

/// Fails if the database is missing although it was used. An empty one in its place would look right, and get the
/// calls that the journal still has.
pub(crate) fn refuse_lost_database(config: &Config) -> anyhow::Result<()> {
    let Some(file) = missing_database(config) else { return Ok(()) };
    if !config.data_folder.is_dir() {
        return Ok(());
    }
    let posted = posted_calls(&config.data_folder)?;
    anyhow::ensure!(
        posted == 0,
        "the database {} is missing, and {posted} calls of this data folder were posted to it; put it back, restore a \
         backup with `portunus restore`, or begin with an empty one with `portunus migrate`",
        file.display()
    );
    Ok(())
}

/// Opens the store and creates the data folder.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Store> {
    create_data_folder(&config.data_folder)?;
    Ok(Store::open(&config.store_url).await?)
}

/// Stores the name that a node got because its journal is lost.
fn keep_node_name(node: &NodeFolder, before: &str, now: &str) -> anyhow::Result<()> {
    if before == now {
        return Ok(());
    }
    tracing::error!(
        "the journal of the node {before} is lost; this node is {now} now. The leases of {before} are \
         closed within a minute, and what they paid last stays reserved for a day or until \
         `portunus ledger forget-node {before}`"
    );
    node.write_name(now)
}

fn create_data_folder(data: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(data).map_err(|e| {
        anyhow::anyhow!(
            "the data folder {} cannot be created: {e}; choose another with --data",
            data.display()
        )
    })?;
    process_limits::hide_folder(data).map_err(|e| {
        anyhow::anyhow!("the data folder {} cannot be closed to others: {e}", data.display())
    })
}

/// Returns the pepper that hashes keys: the operator's own secret, or one kept in the store.
pub(crate) async fn key_pepper(config: &Config, store: &Store) -> anyhow::Result<String> {
    match &config.key_hash_secret {
        Some(secret) => Ok(secret.clone()),
        None => Ok(store.setting_or(PEPPER_SETTING, &access::keys::random_letters(43)?).await?),
    }
}
