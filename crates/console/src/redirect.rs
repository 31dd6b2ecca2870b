//! Redirects within this site.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// Redirects to a fixed path (303, RFC 9110, section 15.4.4).
pub(crate) fn see_other(path: &'static str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(path));
    response
}

/// Redirects to a path of this site that the caller has checked.
pub(crate) fn redirect_to(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let path = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static("/console"));
    response.headers_mut().insert(header::LOCATION, path);
    response
}
