//! One-time links: a random token in the URL, its digest in the store.
//!
//! Opening a link stores the token in a cookie and redirects to the page the link is for. The token
//! therefore stays out of the history, the referrer and the address bar. Opening does not use the
//! link up, because mail scanners open links too. Submitting the form does.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use canon::Micros;
use http::{HeaderMap, HeaderValue, header};
use store::{Link, LinkPurpose};

use crate::cookies::{self, CookieKind};
use crate::page_error::PageError;
use crate::redirect::see_other;
use crate::state::ConsoleState;
use admin::random;

pub(crate) use admin::one_time_link::{LINK_LIFETIMES, LinkData, link_data, new_link};

/// Creates a link and returns its token.
pub(crate) async fn create(
    state: &ConsoleState,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    life: Micros,
) -> Result<String, PageError> {
    let token = random::random_token().map_err(|_| PageError::Internal)?;
    add(state, random::digest(&token), purpose, account_id, note, life).await?;
    Ok(token)
}

/// Stores a link under a given digest.
pub(crate) async fn add(
    state: &ConsoleState,
    hash: Vec<u8>,
    purpose: LinkPurpose,
    account_id: Option<&str>,
    note: &LinkData,
    life: Micros,
) -> Result<(), PageError> {
    let now = state.now();
    if let Err(error) = state.store.sweep_links(now).await {
        tracing::warn!("cannot delete expired links: {error}");
    }
    Ok(state.store.add_link(&new_link(hash, purpose, account_id, note, (now, life))).await?)
}

/// URL of a path of this gateway, such as that of a link.
pub(crate) fn absolute(state: &ConsoleState, path: &str) -> String {
    format!("{}{path}", state.base_url())
}

/// `GET /link/{token}`
pub(crate) async fn open(
    State(state): State<Arc<ConsoleState>>,
    Path(token): Path<String>,
) -> Result<Response, PageError> {
    let link =
        state.store.link(&random::digest(&token)).await?.filter(|link| is_valid(&state, link));
    let page = match link.ok_or(PageError::InvalidLink)?.purpose {
        LinkPurpose::SignUp | LinkPurpose::Invite => "/signup/new",
        LinkPurpose::Reset => "/reset/new",
        LinkPurpose::Email => "/confirm",
        LinkPurpose::Second
        | LinkPurpose::Challenge
        | LinkPurpose::Return
        | LinkPurpose::Proof
        | LinkPurpose::Device
        | LinkPurpose::UserCode
        | LinkPurpose::Authorization => {
            return Err(PageError::InvalidLink);
        }
    };
    let mut response = see_other(page);
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    cookies::set(&state, &mut response, CookieKind::Link, &token, LINK_LIFETIMES.reset.as_secs());
    Ok(response)
}

/// Returns the valid link this browser has opened, if it has one of the given purposes.
pub(crate) async fn from_cookie(
    state: &ConsoleState,
    headers: &HeaderMap,
    purposes: &[LinkPurpose],
) -> Result<Link, PageError> {
    let token = cookies::read(state, headers, CookieKind::Link).ok_or(PageError::InvalidLink)?;
    let link = state.store.link(&random::digest(&token)).await?;
    let fits = |link: &Link| purposes.contains(&link.purpose) && is_valid(state, link);
    link.filter(fits).ok_or(PageError::InvalidLink)
}

/// Returns true if the link has not expired.
pub(crate) fn is_valid(state: &ConsoleState, link: &Link) -> bool {
    state.now() < link.expires
}
