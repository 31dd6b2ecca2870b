//! Sign-in and sign-out.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, State};
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use maud::{Markup, html};
use store::Account;

use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::password::PasswordSlot;
use crate::redirect::see_other;
use crate::session::{self, SignedInUser};
use crate::signup::SignUpMode;
use crate::state::ConsoleState;
use crate::throttle::ClientNetwork;
use crate::{known_device, signin, urls};

const MAX_LOGIN_BYTES: usize = 320;

/// Values and message shown in the form.
#[derive(Default)]
struct LoginInput<'a> {
    login: &'a str,
    next: &'a str,
    why: Option<&'a str>,
}

/// `GET /login`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    if session::find_session(&state, &headers).await?.is_some() {
        return Ok(see_other("/console"));
    }
    let next = urls::console_path(query.get("next")).unwrap_or_default();
    form(&state, StatusCode::OK, &LoginInput { next, ..LoginInput::default() }).await
}

/// `POST /login`
pub(crate) async fn sign_in(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let login = fields.get_trimmed("login", MAX_LOGIN_BYTES)?;
    let next = urls::console_path(fields.get("next")).unwrap_or_default();
    let password = fields.get("password");
    if password.len() > admin::password::MAX_PASSWORD_BYTES {
        return Err(PageError::BadRequest("The text of a field is too long."));
    }
    if login.is_empty() || password.is_empty() {
        let why = Some("Enter your username or e-mail address and your password.");
        return form(&state, StatusCode::BAD_REQUEST, &LoginInput { login, next, why }).await;
    }
    let account = state.store.account_by_login(login).await?;
    let network = client_network(&extensions);
    let source = known_device::attempt_source(&state, &headers, account.as_ref(), network).await?;
    let slot = state.passwords.reserve_for(&source)?;
    state.sign_in_throttle.admit_source(&state.store, login, &source, state.now()).await?;
    let tried = account.clone();
    match authenticate(slot, account, password).await? {
        Some(account) => {
            state.sign_in_throttle.clear_source(&state.store, login, &source, state.now()).await?;
            let next = if next.is_empty() { "/console" } else { next };
            signin::after_password(&state, &headers, &account, next).await
        }
        None => {
            let accounts = state.host.accounts();
            accounts.record_refused_sign_in(tried.as_ref(), "password").await?;
            let why = Some("This username and this password do not go together.");
            form(&state, StatusCode::UNAUTHORIZED, &LoginInput { login, next, why }).await
        }
    }
}

/// Client network of a request, for throttling.
pub(crate) fn client_network(extensions: &Extensions) -> ClientNetwork {
    ClientNetwork::of(extensions.get::<ConnectInfo<SocketAddr>>().map(|info| info.0.ip()))
}

/// Returns the account if the password is right and it may sign in. The work is the same whether the account is
/// missing, disabled or has no password, so the response time reveals nothing.
async fn authenticate(
    slot: PasswordSlot<'_>,
    account: Option<Account>,
    password: &str,
) -> Result<Option<Account>, PageError> {
    let hash = account.as_ref().and_then(|account| account.password_hash.clone());
    let fits = slot.verify(password, hash).await?;
    Ok(account.filter(|account| fits && !account.disabled))
}

/// `POST /logout`
pub(crate) async fn sign_out(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
) -> Result<Response, PageError> {
    user.end_session(&state).await
}

async fn form(
    state: &ConsoleState,
    status: StatusCode,
    entered: &LoginInput<'_>,
) -> Result<Response, PageError> {
    let LoginInput { login, next, why } = entered;
    let none = FieldErrors::default();
    let open = SignUpMode::load(&state.store).await? == SignUpMode::Open && state.host.can_mail();
    let body = html! {
        section.card {
            h1 { "Sign in" }
            @if let Some(why) = why { p.objection role="alert" { (why) } }
            form method="post" action="/login" {
                (FormInput {
                    name: "login",
                    label: "Username or e-mail",
                    value: login,
                    autocomplete: "username",
                    required: true,
                    autofocus: login.is_empty(),
                    ..FormInput::default()
                }.render(&none))
                (FormInput {
                    name: "password",
                    label: "Password",
                    kind: "password",
                    autocomplete: "current-password",
                    required: true,
                    autofocus: !login.is_empty(),
                    ..FormInput::default()
                }.render(&none))
                @if !next.is_empty() { input type="hidden" name="next" value=(next); }
                button.button.wide type="submit" { "Sign in" }
            }
            (other_sign_in_methods(state, next))
            p.beside {
                a href="/reset" { "Reset Password" }
                @if open { a href="/signup" { "Create an account" } }
            }
        }
    };
    Ok(page(status, &Layout::signed_out("Sign in"), &body))
}

/// Passkeys (which need the script) and identity providers.
fn other_sign_in_methods(state: &ConsoleState, next: &str) -> Markup {
    html! {
        div.ways {
            form hidden method="post" action="/login/passkey" data-passkey="get"
                data-begin="/login/passkey/begin" {
                (passkey_fields())
                @if !next.is_empty() { input type="hidden" name="next" value=(next); }
                button.button.quiet.wide type="submit" { "Sign in with a passkey" }
                p.objection role="alert" hidden {}
            }
            @for provider in state.host.identity_providers() {
                form method="post" action={ "/auth/" (urls::escape_value(&provider.name)) } {
                    @if !next.is_empty() { input type="hidden" name="next" value=(next); }
                    button.button.quiet.wide type="submit" {
                        "Continue with " (provider.name)
                    }
                }
            }
        }
    }
}

/// Hidden fields the script fills with the passkey's response.
pub(crate) fn passkey_fields() -> Markup {
    html! {
        @for name in ["id", "client", "authenticator", "signature"] {
            input type="hidden" name=(name);
        }
    }
}
