//! Reload on SIGHUP and when the file changes. An invalid file is refused and the last valid one
//! stays. A refused one is tried again every few seconds, because the trouble may be one of the moment: a
//! certificate whose two files are exchanged one after the other.
//!
//! The file is looked at by its path, once a second, instead of being watched by the kernel. That
//! notices every way of changing it: written in place, replaced by a rename (editors), reached through
//! a link that was exchanged (Kubernetes), changed on another machine (network file systems). A kernel
//! watch would need one on the folder and on each link, and the folder may hold files that are written
//! all the time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::Instant;

use crate::config::{Config, LoadOptions};
use crate::error::ConfigError;
use crate::file_version::FileVersion;

/// Period of looking at the file.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Time in which a changed file must not change again. Editors write a file in several steps.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// Period of trying a refused configuration again.
const RETRY_PERIOD: Duration = Duration::from_secs(5);
/// Time after which it is told that the files of the configuration are not read yet.
const MAX_LOAD_TIME: Duration = Duration::from_secs(20);

/// Step of a reload.
#[derive(Debug)]
pub enum ReloadStep {
    /// The file is read.
    Begun,
    /// The new configuration is valid.
    Loaded(Box<Config>),
    /// The new configuration is refused, and the last one stays.
    Refused,
}

/// Cause of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoadCause {
    /// SIGHUP, or a changed file.
    Change,
    /// The last configuration was refused.
    Retry,
}

/// A refused configuration.
struct RefusedLoad {
    reason: String,
    retry_at: Instant,
}

/// Calls `apply` with the steps of every reload, for ever. Disks are read on threads of their own: one that
/// hangs delays the reload and nothing else.
pub async fn watch_config(options: LoadOptions, apply: impl Fn(ReloadStep)) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(e) => {
            tracing::warn!("SIGHUP will not reload the configuration: {e}");
            return;
        }
    };
    let mut file = match options.file.clone() {
        Some(path) => Some(WatchedFile::new(path).await),
        None => None,
    };
    let options = Arc::new(options);
    let mut refused: Option<RefusedLoad> = None;
    loop {
        let retry_at = refused.as_ref().map(|last| last.retry_at);
        let cause = tokio::select! {
            _ = hangup.recv() => LoadCause::Change,
            cause = next_cause(file.as_mut(), retry_at) => cause,
        };
        refused = reload(&options, cause, refused, &apply).await;
    }
}

/// Reads the configuration and calls `apply`. A retry is silent unless something has changed. Returns the
/// refusal.
async fn reload(
    options: &Arc<LoadOptions>,
    cause: LoadCause,
    last: Option<RefusedLoad>,
    apply: &impl Fn(ReloadStep),
) -> Option<RefusedLoad> {
    let mut is_told = cause == LoadCause::Change;
    if is_told {
        apply(ReloadStep::Begun);
    }
    let given = Arc::clone(options);
    let mut loading = spawn_blocking(move || Config::load(&given));
    let loaded = match tokio::time::timeout(MAX_LOAD_TIME, &mut loading).await {
        Ok(loaded) => loaded,
        Err(_) => {
            tracing::error!(
                "a file of the configuration could not be read for {} s, the last good one stays; a disk \
                 may hang",
                MAX_LOAD_TIME.as_secs()
            );
            if is_told {
                apply(ReloadStep::Refused);
            }
            is_told = false;
            loading.await
        }
    };
    match loaded.unwrap_or_else(|e| Err(broken(&e))) {
        Ok(config) => {
            if !is_told {
                apply(ReloadStep::Begun);
            }
            tracing::info!("configuration reloaded");
            apply(ReloadStep::Loaded(Box::new(config)));
            None
        }
        Err(why) => {
            let reason = why.to_string();
            if is_told || last.is_none_or(|last| last.reason != reason) {
                tracing::error!(
                    "the new configuration is refused, the last good one stays: {reason}"
                );
                apply(ReloadStep::Refused);
            }
            Some(RefusedLoad { reason, retry_at: Instant::now() + RETRY_PERIOD })
        }
    }
}

fn broken(error: &JoinError) -> ConfigError {
    ConfigError(format!("the configuration cannot be read: {error}"))
}

/// Waits for a change of the file, or until it is time to try again and the file rests.
async fn next_cause(mut file: Option<&mut WatchedFile>, retry_at: Option<Instant>) -> LoadCause {
    loop {
        let look = match &mut file {
            Some(file) => file.look().await,
            None => FileLook::Same,
        };
        match look {
            FileLook::Same if retry_at.is_some_and(|at| at <= Instant::now()) => {
                return LoadCause::Retry;
            }
            FileLook::Same => tokio::time::sleep(LOOK_PERIOD).await,
            FileLook::Changing => tokio::time::sleep(SETTLE_TIME).await,
            FileLook::Changed => return LoadCause::Change,
        }
    }
}

