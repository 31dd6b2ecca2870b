//! All metrics as text: the counters of [`GatewayMetrics`], and values that are read where they are kept.
//!
//! `docs/observability.md` describes each family; a test compares the two.

use canon::{HistogramSnapshot, Micros, Money};
use config::{CallEnd, LaneCalls, LaneCounters, LaneHealth};
use ledger::{KeyUse, LeaseTotals};
use std::sync::atomic::{AtomicU64, Ordering};
use upstream::LaneState;

use crate::counters::OTHER;
use crate::exposition::MetricKind::{Counter, Gauge, Histogram};
use crate::exposition::{MetricsFormat, MetricsWriter, seconds};
use crate::metrics::{GatewayMetrics, MAX_LANE_SERIES};
use crate::node_scrape::write_node;

/// Lanes whose state is told.
const MAX_LANE_STATES: usize = 2_000;

/// Values that are kept elsewhere and read by a scrape.
#[derive(Clone, Debug, Default)]
pub struct ScrapedValues {
    /// Counters of lanes.
    pub lane_calls: Vec<LaneCalls>,
    /// Health of lanes.
    pub lanes: Vec<LaneHealth>,
    /// Settled calls of keys.
    pub keys: Vec<KeyUse>,
    /// Open connections of callers.
    pub connections: usize,
    /// Connections refused since start.
    pub refused_connections: u64,
    /// Pieces of work on large bodies that run.
    pub large_work_running: usize,
    /// Pieces of work on large bodies that wait for a place.
    pub large_work_waiting: usize,
    /// Calls with a reservation, and the money that is reserved.
    pub held: (usize, Money),
    /// Settled calls that the store does not have.
    pub unposted_calls: usize,
    /// Leases of this node.
    pub leases: LeaseTotals,
    /// Live nodes as the store knows them.
    pub nodes: u32,
    /// True if the node accepts calls.
    pub is_ready: bool,
    /// True while the journal can be written.
    pub is_journal_good: bool,
    /// Durations of writes of the journal.
    pub journal_writes: HistogramSnapshot,
    /// Durations of syncs of the journal.
    pub journal_syncs: HistogramSnapshot,
    /// The database.
    pub store: ScrapedStore,
    /// Valkey, if it is configured.
    pub valkey: Option<ScrapedValkey>,
    /// Revision of the stored configuration that is in force; negative while it is being read again.
    pub config_revision: i64,
    /// Reports for the collector that were dropped.
    pub dropped_reports: u64,
    /// Version of the program.
    pub version: &'static str,
}

/// Accesses to the database.
#[derive(Clone, Debug, Default)]
pub struct ScrapedStore {
    /// Time since its last answer to a heartbeat.
    pub silence: Micros,
    /// Durations of reads.
    pub reads: HistogramSnapshot,
    /// Durations of single writes.
    pub writes: HistogramSnapshot,
    /// Durations of transactions.
    pub transactions: HistogramSnapshot,
    /// Statements that it refused.
    pub refused: u64,
    /// Statements that did not reach it.
    pub unreachable: u64,
}

/// Requests to Valkey.
#[derive(Clone, Debug, Default)]
pub struct ScrapedValkey {
    /// True if it answered the last heartbeat.
    pub is_up: bool,
    /// Requests without an answer.
    pub failed: u64,
    /// Durations.
    pub times: HistogramSnapshot,
}

impl GatewayMetrics {
    /// Returns all metrics as text.
    pub fn encode(&self, scraped: &ScrapedValues, format: MetricsFormat) -> String {
        let mut writer = MetricsWriter::new(format);
        self.write_calls(&mut writer, &scraped.lane_calls);
        write_keys(&mut writer, &scraped.keys);
        self.write_failures(&mut writer);
        write_lanes(&mut writer, &scraped.lanes);
        self.write_tools(&mut writer);
        write_node(self, &mut writer, scraped);
        writer.finish()
    }

