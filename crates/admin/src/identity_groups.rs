//! Groups of an identity provider: the role and the teams of an account follow them at each sign-in.

use config::IdentityProvider;
use store::{Account, AccountRole, AuditedChange, KeyOwner, MemberChange, PersonChange, TeamRole};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::signup::IdentityClaims;

/// Lines of the audit log that a sign-in causes, and the keys that it revokes.
#[derive(Default)]
struct GroupEffects {
    notes: Vec<[String; 3]>,
    revoked_keys: Vec<String>,
}

impl AccountAdmin {
    /// Gives an account the role and the teams of the person's groups, and takes those that the groups
    /// no longer give. Teams that no group names stay as they are, and so does an owner, unless the
    /// configuration says otherwise.
    pub async fn apply_groups(
        &self,
        provider: &IdentityProvider,
        person: &IdentityClaims,
        account: Account,
    ) -> Result<Account, AdminError> {
        let Some(mapping) = &provider.groups else { return Ok(account) };
        let mut change = self.store.begin_change().await?;
        // Read within the change, so that a concurrent one is not overwritten.
        let known = self.store.account(&account.id).await?;
        let account = known.ok_or(AdminError::NotFound("user"))?;
        let mut effects = GroupEffects::default();
        if mapping.gives_roles() {
            let role = mapping.role_of(&person.groups).or(provider.default_role);
            let role = role.unwrap_or(AccountRole::Viewer);
            let is_kept = account.role == AccountRole::Owner && !mapping.demotes_owners;
            if role != account.role && !is_kept {
                self.set_role(&mut change, provider, &account, role, &mut effects).await?;
            }
        }
        for (team, role) in mapping.teams_of(&person.groups) {
            self.set_seat(&mut change, provider, &account, (team, role), &mut effects).await?;
        }
        let GroupEffects { notes, revoked_keys } = effects;
        if notes.is_empty() {
            return Ok(account);
        }
        let notes: Vec<[&str; 3]> = notes
            .iter()
            .map(|[action, subject, detail]| [action.as_str(), subject.as_str(), detail.as_str()])
            .collect();
        self.commit(change, &Actor::Person(account.clone()), &notes).await?;
        for key in &revoked_keys {
            self.reload_key(key).await?;
        }
        self.store.account(&account.id).await?.ok_or(AdminError::NotFound("user"))
    }

    async fn set_role(
        &self,
        change: &mut AuditedChange,
        provider: &IdentityProvider,
        account: &Account,
        role: AccountRole,
        effects: &mut GroupEffects,
    ) -> Result<(), AdminError> {
        match change.change_person(&account.id, Some(role), None, self.now()).await? {
            PersonChange::Done => {
                let detail = format!("{} by the groups of {}", role.word(), provider.name);
                effects.notes.push(["account.role".to_owned(), account.id.clone(), detail]);
                Ok(())
            }
            PersonChange::Missing => Err(AdminError::NotFound("user")),
            PersonChange::LastOwner => {
                tracing::warn!(
                    identity = provider.name,
                    account.id = account.id,
                    "the groups of `{}` would take the role of the only owner; it stays",
                    provider.name
                );
                Ok(())
            }
        }
    }

    async fn set_seat(
        &self,
        change: &mut AuditedChange,
        provider: &IdentityProvider,
        account: &Account,
        (name, role): (&str, Option<TeamRole>),
        effects: &mut GroupEffects,
    ) -> Result<(), AdminError> {
        let team = match self.store.owner_by_name(name).await? {
            Some(KeyOwner::Team(team)) => team,
            Some(KeyOwner::Person(_)) | None => {
                tracing::warn!(
                    identity = provider.name,
                    "the groups of `{}` name the team `{name}`, which does not exist",
                    provider.name
                );
                return Ok(());
            }
        };
        if self.team_role(&account.id, &team.id).await? == role {
            return Ok(());
        }
        let by = format!("by the groups of {}", provider.name);
        if role.is_none() {
            // Keys that the person signed in for are the person's.
            for key in self.signed_in_keys(&team, &account.id).await? {
                if change.revoke_key(&key.id, self.now()).await? {
                    effects.notes.push(["key.revoke".to_owned(), key.id.clone(), key.name]);
                    effects.revoked_keys.push(key.id);
                }
            }
        }
        match change.set_member(&team.id, &account.id, role, true, self.now()).await? {
            MemberChange::Done => {}
            MemberChange::Missing | MemberChange::LastManager => {
                return Err(AdminError::NotFound("member"));
            }
        }
        let (action, detail) = match role {
            Some(role) => ("team.member", format!("{} {} {by}", account.id, role.word())),
            None => ("team.remove_member", format!("{} {by}", account.id)),
        };
        effects.notes.push([action.to_owned(), team.id, detail]);
        Ok(())
    }
}
