//! Resource usage of a process from `/proc`: processor time of all threads, and memory.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Time between two looks at a process that is expected to become quiet: longer than the pause
/// between two batches of posted calls.
const QUIET_INTERVAL: Duration = Duration::from_millis(300);
/// Share of a processor up to which a process is quiet. An idle gateway uses a thousandth, under
/// callgrind a twentieth.
const QUIET_SHARE: f64 = 0.1;
/// Timeout to become quiet.
const QUIET_TIMEOUT: Duration = Duration::from_secs(60);

/// Processor time of each thread of a process at one moment, in nanoseconds.
pub(super) struct ProcessorTimes(BTreeMap<u32, u64>);

impl ProcessorTimes {
    /// Reads the times on the processor
    /// (<https://www.kernel.org/doc/html/latest/scheduler/sched-stats.html>).
    pub(super) fn of(process: u32) -> Result<Self> {
        let mut times = BTreeMap::new();
        for task in fs::read_dir(format!("/proc/{process}/task"))? {
            let task = task?;
            let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()) else {
                continue;
            };
            // A thread may end meanwhile.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            times.insert(id, on_processor(&text).context("an unknown form of /proc/…/schedstat")?);
        }
        ensure!(!times.is_empty(), "process {process} has ended");
        Ok(Self(times))
    }

    /// Returns the time that the process used since then. Threads that ended since then are left
    /// out: those of the proxies live as long as their process, or end after seconds without work.
    pub(super) fn since(&self, before: &Self) -> Duration {
        let used = self
            .0
            .iter()
            .map(|(id, time)| time.saturating_sub(before.0.get(id).copied().unwrap_or_default()));
        Duration::from_nanos(used.sum())
    }
}

/// Parses the first field: time on the processor in nanoseconds.
fn on_processor(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// Waits until a process does nothing but its timers: what its last calls left to do is done.
pub(super) fn wait_until_quiet(process: u32) -> Result<()> {
    let begin = Instant::now();
    let mut before = ProcessorTimes::of(process)?;
    loop {
        thread::sleep(QUIET_INTERVAL);
        let now = ProcessorTimes::of(process)?;
        if now.since(&before) < QUIET_INTERVAL.mul_f64(QUIET_SHARE) {
            return Ok(());
        }
        ensure!(begin.elapsed() < QUIET_TIMEOUT, "process {process} works on without load");
        before = now;
    }
}

/// Returns the resident memory in megabytes.
pub(super) fn memory(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    resident(&status).context("an unknown form of /proc/…/status")
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

/// Returns the load average of the last minute. Before a measurement, it shows the other load of
/// the machine.
pub(super) fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let first = text.split_whitespace().next().and_then(|figure| figure.parse().ok());
    first.context("an unknown form of /proc/loadavg")
}

/// Returns the model name of the processor.
pub(super) fn processor_name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Returns the processors that this process may use.
pub(super) fn processors() -> Result<Vec<usize>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(line.map(expand).unwrap_or_default())
}

/// Expands a list such as `0-2,5`.
fn expand(list: &str) -> Vec<usize> {
    list.trim()
        .split(',')
        .filter_map(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            Some(from.parse().ok()?..=to.parse().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_nanoseconds_and_added_over_threads() {
        assert_eq!(on_processor("1234567 89 3\n"), Some(1_234_567));
        let before = ProcessorTimes([(1, 100), (2, 50)].into());
        // Thread 2 has ended, thread 3 is new.
        let now = ProcessorTimes([(1, 130), (3, 5)].into());
        assert_eq!(now.since(&before), Duration::from_nanos(35));
    }

    #[test]
    fn memory_is_told_in_megabytes() {
        assert_eq!(resident("VmHWM:\t 9 kB\nVmRSS:\t   15625 kB\n"), Some(16.0));
    }

    #[test]
    fn processor_lists_are_read_in_full() {
        assert_eq!(expand("0-2,5"), [0, 1, 2, 5]);
        assert_eq!(expand("\t3"), [3]);
    }

    #[test]
    fn this_very_process_can_be_asked() {
        let own = std::process::id();
        assert!(memory(own).unwrap() > 0.0);
        ProcessorTimes::of(own).unwrap();
        assert!(!processors().unwrap().is_empty());
    }
}
