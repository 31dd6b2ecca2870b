//! Instructions outside of a call: posting of settled calls, the journal's thread, timers.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::budget::RoadFigures;
use super::counts::{AllocationCosts, as_f64};
use super::{CallgrindGateway, MEASURED, Road, per};
use crate::tools;

/// Measured calls: four full batches of the posting loop.
const POSTED_CALLS: u32 = 2_000;
/// Calls before them, which open connections and fill caches.
const FIRST_CALLS: u32 = 200;
/// Concurrent callers.
const CALLERS: u32 = 16;

/// Program that keeps the write lock of a database until its standard input ends.
const HOLD_LOCK: &str = "import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
database.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()
database.execute('ROLLBACK')
";

/// Instructions of a call outside of the measured function.
pub(super) struct PostingFigures {
    /// Figures of posting in full batches.
    pub(super) posting: RoadFigures,
    /// Instructions of everything else: the journal's thread, timers and the scheduler. They depend on
    /// the time that the calls took, so they are told and not checked.
    pub(super) background: u64,
    /// Instructions of one allocation.
    pub(super) allocation_costs: AllocationCosts,
}

/// Counts the instructions per call of posting in full batches, and of everything else outside of
/// the measured function.
///
/// Under callgrind a gateway serves few calls in the tenth of a second between two batches, and small
/// batches cost far more per call. So another process keeps the write lock of the database while the
/// calls are served: they stay in the journal, and what runs outside of the measured function is the
/// background. Then the lock is released, and what runs until the gateway is quiet is the posting of
/// full batches. The key has no cap, because its lease could not be extended meanwhile.
pub(super) fn measure(gateway: &CallgrindGateway, road: &Road) -> Result<PostingFigures> {
    gateway.warm_up(road)?;
    gateway.repeat_at_once(road, FIRST_CALLS, CALLERS)?;
    gateway.wait_until_quiet()?;
    let lock = DatabaseLock::take(&database_of(&gateway.data)?)?;
    gateway.write_counts()?;
    gateway.repeat_at_once(road, POSTED_CALLS, CALLERS)?;
    let serving = gateway.write_counts()?;
    lock.release()?;
    gateway.wait_until_quiet()?;
    let posting = gateway.write_counts()?;
    let call = serving.inclusive(MEASURED);
    ensure!(call > 0, "callgrind counted no `{MEASURED}`");
    let calls = u64::from(POSTED_CALLS);
    let posted = RoadFigures {
        instructions: posting.total() / calls,
        allocations: per(as_f64(posting.allocations()), calls),
        copies: per(as_f64(posting.copies), calls),
        ..RoadFigures::default()
    };
    let allocation_costs = serving.allocation_costs();
    let own = posting.own.into_iter().map(|(name, cost)| (name, cost / calls)).collect();
    Ok(PostingFigures {
        posting: posted.with_dearest(own),
        background: serving.total().saturating_sub(call) / calls,
        allocation_costs,
    })
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
