//! Who is signed in: a random word in a cookie, its digest in the store.

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use cookie::{Cookie, SameSite};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, header};
use ledger::Micros;
use store::{Account, Role, Session};

use crate::desk::Desk;
use crate::random;
use crate::shell::see_other;
use crate::trouble::Trouble;

const MINUTE: Micros = 60 * 1_000_000;
const DAY: Micros = 24 * 60 * MINUTE;
/// How long a session lasts in all.
const LIFE: Micros = 30 * DAY;
/// How long it lasts unused.
const IDLE: Micros = 7 * DAY;
/// How old the note of its last use may grow: not every look at a page is worth a write.
const STALE: Micros = 10 * MINUTE;
/// How far two nodes' clocks may differ.
const SKEW: Micros = 5 * MINUTE;

/// Someone signed in. Only the guard of a route makes one.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) account: Account,
    hash: Vec<u8>,
}

impl Signed {
    /// Whether this account sees everyone's keys and calls.
    pub(crate) const fn sees_all(&self) -> bool {
        match self.account.role {
            Role::Owner | Role::Admin => true,
            Role::Member | Role::Viewer => false,
        }
    }

    /// Whether this account may have keys made.
    pub(crate) const fn may_make_keys(&self) -> bool {
        match self.account.role {
            Role::Owner | Role::Admin | Role::Member => true,
            Role::Viewer => false,
        }
    }

    /// Whether this account may change what belongs to that one.
    pub(crate) fn may_change(&self, other: &Account) -> bool {
        match self.account.role {
            Role::Owner => true,
            Role::Admin => other.id == self.account.id || other.role != Role::Owner,
            Role::Member => other.id == self.account.id,
            Role::Viewer => false,
        }
    }

    /// Ends the session and sends the browser to the sign-in page.
    pub(crate) async fn end(self, desk: &Desk) -> Result<Response, Trouble> {
        desk.store.drop_session(&self.hash).await?;
        let mut response = see_other("/login");
        set_cookie(&mut response, cookie(desk, "", 0));
        Ok(response)
    }
}

/// A page for people signed in, put behind the wrong guard, opens for nobody.
impl<S: Send + Sync> FromRequestParts<S> for Signed {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get().cloned().ok_or_else(|| see_other("/login").into_response())
    }
}

/// Who sent the request; `None` when nobody known, or no longer.
pub(crate) async fn find(desk: &Desk, headers: &HeaderMap) -> Result<Option<Signed>, Trouble> {
    let Some(hash) = sent(desk, headers) else { return Ok(None) };
    let Some((session, account)) = desk.store.session(&hash).await? else { return Ok(None) };
    let now = desk.now();
    let over = now >= session.expires || now.saturating_sub(session.seen) >= IDLE;
    // A clock that was turned back must not make an old session young again.
    let unborn = now.saturating_add(SKEW) < session.created.max(session.seen);
    if over || unborn || account.disabled {
        return Ok(None);
    }
    if now.saturating_sub(session.seen) > STALE {
        desk.store.touch_session(&hash, now).await?;
    }
    Ok(Some(Signed { account, hash }))
}

/// Starts a session and sends the browser to the console. Whatever session the browser had ends,
/// so that a planted cookie is worth nothing.
pub(crate) async fn start(
    desk: &Desk,
    headers: &HeaderMap,
    account: &Account,
) -> Result<Response, Trouble> {
    let now = desk.now();
    if let Some(old) = sent(desk, headers) {
        desk.store.drop_session(&old).await?;
    }
    if let Err(error) = desk.store.drop_expired_sessions(now).await {
        tracing::warn!("old sessions could not be cleared away: {error}");
    }
    let word = random::word().map_err(|_| Trouble::Broken)?;
    let session = Session {
        hash: random::digest(&word),
        account_id: account.id.clone(),
        created: now,
        expires: now.saturating_add(LIFE),
        seen: now,
    };
    desk.store.add_session(&session).await?;
    let mut response = see_other("/console");
    set_cookie(&mut response, cookie(desk, &word, LIFE / 1_000_000));
    Ok(response)
}

/// The digest of the word in the request's cookie.
fn sent(desk: &Desk, headers: &HeaderMap) -> Option<Vec<u8>> {
    let name = cookie_name(secure(desk));
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = texts.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let found = cookies.find(|cookie| cookie.name() == name)?;
    let word = found.value();
    (word.len() == 64).then(|| random::digest(word))
}

fn secure(desk: &Desk) -> bool {
    desk.host.public_url().starts_with("https://")
}

/// The prefix makes browsers refuse the cookie from anything but this very host over HTTPS.
const fn cookie_name(secure: bool) -> &'static str {
    if secure { "__Host-portunus" } else { "portunus_session" }
}

fn cookie(desk: &Desk, word: &str, seconds: i64) -> String {
    let secure = secure(desk);
    Cookie::build((cookie_name(secure), word.to_owned()))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(secure)
        .max_age(cookie::time::Duration::seconds(seconds))
        .build()
        .to_string()
}

fn set_cookie(response: &mut Response, cookie: String) {
    if let Ok(value) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}
