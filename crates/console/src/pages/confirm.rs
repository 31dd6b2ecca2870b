//! Proving that an address is the account's.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use maud::html;
use store::{Account, Link, LinkPurpose, StoreError};

use crate::cookies::{self, Jar};
use crate::desk::Desk;
use crate::links::{self, LIFE, Note};
use crate::mails;
use crate::shell::{Shell, good, sent_to};
use crate::trouble::Trouble;

/// Asks an account to prove an address, in a mail to it. Earlier questions are forgotten.
pub(crate) async fn ask(desk: &Desk, account: &Account, email: &str) -> Result<(), Trouble> {
    desk.store.drop_links_of(&account.id, LinkPurpose::Email).await?;
    let note = Note { email: Some(email.to_owned()), ..Note::default() };
    let word = links::make(desk, LinkPurpose::Email, Some(&account.id), &note, LIFE.email).await?;
    mails::send(desk, mails::confirm(email, &account.username, &links::url(desk, &word))).await;
    Ok(())
}

/// `GET /confirm`
pub(crate) async fn show(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let (_, account, email) = opened(&desk, &headers).await?;
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
    Ok(good(&Shell::outside("Confirm your address"), &body))
}

/// `POST /confirm`
pub(crate) async fn confirm(
    State(desk): State<Arc<Desk>>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let (link, account, email) = opened(&desk, &headers).await?;
    links::take(&desk, &link).await?;
    let Account { id, username, .. } = &account;
    match desk.store.rename_account(id, username, Some(&email), desk.now()).await {
        Ok(_) => {}
        // Somebody else proved it in the meantime.
        Err(StoreError::Conflict(_)) => return Err(Trouble::DeadLink),
        Err(error) => return Err(error.into()),
    }
    desk.note(id, "account.email", id, "").await;
    // The address it had before hears of it too.
    super::tell_owner(&desk, &account, "it uses another address");
    let mut response = sent_to("/console/account?told=email");
    cookies::clear(&desk, &mut response, Jar::Link);
    Ok(response)
}

async fn opened(desk: &Desk, headers: &HeaderMap) -> Result<(Link, Account, String), Trouble> {
    let link = links::opened(desk, headers, &[LinkPurpose::Email]).await?;
    let id = link.account_id.as_deref().ok_or(Trouble::DeadLink)?;
    let account = desk.store.account(id).await?.filter(|account| !account.disabled);
    let email = links::note(&link).email.ok_or(Trouble::DeadLink)?;
    Ok((link, account.ok_or(Trouble::DeadLink)?, email))
}
