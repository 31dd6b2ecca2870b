//! Members of a team: add, change the role, remove.

use store::{AuditedChange, KeyRecord, MemberChange, Team, TeamMember, TeamRole};

use crate::account_admin::AccountAdmin;
use crate::actor::Actor;
use crate::error::AdminError;
use crate::rights::{TeamAction, may_in_team, not_permitted};
use crate::teams::TeamView;
use crate::version::ReadVersion;

/// Maximum number of members of a team.
const MAX_MEMBERS: usize = 500;

/// Fate of the keys a removed member created for the team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKeys {
    /// They stay with the team, except those that were made by signing in: they are the person's.
    Keep,
    /// They are revoked. The member may have kept their values.
    Revoke,
}

impl AccountAdmin {
    /// Adds an account to a team or changes its role there. A locked account cannot be added and
    /// counts as missing.
    pub async fn set_member(
        &self,
        actor: &Actor,
        team_id: &str,
        account_id: &str,
        read: ReadVersion<'_>,
        role: TeamRole,
    ) -> Result<TeamView, AdminError> {
        let mut change = self.store.begin_change().await?;
        let view = self.team_for(actor, team_id, TeamAction::ManageMembers).await?;
        read.check(&view.stable_json())?;
        match find_member(&view, account_id) {
            Some(member) if member.role == role => return Ok(view),
            Some(_) => {}
            None => {
                let account = self.store.account(account_id).await?;
                if account.is_none_or(|account| account.disabled) {
                    return Err(AdminError::NotFound("member"));
                }
                if view.members.len() >= MAX_MEMBERS {
                    let message = format!("A team may have {MAX_MEMBERS} members.");
                    return Err(AdminError::invalid("", message));
                }
            }
        }
        self.put_member(&mut change, actor, team_id, account_id, Some(role)).await?;
        let detail = format!("{account_id} {}", role.word());
        self.commit(change, actor, &[["team.member", team_id, &detail]]).await?;
        self.load_team(team_id).await
    }

    /// Removes an account from a team. Managers remove members, and every member may leave.
    pub async fn remove_member(
        &self,
        actor: &Actor,
        team_id: &str,
        account_id: &str,
        read: ReadVersion<'_>,
        keys: MemberKeys,
    ) -> Result<TeamView, AdminError> {
        let mut change = self.store.begin_change().await?;
        let view = self.team_for(actor, team_id, TeamAction::View).await?;
        let leaves = actor.require_person().is_ok_and(|own| own.id == account_id);
        if !leaves {
            self.require_in_team(actor, &view.team, TeamAction::ManageMembers).await?;
        }
        read.check(&view.stable_json())?;
        let member = find_member(&view, account_id).ok_or(AdminError::NotFound("member"))?;
        // The right to revoke may end with the membership, so the keys are chosen before.
        let keys = match keys {
            MemberKeys::Keep => self.signed_in_keys(&view.team, account_id).await?,
            MemberKeys::Revoke => {
                let mut keys = self.signed_in_keys(&view.team, account_id).await?;
                let more = self.revocable_keys(actor, &view.team, member).await?;
                keys.extend(more.into_iter().filter(|key| key.surface.is_none()));
                keys
            }
        };
        let mut notes = Vec::new();
        for key in &keys {
            if change.revoke_key(&key.id, self.now()).await? {
                notes.push(["key.revoke", &key.id, &key.name]);
            }
        }
        self.put_member(&mut change, actor, team_id, account_id, None).await?;
        notes.push(["team.remove_member", team_id, account_id]);
        self.commit(change, actor, &notes).await?;
        for key in &keys {
            self.reload_key(&key.id).await?;
        }
        self.load_team(team_id).await
    }

    /// Returns the active keys of the team for which the person signed in.
    pub(crate) async fn signed_in_keys(
        &self,
        team: &Team,
        account_id: &str,
    ) -> Result<Vec<KeyRecord>, AdminError> {
        let mut keys = self.store.keys_signed_in_by(&[account_id]).await?;
        keys.retain(|key| key.account_id == team.id);
        Ok(keys)
    }

