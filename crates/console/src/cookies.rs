//! The cookies of the console: what a browser carries from one page to the next.

use axum::response::Response;
use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, header};

use crate::desk::Desk;

/// What a cookie holds. Each is a random word of which the store has the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jar {
    /// A session.
    Session,
    /// A one-time link that is being used.
    Link,
    /// A sign-in whose second factor is to come.
    Second,
    /// A sign-in that went to a provider of identities.
    Flow,
}

impl Jar {
    /// The prefix makes browsers refuse the cookie from anything but this very host over HTTPS.
    const fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Host-portunus",
            (Self::Session, false) => "portunus_session",
            (Self::Link, true) => "__Host-portunus-link",
            (Self::Link, false) => "portunus_link",
            (Self::Second, true) => "__Host-portunus-second",
            (Self::Second, false) => "portunus_second",
            (Self::Flow, true) => "__Host-portunus-flow",
            (Self::Flow, false) => "portunus_flow",
        }
    }
}

/// The word a request brings in that cookie, if it looks like one of ours.
pub(crate) fn sent(desk: &Desk, headers: &HeaderMap, jar: Jar) -> Option<String> {
    let name = jar.name(secure(desk));
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = texts.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let found = cookies.find(|cookie| cookie.name() == name)?;
    let word = found.value();
    (word.len() == 64).then(|| word.to_owned())
}

/// Gives the browser a word to bring back for so many seconds.
pub(crate) fn set(desk: &Desk, response: &mut Response, jar: Jar, word: &str, seconds: i64) {
    let secure = secure(desk);
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
pub(crate) fn clear(desk: &Desk, response: &mut Response, jar: Jar) {
    set(desk, response, jar, "", 0);
}

fn secure(desk: &Desk) -> bool {
    desk.host.public_url().starts_with("https://")
}
