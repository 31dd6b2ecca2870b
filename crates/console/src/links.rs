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

use crate::cookies::{self, Jar};
use crate::desk::Desk;
use crate::shell::see_other;
use crate::trouble::Trouble;
use admin::random;

pub(crate) use admin::one_time_link::{LIFE, Note, new, note};

/// Makes a link and returns its word.
pub(crate) async fn make(
    desk: &Desk,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &Note,
    life: Micros,
) -> Result<String, Trouble> {
    let word = random::word().map_err(|_| Trouble::Broken)?;
    add(desk, random::digest(&word), purpose, account_id, note, life).await?;
    Ok(word)
}

/// Adds a link whose digest is known.
pub(crate) async fn add(
    desk: &Desk,
    hash: Vec<u8>,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &Note,
    life: Micros,
) -> Result<(), Trouble> {
    let now = desk.now();
    if let Err(error) = desk.store.sweep_links(now).await {
        tracing::warn!("old links could not be cleared away: {error}");
    }
    Ok(desk.store.add_link(&new(hash, purpose, account_id, note, (now, life))).await?)
}

/// The address of a link.
pub(crate) fn url(desk: &Desk, word: &str) -> String {
    format!("{}/link/{word}", desk.url())
}

/// `GET /link/{token}`
pub(crate) async fn open(
    State(desk): State<Arc<Desk>>,
    Path(word): Path<String>,
) -> Result<Response, Trouble> {
    let link = desk.store.link(&random::digest(&word)).await?.filter(|link| alive(&desk, link));
    let page = match link.ok_or(Trouble::DeadLink)?.purpose {
        LinkPurpose::SignUp | LinkPurpose::Invite => "/signup/new",
        LinkPurpose::Reset => "/reset/new",
        LinkPurpose::Email => "/confirm",
        LinkPurpose::Second | LinkPurpose::Challenge | LinkPurpose::Return | LinkPurpose::Proof => {
            return Err(Trouble::DeadLink);
        }
    };
    let mut response = see_other(page);
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    cookies::set(&desk, &mut response, Jar::Link, &word, LIFE.reset / 1_000_000);
    Ok(response)
}

/// The link that the request's browser opened, if it is one of these and still good.
pub(crate) async fn opened(
    desk: &Desk,
    headers: &HeaderMap,
    purposes: &[LinkPurpose],
) -> Result<Link, Trouble> {
    let word = cookies::sent(desk, headers, Jar::Link).ok_or(Trouble::DeadLink)?;
    let link = desk.store.link(&random::digest(&word)).await?;
    let fits = |link: &Link| purposes.contains(&link.purpose) && alive(desk, link);
    link.filter(fits).ok_or(Trouble::DeadLink)
}

/// Uses a link up. Of all who try at once, one goes on.
pub(crate) async fn take(desk: &Desk, link: &Link) -> Result<(), Trouble> {
    let taken = desk.store.take_link(&link.hash, link.purpose).await?;
    taken.filter(|link| alive(desk, link)).map(|_| ()).ok_or(Trouble::DeadLink)
}

/// Puts a link back that was taken for nothing.
pub(crate) async fn put_back(desk: &Desk, link: &Link) -> Result<(), Trouble> {
    Ok(desk.store.add_link(link).await?)
}

/// Whether a link can still be used.
pub(crate) fn alive(desk: &Desk, link: &Link) -> bool {
    desk.now() < link.expires
}
