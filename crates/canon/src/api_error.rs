//! The error type of a call, from admission to settlement.

use std::borrow::Cow;
use std::time::Duration;

/// Kind of an error. Each kind is one that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is invalid. The caller must change it.
    InvalidRequest,
    /// The prompt exceeds the model's context window.
    ContextTooLong,
    /// The API key is missing or invalid.
    Unauthenticated,
    /// The key lacks the permission.
    Forbidden,
    /// The path does not exist.
    UnknownPath,
    /// The path does not support the method.
    MethodNotAllowed,
    /// The model does not exist on this endpoint.
    UnknownModel,
    /// The object does not exist: a response, a receipt, a task.
    NotFound,
    /// The object has expired.
    Gone,
    /// An identical request is already running.
    Conflict,
    /// The object changed since the caller read it.
    PreconditionFailed,
    /// The request body exceeds the size limit.
    BodyTooLarge,
    /// The content type is not supported.
    UnsupportedMediaType,
    /// The request headers exceed the limits (RFC 6585, section 5).
    HeadersTooLarge,
    /// The `Expect` header asks for something the gateway does not support (RFC 9110, section
    /// 10.1.1).
    ExpectationFailed,
    /// The requested protocol upgrade is not supported.
    UpgradeRefused,
    /// The caller took too long to send the request.
    RequestTimeout,
    /// The rate limit is exceeded. A later retry may succeed.
    RateLimited,
    /// The spending cap or budget is used up. A retry cannot succeed.
    QuotaExceeded,
    /// The provider refused the request because of its content policy.
    ContentPolicy,
    /// A defect of the gateway. The number of these errors is a number of bugs.
    Internal,
    /// No lane could serve the call.
    Unavailable,
    /// The gateway is overloaded.
    Overloaded,
    /// The answer took too long.
    Timeout,
    /// The answer broke off after it had started.
    Interrupted,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 25] = [
        Self::InvalidRequest,
        Self::ContextTooLong,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::UnknownPath,
        Self::MethodNotAllowed,
        Self::UnknownModel,
        Self::NotFound,
        Self::Gone,
        Self::Conflict,
        Self::PreconditionFailed,
        Self::BodyTooLarge,
        Self::UnsupportedMediaType,
        Self::HeadersTooLarge,
        Self::ExpectationFailed,
        Self::UpgradeRefused,
        Self::RequestTimeout,
        Self::RateLimited,
        Self::QuotaExceeded,
        Self::ContentPolicy,
        Self::Internal,
        Self::Unavailable,
        Self::Overloaded,
        Self::Timeout,
        Self::Interrupted,
    ];

    /// Returns the word used in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::ContextTooLong => "context_too_long",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnknownModel => "unknown_model",
            Self::NotFound => "not_found",
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::PreconditionFailed => "precondition_failed",
            Self::BodyTooLarge => "body_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::HeadersTooLarge => "headers_too_large",
            Self::ExpectationFailed => "expectation_failed",
            Self::UpgradeRefused => "upgrade_refused",
            Self::RequestTimeout => "request_timeout",
            Self::RateLimited => "rate_limited",
            Self::QuotaExceeded => "quota_exceeded",
            Self::ContentPolicy => "content_policy",
            Self::Internal => "internal",
            Self::Unavailable => "unavailable",
            Self::Overloaded => "overloaded",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Party responsible for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The caller's request.
    Caller,
    /// This gateway.
    Gateway,
    /// The provider behind it.
    Upstream,
}

/// Progress of a provider call before it failed. It decides if a retry is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamProgress {
    /// Nothing was sent, so the provider cannot have processed anything.
    NotSent,
    /// The request went to a pooled connection that the provider had already closed.
    StaleConnection,
    /// The provider refused the request and guarantees that it was not processed (RFC 9113, section
    /// 8.7).
    Refused,
    /// The provider may have started processing. The outcome is unknown.
    Sent,
    /// The provider answered with this status.
    Answered(u16),
}

/// An error of a call. It carries its kind, the responsible party, the retry advice, a message for
/// the caller and a note for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError(Box<ErrorFields>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct ErrorFields {
    kind: ErrorKind,
    blame: Blame,
    message: Cow<'static, str>,
    log_note: Option<String>,
    param: Option<String>,
    code: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    is_retryable: bool,
    progress: Option<UpstreamProgress>,
    headers: Vec<(&'static str, String)>,
}

