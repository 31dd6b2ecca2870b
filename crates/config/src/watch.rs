//! Reload on SIGHUP and when the file changes. An invalid file is refused and the last valid one
//! stays.

use notify::{RecursiveMode, Watcher};
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::config::{Config, LoadOptions};

/// Calls `apply` with every new valid configuration, for ever.
pub async fn watch_config(options: LoadOptions, apply: impl Fn(Config)) {
    let (changed, mut changes) = mpsc::channel::<()>(1);
    // Dropping the watcher would end the watch.
    let _watcher = options.file.as_deref().and_then(|file| watch_folder(file, changed.clone()));
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(e) => {
            tracing::warn!("SIGHUP will not reload the configuration: {e}");
            return;
        }
    };
    loop {
        tokio::select! {
            _ = hangup.recv() => {}
            _ = changes.recv() => {
                // Editors write a file in several steps, so the last step is awaited.
                tokio::time::sleep(Duration::from_millis(100)).await;
                while changes.try_recv().is_ok() {}
            }
        }
        match Config::load(&options) {
            Ok(config) => {
                tracing::info!("configuration reloaded");
                apply(config);
            }
            Err(why) => {
                tracing::error!("the new configuration is refused, the last good one stays: {why}")
            }
        }
    }
}

fn watch_folder(file: &Path, changed: mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let file = file.canonicalize().ok()?;
    // Many editors replace the file, so the folder is watched instead of the file.
    let folder = file.parent()?.to_owned();
    let name = file.file_name()?.to_owned();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let ours = event.paths.iter().any(|path| path.file_name() == Some(&*name));
        if ours && !event.kind.is_access() {
            let _ = changed.try_send(());
        }
    })
    .ok()?;
    watcher.watch(&folder, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}
