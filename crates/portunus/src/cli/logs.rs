//! Logs on standard error, one line per event. Control characters are escaped, so that text from
//! outside cannot forge a log line. A long line is cut, so that it cannot fill a disk either.
//!
//! A thread of its own writes them: standard error may be a file on a disk that hangs or a pipe that
//! nobody reads, and no call waits for that. Lines beyond the queue are dropped and counted.

use serde_json::{Map, Value};
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

/// Longest line. Libraries log texts of callers that have sent no key yet, as long as they came.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Library that logs malformed handshakes as warnings. Anybody can send those.
const TLS_TARGET: &str = "rustls::";

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
    let filter = log_filter(std::env::var("PORTUNUS_LOG").ok().as_deref());
    let logs = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        // They would be written to standard error, which has just failed.
        .log_internal_errors(false)
        .with_writer(LineWriter { lines: queue, is_json: is_json() });
    if is_json() {
        logs.json().flatten_event(true).finish().with(filter).init();
    } else {
        let logs = logs.with_target(false).with_ansi(io::stderr().is_terminal());
        logs.finish().with(filter).init();
    }
    guard
}

/// Returns the filter of the log. Warnings of the TLS library are left out, unless the text names it or
/// asks for more than the usual level.
fn log_filter(configured: Option<&str>) -> Targets {
    let configured: Option<Targets> = configured.and_then(|text| text.parse().ok());
    let filter = configured.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let is_usual = filter.default_level().is_none_or(|level| level <= LevelFilter::INFO);
    let is_named = filter.iter().any(|(target, _)| target.starts_with("rustls"));
    if !is_usual || is_named || !filter.would_enable(TLS_TARGET, &tracing::Level::ERROR) {
        return filter;
    }
    filter.with_target(TLS_TARGET, LevelFilter::ERROR)
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

/// Escapes control characters of each event and cuts it. The formatter writes an event in a single call.
struct LineWriter<M> {
    lines: M,
    is_json: bool,
}

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for LineWriter<M> {
    type Writer = BoundedWriter<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        BoundedWriter { lines: self.lines.make_writer(), is_json: self.is_json }
    }
}

struct BoundedWriter<W> {
    lines: W,
    is_json: bool,
}

impl<W: Write> Write for BoundedWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = event.strip_suffix(b"\n").unwrap_or(event);
        let mut line = match self.is_json && text.len() > MAX_LINE_BYTES {
            true => shorten_json(text),
            false => escape_line(text),
        };
        line.extend(event.get(text.len()..).unwrap_or_default());
        self.lines.write_all(&line)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lines.flush()
    }
}

/// Escapes the control characters of a line, and cuts it between two characters.
fn escape_line(text: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(text.len().min(MAX_LINE_BYTES) + 64);
    let mut rest = text;
    let mut is_coloured = false;
    while let Some(byte) = rest.first() {
        let colour = colour_code(rest);
        let (taken, written) = match colour {
            Some(length) => (length, length),
            None if is_control_byte(*byte) => (1, byte.escape_ascii().len()),
            None => (char_length(rest), char_length(rest)),
        };
        if line.len() + written > MAX_LINE_BYTES {
            let end = if is_coloured { "\x1b[0m" } else { "" };
            line.extend(format!("{end}{}", cut_mark(rest.len())).into_bytes());
            break;
        }
        is_coloured |= colour.is_some();
        let (first, behind) = rest.split_at_checked(taken).unwrap_or((rest, b""));
        if colour.is_none() && is_control_byte(*byte) {
            line.extend(byte.escape_ascii());
        } else {
            line.extend(first);
        }
        rest = behind;
    }
    line
}

/// Returns the mark at the place where a text was cut.
fn cut_mark(bytes: usize) -> String {
    format!("… ({bytes} bytes are left out)")
}

/// Returns the length of the first character. The formatter writes UTF-8.
fn char_length(text: &[u8]) -> usize {
    let continues = |byte: &&u8| **byte & 0xc0 == 0x80;
    1 + text.iter().skip(1).take(3).take_while(continues).count()
}

/// Cuts the texts of a line that is a JSON object, until it is short enough.
fn shorten_json(text: &[u8]) -> Vec<u8> {
    let fields: Map<String, Value> = serde_json::from_slice(text).unwrap_or_default();
    let mut limit = MAX_LINE_BYTES / 2;
    while limit > 0 {
        let cut = |(name, value): (&String, &Value)| (name.clone(), cut_value(value, limit));
        let shorter: Map<String, Value> = fields.iter().map(cut).collect();
        let line = Value::Object(shorter).to_string();
        if line.len() <= MAX_LINE_BYTES && !fields.is_empty() {
            return line.into_bytes();
        }
        limit /= 2;
    }
    error_line("a line of the log was too long").trim_end().as_bytes().to_vec()
}

/// Cuts a field of a JSON line. One that is no text becomes a text, if it is too long.
fn cut_value(value: &Value, limit: usize) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) => return value.clone(),
        Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    if text.len() <= limit {
        return value.clone();
    }
    let end = text.floor_char_boundary(limit);
    let kept = text.get(..end).unwrap_or_default();
    Value::String(format!("{kept}{}", cut_mark(text.len() - end)))
}

