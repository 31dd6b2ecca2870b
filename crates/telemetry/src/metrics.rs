//! Counters behind `/metrics`. [`crate::scrape`] writes them.
//!
//! A call finds its counters in its lane, so that counting takes no lock and allocates nothing. Labels have
//! bounds: callers cannot add values, and beyond [`MAX_LANE_SERIES`] lanes all others are counted together.

use canon::{ErrorKind, Money};
use config::{CountedCall, LaneCounters};
use ledger::{Clock, FailedAttempt};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::Telemetry;
use crate::counters::{Counter, Gauge, NamedCounts};
use crate::tool_calls::{ToolObserver, ToolServers, ToolTrace};

/// Pairs of model and lane that are counted apart.
pub const MAX_LANE_SERIES: u32 = 1_000;
/// Commit of a build that does not know it.
const UNKNOWN_COMMIT: &str = "unknown";
/// HTTP statuses have three digits.
const STATUSES: usize = 1_000;

/// All counters of this process.
pub struct GatewayMetrics {
    /// Unix seconds of the start.
    pub(crate) started: Gauge,
    commit: OnceLock<&'static str>,
    /// Calls that have begun and not ended.
    pub running_calls: Gauge,
    /// Failed operations of the journal.
    pub journal_errors: Counter,
    /// Damaged files of the journal that no operator has accepted.
    pub journal_damaged_files: Gauge,
    /// Times that the store was found to have gone back to an earlier state.
    pub store_rollbacks: Counter,
    /// Retries that the budget of a lane did not allow.
    pub refused_retries: Counter,
    /// Log lines that were dropped because standard error was too slow.
    pub dropped_log_lines: Counter,
    /// Reloads of the configuration.
    pub reloads: ReloadMetrics,
    /// Room on the disk of the data folder.
    pub disk: DiskMetrics,
    /// Certificate of the listener.
    pub certificate: CertificateMetrics,
    /// Number of lane counters in use.
    lane_places: AtomicU32,
    /// Calls of all lanes that are not counted apart.
    pub(crate) other_lanes: LaneCounters,
    pub(crate) refused_calls: NamedCounts<1>,
    pub(crate) lane_failures: NamedCounts<2>,
    pub(crate) told_minus_ours: NamedCounts<1>,
    pub(crate) tool_servers: ToolServers,
    responses: Box<[AtomicU64]>,
    errors: [AtomicU64; ErrorKind::ALL.len()],
}

/// Reloads of the configuration.
#[derive(Debug, Default)]
pub struct ReloadMetrics {
    /// Configurations that were put in force after the start.
    pub accepted: Counter,
    /// Configurations that were refused.
    pub refused: Counter,
    /// Unix seconds at which the current one was put in force.
    pub last_accepted: Gauge,
    /// 1 if the last one was put in force.
    pub is_good: Gauge,
}

impl ReloadMetrics {
    fn put_in_force(&self, unix_seconds: i64) {
        self.last_accepted.set(unix_seconds);
        self.is_good.set(1);
    }

    /// Notes a configuration that was put in force.
    pub fn note_accepted(&self, unix_seconds: i64) {
        self.accepted.inc();
        self.put_in_force(unix_seconds);
    }

    /// Notes a configuration that was refused.
    pub fn note_refused(&self) {
        self.refused.inc();
        self.is_good.set(0);
    }
}

/// Certificate of the listener.
#[derive(Debug, Default)]
pub struct CertificateMetrics {
    /// Unix seconds of its end; zero if there is none, or if that is not known.
    pub expires: Gauge,
    /// 1 if the newest files or the newest order are in use.
    pub is_good: Gauge,
}

/// Disk of the data folder. Read in the background, because a disk may hang.
#[derive(Debug, Default)]
pub struct DiskMetrics {
    /// Bytes that the gateway may still write.
    pub free_bytes: Gauge,
    /// Size of the file system.
    pub total_bytes: Gauge,
    /// Files that the file system has room for.
    pub free_inodes: Gauge,
    /// Segments of the journal that calls still need.
    pub journal_segments: Gauge,
    /// Bytes of all files of the journal.
    pub journal_bytes: Gauge,
}