/// Result of a look at the file.
#[derive(Debug, PartialEq, Eq)]
enum FileLook {
    /// The file is as it was read.
    Same,
    /// The file has changed since the last look.
    Changing,
    /// The file has changed since it was read, but not since the last look.
    Changed,
}

/// The file, with its versions when it was last read and last looked at. A change is remembered, so
/// that the wait for it can be cancelled.
struct WatchedFile {
    path: PathBuf,
    read: Option<FileVersion>,
    seen: Option<FileVersion>,
    /// The look that runs. It is kept while nobody waits for it, so that a disk that hangs holds one thread.
    looking: Option<JoinHandle<Option<FileVersion>>>,
}

impl WatchedFile {
    async fn new(path: PathBuf) -> Self {
        let mut file = Self { path, read: None, seen: None, looking: None };
        file.seen = file.version().await;
        file.read = file.seen;
        file
    }

    /// Returns the present version.
    async fn version(&mut self) -> Option<FileVersion> {
        let path = &self.path;
        let looking = self.looking.get_or_insert_with(|| {
            let path = path.clone();
            spawn_blocking(move || FileVersion::of(&path))
        });
        let found = looking.await;
        self.looking = None;
        found.unwrap_or_default()
    }

    async fn look(&mut self) -> FileLook {
        let found = self.version().await;
        if found != self.seen {
            self.seen = found;
            FileLook::Changing
        } else if found != self.read {
            self.read = found;
            FileLook::Changed
        } else {
            FileLook::Same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct TestFolder(PathBuf);

    impl TestFolder {
        fn new(name: &str) -> Self {
            let folder =
                std::env::temp_dir().join(format!("portunus-watch-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Three looks at a file that has changed once before the first one.
    const ONE_CHANGE: [FileLook; 3] = [FileLook::Changing, FileLook::Changed, FileLook::Same];

    async fn three_looks(file: &mut WatchedFile) -> [FileLook; 3] {
        [file.look().await, file.look().await, file.look().await]
    }

    #[tokio::test]
    async fn notices_a_file_that_is_written_in_place() {
        let folder = TestFolder::new("place");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(path.clone()).await;
        fs::write(&path, "and after").unwrap();
        assert_eq!(three_looks(&mut file).await, ONE_CHANGE);
    }

    #[tokio::test]
    async fn notices_a_file_that_is_replaced_by_a_rename() {
        let folder = TestFolder::new("rename");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(path.clone()).await;
        for text in ["after!", "later!"] {
            fs::write(folder.path("p.toml~"), text).unwrap();
            fs::rename(folder.path("p.toml~"), &path).unwrap();
            assert_eq!(three_looks(&mut file).await, ONE_CHANGE, "{text}");
        }
    }

    /// Kubernetes mounts a config map so: the file is a link through `..data`, and an update
    /// exchanges `..data` by a rename. Neither the link of the file nor the old file changes.
    #[tokio::test]
    async fn notices_a_link_to_the_folder_that_is_exchanged() {
        let folder = TestFolder::new("link");
        for (version, text) in [("..1", "same size"), ("..2", "SAME SIZE")] {
            fs::create_dir(folder.path(version)).unwrap();
            fs::write(folder.path(version).join("p.toml"), text).unwrap();
        }
        symlink("..1", folder.path("..data")).unwrap();
        symlink("..data/p.toml", folder.path("p.toml")).unwrap();
        let path = folder.path("p.toml");
        let mut file = WatchedFile::new(path.clone()).await;
        symlink("..2", folder.path("..data_tmp")).unwrap();
        fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
        assert_eq!(three_looks(&mut file).await, ONE_CHANGE);
        assert_eq!(fs::read_to_string(&path).unwrap(), "SAME SIZE");
    }

    #[tokio::test]
    async fn ignores_other_files_of_the_folder() {
        let folder = TestFolder::new("others");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(path.clone()).await;
        fs::write(folder.path("portunus.log"), "a line").unwrap();
        fs::write(folder.path("p.toml.bak"), "before").unwrap();
        assert_eq!(file.look().await, FileLook::Same);
    }

    #[tokio::test]
    async fn waits_until_the_file_rests() {
        let folder = TestFolder::new("steps");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(path.clone()).await;
        fs::remove_file(&path).unwrap();
        assert_eq!(file.look().await, FileLook::Changing, "an editor has moved it away");
        fs::write(&path, "half").unwrap();
        assert_eq!(file.look().await, FileLook::Changing);
        fs::write(&path, "half and half").unwrap();
        assert_eq!(three_looks(&mut file).await, ONE_CHANGE);
    }
}