impl ApiError {
    /// Creates an error of that kind with a message for the caller.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        let (blame, is_retryable) = match kind {
            ErrorKind::InvalidRequest
            | ErrorKind::ContextTooLong
            | ErrorKind::Unauthenticated
            | ErrorKind::Forbidden
            | ErrorKind::UnknownPath
            | ErrorKind::MethodNotAllowed
            | ErrorKind::UnknownModel
            | ErrorKind::NotFound
            | ErrorKind::Gone
            | ErrorKind::PreconditionFailed
            | ErrorKind::BodyTooLarge
            | ErrorKind::UnsupportedMediaType
            | ErrorKind::HeadersTooLarge
            | ErrorKind::ExpectationFailed
            | ErrorKind::UpgradeRefused
            | ErrorKind::ContentPolicy
            | ErrorKind::QuotaExceeded => (Blame::Caller, false),
            ErrorKind::Conflict | ErrorKind::RateLimited | ErrorKind::RequestTimeout => {
                (Blame::Caller, true)
            }
            ErrorKind::Internal | ErrorKind::Overloaded => (Blame::Gateway, true),
            ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Interrupted => {
                (Blame::Upstream, true)
            }
        };
        Self(Box::new(ErrorFields {
            kind,
            blame,
            message: message.into(),
            log_note: None,
            param: None,
            code: None,
            retry_after: None,
            is_retryable,
            progress: None,
            headers: Vec::new(),
        }))
    }

    /// Creates an error for an invalid request, with the JSON path of the field.
    pub fn invalid(path: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        let path = path.into();
        let mut error = Self::new(ErrorKind::InvalidRequest, message);
        error.0.param = (!path.is_empty()).then_some(path);
        error
    }

    /// Creates an error for a defect of the gateway. The caller does not see the note.
    pub fn internal(note: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "the gateway hit a defect of its own; please retry")
            .with_log_note(note)
    }

    /// Sets the note for the log.
    #[must_use]
    pub fn with_log_note(mut self, note: impl Into<String>) -> Self {
        self.0.log_note = Some(note.into());
        self
    }

    /// Sets the JSON path of the invalid field.
    #[must_use]
    pub fn with_param(mut self, path: impl Into<String>) -> Self {
        self.0.param = Some(path.into());
        self
    }

    /// Removes the JSON path.
    #[must_use]
    pub fn without_param(mut self) -> Self {
        self.0.param = None;
        self
    }

    /// Replaces the message.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.0.message = message.into();
        self
    }

    /// Sets an error code that is more specific than the kind, for formats that have codes.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.0.code = Some(code.into());
        self
    }

    /// Sets the time to wait before a retry.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.0.retry_after = Some(wait);
        self
    }

    /// Sets the responsible party, if it is not the usual one of the kind.
    #[must_use]
    pub fn with_blame(mut self, blame: Blame) -> Self {
        self.0.blame = blame;
        self
    }

    /// Marks the error as not retryable.
    #[must_use]
    pub fn without_retry(mut self) -> Self {
        self.0.is_retryable = false;
        self
    }

    /// Marks the error as not retryable, and names no time: a retry would repeat work that was done.
    #[must_use]
    pub fn after_work(mut self) -> Self {
        self.0.retry_after = None;
        self.without_retry()
    }

    /// Adds a header to the answer.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// Sets the progress of the provider call.
    #[must_use]
    pub fn with_progress(mut self, progress: UpstreamProgress) -> Self {
        self.0.progress = Some(progress);
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Party responsible for an error.
    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    /// Returns the message for the caller.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the note for the log.
    pub fn log_note(&self) -> Option<&str> {
        self.0.log_note.as_deref()
    }

    /// Returns the JSON path of the invalid field.
    pub fn param(&self) -> Option<&str> {
        self.0.param.as_deref()
    }

    /// Returns the specific error code.
    pub fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// Returns the time to wait before a retry.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the headers of the answer that the error brings.
    pub fn headers(&self) -> &[(&'static str, String)] {
        &self.0.headers
    }

    /// Returns the progress of the provider call, if known.
    pub fn progress(&self) -> Option<UpstreamProgress> {
        self.0.progress
    }

    /// Returns true if a retry may succeed.
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.message)?;
        match &self.0.param {
            Some(path) => write!(f, " ({path})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ApiError {}
