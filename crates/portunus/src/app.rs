//! The gateway put together: every part is opened here, and handed to the crates that use it.

use access::idempotency::IdempotencyKeys;
use access::keys::KeyCache;
use access::limits::{RateLimiter, SharedLimits};
use admin::{AccountAdmin, Actor, Admin, KeyDraft, StoredConfig};
use api::{ApiState, ImageTasks, StoredAnswers};
use config::{Config, StoredEntries};
use http::HeaderValue;
use ledger::{Clock, FileDisk, LeaseClient, OpenCalls, SystemClock};
use relay::{Engine, EngineParts, FileStore, NodeFunds, RequestIds, node_name};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::{Account, AccountRole, KeyOwner, KeyScope, RateLimits, Store, Vault};
use telemetry::Telemetry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::ShutdownPhase;

/// The name under which the key pepper is kept in the store.
const PEPPER_SETTING: &str = "key_pepper";
/// The name under which the one-time set-up word is kept until it is used.
const SETUP_SETTING: &str = "setup_token";
/// The file in the data folder for the key of our own that seals secrets.
const VAULT_KEY_FILE: &str = "vault.key";

/// The gateway.
pub struct App {
    /// Serves calls.
    pub engine: Arc<Engine>,
    /// Changes keys, accounts, providers, models, settings.
    pub admin: Arc<Admin>,
    /// Serves the HTTP API.
    pub api: Arc<ApiState>,
    /// Accounts, keys, usage.
    pub store: Store,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the process is to stop: nothing new is accepted, what runs may finish.
    pub stop: CancellationToken,
    /// Cancelled when running calls must end before the drain timeout.
    pub(crate) end_calls: CancellationToken,
    /// Loops that run beside the calls, and the order for them to end once all calls have.
    pub(crate) background: TaskTracker,
    pub(crate) calls_ended: CancellationToken,
}

/// Shown once, on the first start.
#[derive(Debug)]
pub struct FirstStart {
    /// The first key.
    pub key: String,
}

