//! Cookies of the console.
//!
//! Two of them are no secrets: the time zone that the browser tells, which a script writes, and the one that its user
//! has chosen instead.

use axum::response::Response;
use cookie::{Cookie, SameSite};
use http::{HeaderMap, HeaderValue, header};

use crate::state::ConsoleState;
use crate::viewer_time::ViewerZone;

/// Zone of the browser. `console.js` has this name too.
const BROWSER_ZONE: &str = "portunus_zone";
const CHOSEN_ZONE: &str = "portunus_chosen_zone";
/// Lifetime of a chosen zone: the longest that browsers accept (RFC 6265bis, section 5.5).
const CHOSEN_ZONE_SECONDS: i64 = 400 * 86_400;

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
    find(headers, kind.name(uses_https(state))).filter(|token| token.len() == 64)
}

/// Returns the value of a cookie. Browsers send the cookies of all programs at this host in one header, and those of
/// others may have any bytes (RFC 6265, section 5.4).
fn find(headers: &HeaderMap, name: &str) -> Option<String> {
    let headers = headers.get_all(header::COOKIE).iter();
    let pairs = headers.flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    let texts = pairs.filter_map(|pair| std::str::from_utf8(pair).ok());
    let mut cookies = texts.filter_map(|text| Cookie::parse(text).ok());
    let found = cookies.find(|cookie| cookie.name() == name)?;
    Some(found.value().to_owned())
}

/// Returns the zone that was chosen in this browser; `None` if it is that of the browser.
pub(crate) fn chosen_zone(headers: &HeaderMap) -> Option<ViewerZone> {
    find(headers, CHOSEN_ZONE).and_then(|name| ViewerZone::by_name(&name))
}

/// Returns the zone in which pages show times; UTC if none is known.
pub(crate) fn read_zone(headers: &HeaderMap) -> ViewerZone {
    let told = || find(headers, BROWSER_ZONE).and_then(|name| ViewerZone::by_name(&name));
    chosen_zone(headers).or_else(told).unwrap_or(ViewerZone::UTC)
}

/// Keeps the choice of a zone in the browser; `None` is that of the browser.
pub(crate) fn choose_zone(
    state: &ConsoleState,
    response: &mut Response,
    zone: Option<&ViewerZone>,
) {
    let (name, seconds) = zone.map_or(("", 0), |zone| (zone.name(), CHOSEN_ZONE_SECONDS));
    add(state, response, (CHOSEN_ZONE, name), "/console", seconds);
}

/// Sets a cookie with a token for a number of seconds.
pub(crate) fn set(
    state: &ConsoleState,
    response: &mut Response,
    kind: CookieKind,
    token: &str,
    seconds: i64,
) {
    let name = kind.name(uses_https(state));
    add(state, response, (name, token), "/", seconds);
}

fn add(
    state: &ConsoleState,
    response: &mut Response,
    (name, value): (&'static str, &str),
    path: &'static str,
    seconds: i64,
) {
    let cookie = Cookie::build((name, value.to_owned()))
        .path(path)
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(uses_https(state))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_other_programs_hide_no_cookie() {
        for text in [
            &b"portunus_zone=Asia/Tokyo"[..],
            b"theirs=\xff\xfe; portunus_zone=Asia/Tokyo",
            b"portunus_zone=Asia/Tokyo; theirs=gr\xc3\xbcn",
            b"theirs; =; ;;portunus_zone=Asia/Tokyo;portunus_zone=UTC",
        ] {
            let mut headers = HeaderMap::new();
            headers.append(header::COOKIE, HeaderValue::from_static("a=b"));
            headers.append(header::COOKIE, HeaderValue::from_bytes(text).unwrap());
            assert_eq!(read_zone(&headers).name(), "Asia/Tokyo", "{text:?}");
            assert_eq!(find(&headers, "a").as_deref(), Some("b"));
            assert_eq!(find(&headers, "theirs2"), None);
        }
    }
}
