//! Tools that the model may call.

use crate::request::JsonSchema;
use crate::{CacheBreakpoint, ClientTool, ExtraFields, WireFormat};
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
        extras: ExtraFields,
    },
    /// The provider's web search.
    WebSearch(WebSearchTool),
    /// The provider's code execution.
    CodeExecution(ExtraFields),
    /// The provider's URL fetch.
    UrlFetch(ExtraFields),
    /// A tool with a known schema that a vendor defines and the caller runs.
    Client(Box<ClientTool>),
    /// A tool that only one format can express, unchanged.
    Foreign {
        /// The format.
        origin: WireFormat,
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
    pub parameters: Option<JsonSchema>,
    /// Schema of the result.
    pub result: Option<JsonSchema>,
    /// True if the provider must enforce the schema of the arguments.
    pub strict: Option<bool>,
    /// True if the model sees the tool only after a tool search finds it.
    pub deferred: bool,
    /// A prompt-cache breakpoint behind it.
    pub cache: Option<CacheBreakpoint>,
    /// Fields that only the tool's own format defines.
    pub extras: ExtraFields,
}

/// The provider's web search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebSearchTool {
    /// Allowed domains.
    pub allowed_domains: Vec<String>,
    /// Blocked domains.
    pub blocked_domains: Vec<String>,
    /// Location of the user.
    pub location: Option<UserLocation>,
    /// Fields that only the tool's own format defines.
    pub extras: ExtraFields,
}

/// Approximate location of the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserLocation {
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
    pub mode: ToolChoiceMode,
    /// True if the model may call several tools in parallel.
    pub parallel: Option<bool>,
}

/// Rule for tool calls: required, allowed or forbidden.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoiceMode {
    /// Not specified.
    #[default]
    Unset,
    /// The model decides.
    Auto,
    /// No call.
    Disabled,
    /// At least one call.
    Required,
    /// This tool only.
    Tool(String),
    /// Some of the tools.
    AnyOf {
        /// Names of the tools.
        names: Vec<String>,
        /// True if the model must call one of them.
        required: bool,
    },
}
