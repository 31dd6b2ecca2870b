//! Reload on SIGHUP and when the file changes. An invalid file is refused and the last valid one
//! stays.
//!
//! The file is looked at by its path, once a second, instead of being watched by the kernel. That
//! notices every way of changing it: written in place, replaced by a rename (editors), reached through
//! a link that was exchanged (Kubernetes), changed on another machine (network file systems). A kernel
//! watch would need one on the folder and on each link, and the folder may hold files that are written
//! all the time.

use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{Config, LoadOptions};
use crate::file_version::FileVersion;

/// Period of looking at the file.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// Time in which a changed file must not change again. Editors write a file in several steps.
const SETTLE_TIME: Duration = Duration::from_millis(100);

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

/// Calls `apply` with the steps of every reload, for ever.
pub async fn watch_config(options: LoadOptions, apply: impl Fn(ReloadStep)) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(e) => {
            tracing::warn!("SIGHUP will not reload the configuration: {e}");
            return;
        }
    };
    let mut file = options.file.as_deref().map(WatchedFile::new);
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            () = next_change(file.as_mut()) => {}
        }
        apply(ReloadStep::Begun);
        match Config::load(&options) {
            Ok(config) => {
                tracing::info!("configuration reloaded");
                apply(ReloadStep::Loaded(Box::new(config)));
            }
            Err(why) => {
                tracing::error!("the new configuration is refused, the last good one stays: {why}");
                apply(ReloadStep::Refused);
            }
        }
    }
}

/// Waits for a change of the file, for ever without a file.
async fn next_change(file: Option<&mut WatchedFile<'_>>) {
    let Some(file) = file else { return std::future::pending().await };
    loop {
        match file.look() {
            FileLook::Same => tokio::time::sleep(LOOK_PERIOD).await,
            FileLook::Changing => tokio::time::sleep(SETTLE_TIME).await,
            FileLook::Changed => return,
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
struct WatchedFile<'a> {
    path: &'a Path,
    read: Option<FileVersion>,
    seen: Option<FileVersion>,
}

impl<'a> WatchedFile<'a> {
    fn new(path: &'a Path) -> Self {
        let version = FileVersion::of(path);
        Self { path, read: version, seen: version }
    }

    fn look(&mut self) -> FileLook {
        let found = FileVersion::of(self.path);
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

    fn three_looks(file: &mut WatchedFile<'_>) -> [FileLook; 3] {
        [file.look(), file.look(), file.look()]
    }

    #[test]
    fn notices_a_file_that_is_written_in_place() {
        let folder = TestFolder::new("place");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(&path);
        fs::write(&path, "and after").unwrap();
        assert_eq!(three_looks(&mut file), ONE_CHANGE);
    }

    #[test]
    fn notices_a_file_that_is_replaced_by_a_rename() {
        let folder = TestFolder::new("rename");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(&path);
        for text in ["after!", "later!"] {
            fs::write(folder.path("p.toml~"), text).unwrap();
            fs::rename(folder.path("p.toml~"), &path).unwrap();
            assert_eq!(three_looks(&mut file), ONE_CHANGE, "{text}");
        }
    }

    /// Kubernetes mounts a config map so: the file is a link through `..data`, and an update
    /// exchanges `..data` by a rename. Neither the link of the file nor the old file changes.
    #[test]
    fn notices_a_link_to_the_folder_that_is_exchanged() {
        let folder = TestFolder::new("link");
        for (version, text) in [("..1", "same size"), ("..2", "SAME SIZE")] {
            fs::create_dir(folder.path(version)).unwrap();
            fs::write(folder.path(version).join("p.toml"), text).unwrap();
        }
        symlink("..1", folder.path("..data")).unwrap();
        symlink("..data/p.toml", folder.path("p.toml")).unwrap();
        let path = folder.path("p.toml");
        let mut file = WatchedFile::new(&path);
        symlink("..2", folder.path("..data_tmp")).unwrap();
        fs::rename(folder.path("..data_tmp"), folder.path("..data")).unwrap();
        assert_eq!(three_looks(&mut file), ONE_CHANGE);
        assert_eq!(fs::read_to_string(&path).unwrap(), "SAME SIZE");
    }

    #[test]
    fn ignores_other_files_of_the_folder() {
        let folder = TestFolder::new("others");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(&path);
        fs::write(folder.path("portunus.log"), "a line").unwrap();
        fs::write(folder.path("p.toml.bak"), "before").unwrap();
        assert_eq!(file.look(), FileLook::Same);
    }

    #[test]
    fn waits_until_the_file_rests() {
        let folder = TestFolder::new("steps");
        let path = folder.path("p.toml");
        fs::write(&path, "before").unwrap();
        let mut file = WatchedFile::new(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(file.look(), FileLook::Changing, "an editor has moved it away");
        fs::write(&path, "half").unwrap();
        assert_eq!(file.look(), FileLook::Changing);
        fs::write(&path, "half and half").unwrap();
        assert_eq!(three_looks(&mut file), ONE_CHANGE);
    }
}
