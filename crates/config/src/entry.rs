//! Entries of a configuration that an administrator can store: their names and their errors.

use crate::error::FieldError;

/// Name of a provider or a model.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryName {
    /// A provider, by name.
    Provider(String),
    /// A model, by id.
    Model(String),
    /// The bundle over the model directory.
    Directory,
}

impl std::fmt::Display for EntryName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Provider(name) => write!(f, "providers.{name}"),
            Self::Model(id) => write!(f, "models.\"{id}\""),
            Self::Directory => f.write_str("directory"),
        }
    }
}

/// An error that names the entry it belongs to, if there is one.
pub(crate) struct EntryError {
    pub(crate) entry: Option<EntryName>,
    /// Names the field below the entry.
    pub(crate) error: FieldError,
}

impl EntryError {
    pub(crate) const fn for_entry(entry: EntryName, error: FieldError) -> Self {
        Self { entry: Some(entry), error }
    }
}

impl From<FieldError> for EntryError {
    fn from(error: FieldError) -> Self {
        Self { entry: None, error }
    }
}

impl From<EntryError> for FieldError {
    fn from(EntryError { entry, error }: EntryError) -> Self {
        match entry {
            Some(entry) => error.below(entry),
            None => error,
        }
    }
}
