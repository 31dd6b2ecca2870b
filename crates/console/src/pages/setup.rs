//! One-time setup: the holder of the token printed at the first start becomes the owner.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use maud::html;

use crate::form::{FieldErrors, FormFields, FormInput};
use crate::layout::{Layout, page};
use crate::page_error::PageError;
use crate::state::ConsoleState;
use crate::{session, shared_fields, urls};
use admin::{AdminError, NewPassword, OwnerClaim, names};

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
    let (mut errors, password) = validate(&entered);
    let Some(password) = password.filter(|_| errors.is_empty()) else {
        return Ok(form(StatusCode::BAD_REQUEST, &token, &entered, &errors));
    };
    let claim = OwnerClaim {
        username: entered.username,
        email: entered.email,
        confirms_email: state.host.can_mail(),
        password: state.passwords.hash(password).await?,
    };
    let account = match state.host.accounts().claim_owner(&token, claim).await {
        Ok(account) => account,
        Err(AdminError::Invalid { field, message }) => {
            errors.add(&field, message);
            return Ok(form(StatusCode::BAD_REQUEST, &token, &entered, &errors));
        }
        Err(error) => return Err(error.into()),
    };
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

/// Returns the errors of the form, and the password if it keeps the rules.
fn validate(entered: &SetupInput<'_>) -> (FieldErrors, Option<NewPassword>) {
    let SetupInput { username, email, password, again } = entered;
    let mut errors = FieldErrors::default();
    if let Some(why) = names::username_error(username) {
        errors.add("username", why);
    }
    if !email.is_empty() && !names::is_email_address(email) {
        errors.add("email", "This does not look like an e-mail address.");
    }
    match NewPassword::check_form(password, again, &[username, email]) {
        Ok(password) => (errors, Some(password)),
        Err((field, why)) => {
            errors.add(field, why);
            (errors, None)
        }
    }
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
