//! Log lines of one test.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Level};
use tracing_subscriber::fmt::MakeWriter;

/// Log lines of this thread, which runs the whole test; other tests of the process log elsewhere.
pub(crate) struct ThreadLog {
    lines: LogLines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl ThreadLog {
    pub(crate) fn new(level: Level) -> Self {
        // With only one subscriber in the process, the first thread that comes to a log call decides
        // for all of them if it is written.
        static OTHER: OnceLock<Dispatch> = OnceLock::new();
        let other = || tracing_subscriber::fmt().with_writer(std::io::sink).finish();
        OTHER.get_or_init(|| Dispatch::new(other()));
        let lines = LogLines::default();
        let writer = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone());
        let subscriber = writer.with_max_level(level).finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// Takes the lines since the last call.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.lines.0.lock().unwrap())
    }
}

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
