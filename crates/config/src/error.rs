//! Errors of the configuration.

use std::fmt::Display;

/// A refused configuration: one line that names the cause and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl From<FieldError> for ConfigError {
    fn from(error: FieldError) -> Self {
        Self(error.to_string())
    }
}

/// An invalid field and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field; empty for the entry itself.
    pub field: String,
    /// Reason, in plain English.
    pub reason: String,
}

impl FieldError {
    pub(crate) fn new(field: impl Display, reason: impl Display) -> Self {
        Self { field: field.to_string(), reason: reason.to_string() }
    }

    /// Prefixes the field with the path of its section or entry.
    pub(crate) fn below(self, path: impl Display) -> Self {
        let field = match self.field.is_empty() {
            true => path.to_string(),
            false => format!("{path}.{}", self.field),
        };
        Self { field, ..self }
    }
}

impl Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() {
            return f.write_str(&self.reason);
        }
        write!(f, "{}: {}", self.field, self.reason)
    }
}

impl std::error::Error for FieldError {}
