//! The page on which a person confirms the code of an agent (RFC 8628, section 3.3).
//!
//! It never submits by itself, and shows who asks: a code may come from somebody who wants to use
//! the account of another person (section 5.4).

use std::sync::Arc;

use admin::PendingDevice;
use axum::extract::State;
use axum::response::Response;
use http::{Extensions, StatusCode};
use maud::html;

use super::agent_consent::{answer_fields, asking_view, may_approve, read_answer};
use super::login::client_network;
use crate::form::{FieldErrors, FormFields, FormInput, QueryFields};
use crate::layout::{Layout, ok_page, page};
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use crate::urls;

const PAGE_PATH: &str = "/console/device";
/// Longest code that is looked up.
const MAX_CODE_BYTES: usize = 32;
const UNKNOWN_CODE: &str = "No program waits with this code. It may have expired: start the sign-in \
    again in the program.";

/// `GET /device`, the short address that programs show.
pub(crate) async fn open(QueryFields(query): QueryFields) -> Result<Response, PageError> {
    let code = query.get_trimmed("user_code", MAX_CODE_BYTES)?;
    Ok(redirect_to(&match code {
        "" => PAGE_PATH.to_owned(),
        code => format!("{PAGE_PATH}?user_code={}", urls::escape_value(code)),
    }))
}

/// `GET /console/device`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    user: SignedInUser,
    QueryFields(query): QueryFields,
) -> Result<Response, PageError> {
    let code = query.get_trimmed("user_code", MAX_CODE_BYTES)?;
    if code.is_empty() {
        return Ok(code_form(StatusCode::OK, &user, "", None));
    }
    match find(&state, &extensions, &user, code).await? {
        Some(pending) => Ok(question(&state, StatusCode::OK, &user, code, &pending, &query)),
        None => Ok(code_form(StatusCode::NOT_FOUND, &user, code, Some(UNKNOWN_CODE))),
    }
}

/// Returns the sign-in with that code. Guesses are counted by account and network.
async fn find(
    state: &ConsoleState,
    extensions: &Extensions,
    user: &SignedInUser,
    code: &str,
) -> Result<Option<PendingDevice>, PageError> {
    let (name, network) = (&*user.account.id, client_network(extensions));
    let now = state.now();
    state.device_throttle.admit(&state.store, name, network, now).await?;
    let pending = state.host.accounts().pending_device(code).await?;
    if pending.is_some() {
        // Anybody can start a sign-in and knows its code, which must not pay for guesses.
        state.device_throttle.uncount(&state.store, name, network, now).await?;
    }
    Ok(pending)
}

/// `POST /console/device`
pub(crate) async fn decide(
    State(state): State<Arc<ConsoleState>>,
    extensions: Extensions,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let code = fields.get_single("user_code", MAX_CODE_BYTES)?;
    let Some(pending) = find(&state, &extensions, &user, code).await? else {
        return Ok(code_form(StatusCode::NOT_FOUND, &user, code, Some(UNKNOWN_CODE)));
    };
    let answer = read_answer(&fields)?;
    let approves = answer.is_some();
    state.host.accounts().decide_device_sign_in(&user.actor(), code, answer).await?;
    let label = pending.asking.label();
    let body = html! {
        section.card {
            @if approves {
                h1 { "Signed in" }
                p { bdi { (label) } " has its key in a few seconds. You can close this page." }
                p { "The key is in your " a href="/console" { "list of keys" }
                    ", where you set a limit for it or end the sign-in." }
            } @else {
                h1 { "Refused" }
                p { bdi { (label) } " got nothing. You can close this page." }
            }
        }
    };
    Ok(ok_page(&Layout::signed_in("Sign in a program", &user), &body))
}

/// Asks for a code.
fn code_form(status: StatusCode, user: &SignedInUser, code: &str, why: Option<&str>) -> Response {
    let mut errors = FieldErrors::default();
    if let Some(why) = why {
        errors.add("user_code", why);
    }
    let body = html! {
        section.card {
            h1 { "Sign in a program" }
            p { "Enter the code that the program shows." }
            form method="get" action=(PAGE_PATH) {
                (FormInput {
                    name: "user_code",
                    label: "Code",
                    value: code,
                    required: true,
                    autofocus: true,
                    help: Some("Eight letters, such as WDJB-MJHT."),
                    ..FormInput::default()
                }.render(&errors))
                button.button.wide type="submit" { "Continue" }
            }
        }
    };
    page(status, &Layout::signed_in("Sign in a program", user), &body)
}

/// Asks the person to approve a sign-in.
fn question(
    state: &ConsoleState,
    status: StatusCode,
    user: &SignedInUser,
    code: &str,
    pending: &PendingDevice,
    fields: &FormFields,
) -> Response {
    let PendingDevice { asking, expires } = pending;
    let shown = code.trim().to_ascii_uppercase();
    let body = html! {
        section.card {
            h1 { "Sign in " (asking.label()) "?" }
            p { "It will make calls in your name, and you pay for them. Its code is" }
            p.code-shown { strong { code { bdi { (shown) } } } }
            p { "Go on only if " strong { "you started this sign-in yourself just now" }
                " and your program shows the same code. Nobody else has a reason to send you one." }
            (asking_view(asking))
            p.muted { "The code expires " (user.clock(state).relative_time(*expires)) "." }
            @if may_approve(user) {
                form method="post" action=(PAGE_PATH) {
                    input type="hidden" name="user_code" value=(code);
                    (answer_fields(user, &asking.key_name(), fields))
                }
            } @else {
                p { "Your account may look at this gateway and not make calls. Ask an administrator." }
            }
        }
    };
    page(status, &Layout::signed_in("Sign in a program", user), &body)
}
