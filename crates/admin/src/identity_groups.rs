//! Groups of an identity provider: the role and the teams of an account follow them, at each sign-in and with
//! each change that the provider makes with SCIM.

use config::{GroupMapping, IdentityProvider};
use std::collections::{BTreeMap, HashMap};
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

/// An account, its groups, and its roles in teams by their ids.
pub(crate) struct GroupStanding {
    pub(crate) account: Account,
    pub(crate) groups: Vec<String>,
    pub(crate) seats: Vec<(String, TeamRole)>,
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
        let standing = GroupStanding { account: account.clone(), groups: groups.clone(), seats };
        let plans = self.plan_groups(&mapped, vec![standing]).await?;
        let mut effects = GroupEffects::default();
        self.write_groups(&mut change, provider, &plans, &mut effects).await?;
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

    /// Compares accounts and their roles in teams with their groups. Nothing is written.
    pub(crate) async fn plan_groups(
        &self,
        mapped: &MappedTeams<'_>,
        standings: Vec<GroupStanding>,
    ) -> Result<Vec<GroupPlan>, AdminError> {
        let MappedTeams { mapping, teams, .. } = mapped;
        let mut plans = Vec::with_capacity(standings.len());
        for GroupStanding { account, groups, seats: seats_now } in standings {
            let role = self.planned_role(mapped, &account, &groups).await?;
            let mut seats = Vec::new();
            for (name, role) in mapping.teams_of(&groups) {
                let Some(team) = teams.get(name) else { continue };
                let now = seats_now.iter().find(|(id, _)| *id == team.id).map(|(_, role)| *role);
                if now != role {
                    seats.push((team.clone(), role));
                }
            }
            plans.push(GroupPlan { account, role, seats, ended_keys: Vec::new() });
        }
        self.plan_ended_keys(&mut plans).await?;
        Ok(plans)
    }

    /// Returns the new role of an account; `None` if it stays.
    async fn planned_role(
        &self,
        mapped: &MappedTeams<'_>,
        account: &Account,
        groups: &[String],
    ) -> Result<Option<AccountRole>, AdminError> {
        let MappedTeams { provider, mapping, .. } = mapped;
        if !mapping.gives_roles() {
            return Ok(None);
        }
        let role = mapping.role_of(groups).or(provider.default_role);
        let role = role.unwrap_or(AccountRole::Viewer);
        if role == account.role {
            return Ok(None);
        }
        if account.role == AccountRole::Owner {
            if !mapping.demotes_owners {
                return Ok(None);
            }
            if !self.has_other_owner(&account.id).await? {
                warn_of_only_owner(provider, account);
                return Ok(None);
            }
        }
        Ok(Some(role))
    }

    /// Adds the keys for which people signed in, in the teams that they leave. These keys are the person's.
    async fn plan_ended_keys(&self, plans: &mut [GroupPlan]) -> Result<(), AdminError> {
        let leaving = plans.iter().filter(|plan| plan.seats.iter().any(|(_, role)| role.is_none()));
        let leaving: Vec<&str> = leaving.map(|plan| plan.account.id.as_str()).collect();
        let mut keys_of: HashMap<String, Vec<KeyRecord>> = HashMap::new();
        for key in self.store.keys_signed_in_by(&leaving).await? {
            if let Some(person) = key.created_by.clone() {
                keys_of.entry(person).or_default().push(key);
            }
        }
        for plan in plans {
            let mut keys = keys_of.remove(&plan.account.id).unwrap_or_default();
            let left = |key: &KeyRecord| {
                plan.seats.iter().any(|(team, role)| role.is_none() && team.id == key.account_id)
            };
            keys.retain(left);
            plan.ended_keys = keys;
        }
        Ok(())
    }

    /// Writes the changes of plans, those of one kind together.
    pub(crate) async fn write_groups(
        &self,
        change: &mut AuditedChange,
        provider: &IdentityProvider,
        plans: &[GroupPlan],
        effects: &mut GroupEffects,
    ) -> Result<(), AdminError> {
        self.write_roles(change, provider, plans, effects).await?;
        for key in plans.iter().flat_map(|plan| &plan.ended_keys) {
            if change.revoke_key(&key.id, self.now()).await? {
                let note = ["key.revoke".to_owned(), key.id.clone(), key.name.clone()];
                effects.notes.push(note);
                effects.revoked_keys.push(key.id.clone());
            }
        }
        let by = format!("by the groups of {}", provider.name);
        let mut changes: BTreeMap<&str, Vec<(&str, Option<TeamRole>)>> = BTreeMap::new();
        for plan in plans {
            let id = plan.account.id.as_str();
            for (team, role) in &plan.seats {
                changes.entry(&team.id).or_default().push((id, *role));
                let (action, detail) = match role {
                    Some(role) => ("team.member", format!("{id} {} {by}", role.word())),
                    None => ("team.remove_member", format!("{id} {by}")),
                };
                effects.notes.push([action.to_owned(), team.id.clone(), detail]);
            }
        }
        for (team_id, changes) in changes {
            match change.set_members(team_id, &changes, self.now()).await? {
                MemberChange::Done => {}
                MemberChange::Missing | MemberChange::LastManager => {
                    return Err(AdminError::NotFound("member"));
                }
            }
        }
        Ok(())
    }

    async fn write_roles(
        &self,
        change: &mut AuditedChange,
        provider: &IdentityProvider,
        plans: &[GroupPlan],
        effects: &mut GroupEffects,
    ) -> Result<(), AdminError> {
        let planned = plans.iter().filter_map(|plan| plan.role.map(|role| (&plan.account, role)));
        let planned: Vec<(&Account, AccountRole)> = planned.collect();
        let changes: Vec<_> = planned.iter().map(|(one, role)| (one.id.as_str(), *role)).collect();
        if changes.is_empty() {
            return Ok(());
        }
        let results = change.change_roles(&changes, self.now()).await?;
        for ((account, role), result) in planned.into_iter().zip(results) {
            match result {
                PersonChange::Done => {
                    let detail = format!("{} by the groups of {}", role.word(), provider.name);
                    effects.notes.push(["account.role".to_owned(), account.id.clone(), detail]);
                }
                PersonChange::Missing => return Err(AdminError::NotFound("user")),
                PersonChange::LastOwner => warn_of_only_owner(provider, account),
            }
        }
        Ok(())
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
