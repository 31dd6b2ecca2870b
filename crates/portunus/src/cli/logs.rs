//! Logs on standard error, one line per event. Control characters are escaped, so that text from
//! outside cannot forge a log line.
//!
//! A thread of its own writes them: standard error may be a file on a disk that hangs or a pipe that
//! nobody reads, and no call waits for that. Lines beyond the queue are dropped and counted.

use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;

/// Lines that wait to be written at most. Their places take memory from the start, 32 bytes each.
const MAX_QUEUED_LINES: usize = 2_048;

/// Counter of dropped lines, and its value at the last report.
static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();
static REPORTED: AtomicUsize = AtomicUsize::new(0);

/// Starts logging as configured by `PORTUNUS_LOG` and `PORTUNUS_LOG_FORMAT`. Dropping the result
/// writes the last lines.
pub(super) fn start() -> WorkerGuard {
    let (queue, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_QUEUED_LINES)
        .thread_name("log")
        .finish(io::stderr());
    let _ = DROPPED.set(queue.error_counter());
    let configured = std::env::var("PORTUNUS_LOG").ok().and_then(|text| text.parse().ok());
    let filter: Targets =
        configured.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let logs = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        // They would be written to standard error, which has just failed.
        .log_internal_errors(false)
        .with_writer(LineEscaper(queue));
    if is_json() {
        logs.json().flatten_event(true).finish().with(filter).init();
    } else {
        let logs = logs.with_target(false).with_ansi(io::stderr().is_terminal());
        logs.finish().with(filter).init();
    }
    guard
}

/// Returns true if every line of the log is a JSON object.
pub(super) fn is_json() -> bool {
    std::env::var("PORTUNUS_LOG_FORMAT").is_ok_and(|format| format == "json")
}

/// Returns the line for the error that ends the process, in the form of the other lines. It does not pass
/// through the log, which may be filtered or too slow.
pub(super) fn error_line(why: &str) -> String {
    let timestamp = jiff::Timestamp::now().to_string();
    let line = serde_json::json!({
        "timestamp": timestamp,
        "level": "ERROR",
        "message": why,
        "target": "portunus",
    });
    format!("{line}\n")
}

/// Logs the number of lines that were dropped since the last report. Returns the number since start.
pub(crate) fn report_dropped() -> u64 {
    let dropped = DROPPED.get().map_or(0, ErrorCounter::dropped_lines);
    let new = dropped.saturating_sub(REPORTED.swap(dropped, Ordering::Relaxed));
    if new > 0 {
        tracing::warn!(lines = new, "{new} log lines were dropped: standard error is too slow");
    }
    u64::try_from(dropped).unwrap_or(u64::MAX)
}

/// Escapes control characters of each event. The formatter writes an event in a single call.
struct LineEscaper<M>(M);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for LineEscaper<M> {
    type Writer = EscapingWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        EscapingWriter(self.0.make_writer())
    }
}

struct EscapingWriter<W>(W);

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = Vec::with_capacity(event.len() + 16);
        let mut rest = text;
        while let Some((byte, behind)) = rest.split_first() {
            if is_control_byte(*byte) && !starts_colour_code(rest) {
                line.extend(byte.escape_ascii());
            } else {
                line.push(*byte);
            }
            rest = behind;
        }
        line.extend(event.get(text.len()..).unwrap_or_default());
        self.0.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns true for bytes that a terminal or a line-based reader would interpret.
const fn is_control_byte(byte: u8) -> bool {
    byte < b' ' && byte != b'\t'
}

/// Returns true if a colour sequence starts here. The formatter writes them itself, and they are
/// harmless.
fn starts_colour_code(text: &[u8]) -> bool {
    let Some(numbers) = text.strip_prefix(b"\x1b[") else { return false };
    let end = numbers.iter().find(|byte| !byte.is_ascii_digit() && **byte != b';');
    end == Some(&b'm')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_event_is_one_line() {
        let buffer = SharedBuffer::default();
        let own = buffer.clone();
        let logs = tracing_subscriber::fmt().with_writer(LineEscaper(move || own.clone()));
        let logs = logs.without_time().with_ansi(false).with_target(false).finish();
        tracing::subscriber::with_default(logs, || {
            let forged = "gone\n2026-11-15T00:00:00Z  INFO signed in as owner\r\u{1b}[2J\u{0}";
            tracing::warn!(lane = %forged, "lane cannot serve: {forged}");
            tracing::info!("a plain word:\tgrößer");
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text:?}");
        assert!(lines[0].contains("gone\\n2026-11-15") && !text.contains("\u{1b}[2J"), "{text:?}");
        assert!(text.ends_with(" INFO a plain word:\tgrößer\n"), "{text:?}");
        assert!(!text.contains(['\r', '\0']));
        let mut line = EscapingWriter(Vec::new());
        line.write_all(b"\x1b[2;33m WARN\x1b[0m\x1b]0;title\x07 no end").unwrap();
        assert_eq!(line.0, b"\x1b[2;33m WARN\x1b[0m\\x1b]0;title\\x07 no end");
    }
}
