//! Errors of page requests. They are data; the layout renders them as pages.

use admin::AdminError;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use maud::html;
use store::StoreError;

use crate::layout::{Layout, page};

/// Error of a page request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageError {
    /// Invalid request, with the reason.
    BadRequest(&'static str),
    /// The action was refused, with the reason.
    Rejected(String),
    /// The account lacks the right.
    Forbidden,
    /// Sign-in refused, with the reason.
    SignInRefused(&'static str),
    /// The identity provider does not answer.
    IdentityProviderUnavailable,
    /// A form sent from another site.
    CrossSiteForm,
    /// The page does not exist, or the account may not see it.
    NotFound,
    /// A one-time link that is wrong, used or expired. The page does not say which.
    InvalidLink,
    /// The path exists, but not for this method.
    MethodNotAllowed,
    /// Too many attempts; the number of seconds to wait.
    RateLimited(u64),
    /// Too many concurrent sign-ins.
    Busy,
    StoreUnavailable,
    /// A defect; the log has the details.
    Internal,
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        tracing::error!("a console page could not be made: {error}");
        match error {
            StoreError::Unreachable(_) => Self::StoreUnavailable,
            StoreError::Conflict(_)
            | StoreError::Missing(_)
            | StoreError::Newer { .. }
            | StoreError::Other(_) => Self::Internal,
        }
    }
}

impl From<AdminError> for PageError {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Forbidden(_) => Self::Forbidden,
            AdminError::Invalid { message, .. } => Self::Rejected(message),
            AdminError::NotFound(_) => Self::NotFound,
            AdminError::Stale => Self::Rejected(error.to_string()),
            AdminError::Store(error) => error.into(),
            AdminError::Internal(note) => {
                tracing::error!("a console page could not be made: {note}");
                Self::Internal
            }
        }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let (status, title, say) = match &self {
            Self::BadRequest(why) => {
                (StatusCode::BAD_REQUEST, "This does not work", (*why).to_owned())
            }
            Self::Rejected(why) => (StatusCode::BAD_REQUEST, "This does not work", why.clone()),
            Self::Forbidden => (
                StatusCode::FORBIDDEN,
                "Not for this account",
                "Your account may look at this, but not change it. Ask an administrator of this \
                 gateway."
                    .to_owned(),
            ),
            Self::SignInRefused(why) => (StatusCode::FORBIDDEN, "Not signed in", (*why).to_owned()),
            Self::IdentityProviderUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Back in a moment",
                "The identity provider does not answer right now. Try again in a little while, or \
                 sign in another way."
                    .to_owned(),
            ),
            Self::CrossSiteForm => (
                StatusCode::FORBIDDEN,
                "Sent from another site",
                "This form was not sent from this gateway's own page, so nothing was done. Open \
                 the page here and send it again."
                    .to_owned(),
            ),
            Self::NotFound => (
                StatusCode::NOT_FOUND,
                "Nothing here",
                "There is no page at this address. It may have moved, or the link was used before."
                    .to_owned(),
            ),
            Self::InvalidLink => (
                StatusCode::BAD_REQUEST,
                "This link does not work",
                "It may have been used before, or it is too old. Ask for a new one.".to_owned(),
            ),
            Self::MethodNotAllowed => (
                StatusCode::METHOD_NOT_ALLOWED,
                "Not this way",
                "This address exists, but cannot be used like this.".to_owned(),
            ),
            Self::RateLimited(seconds) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many tries",
                format!("Please wait {} and try again.", crate::display::wait_time(*seconds)),
            ),
            Self::Busy => (
                StatusCode::SERVICE_UNAVAILABLE,
                "A moment, please",
                "Many people are signing in right now. Try again in a few seconds.".to_owned(),
            ),
            Self::StoreUnavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Back in a moment",
                "The gateway's database does not answer right now. Try again in a little while."
                    .to_owned(),
            ),
            Self::Internal => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Something broke",
                "This is a defect of the gateway, not of your request. Its log has the details."
                    .to_owned(),
            ),
        };
        let body = html! {
            section.trouble {
                p.code { (status.as_u16()) }
                h1 { (title) }
                p.lead { (say) }
                p.actions {
                    a.button href="/" { "Front page" }
                    a.button.quiet href="/models" { "Models" }
                    a.button.quiet href="/console" { "Console" }
                }
            }
        };
        let mut response = page(status, &Layout::signed_out(title), &body);
        if let Self::RateLimited(seconds) = self {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
