//! The output of commands, and output that nobody may read: a closed or full pipe keeps neither the start nor the
//! end of the gateway.

use parking_lot::Mutex;
use std::io::{self, ErrorKind, Write as _};
use std::panic::PanicHookInfo;
use std::time::Duration;
use tracing_appender::non_blocking::WorkerGuard;

use super::logs;

/// Time that the process waits for its output. The guard of the logs waits a second itself.
const MAX_OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// First error of standard output, with the consequence that the operator must know.
static LOST_OUTPUT: Mutex<Option<String>> = Mutex::new(None);

/// Prints bytes, and waits until the system has them. Returns false if nothing more can be printed. A reader that has
/// closed its pipe has seen enough; every other error is the result of the command, see [`lost_output`].
pub(super) fn print_bytes(bytes: &[u8]) -> bool {
    note_loss(write_all(bytes), "")
}

/// Prints one line, with the rules of [`print_bytes`].
pub(super) fn print_line(line: &str) {
    print_bytes(format!("{line}\n").as_bytes());
}

/// Prints a secret that exists and is shown only once. If it cannot be printed, the error also has the remedy.
pub(super) fn print_secret(line: &str, remedy: &str) {
    note_loss(write_all(format!("{line}\n").as_bytes()), remedy);
}

fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Remembers the first error. Returns true if there is none.
pub(super) fn note_loss(written: io::Result<()>, remedy: &str) -> bool {
    if let Err(error) = &written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
        let why = format!("standard output cannot be written: {error}{remedy}");
        LOST_OUTPUT.lock().get_or_insert(why);
    }
    written.is_ok()
}

/// Returns the reason that a part of the output is lost.
pub(super) fn lost_output() -> Option<String> {
    LOST_OUTPUT.lock().clone()
}

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

/// Prints a text to standard output, if somebody reads it.
pub(super) fn print_text(text: String) {
    run_unless_stuck(move || drop(io::stdout().write_all(text.as_bytes())));
}

/// Writes the error that ends the process.
pub(super) fn print_error(why: &str) {
    let line = if logs::is_json() { logs::error_line(why) } else { format!("portunus: {why}\n") };
    run_unless_stuck(move || drop(io::stderr().write_all(line.as_bytes())));
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
