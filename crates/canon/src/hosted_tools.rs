//! Tools that a provider runs itself: their results become a part of the prompt, and some have a
//! price.

/// The assumed maximum of uses of a tool, or of searches, for a call that sets no limit. A provider may
/// run more; the operator pays for those, not the key.
pub const DEFAULT_MAX_USES: u64 = 10;

/// The same for images. They are dear, and few requests make more than one.
const DEFAULT_MAX_IMAGES: u64 = 4;
/// The tokens of a large image in high quality:
/// <https://platform.openai.com/docs/guides/image-generation#cost-and-latency>.
pub const TOOL_IMAGE_TOKENS: u64 = 6_240;

/// The tools of a request that the provider runs, with the maximum number of their uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedTools {
    /// Searches in the web, in maps, or in another index.
    pub searches: u64,
    /// Searches in files of the provider's storage.
    pub file_searches: u64,
    /// Runs of code in a container of the provider.
    pub code_runs: u64,
    /// Images that the provider makes.
    pub images: u64,
    /// Other tools, such as those that fetch a page or ask a server.
    pub others: u64,
}

impl HostedTools {
    /// Adds a tool by its type or its key, in the words of any format. Tools that the caller runs add
    /// nothing.
    pub fn add(&mut self, kind: &str, max_uses: Option<u64>) {
        if CALLER_TOOLS.iter().any(|start| kind.starts_with(start)) {
            return;
        }
        let is_search = || SEARCH_WORDS.iter().any(|word| kind.contains(word));
        let (count, usual) = match kind {
            "file_search" | "fileSearch" | "collections_search" => {
                (&mut self.file_searches, DEFAULT_MAX_USES)
            }
            "image_generation" => (&mut self.images, DEFAULT_MAX_IMAGES),
            "codeExecution" | "shell" => (&mut self.code_runs, DEFAULT_MAX_USES),
            _ if kind.starts_with("code_") => (&mut self.code_runs, DEFAULT_MAX_USES),
            _ if is_search() => (&mut self.searches, DEFAULT_MAX_USES),
            _ => (&mut self.others, DEFAULT_MAX_USES),
        };
        *count = count.saturating_add(max_uses.unwrap_or(usual));
    }

    /// Returns true if a tool adds content to the prompt whose size is not known. Images add none, and
    /// the results of searches have a usual size.
    pub const fn read_content(&self) -> bool {
        self.file_searches > 0 || self.code_runs > 0 || self.others > 0
    }

    /// Returns the maximum number of uses.
    pub const fn max_uses(&self) -> u64 {
        self.searches
            .saturating_add(self.file_searches)
            .saturating_add(self.code_runs)
            .saturating_add(self.images)
            .saturating_add(self.others)
    }
}

impl<K: AsRef<str>> FromIterator<(K, Option<u64>)> for HostedTools {
    /// Adds up tools, each by its type and its maximum number of uses.
    fn from_iter<I: IntoIterator<Item = (K, Option<u64>)>>(tools: I) -> Self {
        let mut sum = Self::default();
        tools.into_iter().for_each(|(kind, max_uses)| sum.add(kind.as_ref(), max_uses));
        sum
    }
}

/// Beginnings of the types of tools whose results the caller sends, or that only select other tools.
const CALLER_TOOLS: [&str; 13] = [
    "apply_patch",
    "bash",
    "computer",
    "custom",
    "function",
    "local_shell",
    "memory",
    "namespace",
    "str_replace",
    "text_editor",
    "tool_search",
    "tool_use",
    "toolSearch",
];

/// Words in the types of searches: `web_search`, `googleSearch`, `googleMaps`,
/// `googleSearchRetrieval`.
const SEARCH_WORDS: [&str; 4] = ["search", "Search", "Maps", "Retrieval"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_told_apart_by_who_runs_them() {
        for (kind, want) in [
            ("function", HostedTools::default()),
            ("computer_use_preview", HostedTools::default()),
            ("computerUse", HostedTools::default()),
            ("text_editor_20250728", HostedTools::default()),
            ("web_search_20250305", HostedTools { searches: 10, ..HostedTools::default() }),
            ("googleSearchRetrieval", HostedTools { searches: 10, ..HostedTools::default() }),
            ("googleMaps", HostedTools { searches: 10, ..HostedTools::default() }),
            ("x_search", HostedTools { searches: 10, ..HostedTools::default() }),
            ("file_search", HostedTools { file_searches: 10, ..HostedTools::default() }),
            ("code_execution_20250825", HostedTools { code_runs: 10, ..HostedTools::default() }),
            ("code_interpreter", HostedTools { code_runs: 10, ..HostedTools::default() }),
            ("image_generation", HostedTools { images: 4, ..HostedTools::default() }),
            ("mcp", HostedTools { others: 10, ..HostedTools::default() }),
            ("web_fetch_20250910", HostedTools { others: 10, ..HostedTools::default() }),
            ("urlContext", HostedTools { others: 10, ..HostedTools::default() }),
        ] {
            let mut tools = HostedTools::default();
            tools.add(kind, None);
            assert_eq!(tools, want, "{kind}");
            assert_eq!(
                tools.read_content(),
                want.max_uses() > want.images + want.searches,
                "{kind}"
            );
        }
    }
}
