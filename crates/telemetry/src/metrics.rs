//! Counters behind `/metrics`, in OpenMetrics text (<https://github.com/prometheus/OpenMetrics>).
//!
//! Hot counters are kept as handles, so that counting takes no lock.

use canon::{Money, WireFormat};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use upstream::LaneState;

use config::LaneHealth;

/// Status of an answered call.
const ANSWERED: u16 = 200;

/// All counters of this process.
pub struct GatewayMetrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    /// The counter of answered calls of each wire format, once it is used.
    answered_calls: [OnceLock<Counter>; WireFormat::ALL.len()],
    refused_calls: Family<RefusalLabels, Counter>,
    input_tokens: Counter,
    output_tokens: Counter,
    /// Nanodollars charged.
    pub cost_nanodollars: Counter,
    told_minus_ours: Family<ProviderLabels, Gauge>,
    /// Calls that have begun and not ended.
    pub running_calls: Gauge,
    /// Seconds from admission to the first byte of a reply.
    pub first_byte_seconds: Histogram,
    /// Failed operations of the journal.
    pub journal_errors: Counter,
    /// Connections beyond a limit, refreshed by every scrape.
    refused_connections: Counter,
    /// Work on large bodies, refreshed by every scrape.
    large_work_running: Gauge,
    large_work_waiting: Gauge,
    /// Times that the store was found to have gone back to an earlier state.
    pub store_rollbacks: Counter,
    /// Damaged files of the journal that no operator has accepted.
    pub journal_damaged_files: Gauge,
    failures: Family<FailureLabels, Counter>,
    /// Lane gauges, refreshed by every scrape.
    lane_up: Family<LaneLabels, Gauge>,
    lane_pending: Family<LaneLabels, Gauge>,
    lane_latency: Family<LaneLabels, Gauge<f64, AtomicU64>>,
}

