//! Groups of an identity provider: the role and the teams of an account follow them, at each sign-in and with
//! each change that the provider makes with SCIM.

use config::{GroupMapping, IdentityProvider};
use std::collections::BTreeMap;
use store::{
    Account, AccountRole, AuditedChange, KeyOwner, KeyRecord, MemberChange, PersonChange, Team,
    TeamRole,
};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::signup::IdentityClaims;

/// Lines of the audit log that groups cause, and the keys that they revoke.
#[derive(Default)]
pub(crate) struct GroupEffects {
    pub(crate) notes: Vec<[String; 3]>,
    pub(crate) revoked_keys: Vec<String>,
}

/// Groups of a provider, and the teams that they give, by name.
pub(crate) struct MappedTeams<'a> {
    pub(crate) provider: &'a IdentityProvider,
    pub(crate) mapping: &'a GroupMapping,
    pub(crate) teams: BTreeMap<String, Team>,
}

/// Changes of an account that its groups ask for.
pub(crate) struct GroupPlan {
    account: Account,
    role: Option<AccountRole>,
    seats: Vec<(Team, Option<TeamRole>)>,
    /// Keys of teams that the person leaves, for which the person signed in.
    ended_keys: Vec<KeyRecord>,
}

impl AccountAdmin {
    /// Gives an account the role and the teams of the person's groups, and takes those that the groups
    /// no longer give. Teams that no group names stay as they are, and so does an owner, unless the
    /// configuration says otherwise. If the provider sends groups with SCIM, they count and the claim
    /// does not.
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
        let provisioned = self.provisioned_groups(provider, &account.id).await?;
        let groups = provisioned.as_ref().unwrap_or(&person.groups);
        let mapped = self.mapped_teams(provider, mapping).await?;
        let seats = self.store.memberships_of(&account.id).await?;
        let seats: Vec<_> = seats.into_iter().map(|seat| (seat.team.id, seat.role)).collect();
        let plan = self.plan_groups(&mapped, groups, account, &seats).await?;
        let mut effects = GroupEffects::default();
        self.write_groups(&mut change, provider, &plan, &mut effects).await?;
        let account = plan.account;
        if effects.notes.is_empty() {
            return Ok(account);
        }
        self.commit_effects(change, &Actor::Person(account.clone()), effects).await?;
        self.store.account(&account.id).await?.ok_or(AdminError::NotFound("user"))
    }

    /// Stores a change with the lines of its effects, and applies the revocations on this node.
    pub(crate) async fn commit_effects(
        &self,
        change: AuditedChange,
        actor: &Actor,
        effects: GroupEffects,
    ) -> Result<(), AdminError> {
        let GroupEffects { notes, revoked_keys } = effects;
        let notes: Vec<[&str; 3]> = notes
            .iter()
            .map(|[action, subject, detail]| [action.as_str(), subject.as_str(), detail.as_str()])
            .collect();
        self.commit(change, actor, &notes).await?;
        for key in &revoked_keys {
            self.reload_key(key).await?;
        }
        Ok(())
    }

    /// Finds the teams that groups of a provider give.
    pub(crate) async fn mapped_teams<'a>(
        &self,
        provider: &'a IdentityProvider,
        mapping: &'a GroupMapping,
    ) -> Result<MappedTeams<'a>, AdminError> {
        let mut teams = BTreeMap::new();
        for name in mapping.teams_of(&[]).into_keys() {
            match self.store.owner_by_name(name).await? {
                Some(KeyOwner::Team(team)) => {
                    teams.insert(name.to_owned(), team);
                }
                Some(KeyOwner::Person(_)) | None => {
                    tracing::warn!(
                        identity = provider.name,
                        "the groups of `{}` name the team `{name}`, which does not exist",
                        provider.name
                    );
                }
            }
        }
        Ok(MappedTeams { provider, mapping, teams })
    }

    /// Compares an account and its roles in teams with its groups. Nothing is written.
    pub(crate) async fn plan_groups(
        &self,
        mapped: &MappedTeams<'_>,
        groups: &[String],
        account: Account,
        seats_now: &[(String, TeamRole)],
    ) -> Result<GroupPlan, AdminError> {
        let MappedTeams { provider, mapping, teams } = mapped;
        let mut new_role = None;
        if mapping.gives_roles() {
            let role = mapping.role_of(groups).or(provider.default_role);
            let role = role.unwrap_or(AccountRole::Viewer);
            new_role = (role != account.role).then_some(role);
            if new_role.is_some() && account.role == AccountRole::Owner {
                if !mapping.demotes_owners {
                    new_role = None;
                } else if !self.has_other_owner(&account.id).await? {
                    warn_of_only_owner(provider, &account);
                    new_role = None;
                }
            }
        }
        let (mut seats, mut ended_keys) = (Vec::new(), Vec::new());
        for (name, role) in mapping.teams_of(groups) {
            let Some(team) = teams.get(name) else { continue };
            let now = seats_now.iter().find(|(id, _)| *id == team.id).map(|(_, role)| *role);
            if now == role {
                continue;
            }
            if role.is_none() {
                // Keys that the person signed in for are the person's.
                ended_keys.extend(self.signed_in_keys(team, &account.id).await?);
            }
            seats.push((team.clone(), role));
        }
        Ok(GroupPlan { account, role: new_role, seats, ended_keys })
    }

    /// Writes the changes of a plan.
    pub(crate) async fn write_groups(
        &self,
        change: &mut AuditedChange,
        provider: &IdentityProvider,
        plan: &GroupPlan,
        effects: &mut GroupEffects,
    ) -> Result<(), AdminError> {
        let GroupPlan { account, role, seats, ended_keys } = plan;
        if let Some(role) = role {
            self.set_role(change, provider, account, *role, effects).await?;
        }
        for key in ended_keys {
            if change.revoke_key(&key.id, self.now()).await? {
                let note = ["key.revoke".to_owned(), key.id.clone(), key.name.clone()];
                effects.notes.push(note);
                effects.revoked_keys.push(key.id.clone());
            }
        }
        let by = format!("by the groups of {}", provider.name);
        for (team, role) in seats {
            match change.set_member(&team.id, &account.id, *role, true, self.now()).await? {
                MemberChange::Done => {}
                MemberChange::Missing | MemberChange::LastManager => {
                    return Err(AdminError::NotFound("member"));
                }
            }
            let (action, detail) = match role {
                Some(role) => ("team.member", format!("{} {} {by}", account.id, role.word())),
                None => ("team.remove_member", format!("{} {by}", account.id)),
            };
            effects.notes.push([action.to_owned(), team.id.clone(), detail]);
        }
        Ok(())
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
                warn_of_only_owner(provider, account);
                Ok(())
            }
        }
    }
}

fn warn_of_only_owner(provider: &IdentityProvider, account: &Account) {
    tracing::warn!(
        identity = provider.name,
        account.id = account.id,
        "the groups of `{}` would take the role of the only owner who can sign in; it stays",
        provider.name
    );
}
