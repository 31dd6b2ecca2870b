//! What the model may call.

use crate::chat::Schema;
use crate::{CacheMark, Extras, Origin};
use serde_json::Value;

/// Something the model may call.
#[derive(Clone, Debug, PartialEq)]
pub enum Tool {
    /// A function of the caller's.
    Function(FunctionTool),
    /// A tool of the caller's that takes free text, perhaps of a given grammar.
    Custom {
        /// Its name.
        name: String,
        /// What it is for.
        description: Option<String>,
        /// The grammar of its input, as both formats that have it write it.
        grammar: Option<Value>,
        /// Fields only the tool's own format knows.
        extras: Extras,
    },
    /// The provider's web search.
    Search(SearchTool),
    /// The provider's code execution.
    Code(Extras),
    /// The provider's fetching of addresses.
    Fetch(Extras),
    /// A tool only one format can express, as it stood there.
    Foreign {
        /// The format.
        origin: Origin,
        /// The tool in that format's words.
        value: Value,
    },
}

/// A function of the caller's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionTool {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The shape of its arguments; `None` when it takes none.
    pub parameters: Option<Schema>,
    /// The shape of its result.
    pub result: Option<Schema>,
    /// Whether the shape of the arguments is enforced.
    pub strict: Option<bool>,
    /// Whether the model first sees it when a tool search finds it.
    pub deferred: bool,
    /// A prompt-cache breakpoint behind it.
    pub cache: Option<CacheMark>,
    /// Fields only the tool's own format knows.
    pub extras: Extras,
}

/// The provider's web search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchTool {
    /// Only these domains.
    pub allowed: Vec<String>,
    /// Not these domains.
    pub blocked: Vec<String>,
    /// Where the user is.
    pub location: Option<Location>,
    /// Fields only the tool's own format knows.
    pub extras: Extras,
}

/// Roughly where the user is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// Two-letter country code.
    pub country: Option<String>,
    /// Region.
    pub region: Option<String>,
    /// City.
    pub city: Option<String>,
    /// IANA time zone.
    pub timezone: Option<String>,
}

/// Whether the model must, may or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolChoice {
    /// The choice.
    pub choice: Choice,
    /// Whether it may call several at once.
    pub parallel: Option<bool>,
}

/// Whether the model must, may or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Nothing was said.
    #[default]
    Unset,
    /// The model decides.
    Auto,
    /// No call.
    Never,
    /// At least one call.
    Required,
    /// This tool.
    Named(String),
    /// Some of the tools.
    Among {
        /// Which.
        names: Vec<String>,
        /// Whether it must call one.
        required: bool,
    },
}
