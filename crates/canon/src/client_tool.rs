//! Tools that a vendor defines and the caller runs, such as a shell or a text editor.
//!
//! Such a tool has a known schema, so that any model can call it as a function. The reader of a format
//! turns its declaration into [`ClientTool`], and its calls and results into ordinary ones. A writer of
//! the same format writes the vendor's own form, and every other one writes the functions.

use crate::{FunctionTool, WireFormat};
use serde_json::Value;

/// A tool that a vendor defines and the caller runs.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientTool {
    /// The tool.
    pub kind: ClientToolKind,
    /// Format that defines it.
    pub origin: WireFormat,
    /// The declaration in that format.
    pub value: Value,
    /// The functions that stand for it in other formats. Their names differ from those of all other
    /// tools of the request.
    pub functions: Vec<FunctionTool>,
}

/// Tools that vendors define and callers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientToolKind {
    /// `bash` of the messages format.
    Bash,
    /// `text_editor` of the messages format.
    TextEditor,
    /// `memory` of the messages format.
    Memory,
    /// `computer` of the messages format.
    Computer,
    /// `computer_toolset` of the messages format, with a function for each member.
    ComputerToolset,
    /// `browser_toolset` of the messages format, with a function for each member.
    BrowserToolset,
    /// `shell` of the responses format, in the caller's environment.
    Shell,
    /// `local_shell` of the responses format.
    LocalShell,
    /// `apply_patch` of the responses format.
    ApplyPatch,
    /// `computer` of the responses format.
    ComputerCalls,
    /// `computer_use_preview` of the responses format, with one action per call.
    ComputerPreview,
    /// `tool_search` of the responses format that the caller executes.
    ToolSearch,
    /// Tools that such a search has found.
    FoundTools,
    /// `computerUse` of the native format, with a function for each action.
    ComputerUse,
}

impl ClientTool {
    /// Returns the tools of a list that the caller runs.
    pub fn all_in(tools: &[crate::Tool]) -> impl Iterator<Item = &Self> {
        tools.iter().filter_map(|tool| match tool {
            crate::Tool::Client(tool) => Some(&**tool),
            crate::Tool::Function(_)
            | crate::Tool::Custom { .. }
            | crate::Tool::WebSearch(_)
            | crate::Tool::CodeExecution(_)
            | crate::Tool::UrlFetch(_)
            | crate::Tool::Foreign { .. } => None,
        })
    }
}
