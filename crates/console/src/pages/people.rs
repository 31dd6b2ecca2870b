//! Accounts, invitations and the sign-up mode.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{AccountRole, Link, LinkPurpose, PersonOrder, PersonSelection, PersonSummary};

use super::copy_block;
use super::key_list::{self, time_or_never};
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, ok_page, page};
use crate::links;
use crate::list_view::{ListView, ORDER, TEXT};
use crate::page_error::PageError;
use crate::redirect::{redirect_to, see_other};
use crate::session::SignedInUser;
use crate::signup::SignUpMode;
use crate::state::ConsoleState;
use crate::viewer_time::ViewerClock;
use crate::{display, mails, shared_fields, urls};
use admin::{AdminError, InviteDraft, may_grant_role, random};

const PAGE_PATH: &str = "/console/people";
const STATE: &str = "state";
const PARAMETERS: [&str; 3] = [TEXT, STATE, ORDER];
/// Orders that can be chosen: parameter value, label.
const ORDERS: [(&str, &str); 4] = [
    (PersonOrder::Name.word(), "Username"),
    (PersonOrder::Spent.word(), "Spent"),
    (PersonOrder::LastUse.word(), "Last use"),
    (PersonOrder::Created.word(), "Joined"),
];
const MAX_FIELD_BYTES: usize = 4_096;

/// `GET /console/people`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    if !user.may_invite() {
        return Err(PageError::Forbidden);
    }
    let (fields, errors) = (FormFields::default(), FieldErrors::default());
    list(&state, &user, StatusCode::OK, &query, (&fields, &errors)).await
}

