//! Output that nobody may read: a closed or full pipe keeps neither the start nor the end of the process.

use std::io::Write as _;
use std::panic::PanicHookInfo;
use std::time::Duration;
use tracing_appender::non_blocking::WorkerGuard;

use super::logs;

/// Time that the process waits for its output. The guard of the logs waits a second itself.
const MAX_OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// Makes a panic one line of the log, like everything else. The usual hook writes several
/// lines that are no JSON, and writes to standard error itself, so that a thread that panics would wait for a pipe
/// that nobody reads.
pub(super) fn log_panics() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let why = panic.payload_as_str().unwrap_or("no message");
        tracing::error!(place, "a thread panicked at {place}: {why}");
    }));
}

/// Writes the last log lines. The guard reports a queue that stays full on standard output, which may be
/// closed or full as well, so it is dropped on a thread of its own.
pub(super) fn finish_logs(guard: WorkerGuard) {
    run_unless_stuck(move || drop(guard));
}

/// Prints a text to standard output.
pub(super) fn print_text(text: String) {
    run_unless_stuck(move || drop(std::io::stdout().write_all(text.as_bytes())));
}

/// Writes the error that ends the process.
pub(super) fn print_error(why: &str) {
    let line = if logs::is_json() { logs::error_line(why) } else { format!("portunus: {why}\n") };
    run_unless_stuck(move || drop(std::io::stderr().write_all(line.as_bytes())));
}

/// Runs work that may hang on a thread of its own, and waits for it for a while.
fn run_unless_stuck(work: impl FnOnce() + Send + 'static) {
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let running = std::thread::Builder::new().spawn(move || {
        work();
        drop(ends);
    });
    if running.is_ok() {
        let _ = ended.recv_timeout(MAX_OUTPUT_WAIT);
    }
}
