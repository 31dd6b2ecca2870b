//! The user's own account: sign-in methods and sessions.

pub(crate) mod email;
pub(crate) mod identities;
pub(crate) mod passkeys;
pub(crate) mod password;
pub(crate) mod prove;
pub(crate) mod totp;
pub(crate) mod zone;

use std::sync::Arc;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use store::{Factor, FactorKind, Identity};

use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::redirect::{redirect_to, see_other};
use crate::session::SignedInUser;
use crate::shared_fields::{current_password, error_summary, new_password};
use crate::state::ConsoleState;
use crate::throttle::ClientNetwork;
use crate::viewer_time::ViewerClock;
use crate::{display, urls};

pub(super) const PAGE_PATH: &str = "/console/account";

/// `GET /console/account`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let notice = match query.get("told") {
        "password" => Some("Your password is changed. Everyone else was signed out."),
        "email" => Some("The address is confirmed."),
        "sent" => Some("A mail with a link is on its way."),
        "factor" => Some("That was removed."),
        "passkey" => Some("The passkey was added."),
        "identity" => Some("Your account is linked."),
        "zone" => Some("Pages show times in that zone."),
        "second" => {
            Some("Your role needs a second factor. Add an authenticator app or a passkey here.")
        }
        _ => None,
    };
    render_page(
        &state,
        &user,
        StatusCode::OK,
        &FormFields::default(),
        &FieldErrors::default(),
        notice,
    )
    .await
}

/// `POST /console/account/sessions/end`: ends every session, this one included.
pub(crate) async fn end_sessions(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    state.host.accounts().end_sessions(&user.actor(), &user.account.id).await?;
    user.end_session(&state).await
}

