//! Confirmation of an e-mail address.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use maud::html;
use store::{Account, Link, LinkPurpose, StoreError};

use crate::cookies::{self, CookieKind};
use crate::layout::{Layout, ok_page};
use crate::links::{self, LINK_LIFETIMES, LinkData};
use crate::mails;
use crate::page_error::PageError;
use crate::redirect::redirect_to;
use crate::state::ConsoleState;

/// Mails a confirmation link. Earlier links of the account expire.
pub(crate) async fn send_confirmation(
    state: &ConsoleState,
    account: &Account,
    email: &str,
) -> Result<(), PageError> {
    state.store.drop_links_of(&account.id, LinkPurpose::Email).await?;
    let note = LinkData { email: Some(email.to_owned()), ..LinkData::default() };
    let token =
        links::create(state, LinkPurpose::Email, Some(&account.id), &note, LINK_LIFETIMES.email)
            .await?;
    mails::send(state, mails::confirm(email, &account.username, &links::url(state, &token))).await;
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
    let (link, account, email) = opened_confirmation(&state, &headers).await?;
    links::consume(&state, &link).await?;
    let Account { id, username, .. } = &account;
    match state.store.rename_account(id, username, Some(&email), state.now()).await {
        Ok(_) => {}
        // Another account confirmed the address in the meantime.
        Err(StoreError::Conflict(_)) => return Err(PageError::InvalidLink),
        Err(error) => return Err(error.into()),
    }
    state.audit(id, "account.email", id, "").await;
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
    let id = link.account_id.as_deref().ok_or(PageError::InvalidLink)?;
    let account = state.store.account(id).await?.filter(|account| !account.disabled);
    let email = links::link_data(&link).email.ok_or(PageError::InvalidLink)?;
    Ok((link, account.ok_or(PageError::InvalidLink)?, email))
}
