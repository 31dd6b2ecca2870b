//! What every request may use.

use arc_swap::ArcSwap;
use canon::Money;
use http::HeaderValue;
use ledger::{Book, Clock, FileDisk, SystemClock, Teller};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Account, KeyRecord, Limits, Role, Store, Vault};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Config, Given, Stored};
use crate::files::Files;
use crate::flow::{Running, SealKeep};
use crate::ids::Ids;
use crate::keys::{KeyRing, NewToken, hash};
use crate::limits::{Pacing, Shared};
use crate::memory::Memory;
use crate::meters::Meters;
use crate::places::Places;
use crate::server::{Open, Order};
use crate::tasks::Tasks;
use crate::telemetry::Telemetry;

/// The name under which the key pepper is kept in the store.
const PEPPER: &str = "key_pepper";
/// The name under which the one-time set-up word is kept until it is used.
const SETUP: &str = "setup_token";
/// The file in the data folder for the key of our own that seals secrets.
const VAULT: &str = "vault.key";
/// Every how many seconds it is asked what other nodes spent of budgets.
const BUDGETS: u64 = 5;
/// How long the store may be silent before a gateway that is not the only one sends callers to
/// the others.
const SILENCE: i64 = 4_000_000;

/// The gateway.
pub struct App {
    config: ArcSwap<Config>,
    /// Accounts, keys, usage.
    pub store: Store,
    /// The keys in memory.
    pub ring: Arc<KeyRing>,
    /// Where secrets in the store are sealed.
    pub(crate) vault: Vault,
    /// What administrators configured.
    pub(crate) places: Places,
    /// The money of running calls.
    pub book: Arc<Book>,
    /// Where that money comes from.
    pub(crate) teller: Teller<Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where request ids come from.
    pub(crate) ids: Ids,
    /// How fast keys and accounts may be used.
    pub(crate) pacing: Pacing,
    /// What is remembered between calls.
    pub(crate) memory: Memory,
    /// What is kept for callers to fetch.
    files: Files,
    /// What runs here without its caller.
    pub(crate) jobs: Tasks,
    /// Seals of callers whose format has no place for them.
    pub(crate) seals: SealKeep,
    /// What is counted.
    pub meters: Meters,
    /// Where ended calls are reported to.
    pub(crate) telemetry: Telemetry,
    /// Work that must be done before the process may end.
    pub tasks: TaskTracker,
    /// The order to stop.
    pub stop: CancellationToken,
    /// How many calls run.
    pub(crate) running: Running,
    /// The name by which this process knows its own requests when they come round.
    pub(crate) instance: HeaderValue,
    born: Instant,
    /// The order to make haste with it.
    pub(crate) hurry: CancellationToken,
    /// Who is connected.
    pub(crate) open: Arc<Open>,
}

