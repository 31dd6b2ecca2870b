//! Differences of a provider's requests from the usual ones of a format: paths and fields.
//!
//! They are data in the directory and in the operator's configuration. The sender of a request
//! applies them (`relay/src/adapt.rs`).

use std::collections::BTreeMap;

use canon::{CacheField, ToolKind, WireFormat};
use serde::Deserialize;

/// Endpoint paths and field differences of a provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// Directory id of the provider; empty for a provider outside the directory.
    pub provider: String,
    /// Paths that differ from the format's usual one, relative to the base URL.
    pub paths: Vec<(WireFormat, EndpointPath)>,
    /// Field differences, by format.
    pub quirks: Vec<(WireFormat, FieldQuirks)>,
}

impl Endpoints {
    /// Returns the provider's own path for a format.
    pub fn path(&self, origin: WireFormat) -> Option<&EndpointPath> {
        self.paths.iter().find(|(own, _)| *own == origin).map(|(_, path)| path)
    }

    /// Returns the field differences of that format.
    pub fn quirks(&self, origin: WireFormat) -> Option<&FieldQuirks> {
        self.quirks.iter().find(|(own, _)| *own == origin).map(|(_, quirks)| quirks)
    }
}

/// A path relative to the base URL. `{model}` stands for the model's name, `{op}` for the part
/// after the last colon of the format's usual path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "RawPath")]
pub struct EndpointPath {
    /// Path of a complete answer.
    pub whole: String,
    /// Path of a streamed answer.
    pub stream: String,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a path, or { whole = \"a path\", stream = \"a path\" }")]
enum RawPath {
    Both(String),
    Each { whole: String, stream: String },
}

impl From<RawPath> for EndpointPath {
    fn from(raw: RawPath) -> Self {
        match raw {
            RawPath::Both(path) => Self { whole: path.clone(), stream: path },
            RawPath::Each { whole, stream } => Self { whole, stream },
        }
    }
}

/// Differences of one provider in the fields of a format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FieldQuirks {
    /// Fields with another name.
    pub renames: BTreeMap<String, String>,
    /// Unsupported fields. A caller that sends one gets a loss.
    pub refuses: Vec<String>,
    /// Unsupported fields that cause no loss: the provider behaves so anyway, or its path says the
    /// same.
    pub needless: Vec<String>,
    /// Fields added to every request that lacks them.
    pub sets: BTreeMap<String, String>,
    /// Message roles with another name.
    pub roles: BTreeMap<String, String>,
    /// Caller headers that it takes as fields, each as a list.
    pub headers: BTreeMap<String, String>,
    /// Field of a message part that marks a prompt-cache breakpoint.
    pub cache_field: Option<CacheField>,
    /// Kinds of tools that the caller runs and that it takes in the format's own form. Others are sent as
    /// functions.
    pub client_tools: Vec<ToolKind>,
}

impl FieldQuirks {
    /// Returns true if a body may have to be edited.
    pub fn edits_bodies(&self) -> bool {
        let Self {
            renames,
            refuses,
            needless,
            sets,
            roles,
            headers,
            cache_field: _,
            client_tools: _,
        } = self;
        !(refuses.is_empty() && needless.is_empty())
            || [renames, sets, roles, headers].iter().any(|table| !table.is_empty())
    }
}
