//! How a change of providers and models is made: on the state that was seen, after the whole was
//! judged, one at a time.

use canon::{ApiError, ErrorKind};
use std::sync::Arc;
use store::ConfigChange;
use tokio::sync::MutexGuard;

use super::{away, invalid};
use crate::state::ApiState;
use config::{Config, Entry, Look, Places, Stored, WrongField};

/// What is stored, as a change sees it. While it lives, this node makes no other change.
pub(super) struct Seen<'a> {
    pub(super) stored: Arc<Stored>,
    _turn: MutexGuard<'a, ()>,
}

impl<'a> Seen<'a> {
    pub(super) async fn now(state: &'a ApiState) -> Result<Self, ApiError> {
        let turn = state.admin.stored.turn.lock().await;
        state.admin.fresh_places().await.map_err(away)?;
        Ok(Self { stored: state.admin.in_force().1, _turn: turn })
    }

    /// Makes the changes, and serves by them.
    pub(super) async fn change(&self, state: &ApiState, changes: &[ConfigChange]) -> Result<(), ApiError> {
        if state.admin.change_places(&self.stored, changes).await.map_err(away)? {
            return Ok(());
        }
        Err(ApiError::new(ErrorKind::PreconditionFailed, "somebody else made a change at this moment; try again"))
    }
}

/// What the next state comes to, if it brings nothing into trouble that was in none.
pub(super) fn judged(
    config: &Config,
    seen: &Stored,
    next: &Stored,
    about: &Entry,
) -> Result<Places, ApiError> {
    let judge = |stored: &Stored| {
        config.judge(stored, Look::Judge).map_err(|why| ApiError::internal(why.to_string()))
    };
    let after = judge(next)?;
    if let Some(why) = after.troubles.get(about) {
        return Err(match why.split_once(": ") {
            Some((field, why)) if !field.contains(' ') => invalid(field, why),
            _ => ApiError::invalid("", why.clone()),
        });
    }
    let before = judge(seen)?.troubles;
    match after.troubles.iter().find(|(entry, why)| before.get(entry) != Some(why)) {
        Some((entry, why)) => Err(ApiError::invalid("", format!("this would break {entry}: {why}"))),
        None => Ok(after),
    }
}

pub(super) fn wrong_field(wrong: &WrongField) -> ApiError {
    if wrong.field.is_empty() {
        return ApiError::invalid("", wrong.why.clone());
    }
    invalid(wrong.field.clone(), wrong.why.clone())
}
