//! Refusals of SCIM requests.

use http::StatusCode;
use store::StoreError;

use crate::error::AdminError;

/// Reason of a refusal that clients understand (`scimType` of RFC 7644, section 3.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScimErrorKind {
    /// The filter is wrong, or is not supported.
    InvalidFilter,
    /// There is more than the gateway handles at once.
    TooMany,
    /// Another object has this value.
    Uniqueness,
    /// The attribute cannot be changed.
    Mutability,
    /// The body is no such message.
    InvalidSyntax,
    /// The path of an operation is wrong.
    InvalidPath,
    /// The path of an operation fits nothing.
    NoTarget,
    /// A value is wrong or missing.
    InvalidValue,
}

impl ScimErrorKind {
    /// The word in answers.
    pub const fn word(self) -> &'static str {
        match self {
            Self::InvalidFilter => "invalidFilter",
            Self::TooMany => "tooMany",
            Self::Uniqueness => "uniqueness",
            Self::Mutability => "mutability",
            Self::InvalidSyntax => "invalidSyntax",
            Self::InvalidPath => "invalidPath",
            Self::NoTarget => "noTarget",
            Self::InvalidValue => "invalidValue",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::Uniqueness => StatusCode::CONFLICT,
            Self::InvalidFilter
            | Self::TooMany
            | Self::Mutability
            | Self::InvalidSyntax
            | Self::InvalidPath
            | Self::NoTarget
            | Self::InvalidValue => StatusCode::BAD_REQUEST,
        }
    }
}

/// A SCIM request that was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ScimProblem {
    /// Status of the answer.
    pub status: StatusCode,
    /// Reason in the words of SCIM, if it has one.
    pub kind: Option<ScimErrorKind>,
    /// Reason for people, with the attribute and a hint.
    pub detail: String,
}

impl ScimProblem {
    /// Refusal for a reason that SCIM has a word for.
    pub fn new(kind: ScimErrorKind, detail: impl Into<String>) -> Self {
        Self { status: kind.status(), kind: Some(kind), detail: detail.into() }
    }

    /// Refusal with a status alone.
    pub fn with_status(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, kind: None, detail: detail.into() }
    }

    /// Refusal of a wrong value of an attribute.
    pub fn invalid_value(attribute: &str, why: &str) -> Self {
        Self::new(ScimErrorKind::InvalidValue, format!("`{attribute}`: {why}"))
    }

    pub(crate) fn not_found(what: &str) -> Self {
        Self::with_status(StatusCode::NOT_FOUND, format!("there is no such {what}"))
    }

    pub(crate) fn last_owner() -> Self {
        let why = "this is the only owner of the gateway; create another one first";
        Self::with_status(StatusCode::FORBIDDEN, why)
    }
}

impl From<StoreError> for ScimProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict(what) => {
                Self::new(ScimErrorKind::Uniqueness, format!("this {what} is taken"))
            }
            StoreError::Unreachable(_)
            | StoreError::Missing(_)
            | StoreError::Newer { .. }
            | StoreError::Sealing(_)
            | StoreError::Other(_) => {
                tracing::warn!("a SCIM request failed: {error}");
                let why = "the store does not answer at the moment, retry shortly";
                Self::with_status(StatusCode::SERVICE_UNAVAILABLE, why)
            }
        }
    }
}

impl From<AdminError> for ScimProblem {
    fn from(error: AdminError) -> Self {
        match error {
            AdminError::Forbidden(why) => Self::with_status(StatusCode::FORBIDDEN, why),
            AdminError::Invalid { field, message } => Self::invalid_value(&field, &message),
            AdminError::NotFound(what) => Self::not_found(what),
            AdminError::Stale | AdminError::Concurrent => {
                Self::with_status(StatusCode::PRECONDITION_FAILED, error.to_string())
            }
            AdminError::Conflict(why) => Self::with_status(StatusCode::CONFLICT, why),
            AdminError::Store(error) => error.into(),
            AdminError::Internal(note) => {
                tracing::error!("a SCIM request failed: {note}");
                let why = "the gateway hit a defect of its own";
                Self::with_status(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
        }
    }
}
