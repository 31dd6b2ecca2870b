//! Health checks without a running gateway: of the configuration, the data folder and the services that
//! the configuration names.

use access::limits::SharedLimits;
use admin::{CheckName, HealthCheck};
use config::Config;
use futures_util::future::join_all;
use ledger::{Clock as _, SystemClock};
use relay::NodeFolder;
use std::path::Path;
use std::sync::Arc;
use store::{StoreError, StoreProbe};
use tokio_util::task::TaskTracker;

/// Checks what can be seen without the network.
pub(super) fn offline_checks(config: &Config) -> Vec<HealthCheck> {
    let damaged: std::io::Result<Vec<_>> =
        NodeFolder::existing(&config.data_folder).map(|node| damaged_files(&node)).collect();
    let journal = match damaged {
        Ok(files) => admin::journal_damage(&files.concat()),
        Err(e) => HealthCheck::warning(
            CheckName::Journal,
            format!("the journal in {} cannot be read: {e}", config.data_folder.display()),
            "run this command as the user of the gateway, with its `--data`",
        ),
    };
    let is_shared = !config.store_url.starts_with("sqlite:");
    vec![
        journal,
        admin::disk_check(config),
        vault_file_check(config)
            .unwrap_or_else(|| admin::vault_check(&crate::app::vault_for(config, is_shared))),
        admin::certificate_check(config, SystemClock.now()),
        admin::configuration_check(&config.warnings, &[]),
        admin::descriptor_check(config, None),
    ]
}

/// Looks at the key file of the vault in the data folder.
pub(super) fn vault_file_check(config: &Config) -> Option<HealthCheck> {
    admin::vault_file_check(&config.data_folder.join(crate::app::VAULT_KEY_FILE))
}

/// Returns the damaged files of a journal; none if there is no journal yet.
fn damaged_files(node: &NodeFolder) -> std::io::Result<Vec<String>> {
    match ledger::damaged_files(&node.journal()) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found,
    }
}

/// Asks the services that the configuration names. Nothing is changed in them.
pub(super) async fn service_checks(config: &Config) -> Vec<HealthCheck> {
    let (probed, valkey, files, credentials) = tokio::join!(
        probe_store(config),
        valkey_check(config),
        admin::files_check(config),
        credential_check(config)
    );
    let mut checks = vec![admin::probed_store_check(&config.store_url, &probed)];
    if let Ok(probe) = &probed {
        checks.push(admin::clock_check(SystemClock.now(), probe.clock));
    }
    checks.extend([valkey, files, credentials]);
    checks
}

/// Looks at the database. A start creates a file of SQLite and the data folder, but no other folder.
async fn probe_store(config: &Config) -> Result<StoreProbe, StoreError> {
    if let Some(path) = config.store_url.strip_prefix("sqlite:")
        && let Some(folder) = Path::new(path.strip_prefix("//").unwrap_or(path)).parent()
        && !folder.as_os_str().is_empty()
        && folder != config.data_folder
        && !folder.is_dir()
    {
        let why = format!("the folder `{}` does not exist", folder.display());
        return Err(StoreError::Unreachable(why));
    }
    store::probe_store(&config.store_url).await
}

async fn valkey_check(config: &Config) -> HealthCheck {
    let Some(valkey) = &config.valkey else {
        return HealthCheck::good(CheckName::Valkey, "Valkey is not configured");
    };
    let name = "doctor".to_owned();
    let answer = match SharedLimits::open(valkey, name, Arc::new(SystemClock), TaskTracker::new()) {
        Ok(shared) => shared.ping().await,
        Err(e) => Err(e.to_string()),
    };
    admin::valkey_check(answer)
}

async fn credential_check(config: &Config) -> HealthCheck {
    let checks = config.providers.iter().map(|one| admin::check_credentials(config, one));
    admin::refused_credentials(join_all(checks).await.into_iter().flatten().collect())
}
