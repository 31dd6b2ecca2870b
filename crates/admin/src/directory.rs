//! The bundle over the model directory: check, install, show, remove.
//!
//! The command line uses it beside running gateways, which read the bundle with the rest of the
//! stored configuration.

use catalog::{DirectoryBundle, DirectoryDiff, DirectoryError, ModelDirectory};
use config::{
    CheckMode, Config, ConfigIssues, DirectoryKey, DirectoryRecord, EntryName, InstalledDirectory,
    SignedBundle, StoredEntries,
};
use store::{ConfigChange, Vault};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;

/// Configuration that a bundle must fit.
#[derive(Clone, Copy)]
pub struct DirectoryContext<'a> {
    /// The file.
    pub config: &'a Config,
    /// Opens stored credentials.
    pub vault: &'a Vault,
}

/// A checked bundle that is not installed yet.
#[derive(Debug)]
pub struct DirectoryUpdate {
    /// Version of the bundle.
    pub version: u64,
    /// Date of its facts.
    pub as_of: String,
    /// Key that verified it.
    pub key: DirectoryKey,
    /// Differences to the directory in use.
    pub diff: DirectoryDiff,
    /// Entries that are older than the embedded facts and are not used.
    pub outdated: Vec<String>,
    record: DirectoryRecord,
    /// Largest version of a bundle that was ever installed, with this one.
    mark: u64,
    /// Revision of the stored configuration that it was checked with.
    revision: i64,
}

/// The directory in use.
#[derive(Debug)]
pub struct DirectoryStatus {
    /// The installed bundle.
    pub installed: Option<InstalledDirectory>,
    /// Differences to the embedded directory.
    pub diff: DirectoryDiff,
    /// Reason why the installed bundle is not used.
    pub issue: Option<String>,
}

/// Result of a removal.
#[derive(Debug)]
pub struct RemovedDirectory {
    /// Version of the removed bundle, if it could be used.
    pub version: Option<u64>,
    /// Stored entries that needed it and are left out now, with the reason.
    pub broken: ConfigIssues,
}

impl AccountAdmin {
    /// Returns the installed bundle.
    pub async fn directory_status(
        &self,
        actor: &Actor,
        context: DirectoryContext<'_>,
    ) -> Result<DirectoryStatus, AdminError> {
        actor.require_admin()?;
        let stored = self.read_stored(context).await?;
        let embedded = ModelDirectory::embedded();
        let issue = context.issues(&stored)?.remove(&EntryName::Directory);
        let in_use = directory_of(&stored).filter(|_| issue.is_none()).unwrap_or(embedded);
        Ok(DirectoryStatus { diff: embedded.diff(in_use), issue, installed: stored.directory })
    }

    /// Checks a signed bundle: signature, version, facts, and the configuration with it. An older bundle
    /// than any before is refused unless `allow_older`, also after the last one was removed.
    pub async fn check_directory_update(
        &self,
        actor: &Actor,
        context: DirectoryContext<'_>,
        signed: &[u8],
        trusted: &[DirectoryKey],
        allow_older: bool,
    ) -> Result<DirectoryUpdate, AdminError> {
        actor.require_admin()?;
        let refused = |reason: String| AdminError::invalid("", reason);
        let verified = SignedBundle::verify(signed, trusted).map_err(|e| refused(e.to_string()))?;
        let SignedBundle { text, key } = verified;
        let stored = self.read_stored(context).await?;
        let record = DirectoryRecord { key: key.to_string(), installed_at: self.now().get(), text };
        let next = InstalledDirectory::new(record.clone());
        let overlaid = next.overlaid.clone().map_err(refused)?;
        let (bundle, result) = &*overlaid;
        let DirectoryBundle { version, as_of, .. } = bundle;
        let installed = stored.directory.as_ref().and_then(InstalledDirectory::version);
        let known = installed.max(stored.directory_mark).filter(|known| version <= known);
        if let Some(known) = known.filter(|_| !allow_older) {
            return Err(refused(match installed.filter(|installed| version <= installed) {
                Some(installed) => {
                    format!("version {version} is not newer than the installed version {installed}")
                }
                None => format!(
                    "version {version} is not newer than version {known}, which was installed \
                     before; --allow-older installs it nevertheless"
                ),
            }));
        }
        bundle.check_facts(result, &latest_day()).map_err(|e| refused(e.reason))?;
        let before = context.issues(&stored)?;
        let after = context.issues(&StoredEntries { directory: Some(next), ..stored.clone() })?;
        let mut after = after.iter();
        if let Some((entry, why)) = after.find(|(entry, why)| before.get(entry) != Some(why)) {
            return Err(refused(match entry {
                EntryName::Directory => format!("the configuration would be wrong: {why}"),
                EntryName::Provider(_) | EntryName::Model(_) => {
                    format!("this would break {entry}: {why}")
                }
            }));
        }
        let in_use = directory_of(&stored).unwrap_or_else(|| ModelDirectory::embedded());
        Ok(DirectoryUpdate {
            version: *version,
            as_of: as_of.clone(),
            key,
            diff: in_use.diff(&result.directory),
            outdated: result.outdated.clone(),
            record,
            mark: known.unwrap_or(*version),
            revision: stored.revision,
        })
    }

