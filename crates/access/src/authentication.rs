//! Authentication: finds the API key of a request in its headers or query.

use canon::{ApiError, ErrorKind};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, Uri};
use std::sync::Arc;

use crate::keys::{ApiKey, KeyCache};

/// Longer values are rejected without a lookup.
const MAX_KEY_BYTES: usize = 256;

/// Returns the key of a request. `?key=` is accepted only on paths of the native format.
pub async fn authenticate(
    cache: &KeyCache,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Arc<ApiKey>, ApiError> {
    match extract_key(uri, headers)? {
        Some(text) => cache.find(text).await,
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
fn extract_key<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Result<Option<&'a str>, ApiError> {
    let unreadable = || ApiError::new(ErrorKind::Unauthenticated, "the API key cannot be read");
    let mut found: Option<&str> = None;
    let mut take = |text: &'a str| match found.replace(text) {
        Some(other) if other != text => Err(ApiError::new(
            ErrorKind::Unauthenticated,
            "two different API keys were sent; send one",
        )),
        Some(_) | None => Ok(()),
    };
    let mut bearers = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = bearers.next() {
        if bearers.next().is_some() {
            return Err(ApiError::new(
                ErrorKind::Unauthenticated,
                "two `Authorization` headers were sent",
            ));
        }
        let text = value.to_str().map_err(|_| unreadable())?;
        let (scheme, key) = text.split_once(' ').unwrap_or((text, ""));
        if !scheme.eq_ignore_ascii_case("bearer") || key.is_empty() || key.len() > MAX_KEY_BYTES {
            return Err(ApiError::new(
                ErrorKind::Unauthenticated,
                "the `Authorization` header must read `Bearer <key>`",
            ));
        }
        take(key)?;
    }
    let key_headers = headers.keys().filter(|name| carries_bare_key(name));
    for value in key_headers.flat_map(|name| headers.get_all(name)) {
        let key = value.to_str().map_err(|_| unreadable())?;
        if key.len() > MAX_KEY_BYTES {
            return Err(unreadable());
        }
        // Some clients send an empty header because they cannot omit it.
        if !key.is_empty() {
            take(key)?;
        }
    }
    if is_native_path(uri.path()) {
        let query = uri.query().unwrap_or_default().split('&');
        for key in query.filter_map(|pair| pair.strip_prefix("key=")) {
            take(key)?;
        }
    }
    Ok(found)
}

/// Returns true for headers that carry the bare key. A pass over the few headers of a request is less
/// work than three lookups.
fn carries_bare_key(name: &HeaderName) -> bool {
    matches!(name.as_str(), "x-api-key" | "x-vendor-api-key" | "x-goog-api-key")
}

/// Returns true if the path belongs to the native format or is shared with it.
fn is_native_path(path: &str) -> bool {
    path.starts_with("/v1beta/")
        || path == "/v1/models"
        || path.starts_with("/v1/models/")
        || path.starts_with("/v1/cachedContents")
}
