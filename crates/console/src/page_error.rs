//! Errors of page requests. They are data; `error_page` renders them.

use admin::AdminError;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use store::StoreError;

use crate::display;

/// `Retry-After` of a 503. The time until it passes is unknown.
const BUSY_RETRY_AFTER_S: u64 = 3;

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
    /// Too many requests from one network; the number of seconds to wait.
    TooManyRequests(u64),
    /// The form did not arrive in time.
    Stalled,
    /// The form is larger than any form of the console.
    FormTooLarge,
    /// The body has another type than a form.
    NotAForm,
    /// Too many concurrent sign-ins.
    Busy,
    StoreUnavailable,
    /// A defect; the log has the details.
    Internal,
}

impl From<StoreError> for PageError {
    fn from(error: StoreError) -> Self {
        tracing::error!("cannot render a console page: {error}");
        match error {
            StoreError::Unreachable(_) => Self::StoreUnavailable,
            StoreError::Conflict(_)
            | StoreError::Missing(_)
            | StoreError::Newer { .. }
            | StoreError::Sealing(_)
            | StoreError::Other(_) => Self::Internal,
        }
    }
}

impl From<AdminError> for PageError {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Forbidden(_) => Self::Forbidden,
            AdminError::Invalid { message, .. } => Self::Rejected(message),
            AdminError::NotFound("link") => Self::InvalidLink,
            AdminError::NotFound(_) => Self::NotFound,
            AdminError::Stale | AdminError::Concurrent => Self::Rejected(error.to_string()),
            AdminError::Conflict(message) => Self::Rejected(message),
            AdminError::Store(error) => error.into(),
            AdminError::Internal(note) => {
                tracing::error!("cannot render a console page: {note}");
                Self::Internal
            }
        }
    }
}

/// Text of the page that shows an error.
pub(crate) struct ErrorText {
    pub(crate) status: StatusCode,
    pub(crate) title: &'static str,
    pub(crate) message: String,
    /// Seconds for the `Retry-After` header (RFC 9110, section 10.2.3).
    pub(crate) retry_after: Option<u64>,
}

impl PageError {
    /// Returns the text to show for the error.
    pub(crate) fn text(&self) -> ErrorText {
        let (status, title, message) = match self {
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
                format!("Please wait {} and try again.", display::wait_time(*seconds)),
            ),
            Self::TooManyRequests(seconds) => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too many requests",
                format!(
                    "Your network asked for a great many pages. Please wait {} and try again.",
                    display::wait_time(*seconds)
                ),
            ),
            Self::FormTooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "Too large",
                "The form is larger than any form here, so nothing was done.".to_owned(),
            ),
            Self::NotAForm => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "Not a form",
                "This address takes forms only, so nothing was done.".to_owned(),
            ),
            Self::Stalled => (
                StatusCode::REQUEST_TIMEOUT,
                "This took too long",
                "The form did not arrive in time, so nothing was done. Send it again.".to_owned(),
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
        let retry_after = match self {
            Self::RateLimited(seconds) | Self::TooManyRequests(seconds) => Some(*seconds),
            Self::Busy
            | Self::Stalled
            | Self::StoreUnavailable
            | Self::IdentityProviderUnavailable => Some(BUSY_RETRY_AFTER_S),
            Self::BadRequest(_)
            | Self::Rejected(_)
            | Self::Forbidden
            | Self::SignInRefused(_)
            | Self::CrossSiteForm
            | Self::NotFound
            | Self::InvalidLink
            | Self::MethodNotAllowed
            | Self::FormTooLarge
            | Self::NotAForm
            | Self::Internal => None,
        };
        ErrorText { status, title, message, retry_after }
    }
}

/// The response carries the error as an extension and has no body. `error_page` renders it, so
/// that handlers and their helpers need not know the layout.
impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let mut response = self.text().status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}
