//! Signing in and out.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::html;
use store::Account;

use crate::desk::Desk;
use crate::form::{Fields, Input, Wrongs};
use crate::password;
use crate::session::{self, Signed};
use crate::shell::{Shell, page, see_other};
use crate::throttle::Place;
use crate::trouble::Trouble;

const LONGEST_LOGIN: usize = 320;

/// `GET /login`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    if session::find(&desk, &headers).await?.is_some() {
        return Ok(see_other("/console"));
    }
    Ok(form(StatusCode::OK, "", None))
}

/// `POST /login`
pub(crate) async fn enter(
    State(desk): State<Arc<Desk>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Trouble> {
    let login = fields.short("login", LONGEST_LOGIN)?;
    let password = fields.get("password");
    if password.len() > password::LONGEST {
        return Err(Trouble::Bad("A field holds far more text than it can take."));
    }
    if login.is_empty() || password.is_empty() {
        let why = "Enter your username or e-mail address and your password.";
        return Ok(form(StatusCode::BAD_REQUEST, login, Some(why)));
    }
    let peer = extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip());
    let place = Place::of(peer);
    desk.throttle.admit(login, place, desk.now()).map_err(Trouble::TooOften)?;
    match known(&desk, login, password).await? {
        Some(account) => {
            desk.throttle.forgive(login, place);
            desk.note(&account.id, "session.start", &account.id, "").await;
            session::start(&desk, &headers, &account).await
        }
        None => {
            tracing::info!("a sign-in was refused");
            let why = "This username and this password do not go together.";
            Ok(form(StatusCode::UNAUTHORIZED, login, Some(why)))
        }
    }
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

fn form(status: StatusCode, login: &str, why: Option<&str>) -> Response {
    let none = Wrongs::default();
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
                button.button.wide type="submit" { "Sign in" }
            }
        }
    };
    page(status, &Shell::outside("Sign in"), &body)
}
