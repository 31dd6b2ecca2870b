//! The cookies of the console: what a browser carries from one page to the next.

use axum::response::Response;
use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, header};

use crate::state::ConsoleState;

/// What a cookie holds. Each is a random word of which the store has the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieKind {
    /// A session.
    Session,
    /// A one-time link that is being used.
    Link,
    /// A sign-in whose second factor is to come.
    SecondFactor,
    /// A sign-in that went to a provider of identities.
    IdentityFlow,
}

impl CookieKind {
    /// The prefix makes browsers refuse the cookie from anything but this very host over HTTPS.
    const fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Host-portunus",
            (Self::Session, false) => "portunus_session",
            (Self::Link, true) => "__Host-portunus-link",
            (Self::Link, false) => "portunus_link",
            (Self::SecondFactor, true) => "__Host-portunus-second",
            (Self::SecondFactor, false) => "portunus_second",
            (Self::IdentityFlow, true) => "__Host-portunus-flow",
            (Self::IdentityFlow, false) => "portunus_flow",
        }
    }
}

/// The word a request brings in that cookie, if it looks like one of ours.
pub(crate) fn read(desk: &ConsoleState, headers: &HeaderMap, jar: CookieKind) -> Option<String> {
    let name = jar.name(uses_https(desk));
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = texts.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let found = cookies.find(|cookie| cookie.name() == name)?;
    let word = found.value();
    (word.len() == 64).then(|| word.to_owned())
}

/// Gives the browser a word to bring back for so many seconds.
pub(crate) fn set(
    desk: &ConsoleState,
    response: &mut Response,
    jar: CookieKind,
    word: &str,
    seconds: i64,
) {
    let secure = uses_https(desk);
    let cookie = Cookie::build((jar.name(secure), word.to_owned()))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(secure)
        .max_age(cookie::time::Duration::seconds(seconds))
        .build()
        .to_string();
    if let Ok(value) = HeaderValue::try_from(cookie) {
        response.headers_mut().append(header::SET_COOKIE, value);
    }
}

/// Takes a word back from the browser.
pub(crate) fn clear(desk: &ConsoleState, response: &mut Response, jar: CookieKind) {
    set(desk, response, jar, "", 0);
}

fn uses_https(desk: &ConsoleState) -> bool {
    desk.host.public_url().starts_with("https://")
}