/// `POST /console/account/factors/{id}/remove`
pub(crate) async fn remove_factor(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PageError> {
    let Path(id) = id.map_err(|_| PageError::NotFound)?;
    let account = &user.account;
    let factors = state.store.factors_of(&account.id).await?;
    if !factors.iter().any(|factor| factor.id == id) {
        return Err(PageError::NotFound);
    }
    state.host.accounts().remove_factor(&user.actor(), &id).await?;
    super::notify_owner(&state, account, "a second factor was removed");
    Ok(redirect_to("/console/account?told=factor"))
}

/// Returns true if the password is right. A signed-in browser alone must not be enough to take an
/// account over. Attempts are limited, and the audit log names those that fail.
pub(super) async fn password_matches(
    state: &ConsoleState,
    user: &SignedInUser,
    password: &str,
) -> Result<bool, PageError> {
    let SignedInUser { account, .. } = user;
    if password.len() > admin::password::MAX_PASSWORD_BYTES {
        return Ok(false);
    }
    let now = state.now();
    let slot = state.passwords.reserve()?;
    let throttle = &state.proof_throttle;
    throttle.admit_name(&state.store, &account.id, now).await?;
    let right = slot.verify(password, account.password_hash.clone()).await?;
    if right {
        throttle.clear_name(&state.store, &account.id, ClientNetwork::of(None), now).await?;
    } else {
        state.host.accounts().record_refused_proof(account, "password").await?;
    }
    Ok(right)
}

/// Renders the page.
pub(super) async fn render_page(
    state: &ConsoleState,
    user: &SignedInUser,
    status: StatusCode,
    fields: &FormFields,
    errors: &FieldErrors,
    notice: Option<&str>,
) -> Result<Response, PageError> {
    let account = &user.account;
    let factors = state.store.factors_of(&account.id).await?;
    let identities = state.store.identities_of(&account.id).await?;
    let clock = &user.clock(state);
    let has_password = account.password_hash.is_some();
    let fresh = user.has_recent_proof(state).await?;
    let body = html! {
        div.title { h1 { "Your account" } }
        @if let Some(notice) = notice { p.told role="status" { (notice) } }
        (error_summary(errors))
        @if !fresh {
            div.title.notice {
                p { "To change the sign-in methods of this account, confirm your identity." }
                a.button.quiet href={ (PAGE_PATH) "/prove" } { "It is me" }
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
                @if fresh && state.host.can_mail() {
                    details open[errors.get("email").is_some()] {
                        summary { "Use another address" }
                        form method="post" action={ (PAGE_PATH) "/email" } {
                            (FormInput {
                                name: "email",
                                label: "New e-mail",
                                kind: "email",
                                value: fields.get("email"),
                                autocomplete: "email",
                                required: true,
                                help: Some("We send a link there that confirms it."),
                                ..FormInput::default()
                            }.render(errors))
                            button.button.quiet type="submit" { "Send the link" }
                        }
                    }
                }
            }
            section.card {
                h2 { "Password" }
                @if has_password {
                    form method="post" action={ (PAGE_PATH) "/password" } {
                        input type="hidden" name="username" autocomplete="username"
                            value=(account.username);
                        (current_password("current", errors))
                        (new_password(errors, false))
                        button.button.quiet type="submit" { "Change the password" }
                    }
                } @else {
                    p { "You sign in without a password." }
                    @if account.email.is_some() && state.host.can_mail() {
                        form method="post" action={ (PAGE_PATH) "/password/link" } {
                            button.button.quiet type="submit" { "Send me a link to set one" }
                        }
                    }
                }
            }
            section.card {
                h2 { "Second step" }
                (second_step(&factors, has_password, fresh, errors, clock))
            }
            section.card { (zone::zone_form(user, fields, errors)) }
            section.card {
                (identity_section(state, &identities, fresh, clock))
                h2 { "Sessions" }
                p.muted { "Ends every session of this account, on every device, this one too." }
                form method="post" action={ (PAGE_PATH) "/sessions/end" } {
                    button.button.quiet type="submit" { "Sign out everywhere" }
                }
            }
        }
    };
    Ok(page(status, &Layout::signed_in("Your account", account).with_nav(PAGE_PATH), &body))
}

fn second_step(
    factors: &[Factor],
    has_password: bool,
    fresh: bool,
    errors: &FieldErrors,
    clock: &ViewerClock,
) -> Markup {
    let shown: Vec<&Factor> =
        factors.iter().filter(|factor| admin::is_second_factor(factor.kind)).collect();
    let recovery_codes =
        factors.iter().filter(|factor| factor.kind == FactorKind::Recovery).count();
    let has_totp = shown.iter().any(|factor| factor.kind == FactorKind::Totp);
    html! {
        @if shown.is_empty() {
            p.muted { "With a second step, a stolen password is not enough." }
        } @else {
            ul.factors {
                @for factor in &shown {
                    li {
                        div {
                            strong { bdi { (factor.name) } }
                            span.small.muted {
                                (kind_title(factor.kind)) " · "
                                @match factor.used {
                                    Some(at) => { "used " (clock.relative_time(at)) },
                                    None => "never used",
                                }
                            }
                        }
                        @if fresh {
                            details {
                                summary { "Remove" span.unseen { " " (factor.name) } }
                                form method="post" action={
                                    (PAGE_PATH) "/factors/" (urls::escape_value(&factor.id)) "/remove"
                                } {
                                    button.button.harm type="submit" { "Remove it" }
                                }
                            }
                        }
                    }
                }
            }
            p.small.muted { (display::plural(recovery_codes, "recovery code", "recovery codes")) " left." }
        }
        @if fresh {
            div.actions {
                @if has_password && !has_totp { a.button.quiet href={ (PAGE_PATH) "/totp" } { "Add an app with codes" } }
                @if !shown.is_empty() {
                    form.inline method="post" action={ (PAGE_PATH) "/recovery" } {
                        button.button.quiet type="submit" { "New recovery codes" }
                    }
                }
            }
        }
        @if fresh { form hidden method="post" action={ (PAGE_PATH) "/passkeys" } data-passkey="create"
            data-begin={ (PAGE_PATH) "/passkeys/begin" } {
            (super::login::passkey_fields())
            input type="hidden" name="key";
            input type="hidden" name="algorithm";
            (FormInput {
                name: "name",
                label: "New passkey",
                help: Some("What you call the device, for example: phone."),
                mark_optional: false,
                required: true,
                ..FormInput::default()
            }.render(errors))
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

/// Linked identity providers, and those that can be linked.
fn identity_section(
    state: &ConsoleState,
    identities: &[Identity],
    fresh: bool,
    clock: &ViewerClock,
) -> Markup {
    let providers = state.host.identity_providers();
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
                                    (clock.relative_time(identity.created)) }
                            }
                            @if fresh { form.inline method="post" action={ (PAGE_PATH) "/identities/remove" } {
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
                        (PAGE_PATH) "/identities/" (urls::escape_value(&provider.name))
                    } {
                        button.button.quiet type="submit" { "Link " (provider.name) }
                    }
                }
            } }
        }
    }
}

/// `GET` on a path that only accepts forms, for browsers that reload the page.
pub(crate) async fn redirect_back(_: SignedInUser) -> Response {
    see_other(PAGE_PATH)
}
