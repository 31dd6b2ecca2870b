//! Members of a team: adding, changing the role, removing.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AccountRole, KeyRecord, Team, TeamMember, TeamRole};

use super::{notify_owner, people, team, teams};
use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, ok_page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::shared_fields::error_summary;
use crate::state::ConsoleState;
use crate::viewer_time::ViewerClock;
use crate::{display, urls};
use admin::{AdminError, InviteDraft, MemberKeys, ReadVersion, TeamAction, key_front, names};

const MAX_FIELD_BYTES: usize = 4_096;

/// Team id and account id in a path.
type MemberPath = Result<Path<(String, String)>, PathRejection>;

/// `POST /console/teams/{id}/members`
///
/// A team manager learns here whether an account exists, which cannot be avoided. The answer
/// reveals nothing more: a disabled account counts as missing, the full name is needed, and lookups
/// are limited per hour.
pub(crate) async fn add(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
    fields: FormFields,
) -> Result<Response, PageError> {
    let team = team::find(&state, &user, id).await?;
    if !user.may_in(&team, TeamAction::ManageMembers) {
        return Err(PageError::Forbidden);
    }
    let login = fields.get_single("login", MAX_FIELD_BYTES)?;
    let mut errors = FieldErrors::default();
    let role = parse_role(&fields, &mut errors);
    if !user.is_administrator() {
        state.lookup_throttle.admit_name(&state.store, &user.account.id, state.now()).await?;
    }
    let known = state.store.account_by_login(login).await?;
    // Users who may invite people may invite them to a team.
    let invites = known.is_none() && user.may_invite() && names::is_email_address(login);
    if let (Some(role), true) = (role, invites) {
        let draft = InviteDraft {
            email: Some(login.to_owned()),
            role: AccountRole::Member,
            team: Some((team.id.clone(), role)),
        };
        match state.host.accounts().invite(&user.actor(), draft).await {
            Ok(path) => {
                return Ok(people::show_invitation(&state, &user, Some(login), &path).await);
            }
            Err(AdminError::Invalid { message, .. }) => errors.add("login", message),
            Err(error) => return Err(error.into()),
        }
    }
    let found = known.filter(|account| !account.disabled);
    let members = state.store.members(&team.id).await?;
    match &found {
        None => errors.add("login", "There is nobody with this username or address."),
        Some(account) if members.iter().any(|member| member.account.id == account.id) => {
            errors.add("login", "They belong to the team already; change their role above.");
        }
        Some(_) => {}
    }
    if let (Some(account), Some(role), true) = (found, role, errors.is_empty()) {
        let (actor, read) = (user.actor(), ReadVersion::default());
        match state.host.accounts().set_member(&actor, &team.id, &account.id, read, role).await {
            Ok(_) => {
                let what = format!("it belongs to the team {} now", team.name);
                notify_owner(&state, &account, &what);
                return Ok(redirect_to(&team::page_path(&team)));
            }
            Err(AdminError::Invalid { message, .. }) => errors.add("login", message),
            Err(error) => return Err(error.into()),
        }
    }
    team::render_page(&state, user, team, StatusCode::BAD_REQUEST, &fields, &errors).await
}

fn parse_role(fields: &FormFields, errors: &mut FieldErrors) -> Option<TeamRole> {
    let role = TeamRole::by_word(fields.get("role"));
    if role.is_none() {
        errors.add("role", "Choose a role.");
    }
    role
}

/// Returns the team and the member named in the path, if the user may see the team.
async fn find(
    state: &ConsoleState,
    user: &SignedInUser,
    both: MemberPath,
) -> Result<(Team, TeamMember), PageError> {
    let Path((id, who)) = both.map_err(|_| PageError::NotFound)?;
    let team = user.find_team(state, &id).await?;
    let members = state.store.members(&team.id).await?;
    let member = members.into_iter().find(|member| member.account.id == who);
    Ok((team, member.ok_or(PageError::NotFound)?))
}

/// `POST /console/teams/{id}/members/{member}`: changes the role.
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    both: MemberPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (team, member) = find(&state, &user, both).await?;
    if !user.may_in(&team, TeamAction::ManageMembers) {
        return Err(PageError::Forbidden);
    }
    let role = TeamRole::by_word(fields.get("role"));
    let role = role.ok_or(PageError::BadRequest("`role` is one of: manager, member, viewer."))?;
    let (accounts, read) = (state.host.accounts(), ReadVersion::default());
    accounts.set_member(&user.actor(), &team.id, &member.account.id, read, role).await?;
    Ok(redirect_to(&team::page_path(&team)))
}

/// Returns true if the user may remove the member: managers may, and all members may leave.
fn may_remove(user: &SignedInUser, team: &Team, member: &TeamMember) -> bool {
    user.may_in(team, TeamAction::ManageMembers) || member.account.id == user.account.id
}