    /// Returns the active keys of the team that the member created, if the actor may revoke them.
    pub async fn revocable_keys(
        &self,
        actor: &Actor,
        team: &Team,
        member: &TeamMember,
    ) -> Result<Vec<KeyRecord>, AdminError> {
        let own = actor.account().is_some_and(|account| account.id == member.account.id);
        let action = if own { TeamAction::ChangeOwnKey } else { TeamAction::ChangeOtherKey };
        if !self.may_in_team(actor, team, action).await? {
            return Ok(Vec::new());
        }
        let mut keys = self.store.keys_created_by(&member.account.id).await?;
        keys.retain(|key| key.revoked.is_none() && key.account_id == team.id);
        Ok(keys)
    }

    /// Returns a team in which the actor may perform the action. A team the actor may not view
    /// counts as missing.
    pub(crate) async fn team_for(
        &self,
        actor: &Actor,
        id: &str,
        action: TeamAction,
    ) -> Result<TeamView, AdminError> {
        let view = self.load_team(id).await?;
        if !self.may_in_team(actor, &view.team, TeamAction::View).await? {
            return Err(AdminError::NotFound("team"));
        }
        self.require_in_team(actor, &view.team, action).await?;
        Ok(view)
    }

    async fn require_in_team(
        &self,
        actor: &Actor,
        team: &Team,
        action: TeamAction,
    ) -> Result<(), AdminError> {
        if self.may_in_team(actor, team, action).await? { Ok(()) } else { Err(not_permitted()) }
    }

    async fn may_in_team(
        &self,
        actor: &Actor,
        team: &Team,
        action: TeamAction,
    ) -> Result<bool, AdminError> {
        match actor {
            Actor::FirstStart | Actor::Operator => Ok(true),
            Actor::Provisioner { .. } => Ok(false),
            // A key administrates teams with the rights of an administrator only. The seat of its
            // account counts for a signed-in person.
            Actor::Key { account, .. } => {
                Ok(actor.is_admin() && may_in_team(account, team, None, action))
            }
            Actor::Person(account) => {
                let role = self.team_role(&account.id, &team.id).await?;
                Ok(!account.disabled && may_in_team(account, team, role, action))
            }
        }
    }

    /// Sets or removes the role of an account in a team, as part of a change. Only an administrator removes the last
    /// manager.
    async fn put_member(
        &self,
        change: &mut AuditedChange,
        actor: &Actor,
        team_id: &str,
        account_id: &str,
        role: Option<TeamRole>,
    ) -> Result<(), AdminError> {
        let (by_hand, now) = (actor.is_admin(), self.now());
        match change.set_member(team_id, account_id, role, by_hand, now).await? {
            MemberChange::Done => Ok(()),
            MemberChange::Missing => Err(AdminError::NotFound("member")),
            MemberChange::LastManager => {
                let message = "The team would have no manager. Make somebody else one first.";
                Err(AdminError::invalid("", message))
            }
        }
    }

    /// Adds an invited account to its team. Returns the detail of the line in the audit log. A team
    /// that is gone does not keep the account from being created, so that is only logged.
    pub(crate) async fn join_invited(
        &self,
        change: &mut AuditedChange,
        team_id: &str,
        account_id: &str,
        word: &str,
    ) -> Result<Option<String>, AdminError> {
        let Some(role) = TeamRole::by_word(word) else {
            tracing::error!(team_id, "an invitation names no role of a team");
            return Ok(None);
        };
        match change.set_member(team_id, account_id, Some(role), true, self.now()).await? {
            MemberChange::Done => Ok(Some(format!("{account_id} {}", role.word()))),
            failed @ (MemberChange::Missing | MemberChange::LastManager) => {
                tracing::error!(team_id, "cannot add an invited account to its team: {failed:?}");
                Ok(None)
            }
        }
    }
}

fn find_member<'a>(view: &'a TeamView, account_id: &str) -> Option<&'a TeamMember> {
    view.members.iter().find(|member| member.account.id == account_id)
}
