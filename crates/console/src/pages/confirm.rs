//! Confirmation of an e-mail address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use maud::html;
use store::{Account, Link, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::layout::{Layout, ok_page};
use crate::links;
use crate::mails;
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::state::ConsoleState;
use admin::Actor;

/// Mails a confirmation link. Earlier links of the account expire.
pub(crate) async fn send_confirmation(
    state: &ConsoleState,
    account: &Account,
    email: &str,
) -> Result<(), PageError> {
    let actor = Actor::Person(account.clone());
    let path = state.host.accounts().mail_email_link(&actor, email).await?;
    let url = links::absolute(state, &path);
    mails::send(state, mails::confirm(email, &account.username, &url)).await;
    Ok(())
}

/// `GET /confirm`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let (_, account, email) = opened_confirmation(&state, &headers).await?;
    let body = html! {
        section.card {
            h1 { "Confirm your address" }
            p { "The account " strong { bdi { (account.username) } } " will use "
                strong { bdi { (email) } } "." }
            form method="post" action="/confirm" {
                button.button.wide type="submit" { "Confirm the address" }
            }
        }
    };
    Ok(ok_page(&Layout::signed_out("Confirm your address"), &body))
}

/// `POST /confirm`
pub(crate) async fn confirm(
    State(state): State<Arc<ConsoleState>>,
    headers: HeaderMap,
) -> Result<Response, PageError> {
    let (link, _, _) = opened_confirmation(&state, &headers).await?;
    let account = state.host.accounts().confirm_email(&link).await?;
    // Notifies the previous address.
    super::notify_owner(&state, &account, "it uses another address");
    let mut response = redirect_to("/console/account?told=email");
    cookies::clear(&state, &mut response, CookieKind::Link);
    Ok(response)
}

async fn opened_confirmation(
    state: &ConsoleState,
    headers: &HeaderMap,
) -> Result<(Link, Account, String), PageError> {
    let link = links::from_cookie(state, headers, &[LinkPurpose::Email]).await?;
    let account = state.host.accounts().account_of_link(&link, LinkPurpose::Email).await?;
    let email = links::link_data(&link).email.ok_or(PageError::InvalidLink)?;
    Ok((link, account, email))
}