/// Returns true for bytes that a terminal or a line-based reader would interpret.
const fn is_control_byte(byte: u8) -> bool {
    byte < b' ' && byte != b'\t'
}

/// Longest colour sequence. The formatter writes a few numbers.
const MAX_COLOUR_BYTES: usize = 32;

/// Returns the length of the colour sequence that starts here. The formatter writes them itself, and they
/// are harmless.
fn colour_code(text: &[u8]) -> Option<usize> {
    let numbers = text.strip_prefix(b"\x1b[")?;
    let is_number = |byte: &u8| byte.is_ascii_digit() || *byte == b';';
    let end = numbers.iter().take(MAX_COLOUR_BYTES).position(|byte| !is_number(byte))?;
    (numbers.get(end) == Some(&b'm')).then_some(end + 3)
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
        let logs = tracing_subscriber::fmt()
            .with_writer(LineWriter { lines: move || own.clone(), is_json: false });
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
        let line = written(b"\x1b[2;33m WARN\x1b[0m\x1b]0;title\x07 no end", false);
        assert_eq!(line, "\x1b[2;33m WARN\x1b[0m\\x1b]0;title\\x07 no end");
    }

    fn written(event: &[u8], is_json: bool) -> String {
        let mut writer = BoundedWriter { lines: Vec::new(), is_json };
        writer.write_all(event).unwrap();
        String::from_utf8(writer.lines).unwrap()
    }

    /// Bytes that a mark and the end of a colour add to a line.
    const MARK_BYTES: usize = 64;

    #[test]
    fn a_long_line_is_cut_between_two_characters() {
        let exact = "x".repeat(MAX_LINE_BYTES);
        assert_eq!(written(exact.as_bytes(), false), exact);
        for piece in ["x", "ß", "\u{1}", "\u{1}ß€😀 ", "\x1b[3m"] {
            for start in ["", "a", "ab", "abc"] {
                let event = format!("{start}{}\n", piece.repeat(60_000));
                let line = written(event.as_bytes(), false);
                assert!(line.len() <= MAX_LINE_BYTES + MARK_BYTES, "{}", line.len());
                assert!(line.ends_with(" bytes are left out)\n"), "{piece:?}");
                assert_eq!(line.lines().count(), 1);
                let plain = line.replace("\x1b[3m", "").replace("\x1b[0m", "");
                assert!(!plain.contains('\x1b'), "no colour is cut in the middle");
            }
        }
        // A colour that does not end is no colour.
        let endless = format!("\x1b[{}", "1".repeat(60_000));
        assert!(written(endless.as_bytes(), false).starts_with("\\x1b[1"));
    }

    #[test]
    fn a_long_line_of_json_stays_json() {
        for piece in ["x", "\u{1}", "ß\"\\", "😀"] {
            let long = piece.repeat(60_000);
            for fields in [
                serde_json::json!({ "message": long, "level": "WARN" }),
                serde_json::json!({ "message": long, "peer": long, "level": "WARN" }),
                serde_json::json!({ "message": "m", "spans": [{ "name": long }], "level": "WARN" }),
            ] {
                let line = written(format!("{fields}\n").as_bytes(), true);
                assert!(line.len() <= MAX_LINE_BYTES + 1, "{}", line.len());
                let read: Value = serde_json::from_str(&line).unwrap();
                assert_eq!(read["level"], "WARN");
                assert!(line.contains(" bytes are left out)"), "{line}");
            }
        }
        let many: Map<String, Value> =
            (0..5_000).map(|number| (format!("field-{number}"), Value::from(number))).collect();
        for odd in [Value::Object(many).to_string(), "x".repeat(60_000)] {
            let read: Value = serde_json::from_str(&written(odd.as_bytes(), true)).unwrap();
            assert_eq!(read["message"], "a line of the log was too long");
        }
        let short = "{\"message\":\"x\",\"number\":1}\n";
        assert_eq!(written(short.as_bytes(), true), short);
    }

    #[test]
    fn warnings_of_the_tls_library_are_left_out_unless_asked_for() {
        use tracing::Level;
        let enables = |text: Option<&str>, level| {
            log_filter(text).would_enable("rustls::msgs::handshake", &level)
        };
        for usual in [None, Some("info"), Some("warn"), Some("info,relay=debug"), Some("=no=")] {
            assert!(!enables(usual, Level::WARN), "{usual:?}");
            assert!(enables(usual, Level::ERROR), "{usual:?}");
        }
        for asked in ["debug", "trace", "info,rustls=warn", "info,rustls::msgs=debug"] {
            assert!(enables(Some(asked), Level::WARN), "{asked}");
        }
        assert!(!enables(Some("off"), Level::ERROR) && !enables(Some("relay=info"), Level::ERROR));
        assert!(log_filter(None).would_enable("portunus", &Level::INFO));
    }
}
