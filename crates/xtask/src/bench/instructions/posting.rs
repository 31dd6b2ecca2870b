//! Instructions outside of a call: posting of settled calls, the journal's thread, timers.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::budget::RoadFigures;
use super::{CallgrindGateway, MEASURED, Road, per};
use crate::tools;

/// Measured calls: four full batches of the posting loop.
const POSTED_CALLS: u32 = 2_000;
/// Calls before them, which open connections and fill caches.
const FIRST_CALLS: u32 = 200;
/// Concurrent callers.
const CALLERS: u32 = 16;
/// Time over which the work of an idle gateway is counted.
const IDLE_TIME: Duration = Duration::from_secs(3);

/// Program that keeps the write lock of a database until its standard input ends.
const HOLD_LOCK: &str = "import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
database.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()
database.execute('ROLLBACK')
";

/// Counts the instructions per call of posting in full batches, and of everything else outside of
/// the measured function.
///
/// Under callgrind a gateway serves few calls in the tenth of a second between two batches, and small
/// batches cost far more per call. So another process keeps the write lock of the database while the
/// calls are served: they stay in the journal, and what runs outside of the measured function is the
/// background. Then the lock is released, and what runs until the gateway is quiet is the posting of
/// full batches. The work of an idle gateway in the same time is measured afterwards and subtracted
/// from both. The key has no cap, because its lease could not be extended meanwhile.
pub(super) fn measure(
    gateway: &CallgrindGateway,
    road: &Road,
) -> Result<[(String, RoadFigures); 2]> {
    gateway.warm_up(road)?;
    gateway.repeat_at_once(road, FIRST_CALLS, CALLERS)?;
    gateway.wait_until_quiet()?;
    let lock = DatabaseLock::take(&database_of(&gateway.data)?)?;
    gateway.write_counts()?;
    let begin = Instant::now();
    gateway.repeat_at_once(road, POSTED_CALLS, CALLERS)?;
    let serving = gateway.write_counts()?;
    let served_within = begin.elapsed();
    let begin = Instant::now();
    lock.release()?;
    gateway.wait_until_quiet()?;
    let posting = gateway.write_counts()?;
    let posted_within = begin.elapsed();
    thread::sleep(IDLE_TIME);
    let idle = gateway.write_counts()?;
    let idle = |time: Duration| {
        #[expect(clippy::cast_precision_loss, reason = "far fewer instructions than that")]
        let per_second = idle.total() as f64 / IDLE_TIME.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive and far fewer instructions than that"
        )]
        let within = (per_second * time.as_secs_f64()) as u64;
        within
    };
    let call = serving.inclusive(MEASURED);
    ensure!(call > 0, "callgrind counted no `{MEASURED}`");
    let calls = u64::from(POSTED_CALLS);
    let background = serving.total().saturating_sub(call + idle(served_within)) / calls;
    let background = RoadFigures { instructions: background, ..RoadFigures::default() };
    let posted = RoadFigures {
        instructions: posting.total().saturating_sub(idle(posted_within)) / calls,
        allocations: per(posting.allocations, calls),
        copies: per(posting.copies, calls),
        ..RoadFigures::default()
    };
    let own = posting.own.into_iter().map(|(name, cost)| (name, cost / calls)).collect();
    Ok([
        ("background: journal, timers, scheduling".to_owned(), background),
        ("posting, full batches".to_owned(), posted.with_dearest(own)),
    ])
}

/// Returns the database in a data folder.
fn database_of(data: &Path) -> Result<PathBuf> {
    let files = fs::read_dir(data)?.flatten().map(|entry| entry.path());
    let mut found = files.filter(|path| path.extension().is_some_and(|kind| kind == "db"));
    found.next().with_context(|| format!("no database in {}", data.display()))
}

/// The write lock of a database, kept by another process.
struct DatabaseLock(Child);

impl DatabaseLock {
    fn take(database: &Path) -> Result<Self> {
        let mut command = Command::new(tools::python3()?);
        command.args(["-c", HOLD_LOCK]).arg(database);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().context("no standard output")?;
        let mut said = String::new();
        BufReader::new(stdout).read_line(&mut said)?;
        ensure!(said.trim() == "locked", "the database could not be locked: {said}");
        Ok(Self(child))
    }

    fn release(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        ensure!(self.0.wait()?.success(), "the lock of the database was not released");
        Ok(())
    }
}
