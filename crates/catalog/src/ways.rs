//! How requests to a provider differ from the usual ones of a format: paths, and quirks of fields.
//!
//! They are data, in the directory as in an operator's configuration; whoever sends a request
//! makes it fit (`portunus/src/flow/fit.rs`).

use std::collections::BTreeMap;

use canon::Origin;
use serde::Deserialize;

/// What is peculiar to a provider's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways {
    /// The directory's id of the provider whose ways these are; empty for one it does not know.
    pub of: String,
    /// Paths that differ from the format's usual one, as they follow the base.
    pub paths: Vec<(Origin, Path)>,
    /// What is peculiar about the fields of a format.
    pub quirks: Vec<(Origin, Quirks)>,
}

impl Ways {
    /// The path for a format where the provider has one of its own.
    pub fn path(&self, origin: Origin) -> Option<&Path> {
        self.paths.iter().find(|(own, _)| *own == origin).map(|(_, path)| path)
    }

    /// What is peculiar about the fields of that format.
    pub fn quirks(&self, origin: Origin) -> Option<&Quirks> {
        self.quirks.iter().find(|(own, _)| *own == origin).map(|(_, quirks)| quirks)
    }
}

/// A path behind the base. `{model}` stands for the model's name, `{op}` for what the format's
/// usual path has behind its last colon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "RawPath")]
pub struct Path {
    /// For a whole answer.
    pub whole: String,
    /// For a streamed one.
    pub stream: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a path, or { whole = \"a path\", stream = \"a path\" }")]
enum RawPath {
    Both(String),
    Each { whole: String, stream: String },
}

impl From<RawPath> for Path {
    fn from(raw: RawPath) -> Self {
        match raw {
            RawPath::Both(path) => Self { whole: path.clone(), stream: path },
            RawPath::Each { whole, stream } => Self { whole, stream },
        }
    }
}

/// What is peculiar about the fields of a format at one provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    /// Fields it knows by another name.
    pub renames: BTreeMap<String, String>,
    /// Fields it does not take. A caller who sent one is told that it was lost.
    pub refuses: Vec<String>,
    /// Fields it does not take and by which nothing is lost: it does so anyway, or its path says
    /// the same.
    pub needless: Vec<String>,
    /// Fields every request to it has, unless the request has them already.
    pub sets: BTreeMap<String, String>,
    /// Roles of messages it knows by another name.
    pub roles: BTreeMap<String, String>,
    /// Headers of the caller it wants as fields, a list each.
    pub headers: BTreeMap<String, String>,
}
