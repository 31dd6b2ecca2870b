//! Groups of an identity provider. The configuration maps them to roles and teams, as it does with the groups that a
//! sign-in names, and a change of members has its effect at once.

use std::collections::BTreeSet;
use store::{AuditedChange, ScimGroup, ScimGroupCondition, ScimStanding};

use super::drafts::ScimGroupDraft;
use super::problem::{ScimErrorKind, ScimProblem};
use super::tokens::ScimClient;
use super::users::{later_than, note};
use crate::account_admin::AccountAdmin;
use crate::identity_groups::{GroupEffects, GroupPlan, GroupStanding};

/// A change of a group: the state before and after it.
struct GroupTransition<'a> {
    group_id: &'a str,
    before: &'a ScimGroupDraft,
    /// `None` if the group is deleted.
    after: Option<&'a ScimGroupDraft>,
    /// Members that the request names. What their groups give is restored if something else took it.
    named: &'a BTreeSet<String>,
}

impl AccountAdmin {
    /// Returns groups of the provider that meet the conditions, and the number of all that do.
    pub async fn scim_group_page(
        &self,
        client: &ScimClient,
        conditions: &[ScimGroupCondition],
        skip: i64,
        limit: i64,
    ) -> Result<(Vec<ScimGroup>, i64), ScimProblem> {
        let total = self.store.scim_group_count(client.identity(), conditions).await?;
        let groups = match limit {
            0 => Vec::new(),
            _ => self.store.scim_groups(client.identity(), conditions, skip, limit).await?,
        };
        Ok((groups, total))
    }

    /// Returns a group of the provider.
    pub async fn scim_group(
        &self,
        client: &ScimClient,
        id: &str,
    ) -> Result<ScimGroup, ScimProblem> {
        let found = self.store.scim_group(client.identity(), id).await?;
        found.ok_or_else(|| ScimProblem::not_found("group"))
    }

    /// Creates a group of the provider.
    pub async fn create_scim_group(
        &self,
        client: &ScimClient,
        draft: &ScimGroupDraft,
    ) -> Result<ScimGroup, ScimProblem> {
        draft.check()?;
        let mut change = self.begin_scim_change(client).await?;
        self.require_free_group(client, &draft.display_name).await?;
        let added: Vec<String> = draft.members.iter().cloned().collect();
        self.require_known_members(client, &added).await?;
        let now = self.now();
        let group = ScimGroup {
            id: uuid::Uuid::now_v7().to_string(),
            identity: client.identity().to_owned(),
            display_name: draft.display_name.clone(),
            external_id: draft.external_id.clone(),
            created: now,
            changed: now,
        };
        let (before, named) = (ScimGroupDraft::default(), &draft.members);
        let transition =
            GroupTransition { group_id: &group.id, before: &before, after: Some(draft), named };
        let plans = self.plan_transition(client, &transition).await?;
        change.put_scim_group(&group).await?;
        change.change_scim_members(&group.id, &added, &[]).await?;
        let mut effects = GroupEffects::default();
        let detail = format!("{}, {} members", draft.display_name, added.len());
        effects.notes.push(note("scim.create_group", &group.id, &detail));
        self.write_groups(&mut change, &client.provider, &plans, &mut effects).await?;
        self.commit_effects(change, &client.actor(), effects).await?;
        Ok(group)
    }

    /// Changes a group of the provider. `edit` gets the group as it is when no other change runs, and returns the
    /// members that the request names. They get the rights of their groups even if they are members already.
    pub async fn change_scim_group(
        &self,
        client: &ScimClient,
        id: &str,
        is_read: impl FnOnce(&ScimGroup) -> Result<(), ScimProblem>,
        edit: impl FnOnce(&mut ScimGroupDraft) -> Result<BTreeSet<String>, ScimProblem>,
    ) -> Result<ScimGroup, ScimProblem> {
        let mut change = self.begin_scim_change(client).await?;
        let group = self.scim_group(client, id).await?;
        is_read(&group)?;
        let before = self.scim_group_draft(&group).await?;
        let mut draft = before.clone();
        let named = edit(&mut draft)?;
        draft.check()?;
        if draft.display_name.to_lowercase() != before.display_name.to_lowercase() {
            self.require_free_group(client, &draft.display_name).await?;
        }
        let added: Vec<String> = draft.members.difference(&before.members).cloned().collect();
        let removed: Vec<String> = before.members.difference(&draft.members).cloned().collect();
        self.require_known_members(client, &added).await?;
        let transition =
            GroupTransition { group_id: id, before: &before, after: Some(&draft), named: &named };
        let plans = self.plan_transition(client, &transition).await?;
        if draft == before {
            self.restore_rights(client, change, &plans).await?;
            return Ok(group);
        }
        let changed = ScimGroup {
            display_name: draft.display_name.clone(),
            external_id: draft.external_id.clone(),
            changed: later_than(group.changed, self.now()),
            ..group
        };
        change.put_scim_group(&changed).await?;
        change.change_scim_members(id, &added, &removed).await?;
        let mut effects = GroupEffects::default();
        let detail = format!(
            "{}, {} members added, {} removed",
            draft.display_name,
            added.len(),
            removed.len()
        );
        effects.notes.push(note("scim.change_group", id, &detail));
        self.write_groups(&mut change, &client.provider, &plans, &mut effects).await?;
        self.commit_effects(change, &client.actor(), effects).await?;
        Ok(changed)
    }

