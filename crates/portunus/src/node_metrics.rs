//! Room on the disk of the data folder, for metrics. It is measured in the background: a disk may hang, and a
//! scrape must not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use telemetry::DiskMetrics;

use crate::app::App;

/// Period of measuring.
pub(crate) const MEASURE_PERIOD: Duration = Duration::from_secs(5);
/// End of the names of segments that calls may still need.
const SEGMENT_SUFFIX: &str = ".journal";

/// Commit and date of the build, if the build told them.
const BUILD: Option<&str> = option_env!("PORTUNUS_BUILD");

/// Returns the commit that the program was built from, if that is known.
fn built_commit(build: &'static str) -> Option<&'static str> {
    let commit = build.split_whitespace().next()?;
    commit.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(commit)
}

impl App {
    /// Tells the metrics which build this is.
    pub(crate) fn note_build(&self) {
        if let Some(commit) = BUILD.and_then(built_commit) {
            self.engine.metrics.set_commit(commit);
        }
    }

    /// Measures the disk of the data folder. A measurement that hangs delays only the next one.
    pub(crate) async fn measure_disk(&self) {
        let engine = Arc::clone(&self.engine);
        let folder = self.config().data_folder.clone();
        let measuring = tokio::task::spawn_blocking(move || measure(&folder, &engine.metrics.disk));
        if let Err(e) = measuring.await {
            tracing::error!("the disk could not be measured: {e}");
        }
    }
}

fn measure(folder: &Path, disk: &DiskMetrics) {
    if let Ok(found) = rustix::fs::statvfs(folder) {
        disk.free_bytes.set(found.f_bavail.saturating_mul(found.f_frsize));
        disk.total_bytes.set(found.f_blocks.saturating_mul(found.f_frsize));
        disk.free_inodes.set(found.f_favail);
    }
    // A file may vanish while the folder is listed, because its calls are stored.
    let files = std::fs::read_dir(folder.join("journal")).into_iter().flatten().flatten();
    let (mut segments, mut bytes) = (0_u64, 0_u64);
    for file in files {
        segments += u64::from(file.file_name().to_string_lossy().ends_with(SEGMENT_SUFFIX));
        bytes = bytes.saturating_add(file.metadata().map_or(0, |found| found.len()));
    }
    disk.journal_segments.set(segments);
    disk.journal_bytes.set(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_the_first_word_of_the_build() {
        assert_eq!(built_commit("0123456789ab 2026-11-18"), Some("0123456789ab"));
        assert_eq!(built_commit("unknown commit"), None);
        assert_eq!(built_commit(""), None);
    }
}
