//! System calls of a gateway that runs without callgrind, counted by strace.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::{ChildServer, Signal};
use crate::tools;

/// Calls that only sockets and their registration need. `read` and `write` are also wake-ups and
/// the journal.
const SOCKET_CALLS: [&str; 11] = [
    "recvfrom",
    "recvmsg",
    "sendto",
    "sendmsg",
    "readv",
    "writev",
    "accept4",
    "connect",
    "shutdown",
    "setsockopt",
    "epoll_ctl",
];
/// Timeout of strace to attach to all threads.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);

/// System calls between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SystemCallCounts {
    /// Calls on sockets.
    pub(super) socket: u64,
    /// All calls.
    pub(super) all: u64,
}

/// Counts the system calls of a process and its threads while `work` runs.
pub(super) fn count(
    process: u32,
    folder: &Path,
    work: impl FnOnce() -> Result<()>,
) -> Result<SystemCallCounts> {
    let summary = folder.join("strace.txt");
    let mut command = Command::new(tools::strace()?);
    command.args(["-f", "-c", "-o"]).arg(&summary).args(["-p", &process.to_string()]);
    let mut strace = ChildServer::start("strace", &mut command, &folder.join("strace.log"))?;
    let log = folder.join("strace.log");
    let is_attached = || fs::read_to_string(&log).is_ok_and(|said| said.contains(" attached"));
    strace.wait_until(ATTACH_TIMEOUT, is_attached)?;
    let done = work();
    strace.stop(Signal::Int)?;
    done?;
    let text = fs::read_to_string(&summary).context("strace wrote no summary")?;
    Ok(read_summary(&text))
}

/// Reads the table of `strace -c`: share, seconds, microseconds per call, calls, perhaps errors, name.
fn read_summary(text: &str) -> SystemCallCounts {
    let mut counts = SystemCallCounts::default();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(calls), Some(name)) = (fields.get(3), fields.last()) else { continue };
        let Ok(calls) = calls.parse::<u64>() else { continue };
        if *name == "total" {
            continue;
        }
        counts.all += calls;
        if SOCKET_CALLS.contains(name) {
            counts.socket += calls;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_added_up_with_and_without_errors() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            60.00    0.000600           3       200        10 recvfrom\n \
            30.00    0.000300           3       100           sendto\n \
            10.00    0.000100           1        70        20 futex\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.001000           2       370        30 total\n";
        assert_eq!(read_summary(text), SystemCallCounts { socket: 300, all: 370 });
    }
}