/// What a first start has to show once.
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
        let disk = FileDisk::open(&config.data.join("journal")).map_err(|e| {
            anyhow::anyhow!("the data folder {} cannot be used: {e}", config.data.display())
        })?;
        let opened = Book::open(Arc::clone(&clock), Arc::new(disk))?;
        let (book, interrupted) = (Arc::clone(&opened.book), opened.found.interrupted);
        let name = node_name(&config.data)?;
        let teller = Teller::open(opened, store.clone(), Arc::clone(&clock), &name).await?;
        teller.set_debt(micros(config.store_away));
        if interrupted > 0 {
            tracing::warn!(
                calls = interrupted,
                "{interrupted} calls were running when the gateway last stopped; they are settled \
                 now"
            );
        }
        let vault = Vault::new(config.data.join(VAULT), config.vault.clone(), store.is_shared());
        let stored = Stored::read(store.configured().await?, &vault);
        config.lay(&stored)?;
        let pepper = pepper(&config, &store).await?;
        let ring = KeyRing::load(store.clone(), Arc::clone(&clock), &pepper).await?;
        let files = Files::open(&config, &pepper, Arc::clone(&clock))?;
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let telemetry = Telemetry::start(
            config.telemetry.clone(),
            &config.way,
            Arc::clone(&clock),
            stop.clone(),
            |reports| drop(tasks.spawn(reports)),
        );
        let ids = Ids::new()?;
        let node = format!("{:016x}", ids.word());
        let shared =
            config.valkey.as_ref().map(|valkey| Shared::open(valkey, node, Arc::clone(&clock)));
        let pacing = Pacing::new(Arc::clone(&clock), shared.transpose()?);
        pacing.refresh(&store).await?;
        let app = Arc::new(Self {
            ids,
            pacing,
            memory: Memory::new(store.clone(), tasks.clone()),
            config: ArcSwap::from_pointee(config),
            ring: Arc::new(ring),
            vault,
            places: Places::new(stored),
            store,
            book,
            teller,
            clock,
            files,
            jobs: Tasks::new(&pepper),
            seals: SealKeep::default(),
            meters: Meters::new(),
            telemetry,
            tasks,
            stop,
            running: Running::default(),
            instance: HeaderValue::from_str(&crate::keys::word(16)?)?,
            born: Instant::now(),
            hurry: CancellationToken::new(),
            open: Arc::default(),
        });
        app.tell_places(None).await?;
        let first = app.first_start().await?;
        Ok((app, first))
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Puts a new configuration in force; how its lanes stand is not forgotten. What needs a restart
    /// is told.
    pub fn reconfigure(&self, mut config: Config) {
        let old = self.config();
        self.vault.give(config.vault.clone());
        // What could not be opened may open now.
        self.places.forget();
        if old.listen != config.listen
            || old.store != config.store
            || old.secret != config.secret
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
        self.teller.set_debt(micros(config.store_away));
        self.files.reconfigure(&config);
        self.put_in_force(|_, stored| match config.lay(stored) {
            Ok(()) => Some(config),
            Err(why) => {
                tracing::error!("the new configuration is refused, the last good one stays: {why}");
                None
            }
        });
    }

    /// Puts a configuration in force that is made of the one before and of what is stored; how its
    /// lanes stand is not forgotten.
    pub(crate) fn put_in_force(&self, make: impl FnOnce(&Config, &Stored) -> Option<Config>) {
        // Of two that change it at once, each starts from what the other left.
        let stored = self.places.stored();
        let old = self.config();
        if let Some(mut config) = make(&old, &stored) {
            config.inherit(&old);
            self.config.store(Arc::new(config));
        }
    }

    /// What is kept for callers to fetch.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// Microseconds since the start: a clock that nobody sets, for what must not jump.
    pub fn ticks(&self) -> i64 {
        i64::try_from(self.born.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// Whether new work is welcome.
    pub fn is_ready(&self) -> bool {
        let cut_off = self.teller.nodes() > 1 && self.teller.silence() > SILENCE;
        !cut_off && self.open.order() == Order::Serve
    }

    /// Whether running calls must end, their time being over.
    pub(crate) fn is_ending(&self) -> bool {
        self.open.order() >= Order::End
    }

    /// No new work from here on.
    pub fn drain(&self) {
        self.open.give(Order::Drain);
    }

    /// The work that goes on beside the calls: posting to the store, news of keys, the journal's
    /// way to the platter, reload.
    pub fn run_beside(self: &Arc<Self>, given: Given) {
        let app = Arc::clone(self);
        self.tasks.spawn(async move { app.post_settled().await });
        let app = Arc::clone(self);
        tokio::spawn(async move { app.tend_leases().await });
        let app = Arc::clone(self);
        tokio::spawn(async move {
            let mut count: u64 = 0;
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                app.hear_of_keys().await;
                app.hear_of_places().await;
                count += 1;
                if count.is_multiple_of(BUDGETS)
                    && let Err(e) = app.ring.refresh_budgets().await
                {
                    tracing::warn!("what was spent of budgets could not be fetched: {e}");
                }
            }
        });
        if let Some(shared) = self.pacing.shared() {
            let (beating, listening) = (Arc::clone(shared), Arc::clone(shared));
            tokio::spawn(async move { beating.beat().await });
            let app = Arc::clone(self);
            tokio::spawn(async move { listening.listen(|| app.hear_of_keys()).await });
        }
        let app = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let book = Arc::clone(&app.book);
                if let Err(e) = tokio::task::spawn_blocking(move || book.sync()).await {
                    tracing::error!("the journal could not be synced: {e}");
                }
                app.report_journal_errors();
            }
        });
        let app = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                app.sweep().await;
                tokio::time::sleep(Duration::from_secs(600)).await;
            }
        });
        tokio::spawn(Arc::clone(self).run_tasks());
        tokio::spawn(Arc::clone(self).tell_ends());
        let app = Arc::clone(self);
        tokio::spawn(crate::config::watch(given, move |config| app.reconfigure(config)));
    }

    /// Logs and counts failures of the journal since the last report, in one line however many they
    /// are: a full disk fails every call.
    fn report_journal_errors(&self) {
        let (count, last) = self.book.errors().so_far();
        let new = count.saturating_sub(self.meters.journal_errors.get());
        if new > 0 {
            self.meters.journal_errors.inc_by(new);
            tracing::error!(errors = new, "the journal failed {new} times, the last time: {last}");
        }
    }

    /// Forgets what was kept and has outlived its time. Done on schedule; a test need not wait.
    pub async fn sweep(&self) {
        let now = self.clock.now();
        if let Err(e) = self.store.sweep_kept(now).await {
            tracing::warn!("expired answers could not be swept: {e}");
        }
        if let Err(e) = self.store.sweep_links(now).await {
            tracing::warn!("old one-time links could not be swept: {e}");
        }
        if let Err(e) = self.store.sweep_claims(now).await {
            tracing::warn!("expired idempotency keys could not be swept: {e}");
        }
        self.sweep_tasks().await;
        if let Err(e) = self.files.sweep().await {
            tracing::warn!("expired files could not be swept: {e}");
        }
    }

    /// Fetches what changed of keys and of the limits of accounts.
    async fn hear_of_keys(&self) {
        if let Err(e) = self.ring.refresh().await {
            tracing::warn!("news of keys could not be fetched: {e}");
        }
        if let Err(e) = self.pacing.refresh(&self.store).await {
            tracing::warn!("the limits of accounts could not be fetched: {e}");
        }
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
        let word = crate::keys::word(32)?;
        self.store.put_setting(SETUP, &word).await?;
        let key = NewKey { name: "first key".to_owned(), cap: None, models: vec![], expires: None };
        let (record, text) = key.make(&owner.id, &self.ring, self.clock.now())?;
        self.store.add_key(&record).await?;
        self.ring.put(record);
        Ok(Some(FirstStart { key: text }))
    }

    /// The address of the set-up page, while it has not been used.
    pub async fn setup_link(&self) -> anyhow::Result<Option<String>> {
        let word = self.store.setting(SETUP).await?;
        Ok(word.map(|word| format!("{}/console/setup/{word}", self.config().public_url)))
    }
}

