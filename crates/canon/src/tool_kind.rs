//! Kinds of tools: the words of the directory, and the names that the formats have for them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Kind of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ToolKind {
    /// Functions that the caller describes and runs.
    Function,
    /// Tools of the caller that take free text.
    Custom,
    /// Search in the web or in posts.
    WebSearch,
    /// Search on maps.
    Maps,
    /// Code that the provider runs.
    CodeExecution,
    /// Pages that the provider fetches.
    UrlFetch,
    /// Search in files that the provider stores.
    FileSearch,
    /// Images that the provider makes during an answer.
    ImageGeneration,
    /// Servers of the Model Context Protocol that the provider asks.
    Mcp,
    /// A screen that the caller operates.
    ComputerUse,
    /// Commands that the caller runs.
    Shell,
    /// Changes of files, as patches or as commands of an editor.
    TextEditor,
    /// Notes that the caller stores.
    Memory,
    /// Search in the tools of the request.
    ToolSearch,
    /// Other tools, and all that a record does not list. Providers add kinds often.
    Other,
}

impl ToolKind {
    /// All kinds, in the order of records.
    pub const ALL: [Self; 15] = [
        Self::Function,
        Self::Custom,
        Self::WebSearch,
        Self::Maps,
        Self::CodeExecution,
        Self::UrlFetch,
        Self::FileSearch,
        Self::ImageGeneration,
        Self::Mcp,
        Self::ComputerUse,
        Self::Shell,
        Self::TextEditor,
        Self::Memory,
        Self::ToolSearch,
        Self::Other,
    ];

    /// Returns the word in data files and answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Custom => "custom",
            Self::WebSearch => "web-search",
            Self::Maps => "maps",
            Self::CodeExecution => "code-execution",
            Self::UrlFetch => "url-fetch",
            Self::FileSearch => "file-search",
            Self::ImageGeneration => "image-generation",
            Self::Mcp => "mcp",
            Self::ComputerUse => "computer-use",
            Self::Shell => "shell",
            Self::TextEditor => "text-editor",
            Self::Memory => "memory",
            Self::ToolSearch => "tool-search",
            Self::Other => "other",
        }
    }

    /// Returns the kind with that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// Returns the kind of a tool by its type or its key, in the words of any format; `Other` for a tool
    /// that is not known.
    pub fn from_wire(name: &str) -> Self {
        // Resellers put their own name in front: `openrouter:web_search`.
        let name = name.rsplit(':').next().unwrap_or(name);
        let starts = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        let exact = match name {
            "function" | "functionDeclarations" => Some(Self::Function),
            "custom" => Some(Self::Custom),
            "file_search" | "fileSearch" | "collections_search" | "retrieval" => {
                Some(Self::FileSearch)
            }
            "googleMaps" | "vendorMaps" => Some(Self::Maps),
            "codeExecution" => Some(Self::CodeExecution),
            "urlContext" => Some(Self::UrlFetch),
            "shell" | "local_shell" => Some(Self::Shell),
            _ => None,
        };
        match exact {
            Some(kind) => kind,
            None if starts(&["tool_search", "toolSearch"]) => Self::ToolSearch,
            None if starts(&["code_"]) => Self::CodeExecution,
            None if starts(&["web_fetch"]) => Self::UrlFetch,
            None if starts(&["image_generation"]) => Self::ImageGeneration,
            None if starts(&["mcp"]) => Self::Mcp,
            None if starts(&["computer", "browser_toolset"]) => Self::ComputerUse,
            None if starts(&["bash"]) => Self::Shell,
            None if starts(&["text_editor", "str_replace", "apply_patch"]) => Self::TextEditor,
            None if starts(&["memory"]) => Self::Memory,
            None if name.contains("search") || name.contains("Search") => Self::WebSearch,
            None => Self::Other,
        }
    }

    /// Returns the kind that a model needs for it. Tools that the caller runs are functions with a known
    /// schema, and are offered as such where a provider has no tool of that kind.
    #[must_use]
    pub const fn needed(self) -> Self {
        match self {
            Self::Custom
            | Self::ComputerUse
            | Self::Shell
            | Self::TextEditor
            | Self::Memory
            | Self::ToolSearch => Self::Function,
            Self::Function
            | Self::WebSearch
            | Self::Maps
            | Self::CodeExecution
            | Self::UrlFetch
            | Self::FileSearch
            | Self::ImageGeneration
            | Self::Mcp
            | Self::Other => self,
        }
    }
}

impl fmt::Display for ToolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ToolKind {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ToolKind {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        Self::parse(&word).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            serde::de::Error::custom(format!("there is no tool `{word}`; there are: {words}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_format_have_a_kind() {
        for (name, kind) in [
            ("functionDeclarations", ToolKind::Function),
            ("function", ToolKind::Function),
            ("custom", ToolKind::Custom),
            ("googleSearch", ToolKind::WebSearch),
            ("googleSearchRetrieval", ToolKind::WebSearch),
            ("vendorSearch", ToolKind::WebSearch),
            ("enterpriseWebSearch", ToolKind::WebSearch),
            ("web_search_preview", ToolKind::WebSearch),
            ("web_search_20250305", ToolKind::WebSearch),
            ("x_search", ToolKind::WebSearch),
            ("openrouter:web_search", ToolKind::WebSearch),
            ("googleMaps", ToolKind::Maps),
            ("codeExecution", ToolKind::CodeExecution),
            ("code_interpreter", ToolKind::CodeExecution),
            ("code_execution_20250825", ToolKind::CodeExecution),
            ("urlContext", ToolKind::UrlFetch),
            ("web_fetch_20250910", ToolKind::UrlFetch),
            ("file_search", ToolKind::FileSearch),
            ("fileSearch", ToolKind::FileSearch),
            ("image_generation", ToolKind::ImageGeneration),
            ("mcp", ToolKind::Mcp),
            ("mcp_toolset", ToolKind::Mcp),
            ("mcpServers", ToolKind::Mcp),
            ("computerUse", ToolKind::ComputerUse),
            ("computer_use_preview", ToolKind::ComputerUse),
            ("computer_20250124", ToolKind::ComputerUse),
            ("bash_20250124", ToolKind::Shell),
            ("local_shell", ToolKind::Shell),
            ("text_editor_20250728", ToolKind::TextEditor),
            ("apply_patch", ToolKind::TextEditor),
            ("memory_20250818", ToolKind::Memory),
            ("tool_search_tool_bm25_20251119", ToolKind::ToolSearch),
            ("smell", ToolKind::Other),
            ("foo", ToolKind::Other),
        ] {
            assert_eq!(ToolKind::from_wire(name), kind, "{name}");
        }
        for kind in ToolKind::ALL {
            assert_eq!(ToolKind::parse(kind.as_str()), Some(kind));
        }
    }
}
