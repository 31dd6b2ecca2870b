//! Ended calls as OTLP JSON: spans and histograms with the attribute names of the GenAI semantic
//! conventions (<https://opentelemetry.io/docs/specs/semconv/gen-ai/>).
//!
//! Prompts and replies are never exported.

use canon::{Micros, WireFormat};
use catalog::ModelKind;
use ledger::{CallOutcome, LedgerEntry};
use serde_json::{Value, json};

use super::EndedCall;
use super::histogram::LabelledHistogram;
use super::log_export::LogRecord;
use super::otlp_values::{LabelSet, attributes, unix_nanos};
use super::tool_calls::EndedTool;
use super::tool_spans;

/// Bucket bounds recommended by the GenAI conventions
/// (<https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-metrics/>).
const TOKEN_BOUNDS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const DURATION_BOUNDS: &[f64] =
    &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bounds of the MCP conventions
/// (<https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md>).
const TOOL_BOUNDS: &[f64] =
    &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const FIRST_TOKEN_BOUNDS: &[f64] =
    &[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Histograms of all calls since start.
#[derive(Debug)]
pub(crate) struct CallHistograms {
    since: Micros,
    tokens: LabelledHistogram,
    duration: LabelledHistogram,
    first_token: LabelledHistogram,
    first_chunk: LabelledHistogram,
    tools: LabelledHistogram,
}

impl CallHistograms {
    pub(crate) const fn new(since: Micros) -> Self {
        Self {
            since,
            tokens: LabelledHistogram::new("gen_ai.client.token.usage", "{token}", TOKEN_BOUNDS),
            duration: LabelledHistogram::new(
                "gen_ai.client.operation.duration",
                "s",
                DURATION_BOUNDS,
            ),
            first_token: LabelledHistogram::new(
                "gen_ai.server.time_to_first_token",
                "s",
                FIRST_TOKEN_BOUNDS,
            ),
            first_chunk: LabelledHistogram::new(
                "gen_ai.client.operation.time_to_first_chunk",
                "s",
                FIRST_TOKEN_BOUNDS,
            ),
            tools: LabelledHistogram::new("mcp.client.operation.duration", "s", TOOL_BOUNDS),
        }
    }

    /// Adds an ended tool call.
    pub(crate) fn add_tool(&mut self, ended: &EndedTool) {
        let duration = (ended.ended - ended.started).to_duration();
        self.tools.record(tool_spans::labels(ended), duration.as_secs_f64());
    }

    /// Adds an ended call.
    #[expect(clippy::cast_precision_loss, reason = "distributions are rough by nature")]
    pub(crate) fn add(&mut self, ended: &EndedCall) {
        let (entry, labels) = (&ended.entry, labels(ended));
        for (kind, count) in [("input", entry.usage.input), ("output", entry.usage.output)] {
            if count > 0 {
                let mut labels = labels.clone();
                labels.push(("gen_ai.token.type", kind.to_owned()));
                self.tokens.record(labels, count as f64);
            }
        }
        if let Some(wait) = entry.first_byte_us {
            let wait = wait.to_duration().as_secs_f64();
            self.first_token.record(labels.clone(), wait);
            if entry.stream {
                self.first_chunk.record(labels.clone(), wait);
            }
        }
        let mut labels = labels;
        if let Some(error) = error_type(entry) {
            labels.push(("error.type", error));
        }
        let duration = entry.ended - entry.started;
        self.duration.record(labels, duration.to_duration().as_secs_f64());
    }

    /// Returns a metrics report, or `None` before the first call.
    pub(crate) fn report(&self, service: &str, now: Micros) -> Option<Value> {
        let (since, now) = (unix_nanos(self.since), unix_nanos(now));
        let all = [&self.tokens, &self.duration, &self.first_token, &self.first_chunk, &self.tools];
        let filled = all.into_iter().filter(|histogram| !histogram.is_empty());
        let metrics: Vec<Value> = filled.map(|histogram| histogram.to_json(&since, &now)).collect();
        if metrics.is_empty() {
            return None;
        }
        Some(json!({ "resourceMetrics": [{
            "resource": resource(service),
            "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
        }] }))
    }
}

/// Returns a trace report with these spans.
pub(crate) fn spans(service: &str, spans: Vec<Value>) -> Value {
    json!({ "resourceSpans": [{
        "resource": resource(service),
        "scopeSpans": [{ "scope": scope(), "spans": spans }],
    }] })
}

/// Returns a report of log records.
pub(crate) fn logs(service: &str, records: &[LogRecord], now: Micros) -> Value {
    let observed = unix_nanos(now);
    let record = |record: &LogRecord| {
        let LogRecord { at, event, is_warning, attributes: labels } = record;
        let filled: LabelSet =
            labels.iter().filter(|(_, value)| !value.is_empty()).cloned().collect();
        // Numbers of the severities INFO and WARN.
        let (number, text) = if *is_warning { (13, "WARN") } else { (9, "INFO") };
        json!({
            "timeUnixNano": unix_nanos(*at),
            "observedTimeUnixNano": observed,
            "severityNumber": number,
            "severityText": text,
            "eventName": event,
            "body": { "stringValue": event },
            "attributes": attributes(&filled),
        })
    };
    let records: Vec<Value> = records.iter().map(record).collect();
    json!({ "resourceLogs": [{
        "resource": resource(service),
        "scopeLogs": [{ "scope": scope(), "logRecords": records }],
    }] })
}

/// Returns the span of a call.
pub(crate) fn span(call: &EndedCall) -> Value {
    let EndedCall { trace, kind, entry } = call;
    let LedgerEntry {
        request_id,
        key_id,
        account_id: _,
        started,
        ended,
        first_byte_us,
        dialect,
        model,
        lane,
        attempts,
        failed,
        stream,
        status,
        outcome,
        ended_by,
        usage,
        estimated,
        cost,
        held: _,
        absorbed: _,
        price_version,
        service,
        charges: _,
        losses,
        told: _,
        reasons: _,
        knowledge: _,
        session,
        end_user,
        tags,
        error,
    } = entry;
    let mut span_labels = labels(call);
    span_labels.push(("portunus.request_id", request_id.to_string()));
    span_labels.push(("portunus.key_id", key_id.to_string()));
    if !session.is_empty() {
        span_labels.push(("gen_ai.conversation.id", session.to_string()));
    }
    if !end_user.is_empty() {
        span_labels.push(("enduser.id", end_user.to_string()));
    }
    if !tags.is_empty() {
        span_labels.push(("portunus.tags", tags.to_string()));
    }
    span_labels.push(("portunus.dialect", dialect.to_string()));
    span_labels.push(("portunus.lane", lane.to_string()));
    span_labels.push(("portunus.outcome", outcome.word().to_owned()));
    span_labels.push(("portunus.ended_by", ended_by.word().to_owned()));
    if let Some(error) = error {
        span_labels.push(("portunus.error_code", error.code.clone()));
    }
    if !service.is_empty() {
        span_labels.push(("portunus.service_tier", service.to_string()));
    }
    span_labels.push(("portunus.cost_usd", cost.to_string()));
    span_labels.push(("portunus.price_version", price_version.to_string()));
    if !failed.is_empty() {
        let tries: Vec<String> =
            failed.iter().map(|attempt| format!("{}: {}", attempt.lane, attempt.outcome)).collect();
        span_labels.push(("portunus.failed", tries.join(", ")));
    }
    if !losses.is_empty() {
        span_labels.push(("portunus.losses", losses.join(", ")));
    }
    let error = error_type(entry);
    if let Some(error) = &error {
        span_labels.push(("error.type", error.clone()));
    }
    let mut attributes = attributes(&span_labels);
    let filled = |count: u64| (count > 0).then_some(count);
    let cache_written = usage.cache_write.saturating_add(usage.cache_write_long);
    let numbers = [
        ("gen_ai.usage.input_tokens", Some(usage.input)),
        ("gen_ai.usage.output_tokens", Some(usage.output)),
        ("gen_ai.usage.cache_read.input_tokens", filled(usage.cache_read)),
        ("gen_ai.usage.cache_creation.input_tokens", filled(cache_written)),
        ("gen_ai.usage.reasoning.output_tokens", filled(usage.thinking)),
        ("http.response.status_code", Some(u64::from(*status))),
        ("portunus.attempts", Some(u64::from(*attempts))),
        ("portunus.first_byte_us", first_byte_us.and_then(|wait| u64::try_from(wait.get()).ok())),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            attributes.push(json!({ "key": name, "value": { "intValue": number.to_string() } }));
        }
    }
    for (name, flag) in [("portunus.stream", *stream), ("portunus.estimated", *estimated)] {
        attributes.push(json!({ "key": name, "value": { "boolValue": flag } }));
    }
    let mut span = json!({
        "traceId": format!("{:032x}", trace.id),
        "spanId": format!("{:016x}", trace.span),
        "name": format!("{} {model}", operation(*kind, dialect)),
        // SPAN_KIND_CLIENT: the gateway is a client of the provider.
        "kind": 3,
        "startTimeUnixNano": unix_nanos(*started),
        "endTimeUnixNano": unix_nanos(*ended),
        "attributes": attributes,
        "status": { "code": if error.is_some() { 2 } else { 0 } },
    });
    if let (Some(parent), Some(span)) = (trace.parent, span.as_object_mut()) {
        span.insert("parentSpanId".to_owned(), Value::String(format!("{parent:016x}")));
    }
    span
}

