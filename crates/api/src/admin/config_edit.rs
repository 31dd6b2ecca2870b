//! How a change of providers and models is made: on the state that was seen, after the whole was
//! judged, one at a time.

use canon::{ApiError, ErrorKind};
use std::sync::Arc;
use store::ConfigChange;
use tokio::sync::MutexGuard;

use super::{invalid_field, store_fault};
use crate::state::ApiState;
use config::{CheckMode, Config, EntryName, FieldError, MergedConfig, StoredEntries};

/// What is stored, as a change sees it. While it lives, this node makes no other change.
pub(super) struct ConfigEdit<'a> {
    pub(super) stored: Arc<StoredEntries>,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> ConfigEdit<'a> {
    pub(super) async fn begin(state: &'a ApiState) -> Result<Self, ApiError> {
        let turn = state.admin.stored.change_lock.lock().await;
        state.admin.refresh_stored_config().await.map_err(store_fault)?;
        Ok(Self { stored: state.admin.current_config().1, _turn: turn })
    }

    /// Makes the changes, and serves by them.
    pub(super) async fn commit(
        &self,
        state: &ApiState,
        changes: &[ConfigChange],
    ) -> Result<(), ApiError> {
        if state.admin.change_stored_config(&self.stored, changes).await.map_err(store_fault)? {
            return Ok(());
        }
        Err(ApiError::new(
            ErrorKind::PreconditionFailed,
            "somebody else made a change at this moment; try again",
        ))
    }
}

/// What the next state comes to, if it brings nothing into trouble that was in none.
pub(super) fn validate_change(
    config: &Config,
    seen: &StoredEntries,
    next: &StoredEntries,
    about: &EntryName,
) -> Result<MergedConfig, ApiError> {
    let judge = |stored: &StoredEntries| {
        config
            .validate(stored, CheckMode::Validate)
            .map_err(|why| ApiError::internal(why.to_string()))
    };
    let after = judge(next)?;
    if let Some(why) = after.issues.get(about) {
        return Err(match why.split_once(": ") {
            Some((field, why)) if !field.contains(' ') => invalid_field(field, why),
            _ => ApiError::invalid("", why.clone()),
        });
    }
    let before = judge(seen)?.issues;
    match after.issues.iter().find(|(entry, why)| before.get(entry) != Some(why)) {
        Some((entry, why)) => {
            Err(ApiError::invalid("", format!("this would break {entry}: {why}")))
        }
        None => Ok(after),
    }
}

pub(super) fn field_fault(wrong: &FieldError) -> ApiError {
    if wrong.field.is_empty() {
        return ApiError::invalid("", wrong.reason.clone());
    }
    invalid_field(wrong.field.clone(), wrong.reason.clone())
}