    fn write_calls(&self, writer: &mut MetricsWriter, lane_calls: &[LaneCalls]) {
        let is_apart =
            |one: &&LaneCalls| one.calls.used_place().is_some_and(|place| place <= MAX_LANE_SERIES);
        let mut series: Vec<LaneSeries<'_>> =
            lane_calls.iter().filter(is_apart).map(LaneSeries::new).collect();
        if !self.other_lanes.calls().is_empty() {
            let calls = &self.other_lanes;
            series.push(LaneSeries { model: OTHER, provider: OTHER, lane: OTHER, calls });
        }
        let help = "Calls ended, by model, lane, format, status and error";
        let mut family = writer.family("portunus_calls", Counter, help);
        for one in &series {
            for (CallEnd { format, status, error }, count) in one.calls.calls() {
                let status = status.to_string();
                let end = [("dialect", format.as_str()), ("status", &*status), ("error", error)];
                family.sample(&[&one.labels()[..], &end].concat(), count);
            }
        }
        let help = "Time from the arrival of a call to the end of its answer";
        let mut family = writer.family("portunus_call_duration_seconds", Histogram, help);
        for one in &series {
            family.histogram(&one.labels(), &one.calls.duration.snapshot());
        }
        let help = "Time from the arrival of a call to the first byte of its answer";
        let mut family = writer.family("portunus_first_byte_seconds", Histogram, help);
        for one in &series {
            family.histogram(&one.labels(), &one.calls.first_byte.snapshot());
        }
        let mut family =
            writer.family("portunus_tokens", Counter, "Tokens of whole prompts and outputs");
        for one in &series {
            let [model, provider, lane] = one.labels();
            for (kind, count) in
                [("input", &one.calls.input_tokens), ("output", &one.calls.output_tokens)]
            {
                family.sample(&[model, provider, lane, ("kind", kind)], load(count));
            }
        }
        let help = "Parts of these tokens that are cached or thinking";
        let mut family = writer.family("portunus_token_parts", Counter, help);
        for one in &series {
            let [model, provider, lane] = one.labels();
            for (part, count) in [
                ("cache_read", &one.calls.cache_read_tokens),
                ("cache_write", &one.calls.cache_write_tokens),
                ("thinking", &one.calls.thinking_tokens),
            ] {
                family.sample(&[model, provider, lane, ("part", part)], load(count));
            }
        }
        let singles: [(&'static str, &str, ReadCount); 3] = [
            ("portunus_cost_nanodollars", "Nanodollars charged to keys", |calls| &calls.cost),
            ("portunus_absorbed_nanodollars", "Nanodollars that the operator pays", |calls| {
                &calls.absorbed
            }),
            ("portunus_retries", "Attempts after the first one of a call", |calls| &calls.retries),
        ];
        for (name, help, count) in singles {
            let mut family = writer.family(name, Counter, help);
            for one in &series {
                family.sample(&one.labels(), load(count(one.calls)));
            }
        }
    }

    fn write_failures(&self, writer: &mut MetricsWriter) {
        let help = "Calls refused before any provider was asked, by reason";
        let mut family = writer.family("portunus_refused_calls", Counter, help);
        self.refused_calls.visit(|[reason], count| family.sample(&[("reason", reason)], count));
        let mut family = writer.family("portunus_http_responses", Counter, "Answers by status");
        for (status, count) in self.responses() {
            family.sample(&[("status", &status.to_string())], count);
        }
        let help = "Errors that callers were told, by code";
        let mut family = writer.family("portunus_errors", Counter, help);
        for (kind, count) in self.errors() {
            family.sample(&[("error", kind.as_str())], count);
        }
        let help = "Failed attempts of a lane, by cause";
        let mut family = writer.family("portunus_lane_failures", Counter, help);
        self.lane_failures.visit(|[lane, outcome], count| {
            family.sample(&[("lane", lane), ("outcome", outcome)], count);
        });
        let help = "Nanodollars that providers tell beyond the price here, summed up";
        let mut family = writer.family("portunus_told_minus_ours_nanodollars", Gauge, help);
        self.told_minus_ours.visit(|[provider], sum| family.sample(&[("provider", provider)], sum));
    }

    fn write_tools(&self, writer: &mut MetricsWriter) {
        let servers = self.tool_servers.all();
        let help = "Calls of tools on MCP servers, by outcome";
        let mut family = writer.family("portunus_mcp_tool_calls", Counter, help);
        for (server, counts) in &servers {
            for (outcome, count) in counts.outcomes() {
                family.sample(&[("server", server), ("outcome", outcome)], count);
            }
        }
        let help = "Time of calls of tools on MCP servers";
        let mut family = writer.family("portunus_mcp_tool_call_seconds", Histogram, help);
        for (server, counts) in &servers {
            family.histogram(&[("server", server)], &counts.times.snapshot());
        }
    }
}

/// Choice of one of the counters of a lane.
type ReadCount = fn(&LaneCounters) -> &AtomicU64;

/// Counters of a lane with their labels.
struct LaneSeries<'a> {
    model: &'a str,
    provider: &'a str,
    lane: &'a str,
    calls: &'a LaneCounters,
}