impl App {
    /// Opens everything the configuration names. A journal left by a crash is settled first.
    pub async fn open(mut config: Config) -> anyhow::Result<(Arc<Self>, Option<FirstStart>)> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = open_store(&config).await?;
        let disk = FileDisk::open(&config.data_folder.join("journal")).map_err(|e| {
            anyhow::anyhow!("the data folder {} cannot be used: {e}", config.data_folder.display())
        })?;
        let opened = OpenCalls::open(Arc::clone(&clock), Arc::new(disk))?;
        let (book, interrupted) = (Arc::clone(&opened.book), opened.found.interrupted);
        let name = node_name(&config.data_folder)?;
        let teller = LeaseClient::open(opened, store.clone(), Arc::clone(&clock), &name).await?;
        teller.set_outage_limit(micros(config.store_outage_grace));
        if interrupted > 0 {
            tracing::warn!(
                calls = interrupted,
                "{interrupted} calls were running when the gateway last stopped; they are settled \
                 now"
            );
        }
        let vault = Vault::new(
            config.data_folder.join(VAULT_KEY_FILE),
            config.vault_keys.clone(),
            store.is_shared(),
        );
        let stored = StoredEntries::open(store.configured().await?, &vault);
        config.overlay(&stored)?;
        let pepper = key_pepper(&config, &store).await?;
        let keys = Arc::new(KeyCache::load(store.clone(), Arc::clone(&clock), &pepper).await?);
        let files = FileStore::open(&config, &pepper, Arc::clone(&clock))?;
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
            .map(|valkey| SharedLimits::open(valkey, node, Arc::clone(&clock)));
        let limiter = Arc::new(RateLimiter::new(Arc::clone(&clock), shared.transpose()?));
        limiter.refresh(&store).await?;
        let stop = CancellationToken::new();
        let funds =
            NodeFunds::new(Arc::clone(&book), teller, store.clone(), config.data_folder.clone());
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
            stop: stop.clone(),
        });
        let app = Arc::new(Self {
            engine,
            admin,
            api,
            store,
            clock,
            stop,
            end_calls: CancellationToken::new(),
            background,
            calls_ended,
        });
        app.admin.log_issues(None).await?;
        let first = app.first_start().await?;
        Ok((app, first))
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.engine.config()
    }

    /// Puts a new configuration in force; how its lanes stand is not forgotten. What needs a restart
    /// is told.
    pub fn reconfigure(&self, config: Config) {
        let old = self.config();
        // What could not be opened may open now.
        self.admin.vault.set_operator_keys(config.vault_keys.clone());
        self.admin.stored.mark_stale();
        if old.listen_address != config.listen_address
            || old.store_url != config.store_url
            || old.key_hash_secret != config.key_hash_secret
            || old.valkey != config.valkey
            || old.files.url != config.files.url
        {
            tracing::warn!(
                "`listen`, `store`, `valkey`, `secret` and the place of files change only with a \
                 restart"
            );
        }
        for warning in &config.warnings {
            tracing::warn!("{warning}");
        }
        self.engine.funds.lease_client.set_outage_limit(micros(config.store_outage_grace));
        self.engine.files.reconfigure(&config);
        self.admin.replace_config(config);
    }

    /// Microseconds since the start, by a clock that never jumps.
    pub fn ticks(&self) -> i64 {
        self.engine.monotonic_micros()
    }

    /// No new work from here on.
    pub fn drain(&self) {
        self.engine.connections.advance(ShutdownPhase::Drain);
    }

    /// Tells the store how this node's leases stand. Done every second; a test need not wait.
    pub async fn heartbeat(&self) {
        self.engine.funds.heartbeat().await;
    }

    /// Makes the owner's account, its first key and the set-up word, if there is no account yet.
    async fn first_start(&self) -> anyhow::Result<Option<FirstStart>> {
        if self.store.account_count().await? > 0 {
            return Ok(None);
        }
        let owner = owner_account(self.clock.now());
        match self.store.add_account(&owner).await {
            Ok(()) => {}
            // Another node starts at this very moment and was faster.
            Err(store::StoreError::Conflict(_)) => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        let word = access::keys::random_letters(32)?;
        self.store.put_setting(SETUP_SETTING, &word).await?;
        let draft = KeyDraft {
            scope: KeyScope::Call,
            name: "first key".to_owned(),
            cap: None,
            models: Vec::new(),
            expires: None,
            limits: RateLimits::default(),
            ips: Vec::new(),
            budget: None,
        };
        let owner = KeyOwner::Person(owner);
        let made = self.admin.accounts.create_key(&Actor::Operator, &owner, draft).await?;
        Ok(Some(FirstStart { key: made.secret }))
    }

    /// The address of the set-up page, while it has not been used.
    pub async fn setup_link(&self) -> anyhow::Result<Option<String>> {
        let word = self.store.setting(SETUP_SETTING).await?;
        Ok(word.map(|word| format!("{}/console/setup/{word}", self.config().public_url)))
    }
}

/// The account that owns a new gateway. It has no password until the set-up link is used.
fn owner_account(now: i64) -> Account {
    Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: "owner".to_owned(),
        email: None,
        role: AccountRole::Owner,
        password_hash: None,
        disabled: false,
        created: now,
        changed: now,
    }
}

/// The gateway's owner. Where there is none yet, it is made, together with the set-up word.
pub(crate) async fn owner_or_create(store: &Store, now: i64) -> anyhow::Result<Account> {
    let accounts = store.accounts().await?;
    if let Some(owner) = accounts.into_iter().find(|account| account.role == AccountRole::Owner) {
        return Ok(owner);
    }
    let owner = owner_account(now);
    store.add_account(&owner).await?;
    store.put_setting(SETUP_SETTING, &access::keys::random_letters(32)?).await?;
    Ok(owner)
}

/// Opens the store, making the data folder for an embedded one.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Store> {
    create_data_folder(&config.data_folder)?;
    Ok(Store::open(&config.store_url).await?)
}

fn create_data_folder(data: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(data).map_err(|e| {
        anyhow::anyhow!(
            "the data folder {} cannot be made: {e}; choose another with --data",
            data.display()
        )
    })
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// What keys are hashed with: the operator's own secret, or one kept in the store.
pub(crate) async fn key_pepper(config: &Config, store: &Store) -> anyhow::Result<String> {
    match &config.key_hash_secret {
        Some(secret) => Ok(secret.clone()),
        None => Ok(store.setting_or(PEPPER_SETTING, &access::keys::random_letters(43)?).await?),
    }
}