/// `POST /console/people/invites`
pub(crate) async fn invite(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    if !user.may_invite() {
        return Err(PageError::Forbidden);
    }
    let (none, mut errors) = (FormFields::default(), FieldErrors::default());
    let email = fields.get_single("email", MAX_FIELD_BYTES)?;
    let Some(role) = AccountRole::by_word(fields.get("role")) else {
        errors.add("role", "Choose a role.");
        return list(&state, &user, StatusCode::BAD_REQUEST, &none, (&fields, &errors)).await;
    };
    let email = (!email.is_empty()).then(|| email.to_owned());
    let draft = InviteDraft { email: email.clone(), role, team: None };
    match state.host.accounts().invite(&user.actor(), draft).await {
        Ok(path) => Ok(show_invitation(&state, &user, email.as_deref(), &path).await),
        Err(AdminError::Invalid { message, .. }) => {
            errors.add("email", message);
            list(&state, &user, StatusCode::BAD_REQUEST, &none, (&fields, &errors)).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Mails an invitation if possible, and shows its link.
pub(super) async fn show_invitation(
    state: &ConsoleState,
    user: &SignedInUser,
    email: Option<&str>,
    path: &str,
) -> Response {
    let maker = &user.account;
    let url = links::absolute(state, path);
    let mailed_to = email.filter(|_| state.host.can_mail());
    if let Some(email) = mailed_to {
        mails::send(state, mails::invite(email, &maker.username, &state.base_url(), &url)).await;
    }
    let body = html! {
        section.card.broad {
            h1 { "The invitation" }
            @if let Some(email) = mailed_to {
                p { "It was sent to " strong { bdi { (email) } } ". This is its link:" }
            }
            @else { p { "Give this link to the invited person. It is shown once, works once, "
                "and for a week." } }
            (copy_block("invite", "Link", &url))
            p.actions { a.button href=(PAGE_PATH) { "Done" } }
        }
    };
    ok_page(&Layout::signed_in("The invitation", maker).with_nav(PAGE_PATH), &body)
}

/// `POST /console/people/invites/{id}/revoke`
pub(crate) async fn revoke(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    state.host.accounts().revoke_invite(&user.actor(), &id).await?;
    Ok(see_other(PAGE_PATH))
}

async fn list(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    query: &FormFields,
    (fields, errors): (&FormFields, &FieldErrors),
) -> Result<Response, PageError> {
    let view = ListView { path: PAGE_PATH, query, parameters: &PARAMETERS };
    let disabled = match query.get(STATE) {
        "" => None,
        "active" => Some(false),
        "locked" => Some(true),
        _ => return Err(PageError::BadRequest("The state of people is not known.")),
    };
    let selection = PersonSelection { text: view.text()?, disabled };
    let order = PersonOrder::by_word(query.get(ORDER)).unwrap_or_default();
    let people = state.store.person_page(&selection, order, view.rows()).await?;
    let total = people.total(disabled);
    if let Some(last) = view.last_page(total) {
        return Ok(redirect_to(&last));
    }
    let mut invites = state.store.links_for(LinkPurpose::Invite).await?;
    invites.retain(|link| links::is_valid(state, link));
    let mode = SignUpMode::load(&state.store).await?;
    let clock = &user.clock(state);
    let body = html! {
        div.title { h1 { "People" } }
        section {
            h2 { "Accounts" }
            (view.search_form("Username or e-mail", &ORDERS, order.word()))
            (view.parts("States of accounts", STATE, [
                ("", "All", people.total(None)),
                ("active", "Active", people.active),
                ("locked", "Locked", people.locked),
            ]))
            @if people.people.is_empty() {
                div.empty {
                    h3 { "Nobody matches" }
                    p { "Another search or state shows more. " a href=(PAGE_PATH) { "Show all people" } }
                }
            } @else {
                (account_table(&view, order, &people.people, user, clock))
                (view.pager("Pages of people", total))
            }
        }
        section {
            h2 { "Invitations" }
            @if invites.is_empty() {
                div.empty { h3 { "Nobody is invited" } p { "Invitations wait here until they are used." } }
            } @else {
                (invite_table(&invites, user, clock))
            }
        }
        div.columns {
            section.card { (invite_form(user, fields, errors)) }
            section.card {
                h2 { "Who may sign up" }
                p { (mode.description()) "." }
                p.actions { a.button.quiet href="/console/settings" { "Settings" } }
            }
        }
    };
    Ok(page(status, &Layout::signed_in("People", &user.account).with_nav(PAGE_PATH), &body))
}

fn account_table(
    view: &ListView<'_>,
    order: PersonOrder,
    people: &[PersonSummary],
    user: &SignedInUser,
    clock: &ViewerClock,
) -> Markup {
    let heading = |of: PersonOrder, label: &str| view.heading(of.word(), label, order == of);
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    (heading(PersonOrder::Name, "Username"))
                    th scope="col" { "E-mail" }
                    th scope="col" { "Role" }
                    th scope="col" { "Keys" }
                    (heading(PersonOrder::Spent, "Spent"))
                    (heading(PersonOrder::LastUse, "Last use"))
                    (heading(PersonOrder::Created, "Joined"))
                    th scope="col" { "State" }
                } }
                tbody {
                    @for PersonSummary { account, keys, spent, last_used } in people {
                        tr {
                            th scope="row" {
                                a href={ (PAGE_PATH) "/" (urls::escape_value(&account.id)) } {
                                    bdi { (account.username) }
                                }
                                @if account.id == user.account.id { span.muted { " · you" } }
                            }
                            td data-label="E-mail" {
                                @match &account.email {
                                    Some(email) => bdi { (email) },
                                    None => span.muted { "none" },
                                }
                            }
                            td data-label="Role" { (account.role.word()) }
                            td data-label="Keys" {
                                @if *keys == 0 { span.muted { "none" } }
                                @else {
                                    a href={ (key_list::PAGE_PATH) "?q=" (urls::escape_value(&account.username)) } {
                                        (keys) span.unseen { " keys of " (account.username) }
                                    }
                                }
                            }
                            td data-label="Spent" { (display::money(*spent)) }
                            td data-label="Last use" { (time_or_never(*last_used, clock)) }
                            td data-label="Joined" { (clock.relative_time(account.created)) }
                            td data-label="State" {
                                @if account.disabled { span.badge.off { "Locked" } }
                                @else { span.badge.good { "Active" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn invite_table(invites: &[Link], user: &SignedInUser, clock: &ViewerClock) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "For" }
                    th scope="col" { "Role" }
                    th scope="col" { "Ends" }
                    th scope="col" { span.unseen { "Actions" } }
                } }
                tbody {
                    @for link in invites {
                        @let note = links::link_data(link);
                        @let role = note.role.as_deref().and_then(AccountRole::by_word);
                        tr {
                            th scope="row" {
                                @match &note.email {
                                    Some(email) => bdi { (email) },
                                    None => "Anyone with the link",
                                }
                            }
                            td data-label="Role" { (role.map_or("", AccountRole::word)) }
                            td data-label="Ends" { (clock.relative_time(link.expires)) }
                            td.act {
                                @if role.is_some_and(|role| may_grant_role(user.account.role, role)) {
                                    form.inline method="post" action={
                                        (PAGE_PATH) "/invites/" (random::hex(&link.hash)) "/revoke"
                                    } {
                                        button.link.danger type="submit" { "Take back" }
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

fn invite_form(user: &SignedInUser, fields: &FormFields, errors: &FieldErrors) -> Markup {
    let chosen = AccountRole::by_word(fields.get("role")).unwrap_or(AccountRole::Member);
    html! {
        h2 { "Invite somebody" }
        (shared_fields::error_summary(errors))
        form method="post" action={ (PAGE_PATH) "/invites" } {
            (FormInput {
                name: "email",
                label: "E-mail",
                kind: "email",
                value: fields.get("email"),
                help: Some("With an address the link is sent there; without, you hand it over."),
                ..FormInput::default()
            }.render(errors))
            div.field {
                label for="role" { "Role" }
                select #role name="role" {
                    @for role in AccountRole::ALL {
                        @if may_grant_role(user.account.role, role) {
                            option value=(role.word()) selected[role == chosen] { (role_description(role)) }
                        }
                    }
                }
            }
            button.button type="submit" { "Make the invitation" }
        }
    }
}

pub(crate) const fn role_description(role: AccountRole) -> &'static str {
    match role {
        AccountRole::Owner => "Owner: everything, other owners included",
        AccountRole::Admin => "Admin: administration, but not of owners",
        AccountRole::Member => "Member: own keys and usage",
        AccountRole::Viewer => "Viewer: looks, does not touch",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_can_give_only_lesser_roles() {
        for own in AccountRole::ALL {
            let given: Vec<AccountRole> =
                AccountRole::ALL.into_iter().filter(|role| may_grant_role(own, *role)).collect();
            let expected: &[AccountRole] = match own {
                AccountRole::Owner => &AccountRole::ALL,
                AccountRole::Admin => &[AccountRole::Member, AccountRole::Viewer],
                AccountRole::Member | AccountRole::Viewer => &[],
            };
            assert_eq!(given, expected, "{own:?}");
        }
    }
}