impl GatewayMetrics {
    /// Creates every counter at zero.
    pub fn new() -> Self {
        Self {
            started: Gauge::default(),
            commit: OnceLock::new(),
            running_calls: Gauge::default(),
            journal_errors: Counter::default(),
            journal_damaged_files: Gauge::default(),
            store_rollbacks: Counter::default(),
            refused_retries: Counter::default(),
            dropped_log_lines: Counter::default(),
            reloads: ReloadMetrics::default(),
            disk: DiskMetrics::default(),
            certificate: CertificateMetrics::default(),
            lane_places: AtomicU32::new(0),
            other_lanes: LaneCounters::default(),
            refused_calls: NamedCounts::default(),
            lane_failures: NamedCounts::default(),
            told_minus_ours: NamedCounts::default(),
            tool_servers: ToolServers::default(),
            responses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
            errors: [const { AtomicU64::new(0) }; ErrorKind::ALL.len()],
        }
    }

    /// Notes the start of the gateway, with its first configuration.
    pub fn note_start(&self, unix_seconds: i64) {
        self.started.set(unix_seconds);
        self.reloads.put_in_force(unix_seconds);
    }

    /// Sets the commit that the program was built from, once.
    pub fn set_commit(&self, commit: &'static str) {
        // A second one is that of the same program.
        let _ = self.commit.set(commit);
    }

    /// Returns the commit that the program was built from.
    pub(crate) fn commit(&self) -> &'static str {
        self.commit.get().copied().unwrap_or(UNKNOWN_COMMIT)
    }

    /// Counts a settled or refused call with the counters of its lane, and the attempts that failed.
    pub fn record_call(
        &self,
        lane: &LaneCounters,
        call: &CountedCall<'_>,
        failed: &[FailedAttempt],
    ) {
        let has_place = lane.place(&self.lane_places) <= MAX_LANE_SERIES;
        let counters = if has_place { lane } else { &self.other_lanes };
        counters.record(call);
        for attempt in failed {
            self.lane_failures.add([&attempt.lane, &attempt.outcome], 1);
        }
    }

    /// Counts a call that was refused before any provider was asked.
    pub fn record_refusal(&self, reason: &'static str) {
        self.refused_calls.add([reason], 1);
    }

    /// Adds the difference between a provider's own price of a call and the one computed here.
    pub fn record_bill(&self, provider: &str, told: Money, ours: Money) {
        let difference = told.as_nanos().saturating_sub(ours.as_nanos());
        self.told_minus_ours.add([provider], difference);
    }

    /// Counts the answer to a request.
    pub fn record_response(&self, status: u16) {
        if let Some(count) = self.responses.get(usize::from(status)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts an error that a caller is told.
    pub fn record_error(&self, kind: ErrorKind) {
        let place = ErrorKind::ALL.iter().position(|one| *one == kind);
        if let Some(count) = place.and_then(|place| self.errors.get(place)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the observer of tool calls on an MCP server. Callers must not choose the name. `word` is a
    /// random number.
    pub fn observe_tools(
        &self,
        server: &str,
        (telemetry, clock): (&Telemetry, &Arc<dyn Clock>),
        trace: Option<ToolTrace>,
        word: u64,
    ) -> ToolObserver {
        let parts = (telemetry.clone(), Arc::clone(clock));
        ToolObserver::new(self.tool_servers.find(server), parts, trace, word)
    }

    /// Returns the statuses of answers that were given, with their number.
    pub(crate) fn responses(&self) -> impl Iterator<Item = (usize, u64)> {
        let counts = self.responses.iter().map(|count| count.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0)
    }

    /// Returns all kinds of errors with the number of times that callers were told them. Zeros are told too,
    /// because Prometheus sees no increase in a series that begins.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (ErrorKind, u64)> {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed));
        ErrorKind::ALL.into_iter().zip(counts)
    }
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::{Usage, WireFormat};
    use config::CallEnd;
    use std::time::Duration;

    #[test]
    fn lanes_beyond_the_bound_are_counted_together() {
        let metrics = GatewayMetrics::new();
        let lanes: Vec<LaneCounters> =
            (0..MAX_LANE_SERIES + 2).map(|_| LaneCounters::default()).collect();
        let usage = Usage::default();
        let call = CountedCall {
            end: CallEnd { format: WireFormat::Chat, status: 200, error: "" },
            duration: Duration::from_secs(1),
            first_byte: None,
            usage: &usage,
            cost: 0,
            absorbed: 0,
            retries: 0,
        };
        for lane in lanes.iter().chain(&lanes) {
            metrics.record_call(lane, &call, &[]);
        }
        let calls = |lane: &LaneCounters| lane.calls().iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(lanes.first().map(calls), Some(2));
        assert_eq!(lanes.last().map(calls), Some(0));
        assert_eq!(calls(&metrics.other_lanes), 4);
    }
}
