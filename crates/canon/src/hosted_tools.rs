//! Tools that a provider runs itself: their results become a part of the prompt, and some have a
//! price.

use serde_json::Value;

/// The assumed maximum of uses of a tool, or of searches, for a call that sets no limit. A provider may
/// run more; the operator pays for those, not the key.
pub const DEFAULT_MAX_USES: u64 = 10;

/// The same for images. They are dear, and few requests make more than one.
const DEFAULT_MAX_IMAGES: u64 = 4;
/// Memory of the largest container, for a size that is not understood.
const MAX_CONTAINER_GIGABYTES: u64 = 64;
/// The tokens of a large image in high quality:
/// <https://platform.openai.com/docs/guides/image-generation#cost-and-latency>.
pub const TOOL_IMAGE_TOKENS: u64 = 6_240;

/// Field of OpenRouter that adds tools to any format.
pub const PLUGINS_FIELD: &str = "plugins";

/// The tools of a request that the provider runs, with the maximum number of their uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostedTools {
    /// Searches in the web, in maps, or in another index.
    pub searches: u64,
    /// Searches in files of the provider's storage.
    pub file_searches: u64,
    /// Runs of code in a container of the provider.
    pub code_runs: u64,
    /// Memory of the largest container in gigabytes, if the request sets it. The price is that of one
    /// gigabyte, and grows with it: <https://developers.openai.com/api/docs/pricing>.
    pub container_gigabytes: Option<u64>,
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

    /// Adds a tool with the JSON of the container that it runs in. The caller runs the local ones.
    pub fn add_in(&mut self, kind: &str, max_uses: Option<u64>, container: Option<&str>) {
        let container: Option<Value> = container.and_then(|json| serde_json::from_str(json).ok());
        let field = |name: &str| container.as_ref().and_then(|container| container.get(name));
        if field("type").and_then(Value::as_str) == Some("local") {
            return;
        }
        if let Some(memory) = field("memory_limit").filter(|memory| !memory.is_null()) {
            let gigabytes = memory.as_str().and_then(|text| text.strip_suffix('g')?.parse().ok());
            let gigabytes = gigabytes.unwrap_or(MAX_CONTAINER_GIGABYTES);
            self.container_gigabytes = self.container_gigabytes.max(Some(gigabytes));
        }
        self.add(kind, max_uses);
    }

    /// Returns these tools and those of a field `plugins`, if there is one: searches in the web, and readers
    /// of files (<https://openrouter.ai/docs/guides/features/plugins/overview>).
    #[must_use]
    pub fn with_plugins(mut self, has_plugins: bool) -> Self {
        if has_plugins {
            self.add("web_search", None);
            self.add(PLUGINS_FIELD, None);
        }
        self
    }

    /// Returns the price of runs in prices of the smallest container.
    pub fn run_units(&self, runs: u64) -> u64 {
        runs.saturating_mul(self.container_gigabytes.unwrap_or(1).max(1))
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
const CALLER_TOOLS: [&str; 14] = [
    "apply_patch",
    "bash",
    "browser_toolset",
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
    fn containers_count_by_their_memory() {
        for (container, runs, units) in [
            (None, 10, 1),
            (Some(r#"{"type":"auto"}"#), 10, 1),
            (Some(r#"{"type":"auto","memory_limit":"4g"}"#), 10, 4),
            (Some(r#"{"type":"auto","memory_limit":"huge"}"#), 10, 64),
            (Some(r#""cntr_1""#), 10, 1),
            (Some(r#"{"type":"container_auto","skills":["local"]}"#), 10, 1),
            (Some(r#"{"type":"local"}"#), 0, 1),
        ] {
            let mut tools = HostedTools::default();
            tools.add_in("shell", None, container);
            assert_eq!((tools.code_runs, tools.run_units(1)), (runs, units), "{container:?}");
        }
    }

    #[test]
    fn tools_are_told_apart_by_who_runs_them() {
        for (kind, want) in [
            ("function", HostedTools::default()),
            ("computer_use_preview", HostedTools::default()),
            ("computerUse", HostedTools::default()),
            ("text_editor_20250728", HostedTools::default()),
            ("browser_toolset_20260801", HostedTools::default()),
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
