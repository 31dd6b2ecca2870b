//! Rights: account over account, and member within a team. The console and the use cases share
//! these rules.

use store::{Account, AccountRole, KeyGrants, Team, TeamRole};

use crate::actor::Actor;
use crate::error::AdminError;

/// Refuses an actor that may not administrate this account.
pub(crate) fn require_may_administrate(actor: &Actor, other: &Account) -> Result<(), AdminError> {
    actor.require_admin()?;
    if is_narrowed(actor) && is_gateway_admin(other) {
        return Err(AdminError::forbidden(
            "a key for a part of administration cannot change administrators",
        ));
    }
    match actor.account() {
        Some(own) if !may_change(own, other) => Err(not_permitted()),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a role the actor may not give to others. A key ends, and the owners it could make would
/// outlive it.
pub(crate) fn require_may_grant(actor: &Actor, given: AccountRole) -> Result<(), AdminError> {
    actor.require_admin()?;
    if actor.key().is_some() && given == AccountRole::Owner {
        return Err(AdminError::forbidden(
            "a key cannot make owners; use the console or `portunus users`",
        ));
    }
    if is_narrowed(actor) && matches!(given, AccountRole::Owner | AccountRole::Admin) {
        return Err(AdminError::forbidden(
            "a key for a part of administration cannot make administrators",
        ));
    }
    match actor.account() {
        Some(own) if !may_grant_role(own.role, given) => {
            Err(AdminError::forbidden("you may not grant this role"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns true for a key for a part of administration. It could get the other parts by making or
/// taking over an administrator.
fn is_narrowed(actor: &Actor) -> bool {
    actor.key().is_some_and(|key| key.grants != KeyGrants::All)
}

/// Error for an object of an account the actor may not change.
pub(crate) fn not_permitted() -> AdminError {
    AdminError::forbidden("this belongs to an account you may not change")
}

/// Action within a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamAction {
    /// View members, keys, usage and calls.
    View,
    /// Create keys.
    CreateKeys,
    /// Change, rotate, revoke or use a key the member created.
    ChangeOwnKey,
    /// Change, rotate, revoke or use a key another member created.
    ChangeOtherKey,
    /// Add, change and remove members.
    ManageMembers,
    /// Change the spending terms, the name and the state of the team.
    ManageTerms,
}

impl TeamAction {
    #[cfg(test)]
    const ALL: [Self; 6] = [
        Self::View,
        Self::CreateKeys,
        Self::ChangeOwnKey,
        Self::ChangeOtherKey,
        Self::ManageMembers,
        Self::ManageTerms,
    ];
}

/// Returns true for owners and administrators of the gateway.
pub const fn is_gateway_admin(account: &Account) -> bool {
    match account.role {
        AccountRole::Owner | AccountRole::Admin => true,
        AccountRole::Member | AccountRole::Viewer => false,
    }
}

/// Returns true if `own` may change `other`. Owners change everyone. Administrators change
/// themselves and roles below theirs. Members change themselves. Viewers change nothing.
pub fn may_change(own: &Account, other: &Account) -> bool {
    match (own.role, other.role) {
        (AccountRole::Owner, _)
        | (AccountRole::Admin, AccountRole::Member | AccountRole::Viewer) => true,
        (AccountRole::Admin, AccountRole::Owner | AccountRole::Admin)
        | (AccountRole::Member, _) => own.id == other.id,
        (AccountRole::Viewer, _) => false,
    }
}

/// Returns true if a role may create accounts of another role. Owners may create all,
/// administrators only roles below theirs.
pub const fn may_grant_role(own: AccountRole, given: AccountRole) -> bool {
    match (own, given) {
        (AccountRole::Owner, _)
        | (AccountRole::Admin, AccountRole::Member | AccountRole::Viewer) => true,
        (AccountRole::Admin, AccountRole::Owner | AccountRole::Admin)
        | (AccountRole::Member | AccountRole::Viewer, _) => false,
    }
}

/// Returns true if an account with this role in a team, or with none, may perform the action.
/// Gateway administrators may perform all. Viewers of the gateway may only view. In a closed team
/// the other members may only view.
pub fn may_in_team(
    own: &Account,
    team: &Team,
    team_role: Option<TeamRole>,
    action: TeamAction,
) -> bool {
    if is_gateway_admin(own) {
        // A key of a closed team would not work.
        return !(team.disabled && action == TeamAction::CreateKeys);
    }
    let Some(team_role) = team_role else { return false };
    let view_only = match own.role {
        AccountRole::Viewer => true,
        AccountRole::Owner | AccountRole::Admin | AccountRole::Member => team.disabled,
    };
    let team_role = if view_only { TeamRole::Viewer } else { team_role };
    match (action, team_role) {
        (TeamAction::View, _)
        | (
            TeamAction::CreateKeys | TeamAction::ChangeOwnKey,
            TeamRole::Manager | TeamRole::Member,
        )
        | (TeamAction::ChangeOtherKey | TeamAction::ManageMembers, TeamRole::Manager) => true,
        (TeamAction::CreateKeys | TeamAction::ChangeOwnKey, TeamRole::Viewer)
        | (
            TeamAction::ChangeOtherKey | TeamAction::ManageMembers,
            TeamRole::Member | TeamRole::Viewer,
        )
        | (TeamAction::ManageTerms, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Micros;

    fn account(role: AccountRole) -> Account {
        Account {
            id: "a".to_owned(),
            username: "a".to_owned(),
            email: None,
            role,
            password_hash: None,
            disabled: false,
            created: Micros::ZERO,
            changed: Micros::ZERO,
        }
    }

    fn team(disabled: bool) -> Team {
        Team {
            id: "t".to_owned(),
            name: "t".to_owned(),
            disabled,
            created: Micros::ZERO,
            changed: Micros::ZERO,
        }
    }

    #[test]
    fn gateway_role_bounds_team_role() {
        use TeamAction::{
            ChangeOtherKey, ChangeOwnKey, CreateKeys, ManageMembers, ManageTerms, View,
        };
        const NOTHING: &[TeamAction] = &[];
        let (manager, member, viewer) =
            (Some(TeamRole::Manager), Some(TeamRole::Member), Some(TeamRole::Viewer));
        let all: &'static [TeamAction] = &TeamAction::ALL;
        let but_keys: &'static [TeamAction] =
            &[View, ChangeOwnKey, ChangeOtherKey, ManageMembers, ManageTerms];
        let manages: &'static [TeamAction] =
            &[View, CreateKeys, ChangeOwnKey, ChangeOtherKey, ManageMembers];
        type Line = (AccountRole, Option<TeamRole>, &'static [TeamAction], &'static [TeamAction]);
        let table: [Line; 16] = [
            (AccountRole::Owner, None, all, but_keys),
            (AccountRole::Owner, manager, all, but_keys),
            (AccountRole::Owner, member, all, but_keys),
            (AccountRole::Owner, viewer, all, but_keys),
            (AccountRole::Admin, None, all, but_keys),
            (AccountRole::Admin, manager, all, but_keys),
            (AccountRole::Admin, member, all, but_keys),
            (AccountRole::Admin, viewer, all, but_keys),
            (AccountRole::Member, None, NOTHING, NOTHING),
            (AccountRole::Member, manager, manages, &[View]),
            (AccountRole::Member, member, &[View, CreateKeys, ChangeOwnKey], &[View]),
            (AccountRole::Member, viewer, &[View], &[View]),
            (AccountRole::Viewer, None, NOTHING, NOTHING),
            (AccountRole::Viewer, manager, &[View], &[View]),
            (AccountRole::Viewer, member, &[View], &[View]),
            (AccountRole::Viewer, viewer, &[View], &[View]),
        ];
        for (role, team_role, open, closed) in table {
            for (disabled, expected) in [(false, open), (true, closed)] {
                let may = |action: &TeamAction| {
                    may_in_team(&account(role), &team(disabled), team_role, *action)
                };
                let may: Vec<TeamAction> = TeamAction::ALL.into_iter().filter(may).collect();
                assert_eq!(may, expected, "{role:?} {team_role:?} closed: {disabled}");
            }
        }
    }
}
