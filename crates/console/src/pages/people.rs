//! Who has an account, who is invited, and who may sign up.

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{Account, Link, LinkPurpose, AccountRole};

use super::copyable;
use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::links::{self, LIFE, Note};
use crate::session::Signed;
use crate::shell::{Shell, good, page, see_other};
use crate::signup::SignUp;
use crate::trouble::Trouble;
use crate::{address, fields, mails, show};
use admin::may_give;
use admin::{names, random};

const HERE: &str = "/console/people";
const LONGEST: usize = 4_096;
/// How many invitations may be open.
const MOST_INVITES: usize = 100;

/// What to say when as many are invited as may be.
pub(super) async fn too_many(desk: &Desk) -> Result<Option<String>, Trouble> {
    let full = desk.store.links_for(LinkPurpose::Invite).await?.len() >= MOST_INVITES;
    Ok(full.then(|| format!("There may be {MOST_INVITES} open invitations.")))
}

/// `GET /console/people`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    if !signed.may_invite() {
        return Err(Trouble::Forbidden);
    }
    list(&desk, &signed, StatusCode::OK, &Fields::default(), &Wrongs::default()).await
}

/// `POST /console/people/invites`
pub(crate) async fn invite(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    fields: Fields,
) -> Result<Response, Trouble> {
    if !signed.may_invite() {
        return Err(Trouble::Forbidden);
    }
    let mut wrongs = Wrongs::default();
    let email = fields.one("email", LONGEST)?;
    if !email.is_empty() && !names::is_address(email) {
        wrongs.add("email", "This does not look like one e-mail address.");
    } else if !email.is_empty() && desk.store.account_by_login(email).await?.is_some() {
        wrongs.add("email", "This address has an account already.");
    }
    let role = AccountRole::by_word(fields.get("role"));
    if role.is_none() {
        wrongs.add("role", "Choose a role.");
    }
    if role.is_some_and(|role| !may_give(signed.account.role, role)) {
        return Err(Trouble::Forbidden);
    }
    if let Some(why) = too_many(&desk).await? {
        wrongs.add("email", why);
    }
    let (Some(role), true) = (role, wrongs.is_empty()) else {
        return list(&desk, &signed, StatusCode::BAD_REQUEST, &fields, &wrongs).await;
    };
    invitation(&desk, &signed, email, role, None).await
}

/// Makes an invitation to an account of that role, and to a team if there is one, and shows it.
pub(super) async fn invitation(
    desk: &Desk,
    signed: &Signed,
    email: &str,
    role: AccountRole,
    team: Option<(String, String)>,
) -> Result<Response, Trouble> {
    let maker = &signed.account;
    let note = Note {
        email: (!email.is_empty()).then(|| email.to_owned()),
        role: Some(role.word().to_owned()),
        team,
        maker: Some(maker.id.clone()),
        ..Note::default()
    };
    let word = links::make(desk, LinkPurpose::Invite, None, &note, LIFE.invite).await?;
    let url = links::url(desk, &word);
    desk.note(&maker.id, "account.invite", email, role.word()).await;
    let mailed = !email.is_empty() && desk.host.can_mail();
    if mailed {
        mails::send(desk, mails::invite(email, &maker.username, &desk.url(), &url)).await;
    }
    let body = html! {
        section.card.broad {
            h1 { "The invitation" }
            @if mailed { p { "It was sent to " strong { bdi { (email) } } ". This is its link:" } }
            @else { p { "Hand this link to whoever is invited. It is shown this once, works once, "
                "and for a week." } }
            (copyable("invite", "Link", &url))
            p.actions { a.button href=(HERE) { "Done" } }
        }
    };
    Ok(good(&Shell::signed("The invitation", maker).at(HERE), &body))
}

/// `POST /console/people/invites/{id}/revoke`
pub(crate) async fn revoke(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    if !signed.may_invite() {
        return Err(Trouble::Forbidden);
    }
    let Path(id) = id.map_err(|_| Trouble::NotFound)?;
    let invites = desk.store.links_for(LinkPurpose::Invite).await?;
    let found = invites.into_iter().find(|link| random::hex(&link.hash) == id);
    let link = found.ok_or(Trouble::NotFound)?;
    let role = links::note(&link).role.as_deref().and_then(AccountRole::by_word);
    if role.is_none_or(|role| !may_give(signed.account.role, role)) {
        return Err(Trouble::Forbidden);
    }
    desk.store.take_link(&link.hash, LinkPurpose::Invite).await?;
    let email = links::note(&link).email.unwrap_or_default();
    desk.note(&signed.account.id, "account.uninvite", &email, "").await;
    Ok(see_other(HERE))
}

