//! Authentication: finds the API key of a request in its headers or query.

use canon::{ApiError, ErrorKind};
use transport::{HeaderBlock, RequestHead, visible_text};

use crate::keys::{FoundKey, KeyCache, KnownKey};

/// Header of this gateway for a key. It counts before all others.
const TOKEN_HEADER: &str = "x-portunus-token";
/// Header of every other use of keys (RFC 6750, section 2.1).
const AUTHORIZATION: &str = "authorization";
/// Headers that carry the bare key.
const API_KEY: &str = "x-api-key";
const VENDOR_API_KEY: &str = "x-vendor-api-key";
const GOOGLE_API_KEY: &str = "x-goog-api-key";
/// All headers in which a key may stand, in lower case. No other is read.
pub const KEY_HEADERS: [&str; 5] =
    [TOKEN_HEADER, AUTHORIZATION, API_KEY, VENDOR_API_KEY, GOOGLE_API_KEY];
/// Longer values are rejected without a lookup.
const MAX_KEY_BYTES: usize = 256;

/// Returns the key of a request with this head, and keeps it as the known key of the head. `?key=` is
/// accepted only on paths of the native format.
pub async fn authenticate(
    cache: &KeyCache,
    head: &RequestHead,
    known: &KnownKey,
) -> Result<FoundKey, ApiError> {
    match extract_key(head.headers(), head.target())? {
        Some(text) => cache.find(text, known).await,
        None => Err(ApiError::new(
            ErrorKind::Unauthenticated,
            "no API key was sent; send it as `Authorization: Bearer <key>`",
        )),
    }
}

/// Returns the key text of a request. The same key may stand in several places; two different keys
/// are an error.
///
/// `Authorization: Bearer` is RFC 6750, section 2.1.
fn extract_key<'a>(
    headers: &'a HeaderBlock,
    (path, query): (&str, &'a str),
) -> Result<Option<&'a str>, ApiError> {
    let unreadable = || ApiError::new(ErrorKind::Unauthenticated, "the API key cannot be read");
    // An agent that signed in sends its key here if `Authorization` holds one of a provider.
    let mut tokens = headers.get_all(TOKEN_HEADER);
    if let Some(value) = tokens.next() {
        if tokens.next().is_some() {
            return Err(ApiError::new(
                ErrorKind::Unauthenticated,
                "two `x-portunus-token` headers were sent",
            ));
        }
        let text = visible_text(value).ok_or_else(unreadable)?;
        let key = match text.split_once(' ') {
            Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
            Some(_) => return Err(unreadable()),
            None => text,
        };
        if key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(unreadable());
        }
        return Ok(Some(key));
    }
    let mut found: Option<&str> = None;
    let mut take = |text| match found.replace(text) {
        Some(other) if other != text => Err(ApiError::new(
            ErrorKind::Unauthenticated,
            "two different API keys were sent; send one",
        )),
        Some(_) | None => Ok(()),
    };
    let mut bearers = headers.get_all(AUTHORIZATION);
    if let Some(value) = bearers.next() {
        if bearers.next().is_some() {
            return Err(ApiError::new(
                ErrorKind::Unauthenticated,
                "two `Authorization` headers were sent",
            ));
        }
        let text = visible_text(value).ok_or_else(unreadable)?;
        let (scheme, key) = text.split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(ApiError::new(
                ErrorKind::Unauthenticated,
                "the `Authorization` header must read `Bearer <key>`",
            ));
        }
        take(key)?;
    }
    for (_, value) in headers.iter().filter(|(name, _)| carries_bare_key(name)) {
        let key = visible_text(value).ok_or_else(unreadable)?;
        if key.len() > MAX_KEY_BYTES {
            return Err(unreadable());
        }
        // Some clients send an empty header because they cannot omit it.
        if !key.is_empty() {
            take(key)?;
        }
    }
    if is_native_path(path) {
        for key in query.split('&').filter_map(|pair| pair.strip_prefix("key=")) {
            take(key)?;
        }
    }
    Ok(found)
}

/// Returns true for headers that carry the bare key. A pass over the few headers of a request is less
/// work than three lookups.
fn carries_bare_key(name: &str) -> bool {
    matches!(name, API_KEY | VENDOR_API_KEY | GOOGLE_API_KEY)
}

/// Returns true if the path belongs to the native format or is shared with it.
fn is_native_path(path: &str) -> bool {
    path.starts_with("/v1beta/")
        || path == "/v1/models"
        || path.starts_with("/v1/models/")
        || path.starts_with("/v1/cachedContents")
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use transport::ServerRequest;

    #[test]
    fn the_listed_headers_are_those_that_are_read() {
        let finds_key = |name: &str| {
            let request = http::Request::get("/v1/models").header(name, "Bearer sk-pt-x");
            let request = ServerRequest::from(request.body(Body::empty()).unwrap());
            let head = request.head();
            extract_key(head.headers(), head.target()).unwrap().is_some()
        };
        for name in KEY_HEADERS {
            assert!(finds_key(name), "{name}");
        }
        for name in ["cookie", "x-key", "proxy-authorization", "x-portunus-tokens"] {
            assert!(!finds_key(name), "{name}");
        }
    }
}
