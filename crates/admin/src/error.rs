//! Refusals of administration.

use store::StoreError;

/// A change or a question that was refused, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The actor lacks the right.
    #[error("{0}")]
    Forbidden(String),
    /// A field is wrong. `field` is empty where no single field is to blame.
    #[error("{}", described(field, message))]
    Invalid {
        /// The field, as the JSON API names it.
        field: String,
        /// The reason.
        message: String,
    },
    /// The thing does not exist, or not for this actor.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The thing was changed since the actor read it.
    #[error("it was changed since you looked; get it again and repeat your change")]
    Stale,
    /// The store refused or did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A defect or a failure of the machine, such as no randomness.
    #[error("{0}")]
    Internal(String),
}

impl AdminError {
    /// A missing right.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::Forbidden(message.into())
    }

    /// A wrong field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}

fn described(field: &str, message: &str) -> String {
    if field.is_empty() { message.to_owned() } else { format!("`{field}`: {message}") }
}
