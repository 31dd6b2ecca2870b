//! What somebody may do in a team: the one rule of all pages. Programs administer teams only by a key
//! of somebody who may do everything with them.

use store::{Account, AccountRole, Team, TeamRole};

/// Something to be done in a team.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamAction {
    /// Look at it: members, keys, usage, calls.
    View,
    /// Make keys in it.
    CreateKeys,
    /// Change, rotate, revoke or spend by a key one made oneself.
    ChangeOwnKey,
    /// The same with a key somebody else made.
    ChangeOtherKey,
    /// Say who belongs to it.
    ManageMembers,
    /// Say what it may spend, what it is called and whether it is open.
    ManageTerms,
}

impl TeamAction {
    /// Every deed.
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

/// Whether an account is one of those who administer the gateway.
pub const fn is_gateway_admin(account: &Account) -> bool {
    match account.role {
        AccountRole::Owner | AccountRole::Admin => true,
        AccountRole::Member | AccountRole::Viewer => false,
    }
}

/// Whether one account may change what belongs to another: owners all, administrators what is below
/// them, and everyone but viewers their own.
pub fn may_change(own: &Account, other: &Account) -> bool {
    match (own.role, other.role) {
        (AccountRole::Owner, _)
        | (AccountRole::Admin, AccountRole::Member | AccountRole::Viewer) => true,
        (AccountRole::Admin, AccountRole::Owner | AccountRole::Admin)
        | (AccountRole::Member, _) => own.id == other.id,
        (AccountRole::Viewer, _) => false,
    }
}

/// Whether one role may make accounts of another: owners may make all, administrators only what is
/// below them.
pub const fn may_grant_role(own: AccountRole, given: AccountRole) -> bool {
    match (own, given) {
        (AccountRole::Owner, _)
        | (AccountRole::Admin, AccountRole::Member | AccountRole::Viewer) => true,
        (AccountRole::Admin, AccountRole::Owner | AccountRole::Admin)
        | (AccountRole::Member | AccountRole::Viewer, _) => false,
    }
}

/// Whether somebody with that seat in a team, or with none, may do that there. Those who administer
/// the gateway may everything; whoever may only look at the gateway only looks at the team; and in a
/// team that is closed the others only look, too.
pub fn may_in_team(own: &Account, team: &Team, seat: Option<TeamRole>, deed: TeamAction) -> bool {
    if is_gateway_admin(own) {
        // A key of a closed team would be none.
        return !(team.disabled && deed == TeamAction::CreateKeys);
    }
    let Some(seat) = seat else { return false };
    let looks_only = match own.role {
        AccountRole::Viewer => true,
        AccountRole::Owner | AccountRole::Admin | AccountRole::Member => team.disabled,
    };
    let seat = if looks_only { TeamRole::Viewer } else { seat };
    match (deed, seat) {
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

    fn account(role: AccountRole) -> Account {
        Account {
            id: "a".to_owned(),
            username: "a".to_owned(),
            email: None,
            role,
            password_hash: None,
            disabled: false,
            created: 0,
            changed: 0,
        }
    }

    fn team(disabled: bool) -> Team {
        Team { id: "t".to_owned(), name: "t".to_owned(), disabled, created: 0, changed: 0 }
    }

    #[test]
    fn a_seat_gives_what_it_says_and_the_gateways_role_bounds_it() {
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
        for (role, seat, open, closed) in table {
            for (disabled, expected) in [(false, open), (true, closed)] {
                let may =
                    |deed: &TeamAction| may_in_team(&account(role), &team(disabled), seat, *deed);
                let may: Vec<TeamAction> = TeamAction::ALL.into_iter().filter(may).collect();
                assert_eq!(may, expected, "{role:?} {seat:?} closed: {disabled}");
            }
        }
    }
}
