//! Signing in and out.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::{Markup, html};
use store::Account;

use crate::desk::Desk;
use crate::form::{Asked, Fields, Input, Wrongs};
use crate::session::{self, Signed};
use crate::shell::{Shell, page, see_other};
use crate::signup::SignUp;
use crate::throttle::Place;
use crate::trouble::Trouble;
use crate::{address, password, signin};

const LONGEST_LOGIN: usize = 320;

/// What the page was asked for, or what was entered.
#[derive(Default)]
struct Entered<'a> {
    login: &'a str,
    next: &'a str,
    why: Option<&'a str>,
}

/// `GET /login`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
    Asked(asked): Asked,
) -> Result<Response, Trouble> {
    if session::find(&desk, &headers).await?.is_some() {
        return Ok(see_other("/console"));
    }
    let next = address::inside(asked.get("next")).unwrap_or_default();
    form(&desk, StatusCode::OK, &Entered { next, ..Entered::default() }).await
}

/// `POST /login`
pub(crate) async fn enter(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let login = fields.short("login", LONGEST_LOGIN)?;
    let next = address::inside(fields.get("next")).unwrap_or_default();
    let password = fields.get("password");
    if password.len() > admin::password::LONGEST {
        return Err(Trouble::Bad("A field holds far more text than it can take."));
    }
    if login.is_empty() || password.is_empty() {
        let why = Some("Enter your username or e-mail address and your password.");
        return form(&desk, StatusCode::BAD_REQUEST, &Entered { login, next, why }).await;
    }
    let place = place(&extensions);
    desk.throttle.admit(&desk.store, login, place, desk.now()).await?;
    match known(&desk, login, password).await? {
        Some(account) => {
            desk.throttle.forgive(&desk.store, login, place, desk.now()).await?;
            let next = if next.is_empty() { "/console" } else { next };
            signin::password_right(&desk, &headers, &account, next).await
        }
        None => {
            tracing::info!("a sign-in was refused");
            let why = Some("This username and this password do not go together.");
            form(&desk, StatusCode::UNAUTHORIZED, &Entered { login, next, why }).await
        }
    }
}

/// Where a request comes from, as far as tries are counted.
pub(crate) fn place(extensions: &Extensions) -> Place {
    Place::of(extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))
}

/// The account that this login and password open. Whether the account is missing, locked out or
/// has no password, the work is the same.
async fn known(desk: &Desk, login: &str, password: &str) -> Result<Option<Account>, Trouble> {
    let account = desk.store.account_by_login(login).await?;
    let hash = account.as_ref().and_then(|account| account.password_hash.clone());
    let fits = desk.passwords.verify(password, hash).await?;
    Ok(account.filter(|account| fits && !account.disabled))
}

/// `POST /logout`
pub(crate) async fn leave(
    State(desk): State<Arc<Desk>>,
    signed: Signed,
) -> Result<Response, Trouble> {
    signed.end(&desk).await
}

async fn form(desk: &Desk, status: StatusCode, entered: &Entered<'_>) -> Result<Response, Trouble> {
    let Entered { login, next, why } = entered;
    let none = Wrongs::default();
    let open = SignUp::of(desk).await? == SignUp::Open && desk.host.can_mail();
    let body = html! {
        section.card {
            h1 { "Sign in" }
            @if let Some(why) = why { p.objection role="alert" { (why) } }
            form method="post" action="/login" {
                (Input {
                    name: "login",
                    label: "Username or e-mail",
                    value: login,
                    complete: "username",
                    required: true,
                    focus: login.is_empty(),
                    ..Input::default()
                }.show(&none))
                (Input {
                    name: "password",
                    label: "Password",
                    kind: "password",
                    complete: "current-password",
                    required: true,
                    focus: !login.is_empty(),
                    ..Input::default()
                }.show(&none))
                @if !next.is_empty() { input type="hidden" name="next" value=(next); }
                button.button.wide type="submit" { "Sign in" }
            }
            (other_ways(desk, next))
            p.beside {
                a href="/reset" { "Reset Password" }
                @if open { a href="/signup" { "Create an account" } }
            }
        }
    };
    Ok(page(status, &Shell::outside("Sign in"), &body))
}

/// Passkeys, which need the script, and the providers of identities.
fn other_ways(desk: &Desk, next: &str) -> Markup {
    html! {
        div.ways {
            form hidden method="post" action="/login/passkey" data-passkey="get"
                data-begin="/login/passkey/begin" {
                (passkey_fields())
                @if !next.is_empty() { input type="hidden" name="next" value=(next); }
                button.button.quiet.wide type="submit" { "Sign in with a passkey" }
                p.objection role="alert" hidden {}
            }
            @for provider in desk.host.identities() {
                form method="post" action={ "/auth/" (address::value(&provider.name)) } {
                    @if !next.is_empty() { input type="hidden" name="next" value=(next); }
                    button.button.quiet.wide type="submit" {
                        "Continue with " (provider.name)
                    }
                }
            }
        }
    }
}

/// What the script fills with a passkey's answer.
pub(crate) fn passkey_fields() -> Markup {
    html! {
        @for name in ["id", "client", "authenticator", "signature"] {
            input type="hidden" name=(name);
        }
    }
}
