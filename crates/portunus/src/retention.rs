//! Retention: old rows leave the database in the background, by one node at a time.

use canon::Micros;
use config::RetentionSettings;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{AuditLine, ErasurePlan, StoreError, UsageStep};

use crate::app::App;
use crate::archive::{ArchivedTotals, CallArchiver};

/// Period of the runs.
const RUN_PERIOD: Duration = Duration::from_secs(600);
/// Pause between two transactions that delete rows, so that others come between them.
const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// Time after an erasure in which calls that were still running may leave something behind.
const ERASURE_TAIL: Micros = Micros::from_hours(1);
/// Name of retention in the audit log.
const AUDIT_NAME: &str = "retention";

/// Deletes batches until none is left, and returns the number of rows.
async fn drop_all<F: Future<Output = Result<u64, StoreError>>>(
    batch: impl Fn() -> F,
) -> Result<u64, StoreError> {
    let mut dropped = 0;
    loop {
        let rows = batch().await?;
        if rows == 0 {
            return Ok(dropped);
        }
        dropped += rows;
        tokio::time::sleep(BATCH_PAUSE).await;
    }
}

impl App {
    /// Runs retention on a schedule.
    pub(crate) fn start_retention(self: &Arc<Self>) {
        let app = Arc::clone(self);
        self.spawn_loop(async move {
            loop {
                if let Err(error) = app.run_retention().await {
                    tracing::warn!("old rows could not be deleted: {error:#}");
                }
                tokio::time::sleep(RUN_PERIOD).await;
            }
        });
    }

    /// Archives and deletes what is older than the configuration keeps, and completes erasures. It runs on a
    /// schedule; tests call it directly.
    pub async fn run_retention(&self) -> anyhow::Result<()> {
        let config = self.config();
        // The earlier of both clocks, so that a wrong one of a single node deletes nothing.
        let now = self.clock.now().min(self.store.now().await?);
        let settings = &config.retention;
        let erasures = self.store.erasures(now - ERASURE_TAIL).await?;
        let is_idle = erasures.is_empty() && self.store.unfinished_part().await?.is_none();
        if is_idle && !has_limits(settings) {
            return Ok(());
        }
        let process = format!("node {}", self.engine.funds.lease_client.node_name());
        let place = settings.archive.as_ref();
        let archiver = CallArchiver { store: &self.store, place, process: &process };
        if !archiver.take_turn().await? {
            return Ok(());
        }
        let mut deleted = BTreeMap::new();
        let deleting = self.delete_old(&erasures, settings, &archiver, now, &mut deleted);
        let outcome = archiver.in_turn(deleting).await;
        if deleted.values().any(|count| *count > 0) {
            self.return_space().await?;
            let counts = deleted.iter().filter(|(_, count)| **count > 0);
            let counts: Vec<String> =
                counts.map(|(name, count)| format!("{count} {name}")).collect();
            let detail = counts.join(", ");
            tracing::info!("old rows were deleted: {detail}");
            let line = AuditLine {
                at: now,
                actor: AUDIT_NAME,
                key_id: None,
                action: "retention.run",
                subject: "",
                detail: &detail,
                address: None,
                agent: None,
            };
            self.store.add_audit(&line).await?;
        }
        outcome
    }

    /// Deletes old rows and counts them. Calls come last, because their archive may be unreachable.
    async fn delete_old(
        &self,
        erasures: &[ErasurePlan],
        settings: &RetentionSettings,
        archiver: &CallArchiver<'_>,
        now: Micros,
        deleted: &mut BTreeMap<&'static str, u64>,
    ) -> anyhow::Result<()> {
        if !erasures.is_empty() {
            self.store.overwrite_deleted(true).await?;
            let erased = self.complete_erasures(erasures).await;
            self.store.overwrite_deleted(false).await?;
            erased?;
        }
        let before = |time: Option<Duration>| time.map(|time| now.saturating_sub(time.into()));
        let store = &self.store;
        if let Some(until) = before(settings.call_sessions) {
            let rows = drop_all(|| store.drop_call_sessions(until)).await?;
            deleted.insert("call sessions", rows);
        }
        if let Some(until) = before(settings.audit) {
            // A line that the collector has not got stays.
            let sends = self.config().telemetry.as_ref().is_some_and(|target| target.sends_audit);
            let last = if sends { self.sent_audit_id().await? } else { i64::MAX };
            deleted.insert("audit lines", drop_all(|| store.drop_audits(until, last)).await?);
        }
        if let Some(until) = before(settings.refusals) {
            deleted.insert("refusals", drop_all(|| store.drop_refusals(until)).await?);
        }
        if let Some(until) = before(settings.usage_hours) {
            deleted.insert("usage hours", drop_all(|| store.drop_usage_hours(until)).await?);
        }
        match before(settings.calls) {
            Some(until) => {
                // Whole days, so that a day has its own files.
                let range = Micros::new(i64::MIN)..UsageStep::Day.begin(until);
                let ArchivedTotals { calls, .. } = archiver.archive(range).await?;
                deleted.insert("calls", calls.unsigned_abs());
            }
            None => archiver.finish_written().await?,
        }
        Ok(())
    }

    /// Erases what an interrupted erasure left, and what calls left that were still running.
    async fn complete_erasures(&self, erasures: &[ErasurePlan]) -> anyhow::Result<()> {
        for ErasurePlan { account_id, .. } in erasures {
            self.admin.accounts.erase_rest(account_id, &self.engine.files).await?;
        }
        Ok(())
    }

    /// Returns the number of the last line of the audit log that the collector has.
    async fn sent_audit_id(&self) -> Result<i64, StoreError> {
        let position = self.store.audit_stream().await?;
        Ok(position.split(' ').next().and_then(|id| id.parse().ok()).unwrap_or_default())
    }

    /// Gives unused pages back to the file system, in small steps.
    async fn return_space(&self) -> Result<(), StoreError> {
        let mut left = self.store.return_space().await?;
        while left > 0 {
            tokio::time::sleep(BATCH_PAUSE).await;
            let now = self.store.return_space().await?;
            if now >= left {
                break;
            }
            left = now;
        }
        Ok(())
    }
}

/// Returns true if some rows are not kept for ever.
fn has_limits(settings: &RetentionSettings) -> bool {
    let RetentionSettings { calls, call_sessions, audit, refusals, usage_hours, .. } = settings;
    [calls, call_sessions, audit, refusals, usage_hours].into_iter().any(Option::is_some)
}
