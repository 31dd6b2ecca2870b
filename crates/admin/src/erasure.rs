//! Erasure of the personal data of an account.

use relay::FileStore;
use serde_json::Value;
use store::{Account, AccountRole, ClusterTurn, ErasedCounts, PersonChange, TURN_TIME};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;

impl AccountAdmin {
    /// Returns the account and the numbers of rows that an erasure deletes or changes. For owners.
    pub async fn erasure_preview(
        &self,
        actor: &Actor,
        id: &str,
    ) -> Result<(Account, ErasedCounts), AdminError> {
        require_owner(actor)?;
        let account = self.user_for_change(actor, id).await?;
        let counts = self.store.erasure_counts(&account.id).await?;
        Ok((account, counts))
    }

    /// Erases the personal data of an account, locks it for good and revokes its keys. Its sums stay. For owners.
    pub async fn erase_account(
        &self,
        actor: &Actor,
        id: &str,
        files: &FileStore,
    ) -> Result<ErasedCounts, AdminError> {
        require_owner(actor)?;
        let account = self.user_for_change(actor, id).await?;
        self.store.overwrite_deleted(true).await?;
        let erased = self.erase(actor, &account, files).await;
        self.store.overwrite_deleted(false).await?;
        erased
    }

    async fn erase(
        &self,
        actor: &Actor,
        account: &Account,
        files: &FileStore,
    ) -> Result<ErasedCounts, AdminError> {
        // They may be many, so they are found before others wait for the change.
        let lines = self.store.lines_naming(account).await?;
        let mut change = self.store.begin_change().await?;
        // An account that nobody can use owns nothing.
        let role = Some(AccountRole::Viewer);
        match change.change_person(&account.id, role, Some(true), self.now()).await? {
            PersonChange::Done => {}
            PersonChange::Missing => return Err(AdminError::NotFound("user")),
            PersonChange::LastOwner => {
                return Err(AdminError::forbidden(
                    "this is the only owner; create another one first",
                ));
            }
        }
        let mut counts = change.erase_account(account, self.now()).await?;
        let named_lines = change.erase_names_in_audits(account, lines).await?;
        let keys = counts.get("keys").copied().unwrap_or_default();
        let detail = format!("{keys} keys revoked");
        self.commit(change, actor, &[["account.erase", &account.id, &detail]]).await?;
        self.reload_keys_of(&account.id).await?;
        *counts.entry("audit_lines").or_default() += named_lines;
        let process = format!("erasure {}", uuid::Uuid::now_v7());
        if !self.store.wait_for_turn(ClusterTurn::Retention, &process).await? {
            return Err(AdminError::Conflict(format!(
                "the account is locked and its names are erased, but calls are being archived for long; \
                 the rest is erased by a running gateway within minutes, or by `portunus forget {}`",
                account.id
            )));
        }
        let erasing = self.erase_rest(&account.id, files);
        let rest = self.store.in_turn(ClusterTurn::Retention, &process, TURN_TIME, erasing).await?;
        for (table, count) in rest? {
            *counts.entry(table).or_default() += count;
        }
        Ok(counts)
    }

    /// Erases the rest of an account whose names are erased. The caller holds the turn of retention.
    pub async fn erase_rest(
        &self,
        account_id: &str,
        files: &FileStore,
    ) -> Result<ErasedCounts, AdminError> {
        let (bodies, results) = self.store.task_files_of(account_id).await?;
        let names = bodies.into_iter().chain(results.iter().flat_map(|result| file_names(result)));
        let mut deleted = 0;
        for name in names {
            files.delete(&name).await;
            deleted += 1;
        }
        let mut counts = self.store.erase_rest(account_id, self.now()).await?;
        counts.insert("files", deleted);
        Ok(counts)
    }
}

/// Erasure cannot be undone, so that it is for owners and the operator.
fn require_owner(actor: &Actor) -> Result<(), AdminError> {
    actor.require_admin()?;
    match actor.account() {
        Some(account) if account.role != AccountRole::Owner => {
            Err(AdminError::forbidden("only an owner may erase an account"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the names of the stored files in the result of a task.
fn file_names(result: &str) -> Vec<String> {
    let result: Value = serde_json::from_str(result).unwrap_or_default();
    let pictures = result.get("data").and_then(Value::as_array).into_iter().flatten();
    let names = pictures.filter_map(|picture| picture.get("file").and_then(Value::as_str));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_result_are_found() {
        let result = r#"{"data":[{"file":"a.png"},{"url":"x"},{"file":"b.png"}]}"#;
        assert_eq!(file_names(result), ["a.png", "b.png"]);
        assert_eq!(file_names("no JSON"), Vec::<String>::new());
    }
}
