//! Changes of the stored configuration: one at a time, on the latest revision, and only if the
//! result is valid.

use canon::{ApiError, ErrorKind};
use std::sync::Arc;
use store::ConfigChange;
use tokio::sync::MutexGuard;

use super::{invalid_field, store_error};
use crate::state::ApiState;
use config::{CheckMode, Config, EntryName, FieldError, MergedConfig, StoredEntries};

/// A change in progress. While it lives, this node starts no other change.
pub(super) struct ConfigEdit<'a> {
    pub(super) stored: Arc<StoredEntries>,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> ConfigEdit<'a> {
    pub(super) async fn begin(state: &'a ApiState) -> Result<Self, ApiError> {
        let guard = state.admin.stored.change_lock.lock().await;
        state.admin.refresh_stored_config().await.map_err(store_error)?;
        Ok(Self { stored: state.admin.current_config().1, _turn: guard })
    }

    /// Stores the changes and installs the resulting configuration.
    pub(super) async fn commit(
        &self,
        state: &ApiState,
        changes: &[ConfigChange],
    ) -> Result<(), ApiError> {
        if state.admin.change_stored_config(&self.stored, changes).await.map_err(store_error)? {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorKind::PreconditionFailed,
            "another change was made at the same time; try again",
        ))
    }
}

/// Validates the next configuration. It must add no issue to any entry.
pub(super) fn validate_change(
    config: &Config,
    current: &StoredEntries,
    next: &StoredEntries,
    about: &EntryName,
) -> Result<MergedConfig, ApiError> {
    let validate = |stored: &StoredEntries| {
        config
            .validate(stored, CheckMode::Validate)
            .map_err(|why| ApiError::internal(why.to_string()))
    };
    let after = validate(next)?;
    if let Some(why) = after.issues.get(about) {
        return Err(match why.split_once(": ") {
            Some((field, why)) if !field.contains(' ') => invalid_field(field, why),
            _ => ApiError::invalid("", why.clone()),
        });
    }
    let before = validate(current)?.issues;
    match after.issues.iter().find(|(entry, why)| before.get(entry) != Some(why)) {
        Some((entry, why)) => {
            Err(ApiError::invalid("", format!("this would break {entry}: {why}")))
        }
        None => Ok(after),
    }
}

pub(super) fn field_error(wrong: &FieldError) -> ApiError {
    if wrong.field.is_empty() {
        return ApiError::invalid("", wrong.reason.clone());
    }
    invalid_field(wrong.field.clone(), wrong.reason.clone())
}
