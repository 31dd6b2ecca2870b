//! Background loops. Each one is tracked and ends once all calls have ended.

use config::LoadOptions;
use ledger::StoreRollback;
use std::sync::Arc;
use std::time::Duration;
use telemetry::LogExporter;

use crate::app::App;
use crate::node_journal;
use crate::node_metrics::MEASURE_PERIOD;

/// Period of reading changed keys, limits and stored configuration.
const REFRESH_PERIOD: Duration = Duration::from_secs(1);
/// Period of the journal's fsync.
const JOURNAL_SYNC_PERIOD: Duration = Duration::from_millis(500);
/// Period of looking if the journal's disk hangs.
const JOURNAL_WATCH_PERIOD: Duration = Duration::from_millis(500);
/// Period of the health checks that read files or ask other services.
const HEALTH_PERIOD: Duration = Duration::from_secs(10);
/// Period of looking for credentials of providers that are due for renewal.
const CREDENTIAL_PERIOD: Duration = Duration::from_secs(5);
/// Period of deleting expired rows and files.
const SWEEP_PERIOD: Duration = Duration::from_secs(600);

impl App {
    /// Starts the background loops: posting to the store, leases, refresh of keys, fsync of the
    /// journal, sweeps, image tasks, webhooks, reload.
    pub fn start_background(self: &Arc<Self>, given: LoadOptions) {
        self.note_build();
        let app = Arc::clone(self);
        // Tracked with the calls, because their settlements must be posted before the process ends.
        self.engine
            .tasks
            .spawn(async move { app.engine.funds.post_settled_calls(&app.stop).await });
        let app = Arc::clone(self);
        self.spawn_loop(async move { app.engine.funds.run_heartbeats(&app.stop).await });
        self.spawn_periodic(REFRESH_PERIOD, async |app| {
            app.refresh_keys().await;
            app.admin.poll_stored_config().await;
        });
        if let Some(shared) = self.api.limiter.shared() {
            let (beating, listening) = (Arc::clone(shared), Arc::clone(shared));
            self.spawn_loop(async move { beating.run_heartbeat().await });
            let app = Arc::clone(self);
            self.spawn_loop(async move {
                listening.listen_for_key_changes(|| app.refresh_keys()).await
            });
        }
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                // Without calls, too: a call shall not wait for a token, and a failure shall be known.
                let config = app.engine.config();
                config.providers.iter().for_each(|provider| provider.keep_credentials_fresh());
                tokio::time::sleep(CREDENTIAL_PERIOD).await;
            }
        });
        self.spawn_periodic(JOURNAL_SYNC_PERIOD, async |app| app.sync_journal().await);
        // A loop of its own, because the sync waits for the disk.
        self.spawn_periodic(JOURNAL_WATCH_PERIOD, async |app| {
            app.engine.funds.open_calls.watch_journal();
            app.report_journal_errors();
            app.report_rollbacks();
            let dropped = crate::cli::report_dropped_logs();
            app.engine.metrics.dropped_log_lines.raise_to(dropped);
        });
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                app.measure_disk().await;
                tokio::time::sleep(MEASURE_PERIOD).await;
            }
        });
        self.spawn_periodic(node_journal::ADOPTION_PERIOD, async |app| {
            let (own, folder) = (&app.engine.funds.node_folder, &app.config().data_folder);
            node_journal::adopt_journals(own, folder, &app.store, &app.clock).await;
        });
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                app.admin.watch_health().await;
                tokio::time::sleep(HEALTH_PERIOD).await;
            }
        });
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                app.sweep().await;
                tokio::time::sleep(SWEEP_PERIOD).await;
            }
        });
        self.start_certificates();
        self.start_retention();
        self.start_alerts();
        let config = self.engine.config();
        if let Some(collector) = config.telemetry.clone().filter(|target| target.sends_audit) {
            let exporter = LogExporter::new(collector, &config.outbound, Arc::clone(&self.clock));
            let app = Arc::clone(self);
            self.spawn_loop(async move { app.stream_audit(exporter).await });
        }
        self.spawn_loop(Arc::clone(&self.api).run_tasks());
        self.spawn_loop(Arc::clone(&self.api).deliver_webhooks());
        let app = Arc::clone(self);
        self.spawn_loop(config::watch_config(given, move |step| app.reload(step)));
    }

    /// Runs a loop until all calls have ended.
    pub(crate) fn spawn_loop(&self, work: impl Future<Output = ()> + Send + 'static) {
        let ended = self.calls_ended.clone();
        self.background.spawn(async move {
            ended.run_until_cancelled(work).await;
        });
    }

    /// Runs a job periodically until all calls have ended.
    fn spawn_periodic<F>(
        self: &Arc<Self>,
        period: Duration,
        work: impl Fn(Arc<Self>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                tokio::time::sleep(period).await;
                work(Arc::clone(&app)).await;
            }
        });
    }

    /// Retires the journal after the last call, if the store has all of them.
    pub(crate) async fn retire_journal(&self) {
        let engine = Arc::clone(&self.engine);
        let retiring =
            tokio::task::spawn_blocking(move || engine.funds.open_calls.retire_journal());
        if let Err(e) = retiring.await {
            tracing::error!("the journal could not be retired: {e}");
        }
    }

    /// Completes the journal and writes it through to the disk.
    pub(crate) async fn sync_journal(&self) {
        let engine = Arc::clone(&self.engine);
        let syncing = tokio::task::spawn_blocking(move || {
            let book = &engine.funds.open_calls;
            // The journal counts its failures. A mark that is not saved is saved next time.
            drop(book.maintain_journal().and(book.sync()));
            drop(engine.funds.lease_client.save_mark());
        });
        let synced = syncing.await;
        if let Err(e) = synced {
            tracing::error!("the journal could not be synced: {e}");
        }
    }

    /// Logs and counts journal failures since the last report, in one line, because a full disk
    /// fails every call.
    pub(crate) fn report_journal_errors(&self) {
        let damaged = self.engine.funds.open_calls.damaged_files().len();
        self.engine.metrics.journal_damaged_files.set(damaged);
        let (count, last) = self.engine.funds.open_calls.errors().so_far();
        let new = count.saturating_sub(self.engine.metrics.journal_errors.get());
        if new > 0 {
            self.engine.metrics.journal_errors.inc_by(new);
            tracing::error!(errors = new, "the journal failed {new} times, the last time: {last}");
        }
    }

    /// Logs and counts the times that the store went back to an earlier state.
    pub(crate) fn report_rollbacks(&self) {
        for StoreRollback { missing, reposted } in self.engine.funds.lease_client.take_rollbacks() {
            self.engine.metrics.store_rollbacks.inc();
            let lost = missing.saturating_sub(reposted).max(0);
            let damaged = self.engine.funds.open_calls.damaged_files();
            let why = if damaged.is_empty() {
                "are no longer in the journal".to_owned()
            } else {
                format!("are not in the journal, which is damaged ({})", damaged.join(", "))
            };
            tracing::error!(
                missing,
                reposted,
                "the store went back to an earlier state: {missing} calls of this node were missing, \
                 {reposted} were posted again, {lost} {why}; accept it with \
                 `portunus ledger accept-rollback`"
            );
        }
    }

    /// Deletes expired rows and files. It runs on a schedule; tests call it directly.
    pub async fn sweep(&self) {
        let now = self.clock.now();
        if let Err(e) = self.store.sweep_responses(now).await {
            tracing::warn!("expired answers could not be swept: {e}");
        }
        if let Err(e) = self.store.sweep_cached_contents(now).await {
            tracing::warn!("expired cached contents could not be swept: {e}");
        }
        if let Err(e) = self.store.sweep_conversations(now).await {
            tracing::warn!("expired conversations could not be swept: {e}");
        }
        if let Err(e) = self.store.sweep_links(now).await {
            tracing::warn!("old one-time links could not be swept: {e}");
        }
        if let Err(e) = self.api.idempotency.sweep().await {
            tracing::warn!("expired idempotency keys could not be swept: {e}");
        }
        if let Err(e) = self.store.sweep_objects(now).await {
            tracing::warn!("expired objects of providers could not be swept: {e}");
        }
        self.api.sweep_tasks().await;
        if let Err(e) = self.engine.files.sweep_expired().await {
            tracing::warn!("expired files could not be swept: {e}");
        }
    }

    /// Fetches changed keys and limits of accounts.
    async fn refresh_keys(&self) {
        if let Err(e) = self.engine.keys.refresh().await {
            tracing::warn!("changed keys could not be fetched: {e}");
        }
        let rehashes = self.engine.keys.take_rehashes();
        if let Err(e) = self.admin.accounts.store_key_rehashes(rehashes).await {
            tracing::warn!("hashes of imported keys could not be replaced: {e}");
        }
        if let Err(e) = self.api.limiter.refresh(&self.store).await {
            tracing::warn!("the limits of accounts could not be fetched: {e}");
        }
    }
}
