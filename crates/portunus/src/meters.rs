//! What is counted, for `/metrics`. Handles are kept, so that counting takes no lock.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The counters.
pub struct Meters {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    input_tokens: Counter,
    output_tokens: Counter,
    /// Nanodollars charged.
    pub cost: Counter,
    /// Calls that have begun and not ended.
    pub running: Gauge,
    /// Seconds from admission to the first byte of an answer.
    pub first_byte: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    dialect: &'static str,
    status: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
}

impl Meters {
    /// Counters at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("portunus");
        let calls = Family::<CallLabels, Counter>::default();
        let tokens = Family::<TokenLabels, Counter>::default();
        let cost = Counter::default();
        let running = Gauge::default();
        let first_byte = Histogram::new(exponential_buckets(0.001, 2.0, 18));
        registry.register("calls", "Calls ended, by format and status", calls.clone());
        let of_kind = |kind| tokens.get_or_create(&TokenLabels { kind }).clone();
        let (input_tokens, output_tokens) = (of_kind("input"), of_kind("output"));
        registry.register("tokens", "Tokens used, by kind", tokens.clone());
        registry.register("cost_nanodollars", "Nanodollars charged", cost.clone());
        registry.register("running", "Calls running", running.clone());
        registry.register(
            "first_byte_seconds",
            "Seconds to the first byte of an answer",
            first_byte.clone(),
        );
        Self { registry, calls, input_tokens, output_tokens, cost, running, first_byte }
    }

    /// Counts an ended call.
    pub fn ended(&self, dialect: &'static str, entry: &ledger::Entry) {
        let labels = CallLabels { dialect, status: entry.status.into() };
        self.calls.get_or_create(&labels).inc();
        self.input_tokens.inc_by(entry.usage.input);
        self.output_tokens.inc_by(entry.usage.output);
        self.cost.inc_by(u64::try_from(entry.cost.as_nanos()).unwrap_or(0));
        if let Some(micros) = entry.first_byte_us {
            #[expect(clippy::cast_precision_loss, reason = "a time in seconds, for a histogram")]
            self.first_byte.observe(micros as f64 / 1e6);
        }
    }

    /// Everything as OpenMetrics text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a string cannot fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry);
        text
    }
}

impl Default for Meters {
    fn default() -> Self {
        Self::new()
    }
}
