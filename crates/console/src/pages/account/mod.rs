//! One's own account: how it is signed in to, and what ends its sessions.

pub(crate) mod email;
pub(crate) mod identities;
pub(crate) mod passkeys;
pub(crate) mod password;
pub(crate) mod prove;
pub(crate) mod totp;

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{Factor, FactorKind, Identity};

use crate::desk::Desk;
use crate::fields::{another_look, new_password, own_password};
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::session::Signed;
use crate::shell::{Shell, page, see_other, sent_to};
use crate::throttle::Place;
use crate::trouble::Trouble;
use crate::{address, show};

pub(super) const HERE: &str = "/console/account";

/// `GET /console/account`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    let told = match asked.get("told") {
        "password" => Some("Your password is changed. Everyone else was signed out."),
        "email" => Some("The address is confirmed."),
        "sent" => Some("A mail with a link is on its way."),
        "factor" => Some("That was removed."),
        "passkey" => Some("The passkey was added."),
        "identity" => Some("Your account is linked."),
        _ => None,
    };
    whole(&desk, &signed, StatusCode::OK, &Fields::default(), &Wrongs::default(), told).await
}

/// `POST /console/account/sessions/end`: signs out everywhere, here too.
pub(crate) async fn end_sessions(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    let id = signed.account.id.clone();
    desk.store.drop_sessions_of(&id).await?;
    desk.note(&id, "session.end_all", &id, "").await;
    signed.end(&desk).await
}

/// `POST /console/account/factors/{id}/remove`
pub(crate) async fn remove_factor(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, Trouble> {
    let Path(id) = id.map_err(|_| Trouble::NotFound)?;
    let account = &signed.account;
    let factors = desk.store.factors_of(&account.id).await?;
    if !factors.iter().any(|factor| factor.id == id) {
        return Err(Trouble::NotFound);
    }
    if let Some(way) = prove::first(&desk, &signed, HERE).await? {
        return Ok(way);
    }
    desk.store.drop_factor(&account.id, &id).await?;
    let left = factors.iter().filter(|factor| factor.id != id);
    if !left.clone().any(|factor| crate::signin::counts(factor.kind)) {
        // Codes for a step that is gone would be a way in that nobody remembers.
        desk.store.replace_factors(&account.id, FactorKind::Recovery, &[]).await?;
    }
    desk.note(&account.id, "factor.remove", &id, "").await;
    super::tell_owner(&desk, account, "a second factor was removed");
    Ok(sent_to("/console/account?told=factor"))
}

/// Whether somebody signed in shows the account's password too: a browser left open must not be
/// enough to take an account over. Tries count like those to sign in.
pub(super) async fn proved(desk: &Desk, signed: &Signed, password: &str) -> Result<bool, Trouble> {
    let Signed { account, .. } = signed;
    if password.len() > admin::password::LONGEST {
        return Ok(false);
    }
    let now = desk.now();
    desk.codes.admit_name(&desk.store, &account.id, now).await?;
    let right = desk.passwords.verify(password, account.password_hash.clone()).await?;
    if right {
        desk.codes.forgive(&desk.store, &account.id, Place::of(None), now).await?;
    }
    Ok(right)
}

/// The whole page.
pub(super) async fn whole(
    desk: &Desk,
    signed: &Signed,
    status: StatusCode,
    fields: &Fields,
    wrongs: &Wrongs,
    told: Option<&str>,
) -> Result<Response, Trouble> {
    let account = &signed.account;
    let factors = desk.store.factors_of(&account.id).await?;
    let identities = desk.store.identities_of(&account.id).await?;
    let now = desk.now();
    let has_password = account.password_hash.is_some();
    let fresh = signed.is_fresh(desk).await?;
    let body = html! {
        div.title { h1 { "Your account" } }
        @if let Some(told) = told { p.told role="status" { (told) } }
        (another_look(wrongs))
        @if !fresh {
            div.title.notice {
                p { "To change the ways into this account, prove once more that it is yours." }
                a.button.quiet href={ (HERE) "/prove" } { "It is me" }
            }
        }
        div.columns {
            section.card {
                h2 { "Who you are" }
                dl.facts {
                    div { dt { "Username" } dd { bdi { (account.username) } } }
                    div { dt { "E-mail" } dd {
                        @match &account.email {
                            Some(email) => bdi { (email) },
                            None => span.muted { "none" },
                        }
                    } }
                    div { dt { "Role" } dd { (account.role.word()) } }
                }
                @if fresh && desk.host.can_mail() {
                    details open[wrongs.of("email").is_some()] {
                        summary { "Use another address" }
                        form method="post" action={ (HERE) "/email" } {
                            (Input {
                                name: "email",
                                label: "New e-mail",
                                kind: "email",
                                value: fields.get("email"),
                                complete: "email",
                                required: true,
                                help: Some("We send a link there that confirms it."),
                                ..Input::default()
                            }.show(wrongs))
                            button.button.quiet type="submit" { "Send the link" }
                        }
                    }
                }
            }
            section.card {
                h2 { "Password" }
                @if has_password {
                    form method="post" action={ (HERE) "/password" } {
                        input type="hidden" name="username" autocomplete="username"
                            value=(account.username);
                        (own_password("current", wrongs))
                        (new_password(wrongs, false))
                        button.button.quiet type="submit" { "Change the password" }
                    }
                } @else {
                    p { "You sign in without a password." }
                    @if account.email.is_some() && desk.host.can_mail() {
                        form method="post" action={ (HERE) "/password/link" } {
                            button.button.quiet type="submit" { "Send me a link to set one" }
                        }
                    }
                }
            }
            section.card {
                h2 { "Second step" }
                (second_step(&factors, has_password, fresh, wrongs, now))
            }
            section.card {
                (linked(desk, &identities, fresh, now))
                h2 { "Sessions" }
                p.muted { "Ends every session of this account, on every device, this one too." }
                form method="post" action={ (HERE) "/sessions/end" } {
                    button.button.quiet type="submit" { "Sign out everywhere" }
                }
            }
        }
    };
    Ok(page(status, &Shell::signed("Your account", account).at(HERE), &body))
}

fn second_step(
    factors: &[Factor],
    has_password: bool,
    fresh: bool,
    wrongs: &Wrongs,
    now: i64,
) -> Markup {
    let shown: Vec<&Factor> =
        factors.iter().filter(|factor| crate::signin::counts(factor.kind)).collect();
    let papers = factors.iter().filter(|factor| factor.kind == FactorKind::Recovery).count();
    let has_totp = shown.iter().any(|factor| factor.kind == FactorKind::Totp);
    html! {
        @if shown.is_empty() {
            p.muted { "With a second step a stolen password is not enough." }
        } @else {
            ul.factors {
                @for factor in &shown {
                    li {
                        div {
                            strong { bdi { (factor.name) } }
                            span.small.muted {
                                (kind_title(factor.kind)) " · "
                                @match factor.used {
                                    Some(at) => { "used " (show::when(at, now)) },
                                    None => "never used",
                                }
                            }
                        }
                        @if fresh {
                            details {
                                summary { "Remove" span.unseen { " " (factor.name) } }
                                form method="post" action={
                                    (HERE) "/factors/" (address::value(&factor.id)) "/remove"
                                } {
                                    button.button.harm type="submit" { "Remove it" }
                                }
                            }
                        }
                    }
                }
            }
            p.small.muted { (show::many(papers, "recovery code", "recovery codes")) " left." }
        }
        @if fresh {
            div.actions {
                @if has_password && !has_totp { a.button.quiet href={ (HERE) "/totp" } { "Add an app with codes" } }
                @if !shown.is_empty() {
                    form.inline method="post" action={ (HERE) "/recovery" } {
                        button.button.quiet type="submit" { "New recovery codes" }
                    }
                }
            }
        }
        @if fresh { form hidden method="post" action={ (HERE) "/passkeys" } data-passkey="create"
            data-begin={ (HERE) "/passkeys/begin" } {
            (super::login::passkey_fields())
            input type="hidden" name="key";
            input type="hidden" name="algorithm";
            (Input {
                name: "name",
                label: "New passkey",
                help: Some("What you call the device, for example: phone."),
                optional: false,
                required: true,
                ..Input::default()
            }.show(wrongs))
            button.button.quiet type="submit" { "Add a passkey" }
            p.objection role="alert" hidden {}
        } }
    }
}

const fn kind_title(kind: FactorKind) -> &'static str {
    match kind {
        FactorKind::Totp => "App with codes",
        FactorKind::Passkey => "Passkey",
        FactorKind::Recovery => "Recovery code",
    }
}