    /// Deletes a group of the provider. Its members lose the rights that only this group gave.
    pub async fn delete_scim_group(
        &self,
        client: &ScimClient,
        id: &str,
        is_read: impl FnOnce(&ScimGroup) -> Result<(), ScimProblem>,
    ) -> Result<(), ScimProblem> {
        let mut change = self.begin_scim_change(client).await?;
        let group = self.scim_group(client, id).await?;
        is_read(&group)?;
        let before = self.scim_group_draft(&group).await?;
        let named = BTreeSet::new();
        let transition =
            GroupTransition { group_id: id, before: &before, after: None, named: &named };
        let plans = self.plan_transition(client, &transition).await?;
        change.drop_scim_group(id).await?;
        let mut effects = GroupEffects::default();
        effects.notes.push(note("scim.delete_group", id, &before.display_name));
        self.write_groups(&mut change, &client.provider, &plans, &mut effects).await?;
        Ok(self.commit_effects(change, &client.actor(), effects).await?)
    }

    /// Gives members of a group that stays as it is what their groups give.
    async fn restore_rights(
        &self,
        client: &ScimClient,
        mut change: AuditedChange,
        plans: &[GroupPlan],
    ) -> Result<(), ScimProblem> {
        let mut effects = GroupEffects::default();
        self.write_groups(&mut change, &client.provider, plans, &mut effects).await?;
        if effects.notes.is_empty() {
            return Ok(());
        }
        Ok(self.commit_effects(change, &client.actor(), effects).await?)
    }

    async fn scim_group_draft(&self, group: &ScimGroup) -> Result<ScimGroupDraft, ScimProblem> {
        let members = self.store.scim_members(&group.id).await?;
        Ok(ScimGroupDraft {
            display_name: group.display_name.clone(),
            external_id: group.external_id.clone(),
            members: members.into_iter().collect(),
        })
    }

    /// Refuses the name of another group of the provider.
    async fn require_free_group(&self, client: &ScimClient, name: &str) -> Result<(), ScimProblem> {
        let condition = [ScimGroupCondition::DisplayName(name.to_owned())];
        if self.store.scim_group_count(client.identity(), &condition).await? > 0 {
            let why = "`displayName`: another group has this name; names are compared without case";
            return Err(ScimProblem::new(ScimErrorKind::Uniqueness, why));
        }
        Ok(())
    }

    /// Refuses members that are no people of the provider.
    async fn require_known_members(
        &self,
        client: &ScimClient,
        ids: &[String],
    ) -> Result<(), ScimProblem> {
        let known = self.store.known_scim_users(client.identity(), ids).await?;
        let known: BTreeSet<String> = known.into_iter().collect();
        match ids.iter().find(|id| !known.contains(*id)) {
            None => Ok(()),
            Some(id) => {
                let id: String = id.chars().take(64).collect();
                let why = format!("there is no user with the id `{id}`");
                Err(ScimProblem::invalid_value("members", &why))
            }
        }
    }

    /// Finds the people whose groups change, and plans what follows from that.
    async fn plan_transition(
        &self,
        client: &ScimClient,
        transition: &GroupTransition<'_>,
    ) -> Result<Vec<GroupPlan>, ScimProblem> {
        let GroupTransition { group_id, before, after, named } = transition;
        let Some(mapping) = &client.provider.groups else { return Ok(Vec::new()) };
        let names_after = after.map(ScimGroupDraft::names).unwrap_or_default();
        let names_before = before.names();
        if !mapping.names_any(&names_before) && !mapping.names_any(&names_after) {
            return Ok(Vec::new());
        }
        let none = BTreeSet::new();
        let members_after = after.map_or(&none, |after| &after.members);
        let mut affected: BTreeSet<String> = if names_before == names_after {
            before.members.symmetric_difference(members_after).cloned().collect()
        } else {
            before.members.union(members_after).cloned().collect()
        };
        affected.extend(members_after.intersection(named).cloned());
        let affected: Vec<String> = affected.into_iter().collect();
        let mapped = self.mapped_teams(&client.provider, mapping).await?;
        let mut standings = Vec::with_capacity(affected.len());
        for standing in self.store.scim_standings(&affected).await? {
            let ScimStanding { account, groups: known, seats } = standing;
            let mut groups = Vec::new();
            for group in known.into_iter().filter(|group| group.id != *group_id) {
                groups.push(group.display_name);
                groups.extend(group.external_id);
            }
            if members_after.contains(&account.id) {
                groups.extend_from_slice(&names_after);
            }
            standings.push(GroupStanding { account, groups, seats });
        }
        Ok(self.plan_groups(&mapped, standings).await?)
    }
}
