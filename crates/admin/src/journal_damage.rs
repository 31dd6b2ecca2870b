//! Damaged files of a node's journal.

use std::io;
use std::path::Path;

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;

impl AccountAdmin {
    /// Accepts the loss in a damaged file of the journal in that folder. From then on nothing reports
    /// it any more.
    pub async fn accept_journal_damage(
        &self,
        actor: &Actor,
        folder: &Path,
        file: &str,
    ) -> Result<(), AdminError> {
        actor.require_admin()?;
        let failed = |e: io::Error| AdminError::Internal(e.to_string());
        let damaged = ledger::damaged_files(folder).map_err(failed)?;
        if !damaged.iter().any(|name| name == file) {
            return Err(AdminError::NotFound("damaged file of the journal"));
        }
        // The line comes first, so that no loss is accepted without one.
        self.record_event(actor, ["journal.accept_damage", file, ""]).await?;
        ledger::accept_damage(folder, file).map_err(failed)
    }
}