impl<'a> LaneSeries<'a> {
    fn new(one: &'a LaneCalls) -> Self {
        let LaneCalls { model, lane, calls } = one;
        let provider = lane.split('/').next().unwrap_or_default();
        Self { model, provider, lane, calls }
    }

    const fn labels(&self) -> [(&'static str, &'a str); 3] {
        [("model", self.model), ("provider", self.provider), ("lane", self.lane)]
    }
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

/// Name and help of a family, and its figure of a key.
type KeyFamily = (&'static str, &'static str, fn(&KeyUse) -> u64);

fn write_keys(writer: &mut MetricsWriter, keys: &[KeyUse]) {
    let families: [KeyFamily; 5] = [
        ("portunus_key_calls", "Settled calls, by key and account", |one| one.calls),
        ("portunus_key_failed_calls", "Calls that failed or broke off", |one| one.failed),
        ("portunus_key_input_tokens", "Tokens of prompts", |one| one.input_tokens),
        ("portunus_key_output_tokens", "Tokens of outputs", |one| one.output_tokens),
        ("portunus_key_cost_nanodollars", "Nanodollars charged", |one| one.cost),
    ];
    for (name, help, value) in families {
        let mut family = writer.family(name, Counter, help);
        for one in keys {
            let key = one.key_id.as_deref().unwrap_or(OTHER);
            let account = if one.key_id.is_some() { one.account_id.as_str() } else { OTHER };
            family.sample(&[("key", key), ("account", account)], value(one));
        }
    }
}

fn write_lanes(writer: &mut MetricsWriter, lanes: &[LaneHealth]) {
    let lanes = lanes.get(..lanes.len().min(MAX_LANE_STATES)).unwrap_or_default();
    let mut write = |name, help: &str, value: &dyn Fn(&LaneHealth) -> Option<f64>| {
        let mut family = writer.family(name, Gauge, help);
        for one in lanes {
            let credential = one.credential.to_string();
            if let Some(value) = value(one) {
                family.sample(&[("lane", &one.lane), ("credential", &credential)], value);
            }
        }
    };
    write("portunus_lane_up", "Whether a lane is expected to answer", &|one| {
        Some(f64::from(u8::from(one.health.state == LaneState::Good)))
    });
    let help = "Breaker of a lane: 0 good, 1 probing, 2 busy, 3 cooling down";
    write("portunus_lane_state", help, &|one| {
        Some(match one.health.state {
            LaneState::Good => 0.0,
            LaneState::Probing => 1.0,
            LaneState::Busy(_) => 2.0,
            LaneState::CoolingDown(_) => 3.0,
        })
    });
    write("portunus_lane_pending", "Calls running on a lane", &|one| {
        Some(f64::from(one.health.pending))
    });
    let help = "Average time to a reply of a lane, in seconds";
    write("portunus_lane_latency_seconds", help, &|one| one.health.latency.map(seconds));
}
