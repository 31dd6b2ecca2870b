//! Changes of the stored configuration: one at a time, on the latest revision, and only if the
//! result is valid.

use config::{CheckMode, Config, EntryName, FieldError, MergedConfig, StoredEntries};
use std::sync::Arc;
use store::ConfigChange;
use tokio::sync::MutexGuard;

use crate::Admin;
use crate::account_admin::AuditNote;
use crate::actor::Actor;
use crate::error::AdminError;

/// A change in progress. While it lives, this node starts no other change.
pub(crate) struct ConfigEdit<'a> {
    admin: &'a Admin,
    /// Configuration in force.
    pub(crate) config: Arc<Config>,
    /// Stored configuration that the change starts from.
    pub(crate) stored: Arc<StoredEntries>,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> ConfigEdit<'a> {
    /// Waits for other changes on this node and reads the latest revision.
    pub(crate) async fn begin(admin: &'a Admin) -> Result<Self, AdminError> {
        let turn = admin.stored.change_lock.lock().await;
        admin.refresh_stored_config().await?;
        let (config, stored) = admin.current_config();
        Ok(Self { admin, config, stored, _turn: turn })
    }

    /// Validates the next configuration. It must add no issue to any entry.
    pub(crate) fn validate(
        &self,
        next: &StoredEntries,
        about: &EntryName,
    ) -> Result<MergedConfig, AdminError> {
        let validate = |stored: &StoredEntries| {
            self.config
                .validate(stored, CheckMode::Validate)
                .map_err(|why| AdminError::Internal(why.to_string()))
        };
        let after = validate(next)?;
        if let Some(why) = after.issues.get(about) {
            return Err(match why.split_once(": ") {
                Some((field, why)) if !field.contains(' ') => AdminError::invalid(field, why),
                _ => AdminError::invalid("", why.clone()),
            });
        }
        let before = validate(&self.stored)?.issues;
        match after.issues.iter().find(|(entry, why)| before.get(entry) != Some(why)) {
            Some((entry, why)) => {
                Err(AdminError::invalid("", format!("this would break {entry}: {why}")))
            }
            None => Ok(after),
        }
    }

    /// Stores the changes with their line of the audit log and installs the resulting configuration.
    pub(crate) async fn commit(
        &self,
        actor: &Actor,
        changes: &[ConfigChange],
        note: AuditNote<'_>,
    ) -> Result<(), AdminError> {
        match self.admin.change_stored_config(actor, &self.stored, changes, note).await? {
            true => Ok(()),
            false => Err(AdminError::Concurrent),
        }
    }
}

/// Error for a setting that the configuration cannot read.
pub(crate) fn field_error(wrong: &FieldError) -> AdminError {
    AdminError::invalid(wrong.field.clone(), wrong.reason.clone())
}
