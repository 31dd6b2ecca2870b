//! Resource usage of a process from `/proc`: processor time of all threads, and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// Unit of processor time in `/proc/<pid>/stat`
/// (<https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>); 10 ms on all current
/// architectures.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Returns the processor time of all threads so far, including ended ones.
pub(super) fn processor_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    ticks(&stat).map(|ticks| CLOCK_TICK * ticks).context("an unknown form of /proc/…/stat")
}

/// Parses user and system time. The second field is a name that may contain anything; the fields
/// after its closing parenthesis are numbers.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(user + system)
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
    fn times_are_read_behind_the_name() {
        let stat = "7 (a) b)) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 3 4 20 0 9 0 1 2";
        assert_eq!(ticks(stat), Some(42));
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
        processor_time(own).unwrap();
        assert!(!processors().unwrap().is_empty());
    }
}