async fn list(
    desk: &Desk,
    signed: &Signed,
    status: StatusCode,
    fields: &Fields,
    wrongs: &Wrongs,
) -> Result<Response, Trouble> {
    let accounts = desk.store.accounts().await?;
    let mut invites = desk.store.links_for(LinkPurpose::Invite).await?;
    invites.retain(|link| links::alive(desk, link));
    let mode = SignUp::of(desk).await?;
    let now = desk.now();
    let body = html! {
        div.title { h1 { "People" } }
        section {
            h2 { "Accounts" }
            (account_table(&accounts, signed))
        }
        section {
            h2 { "Invitations" }
            @if invites.is_empty() {
                div.empty { h3 { "Nobody is invited" } p { "Invitations wait here until they are used." } }
            } @else {
                (invite_table(&invites, signed, now))
            }
        }
        div.columns {
            section.card { (invite_form(signed, fields, wrongs)) }
            section.card {
                h2 { "Who may sign up" }
                p { (mode.about()) "." }
                p.actions { a.button.quiet href="/console/settings" { "Settings" } }
            }
        }
    };
    Ok(page(status, &Shell::signed("People", &signed.account).at(HERE), &body))
}

fn account_table(accounts: &[Account], signed: &Signed) -> Markup {
    html! {
        div.sheet {
            table.list {
                thead { tr {
                    th scope="col" { "Username" }
                    th scope="col" { "E-mail" }
                    th scope="col" { "Role" }
                    th scope="col" { "State" }
                } }
                tbody {
                    @for account in accounts {
                        tr {
                            th scope="row" {
                                a href={ (HERE) "/" (address::value(&account.id)) } {
                                    bdi { (account.username) }
                                }
                                @if account.id == signed.account.id { span.muted { " · you" } }
                            }
                            td data-label="E-mail" {
                                @match &account.email {
                                    Some(email) => bdi { (email) },
                                    None => span.muted { "none" },
                                }
                            }
                            td data-label="Role" { (account.role.word()) }
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

fn invite_table(invites: &[Link], signed: &Signed, now: i64) -> Markup {
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
                        @let note = links::note(link);
                        @let role = note.role.as_deref().and_then(AccountRole::by_word);
                        tr {
                            th scope="row" {
                                @match &note.email {
                                    Some(email) => bdi { (email) },
                                    None => "Whoever has the link",
                                }
                            }
                            td data-label="Role" { (role.map_or("", AccountRole::word)) }
                            td data-label="Ends" { (show::when(link.expires, now)) }
                            td.act {
                                @if role.is_some_and(|role| may_give(signed.account.role, role)) {
                                    form.inline method="post" action={
                                        (HERE) "/invites/" (random::hex(&link.hash)) "/revoke"
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

fn invite_form(signed: &Signed, fields: &Fields, wrongs: &Wrongs) -> Markup {
    let chosen = AccountRole::by_word(fields.get("role")).unwrap_or(AccountRole::Member);
    html! {
        h2 { "Invite somebody" }
        (fields::another_look(wrongs))
        form method="post" action={ (HERE) "/invites" } {
            (Input {
                name: "email",
                label: "E-mail",
                kind: "email",
                value: fields.get("email"),
                help: Some("With an address the link is sent there; without, you hand it over."),
                ..Input::default()
            }.show(wrongs))
            div.field {
                label for="role" { "Role" }
                select #role name="role" {
                    @for role in AccountRole::ALL {
                        @if may_give(signed.account.role, role) {
                            option value=(role.word()) selected[role == chosen] { (about(role)) }
                        }
                    }
                }
            }
            button.button type="submit" { "Make the invitation" }
        }
    }
}

pub(crate) const fn about(role: AccountRole) -> &'static str {
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
    fn nobody_gives_more_than_they_have() {
        for own in AccountRole::ALL {
            let given: Vec<AccountRole> =
                AccountRole::ALL.into_iter().filter(|role| may_give(own, *role)).collect();
            let expected: &[AccountRole] = match own {
                AccountRole::Owner => &AccountRole::ALL,
                AccountRole::Admin => &[AccountRole::Member, AccountRole::Viewer],
                AccountRole::Member | AccountRole::Viewer => &[],
            };
            assert_eq!(given, expected, "{own:?}");
        }
    }
}
