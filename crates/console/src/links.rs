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
use serde::{Deserialize, Serialize};
use store::{Link, Purpose};

use crate::cookies::{self, Jar};
use crate::desk::Desk;
use crate::random;
use crate::shell::see_other;
use crate::trouble::Trouble;

const MINUTE: Micros = 60 * 1_000_000;
const DAY: Micros = 24 * 60 * MINUTE;

/// How long links live, by what they are for.
pub(crate) const LIFE: Lives =
    Lives { reset: 30 * MINUTE, sign_up: DAY, invite: 7 * DAY, email: DAY, step: 10 * MINUTE };

/// How long links live.
pub(crate) struct Lives {
    pub(crate) reset: Micros,
    pub(crate) sign_up: Micros,
    pub(crate) invite: Micros,
    pub(crate) email: Micros,
    /// A step of a sign-in.
    pub(crate) step: Micros,
}

/// What a link remembers for the page it leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Note {
    /// The address the link was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) email: Option<String>,
    /// The role of an account to be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    /// The team whoever makes an account with it belongs to, and their role there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) team: Option<(String, String)>,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) maker: Option<String>,
    /// Where to go when all is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// The provider of identities asked, what its answer must contain, and what redeems its code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nonce: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) verifier: Option<String>,
}

/// What a link remembers.
pub(crate) fn note(link: &Link) -> Note {
    serde_json::from_str(&link.data).unwrap_or_default()
}

/// Makes a link and returns its word.
pub(crate) async fn make(
    desk: &Desk,
    purpose: Purpose,
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
    purpose: Purpose,
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

/// A link made at that time, to live for so long.
pub(crate) fn new(
    hash: Vec<u8>,
    purpose: Purpose,
    account_id: Option<&str>,
    note: &Note,
    (now, life): (Micros, Micros),
) -> Link {
    Link {
        hash,
        purpose,
        account_id: account_id.map(str::to_owned),
        // A note is a few texts, which can always be written.
        data: serde_json::to_string(note).unwrap_or_default(),
        created: now,
        expires: now.saturating_add(life),
    }
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
        Purpose::SignUp | Purpose::Invite => "/signup/new",
        Purpose::Reset => "/reset/new",
        Purpose::Email => "/confirm",
        Purpose::Second | Purpose::Challenge | Purpose::Return | Purpose::Proof => {
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
    purposes: &[Purpose],
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
