//! Cookies of the console.

use axum::response::Response;
use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, header};

use crate::state::ConsoleState;

/// Purpose of a cookie. Its value is a random token; the store holds only the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CookieKind {
    Session,
    /// A one-time link the browser has opened.
    Link,
    /// A sign-in that still needs its second factor.
    SecondFactor,
    /// A sign-in that was sent to an identity provider.
    IdentityFlow,
    /// A browser in which somebody has signed in before.
    Device,
}

impl CookieKind {
    /// The `__Host-` prefix makes browsers accept the cookie only from this host over HTTPS (RFC
    /// 6265bis, section 4.1.3.2).
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
            (Self::Device, true) => "__Host-portunus-device",
            (Self::Device, false) => "portunus_device",
        }
    }
}

/// Returns the token in the request's cookie, if it has the right length.
pub(crate) fn read(state: &ConsoleState, headers: &HeaderMap, kind: CookieKind) -> Option<String> {
    let name = kind.name(uses_https(state));
    let texts = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = texts.flat_map(Cookie::split_parse).filter_map(Result::ok);
    let found = cookies.find(|cookie| cookie.name() == name)?;
    let token = found.value();
    (token.len() == 64).then(|| token.to_owned())
}

/// Sets a cookie with a token for a number of seconds.
pub(crate) fn set(
    state: &ConsoleState,
    response: &mut Response,
    kind: CookieKind,
    token: &str,
    seconds: i64,
) {
    let secure = uses_https(state);
    let cookie = Cookie::build((kind.name(secure), token.to_owned()))
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

/// Deletes a cookie.
pub(crate) fn clear(state: &ConsoleState, response: &mut Response, kind: CookieKind) {
    set(state, response, kind, "", 0);
}

fn uses_https(state: &ConsoleState) -> bool {
    state.host.public_url().starts_with("https://")
}