fn labels(ended: &EndedCall) -> LabelSet {
    let EndedCall { trace: _, kind, entry } = ended;
    let provider = entry.lane.split('/').next().unwrap_or_default();
    vec![
        ("gen_ai.operation.name", operation(*kind, &entry.dialect).to_owned()),
        ("gen_ai.provider.name", provider_name(provider).to_owned()),
        ("gen_ai.request.model", entry.model.to_string()),
    ]
}

/// Value of `error.type`, or `None` for a successful call.
fn error_type(entry: &LedgerEntry) -> Option<String> {
    match entry.outcome {
        CallOutcome::Done => None,
        CallOutcome::Failed => Some(entry.status.to_string()),
        CallOutcome::CallerLeft | CallOutcome::BrokeOff | CallOutcome::Recovered => {
            Some(entry.outcome.word().to_owned())
        }
    }
}

/// Value of `gen_ai.operation.name`. The conventions have no name for image generation.
fn operation(kind: ModelKind, dialect: &str) -> &'static str {
    match kind {
        ModelKind::Embedding => "embeddings",
        ModelKind::Image => "generate_content",
        ModelKind::Chat => {
            let dialect = WireFormat::parse(dialect).and_then(dialects::get);
            dialect.map_or("chat", |dialect| dialect.traits().operation)
        }
    }
}

/// Well-known value of `gen_ai.provider.name`, or the provider's own name if there is none.
fn provider_name(provider: &str) -> &str {
    match provider {
        "azure" => "azure.ai.openai",
        "bedrock" => "aws.bedrock",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "vertex" => "gcp.vertex_ai",
        "xai" => "x_ai",
        own => own,
    }
}

fn resource(service: &str) -> Value {
    let labels = vec![
        ("service.name", service.to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    json!({ "attributes": attributes(&labels) })
}

fn scope() -> Value {
    json!({ "name": "portunus", "version": env!("CARGO_PKG_VERSION") })
}