/// The providers of identities this account is linked to, and those it could be.
fn linked(desk: &Desk, identities: &[Identity], fresh: bool, now: i64) -> Markup {
    let providers = desk.host.identities();
    let free = |issuer: &str| !identities.iter().any(|identity| identity.issuer == issuer);
    html! {
        @if !providers.is_empty() || !identities.is_empty() {
            h2 { "Sign in through" }
            @if !identities.is_empty() {
                ul.factors {
                    @for identity in identities {
                        li {
                            div {
                                strong { bdi { (identity.label) } }
                                span.small.muted { (identity.issuer) " · linked "
                                    (show::when(identity.created, now)) }
                            }
                            @if fresh { form.inline method="post" action={ (HERE) "/identities/remove" } {
                                input type="hidden" name="issuer" value=(identity.issuer);
                                input type="hidden" name="subject" value=(identity.subject);
                                button.link.danger type="submit" {
                                    "Unlink" span.unseen { " " (identity.label) }
                                }
                            } }
                        }
                    }
                }
            }
            @if fresh { div.actions {
                @for provider in providers.iter().filter(|provider| free(&provider.issuer)) {
                    form.inline method="post" action={
                        (HERE) "/identities/" (address::value(&provider.name))
                    } {
                        button.button.quiet type="submit" { "Link " (provider.name) }
                    }
                }
            } }
        }
    }
}

/// `GET` on an address that only takes forms: where a browser lands that reloads one.
pub(crate) async fn back(_: Signed) -> Response {
    see_other(HERE)
}