    /// Installs a checked bundle.
    pub async fn install_directory(
        &self,
        actor: &Actor,
        update: &DirectoryUpdate,
    ) -> Result<(), AdminError> {
        actor.require_admin()?;
        let DirectoryUpdate { version, as_of, key, diff, record, mark, revision, .. } = update;
        let record =
            serde_json::to_string(record).map_err(|e| AdminError::Internal(e.to_string()))?;
        let detail = format!(
            "of {as_of}, signed by {key}; {} models changed, {} added, {} removed, {} prices",
            diff.changed.len(),
            diff.added.len(),
            diff.removed.len(),
            diff.prices.len()
        );
        let changes = [ConfigChange::Directory(Some(record)), ConfigChange::DirectoryMark(*mark)];
        let note = ["directory.update", &version.to_string(), &detail];
        self.change_directory(actor, *revision, &changes, note).await
    }

    /// Removes the installed bundle. Returns `None` if there is none.
    pub async fn remove_directory(
        &self,
        actor: &Actor,
        context: DirectoryContext<'_>,
    ) -> Result<Option<RemovedDirectory>, AdminError> {
        actor.require_admin()?;
        let stored = self.read_stored(context).await?;
        let Some(installed) = &stored.directory else { return Ok(None) };
        let version = installed.version();
        let before = context.issues(&stored)?;
        let mut broken = context.issues(&StoredEntries { directory: None, ..stored.clone() })?;
        broken.retain(|entry, why| before.get(entry) != Some(why));
        let subject = version.map_or_else(String::new, |version| version.to_string());
        let note = ["directory.remove", &subject, ""];
        // A bundle of an earlier program has no mark yet.
        let mark = version.max(stored.directory_mark).map(ConfigChange::DirectoryMark);
        let changes: Vec<_> = [ConfigChange::Directory(None)].into_iter().chain(mark).collect();
        self.change_directory(actor, stored.revision, &changes, note).await?;
        Ok(Some(RemovedDirectory { version, broken }))
    }

    async fn read_stored(
        &self,
        context: DirectoryContext<'_>,
    ) -> Result<StoredEntries, AdminError> {
        Ok(StoredEntries::open(self.store.configured().await?, context.vault))
    }

    async fn change_directory(
        &self,
        actor: &Actor,
        revision: i64,
        changes: &[ConfigChange],
        note: [&str; 3],
    ) -> Result<(), AdminError> {
        let mut audited = self.store.begin_change().await?;
        if !audited.configure(revision, changes).await? {
            return Err(AdminError::Concurrent);
        }
        Ok(self.commit(audited, actor, &[note]).await?)
    }
}

impl DirectoryContext<'_> {
    /// Returns the stored entries that could not be used, with the reason.
    fn issues(&self, stored: &StoredEntries) -> Result<ConfigIssues, AdminError> {
        let merged = self.config.validate(stored, CheckMode::Validate);
        Ok(merged.map_err(|why| AdminError::Internal(why.to_string()))?.issues)
    }
}

/// Checks a bundle that is not signed yet, by the rules of an update that do not depend on a machine.
pub fn check_bundle(text: &str) -> Result<DirectoryBundle, DirectoryError> {
    let bundle = DirectoryBundle::parse(text)?;
    bundle.check_facts(&bundle.overlay()?, &latest_day())?;
    Ok(bundle)
}

/// Returns the day that it is anywhere on earth, `YYYY-MM-DD`.
fn latest_day() -> String {
    let now = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(14);
    now.to_string().chars().take(10).collect()
}

/// Returns the directory of the installed bundle, if it can be used.
fn directory_of(stored: &StoredEntries) -> Option<&ModelDirectory> {
    stored.directory.as_ref()?.directory().ok()
}
