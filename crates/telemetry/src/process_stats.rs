//! Figures of this process from `/proc`: <https://man7.org/linux/man-pages/man5/proc.5.html>.

use std::fs;

/// Ticks per second in which the kernel tells processor time to programs. It is 100 on every platform that
/// the gateway is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Figures of this process. A figure that the system does not tell is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ProcessStats {
    /// Processor time used, in seconds.
    pub(crate) cpu_seconds: Option<f64>,
    /// Memory in use.
    pub(crate) resident_bytes: Option<u64>,
    /// Address space in use.
    pub(crate) virtual_bytes: Option<u64>,
    /// Open files, sockets included.
    pub(crate) open_files: Option<usize>,
    /// Limit of open files.
    pub(crate) max_files: Option<u64>,
    /// Threads.
    pub(crate) threads: Option<u64>,
}

impl ProcessStats {
    /// Reads the figures. These files are made by the kernel, so that no disk is waited for.
    pub(crate) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let open_files = open_files();
        Self {
            cpu_seconds: cpu_seconds(&stat),
            resident_bytes: status_number(&status, "VmRSS:").map(|kib| kib.saturating_mul(1_024)),
            virtual_bytes: status_number(&status, "VmSize:").map(|kib| kib.saturating_mul(1_024)),
            open_files,
            max_files: max_files(&limits),
            threads: status_number(&status, "Threads:"),
        }
    }
}

/// Returns the number of open files. Since Linux 6.2 the size of the folder is their number; before, the folder
/// must be listed, and is open itself meanwhile.
fn open_files() -> Option<usize> {
    const FOLDER: &str = "/proc/self/fd";
    let told = fs::metadata(FOLDER).ok().and_then(|found| usize::try_from(found.len()).ok());
    let listed = || fs::read_dir(FOLDER).ok().map(|all| all.count().saturating_sub(1));
    told.filter(|count| *count > 0).or_else(listed)
}

/// Returns user and system time. The name of the program stands in brackets and may have spaces.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut ticks = behind.split_whitespace().skip(11).map(str::parse::<f64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    Some((user + system) / TICKS_PER_SECOND)
}

fn status_number(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn max_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_behind_an_odd_name() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 9 0 100";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds("7 (x) S 1"), None);
        assert_eq!(status_number("Name:\tx\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12));
        assert_eq!(max_files("Max open files            1024     4096     files\n"), Some(1_024));
        assert_eq!(max_files("Max open files            unlimited unlimited files\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_all_figures() {
        let stats = ProcessStats::read();
        assert!(stats.cpu_seconds.is_some() && stats.resident_bytes > Some(0), "{stats:?}");
        assert!(stats.open_files > Some(0) && stats.threads > Some(0), "{stats:?}");
    }
}
