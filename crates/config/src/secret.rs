//! References to secrets, never printed.

use serde::Deserialize;
use std::path::PathBuf;

/// Place of a secret. The secret itself is in the file only in tests.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(
    untagged,
    expecting = "a reference: { env = \"NAME\" }, { file = \"path\" } or, for tests, { text = \"…\" }"
)]
pub(crate) enum SecretRef {
    /// An environment variable.
    Env { env: String },
    /// A file.
    File { file: PathBuf },
    /// The secret itself, for tests.
    Text { text: String },
}

impl std::fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Env { env } => write!(f, "SecretRef(env {env})"),
            Self::File { file } => write!(f, "SecretRef(file {})", file.display()),
            Self::Text { .. } => f.write_str("SecretRef(…)"),
        }
    }
}

/// Reason why a reference has no secret, with the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    #[error("the environment variable {0} is not set; export {0}=…")]
    Unset(String),
    #[error("the file {} is empty", .0.display())]
    Empty(PathBuf),
    #[error("the file {} cannot be read: {error}", file.display())]
    Unreadable { file: PathBuf, error: std::io::Error },
}

impl SecretRef {
    /// Resolves the reference. The error names what is missing and the remedy.
    pub(crate) fn resolve(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, SecretError> {
        match self {
            Self::Env { env: name } => match env(name) {
                Some(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
                _ => Err(SecretError::Unset(name.clone())),
            },
            Self::File { file } => match std::fs::read_to_string(file) {
                Ok(value) if !value.trim().is_empty() => Ok(value.trim().to_owned()),
                Ok(_) => Err(SecretError::Empty(file.clone())),
                Err(error) => Err(SecretError::Unreadable { file: file.clone(), error }),
            },
            Self::Text { text } => Ok(text.clone()),
        }
    }
}
