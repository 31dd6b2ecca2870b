//! The bundle that administrators laid over the model directory, as the store has it.

use catalog::{DirectoryBundle, ModelDirectory, OverlaidDirectory};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The bundle as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryRecord {
    /// Key that its signature was verified with.
    pub key: String,
    /// Time of the installation, in microseconds.
    pub installed_at: i64,
    /// The signed bundle.
    pub text: String,
}

/// An installed bundle with the directory that results from it.
#[derive(Clone)]
pub struct InstalledDirectory {
    /// The stored record; `None` if it cannot be decoded.
    pub record: Option<DirectoryRecord>,
    /// The bundle and its result, or the reason why it cannot be used.
    pub overlaid: Result<Arc<(DirectoryBundle, OverlaidDirectory)>, String>,
}

/// Omits the models.
impl std::fmt::Debug for InstalledDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstalledDirectory")
            .field("version", &self.version())
            .field("issue", &self.overlaid.as_ref().err())
            .finish_non_exhaustive()
    }
}

impl InstalledDirectory {
    /// Reads the stored form.
    pub fn open(stored: &str) -> Self {
        match serde_json::from_str::<DirectoryRecord>(stored) {
            Ok(record) => Self::new(record),
            Err(error) => Self {
                record: None,
                overlaid: Err(format!("the stored bundle cannot be decoded: {error}")),
            },
        }
    }

    /// Lays the bundle over the embedded directory. Its signature was verified when it was installed.
    pub fn new(record: DirectoryRecord) -> Self {
        let overlaid = DirectoryBundle::parse(&record.text).and_then(|bundle| {
            let result = bundle.overlay()?;
            Ok(Arc::new((bundle, result)))
        });
        let overlaid = overlaid.map_err(|error| error.to_string());
        Self { record: Some(record), overlaid }
    }

    /// Returns the version of the bundle, if it can be used.
    pub fn version(&self) -> Option<u64> {
        self.overlaid.as_ref().ok().map(|overlaid| overlaid.0.version)
    }

    /// Returns the directory, or the reason why the bundle cannot be used.
    pub fn directory(&self) -> Result<&ModelDirectory, &str> {
        match &self.overlaid {
            Ok(overlaid) => Ok(&overlaid.1.directory),
            Err(reason) => Err(reason),
        }
    }
}
