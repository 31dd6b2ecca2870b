//! One-time setup: the holder of the token printed at the first start becomes the owner.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::html;
use store::{Account, AccountRole, StoreError};

use crate::form::{FieldErrors, FormFields, FormInput};
use crate::guard::SETUP_TOKEN_SETTING;
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::state::ConsoleState;
use crate::{session, shared_fields, urls};
use admin::{names, random};

const MAX_FIELD_BYTES: usize = 4_096;

/// Submitted values.
struct SetupInput<'a> {
    username: &'a str,
    email: &'a str,
    password: &'a str,
    again: &'a str,
}

/// `GET /console/setup/{token}`
pub(crate) async fn show(Path(token): Path<String>) -> Response {
    let entered = SetupInput { username: "", email: "", password: "", again: "" };
    form(StatusCode::OK, &token, &entered, &FieldErrors::default())
}

/// `POST /console/setup/{token}`
pub(crate) async fn claim(
    State(state): State<Arc<ConsoleState>>,
    Path(token): Path<String>,
    headers: HeaderMap,
    fields: FormFields,
) -> Result<Response, PageError> {
    let entered = SetupInput {
        username: fields.get_trimmed("username", MAX_FIELD_BYTES)?,
        email: fields.get_trimmed("email", MAX_FIELD_BYTES)?,
        password: fields.get("password"),
        again: fields.get("again"),
    };
    let mut errors = validate(&entered);
    let owner = unclaimed_owner(&state).await?;
    for (field, login) in [("username", entered.username), ("email", entered.email)] {
        let taken = state.store.account_by_login(login).await?;
        if !login.is_empty() && taken.is_some_and(|account| account.id != owner.id) {
            errors.add(field, "This is taken by another account.");
        }
    }
    if !errors.is_empty() {
        return Ok(form(StatusCode::BAD_REQUEST, &token, &entered, &errors));
    }
    let hash = state.passwords.hash(entered.password).await?;
    consume_token(&state, &token).await?;
    let made = claim_owner(&state, owner, &entered, &hash).await;
    let account = match made {
        Ok(account) => account,
        Err(error) => {
            // The gateway has no owner yet, so the link must keep working.
            state.store.put_setting(SETUP_TOKEN_SETTING, &token).await?;
            let StoreError::Conflict(_) = error else { return Err(error.into()) };
            errors.add("username", "This username or e-mail address is taken.");
            return Ok(form(StatusCode::BAD_REQUEST, &token, &entered, &errors));
        }
    };
    state.audit(&account.id, "account.setup", &account.id, "").await;
    let (email, host) = (entered.email.to_owned(), Arc::clone(&state));
    if !email.is_empty() && account.email.is_none() {
        let account = account.clone();
        state.host.accounts().tasks.spawn(async move {
            if let Err(error) = super::confirm::send_confirmation(&host, &account, &email).await {
                tracing::error!("cannot send a confirmation mail: {error:?}");
            }
        });
    }
    session::start_session(&state, &headers, &account, "/console").await
}

/// Removes the token from the store. Only one of several concurrent requests succeeds.
async fn consume_token(state: &ConsoleState, token: &str) -> Result<(), PageError> {
    match state.store.take_setting(SETUP_TOKEN_SETTING).await? {
        Some(word) if random::constant_time_eq(&word, token) => Ok(()),
        Some(other) => {
            // The token changed after the guard's check. This request must not use the new one.
            state.store.put_setting(SETUP_TOKEN_SETTING, &other).await?;
            Err(PageError::NotFound)
        }
        None => Err(PageError::NotFound),
    }
}

/// Returns the account created at the first start; it has no password until it is claimed.
async fn unclaimed_owner(state: &ConsoleState) -> Result<Account, PageError> {
    let accounts = state.store.accounts().await?;
    let unclaimed =
        |account: &Account| account.role == AccountRole::Owner && account.password_hash.is_none();
    accounts.into_iter().find(unclaimed).ok_or(PageError::NotFound)
}

async fn claim_owner(
    state: &ConsoleState,
    owner: Account,
    entered: &SetupInput<'_>,
    hash: &str,
) -> Result<Account, StoreError> {
    // If mail is configured, the address must be confirmed first.
    let email = (!entered.email.is_empty() && !state.host.can_mail()).then_some(entered.email);
    let now = state.now();
    let renamed = state.store.rename_account(&owner.id, entered.username, email, now).await?;
    if !renamed || !state.store.set_password(&owner.id, Some(hash), now).await? {
        return Err(StoreError::Missing("account"));
    }
    Ok(Account { username: entered.username.to_owned(), email: email.map(str::to_owned), ..owner })
}

fn validate(entered: &SetupInput<'_>) -> FieldErrors {
    let SetupInput { username, email, password, again } = entered;
    let mut errors = FieldErrors::default();
    if let Some(why) = names::username_error(username) {
        errors.add("username", why);
    }
    if !email.is_empty() && !names::is_email_address(email) {
        errors.add("email", "This does not look like an e-mail address.");
    }
    if let Some((field, why)) = names::password_form_error(password, again, &[username, email]) {
        errors.add(field, why);
    }
    errors
}

fn form(
    status: StatusCode,
    token: &str,
    entered: &SetupInput<'_>,
    errors: &FieldErrors,
) -> Response {
    let body = html! {
        section.card {
            h1 { "Set up your gateway" }
            p.muted {
                "Make the account that owns this gateway. This page works once; afterwards you "
                "sign in with what you choose here."
            }
            (shared_fields::error_summary(errors))
            form method="post" action={ "/console/setup/" (urls::escape_value(token)) } {
                (FormInput {
                    name: "username",
                    label: "Username",
                    value: entered.username,
                    autocomplete: "username",
                    required: true,
                    autofocus: true,
                    ..FormInput::default()
                }.render(errors))
                (FormInput {
                    name: "email",
                    label: "E-mail",
                    kind: "email",
                    value: entered.email,
                    autocomplete: "email",
                    help: Some("You can sign in with it, too."),
                    ..FormInput::default()
                }.render(errors))
                (shared_fields::new_password(errors, false))
                button.button.wide type="submit" { "Create the owner" }
            }
        }
    };
    page(status, &Layout::signed_out("Set up"), &body)
}
