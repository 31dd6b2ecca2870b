//! Rendering of [`PageError`]s, in one place for all pages.

use axum::response::Response;
use http::{HeaderValue, header};
use maud::html;

use crate::layout::{Layout, page};
use crate::page_error::{ErrorText, PageError};

/// Draws the page of a response that carries a [`PageError`]. Other responses stay as they are, and
/// so do headers set before, for example `Allow`.
pub(crate) fn render(mut response: Response) -> Response {
    let Some(error) = response.extensions_mut().remove::<PageError>() else { return response };
    let ErrorText { status, title, message, retry_after } = error.text();
    let body = html! {
        section.trouble {
            p.code { (status.as_u16()) }
            h1 { (title) }
            p.lead { (message) }
            p.actions {
                a.button href="/" { "Front page" }
                a.button.quiet href="/models" { "Models" }
                a.button.quiet href="/console" { "Console" }
            }
        }
    };
    let (parts, body) = page(status, &Layout::signed_out(title), &body).into_parts();
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.extend(parts.headers);
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    *response.body_mut() = body;
    response
}
