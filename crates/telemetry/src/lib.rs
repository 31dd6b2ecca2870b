//! Traces and metrics for an OpenTelemetry collector, built from ended calls in a background task.
//!
//! A report is one OTLP/HTTP POST with a JSON body
//! (<https://opentelemetry.io/docs/specs/otlp/#otlphttp>). The official SDK would add ninety
//! crates, a second HTTP client and a span per call on the hot path.

mod agent_reports;
mod counters;
mod exposition;
mod histogram;
mod log_export;
mod metrics;
mod node_scrape;
mod otlp;
mod otlp_values;
mod process_stats;
mod scrape;
mod tool_calls;
mod tool_spans;
mod trace_context;

pub use agent_reports::AgentReport;
pub use counters::{Counter, Gauge};
pub use exposition::MetricsFormat;
pub use log_export::{LogExporter, LogRecord};
pub use metrics::{
    CertificateMetrics, DiskMetrics, GatewayMetrics, MAX_LANE_SERIES, ReloadMetrics,
};
pub use scrape::{ScrapedStore, ScrapedValkey, ScrapedValues};
pub use tool_calls::{RunningTool, ToolObserver, ToolTrace};
pub use trace_context::TraceContext;

use bytes::Bytes;
use catalog::ModelKind;
use config::OtlpTarget;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Uri};
use ledger::{Clock, LedgerEntry};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender, error::TrySendError};
use tokio_util::sync::CancellationToken;
use transport::{HttpClient, Outbound, RequestBody};

use agent_reports::{MAX_QUEUED_REPORTS, run_relay};
use tool_calls::EndedTool;

/// Upper bound of ended calls in the queue. Calls beyond it are dropped from telemetry, and counted.
const MAX_QUEUED_CALLS: usize = 8_192;
const MAX_SPANS_PER_REPORT: usize = 512;
const REPORT_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for connecting to the collector and for each report.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);

/// A settled call with its position in a trace.
#[derive(Debug)]
struct EndedCall {
    trace: TraceContext,
    kind: ModelKind,
    entry: LedgerEntry,
}

/// A report to be made.
#[derive(Debug)]
enum EndedWork {
    Call(Box<EndedCall>),
    Tool(Box<EndedTool>),
}

/// Queue of ended calls for the collector. Without a collector it drops them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry {
    sender: Option<Sender<EndedWork>>,
    reports: Option<Sender<AgentReport>>,
    /// Reports that a full queue did not take.
    dropped: Arc<Counter>,
}

impl Telemetry {
    /// Starts the reporting task. It ends after `stop` and one last report.
    pub fn start(
        collector: Option<OtlpTarget>,
        outbound: &Outbound,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
        spawn: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
    ) -> Self {
        let Some(collector) = collector else { return Self::default() };
        let client = HttpClient::network(COLLECTOR_TIMEOUT, outbound);
        let relay_client = HttpClient::network(COLLECTOR_TIMEOUT, outbound);
        let relay = CollectorClient {
            collector: collector.clone(),
            client: relay_client,
            clock: Arc::clone(&clock),
        };
        let (reports, queue) = mpsc::channel(MAX_QUEUED_REPORTS);
        spawn(Box::pin(run_relay(relay, queue, stop.clone())));
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_CALLS);
        spawn(Box::pin(run_reporter(CollectorClient { collector, client, clock }, receiver, stop)));
        Self { sender: Some(sender), reports: Some(reports), dropped: Arc::default() }
    }

    /// Queues a report of an agent for the collector. Never blocks: a full queue drops it, and so does
    /// a gateway without a collector.
    pub fn relay(&self, report: AgentReport) {
        let Some(reports) = &self.reports else { return };
        match reports.try_send(report) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.inc();
                tracing::debug!("a report of an agent was dropped: the queue is full");
            }
        }
    }

    /// Returns true if a collector is configured.
    pub fn is_on(&self) -> bool {
        self.sender.is_some()
    }

    /// Queues a settled call for the collector. Never blocks: a full queue drops the call.
    pub fn record_call(&self, trace: Option<TraceContext>, kind: ModelKind, entry: &LedgerEntry) {
        let Some(trace) = trace.filter(|_| self.is_on()) else { return };
        let ended = EndedCall { trace, kind, entry: entry.clone() };
        self.queue(EndedWork::Call(Box::new(ended)));
    }

    /// Queues a tool call for the collector. Never blocks either.
    pub(crate) fn record_tool(&self, ended: EndedTool) {
        if self.is_on() {
            self.queue(EndedWork::Tool(Box::new(ended)));
        }
    }

    /// Returns the number of reports that were dropped because a queue was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    fn queue(&self, ended: EndedWork) {
        let Some(sender) = &self.sender else { return };
        match sender.try_send(ended) {
            Ok(()) | Err(TrySendError::Closed(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.inc();
                tracing::debug!("a call was dropped from telemetry: the queue is full");
            }
        }
    }
}

struct CollectorClient {
    collector: OtlpTarget,
    client: HttpClient,
    clock: Arc<dyn Clock>,
}

async fn run_reporter(
    reporter: CollectorClient,
    mut ended: Receiver<EndedWork>,
    stop: CancellationToken,
) {
    let mut histograms = otlp::CallHistograms::new(reporter.clock.now());
    let mut last = false;
    while !last {
        tokio::select! {
            () = tokio::time::sleep(REPORT_INTERVAL) => {}
            () = stop.cancelled() => last = true,
        }
        let mut spans = Vec::new();
        let mut has_new = false;
        while let Ok(work) = ended.try_recv() {
            has_new = true;
            match work {
                EndedWork::Call(call) => {
                    histograms.add(&call);
                    spans.extend(call.trace.sampled.then(|| otlp::span(&call)));
                }
                EndedWork::Tool(tool) => {
                    histograms.add_tool(&tool);
                    spans.extend(tool.sampled.then(|| tool_spans::span(&tool)));
                }
            }
            if spans.len() == MAX_SPANS_PER_REPORT {
                reporter
                    .send(
                        "/v1/traces",
                        &otlp::spans(reporter.service(), std::mem::take(&mut spans)),
                    )
                    .await;
            }
        }
        if !spans.is_empty() {
            reporter
                .send("/v1/traces", &otlp::spans(reporter.service(), std::mem::take(&mut spans)))
                .await;
        }
        if has_new && let Some(report) = histograms.report(reporter.service(), reporter.clock.now())
        {
            reporter.send("/v1/metrics", &report).await;
        }
    }
}

impl CollectorClient {
    fn service(&self) -> &str {
        &self.collector.service_name
    }

    /// Sends one report and returns true if the collector accepts it. Otherwise the cause is logged.
    async fn send(&self, path: &str, report: &serde_json::Value) -> bool {
        let uri: Uri = match format!("{}{path}", self.collector.base_url).parse() {
            Ok(uri) => uri,
            Err(e) => {
                tracing::warn!("the collector URL is invalid: {e}");
                return false;
            }
        };
        let mut request = Request::new(RequestBody::new(vec![Bytes::from(report.to_string())]));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &self.collector.headers {
            headers.insert(name.clone(), value.clone());
        }
        match tokio::time::timeout(COLLECTOR_TIMEOUT, self.client.send(request, false)).await {
            Ok(Ok(answer)) if answer.status < 300 => return true,
            Ok(Ok(answer)) => {
                tracing::warn!("the collector refused a report on {path}: {}", answer.status);
            }
            Ok(Err(lost)) => tracing::warn!("the collector could not be reached: {}", lost.cause),
            Err(_) => tracing::warn!("the collector took too long for a report on {path}"),
        }
        false
    }
}
