//! One-time links: a random word in an address, its digest in the store.
//!
//! Whoever opens a link is sent on to the page it is for, with the word in a cookie: so it stays in
//! no history, in no referrer and in no address that is read over a shoulder. Opening a link uses
//! nothing up, for programs open what is in mails; sending the form behind it does.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};
use ledger::Micros;
use store::{Link, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::layout::see_other;
use crate::page_error::PageError;
use crate::state::ConsoleState;
use admin::random;

pub(crate) use admin::one_time_link::{LINK_LIFETIMES, LinkData, link_data, new_link};

/// Makes a link and returns its word.
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

/// Adds a link whose digest is known.
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
        tracing::warn!("old links could not be cleared away: {error}");
    }
    Ok(desk.store.add_link(&new_link(hash, purpose, account_id, note, (now, life))).await?)
}

/// The address of a link.
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

/// The link that the request's browser opened, if it is one of these and still good.
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

/// Uses a link up. Of all who try at once, one goes on.
pub(crate) async fn consume(desk: &ConsoleState, link: &Link) -> Result<(), PageError> {
    let taken = desk.store.take_link(&link.hash, link.purpose).await?;
    taken.filter(|link| is_valid(desk, link)).map(|_| ()).ok_or(PageError::InvalidLink)
}

/// Puts a link back that was taken for nothing.
pub(crate) async fn restore(desk: &ConsoleState, link: &Link) -> Result<(), PageError> {
    Ok(desk.store.add_link(link).await?)
}

/// Whether a link can still be used.
pub(crate) fn is_valid(desk: &ConsoleState, link: &Link) -> bool {
    desk.now() < link.expires
}
