//! The audit log as a stream of log records to the collector: every line of every node and of the
//! command line, in order.
//!
//! The nodes share one position in the store. One of them at a time holds the stream, sends a batch
//! and moves the position behind it. A node that dies while it sends leaves its batch to the next
//! one, so a line can arrive twice and never gets lost.

use canon::Micros;
use std::time::Duration;
use store::{AuditFilter, AuditRecord, StoreError};
use telemetry::{LogExporter, LogRecord};

use crate::app::App;

/// Pause between two looks at the log.
const STREAM_PERIOD: Duration = Duration::from_secs(2);
/// Pause after a batch that the collector did not accept.
const RETRY_PERIOD: Duration = Duration::from_secs(30);
/// Age of a line at which no earlier one can appear any more.
const SETTLING_TIME: Micros = Micros::from_secs(2);
/// Time for which a node holds the stream. Longer than a report can take.
const HOLD_TIME: Micros = Micros::from_secs(60);
const BATCH_ROWS: u32 = 500;

/// Position of the stream: number of the last line that was sent, and the end of the hold of the
/// node that sends now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StreamPosition {
    last_id: i64,
    held_until: Micros,
}

impl StreamPosition {
    fn parse(text: &str) -> Self {
        let mut numbers = text.split(' ').map_while(|number| number.parse().ok());
        let last_id = numbers.next().unwrap_or_default();
        Self { last_id, held_until: Micros::new(numbers.next().unwrap_or_default()) }
    }

    fn to_text(self) -> String {
        format!("{} {}", self.last_id, self.held_until.get())
    }
}

/// Result of one look at the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamStep {
    /// Nothing to send, or another node sends.
    Idle,
    /// A batch was accepted; there may be more.
    Sent,
    /// The collector did not accept a batch.
    Failed,
}

impl App {
    /// Streams the audit log until the task is cancelled.
    pub(crate) async fn stream_audit(&self, exporter: LogExporter) {
        loop {
            let pause = match self.stream_audit_batch(&exporter).await {
                Ok(StreamStep::Sent) => continue,
                Ok(StreamStep::Idle) => STREAM_PERIOD,
                Ok(StreamStep::Failed) => RETRY_PERIOD,
                Err(error) => {
                    tracing::warn!("the audit log could not be read for the collector: {error}");
                    RETRY_PERIOD
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn stream_audit_batch(&self, exporter: &LogExporter) -> Result<StreamStep, StoreError> {
        let now = self.clock.now();
        let seen = self.store.audit_stream().await?;
        let StreamPosition { last_id, held_until } = StreamPosition::parse(&seen);
        if held_until > now {
            return Ok(StreamStep::Idle);
        }
        let (after, until) = (Some(last_id), Some(now - SETTLING_TIME));
        let filter = AuditFilter { after, until, ..AuditFilter::default() };
        let lines = self.store.audits_of(&filter, BATCH_ROWS).await?;
        let Some(newest) = lines.last().map(|line| line.id) else { return Ok(StreamStep::Idle) };
        let held = StreamPosition { last_id, held_until: now + HOLD_TIME }.to_text();
        if !self.store.move_audit_stream(&seen, &held).await? {
            return Ok(StreamStep::Idle);
        }
        let records: Vec<LogRecord> = lines.into_iter().map(log_record).collect();
        let accepted = exporter.send(&records).await;
        let last_id = if accepted { newest } else { last_id };
        let free = StreamPosition { last_id, held_until: Micros::ZERO }.to_text();
        self.store.move_audit_stream(&held, &free).await?;
        Ok(if accepted { StreamStep::Sent } else { StreamStep::Failed })
    }
}

/// A line of the log with the attribute names of the semantic conventions
/// (<https://opentelemetry.io/docs/specs/semconv/registry/attributes/>) where they have one.
fn log_record(line: AuditRecord) -> LogRecord {
    let AuditRecord { id, at, actor, key_id, action, subject, detail, address, agent } = line;
    LogRecord {
        at,
        is_warning: action == "session.refuse",
        event: action,
        attributes: vec![
            ("user.id", actor),
            ("client.address", address.unwrap_or_default()),
            ("user_agent.original", agent.unwrap_or_default()),
            ("portunus.audit.id", id.to_string()),
            ("portunus.audit.key_id", key_id.unwrap_or_default()),
            ("portunus.audit.subject", subject),
            ("portunus.audit.detail", detail),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_survive_the_store_and_the_first_one_is_the_beginning() {
        let position = StreamPosition { last_id: 7, held_until: Micros::new(9) };
        assert_eq!(StreamPosition::parse(&position.to_text()), position);
        assert_eq!(StreamPosition::parse(""), StreamPosition::default());
    }
}
