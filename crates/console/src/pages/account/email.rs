//! Change of the account's e-mail address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::render_page;
use crate::form::{FieldErrors, FormFields};
use crate::page_error::PageError;
use crate::pages;
use crate::redirect::redirect_to;
use crate::session::SignedInUser;
use crate::state::ConsoleState;
use admin::names;

/// `POST /console/account/email`: the address changes when the link sent to it is used. The page
/// does not reveal whether another account uses the address; the owner of that account is notified.
pub(crate) async fn change(
    State(state): State<Arc<ConsoleState>>,
    user: SignedInUser,
    fields: FormFields,
) -> Result<Response, PageError> {
    let account = &user.account;
    let email = fields.get_single("email", 4_096)?;
    let mut errors = FieldErrors::default();
    if !state.host.can_mail() {
        errors.add("email", "This gateway sends no mail, so that no address can be confirmed.");
    } else if !names::is_email_address(email) {
        errors.add("email", "This does not look like an e-mail address.");
    }
    if !errors.is_empty() {
        return render_page(&state, &user, StatusCode::BAD_REQUEST, &fields, &errors, None).await;
    }
    state.mail_throttle.admit_name(&state.store, email, state.now()).await?;
    let (account, email) = (account.clone(), email.to_owned());
    let tasks = state.host.accounts().tasks.clone();
    tasks.spawn(async move {
        let sent = match state.store.account_by_login(&email).await {
            Ok(Some(other)) if other.id != account.id => {
                let what = "another account wanted to use its address";
                pages::notify_owner(&state, &other, what);
                Ok(())
            }
            Ok(_) => pages::confirm::send_confirmation(&state, &account, &email).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = sent {
            tracing::error!("cannot send a confirmation mail: {error:?}");
        }
    });
    Ok(redirect_to("/console/account?told=sent"))
}
