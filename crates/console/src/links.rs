//! One-time links: a random token in the URL, its digest in the store.
//!
//! Opening a link stores the token in a cookie and redirects to the page the link is for. The token
//! therefore stays out of the history, the referrer and the address bar. Opening does not use the
//! link up, because mail scanners open links too. Submitting the form does.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};
use ledger::Micros;
use store::{Link, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::page_error::PageError;
use crate::redirect::see_other;
use crate::state::ConsoleState;
use admin::random;

pub(crate) use admin::one_time_link::{LINK_LIFETIMES, LinkData, link_data, new_link};

/// Creates a link and returns its token.
pub(crate) async fn create(
    desk: &ConsoleState,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    life: Micros,
) -> Result<String, PageError> {
    let word = random::random_token().map_err(|_| PageError::Internal)?;
    add(desk, random::digest(&word), purpose, account_id, note, life).await?;
    Ok(word)
}

/// Stores a link under a given digest.
pub(crate) async fn add(
    desk: &ConsoleState,
    hash: Vec<u8>,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    life: Micros,
) -> Result<(), PageError> {
    let now = desk.now();
    if let Err(error) = desk.store.sweep_links(now).await {
        tracing::warn!("cannot delete expired links: {error}");
    }
    Ok(desk.store.add_link(&new_link(hash, purpose, account_id, note, (now, life))).await?)
}

/// URL of a link.
pub(crate) fn url(desk: &ConsoleState, word: &str) -> String {
    format!("{}/link/{word}", desk.base_url())
}

/// `GET /link/{token}`
pub(crate) async fn open(
    State(desk): State<Arc<ConsoleState>>,
    Path(word): Path<String>,
) -> Result<Response, PageError> {
    let link = desk.store.link(&random::digest(&word)).await?.filter(|link| is_valid(&desk, link));
    let page = match link.ok_or(PageError::InvalidLink)?.purpose {
        LinkPurpose::SignUp | LinkPurpose::Invite => "/signup/new",
        LinkPurpose::Reset => "/reset/new",
        LinkPurpose::Email => "/confirm",
        LinkPurpose::Second | LinkPurpose::Challenge | LinkPurpose::Return | LinkPurpose::Proof => {
            return Err(PageError::InvalidLink);
        }
    };
    let mut response = see_other(page);
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    cookies::set(&desk, &mut response, CookieKind::Link, &word, LINK_LIFETIMES.reset / 1_000_000);
    Ok(response)
}

/// Returns the valid link this browser has opened, if it has one of the given purposes.
pub(crate) async fn from_cookie(
    desk: &ConsoleState,
    headers: &HeaderMap,
    purposes: &[LinkPurpose],
) -> Result<Link, PageError> {
    let word = cookies::read(desk, headers, CookieKind::Link).ok_or(PageError::InvalidLink)?;
    let link = desk.store.link(&random::digest(&word)).await?;
    let fits = |link: &Link| purposes.contains(&link.purpose) && is_valid(desk, link);
    link.filter(fits).ok_or(PageError::InvalidLink)
}

/// Uses a link up. Only one of several concurrent requests succeeds.
pub(crate) async fn consume(desk: &ConsoleState, link: &Link) -> Result<(), PageError> {
    let taken = desk.store.take_link(&link.hash, link.purpose).await?;
    taken.filter(|link| is_valid(desk, link)).map(|_| ()).ok_or(PageError::InvalidLink)
}

/// Restores a link whose action failed.
pub(crate) async fn restore(desk: &ConsoleState, link: &Link) -> Result<(), PageError> {
    Ok(desk.store.add_link(link).await?)
}

/// Returns true if the link has not expired.
pub(crate) fn is_valid(desk: &ConsoleState, link: &Link) -> bool {
    desk.now() < link.expires
}