/// The account that owns a new gateway. It has no password until the set-up link is used.
fn owner_account(now: i64) -> Account {
    Account {
        id: uuid::Uuid::now_v7().to_string(),
        username: "owner".to_owned(),
        email: None,
        role: Role::Owner,
        password_hash: None,
        disabled: false,
        created: now,
        changed: now,
    }
}

/// The gateway's owner. Where there is none yet, it is made, together with the set-up word.
pub(crate) async fn owner_of(store: &Store, now: i64) -> anyhow::Result<Account> {
    let accounts = store.accounts().await?;
    if let Some(owner) = accounts.into_iter().find(|account| account.role == Role::Owner) {
        return Ok(owner);
    }
    let owner = owner_account(now);
    store.add_account(&owner).await?;
    store.put_setting(SETUP, &crate::keys::word(32)?).await?;
    Ok(owner)
}

/// What a new key is to be.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its name.
    pub name: String,
    /// The most it may spend; `None` for no limit.
    pub cap: Option<Money>,
    /// The models it may use; empty for all.
    pub models: Vec<String>,
    /// When it ends.
    pub expires: Option<i64>,
}

impl NewKey {
    /// The record to keep and the text to show once.
    pub fn make(
        self,
        account_id: &str,
        ring: &KeyRing,
        now: i64,
    ) -> anyhow::Result<(KeyRecord, String)> {
        let token = NewToken::draw()?;
        let Self { name, cap, models, expires } = self;
        let record = KeyRecord {
            id: token.id,
            account_id: account_id.to_owned(),
            made_by: None,
            name,
            hash: hash(ring.pepper(), &token.text),
            old_hash: None,
            old_until: None,
            cap,
            spent: Money::ZERO,
            budget: None,
            models,
            expires,
            revoked: None,
            limits: Limits::default(),
            ips: Vec::new(),
            created: now,
            changed: now,
            last_used: None,
        };
        Ok((record, token.text))
    }
}

/// Opens the store, making the data folder for an embedded one.
pub(crate) async fn open_store(config: &Config) -> anyhow::Result<Store> {
    make_folder(&config.data)?;
    Ok(Store::open(&config.store).await?)
}

fn make_folder(data: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(data).map_err(|e| {
        anyhow::anyhow!(
            "the data folder {} cannot be made: {e}; choose another with --data",
            data.display()
        )
    })
}

/// The name of this node, the same after a restart: what it left in the store is its own again.
fn node_name(data: &Path) -> anyhow::Result<String> {
    let file = data.join("node");
    if let Ok(name) = std::fs::read_to_string(&file)
        && !name.trim().is_empty()
    {
        return Ok(name.trim().to_owned());
    }
    let name = uuid::Uuid::now_v7().to_string();
    write_name(data, &name)?;
    Ok(name)
}

pub(crate) fn write_name(data: &Path, name: &str) -> anyhow::Result<()> {
    std::fs::write(data.join("node"), format!("{name}\n"))
        .map_err(|e| anyhow::anyhow!("the data folder {} cannot be written: {e}", data.display()))
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// What keys are hashed with: the operator's own secret, or one kept in the store.
pub(crate) async fn pepper(config: &Config, store: &Store) -> anyhow::Result<String> {
    match &config.secret {
        Some(secret) => Ok(secret.clone()),
        None => Ok(store.setting_or(PEPPER, &crate::keys::word(43)?).await?),
    }
}
