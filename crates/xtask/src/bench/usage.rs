//! What a process has used so far, as the kernel tells it: processor time with all its threads,
//! and memory.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// The kernel counts processor time for other programs to read in hundredths of a second, on
/// every architecture it runs on today.
const TICK: Duration = Duration::from_millis(10);

/// Processor time used so far, all threads together, the ended ones included.
pub(super) fn processor_time(process: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    ticks(&stat).map(|ticks| TICK * ticks).context("an unknown form of /proc/…/stat")
}

/// User and system time. The second field, a name, may hold anything; what follows its closing
/// parenthesis is plain.
fn ticks(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Memory in use now, in megabytes.
pub(super) fn memory(process: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    resident(&status).context("an unknown form of /proc/…/status")
}

fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

/// How many threads wanted to run at a time during the last minute. Asked before a measurement,
/// it tells what else the machine is doing.
pub(super) fn others() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    let first = text.split_whitespace().next().and_then(|figure| figure.parse().ok());
    first.context("an unknown form of /proc/loadavg")
}

/// What the machine's processors call themselves.
pub(super) fn processor_name() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The processors this process may use.
pub(super) fn processors() -> Result<Vec<usize>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(line.map(expand).unwrap_or_default())
}

/// `0-2,5` in full.
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