/// `GET /console/teams/{id}/members/{member}/remove`
pub(crate) async fn remove_form(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    both: MemberPath,
) -> Result<Response, PageError> {
    let (team, member) = find(&state, &user, both).await?;
    if !may_remove(&user, &team, &member) {
        return Err(PageError::Forbidden);
    }
    let keys = state.host.accounts().revocable_keys(&user.actor(), &team, &member).await?;
    let own = member.account.id == user.account.id;
    let (title, button) = if own {
        ("Leave this team?", "Leave the team")
    } else {
        ("Take somebody out?", "Take them out")
    };
    let name = html! { strong { bdi { (team.name) } } };
    let body = html! {
        section.card {
            p.crumbs {
                a href=(teams::PAGE_PATH) { "Teams" } " / "
                a href=(team::page_path(&team)) { bdi { (team.name) } }
            }
            h1 { (title) }
            @if own { p { "You no longer see " (name) ", its keys and its usage." } }
            @else {
                p { strong { bdi { (member.account.username) } } " no longer sees " (name)
                    ", its keys and its usage." }
            }
            form method="post" action={ (member_path(&team, &member)) "/remove" } {
                @if !keys.is_empty() {
                    p { "Keys of the team stay with the team. These were made by "
                        @if own { "you" } @else { bdi { (member.account.username) } }
                        ", who may have kept their values:" }
                    ul.plain-list {
                        @for key in &keys {
                            li {
                                bdi { (key.name) } " " code { (key_front(&key.id, key.scope)) "…" }
                                span.muted { " · spent " (display::money(key.spent)) }
                            }
                        }
                    }
                    label.tick {
                        input type="checkbox" name="revoke" value="yes";
                        span {
                            "Revoke these keys as well"
                            span.help { "Programs that use them are refused from now on." }
                        }
                    }
                }
                div.actions {
                    button.button.harm type="submit" { (button) }
                    a.button.quiet href=(team::page_path(&team)) { "Cancel" }
                }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in(title, &user.account).with_nav(teams::PAGE_PATH), &body))
}

/// `POST /console/teams/{id}/members/{member}/remove`
pub(crate) async fn remove(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    both: MemberPath,
    fields: FormFields,
) -> Result<Response, PageError> {
    let (team, member) = find(&state, &user, both).await?;
    let keys = if fields.contains("revoke") { MemberKeys::Revoke } else { MemberKeys::Keep };
    let (accounts, read) = (state.host.accounts(), ReadVersion::default());
    accounts.remove_member(&user.actor(), &team.id, &member.account.id, read, keys).await?;
    let stays = member.account.id != user.account.id || user.is_administrator();
    Ok(redirect_to(&if stays { team::page_path(&team) } else { teams::PAGE_PATH.to_owned() }))
}

fn member_path(team: &Team, member: &TeamMember) -> String {
    format!("{}/members/{}", team::page_path(team), urls::escape_value(&member.account.id))
}

/// Table of members.
pub(super) fn table(
    team: &Team,
    members: &[TeamMember],
    keys: &[KeyRecord],
    user: &SignedInUser,
    clock: &ViewerClock,
) -> Markup {
    let manages = user.may_in(team, TeamAction::ManageMembers);
    let made = |member: &TeamMember| {
        keys.iter().filter(|key| key.created_by.as_ref() == Some(&member.account.id)).count()
    };
    html! {
        @if members.is_empty() {
            div.empty { h3 { "Nobody belongs to it" } p { "Administrators manage it until then." } }
        } @else {
            div.sheet {
                table.list {
                    thead { tr {
                        th scope="col" { "Username" }
                        th scope="col" { "Role" }
                        th scope="col" { "Since" }
                        th.num scope="col" { "Keys made" }
                        th scope="col" { span.unseen { "Actions" } }
                    } }
                    tbody {
                        @for member in members {
                            tr.off[member.account.disabled] {
                                th scope="row" {
                                    bdi { (member.account.username) }
                                    @if member.account.id == user.account.id {
                                        span.muted { " · you" }
                                    }
                                    @if member.account.disabled { " " span.badge.off { "Locked" } }
                                }
                                td data-label="Role" {
                                    @if manages { (role_form(team, member)) }
                                    @else { (member.role.word()) }
                                }
                                td data-label="Since" { (clock.relative_time(member.since)) }
                                td.num data-label="Keys made" { (made(member)) }
                                td.act {
                                    @if may_remove(user, team, member) {
                                        a.danger href={ (member_path(team, member)) "/remove" } {
                                            @if member.account.id == user.account.id { "Leave" }
                                            @else { "Take out" }
                                            span.unseen { " " (member.account.username) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn role_form(team: &Team, member: &TeamMember) -> Markup {
    let label = format!("Role of {}", member.account.username);
    html! {
        form.inline.seat method="post" action=(member_path(team, member)) {
            select name="role" aria-label=(label) { (role_options(member.role)) }
            button.button.quiet type="submit" { "Set" span.unseen { " the " (label) } }
        }
    }
}

fn role_options(chosen: TeamRole) -> Markup {
    html! {
        @for role in TeamRole::ALL {
            option value=(role.word()) selected[role == chosen] { (role.word()) }
        }
    }
}

/// Form that adds a member.
pub(super) fn add_form(
    team: &Team,
    user: &SignedInUser,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    let help = if user.may_invite() {
        "In full. An address without an account here is invited."
    } else {
        "Of somebody who has an account here, in full."
    };
    let chosen = TeamRole::by_word(fields.get("role")).unwrap_or(TeamRole::Member);
    html! {
        h2 { "Add somebody" }
        @if fields.contains("login") { (error_summary(errors)) }
        form method="post" action={ (team::page_path(team)) "/members" } {
            (FormInput {
                name: "login",
                label: "Username or e-mail",
                value: fields.get("login"),
                required: true,
                help: Some(help),
                ..FormInput::default()
            }.render(errors))
            div.field {
                label for="role" { "Role" }
                select #role name="role" { (role_options(chosen)) }
                p.help { "Managers look after members and all keys, members make keys and change "
                    "those they made, viewers look." }
            }
            button.button type="submit" { "Add" }
        }
    }
}
