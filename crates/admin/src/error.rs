//! Errors of administration.

use store::StoreError;

/// A request to administration that was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The actor lacks the right.
    #[error("{0}")]
    Forbidden(String),
    /// A field is wrong. `field` is empty if the error concerns no single field.
    #[error("{}", described(field, message))]
    Invalid {
        /// The field, as the JSON API names it.
        field: String,
        /// The reason.
        message: String,
    },
    /// The object does not exist, or this actor may not see it.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The object was changed after the actor read it.
    #[error("it was changed since you read it; read it again and repeat your change")]
    Stale,
    /// Another change of the same configuration was stored at the same time.
    #[error("another change was made at the same time; try again")]
    Concurrent,
    /// The change has a consequence that the actor must confirm first.
    #[error("{0}")]
    Conflict(String),
    /// The store refused or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect, or a failure of the machine such as missing randomness.
    #[error("{0}")]
    Internal(String),
}

impl AdminError {
    /// Error for a missing right.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::Forbidden(message.into())
    }

    /// Error for a wrong field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}

fn described(field: &str, message: &str) -> String {
    if field.is_empty() { message.to_owned() } else { format!("`{field}`: {message}") }
}
