//! Log records for the collector (<https://opentelemetry.io/docs/specs/otel/logs/data-model/>).

use std::sync::Arc;

use canon::Micros;
use config::OtlpTarget;
use ledger::Clock;
use transport::{HttpClient, Outbound};

use super::{COLLECTOR_TIMEOUT, CollectorClient, otlp};

/// One event.
#[derive(Clone, Debug)]
pub struct LogRecord {
    /// Time of the event.
    pub at: Micros,
    /// Name of the event, for example `key.revoke`.
    pub event: String,
    /// True for an event that somebody should look at.
    pub is_warning: bool,
    /// Names and values. Empty values are not sent.
    pub attributes: Vec<(&'static str, String)>,
}

/// Sends log records to a collector.
pub struct LogExporter {
    client: CollectorClient,
}

impl LogExporter {
    /// Creates an exporter. It connects when it sends.
    pub fn new(collector: OtlpTarget, outbound: &Outbound, clock: Arc<dyn Clock>) -> Self {
        let client = HttpClient::network(COLLECTOR_TIMEOUT, outbound);
        Self { client: CollectorClient { collector, client, clock } }
    }

    /// Sends records. Returns false if the collector did not accept them.
    pub async fn send(&self, records: &[LogRecord]) -> bool {
        let now = self.client.clock.now();
        let report = otlp::logs(self.client.service(), records, now);
        self.client.send("/v1/logs", &report).await
    }
}