/// Values that are counted elsewhere and read by a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScrapedValues {
    /// Connections refused since start.
    pub refused_connections: u64,
    /// Pieces of work on large bodies that run.
    pub large_work_running: usize,
    /// Pieces of work on large bodies that wait for a place.
    pub large_work_waiting: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LaneLabels {
    lane: String,
    credential: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabels {
    lane: String,
    outcome: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    dialect: &'static str,
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderLabels {
    provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
}

impl GatewayMetrics {
    /// Creates the registry with every counter at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("portunus");
        let calls = Family::<CallLabels, Counter>::default();
        let tokens = Family::<TokenLabels, Counter>::default();
        let cost = Counter::default();
        let running = Gauge::default();
        let first_byte = Histogram::new(exponential_buckets(0.001, 2.0, 18));
        registry.register("calls", "Calls ended, by format and status", calls.clone());
        let refused_calls = Family::<RefusalLabels, Counter>::default();
        let message = "Calls refused before any provider was asked, by reason";
        registry.register("refused_calls", message, refused_calls.clone());
        let of_kind = |kind| tokens.get_or_create(&TokenLabels { kind }).clone();
        let (input_tokens, output_tokens) = (of_kind("input"), of_kind("output"));
        registry.register("tokens", "Tokens used, by kind", tokens.clone());
        registry.register("cost_nanodollars", "Nanodollars charged", cost.clone());
        let bills = Family::<ProviderLabels, Gauge>::default();
        let message = "Nanodollars that providers tell beyond the price here, summed up";
        registry.register("told_minus_ours_nanodollars", message, bills.clone());
        registry.register("running", "Calls running", running.clone());
        registry.register(
            "first_byte_seconds",
            "Seconds to the first byte of an answer",
            first_byte.clone(),
        );
        let journal_errors = Counter::default();
        let message = "Failures to write, sync or remove the journal";
        registry.register("journal_errors", message, journal_errors.clone());
        let refused_connections = Counter::default();
        let message = "Connections refused because of a limit";
        registry.register("refused_connections", message, refused_connections.clone());
        let (large_work_running, large_work_waiting) = (Gauge::default(), Gauge::default());
        let message = "Work on bodies and replies above 256 KiB that runs";
        registry.register("large_work_running", message, large_work_running.clone());
        let message = "Work on bodies and replies above 256 KiB that waits for a place";
        registry.register("large_work_waiting", message, large_work_waiting.clone());
        let store_rollbacks = Counter::default();
        let message = "Times that the store went back to an earlier state";
        registry.register("store_rollbacks", message, store_rollbacks.clone());
        let journal_damaged_files = Gauge::default();
        let message = "Damaged files of the journal that are not accepted";
        registry.register("journal_damaged_files", message, journal_damaged_files.clone());
        let failures = Family::<FailureLabels, Counter>::default();
        let (up, pending) = (Family::default(), Family::default());
        let latency = Family::default();
        let message = "Failed attempts of a lane, by cause";
        registry.register("lane_failures", message, failures.clone());
        registry.register("lane_up", "Whether a lane is expected to answer", up.clone());
        registry.register("lane_pending", "Calls running on a lane", pending.clone());
        let message = "Average time to a reply of a lane, in seconds";
        registry.register("lane_latency_seconds", message, latency.clone());
        Self {
            registry,
            calls,
            answered_calls: [const { OnceLock::new() }; WireFormat::ALL.len()],
            refused_calls,
            input_tokens,
            output_tokens,
            cost_nanodollars: cost,
            told_minus_ours: bills,
            running_calls: running,
            first_byte_seconds: first_byte,
            journal_errors,
            refused_connections,
            large_work_running,
            large_work_waiting,
            store_rollbacks,
            journal_damaged_files,
            failures,
            lane_up: up,
            lane_pending: pending,
            lane_latency: latency,
        }
    }

    /// Adds the difference between a provider's own price of a call and the one computed here.
    pub fn record_bill(&self, provider: &str, told: Money, ours: Money) {
        let labels = ProviderLabels { provider: provider.to_owned() };
        let difference = told.as_nanos().saturating_sub(ours.as_nanos());
        self.told_minus_ours.get_or_create(&labels).inc_by(difference);
    }

    /// Counts a settled or refused call.
    pub fn record_call(&self, format: WireFormat, entry: &ledger::LedgerEntry) {
        let labels = CallLabels { dialect: format.as_str(), status: entry.status.into() };
        let place = WireFormat::ALL.iter().position(|one| *one == format);
        match place.and_then(|place| self.answered_calls.get(place)) {
            Some(counter) if entry.status == ANSWERED => {
                counter.get_or_init(|| self.calls.get_or_create(&labels).clone()).inc();
            }
            Some(_) | None => {
                self.calls.get_or_create(&labels).inc();
            }
        }
        self.input_tokens.inc_by(entry.usage.input);
        self.output_tokens.inc_by(entry.usage.output);
        self.cost_nanodollars.inc_by(u64::try_from(entry.cost.as_nanos()).unwrap_or(0));
        for attempt in &entry.failed {
            let (lane, outcome) = (attempt.lane.clone(), attempt.outcome.clone());
            self.failures.get_or_create(&FailureLabels { lane, outcome }).inc();
        }
        if let Some(wait) = entry.first_byte_us {
            self.first_byte_seconds.observe(wait.to_duration().as_secs_f64());
        }
    }

    /// Counts a call that was refused before any provider was asked.
    pub fn record_refusal(&self, reason: &'static str) {
        self.refused_calls.get_or_create(&RefusalLabels { reason }).inc();
    }

    /// Refreshes the lane gauges and the values of the scrape, and returns all metrics as OpenMetrics
    /// text.
    pub fn encode(&self, lanes: &[LaneHealth], scraped: ScrapedValues) -> String {
        let ScrapedValues { refused_connections, large_work_running, large_work_waiting } = scraped;
        self.refused_connections.inner().fetch_max(refused_connections, Ordering::Relaxed);
        for (gauge, value) in [
            (&self.large_work_running, large_work_running),
            (&self.large_work_waiting, large_work_waiting),
        ] {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        }
        for LaneHealth { lane, credential, health } in lanes {
            let credential = u32::try_from(*credential).unwrap_or(u32::MAX);
            let labels = LaneLabels { lane: lane.clone(), credential };
            self.lane_up.get_or_create(&labels).set(i64::from(health.state == LaneState::Good));
            self.lane_pending.get_or_create(&labels).set(health.pending.into());
            if let Some(latency) = health.latency {
                self.lane_latency.get_or_create(&labels).set(latency.as_secs_f64());
            }
        }
        let mut text = String::new();
        // Writing into a `String` cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for GatewayMetrics {
    fn default() -> Self {
        Self::new()
    }
}
