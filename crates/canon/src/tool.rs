//! Tools that the model may call.

use crate::chat::Schema;
use crate::{CacheMark, Extras, Origin};
use serde_json::Value;

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub enum Tool {
    /// A function defined by the caller.
    Function(FunctionTool),
    /// A tool defined by the caller that takes free text, optionally with a grammar.
    Custom {
        /// Name of the tool.
        name: String,
        /// Purpose of the tool.
        description: Option<String>,
        /// Grammar of the input. Both formats that support it write it alike.
        grammar: Option<Value>,
        /// Fields that only the tool's own format defines.
        extras: Extras,
    },
    /// The provider's web search.
    Search(SearchTool),
    /// The provider's code execution.
    Code(Extras),
    /// The provider's URL fetch.
    Fetch(Extras),
    /// A tool that only one format can express, unchanged.
    Foreign {
        /// The format.
        origin: Origin,
        /// The tool as it is in that format.
        value: Value,
    },
}

/// A function defined by the caller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionTool {
    /// Name of the tool.
    pub name: String,
    /// Purpose of the tool.
    pub description: Option<String>,
    /// Schema of the arguments; `None` if it takes none.
    pub parameters: Option<Schema>,
    /// Schema of the result.
    pub result: Option<Schema>,
    /// True if the provider must enforce the schema of the arguments.
    pub strict: Option<bool>,
    /// True if the model sees the tool only after a tool search finds it.
    pub deferred: bool,
    /// A prompt-cache breakpoint behind it.
    pub cache: Option<CacheMark>,
    /// Fields that only the tool's own format defines.
    pub extras: Extras,
}

/// The provider's web search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchTool {
    /// Allowed domains.
    pub allowed: Vec<String>,
    /// Blocked domains.
    pub blocked: Vec<String>,
    /// Location of the user.
    pub location: Option<Location>,
    /// Fields that only the tool's own format defines.
    pub extras: Extras,
}

/// Approximate location of the user.
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

/// Rule for tool calls: required, allowed or forbidden.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolChoice {
    /// The rule.
    pub choice: Choice,
    /// True if the model may call several tools in parallel.
    pub parallel: Option<bool>,
}

/// Rule for tool calls: required, allowed or forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// Not specified.
    #[default]
    Unset,
    /// The model decides.
    Auto,
    /// No call.
    Never,
    /// At least one call.
    Required,
    /// This tool only.
    Named(String),
    /// Some of the tools.
    Among {
        /// Names of the tools.
        names: Vec<String>,
        /// True if the model must call one of them.
        required: bool,
    },
}
